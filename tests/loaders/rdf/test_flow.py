"""Values between tasks, and on their way to the driver."""

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaders.progress import SILENT
from loaders.rdf import flow
from loaders.rdf.flow import Flows, Message
from tests.support.examples import examples
from tpf_server.spark.session import java_gateway


@given(st.lists(st.binary(max_size=200), max_size=6), st.integers(1, 90), st.randoms())
@examples(50)
def test_values_come_of_their_pieces_in_any_order(
    values: list[bytes], most: int, pick: random.Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "ROW_BYTES", most)
        batches = [each for n, value in enumerate(values) for each in flow.pieces_of(n, value)]
    rows = [[column[0].as_py() for column in each] for each in batches]
    pick.shuffle(rows)
    assert all(len(content) <= most for *_, content in rows)
    assert sorted(flow.joined(rows)) == list(enumerate(values))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 70))), st.integers(1, 90))
@examples(100)
def test_jobs_have_each_partition_once_and_no_more_bytes_than_they_may(
    rows: list[tuple[int, int]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow, "JOB_BYTES", most)
        jobs = list(flow._jobs(sorted(rows)))
    most = max(most, sum(size for _, size in rows) // 32)
    present = {number for number, _ in rows}
    shares = [{number for number in present if first <= number <= last} for first, last in jobs]
    assert sorted(number for share in shares for number in share) == sorted(present)
    for share in shares:
        assert len(share) == 1 or sum(size for number, size in rows if number in share) <= most
    assert len(jobs) <= 65


def _incompressible(seed: int) -> bytes:
    return random.Random(seed).randbytes(5 << 20)


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_rows_for_the_driver_are_small_however_large_values_are(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(number: int) -> Iterator[Message]:
        yield Message(0, _incompressible(number))

    joined = flow.joined
    sizes: list[int] = []

    def counting(rows: Any) -> Any:
        for row in rows:
            sizes.append(sum(len(each) for each in row if isinstance(each, (bytes, bytearray))))
            yield row

    monkeypatch.setattr(flow, "joined", lambda rows: joined(counting(rows)))
    with Flows(spark, SILENT) as flows:
        sent = flows.of(range(3)).map(large).exchanged(1)
        ((_, values),) = sent.each("sending")
    assert sorted(values) == sorted(map(_incompressible, range(3)))
    assert max(sizes) <= 1 << 20 < len(sizes) * (1 << 20) <= 17 << 20


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_java_holds_no_values_that_the_driver_has_had(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def large(number: int) -> Iterator[bytes]:
        yield _incompressible(number)

    def look() -> int:
        time.sleep(0.1)
        java = java_gateway().jvm.java.lang
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def used() -> int:
        # Spark lets go of results of a task in a thread of its own.
        return min(look() for _ in range(5))

    monkeypatch.setattr(flow, "JOB_BYTES", 1)
    with Flows(spark, SILENT) as flows:
        values = flows.of(range(10)).map(large).each("sending")
        starts, sizes = zip(*((value[:9], used()) for value in values), strict=True)
    assert starts == tuple(_incompressible(number)[:9] for number in range(10))
    assert max(sizes[2:]) - sizes[1] < 10 << 20
