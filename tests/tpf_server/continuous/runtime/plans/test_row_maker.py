"""Rows of terms from solutions, beside a plain evaluation of the template."""

from collections.abc import Mapping, Sequence
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Query
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.languages.cqels.parser import parse
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.plans import registered_query
from tpf_server.continuous.runtime.plans.registered_query import RowMaker

_VARIABLES = ("?a", "?b", "?c")
_TERMS = [
    "<urn:a>",
    "_:b",
    '"text"',
    '"3"^^<http://www.w3.org/2001/XMLSchema#integer>',
    '"x"@en',
    "<<( <urn:a> <urn:b> <urn:c> )>>",
    None,
]
_SUBJECTS = ("?a", "?b", "?c", "<urn:s>", "_:n", "_:m")
_PREDICATES = ("?a", "?b", "<urn:p>")
_OBJECTS = (*_SUBJECTS, '"o"')

solutions = st.lists(
    st.tuples(st.tuples(*[st.sampled_from(_TERMS) for _ in _VARIABLES]), st.integers(1, 3)),
    max_size=5,
)
templates = st.lists(
    st.tuples(*map(st.sampled_from, (_SUBJECTS, _PREDICATES, _OBJECTS))), min_size=1, max_size=3
)


Copies = tuple[tuple[str | None, ...], int]


def _encoded(rows: Sequence[Copies], dictionary: TermDictionary) -> list[tuple[Solution, int]]:
    return [
        (tuple([dictionary.encode(Term(term)) if term else 0 for term in row]), count)
        for row, count in rows
    ]


def _rows(
    text: str, rows: Sequence[Copies], *, feeds: bool = False
) -> tuple[tuple[Term | None, ...], ...]:
    query: Query = parse(text).query
    dictionary = TermDictionary()
    maker = RowMaker(query, _VARIABLES, dictionary, feeds=feeds)  # type: ignore[arg-type]
    found, triples = maker.made(_encoded(rows, dictionary))
    assert (triples or []) == [tuple(map(dictionary.encode, row)) for row in found if feeds]  # type: ignore[arg-type]
    return found


@given(st.lists(solutions, max_size=4), st.lists(st.sampled_from(_VARIABLES), unique=True))
def test_rows_that_are_remembered(several: list[list[Copies]], names: list[str]) -> None:
    """Also where their terms are forgotten."""
    pattern = "{ STREAM <urn:s> [NOW] { ?a ?b ?c } }"
    form = f"SELECT {' '.join(names)}" if names else "ASK"
    query = parse(f"{form} {pattern}").query
    dictionary = TermDictionary(permanent=False)
    plain, remembering = (
        RowMaker(query, _VARIABLES, dictionary, again=again)  # type: ignore[arg-type]
        for again in (False, True)
    )
    with patch.object(registered_query, "_MOST_ROWS", 3):
        for rows in several:
            encoded = _encoded(rows, dictionary)
            found = plain.made(encoded)
            assert remembering.made(encoded) == found
            if len(encoded) < 3:
                dictionary.forget(set())
                assert remembering.made(encoded) == found


def _is_triple(triple: Sequence[str | None]) -> bool:
    subject, predicate, value = triple
    return bool(
        subject
        and predicate
        and value
        and (subject.startswith("_:") or (subject[0] == "<" and subject[:2] != "<<"))
        and predicate[0] == "<"
        and predicate[:2] != "<<"
    )


@given(solutions, templates, st.booleans())
def test_construct(rows: list[Copies], template: list[tuple[str, str, str]], feeds: bool) -> None:
    """Each copy of a solution has its own blank nodes."""
    written = " . ".join(" ".join(triple) for triple in template)
    text = f"CONSTRUCT {{ {written} }} {{ STREAM <urn:s> [NOW] {{ ?a ?b ?c }} }}"
    found = _rows(text, rows, feeds=feeds)
    blanks: dict[str, Term | None] = {}
    taken = iter(found)
    for terms, count in rows:
        values: Mapping[str, str | None] = dict(zip(_VARIABLES, terms, strict=True))
        for _ in range(count):
            fresh: dict[str, Term | None] = {}
            for pattern in template:
                expected = [values.get(term, term) for term in pattern]
                if not _is_triple(expected):
                    continue
                triple = next(taken)
                for term, wanted, value in zip(pattern, expected, triple, strict=True):
                    if term.startswith("_:"):
                        assert fresh.setdefault(term, value) == value
                    else:
                        assert value == wanted
            made = [node for node in fresh.values() if node is not None]
            assert all(node.startswith("_:made") and node not in blanks for node in made)
            assert len(set(made)) == len(made)
            blanks.update(dict.fromkeys(made))
    assert next(taken, None) is None


