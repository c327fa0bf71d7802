"""The tasks of a query: what they wait for."""

from collections.abc import Callable
from contextlib import closing
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from annotations.clock import SystemClock
from tpf_client.errors import ClosedError, HttpError, SourceError
from tpf_client.fragments.fetcher import FetchOutcome, InFlight, Request
from tpf_client.fragments.responses import Limits
from tpf_client.fragments.threaded_fetcher import ThreadedFetcher
from tpf_client.planner.driver import Driver, Task, finished
from tpf_client.planner.fragment_source import ANYTHING
from tpf_client.planner.reading import together
from tpf_client.queries import SAMPLED, _sampled


def test_a_request_that_cannot_be_sent_is_not_waited_for() -> None:
    def task() -> Task[None]:
        yield [Request("http://[x/")]

    with closing(ThreadedFetcher(clock=SystemClock())) as fetcher:
        driver = Driver(fetcher)
        with pytest.raises(SourceError, match="not a URL"):
            finished(driver.run(task()), driver)
        assert driver.idle
        assert not driver.step()


@pytest.mark.parametrize("parallelism", [0, 1])
def test_whoever_waits_when_a_client_is_closed_is_told(
    parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, answers = ThreadedFetcher._run, SimpleQueue[FetchOutcome]()

    def closed_first(fetcher: ThreadedFetcher, entry: InFlight) -> None:
        fetcher.close()
        run(fetcher, entry)

    monkeypatch.setattr(ThreadedFetcher, "_run", closed_first)
    fetcher = ThreadedFetcher(clock=SystemClock(), parallelism=parallelism)
    fetcher.submit(Request("http://127.0.0.1:9/"), answers.put)
    assert isinstance(answers.get(timeout=10), ClosedError)


def test_origins_that_are_asked_no_more_keep_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_: ThreadedFetcher, entry: InFlight, __: object) -> FetchOutcome:
        return HttpError(entry.request.url, 404, "Not Found")

    monkeypatch.setattr(ThreadedFetcher, "_answer", answer)
    answers = SimpleQueue[FetchOutcome]()
    with closing(ThreadedFetcher(clock=SystemClock(), parallelism=2)) as fetcher:
        for number in range(100):
            fetcher.submit(Request(f"http://host{number}.test/"), answers.put)
        assert all(isinstance(answers.get(timeout=10), HttpError) for _ in range(100))
        assert len(fetcher._pools) < 50


class Answering:
    """In place of a fetcher: pages of some servers, errors of the others.

    Args:
        there: the servers that answer.
    """

    parallelism = 0
    limits = Limits()

    def __init__(self, there: str) -> None:
        self._there = there

    def submit(self, request: Request, done: Callable[[Any], None], *_: object) -> None:
        known = request.url.startswith(self._there)
        done(request.url if known else HttpError(request.url, 404, "Not Found"))


def _patient(url: str) -> Task[str]:
    """What is at a URL, or else what is elsewhere."""
    try:
        pages: Any = yield [Request(url)]
    except HttpError:
        pages = yield [Request("http://there.test/instead")]
    return str(pages[0])


def test_what_a_task_knows_to_do_about_an_error_it_does_among_others_too() -> None:
    there, gone = "http://there.test/a", "http://gone.test/a"
    driver = Driver(cast(Any, Answering("http://there.test/")))
    tasks = [together([_patient(there), _patient(gone)]), together([_patient(gone)])]
    expected = [[there, "http://there.test/instead"], ["http://there.test/instead"]]
    assert finished(driver.run(together(tasks)), driver) == expected
    driver = Driver(cast(Any, Answering("http://nowhere.test/")))
    with pytest.raises(HttpError, match="instead"):
        finished(driver.run(together([_patient(gone), _patient(gone)])), driver)


def test_an_error_that_no_task_can_mend_is_not_put_off_by_the_requests_of_others() -> None:
    def hasty(url: str) -> Task[Any]:
        return (yield [Request(url)])

    def one_by_one(number: int) -> Task[Any]:
        return together([hasty(f"http://there.test/{number}"), hasty(f"http://gone.test/{number}")])

    driver = Driver(cast(Any, Answering("http://there.test/")))
    with pytest.raises(HttpError, match=r"gone\.test/0"):
        finished(driver.run(together([one_by_one(number) for number in range(100)])), driver)
    assert driver.outstanding == 198


def test_a_sample_of_very_many_pages_takes_no_list_of_them() -> None:
    def form() -> Task[Any]:
        yield from ()
        return SimpleNamespace(url=lambda _: "http://there.test/d")

    link = "http://there.test/d?size=2&page=2"
    metadata = SimpleNamespace(next_page=link, count=10**15, page_size=100)
    sampling = _sampled(cast(Any, SimpleNamespace(form=form)), ANYTHING)
    next(sampling)
    asked = sampling.send([cast(Any, SimpleNamespace(metadata=metadata, facts=()))])
    numbers = [int(each.url.removeprefix("http://there.test/d?size=2&page=")) for each in asked]
    assert (len(numbers), numbers[0], numbers[-1]) == (SAMPLED, 2, 10**13)
