"""Write HTML for people.

Pages load nothing from third parties; a content security policy names their one script. Terms are
escaped and linked only to this server, ``http:`` or ``https:``.
"""

import base64
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from annotations.instants import format_instant, to_micros
from annotations.labels import Interval
from annotations.namespaces import (
    DCAT,
    DCTERMS,
    FOAF,
    HYDRA,
    RDF,
    RDFS,
    SD,
    SINGLETON,
    TEMPORAL,
    VOID,
    XSD,
)
from annotations.terms import DEFAULT_GRAPH, Term, is_literal, literal_parts
from annotations.urls import parameter_of_term

# Terms as HTML: abbreviated, clickable, safe.

_WELL_KNOWN = {
    "rdf": RDF, "rdfs": RDFS, "xsd": XSD, "foaf": FOAF, "void": VOID, "hydra": HYDRA, "sd": SD,
    "dcterms": DCTERMS, "tmp": TEMPORAL, "sp": SINGLETON, "dcat": DCAT,
    "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
    "geosparql": "http://www.opengis.net/ont/geosparql#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "prov": "http://www.w3.org/ns/prov#",
    "schema": "http://schema.org/",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "sosa": "http://www.w3.org/ns/sosa/",
}  # fmt: skip
_KEPT_CELLS, _SHORT = 4096, 512
# Most IRIs: they mean the same in HTML and in a query string as they are.
_AS_IT_IS = re.compile(r"[A-Za-z0-9._~:/@!$()*,;-]*")


class TermCells:
    """Show the terms of one endpoint."""

    def __init__(
        self,
        url: str,
        base: str,
        prefixes: Mapping[str, str],
        name_of: Callable[[Term], str] = lambda _: "",
    ) -> None:
        self.name_of = name_of
        """Names terms; empty: it knows no name."""
        self._url = str(escape(url))
        self._base = base
        self._namespaces = sorted(
            ((namespace, prefix) for prefix, namespace in {**_WELL_KNOWN, **prefixes}.items()),
            key=lambda pair: -len(pair[0]),
        )
        self._all_namespaces = tuple(namespace for namespace, _ in self._namespaces)
        self._kept_cell = lru_cache(maxsize=_KEPT_CELLS)(self._cell)

    def cell(self, position: str, term: str, *, named: bool = False) -> str:
        """Return the content of a table's cell: the term, linked to its other occurrences."""
        # What comes again is short; long texts would fill the memory.
        return (self._kept_cell if len(term) <= _SHORT else self._cell)(position, term, named)

    def _cell(self, position: str, term: str, named: bool) -> str:
        if term == DEFAULT_GRAPH:
            return ""
        iri = term[1:-1]
        if term[0] == "<" and _AS_IT_IS.fullmatch(iri):
            value = attribute = iri
            shown = self.abbreviate(iri)
        else:
            value = quote(parameter_of_term(term), safe="")
            if term.startswith('"'):
                return self._literal(term, f"{self._url}?{position}={value}")
            attribute = escape(iri)
            shown = escape(self.abbreviate(iri) if term[1] != "<" else term)
        if named:
            shown = escape(self.name_of(Term(term))) or shown
        cell = f'<a href="{self._url}?{position}={value}" title="{attribute}">{shown}</a>'
        # What this server minted stands for facts, not for pages of its own.
        if iri.startswith(("http://", "https://")) and not iri.startswith(self._base):
            cell += (
                f'<a class="out" href="{attribute}" rel="nofollow noreferrer" '
                f'aria-label="open {attribute}">↗</a>'
            )
        return cell

    def _literal(self, term: str, link: str) -> str:
        lexical, language, datatype = literal_parts(term)
        kind = f"@{language}" if language else self._datatype(term, datatype)
        tag, _, direction = (language or "").partition("--")
        attributes = f' lang="{escape(tag)}"' if tag else ""
        attributes += f' dir="{direction}"' if direction else ""
        if datatype.startswith(XSD):
            attributes, kind = f'{attributes} title="{escape(kind)}" class="value"', ""
        # Of blanks alone there would be nothing to see.
        text = escape(lexical if lexical.strip() else f'"{lexical}"' if lexical else "(empty)")
        shown = f'<a href="{link}"{attributes}>{text}</a>'
        return f'{shown} <span class="kind">{escape(kind)}</span>' if kind else shown

    def abbreviate(self, iri: str) -> str:
        """Return the IRI as ``prefix:name`` or as a path of this server where possible."""
        if iri.startswith(self._base):
            return iri[len(self._base) - 1 :]
        if not iri.startswith(self._all_namespaces):
            return iri
        for namespace, prefix in self._namespaces:
            if iri.startswith(namespace) and "/" not in (name := iri[len(namespace) :]):
                return f"{prefix}:{name}"
        return iri

    def _datatype(self, term: str, datatype: str) -> str:
        return self.abbreviate(datatype) if term.endswith(">") else ""


def markup(text: str) -> Markup:
    """Take a text as HTML: it is made of escaped parts."""
    return Markup(text)  # noqa: S704


