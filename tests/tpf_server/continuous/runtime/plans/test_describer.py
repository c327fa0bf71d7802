"""DESCRIBE in CQELS-QL: what static data say of what solutions name."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.random_continuous_queries import NODES
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.semantics import PAPER, PAPER_DSTREAM

BLANKS = tuple(f"_:b{number}" for number in range(4))
QUERY = "DESCRIBE ?a <urn:n0> FROM <urn:g> { STREAM <urn:s> [RANGE 5ms] { ?a <urn:p> ?b } }"


@examples(15)
@given(st.integers(0, 2**32).map(Random))
def test_it_says_what_a_dataflow_says(random: Random) -> None:
    """C-SPARQL has descriptions as a part of its dataflow."""
    engine = Engine()
    query = engine.register(QUERY, semantics=random.choice((PAPER, PAPER_DSTREAM)))
    for at in range(1, 8):
        change = [
            (
                random.choice(NODES + BLANKS),
                random.choice(("<urn:q>", "<urn:r>")),
                random.choice((*NODES, *BLANKS, *BLANKS, '"1"')),
            )
            for _ in range(4)
        ]
        engine.add(change, "urn:g")
        engine.add([(random.choice(NODES), "<urn:q>", '"elsewhere"')])
        named = random.choice((*NODES, *BLANKS, '"text"'))
        other = random.choice(NODES)
        engine.push("urn:s", [(other, "<urn:p>", named)], at * 100)
        expected = engine.ask(f"DESCRIBE {other} <urn:n0> FROM <urn:g> {{}}").rows
        for emission in query:
            if not emission.removed:
                assert set(emission.rows) == set(expected)
                assert len(emission.rows) == len(expected)


def test_descriptions_are_elements_of_a_stream() -> None:
    engine = Engine()
    engine.add([("<urn:a>", "<urn:at>", "_:b"), ("_:b", "<urn:name>", '"hall"')])
    text = "DESCRIBE ?a { STREAM <urn:s> [NOW] { ?a <urn:p> ?b } }"
    engine.register(text, lambda _: None, into="urn:made")
    names = engine.register("SELECT ?n { STREAM <urn:made> [NOW] { ?a <urn:name> ?n } }")
    engine.push("urn:s", [("<urn:a>", "<urn:p>", "<urn:b>")], 1)
    engine.push("urn:s", [("<urn:nothing>", "<urn:p>", "<urn:b>")], 2)
    assert [emission.rows for emission in names] == [(('"hall"',),)]
    with pytest.raises(UnsupportedContinuousQueryError, match="only CONSTRUCT or DESCRIBE"):
        engine.register("SELECT ?a { STREAM <urn:s> [NOW] { ?a ?b ?c } }", into="urn:made")
