"""Emissions as text: server-sent events and NDJSON.

An emission is a JSON object with ``sequence``, ``at`` and one of ``added``, ``removed`` and
``result`` (the whole result): rows as objects from variable to N-Triples term, unbound ones left
out; triples as arrays; for ASK in C-SPARQL ``result`` is true or false. In NDJSON the number of the
event is its ``id``.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from tpf_server.continuous.engine.delivery import Emission
from tpf_server.continuous.engine.elements.timestamps import iso
from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.continuous.hosted import HostedQuery

NDJSON: Final = "application/x-ndjson"
_HEARTBEAT: Final = 15.0
"""Seconds of silence after which a follower is told that the connection lives. Only then does the
server notice that one has gone."""


def as_events(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """The emissions after this number as server-sent events; an error is the last event."""
    try:
        for portion in _portions(hosted, after, follow=follow):
            events = [f"id: {number}\ndata: {text}\n\n" for number, text in portion]
            yield "".join(events) or ": still here\n\n"
    except ContinuousError as error:
        yield f"event: error\ndata: {json.dumps({'error': str(error)})}\n\n"


def as_lines(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """The emissions after this number as lines; an error is the last line."""
    try:
        for portion in _portions(hosted, after, follow=follow):
            lines = [f'{{"id": {number}, {text[1:]}\n' for number, text in portion]
            yield "".join(lines) or "\n"
    except ContinuousError as error:
        yield json.dumps({"error": str(error)}) + "\n"


def _portions(
    hosted: HostedQuery, after: int, *, follow: bool
) -> Iterator[Sequence[tuple[int, str]]]:
    """Numbers and JSON of emissions, as many as are there; none where nothing came for a while."""
    log, encode = hosted.log, partial(json_of, hosted)
    while (found := log.read(after, _HEARTBEAT if follow else 0.0)) is not None:
        if not found and not follow:
            return
        portion = log.texts(found, encode)
        if portion:
            after = portion[-1][0]
        yield portion


def json_of(hosted: HostedQuery, emission: Emission) -> str:
    """An emission of a query as a JSON object."""
    variables = hosted.variables
    rows: Any
    if hosted.form == "ASK" and hosted.relation == "result":
        rows = bool(emission.rows)
    elif variables is None:
        rows = [list(row) for row in emission.rows]
    else:
        rows = [
            {name: term for name, term in zip(variables, row, strict=True) if term is not None}
            for row in emission.rows
        ]
    return json.dumps(
        {"sequence": emission.sequence, "at": iso(emission.at), hosted.relation: rows}
    )