def short_instant(instant: datetime, now: datetime) -> str:
    """Write an instant, which is UTC, for people."""
    return f"{instant:%H:%M:%S}" if instant.date() == now.date() else f"{instant:%Y-%m-%d %H:%M}"


class FormField(NamedTuple):
    """An input of a form."""

    name: str
    value: str = ""
    hint: str = ""
    type: str = "text"
    step: str = ""


def instant_field(name: str, instant: datetime | None) -> FormField:
    """Make an input for an instant: what browsers send of it has no time zone, and means UTC."""
    value, step = "", "1"
    if instant is not None:
        step = "0.001" if instant.microsecond else "1"
        value = instant.replace(tzinfo=None).isoformat(
            timespec="milliseconds" if instant.microsecond else "seconds"
        )
    return FormField(name, value, type="datetime-local", step=step)


# Small drawings without styles of their own: how much was published lately, what held when.

_WIDE: Final = 3
_GAP: Final = 1
_HIGH: Final = 24


def sparkline(counts: Sequence[int]) -> Markup:
    """Return a bar chart of counts per minute, with its description."""
    most = max(counts, default=0)
    if not most:
        return Markup('<span class="note">no updates in the last hour</span>')
    bars = "".join(
        f"M{column * _WIDE},{_HIGH}v-{max(1, round(count * _HIGH / most))}h{_WIDE - _GAP}V{_HIGH}z"
        for column, count in enumerate(counts)
        if count
    )
    summary = f"{sum(counts):,} updates in the last hour, at most {most:,} in a minute"
    return Markup(
        '<svg class="updates" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>'
        '<path d="{}"/></svg> <span class="note">{}</span>'
    ).format(len(counts) * _WIDE, _HIGH, summary, summary, bars, summary)


_LONG: Final = 1000
_TALL: Final = 32


def time_line(values: Sequence[tuple[Interval, Term]], begin: datetime, end: datetime) -> Markup:
    """Draw the values of a fact over time: numbers by their height."""
    seconds = max((end - begin).total_seconds(), 1e-6)
    numbers = [_number(value) for _, value in values]
    known = [number for number in numbers if number is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    bars = []
    for each, ((label, value), number) in enumerate(zip(values, numbers, strict=True)):
        x = (label.start - begin).total_seconds() / seconds * _LONG
        width = (min(label.end, end) - label.start).total_seconds() / seconds * _LONG
        share = 1.0 if number is None or most == least else (number - least) / (most - least)
        height = _TALL * (0.25 + 0.75 * share)
        bars.append(
            Markup(
                '<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"{}>'
                "<title>{}, {:%Y-%m-%d %H:%M:%S} to {:%Y-%m-%d %H:%M:%S}</title></rect>"
            ).format(
                x,
                _TALL - height,
                max(width, 1),
                height,
                Markup(' class="odd"') if each % 2 else "",
                _plain(value),
                label.start,
                label.end,
            )
        )
    last = _plain(values[-1][1]) if values else ""
    summary = f"{len(values)} values since {begin:%Y-%m-%d %H:%M:%S}, the last one {last}"
    return Markup(
        '<svg class="line" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" '
        'aria-label="{}">{}</svg>'
    ).format(_LONG, _TALL, summary, Markup().join(bars))


def _number(term: Term) -> float | None:
    if not is_literal(term) or literal_parts(term).datatype not in _NUMBERS:
        return None
    try:
        number = float(literal_parts(term).lexical)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _plain(term: Term) -> str:
    return literal_parts(term).lexical if is_literal(term) else term[1:-1]


_NUMBERS: Final = frozenset(f"{XSD}{name}" for name in ("integer", "decimal", "double", "float"))


_FILES = files("tpf_server.web") / "templates"


def _read(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


_STYLE, _SCRIPT = _read("style.css"), _read("countdown.js")

CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; img-src data:; style-src {_digest(_STYLE)}; "
    f"script-src {_digest(_SCRIPT)}; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FunctionLoader(_read),
    autoescape=True,
    trim_blocks=True,
    undefined=jinja2.StrictUndefined,
    auto_reload=False,
)
_ENVIRONMENT.filters.update(
    instant=format_instant,
    milliseconds=lambda instant: to_micros(instant) // 1000,
    short=short_instant,
)
_ENVIRONMENT.globals.update(style=Markup(_STYLE), script=Markup(_SCRIPT))  # noqa: S704 - our files


def render(template: str, **values: Any) -> str:
    """Render a template."""
    return _ENVIRONMENT.get_template(template).render(values)


class HtmlTable(NamedTuple):
    """A table: the first cell of a row is its head."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    empty: str = ""


def table_page(
    title: str,
    site_title: str,
    base: str,
    intro: str,
    tables: Sequence[HtmlTable],
    texts: Sequence[str] = (),
) -> str:
    """Render a page of tables, below an introduction and preformatted texts."""
    return render(
        "tables.html",
        title=title,
        site_title=site_title,
        base=base,
        intro=intro,
        tables=tables,
        texts=texts,
    )


def link(url: str, text: str) -> Markup:
    """Make a link."""
    return Markup('<a href="{}">{}</a>').format(url, text)
