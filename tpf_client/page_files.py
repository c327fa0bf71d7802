"""The page of the endpoint: files of this package, and what it is to know of the endpoint."""

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path
from typing import TypeAlias

from tpf_client.map_tiles import MapTiles
from tpf_client.protocol import RefusedError, WsgiEnvironment

Headers: TypeAlias = list[tuple[str, str]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; img-src data:"
)
"""What the page may load: files of ours, and nothing that stands in its markup.

Where a map has tiles, their origin follows, and nothing else does.
"""

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/outline.json": ("outline.json", "application/json"),
    "/licences.txt": ("licences.txt", "text/plain; charset=utf-8"),
}


@dataclass(frozen=True, slots=True)
class Example:
    """A query that the page offers.

    Args:
        title: what people call it.
        query: its text.
    """

    title: str
    query: str


def read_example(file: Path) -> Example:
    """An example from a file: the first comment is its title, else the file's name is.

    Raises:
        OSError: it cannot be read.
        UnicodeDecodeError: it is not UTF-8.
    """
    text = file.read_text(encoding="utf-8")
    first = text.lstrip().partition("\n")[0]
    title = first.lstrip("# ").strip() if first.startswith("#") else ""
    return Example(title or file.stem, text)


class PageFiles:
    """What is at the paths of the page.

    Args:
        urls: the datasets that the endpoint is over.
        examples: queries that the page offers.
        continuous: path of the continuous queries of the same server; none where empty.
        tiles: of its map.
    """

    def __init__(
        self,
        urls: Sequence[str],
        examples: Sequence[Example] = (),
        continuous: str = "",
        tiles: MapTiles | None = None,
    ) -> None:
        told = {
            "datasets": list(urls),
            "examples": [{"title": each.title, "query": each.query} for each in examples],
            "continuous": continuous,
            "tiles": tiles and {"url": tiles.template, "attribution": tiles.attribution},
        }
        self._settings = json.dumps(told, ensure_ascii=False).encode()
        self._rules = [
            ("Content-Security-Policy", f"{POLICY} {tiles.origin}" if tiles else POLICY),
            # Who has tiles may want to know for whom, but not for which query.
            ("Referrer-Policy", "strict-origin" if tiles else "no-referrer"),
        ]

    def __contains__(self, path: str) -> bool:
        """Whether there is something at a path."""
        return path in _FILES or path == "/page.json"

    def answer(self, environ: WsgiEnvironment, path: str) -> tuple[HTTPStatus, Headers, bytes]:
        """The answer to a request for one of our paths.

        Raises:
            RefusedError: it is no request to read.
        """
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} can only be read")
        if path == "/page.json":
            media_type, body = "application/json", self._settings
        else:
            name, media_type = _FILES[path]
            body = _content(name)
        tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
        headers = [
            ("ETag", tag),
            ("Cache-Control", "no-cache"),
            *self._rules,
        ]
        if tag in environ.get("HTTP_IF_NONE_MATCH", ""):
            return HTTPStatus.NOT_MODIFIED, headers, b""
        headers.append(("Content-Type", media_type))
        if "gzip" in environ.get("HTTP_ACCEPT_ENCODING", ""):
            headers.append(("Content-Encoding", "gzip"))
            body = _compressed(body)
        return HTTPStatus.OK, [*headers, ("Content-Length", str(len(body)))], body


@cache
def _content(name: str) -> bytes:
    return (files("tpf_client") / "page" / "built" / name).read_bytes()


@cache
def _compressed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)
