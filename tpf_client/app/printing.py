"""Answers on standard output: formats by form of query, and their text."""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from annotations.terms import is_iri, is_literal, literal_parts
from annotations.wording import counted, printable
from tpf_client.fragments.fetcher import Statistics
from tpf_client.solutions import Solution, Solutions, graph_text
from tpf_client.sparql.algebra import QueryForm, Row
from tpf_client.sparql.results import BOOLEAN_WRITERS, RESULT_MEDIA_TYPES

if TYPE_CHECKING:
    import rdflib

    from tpf_client.stream import Update


# Answers on a terminal: tables, and the board that updates in place.

_MAX_COMPARISONS = 250_000
"""More than a screen could show; then nothing is taken for changed."""

_LOCAL_NAME = re.compile(r"\w(?:[\w.-]*[\w-])?")

STATIC = "nothing in this dataset is labelled: without --keep-checking it is answered once"


Prefixes: TypeAlias = Mapping[str, str]
"""Namespaces by prefix: IRIs in tables are abbreviated by those of the query."""


def cell(term: str | None, prefixes: Prefixes = MappingProxyType({})) -> str:
    """Format a term for people: a literal's text, an IRI without brackets."""
    if term is None:
        return ""
    if is_literal(term):
        return printable(literal_parts(term).lexical)
    if not is_iri(term):
        return printable(term)
    iri = term[1:-1]
    fitting = [each for each in prefixes.items() if each[1] and iri.startswith(each[1])]
    if fitting:
        prefix, namespace = max(fitting, key=lambda each: len(each[1]))
        if _LOCAL_NAME.fullmatch(name := iri.removeprefix(namespace)):
            return f"{prefix}:{name}"
    return printable(iri)


def solution_table(
    variables: Sequence[str], solutions: Sequence[Solution], prefixes: Prefixes
) -> Table:
    """Solutions as a table."""
    table = Table(*variables, highlight=False)
    for solution in solutions:
        table.add_row(*(Text(cell(term, prefixes)) for term in solution.row))
    return table


class LiveTable:
    """The present answer of a continuous query, for rich."""

    def __init__(self, urls: Sequence[str] = (), prefixes: Prefixes = MappingProxyType({})) -> None:
        self._urls = tuple(urls)
        self._prefixes = prefixes

    def render(self, update: "Update", statistics: Statistics) -> RenderableType:
        rows = [solution.row for solution in update.results]
        added = [solution.row for solution in update.added]
        removed = [solution.row for solution in update.removed]
        changed = pairs(added, removed)
        new = set(added)
        late = Counter(solution.row for solution in update.late)
        lines = []
        for row in rows:
            before = changed.get(row)
            lines.append(self._styled(row, before, new, late=late[row] > 0))
            late[row] -= 1
        replaced = set(changed.values())
        vanished = [row for row in removed if row not in replaced]
        lines += [[self._text(term, "dim strike") for term in row] for row in vanished]
        status = Text(
            f"{counted(len(rows), 'row')}{_late(update)} at {_time(update.at, update.at)} UTC"
            f" · valid until {_time(update.valid_until, update.at)}"
            f" · next look {_time(update.wakes_at, update.at)}",
            style="bold",
        )
        work = f"{counted(statistics.requests, 'request')}, {statistics.cache_hits} from cache"
        below = [status, _cut(" · ".join((*self._urls, work)), "dim")]
        if not update.dynamic:
            below.append(_cut(STATIC, ""))
        below += [_cut(f"warning: {each}", "yellow") for each in update.warnings[:_WARNINGS]]
        if update.error is not None:
            below.append(_cut(f"error: {update.error}; trying again", "red"))
        if update.form == "ASK":
            style = "bold yellow" if added or removed else "bold"
            answer = {True: "yes", False: "no", None: "…"}[update.boolean]
            lines = [[Text(answer, style=style)]]
            return _Frame(("answer",), lines, 1, below)
        return _Frame(update.variables, lines, len(rows), below)

    def _styled(self, row: Row, before: Row | None, new: set[Row], *, late: bool) -> list[Text]:
        if late:
            return [self._text(term, "dim") for term in row]
        if before is None:
            style = "green" if row in new else ""
            return [self._text(term, style) for term in row]
        return [
            self._text(term, "" if term == old else "bold yellow")
            for term, old in zip(row, before, strict=True)
        ]

    def _text(self, term: str | None, style: str) -> Text:
        return Text(" ".join(cell(term, self._prefixes).splitlines()), style=style)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A table that leaves room for the lines `below`."""

    variables: Sequence[str]
    lines: Sequence[Sequence[Text]]
    present: int
    below: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # A line is left for the cursor.
        height = console.size.height - 1 - _FRAME
        height -= sum(len(console.render_lines(text, options)) for text in self.below)
        shown = self.lines
        if len(shown) > height:
            shown = shown[: max(height - 1, 0)]
        if height > 0:
            table = Table(highlight=False)
            for name in self.variables:
                table.add_column(name, no_wrap=True, overflow="ellipsis")
            for line in shown:
                table.add_row(*line)
            yield table
            if hidden := self.present - min(len(shown), self.present):
                yield _cut(f"{counted(hidden, 'more row')}", "dim")
        yield from self.below


def _late(update: "Update") -> str:
    return f" ({len(update.late)} late)" if update.late else ""


_FRAME = 4
"""Lines of a table that are no rows: its head and its border."""

_WARNINGS = 3


def _cut(text: str, style: str) -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def pairs(added: Sequence[Row], removed: Sequence[Row]) -> dict[Row, Row]:
    """Pair added rows with the removed ones they replace."""
    new, old = dict.fromkeys(added), dict.fromkeys(removed)
    if len(new) * len(old) > _MAX_COMPARISONS:
        return {}
    candidates = []
    for row in new:
        for other in old:
            same = [a == b for a, b in zip(row, other, strict=True)]
            named = len(row) > 0 and same[0] and row[0] is not None and is_iri(row[0])
            if 2 * sum(same) >= len(row) or named:
                candidates.append((sum(same), same, row, other))
    candidates.sort(key=lambda each: each[:2], reverse=True)
    result: dict[Row, Row] = {}
    taken: set[Row] = set()
    for _, _, row, other in candidates:
        if row not in result and other not in taken:
            result[row] = other
            taken.add(other)
    return result


def _time(instant: datetime | None, now: datetime) -> str:
    if instant is None:
        return "—"
    utc = instant.astimezone(UTC)
    return f"{utc:%H:%M:%S}" if utc.date() == now.astimezone(UTC).date() else f"{utc:%F %H:%M:%S}"


class Format(StrEnum):
    """Formats of answers."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    XML = "xml"
    NDJSON = "ndjson"
    TTL = "ttl"
    NT = "nt"
    JSONLD = "jsonld"
    RDFXML = "rdfxml"


