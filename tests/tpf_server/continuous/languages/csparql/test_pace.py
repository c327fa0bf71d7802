"""Steps grow while evaluations are slow and shrink again, by a fake stopwatch."""

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.continuous_site import EPOCH, Site, element
from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    CsparqlWriter,
    in_csparql,
    random_clauses,
    random_elements,
)
from tests.tpf_server.continuous.languages.csparql.test_declared_predicates import (
    engine as static_engine,
)
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.periodic_query import MOST_FACTOR, Pace, Widen

QUERY = "REGISTER QUERY {} AS SELECT ?x FROM STREAM <urn:s> [RANGE 3s STEP 1s] {{ ?x <urn:p> ?y }}"


class Worked:
    """A stopwatch on which every answer takes what is said."""

    def __init__(self, cost: float = 0.0) -> None:
        self.cost = cost
        self.seconds = 0.0
        self.at: list[int] = []

    def __call__(self) -> float:
        return self.seconds

    def answer(self, answer: PeriodicAnswer) -> None:
        self.seconds += self.cost
        self.at.append(answer.at // 1000)


def push(engine: Engine, first: int, last: int) -> None:
    for second in range(first, last):
        engine.push("urn:s", (f"<urn:{second}>", "<urn:p>", "<urn:o>"), 1000 * second + 1)


def test_the_step_grows_while_evaluations_take_longer_and_shrinks_again() -> None:
    worked = Worked(2.0)
    engine = Engine(instants=InstantSettings(pace=Pace(worked)))
    query = engine.register_csparql(QUERY.format("q"), worked.answer)
    assert query.explain()["every"] == "the step of its windows"
    push(engine, 0, 18)
    # Two evaluations show it; the third was planned by then.
    assert worked.at == [1, 2, 3, 4, 8, 12, 16]
    found = query.explain()
    assert found["every_ms"] == [4000]
    assert found["every"] == (
        "4 times the step of its windows: evaluations would take 2.00 seconds of CPU per second, "
        "and take 0.50"
    )
    worked.cost = 0.1
    push(engine, 18, 26)
    assert worked.at[7:] == [20, 24, 25]
    assert query.explain()["every_ms"] == [1000]
    assert query.explain()["every"] == "the step of its windows"


def test_a_single_long_evaluation_changes_nothing() -> None:
    worked = Worked(5.0)
    engine = Engine(instants=InstantSettings(pace=Pace(worked)))
    engine.register_csparql(QUERY.format("q"), worked.answer)
    push(engine, 0, 2)
    worked.cost = 0.1
    push(engine, 2, 10)
    assert worked.at == list(range(1, 10))


@pytest.mark.parametrize("whose", list(Widen))
def test_whose_steps_grow(whose: Widen) -> None:
    worked = Worked(0.6)
    engine = Engine(instants=InstantSettings(pace=Pace(worked, whose)))
    free = engine.register_csparql(QUERY.format("free"), worked.answer)
    stated = engine.register_csparql(QUERY.format("stated COMPUTED EVERY 1s"), worked.answer)
    push(engine, 0, 6)
    factors = [each.explain()["every_ms"][0] // 1000 for each in (free, stated)]
    # What is fixed is a load as well, so that the others are rarer.
    wanted = {Widen.NEVER: [1, 1], Widen.UNSTATED: [8, 1], Widen.ALL: [2, 2]}
    assert factors == wanted[whose]
    if whose is Widen.ALL:
        assert stated.every.startswith("2 times COMPUTED EVERY: ")
    # A query that is deleted is no load.
    stated.close()
    assert free.explain()["every_ms"] == [1000 if whose is Widen.NEVER else 2000]


def test_the_step_has_a_bound() -> None:
    worked = Worked(1000.0)
    engine = Engine(instants=InstantSettings(pace=Pace(worked)))
    query = engine.register_csparql(QUERY.format("q"), worked.answer)
    push(engine, 0, 100)
    assert query.explain()["every_ms"] == [1000 * MOST_FACTOR]
    # One that comes later is evaluated as rarely as the others.
    assert engine.register_csparql(QUERY.format("r")).explain()["every_ms"] == [1000 * MOST_FACTOR]


@examples(12)
@given(st.integers(0, 2**32).map(Random))
def test_fewer_answers_and_none_that_is_another(random: Random) -> None:
    """AnswerRows with wide steps are a subset."""
    clauses = random_clauses(random)
    text = in_csparql(CsparqlWriter(random, clauses).query(random.choice([1, 2])), clauses, None)
    elements = list(random_elements(random, random.randint(1, 10)))
    costs = [random.choice([0.0, 0.001, 0.01, 0.1, 1.0]) for _ in range(1000)]
    found: list[dict[int, PeriodicAnswer]] = []
    for slow in (False, True):
        worked = Worked()
        made = static_engine(Pace(worked, Widen.ALL) if slow else None)
        answers: dict[int, PeriodicAnswer] = {}

        def take(answer: PeriodicAnswer, worked: Any = worked, answers: Any = answers) -> None:
            worked.seconds += costs[len(answers) % 1000]
            answers[answer.at] = replace(answer, rows=tuple(sorted(answer.rows, key=str)))

        made.register_csparql(text, take)
        at = 0
        for stream, pause, triples in elements:
            at += pause
            made.push(stream, triples, at)
        made.finish()
        found.append(answers)
    if " TRIPLES " not in text:
        every, some = found
        assert {at: every[at] for at in some if at in every} == {
            at: answer for at, answer in some.items() if at in every
        }
        # Where the last step is wider, one more answer lies after all others.
        assert all(at in every or at > max(every, default=0) for at in some)


def test_over_http() -> None:
    worked = Worked()

    def seconds() -> float:
        """Every look at the stopwatch finds it a second later."""
        worked.seconds += 1.0
        return worked.seconds

    site = Site(periodic={"pace": Pace(seconds)})
    text = "SELECT ?a FROM STREAM <http://localhost/s> [RANGE 3s STEP 1s] { ?a <urn:p> ?b }"
    made = site.register(text, semantics="csparql", name="busy")
    assert made.status_code == 201, made.text
    fixed = text.replace("SELECT", "REGISTER QUERY fixed COMPUTED EVERY 5s AS SELECT")
    assert site.register(fixed).status_code == 201
    for second in range(8):
        site.clock.advance_to(EPOCH + timedelta(seconds=second + 1))
        assert site.push(element(1000 * second + 1)).ok
        site.service.advance()
    state = site.get("queries/busy")
    assert state["every_ms"] == [2000]
    assert state["every"] == (
        "2 times the step of its windows: evaluations would take 1.00 seconds of CPU per second, "
        "and take 0.50"
    )
    state = site.get("queries/fixed")
    assert (state["every_ms"], state["every"]) == ([5000], "COMPUTED EVERY")
