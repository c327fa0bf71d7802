"""Read mutated Arrow streams in a process that may die alone.

Run as ``python -m tests.support.mutated_arrow SEED COUNT``; it prints the number of accepted
bodies.
"""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from annotations.clock import ManualClock
from annotations.terms import Term
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.records.record_bodies import read_records
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import Policies
from tpf_server.errors import BodyTooLargeError, ServerError

LIMIT = 100_000
QUERY = """SELECT ?k (COUNT(*) AS ?c) { STREAM <urn:s> [RANGE 9ms] { ?s <urn:k> ?k ; <urn:x> ?x } }
GROUP BY ?k ORDER BY DESC(?c) ?k LIMIT 2"""
_TEXTS = ['"a"', "<urn:b>", '"a text that is long"@en', '"a"', "_:b"]
_EDGES = (0, 1, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1)


def decimals(scale: int, count: int, rest: int = 0) -> pa.Array:
    """Decimals with a scale, and so many bytes behind them in their buffer."""
    (_, numbers) = pa.array([Decimal(n) for n in range(count)], pa.decimal128(38)).buffers()
    long = pa.py_buffer(numbers.to_pybytes()[: 16 * count] + bytes(rest))
    return pa.Array.from_buffers(pa.decimal128(5, scale), count, [None, long])


def bodies() -> Iterator[bytes]:
    """Valid bodies: of all types and encodings, in one batch and in several."""
    texts = pa.array(_TEXTS)
    numbers = pa.array(range(5))
    columns = [
        texts,
        texts.dictionary_encode(),
        pc.run_end_encode(texts),
        texts.cast(pa.large_string()),
        texts.cast(pa.string_view()),
        texts.cast(pa.string_view()).dictionary_encode(),
        pc.run_end_encode(pa.array([7, 7, 7, 8, 8])),
        pa.array([Decimal(n) for n in range(5)]).dictionary_encode(),
        decimals(-3, 5),
        decimals(2, 5, rest=8),
        pa.array([True, False, True, True, False]),
        pa.array([datetime(2020, 1, 1, tzinfo=UTC)] * 5),
        pa.array([0.5] * 5),
        pa.array([None] * 5),
        pa.array(['"a"', None, '"b"', '"c"', '"d"']),
    ]
    for column in columns:
        for times in (numbers, numbers.dictionary_encode(), pc.run_end_encode(numbers)):
            whole = pa.RecordBatch.from_pydict(
                {"timestamp": times, "subject": texts, "urn:k": numbers, "urn:x": column}
            )
            for batches in ([whole], [whole.slice(0, 2), whole.slice(2)]):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, whole.schema) as writer:
                    for each in batches:
                        writer.write_batch(each)
                yield sink.getvalue().to_pybytes()


def mutated(body: bytes, chance: Random) -> bytes:
    """Damage a body once or several times."""
    found = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 8))):
        place = chance.randrange(len(found))
        match chance.randrange(8):
            case 0:
                found[place] ^= 1 << chance.randrange(8)
            case 1:
                found[place] = chance.randrange(256)
            case 2 | 3 | 4:
                size = chance.choice((2, 4, 8))
                place -= place % size
                value = chance.choice(_EDGES) * chance.choice((1, -1)) % (1 << 8 * size)
                found[place : place + size] = value.to_bytes(size, "little")
            case 5:
                del found[place:]
            case 6:
                del found[place : place + chance.choice((1, 4, 8, 64))]
            case 7:
                other = chance.randrange(len(found))
                found[place : place + 8] = found[other : other + 8]
        if not found:
            break
    return bytes(found)


def main(seed: int, count: int) -> int:
    """Push mutated bodies; return the number of accepted ones."""
    chance = Random(seed)
    valid = list(bodies())
    taken = 0
    for number in range(count):
        # What has moved time once makes all others late.
        if not number % 50:
            services = [_service(whole=True), _service(whole=False)]
        body = mutated(chance.choice(valid), chance)
        for service in services:
            try:
                records = read_records(body, LIMIT, lambda iri: Term(f"<{iri}>"))
                receipt = service.push(chance.choice(("urn:s", "urn:o")), records)
            except (ContinuousError, BodyTooLargeError) as error:
                _check(error)
            else:
                taken += bool(receipt.accepted)
    return taken


def _check(error: ServerError) -> None:
    assert error.status in (400, 413), error
    assert str(error).isprintable(), error


def _service(*, whole: bool) -> ContinuousService:
    engine = Engine()
    clock = ManualClock(datetime(2020, 1, 1, tzinfo=UTC))
    policies = Policies(whole_batches=whole, time="elements")
    service = ContinuousService(engine, clock, policies)
    service.register(QUERY)
    return service


if __name__ == "__main__":
    sys.stdout.write(f"{main(int(sys.argv[1]), int(sys.argv[2]))}\n")
