"""Asks Comunica and pyoxigraph the same, over fragments and over the data behind them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pyoxigraph as ox

from annotations.terms import Quad
from tests.support.oracle import bag, select, store_of, term_of
from tests.support.peers import Comunica

PREFIXES = """
PREFIX t: <http://example.org/train#>
PREFIX ex: <http://example.org/>
PREFIX tmp: <http://example.org/temporal#>
PREFIX sp: <http://example.org/singletonproperties#>
PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
"""


class Question(NamedTuple):
    """A query over a fragment interface.

    Args:
        url: the interface.
        query: SPARQL, without the prefixes above.
        quads: the data that it stands for.
        at_least: how many answers there are at least, so that no question is empty by mistake.
        kind: what Comunica is to take the interface for; ``None``: it finds out.
    """

    url: str
    query: str
    quads: Sequence[Quad]
    at_least: int = 1
    kind: str | None = None


def check(comunica: Comunica, questions: Iterable[Question]) -> list[dict[str, Any]]:
    """Have all questions answered by both, and compare.

    Returns:
        Comunica's answers.
    """
    answers = []
    stores: dict[int, ox.Store] = {}
    for question in questions:
        source = {"type": question.kind, "value": question.url} if question.kind else question.url
        answer = comunica.ask(PREFIXES + question.query, source)
        store = stores.setdefault(id(question.quads), store_of(question.quads))
        assert "error" not in answer, (question.url, question.query, answer["error"])
        _compare(question, answer, store)
        answers.append(answer)
    return answers


def _compare(question: Question, answer: dict[str, Any], store: ox.Store) -> None:
    about = (question.url, question.query)
    query = PREFIXES + question.query
    if "bindings" in answer:
        expected = bag(select(store, query))
        assert expected.total() >= question.at_least, about
        assert bag(answer["bindings"]) == expected, about
        return
    result = store.query(query)
    if "boolean" in answer:
        assert isinstance(result, ox.QueryBoolean)
        assert answer["boolean"] == bool(result), about
        return
    assert isinstance(result, ox.QueryTriples)
    constructed = Counter(tuple(map(term_of, triple)) for triple in result)
    assert len(constructed) >= question.at_least, about
    assert {quad[:3] for quad in answer["quads"]} == set(constructed), about
