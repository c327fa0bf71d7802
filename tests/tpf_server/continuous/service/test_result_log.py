"""What is kept of results, in what memory, and what many readers cost."""

import threading
import tracemalloc

import pytest

from annotations.terms import Term
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.errors import BacklogError
from tpf_server.continuous.service.hosting import HostedQuery, as_events, as_lines
from tpf_server.continuous.service.result_log import Registration, ResultLog, ResultMemory

TEXT = "SELECT ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }"


def emission(number: int, size: int = 10) -> Emission:
    return Emission(number, number, ((Term(f'"{number:0{size}}"'),),))


def hosted(log: ResultLog) -> HostedQuery:
    running = Engine().register(TEXT)
    return HostedQuery(
        "q", Registration(TEXT, "q", None, None), "CQELS-QL", "cqels", "added", running, log,
    )  # fmt: skip


def test_the_text_of_an_event_is_made_once_for_all_readers() -> None:
    log = ResultLog(1_000, 1_000)
    query = hosted(log)
    found: list[str] = []
    begun = threading.Barrier(31)

    def follow(number: int) -> None:
        chunks = (as_events if number % 2 else as_lines)(query, 0, follow=True)
        begun.wait()
        found.append("".join(chunks))

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    begun.wait()
    for number in range(200):
        log.append(emission(number))
    log.close()
    for thread in threads:
        thread.join()
    assert log.encoded == 200
    assert len(found) == 30
    assert len(set(found)) == 2
    assert all(each.count("added") == 200 for each in found)


def test_nothing_is_made_into_text_for_nobody() -> None:
    log = ResultLog(10, 100)
    for number in range(20):
        log.append(emission(number))
    assert log.encoded == 0
    assert sum(chunk.count("id:") for chunk in as_events(hosted(log), 10, follow=False)) == 10
    assert log.encoded == 10


def test_logs_share_a_memory_and_the_one_that_grows_gives_way() -> None:
    memory = ResultMemory(100_000)
    quiet, busy = ResultLog(10**6, 10**6, memory=memory), ResultLog(10**6, 10**6, memory=memory)
    for number in range(100):
        quiet.append(emission(number))
    for number in range(2_000):
        busy.append(emission(number, 100))
        assert memory.taken <= 100_000
    assert quiet.oldest == 1
    assert 1_500 < busy.oldest < 1_990
    with pytest.raises(BacklogError):
        busy.read(3, 0.0)
    quiet.discard()
    busy.discard()
    assert memory.taken == 0
    # An emission that is too large alone is kept, and nothing else.
    alone = ResultLog(10, 10, memory=memory)
    alone.append(emission(1))
    alone.append(emission(2, 200_000))
    assert (alone.oldest, alone.last) == (2, 2)


@pytest.mark.parametrize("read", [False, True])
def test_what_is_kept_takes_about_what_is_counted(read: bool) -> None:
    memory = ResultMemory(2**21)
    log = ResultLog(10**6, 10**6, memory=memory)
    query = hosted(log)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20_000):
            log.append(emission(number, 50))
            if read and not number % 100:
                after = log.last - 1
                assert "".join(as_lines(query, max(log.oldest - 1, after - 200), follow=False))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert memory.taken * 0.5 < held < memory.limit * 1.3
