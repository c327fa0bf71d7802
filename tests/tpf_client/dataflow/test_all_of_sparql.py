"""Random queries of every shape, under changes, beside the specification and pyoxigraph."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad, Term
from tests.support.evaluation import Evaluation
from tests.support.examples import examples
from tests.support.judges import Answer, by_pyoxigraph, by_specification, difference_of, judged
from tests.support.memory_leaves import CountedLookups, LookupLeaves, ScanningLeaves
from tests.support.random_queries import PREFIX, queries
from tests.support.random_sparql import QueryWriter, random_quads, randoms
from tpf_client.dataflow.construct import construct
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_client.queries import rewritten
from tpf_client.sparql.algebra import Query
from tpf_client.sparql.parser import parse_query

KINDS: list[type[ScanningLeaves] | type[LookupLeaves]] = [
    ScanningLeaves,
    LookupLeaves,
    CountedLookups,
    CountedLookups,
]


def _answer(query: Query, evaluation: Evaluation) -> Answer:
    rows = evaluation.rows()
    if query.form == "ASK":
        return bool(rows)
    if query.form == "DESCRIBE":
        assert len(set(rows)) == len(rows)
    if query.form == "CONSTRUCT":
        made = set(construct(query.template, evaluation.variables, rows))
        return Counter(tuple(triple) for triple in made)
    return Counter(rows)


def _changed(quads: frozenset[Quad], random: Random) -> frozenset[Quad]:
    """Most of them, and others."""
    kept = [quad for quad in sorted(quads) if random.random() < 0.7]
    return frozenset(kept) | random_quads(random)


@examples(400)
@given(randoms, st.none() | queries)
def test_every_answer_is_right_at_every_time(random: Random, other: str | None) -> None:
    text = other or QueryWriter(random).query()
    try:
        query = parse_query(text)
    except QuerySyntaxError:
        # Random texts may bind a variable twice; then they are no queries for anybody.
        with pytest.raises(SyntaxError):
            by_pyoxigraph(text, [], ())
        return
    quads: frozenset[Quad] = frozenset()
    followed: Counter[tuple[int, ...]] = Counter()
    try:
        how = random.choice(KINDS)
        evaluation = Evaluation(random.choice([query, rewritten(query, live=True)]), how)
        for _ in range(random.choice([1, 1, 2, 3])):
            before, quads = quads, _changed(quads, random)
            evaluation.change(added=sorted(quads - before), removed=sorted(before - quads))
            wanted = judged(query, text, quads) if other else by_specification(query, quads)
            assert _answer(query, evaluation) == wanted, text
            if difference_of(query, text) is None:
                assert by_pyoxigraph(text, quads, query.variables) == wanted, text
            for row, count in evaluation.output.take_changes():
                followed[row] += count
            assert followed == evaluation.output.multiset()
    except UnsupportedQueryError:
        # Substitution (section 18.6) would put a value behind AS.
        assert "EXISTS" in text
        assert "BIND" in text


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize("removed", ["?b :r ?z", "?z :r ?b", "?b :p ?z", "?b ?c ?d"])
def test_a_value_from_outside_is_shared_by_nothing_inside(
    removed: str, kind: type[ScanningLeaves]
) -> None:
    """MINUS in EXISTS, with and without a value for the shared variable."""
    text = (
        f"{PREFIX} SELECT * {{ ?x :p ?y OPTIONAL {{ ?x :q ?z }}"
        f" FILTER EXISTS {{ ?a :r ?z MINUS {{ {removed} }} }} }}"
    )
    query = parse_query(text)
    quads = [
        Quad(*(Term(f"<http://e/{name}>") for name in names))
        for names in ("apb", "cpb", "cqd", "erd")
    ]
    evaluation = Evaluation(query, kind)
    for place, quad in enumerate(quads):
        evaluation.change([quad])
        assert _answer(query, evaluation) == by_specification(query, quads[: place + 1])


@pytest.mark.parametrize("kind", KINDS[:3])
@pytest.mark.parametrize(
    "selected",
    [
        "?s (COUNT(?n) AS ?c) (EXISTS { ?s :q ?z } AS ?e)",
        "?s (NOT EXISTS { ?s :q ?z FILTER(?z = ?s) } AS ?e) (EXISTS { ?z :q ?s } AS ?z)",
        "?s (IF(EXISTS { SELECT (COUNT(*) AS ?m) { ?a :q ?d } }, 1, 0) + COUNT(?n) AS ?c)",
    ],
)
def test_exists_beside_groups_has_variables_of_its_own(
    selected: str, kind: type[ScanningLeaves] | type[LookupLeaves]
) -> None:
    text = f"{PREFIX} SELECT {selected} {{ ?s :p ?n }} GROUP BY ?s"
    query = parse_query(text)
    quads = [
        Quad(*(Term(f"<http://e/{name}>") for name in names))
        for names in ("apb", "cpb", "cqd", "apd", "aqa", "bqa")
    ]
    evaluation = Evaluation(query, kind)
    for place, quad in enumerate(quads):
        evaluation.change([quad])
        present = quads[: place + 1]
        assert _answer(query, evaluation) == by_pyoxigraph(text, present, query.variables)
