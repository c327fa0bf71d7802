"""HTML for people.

Pages ask no third party for anything and run one small inline script, which a content security
policy names by its digest; terms from data are escaped and linked only to this server, or to
``http:`` and ``https:`` addresses.
"""

import base64
import hashlib
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

_FILES = files("tpf_server.web") / "templates"


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_STYLE, _SCRIPT = _read("style.css"), _read("countdown.js")

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; img-src data:; style-src {_digest(_STYLE)}; "
    f"script-src {_digest(_SCRIPT)}; base-uri 'none'; frame-ancestors 'none'"
)

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FunctionLoader(_read),
    autoescape=True,
    trim_blocks=True,
    undefined=jinja2.StrictUndefined,
    auto_reload=False,
)
_ENVIRONMENT.globals.update(style=Markup(_STYLE), script=Markup(_SCRIPT))  # noqa: S704 - our files


def render(template: str, **values: Any) -> str:
    """A page from one of the templates."""
    return _ENVIRONMENT.get_template(template).render(values)
