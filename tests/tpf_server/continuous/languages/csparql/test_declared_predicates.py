"""Plans that rely on what streams lack: right answers with less work."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term
from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    CsparqlWriter,
    in_csparql,
    random_clauses,
    random_elements,
    with_static,
)
from tpf_server.continuous.continuous_engine import Engine, InstantSettings
from tpf_server.continuous.runtime.instants import builder
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.periodic_query import Pace, PeriodicQuery

SECOND = "FROM STREAM <urn:s> [RANGE 1s STEP 1s]"


def engine(pace: Pace | None = None) -> Engine:
    return with_static(Engine(instants=InstantSettings(pace=pace)))


@examples(12)
@given(st.integers(0, 2**32).map(Random))
def test_declared_and_unseparated_plans_answer_alike(random: Random) -> None:
    clauses = random_clauses(random)
    text = in_csparql(CsparqlWriter(random, clauses).query(random.choice([1, 2, 3])), clauses, None)
    elements = list(random_elements(random, random.randint(1, 15)))
    carried: dict[str, set[str]] = {}
    for stream, _, triples in elements:
        carried.setdefault(stream, set()).update(each[1][1:-1] for each in triples)
    found: list[list[PeriodicAnswer]] = []
    for way in ("unseparated", "declared"):
        made = engine()
        for stream, predicates in carried.items() if way == "declared" else ():
            made.declare(stream, predicates)
        answers: list[PeriodicAnswer] = []
        made.register_csparql(text, answers.append)
        at = 0
        for stream, pause, triples in elements:
            at += pause
            made.push(stream, triples, at)
        made.finish()
        found.append([replace(each, rows=tuple(sorted(each.rows, key=str))) for each in answers])
    assert found[0] == found[1]


def parts(query: PeriodicQuery) -> str:
    return "\n".join(query.explain()["operators"])


def test_a_static_part_with_far_more_rows_than_triples_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then static triples are looked up for what streams."""
    monkeypatch.setattr(builder, "_STATIC_LEAST", 100)
    made = Engine()
    made.declare("urn:s", ["urn:at"])
    made.add([(f"<urn:p{n}>", "<urn:in>", "<urn:city>") for n in range(200)])
    query = made.register_csparql(
        f"REGISTER QUERY q AS SELECT ?b {SECOND} "
        "{ ?a <urn:at> ?x . ?a <urn:in> ?c . ?b <urn:in> ?c }"
    )
    made.push("urn:s", ("<urn:p7>", "<urn:at>", "<urn:x>"), 100)
    made.finish()
    (answer,) = query
    assert len(answer.rows) == 200
    assert "graph pattern (streaming, mixed)" in parts(query)
    query.close()
    assert len(made.instants._shared_rows) == len(made.dictionary) == 0


def test_a_variable_graph_ranges_over_graphs_that_come_later() -> None:
    made = Engine()
    text = f"REGISTER QUERY q AS SELECT ?g {SECOND} {{ ?a <urn:at> ?b GRAPH ?g {{ ?b ?p ?c }} }}"
    query = made.register_csparql(text)
    for at, graph in ((100, "urn:one"), (1100, "urn:two")):
        made.push("urn:s", ("<urn:a>", "<urn:at>", "<urn:x>"), at)
        made.add([("<urn:x>", "<urn:p>", '"1"')], graph)
    made.finish()
    assert [sorted(each.rows) for each in query] == [
        [("<urn:one>",), ("<urn:two>",)][:number] for number in (1, 2)
    ]


def test_a_variable_graph_over_many_graphs() -> None:
    made = Engine()
    query = made.register_csparql(
        f"SELECT ?a ?g {SECOND} {{ ?a <urn:at> ?b GRAPH ?g {{ ?b ?p ?c }} }}"
    )
    for number in range(1_500):
        made.static.memory(Term(f"<urn:graph{number}>"))
    made.add([("<urn:b>", "<urn:p>", '"1"')], "urn:graph700")
    made.push("urn:s", ("<urn:a>", "<urn:at>", "<urn:b>"), 100)
    made.finish()
    assert [each.rows for each in query] == [(("<urn:a>", "<urn:graph700>"),)]
