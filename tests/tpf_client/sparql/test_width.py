"""Wide queries are answered; too deep ones are refused with our error."""

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from annotations.terms import Quad, Variable, iri, literal
from tests.support.evaluation import evaluate
from tests.support.live_server import LiveServer
from tpf_client import Solutions
from tpf_client.dataflow.operators.layout import layout
from tpf_client.errors import UnsupportedQueryError
from tpf_client.sparql.depth import MAX_DEPTH, MAX_LEVELS
from tpf_client.sparql.parser import MAX_TRIPLE_PATTERNS, parse_query
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError

P = "PREFIX : <http://e/> "
INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
QUADS = [Quad(iri("http://e/s"), iri("http://e/p"), literal("1", datatype=INTEGER))]
N = 500


def _each(text: str, separator: str = " ", n: int = N) -> str:
    return separator.join(text.replace("#", str(number)) for number in range(n))


def _group(text: str) -> str:
    return f"SELECT * {{ ?s :p ?o {text} }}"


# What it is, how many solutions it has, and whether a client asks for it, too (in the default suite
# only what is quick).
WIDE: dict[str, tuple[str, int]] = {
    "||": (_group(f"FILTER({_each('?o = #', ' || ')})"), 1),
    "&&": (_group(f"FILTER({_each('?o != -1#', ' && ')})"), 1),
    "+": (f"SELECT ({_each('1', ' + ')} AS ?x) {{}}", 1),
    "-": (f"SELECT ({_each('1', ' - ')} AS ?x) {{}}", 1),
    "*": (f"SELECT ({_each('1', ' * ')} AS ?x) {{}}", 1),
    "in": (_group(f"FILTER(?o IN ({_each('#', ', ')}))"), 1),
    "arguments": (f"SELECT (CONCAT({_each('1', ', ')}) AS ?x) {{}}", 1),
    "optional": (_group(_each("OPTIONAL { ?s :p# ?x# }")), 1),
    "filters of optional": (_group(f"OPTIONAL {{ ?s :p ?z {_each('FILTER(?z != -1#)')} }}"), 1),
    "bind": (_group(_each("BIND(# AS ?x#)")), 1),
    "filter": (_group(_each("FILTER(?o != -1#)")), 1),
    "exists": (_group(_each("FILTER NOT EXISTS { ?s :q# ?o }")), 1),
    "minus": (_group(_each("MINUS { ?s :q# ?o }")), 1),
    "values": (_group(f"VALUES ?v {{ {_each('#', n=2000)} }}"), 2000),
    "blocks of values": (_group(_each("VALUES ?x# { 1 }")), 1),
    "union": (f"SELECT * {{ {_each('{ ?s :p# ?o }', ' UNION ')} UNION {{ ?s :p ?o }} }}", 1),
    "graphs": (_group(_each("GRAPH :g# { ?s :p ?o }")), 0),
    "alternatives": (f"SELECT * {{ ?s {_each(':p#', '|')}|:p ?o }}", 1),
    "alternatives repeated": (f"SELECT * {{ :s ({_each(':p#', '|')}|:p)+ ?o }}", 1),
    "sequence": (f"SELECT * {{ ?s {_each(':p#', '/')} ?o }}", 0),
    "negated": (f"SELECT * {{ ?s !({_each(':p#', '|')}) ?o }}", 1),
    "triples": (f"SELECT * {{ {_each('?s :p 1 .', n=2000)} }}", 1),
    "objects": (f"SELECT * {{ ?s :p {_each('1', ', ', n=2000)} }}", 1),
    "collection": (f"SELECT * {{ ?s :p ({_each('#')}) }}", 0),
    "selected": (f"SELECT {_each('(# AS ?x#)')} {{}}", 1),
    "group by": (f"SELECT (COUNT(*) AS ?n) {{ ?s :p ?o }} GROUP BY {_each('(?o + #)')}", 1),
    "having": (f"SELECT ?s {{ ?s :p ?o }} GROUP BY ?s HAVING {_each('(SUM(?o) != -1#)')}", 1),
    "order by": (f"SELECT ?s {{ ?s :p ?o }} ORDER BY {_each('(?o + #)')}", 1),
    "prefixes": (f"{_each('PREFIX a#: <urn:#>')} SELECT * {{ ?s :p ?o }}", 1),
}  # fmt: skip


