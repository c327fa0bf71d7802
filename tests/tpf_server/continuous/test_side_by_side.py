"""Engines of both languages share terms and static data, and answer as if apart.

More of them: ``TPF_EXAMPLES=10000 ./run test --hypothesis-profile=default`` and this file.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from annotations.terms import Term
from tests.support.random_continuous_queries import (
    NODES,
    STATIC,
    CsparqlWriter,
    QueryWriter,
    in_csparql,
    random_clauses,
    random_elements,
)
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.engine import forgetting
from tpf_server.continuous.engine.semantics import PAPER
from tpf_server.continuous.streams import SharedStreams

EXAMPLES = int(os.environ.get("TPF_EXAMPLES", "0"))
Found = list[tuple[int, Counter[Any]]]


def loaded(engine: Any) -> Any:
    for line in STATIC.strip().splitlines():
        terms = line.split(" ")[:-1]
        engine.add([terms[:3]], terms[3] if len(terms) > 3 else None)
    return engine


def texts(random: Random) -> Iterator[tuple[bool, str]]:
    """Queries, and whether they are in C-SPARQL."""
    for _ in range(random.randint(2, 4)):
        yield False, QueryWriter(random).query(2)
        clauses = random_clauses(random)
        yield True, in_csparql(CsparqlWriter(random, clauses).query(2), clauses)


def take(found: Found) -> Callable[[Any], None]:
    return lambda emission: found.append((emission.at, Counter(emission.rows)))


@settings(max_examples=EXAMPLES or 30, deadline=None)
@given(st.integers(0, 2**32).map(Random))
def test_queries_of_both_languages_answer_as_in_engines_apart(random: Random) -> None:
    """Terms are forgotten, queries go, static data change."""
    with patch.object(forgetting, "_LEAST", 0), patch.object(forgetting, "_SHARE", 10**9):
        engine = loaded(Engine(semantics=PAPER))
        periodic = CsparqlEngine(beside=engine)
        streams = SharedStreams(engine, periodic, 0)
        for name in ("<urn:s1>", "<urn:s2>"):
            streams.create(name)
        apart = (loaded(Engine(semantics=PAPER)), loaded(CsparqlEngine()))
        running: list[tuple[Any, Any, Found, Found, str]] = []
        for paper, text in texts(random):
            found: Found = []
            expected: Found = []
            other = apart[paper].register(text, take(expected))
            query = (engine, periodic)[paper].register(text, take(found))
            running.append((query, other, found, expected, text))
        at = 10**6  # which is the number of no term
        for stream, pause, triples in random_elements(random, 20):
            if random.random() < 0.2 and running:
                for each in running.pop(random.randrange(len(running)))[:2]:
                    each.close()
            if random.random() < 0.2:
                triple = (random.choice(NODES), "<urn:near>", random.choice(NODES))
                added = random.random() < 0.5
                for each in (engine, *apart):
                    (each.add if added else each.remove)([triple])
            at += pause
            streams.arrive(Term(f"<{stream}>"), triples, at)
            for each in apart:
                each.push(stream, triples, at)
            for _, _, found, expected, text in running:
                assert found == expected, text
        for query, *_ in running:
            query.close()
        # Streams know three predicates, and how much came: up to 60, which may be eight terms.
        assert len(engine.dictionary) <= 11


def test_a_term_of_both_is_there_once_and_goes_with_the_last_that_needs_it() -> None:
    engine = Engine()
    periodic = CsparqlEngine(beside=engine)
    streams = SharedStreams(engine, periodic, 0)
    native = engine.register("SELECT * { STREAM <urn:s> [ALL] { ?a <urn:p> ?b } }", take([]))
    paper = periodic.register(
        "SELECT * FROM STREAM <urn:s> [RANGE 1d STEP 1s] { ?a <urn:p> ?b }", take([])
    )
    streams.arrive(Term("<urn:s>"), [("<urn:a>", "<urn:p>", "<urn:b>")], 1)
    assert len(engine.dictionary) == len(periodic.dictionary) == 3
    native.close()
    assert len(engine.dictionary) == 3
    paper.close()
    assert len(engine.dictionary) == 0


def test_static_data_are_there_once() -> None:
    engine = loaded(Engine())
    periodic = CsparqlEngine(beside=engine)
    assert periodic.ask("SELECT * { ?a <urn:kind> <urn:k1> }").rows
    periodic.remove([(f"<urn:n{number}>", "<urn:kind>", "<urn:k1>") for number in (1, 2)])
    assert not periodic.ask("SELECT * { ?a <urn:kind> <urn:k1> }").rows


def test_engines_apart_share_no_streams() -> None:
    with pytest.raises(ValueError, match="terms of their own"):
        SharedStreams(Engine(), CsparqlEngine(), 0)