class OutputConsole(Console):
    """Standard output as tables see it."""

    def on_broken_pipe(self) -> NoReturn:
        """Raise for the command's handler: nobody reads any more."""
        raise BrokenPipeError


_GRAPHS = {
    Format.TTL: "turtle", Format.NT: "nt", Format.JSONLD: "json-ld", Format.RDFXML: "xml",
}  # fmt: skip
_NAMES = {
    Format.JSON: ("srj", "application/json"),
    Format.XML: ("srx", "application/xml", "text/xml"),
    Format.NDJSON: ("jsonl", "application/x-ndjson", "application/jsonl"),
    Format.TTL: ("turtle", "text/turtle"),
    Format.NT: ("ntriples", "n-triples", "application/n-triples"),
    Format.JSONLD: ("json-ld", "application/ld+json"),
    Format.RDFXML: ("rdf", "rdf/xml", "application/rdf+xml"),
}
"""What else the formats are called, beside the media types of results."""
_CALLED = {each.value: each for each in Format}
_CALLED |= {media_type: Format(name) for name, media_type in RESULT_MEDIA_TYPES.items()}
_CALLED |= {name: each for each, names in _NAMES.items() for name in names}
_FORMATS: dict[QueryForm, tuple[Format, ...]] = {
    "SELECT": tuple(each for each in Format if each not in _GRAPHS),
    "ASK": (Format.TABLE, Format.JSON, Format.XML),
    "CONSTRUCT": tuple(_GRAPHS),
    "DESCRIBE": tuple(_GRAPHS),
}


def named_format(name: str) -> Format | None:
    """Return a format by any of its names, or a media type."""
    # A parameter, such as a charset, changes nothing.
    return _CALLED.get(name.partition(";")[0].strip().lower())


def refusal(
    form: QueryForm, requested: Format | None, *, watch: bool, terminal: bool
) -> str | None:
    """Explain why an answer cannot be printed in a format, if so."""
    offered = _FORMATS[form]
    what = f"the answer of {form}"
    if watch:
        offered = (Format.TABLE, Format.NDJSON) if terminal else (Format.NDJSON,)
        what = "--watch" if terminal else "--watch without a terminal"
    if requested is None or requested in offered:
        return None
    return f"{what} has no format {requested.value}: {', '.join(each.value for each in offered)}"


def print_answer(
    answer: "Solutions | bool | rdflib.Graph", form: Format | None, prefixes: Prefixes
) -> int:
    """Print an answer as it comes; return its number of solutions or triples."""
    out = sys.stdout
    if isinstance(answer, bool):
        plain = form in (None, Format.TABLE)
        text = str(answer).lower() if plain else BOOLEAN_WRITERS[str(form)](answer)
        out.write(text.rstrip("\n") + "\n")
        out.flush()
        return 1
    if not isinstance(answer, Solutions):
        text = graph_text(answer, _GRAPHS[form or Format.TTL])
        out.write(text if text.endswith("\n") else text + "\n")
        out.flush()
        return len(answer)
    if form is None:
        form = Format.TABLE if out.isatty() else Format.JSON
    if form is Format.TABLE:
        console = OutputConsole()
        with console.status("asking…") if console.is_terminal else nullcontext():
            rows = list(answer)
        console.print(solution_table(answer.variables, rows, prefixes))
        return len(rows)
    # Only what people look at is changed; whatever reads the format gets it as it is.
    seen = printable if out.isatty() else str
    for piece in answer.pieces(form.value):
        out.write(seen(piece))
        # Whoever reads sees each solution when it is known; and we see when he has gone.
        out.flush()
    if form is Format.JSON:
        out.write("\n")
    out.flush()
    return answer.count
