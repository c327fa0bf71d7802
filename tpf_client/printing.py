"""Answers on standard output: which formats there are for which form of query, and their text."""

import sys
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

from annotations.printable import printable
from tpf_client.live_table import solution_table
from tpf_client.solutions import Solutions, graph_text
from tpf_client.sparql.algebra import QueryForm
from tpf_client.sparql.results import BOOLEAN_WRITERS, RESULT_MEDIA_TYPES

if TYPE_CHECKING:
    import rdflib


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
        """Nobody reads any more: whoever runs the command ends it, as where no table is written.

        Raises:
            BrokenPipeError: always.
        """
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
    """The format of this name, in whatever case: ours, a usual one, or a media type."""
    # A parameter, such as a charset, changes nothing.
    return _CALLED.get(name.partition(";")[0].strip().lower())


def refusal(form: QueryForm, wanted: Format | None, *, watch: bool, terminal: bool) -> str | None:
    """Why an answer cannot be had in a format; ``None``: it can.

    Args:
        form: the form of the query.
        wanted: the format; ``None``: whatever fits.
        watch: whether it is a continuous query.
        terminal: whether standard output is a terminal.
    """
    offered = _FORMATS[form]
    what = f"the answer of {form}"
    if watch:
        offered = (Format.TABLE, Format.NDJSON) if terminal else (Format.NDJSON,)
        what = "--watch" if terminal else "--watch without a terminal"
    if wanted is None or wanted in offered:
        return None
    return f"{what} has no format {wanted.value}: {', '.join(each.value for each in offered)}"


def print_answer(answer: "Solutions | bool | rdflib.Graph", form: Format | None) -> int:
    """Print an answer, solutions as they come; the number of its solutions or triples.

    Args:
        answer: what the client gave.
        form: one of the formats of this answer; ``None``: what fits best.
    """
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
        console.print(solution_table(answer.variables, rows))
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
