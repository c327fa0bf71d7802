"""Emissions as text: server-sent events and NDJSON.

An emission is a JSON object with ``sequence``, ``at`` and one of ``added``, ``removed`` and
``result`` (the whole result): rows as objects from variable to N-Triples term, unbound ones left
out; triples as arrays; for ASK in C-SPARQL ``result`` is true or false. In NDJSON the number of the
event is its ``id``.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from tpf_server.continuous.hosted import HostedQuery
from tpf_server.cqels.delivery import Emission
from tpf_server.cqels.errors import ContinuousError
from tpf_server.cqels.timestamps import iso

NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
HEARTBEAT: Final = 15.0
"""Seconds of silence after which a follower is told that the connection lives. Only then does the
server notice that one has gone."""


def as_events(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """The emissions after this number as server-sent events; an error is the last event."""
    try:
        for number, emission in _emissions(hosted, after, follow=follow):
            if emission is None:
                yield ": still here\n\n"
            else:
                yield f"id: {number}\ndata: {_json(emission, hosted)}\n\n"
    except ContinuousError as error:
        yield f"event: error\ndata: {json.dumps({'error': str(error)})}\n\n"


def as_lines(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """The emissions after this number as lines; an error is the last line."""
    try:
        for number, emission in _emissions(hosted, after, follow=follow):
            if emission is None:
                yield "\n"
            else:
                yield f'{{"id": {number}, {_json(emission, hosted)[1:]}\n'
    except ContinuousError as error:
        yield json.dumps({"error": str(error)}) + "\n"


def _emissions(
    hosted: HostedQuery, after: int, *, follow: bool
) -> Iterator[tuple[int, Emission | None]]:
    """Emissions with their numbers; ``None`` where nothing came for a while."""
    while (found := hosted.log.read(after, HEARTBEAT if follow else 0.0)) is not None:
        if not found:
            if not follow:
                return
            yield after, None
        for after, emission in found:
            yield after, emission


def _json(emission: Emission, hosted: HostedQuery) -> str:
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