def test_construct_does_not_keep_what_the_template_lacks() -> None:
    """Static rows that differ in an unused variable count once: see `Semantics`."""
    engine = Engine()
    graph = engine.static.memory()
    graph.add([(Term("<urn:b>"), Term("<urn:q>"), Term(f"<urn:c{i}>")) for i in range(2)])
    pattern = "{ STREAM <urn:s> [NOW] { ?a <urn:p> ?b } ?b <urn:q> ?c }"
    made = engine.register(f"CONSTRUCT {{ ?a <urn:x> ?b }} WHERE {pattern}")
    selected = engine.register(f"SELECT ?a ?b {pattern}")
    engine.push("<urn:s>", ("<urn:a>", "<urn:p>", "<urn:b>"), 1)
    assert [row for each in made for row in each.rows] == [("<urn:a>", "<urn:x>", "<urn:b>")]
    assert [row for each in selected for row in each.rows] == [("<urn:a>", "<urn:b>")]


@pytest.mark.parametrize("number", [8, 15])
def test_an_integer_of_nothing_has_no_text(number: int) -> None:
    """An unused position, and an unknown tag."""
    dictionary = TermDictionary()
    with pytest.raises(KeyError):
        dictionary.decode(number)


def test_constructions_that_differ_in_a_constant_share_a_plan() -> None:
    """In the stream or in the static data."""
    for pattern in (
        "{ STREAM <urn:s> [NOW] { <urn:a%d> <urn:p> ?b } ?b <urn:q> ?c }",
        "{ STREAM <urn:s> [NOW] { ?a <urn:p> ?b } ?a <urn:q> <urn:c%d> }",
    ):
        engine = Engine()
        graph = engine.static.memory()
        graph.add([(Term("<urn:b>"), Term("<urn:q>"), Term("<urn:c0>"))])
        graph.add((Term(f"<urn:a{i}>"), Term("<urn:q>"), Term(f"<urn:c{i}>")) for i in range(3))
        queries = [
            engine.register(f"CONSTRUCT {{ <urn:k> <urn:x> ?b }} WHERE {pattern % i}")
            for i in range(3)
        ]
        assert len({id(query.plan) for query in queries}) == 2
        for i in range(3):
            engine.push("<urn:s>", (f"<urn:a{i}>", "<urn:p>", "<urn:b>"), 3)
        row = ("<urn:k>", "<urn:x>", "<urn:b>")
        for i, query in enumerate(queries, 1):
            assert [(each.sequence, each.rows) for each in query] == [(i, (row,))]


def test_triples_that_feed_a_stream_are_not_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are passed on as identifiers; the callback still reads terms."""
    engine = Engine()
    stream = "STREAM <urn:s> [NOW] { ?a <urn:p> ?b }"
    seen: list[Emission] = []
    text = f"CONSTRUCT {{ ?b <urn:made> ?a . ?a <urn:new> [] }} {{ {stream} }}"
    engine.register(text, seen.append, into="urn:t")
    last = engine.register("SELECT ?a ?b { STREAM <urn:t> [NOW] { ?a ?p ?b } }")
    elements = [(f"<urn:a{n % 3}>", "<urn:p>", '"literal"' if n % 5 == 0 else f"<urn:b{n % 4}>")
                for n in range(60)]  # fmt: skip
    for at, element in enumerate(elements[:30]):
        engine.push("urn:s", element, at)
    encoded: list[str] = []
    original = engine.dictionary.encode

    def encode(term: Term) -> int:
        encoded.append(term)
        return original(term)

    monkeypatch.setattr(engine.dictionary, "encode", encode)
    for at, element in enumerate(elements[30:], start=30):
        engine.push("urn:s", element, at)
    assert not [each for each in encoded if each.startswith(("<urn:a", "<urn:b", '"'))]
    made = [(s, o) for emission in seen for s, _, o in emission.rows]
    assert made == [row for emission in last for row in emission.rows]
    assert len(made) == 60 + 60 - 12
