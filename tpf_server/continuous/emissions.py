"""Emissions as text, server-sent events and NDJSON, and as record batches of Arrow.

An emission is a JSON object with ``sequence``, ``at`` and one of ``added``, ``removed`` and
``result`` (the whole result): rows as objects from variable to N-Triples term, unbound ones left
out; triples as arrays; for ASK in C-SPARQL ``result`` is true or false. In NDJSON the number of the
event is its ``id``. Arrow is a stream of IPC whose schema `result_columns` says.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from tpf_server.continuous.engine.errors import ContinuousError
from tpf_server.continuous.hosting import HostedQuery
from tpf_server.continuous.result_log import Event

NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
_HEARTBEAT: Final = 15.0
"""Seconds of silence after which a follower is told that the connection lives. Only then does the
server notice that one has gone."""
_Portion = TypeVar("_Portion")


def as_events(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """The emissions after this number as server-sent events; an error is the last event."""
    try:
        for portion in _texts(hosted, after, follow=follow):
            events = [f"id: {number}\ndata: {text}\n\n" for number, text in portion]
            yield "".join(events) or ": still here\n\n"
    except ContinuousError as error:
        yield f"event: error\ndata: {_ending(error)}\n\n"


def as_lines(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[str]:
    """The emissions after this number as lines; an error is the last line."""
    try:
        for portion in _texts(hosted, after, follow=follow):
            lines = [f'{{"id": {number}, {text[1:]}\n' for number, text in portion]
            yield "".join(lines) or "\n"
    except ContinuousError as error:
        yield _ending(error) + "\n"


def _ending(error: ContinuousError) -> str:
    return json.dumps({"error": str(error), "status": error.status})


def as_arrow(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[bytes]:
    """The emissions after this number as a stream of Arrow.

    An empty record batch says that the connection lives; an error is in the metadata of one, as
    ``error``, before the end.
    """
    written = io.BytesIO()

    def bytes_written() -> bytes:
        found = written.getvalue()
        written.seek(0)
        written.truncate()
        return found

    with pa.ipc.new_stream(written, hosted.columns.schema) as writer:
        try:
            read = partial(hosted.log.emissions, decode=hosted.decode)
            for portion in _portions(hosted, after, read, follow=follow):
                numbers = [number for number, _ in portion]
                writer.write_batch(hosted.columns.batch([each for _, each in portion], numbers))
                yield bytes_written()
        except ContinuousError as error:
            empty = hosted.columns.batch([], [])
            writer.write_batch(empty, custom_metadata={"error": str(error)})
    yield bytes_written()


def _texts(hosted: HostedQuery, after: int, *, follow: bool) -> Iterator[Sequence[tuple[int, str]]]:
    """Numbers and JSON of emissions."""
    texts = partial(hosted.log.texts, encode=hosted.encode)
    return _portions(hosted, after, texts, follow=follow)


def _portions(
    hosted: HostedQuery,
    after: int,
    read: Callable[[Iterable[Event]], Sequence[tuple[int, _Portion]]],
    *,
    follow: bool,
) -> Iterator[Sequence[tuple[int, _Portion]]]:
    """Numbered emissions, as many as are there; none where nothing came for a while."""
    while (found := hosted.log.read(after, _HEARTBEAT if follow else 0.0)) is not None:
        if not found and not follow:
            return
        portion = read(found)
        if portion:
            after = portion[-1][0]
        yield portion
