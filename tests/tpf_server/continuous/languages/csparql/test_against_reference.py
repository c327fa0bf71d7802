"""Random queries over random streams, recomputed at every instant by pyoxigraph."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.csparql_reference import AT, TIMES, Clause, Reference, solutions
from tests.support.examples import examples
from tests.support.random_continuous_queries import with_static
from tests.support.random_csparql import STREAMS, clauses, logical, queries, statics, timelines
from tests.support.random_queries import PREFIX
from tests.support.random_sparql import QueryWriter, randoms
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.errors import (
    ContinuousSyntaxError,
    FailedEvaluationError,
    UnsupportedContinuousQueryError,
)
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.rules import RULES, Rule


def check(
    query: tuple[str, str],
    sources: list[Clause],
    static: str,
    timeline: list[tuple[str, int, tuple[str, str, str]]],
    rules: tuple[Rule, ...],
) -> None:
    csparql, sparql = query
    text = PREFIX + csparql.format(" ".join(map(str, sources)))
    reference = Reference(PREFIX + sparql.format(""), sources, static)
    engine = with_static(Engine(instants=InstantSettings(rules=rules)), static)
    try:
        registered = engine.register_csparql(text)
    except ContinuousSyntaxError:
        with pytest.raises(SyntaxError):
            reference.answer(0)
        return
    except UnsupportedContinuousQueryError as error:
        assert "BIND" in str(error) or "path" in str(error)  # noqa: PT017
        return
    at = 0
    for stream, later, triple in timeline:
        at += later
        engine.push(stream, triple, at)
        reference.push(stream, at, [triple])
    engine.advance(at + 4)
    answers: list[PeriodicAnswer] = []
    instants = reference.instants(at + 4)
    try:
        answers.extend(registered)
    except FailedEvaluationError as error:
        # Whether a variable has a value outside shows when there is a solution.
        assert "BIND" in str(error)  # noqa: PT017
        instants = instants[: len(answers)]
    assert [answer.at for answer in answers] == instants
    for answer in answers:
        wanted = reference.judged(answer.at)
        assert solutions(answer.variables, answer.rows) == wanted, (answer.at, csparql)


@examples(30)
@given(queries, clauses, statics, timelines, st.sampled_from([(), RULES]))
def test_every_answer_is_that_of_a_recomputation(
    query: tuple[str, str],
    sources: list[Clause],
    static: str,
    timeline: list[tuple[str, int, tuple[str, str, str]]],
    rules: tuple[Rule, ...],
) -> None:
    check(query, sources, static, timeline, rules)


@examples(30)
@given(randoms, clauses, statics, timelines, st.sampled_from([(), RULES]))
def test_patterns_of_any_shape(
    random: Random,
    sources: list[Clause],
    static: str,
    timeline: list[tuple[str, int, tuple[str, str, str]]],
    rules: tuple[Rule, ...],
) -> None:
    pattern = QueryWriter(random).pattern().replace("{", "{{").replace("}", "}}")
    query = f"SELECT * {{0}} WHERE {{{{ {pattern} }}}}"
    check((query, query), sources, static, timeline, rules)


@examples(12)
@given(logical, logical, statics, timelines, st.sampled_from([(), RULES]))
def test_timestamps_are_the_latest_of_a_triple(
    one: tuple[int, int],
    other: tuple[int, int],
    static: str,
    timeline: list[tuple[str, int, tuple[str, str, str]]],
    rules: tuple[Rule, ...],
) -> None:
    sources = [Clause(STREAMS[0], *one), Clause(STREAMS[1], *other)]
    csparql = (
        "SELECT * {0} WHERE {{ ?u :p ?v . ?v :q ?w BIND(timestamp(?v) AS ?late)"
        " FILTER(timestamp(?w) >= timestamp(?u) || !BOUND(?late)) }}"
    )

    def time(triple: str, name: str) -> str:
        return (
            f"OPTIONAL {{{{ GRAPH <{TIMES}> {{{{ [] <{TIMES}:of> <<( {triple} )>> ; <{AT}> {name}"
            " }} }}"
        )

    sparql = (
        "SELECT ?u ?v ?w ?late {0} WHERE {{ ?u :p ?v . ?v :q ?w "
        + time("?u :p ?v", "?t1")
        + time("?v :q ?w", "?t2")
        + " BIND(COALESCE(IF(?t1 < ?t2, ?t2, ?t1), ?t1, ?t2) AS ?late)"
        " FILTER(?t2 >= ?t1 || !BOUND(?late)) }}"
    )
    check((csparql, sparql), sources, static, timeline, rules)


@examples(12)
@given(st.integers(1, 4), st.integers(1, 2), timelines)
def test_windows_that_count_triples(
    count: int, step: int, timeline: list[tuple[str, int, tuple[str, str, str]]]
) -> None:
    clause = Clause(STREAMS[0], triples=max(count, step), step=step)
    reference = Reference(PREFIX + "SELECT * WHERE { ?u :p ?v }", [clause])
    engine = Engine()
    registered = engine.register_csparql(PREFIX + f"SELECT * {clause} WHERE {{ ?u :p ?v }}")
    at = 0
    arrived = 0
    for stream, later, triple in timeline:
        at += later
        engine.push(stream, triple, at)
        reference.push(stream, at, [triple])
        arrived += stream == STREAMS[0]
        answers = list(registered)
        assert len(answers) == (stream == STREAMS[0] and arrived % step == 0)
        for answer in answers:
            assert solutions(answer.variables, answer.rows) == reference.answer(at)
