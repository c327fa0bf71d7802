"""When each solution holds: never more than another engine finds as facts end, and no less."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.terms import Quad, iri, literal
from tests.support import random_queries
from tests.support.examples import examples
from tests.support.live_server import START, LiveServer
from tests.support.oracle import Publications, select, store_of
from tests.support.random_queries import PREFIX
from tests.support.timelines import START as FIRST
from tests.support.timelines import Timeline, TimelineLabelling, Universe, timelines
from tests.tpf_client.streaming.test_timelines import (
    SECOND,
    UNIVERSE,
    Row,
    selects,
    serve,
    with_always,
)
from tpf_client import Update
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_client.planner.live_fragment import Freshness
from tpf_client.stream import TimedSolution
from tpf_client.streaming.validity import Span, Validity

VIEWS = ["plain", *(method.name for method in METHODS)]
EX = "http://example.org/"

tests_of_values = st.sampled_from(["?v != 1", "ISIRI(?v)", "ISLITERAL(?v)", "?u != ?v"])
links = st.sampled_from([":p", ":q", ":r", "?x"])
patterns = st.one_of(
    st.lists(random_queries.triple_patterns, min_size=1, max_size=3).map(" . ".join),
    # Stars and chains, which random patterns seldom are, meet facts that end one after the other.
    st.tuples(links, links).map(lambda p: f"?u {p[0]} ?v . ?u {p[1]} ?w"),
    st.tuples(links, links).map(lambda p: f"?u {p[0]} ?v . ?v {p[1]} ?w"),
    st.just("?u :p ?v ; :q ?w ; :r ?x"),
)
shown = st.sampled_from(["*", "DISTINCT *", "?u", "DISTINCT ?u", "?v ?w", "DISTINCT ?w"])
conjunctive = st.tuples(shown, patterns, tests_of_values).map(
    lambda parts: f"{PREFIX} SELECT {parts[0]} {{ {parts[1]} FILTER({parts[2]}) }}"
)
optional = st.tuples(patterns, patterns).map(
    lambda parts: f"{PREFIX} SELECT * {{ {parts[0]} OPTIONAL {{ {parts[1]} }} }}"
)
union = st.tuples(shown, patterns, patterns).map(
    lambda parts: f"{PREFIX} SELECT {parts[0]} {{ {{ {parts[1]} }} UNION {{ {parts[2]} }} }}"
)
labellings: st.SearchStrategy[TimelineLabelling] = st.sampled_from(
    ["expiration", "interval", "mixed"]
)
times = labellings.flatmap(lambda each: timelines(each, max_batches=5, universe=UNIVERSE))
# So few terms that facts surely meet.
dense = labellings.flatmap(
    lambda each: timelines(
        each,
        max_batches=5,
        universe=Universe(
            subjects=random_queries.SUBJECTS[:2],
            static=random_queries.PREDICATES[1:],
            live=random_queries.PREDICATES[:2],
            values=random_queries.SUBJECTS[:2] + random_queries.LITERALS[:2],
        ),
    )
)


def _holding(solutions: Sequence[TimedSolution], instant: datetime) -> Counter[Row]:
    return Counter(
        each.row
        for each in solutions
        if (each.valid_from is None or each.valid_from <= instant)
        and (each.valid_until is None or instant < each.valid_until)
    )


def _answer(facts: Sequence[Fact], query: str, names: Sequence[str]) -> Counter[Row]:
    rows = select(store_of(dict.fromkeys(fact.quad for fact in facts)), query)
    return Counter(tuple(row.get(f"?{name}") for name in names) for row in rows)


def _instants(facts: Sequence[Fact]) -> list[datetime]:
    labels = [fact.label for fact in facts if fact.label is not None]
    return sorted({each for label in labels for each in (label.start, label.end) if each})


def _compare(query: str, update: Update, model: Publications, exact: bool) -> None:
    """What is told to hold at any instant is an answer over the facts of now that hold then."""
    facts = [fact for fact in model.facts() if fact.valid_at(update.at)]
    results = update.results
    for instant in _instants(facts):
        then = [fact for fact in facts if fact.valid_at(instant)]
        answer = _answer(then, query, update.variables)
        assert _holding(update.added, instant) <= answer, (query, update.at, instant)
        told = _holding(results, instant)
        assert told <= answer, (query, update.at, instant)
        if exact and instant >= update.at:
            assert told == answer, (query, update.at, instant)


def _play(timeline: Timeline, view: str, query: str, *, exact: bool) -> None:
    timeline = with_always(timeline)
    with serve(timeline) as (server, model):
        until = min(timeline.instants()[-1], FIRST + 6 * SECOND)
        with server.client(f"/{view}") as client:
            try:
                updates = client.stream(
                    query, every=1, static_recheck=0, keep_checking=1, quiet=True, until=until
                )
            except (QuerySyntaxError, UnsupportedQueryError):
                return
            for update in updates:
                _compare(query, update, model, exact)


@examples(13)
@given(timeline=times, query=selects, view=st.sampled_from(VIEWS))
def test_no_solution_is_told_to_hold_longer_than_it_does(
    timeline: Timeline, query: str, view: str
) -> None:
    _play(timeline, view, query, exact=False)


@examples(40)
@given(timeline=dense, query=st.one_of(conjunctive, optional, union), view=st.sampled_from(VIEWS))
def test_solutions_of_patterns_are_told_to_hold_as_long_as_they_do(
    timeline: Timeline, query: str, view: str
) -> None:
    _play(timeline, view, query, exact=True)


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _fact(subject: str, predicate: str, value: str, label: Label) -> Fact:
    return Fact(Quad(iri(EX + subject), iri(EX + predicate), literal(value)), label)


FACTS = [
    _fact("a", "delay", "1", Interval(_at(-60), _at(30))),
    _fact("a", "platform", "4", Interval(_at(-20), _at(20))),
    _fact("b", "delay", "2", Expiration(_at(40))),
    _fact("c", "delay", "3", Interval(_at(-5), _at(50))),
]
SIGNS = [Quad(iri(EX + name), iri(EX + "sign"), literal(name)) for name in "abc"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # The latest start and the earliest end; an expiration tells no start.
        (
            "?s :sign ?o ; :delay ?d OPTIONAL { ?s :platform ?p }",
            {"a": (-20, 20), "b": (0, 40), "c": (0, 50)},
        ),
        ("?s :sign ?o ; :platform ?p ; :delay ?d", {"a": (-20, 20)}),
        ("?s :sign ?o ; :delay ?d", {"a": (-60, 30), "b": (0, 40), "c": (-5, 50)}),
        ("?s :sign ?o ; :platform [] ", {"a": (-20, 20)}),
        ("?s :sign ?o", {"a": None, "b": None, "c": None}),
        # Facts that must not be there: nobody tells since when they are not.
        ("?s :sign ?o ; :delay ?d MINUS { ?s :platform ?p }", {"b": (0, 40), "c": (0, 50)}),
        ("?s :sign ?o FILTER NOT EXISTS { ?s :delay 9 }",
         {"a": (0, None), "b": (0, None), "c": (0, None)}),
        # The first end of all that was looked at.
        ("?s :sign ?o FILTER EXISTS { ?s :delay ?d }",
         {"a": (0, 30), "b": (0, 30), "c": (0, 30)}),
        ("{ SELECT ?o (MAX(?d) AS ?m) { ?s :sign ?o ; :delay ?d } GROUP BY ?o }",
         {"a": (0, 30), "b": (0, 30), "c": (0, 30)}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("page_labels", [True, False])
def test_when_solutions_hold(
    tmp_path: Path,
    query: str,
    expected: dict[str, tuple[float, float | None] | None],
    page_labels: bool,
) -> None:
    server = LiveServer(tmp_path, SIGNS, page_labels=page_labels, max_age=3600)
    server.publish(FACTS)
    with server.client("/named-graph") as client:
        update = next(iter(client.stream(f"PREFIX : <{EX}> SELECT * {{ {query} }}")))
        spans = {
            str(each["o"]): (each.valid_from, each.valid_until)
            for each in (*update.added, *update.results)
        }
        assert spans == {
            name: (None, None)
            if span is None
            else (_at(span[0]), None if span[1] is None else _at(span[1]))
            for name, span in expected.items()
        }
    server.close()


def test_a_renewal_is_seen_in_the_results(tmp_path: Path) -> None:
    with LiveServer(tmp_path, SIGNS, max_age=3600) as server, server.client() as client:
        server.publish(FACTS)
        updates = iter(client.stream(f"SELECT ?d {{ ?s <{EX}delay> ?d }}", quiet=True))
        first = next(updates)
        assert {str(each["d"]): each.valid_until for each in first.added} == {
            "1": _at(30), "2": _at(40), "3": _at(50),
        }  # fmt: skip
        assert first.to_json()["valid"][first.added.index(first.results[0])] == [
            "2015-12-08T10:19:00Z", "2015-12-08T10:20:30Z",
        ]  # fmt: skip
        server.clock.schedule(
            _at(29), lambda: server.publish([_fact("b", "delay", "2", Expiration(_at(90)))])
        )
        second = next(updates)
        assert second.at == _at(30)
        assert [str(each["d"]) for each in second.removed] == ["1"]
        assert second.added == ()
        assert {str(each["d"]): each.valid_until for each in second.results} == {
            "2": _at(90), "3": _at(50),
        }  # fmt: skip


def test_what_is_shown_once_holds_as_long_as_any_of_what_it_stands_for(tmp_path: Path) -> None:
    with LiveServer(tmp_path, SIGNS, max_age=3600) as server, server.client() as client:
        server.publish(FACTS)
        for pattern, count in (("", 3), ("DISTINCT", 1)):
            query = f"SELECT {pattern} ?known {{ ?s <{EX}delay> ?d BIND(true AS ?known) }}"
            spans = [(each.valid_from, each.valid_until)
                     for each in next(iter(client.stream(query))).added]  # fmt: skip
            assert len(spans) == count
            if count == 1:
                assert spans == [(_at(-60), _at(50))]
            else:
                assert spans == [(_at(-60), _at(30)), (START, _at(40)), (_at(-5), _at(50))]


def test_what_comes_first_stays_as_long_as_it_holds(tmp_path: Path) -> None:
    with LiveServer(tmp_path, SIGNS, max_age=3600) as server, server.client() as client:
        server.publish(FACTS)
        text = f"SELECT ?d {{ ?s <{EX}delay> ?d }} ORDER BY DESC(?d)"
        best = next(iter(client.stream(text + " LIMIT 2"))).added
        assert {str(each["d"]): each.valid_until for each in best} == {"3": _at(50), "2": _at(40)}
        # What goes before moves the others up, and out.
        (other,) = next(iter(client.stream(text + " OFFSET 2"))).added
        assert (str(other["d"]), other.valid_from, other.valid_until) == ("1", START, _at(30))


@pytest.mark.parametrize(
    ("ends", "graces", "expected"),
    [
        # What a server shows although its label has ended holds until something else ends.
        ([-1, 5, 9], 0, 5),
        ([0, 5, 9], 0, 5),
        ([0, 0], 0, None),
        ([2, 5], 0, 2),
        ([5, 2], 0, 5),
        # With grace it is known to be late.
        ([-1, 5], 7, -1),
        ([0, 5], 7, 0),
    ],
)
def test_how_long_a_fact_holds_whose_label_has_ended(
    ends: list[float], graces: float, expected: float | None
) -> None:
    """The first label is that of the fact, the others those of other facts."""
    fragments = [SimpleNamespace(expires=_at(end), grace_ends=None) for end in ends]
    evaluation = SimpleNamespace(
        freshness=Freshness(grace=timedelta(seconds=graces)), fragments=lambda: fragments
    )
    validity = Validity(cast(Any, evaluation), None, labelled=True)
    bounds = (_at(-9), _at(ends[0]))
    validity._core = cast(Any, SimpleNamespace(bounds=lambda *_: [bounds]))
    assert validity.spans([((1,), 1)], START) == [
        [Span(_at(-9), None if expected is None else _at(expected))]
    ]