def _in_a_thread(action: Callable[[], Any]) -> Any:
    """Run with the stack of a thread."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(action())
        except BaseException as error:  # noqa: BLE001 - handed on
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


@pytest.fixture(autouse=True)
def _no_room_from_before() -> Iterator[None]:
    """Each query makes room for itself: others that this process met before have made none."""
    before = sys.getrecursionlimit()
    parse_query.cache_clear()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(max(before, sys.getrecursionlimit()))


@pytest.mark.parametrize("name", WIDE)
def test_wide_queries_are_evaluated(name: str) -> None:
    query, count = WIDE[name]
    assert len(_in_a_thread(lambda: evaluate(P + query, QUADS).rows())) == count


@pytest.mark.parametrize(
    "name",
    ["||", "&&", "+", "filters of optional", "bind", "filter", "values", "triples", "in", "having"],
)
def test_wide_queries_are_asked(name: str, tmp_path: Path) -> None:
    query, count = WIDE[name]
    server = LiveServer(tmp_path, QUADS, live=False)

    def ask() -> int:
        with server.client() as client:
            answer = client.query(P + query)
            assert isinstance(answer, Solutions)
            return len(list(answer))

    assert _in_a_thread(ask) == count
    server.close()


CONDITIONS = {
    "||": f"FILTER({_each('?o = #', ' || ')})",
    "&&": f"FILTER({_each('?o != -1#', ' && ')})",
    "+": f"BIND(?o + {_each('1', ' + ')} AS ?z)",
    "in": f"FILTER(?o IN ({_each('#', ', ')}))",
    "filter": _each("FILTER(?o != -1#)"),
    "bind": _each("BIND(?o + # AS ?x#)"),
    "values": f"VALUES ?o {{ {_each('#')} }}",
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_wide_conditions_of_continuous_queries(name: str) -> None:
    engine = Engine()
    found = engine.register(
        f"SELECT * {{ STREAM <urn:s> [RANGE 4ms] {{ ?s <urn:p> ?o }} {CONDITIONS[name]} }}"
    )
    engine.push("urn:s", ("<urn:a>", "<urn:p>", str(QUADS[0].object)), 1)
    assert sum(len(emission.rows) for emission in found) == 1
    engine = Engine()
    query = engine.register_csparql(
        f"SELECT * FROM STREAM <urn:s> [RANGE 2ms TUMBLING] {{ ?s <urn:p> ?o {CONDITIONS[name]} }}"
    )
    engine.push("urn:s", ("<urn:a>", "<urn:p>", str(QUADS[0].object)), 1)
    engine.advance(10)
    assert sum(len(answer.rows) for answer in query) == 1


_DEEP: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: f"SELECT ({'(' * n}1{')' * n} AS ?x) {{}}",
    "calls": lambda n: f"SELECT ({'STR(' * n}1{')' * n} AS ?x) {{}}",
    "signs": lambda n: f"SELECT ({'!' * n}true AS ?x) {{}}",
    "groups": lambda n: f"SELECT * {'{ ' * n}?s :p ?o{' }' * n}",
    "optional": lambda n: f"SELECT * {{ {'OPTIONAL { ?s :p ?o ' * n}{'}' * n} }}",
    "exists": lambda n: f"SELECT * {{ {'FILTER EXISTS { ?s :p ?o ' * n}{'}' * n} }}",
    "lists": lambda n: f"SELECT * {{ ?s :p {'( ' * n}1{' )' * n} }}",
    "nodes": lambda n: f"SELECT * {{ ?s :p {'[ :p ' * n}1{' ]' * n} }}",
    "paths": lambda n: f"SELECT * {{ ?s {'(' * n}:p{')*' * n} ?o }}",
    "sub-selects": lambda n: f"SELECT * {'{ SELECT * ' * n}{{ ?s :p ?o }}{' }' * n}",
}


@pytest.mark.parametrize("name", _DEEP)
def test_what_is_too_deep_is_said(name: str) -> None:
    levels = (MAX_LEVELS - 6) // (2 if name == "exists" else 1)
    if name in ("groups", "sub-selects", "exists", "optional"):
        levels = levels // 4
    _in_a_thread(lambda: evaluate(P + _DEEP[name](levels), QUADS).rows())
    for far in (MAX_LEVELS + 1, 20_000):
        with pytest.raises(UnsupportedQueryError, match="nested too deeply"):
            _in_a_thread(partial(parse_query, P + _DEEP[name](far)))


@pytest.mark.parametrize("name", ["+", "-", "*", "optional", "bind", "filter", "minus"])
def test_what_is_too_long_is_said(name: str) -> None:
    longer = {
        "optional": "OPTIONAL { ?s :p ?x } ",
        "bind": "BIND(1 AS ?x#) ",
        "filter": "FILTER(?o != 2) ",
        "minus": "MINUS { ?s :q ?o } ",
    }
    if name in longer:
        query = _group(_each(longer[name], n=MAX_DEPTH + 1))
    else:
        query = f"SELECT ({_each('1', f' {name} ', n=MAX_DEPTH + 2)} AS ?x) {{}}"
    with pytest.raises(UnsupportedQueryError, match=str(MAX_DEPTH)):
        parse_query(P + query)


_MANY: dict[str, Callable[[int], str]] = {
    "objects": lambda n: f"?s :p {_each('1', ', ', n)}",
    "union": lambda n: f"{{ ?s :p {_each('1', ', ', n - 1)} }} UNION {{ ?s :p 2 }}",
    "sequence": lambda n: f"?s {_each(':p', '/', n)} ?o",
    "repetition": lambda n: f"?s ({_each(':p', '/', n)})* ?o",
}


@pytest.mark.parametrize("name", _MANY)
def test_too_many_triple_patterns(name: str) -> None:
    parse_query(f"{P} SELECT * {{ {_MANY[name](MAX_TRIPLE_PATTERNS)} }}")
    with pytest.raises(UnsupportedQueryError, match="more than 10,000 triple patterns"):
        parse_query(f"{P} SELECT * {{ {_MANY[name](MAX_TRIPLE_PATTERNS + 1)} }}")


@pytest.mark.parametrize("shared", [True, False])
def test_schemas_join_in_time_with_their_width(shared: bool) -> None:
    width = 50_000
    left, right = ([Variable(f"?{n}") for n in range(first, first + width)] for first in (0, width))
    both = left[::-1] if shared else right
    begun = process_time()
    how = layout(tuple(left), frozenset(left), tuple(both), frozenset(both))
    assert process_time() - begun < 5
    assert len(how.schema) == width * (1 if shared else 2)
    row = tuple(range(width))
    assert how.left_key(row) == how.right_key(row[::-1]) if shared else how.rest(row) == row


def test_continuous_queries_say_so_too() -> None:
    deep = f"FILTER({'!' * 1000}true)"
    with pytest.raises(UnsupportedContinuousQueryError, match="nested too deeply"):
        Engine().register(f"SELECT * {{ STREAM <urn:s> [NOW] {{ ?s ?p ?o }} {deep} }}")
    with pytest.raises(UnsupportedContinuousQueryError, match="nested too deeply"):
        Engine().register_csparql(
            f"SELECT * FROM STREAM <urn:s> [RANGE 2ms TUMBLING] {{ ?s ?p ?o {deep} }}"
        )
