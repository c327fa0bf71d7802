"""A continuous query over several datasets: on servers of their own, labelled in different ways."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from annotations.labels import Expiration, Fact, Interval, Label
from annotations.terms import Quad, Term, iri, literal
from tests.support.live_server import BASE, START, LiveServer
from tests.support.oracle import select, store_of
from tpf_client.planner.driver import Task
from tpf_client.planner.fragment_source import ANYTHING
from tpf_client.planner.reading import Content, ReadRequest
from tpf_client.planner.union import UnionSource

EX = "http://example.org/"
OTHER = "http://other.test/"
QUERY = f"""PREFIX : <{EX}>
SELECT * {{ ?train :sign ?sign ; :delay ?delay OPTIONAL {{ ?train :platform ?platform }} }}"""
TRAINS = range(6)
STEP = timedelta(seconds=5)


def _train(number: int) -> Term:
    return iri(f"{EX}train/{number}")


def _open(
    path: Path, clock: object, page_labels: bool, base: str, *, live: bool = True
) -> LiveServer:
    path.mkdir()
    return LiveServer(
        path,
        [Quad(_train(n), iri(EX + "sign"), literal(f"to {path.name} {n}")) for n in TRAINS],
        clock=clock,  # type: ignore[arg-type]
        live=live,
        page_labels=page_labels,
        max_age=2.0,
        annotation="named-graph",
        server={"base_url": base},
    )


@pytest.mark.parametrize("first_labels", [True, False])
@pytest.mark.parametrize("second_labels", [True, False])
def test_the_answer_is_that_of_all_facts_together(
    tmp_path: Path, first_labels: bool, second_labels: bool
) -> None:
    delays = _open(tmp_path / "delays", None, first_labels, BASE)
    clock = delays.clock
    platforms = _open(tmp_path / "platforms", clock, second_labels, OTHER)
    published: list[Fact] = []

    def publish(step: int) -> None:
        now = clock.now()
        facts = [
            Fact(Quad(_train(n), iri(EX + "delay"), literal(str(n + step))), Expiration(now + STEP))
            for n in TRAINS
            if (n + step) % 3
        ]
        delays.publish(facts)
        others = [
            Fact(Quad(_train(n), iri(EX + "platform"), literal(str(step))),
                 Interval(now, now + 2 * STEP))
            for n in TRAINS
            if step % 2 == 0 and (n + step) % 4
        ]  # fmt: skip
        platforms.publish(others)
        published.extend(facts + others)

    publish(0)
    for step in range(1, 8):
        clock.schedule(START + step * STEP, lambda step=step: publish(step))
    static = [
        Quad(_train(n), iri(EX + "sign"), literal(f"to {name} {n}"))
        for n in TRAINS
        for name in ("delays", "platforms")
    ]
    seen: Counter[tuple[str | None, ...]] = Counter()
    instants = []
    with delays.client("", platforms) as client:
        for update in client.stream(QUERY, until=START + 8 * STEP, quiet=True):
            assert update.error is None
            instants.append(update.at)
            seen.update(tuple(each.row) for each in update.added)
            seen.subtract(tuple(each.row) for each in update.removed)
            seen = +seen
            valid = [fact.quad for fact in published if fact.valid_at(update.at)]
            rows = select(store_of(dict.fromkeys([*static, *valid])), QUERY)
            names = [f"?{name}" for name in update.variables]
            assert seen == Counter(tuple(row.get(name) for name in names) for row in rows)
    assert {START + step * STEP for step in range(8)} <= set(instants)
    assert platforms.log
    delays.close()
    platforms.close()


@pytest.mark.parametrize("page_labels", [True, False])
def test_what_comes_to_a_dataset_that_had_none_is_seen(tmp_path: Path, page_labels: bool) -> None:
    """Until then it is not asked about each train."""
    one = _open(tmp_path / "one", None, True, BASE)
    other = _open(tmp_path / "other", one.clock, page_labels, OTHER)
    delays = [
        Fact(Quad(_train(n), iri(EX + "delay"), literal(str(n))), Expiration(START + 60 * STEP))
        for n in TRAINS
    ]
    one.publish(delays[1:])
    other_asked: list[int] = []

    def publish() -> None:
        other_asked.append(sum("train%2F" in path for _, path in other.log))
        other.publish(delays[:1])

    one.clock.schedule(START + 2 * STEP, publish)
    query = QUERY.partition(" OPTIONAL")[0] + " }"
    with one.client("", other) as client:
        *_, last = client.stream(query, until=START + 4 * STEP, quiet=True)
    one.close()
    other.close()
    # Each train has two signs.
    assert Counter(str(each["train"]) for each in last.results) == {
        f"{EX}train/{n}": 2 for n in TRAINS
    }
    assert other_asked == [0]


def test_what_ends_while_another_dataset_is_read_is_not_in_the_answer(tmp_path: Path) -> None:
    second = timedelta(seconds=1)
    one = _open(tmp_path / "one", None, True, BASE)
    other = _open(tmp_path / "other", one.clock, True, OTHER)
    delay = Quad(_train(0), iri(EX + "delay"), literal("other"))
    one.publish_rounds(second, lambda now: [delay._replace(object=literal(str(now)))])
    other.publish([Fact(delay, Expiration(START + 60 * STEP))])

    app = other.app

    def slow(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        one.clock.advance_to(one.clock.now() + 2 * second)
        return app(environ, start)

    other.app = slow
    with one.client("", other) as client:
        stream = client.stream(
            f"SELECT ?delay {{ ?s <{EX}delay> ?delay }}", until=START + 30 * second
        )
        for update in stream:
            assert update.error is None
            delays = {str(each["delay"]) for each in update.results}
            assert delays == {"other", str((update.at - START) // second)}
    assert stream.streamer.evaluations > 5
    one.close()
    other.close()


@pytest.mark.parametrize("static_first", [True, False])
def test_history_beside_data_that_never_change(tmp_path: Path, static_first: bool) -> None:
    live = _open(tmp_path / "live", None, True, BASE)
    live.publish(
        Fact(
            Quad(_train(0), iri(EX + "delay"), literal(str(step))),
            Interval(START + step * STEP, START + (step + 1) * STEP),
        )
        for step in range(9)
    )
    live.clock.advance_to(START + timedelta(hours=1, milliseconds=300))
    static = _open(tmp_path / "static", live.clock, True, OTHER, live=False)
    first, second = (static, live) if static_first else (live, static)
    query = QUERY.partition(" OPTIONAL")[0] + " }"
    with first.client("", second) as client:
        updates = client.stream(query, start=START, until=START + 3 * STEP)
        told = [(each.at, {str(row["delay"]) for row in each.results}) for each in updates]
        assert told == [(START + step * STEP, {str(step)}) for step in range(4)]
        assert {str(row["delay"]) for row in client.select(query, at=START + 2 * STEP)} == {"2"}
    live.close()
    static.close()


class _Ticking:
    """A source of one fact, on a clock that goes on from one look to the next."""

    url = BASE
    looks = count()

    def __init__(self, label: Label | None) -> None:
        self._fact = Fact(Quad(_train(0), iri(EX + "delay"), literal("1")), label)

    def now(self) -> datetime:
        return START + next(self.looks) * timedelta(microseconds=1)

    def wake_at(self, instant: datetime) -> datetime:
        return instant

    def read(self, _asked: ReadRequest) -> Task[Content]:
        yield from ()
        end = START + STEP
        return Content((self._fact,), START, end, end, end, dynamic=True)


SOON, LATER = Expiration(START + STEP), Expiration(START + 2 * STEP)


@pytest.mark.parametrize(
    ("labels", "last"),
    [((SOON, LATER), LATER), ((LATER, SOON), LATER), ((None, SOON), None), ((SOON, None), None)],
)
def test_facts_of_several_datasets_hold_as_long_as_one_says(
    labels: tuple[Label | None, ...], last: Label | None
) -> None:
    """All instants are those of the servers, although one clock is looked at again and again."""
    end = START + STEP
    union = UnionSource([cast(Any, _Ticking(label)) for label in labels])
    assert union.wake_at(end) == end
    with pytest.raises(StopIteration) as read:
        next(union.read(ReadRequest(ANYTHING)))
    content: Content = read.value.value
    assert [fact.label for fact in content.facts] == [last]
    assert (content.evaluated_at, content.fresh_until) == (START, end)
    assert (content.expires, content.changes) == (end, end)
