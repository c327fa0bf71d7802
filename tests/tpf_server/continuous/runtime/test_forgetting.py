"""Engines hold only what their queries look at.

With millions: ``TPF_ELEMENTS=2000000 ./run test`` and this file.
"""

import gc
import os
import re
import sys
from collections.abc import Sequence
from itertools import count
from types import ModuleType
from typing import Any

import psutil
import pytest

from tests.support.any_language import register
from tpf_client.sparql.expressions import compiler, functions, typed_terms
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime import forgetting

XSD = "http://www.w3.org/2001/XMLSchema#"
ELEMENTS = int(os.environ.get("TPF_ELEMENTS", "400"))
BYTES = ELEMENTS > 20_000

# ?s an IRI, ?v a string, ?l a string with a language, ?n an integer, ?d a double, ?t an instant,
# ?u the text of an IRI; all of them new in every element.
EXPRESSIONS = (
    "ABS(?n)", "CEIL(?d)", "CONCAT(?v, ?u)", "CONTAINS(?v, '7')", "DAY(?t)", "ENCODE_FOR_URI(?u)",
    "FLOOR(?d)", "HOURS(?t)", "LANGMATCHES(LANG(?l), ?v)", "LCASE(?v)", "MD5(?v)", "MINUTES(?t)",
    "MONTH(?t)", "REGEX(?v, '7')", "REPLACE(?v, '7', '-')", "ROUND(?d)", "SECONDS(?t)", "SHA1(?v)",
    "SHA256(?v)", "SHA384(?v)", "SHA512(?v)", "STRAFTER(?v, 'e')", "STRBEFORE(?v, 'x')",
    "STRENDS(?v, '7')", "STRLANG(?v, 'en')", "STRLEN(?v)", "STRSTARTS(?v, 't')", "SUBSTR(?v, 2)",
    "TIMEZONE(?t)", "TZ(?t)", "UCASE(?v)", "YEAR(?t)", "BOUND(?v)", "DATATYPE(?d)", "IRI(?u)",
    "IRI(CONCAT(?u, '/x'))", "ISBLANK(?s)", "ISIRI(?s)", "ISIRI(?n)", "ISLITERAL(?l)",
    "ISNUMERIC(?v)", "LANG(?l)", "NOW()", "RAND()", "SAMETERM(?v, ?u)", "STR(?s)", "STR(?n)",
    "STRDT(?v, xsd:token)", "STRUUID()", "UUID()", "BNODE()", "BNODE(?v)", "BNODE('x')",
    "COALESCE(?none, ?v)", "IF(?n > 5, ?v, ?u)", "?v = ?u", "?n + ?d", "?n * 1.5 / 7", "?d < 3",
    "HASLANG(?l)",
    "HASLANGDIR(?l)", "LANGDIR(STRLANGDIR(?v, 'en', 'ltr'))", "ISTRIPLE(?v)",
    "STR(OBJECT(TRIPLE(?s, <urn:p>, ?v)))", "SUBJECT(TRIPLE(?s, <urn:p>, ?v))",
    "PREDICATE(TRIPLE(?s, <urn:p>, ?v))", "?v IN (?u, ?l)", "?v NOT IN (?u)",
    "!(?n > 5) || ?v > 'a' && ?d != 7", "-?d", "+?n",
    *(f"{cast}({argument})" for cast, argument in (
        ("xsd:string", "?d"), ("xsd:boolean", "?n"), ("xsd:integer", "?d"), ("xsd:decimal", "?n"),
        ("xsd:double", "?n"), ("xsd:float", "?n"), ("xsd:dateTime", "?t"), ("xsd:date", "?t"),
        ("xsd:time", "?t"), ("xsd:duration", "'P1D'"), ("xsd:dayTimeDuration", "'P1D'"),
        ("xsd:yearMonthDuration", "'P1Y'"),
    )),
)  # fmt: skip

FORMS = {
    "order": "ORDER BY DESC(STR(?v)) ?s LIMIT 2",
    "groups": "GROUP BY ?s ?v ?l ?n ?d ?t ?u HAVING (MAX(?d) > 0 && GROUP_CONCAT(?v) != 'x')",
}
STAR = "?s :v ?v ; :l ?l ; :n ?n ; :d ?d ; :t ?t ; :u ?u"


def test_every_function_is_among_them() -> None:
    compiled = {*compiler.VALUE_FUNCTIONS, *compiler.TERM_FUNCTIONS}
    known = {*functions.FUNCTIONS, *filter(str.isalpha, compiled)} - {"IN"}
    named = {name for each in EXPRESSIONS for name in re.findall(r"\b[A-Z_0-9]+(?=\()", each)}
    assert known <= named
    assert {each.removeprefix(f"<{XSD}").rstrip(">") for each in functions.CASTS} == {
        name for each in EXPRESSIONS for name in re.findall(r"xsd:(\w+)\(", each)
    }


def element(number: int) -> list[tuple[str, str, str]]:
    values = {
        "v": f'"text {number}"',
        "l": f'"Wort {number}"@de',
        "n": f'"{number}"^^<{XSD}integer>',
        "d": f'"{number}.5e0"^^<{XSD}double>',
        "t": f'"2020-01-01T00:00:{number % 60:02}.{number}Z"^^<{XSD}dateTime>',
        "u": f'"http://e/{number}"',
    }
    return [(f"<urn:s{number}>", f"<http://e/{name}>", value) for name, value in values.items()]


BEGIN = 10**12
"""Instants that are no integers of terms: those that are met hold theirs."""


class Run:
    """A query over a fast stream, and a slow one with one element."""

    def __init__(self, text: str, *, csparql: bool) -> None:
        prefixes = f"PREFIX : <http://e/> PREFIX xsd: <{XSD}> "
        self.engine = Engine()
        self.seen = count()
        self._numbers = count(1)
        seen: Any = lambda _: next(self.seen)  # noqa: E731
        start = self.engine.register_csparql if csparql else self.engine.register
        self.query: Any = start(prefixes + text, seen)
        self.engine.push("urn:slow", ("<urn:a>", "<http://e/slow>", '"slow"'), BEGIN)

    def play(self, elements: int) -> int:
        """Return the held objects, or bytes of the process, after more elements."""
        for _ in range(elements):
            number = next(self._numbers)
            self.engine.push("urn:fast", element(number), BEGIN + number)
        self.engine.sweep()
        gc.collect()
        return psutil.Process().memory_info().rss if BYTES else objects(self.engine)


def objects(root: object) -> int:
    """Count the reachable objects."""
    seen = {id(getattr(module, "__dict__", None)) for module in tuple(sys.modules.values())}
    rest: list[object] = [root]
    found = 0
    while rest:
        new = {id(each): each for each in gc.get_referents(*rest) if id(each) not in seen}
        seen.update(new)
        found += len(new)
        rest = [each for each in new.values() if not isinstance(each, (type, ModuleType))]
    return found


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    if not BYTES:
        monkeypatch.setattr(forgetting, "_LEAST", 100)
        monkeypatch.setattr(typed_terms, "_MOST", 20)


def check(run: Run) -> None:
    first = run.play(ELEMENTS // 2)
    grown = run.play(ELEMENTS // 2) - first
    assert next(run.seen) > ELEMENTS // 10
    assert grown < (8_000_000 if BYTES else ELEMENTS // 4)
    # Windows remember 32 rows to measure with.
    assert len(run.engine.dictionary) < 800
    run.query.close()
    assert len(run.engine.dictionary) == 0


# Several at once, so that the elements need not be made again for each of them.
TOGETHER = 11
EACH = [EXPRESSIONS[at : at + TOGETHER] for at in range(0, len(EXPRESSIONS), TOGETHER)]


def computed(expressions: Sequence[str]) -> str:
    return " ".join(
        f"FILTER (COALESCE(({each}) != 'x', true)) BIND ({each} AS ?x{number})"
        for number, each in enumerate(expressions)
    )


@pytest.mark.parametrize("expressions", EACH, ids=str)
def test_computed_terms_in_cqels(expressions: Sequence[str]) -> None:
    window = f"STREAM <urn:fast> [RANGE 5ms] {{ {STAR} }}"
    slow = "OPTIONAL { STREAM <urn:slow> [RANGE 10d] { ?s :slow ?z } }"
    # Which CQELS-QL does not have.
    known = [each for each in expressions if each != "NOW()"]
    check(Run(f"SELECT * {{ {window} {computed(known)} {slow} }}", csparql=False))


@pytest.mark.parametrize("expressions", EACH, ids=str)
def test_computed_terms_in_csparql(expressions: Sequence[str]) -> None:
    windows = "FROM STREAM <urn:{}> [RANGE {} STEP 5ms]"
    streams = f"{windows.format('fast', '5ms')} {windows.format('slow', '10d')}"
    check(Run(f"SELECT * {streams} {{ {STAR} {computed(expressions)} }}", csparql=True))


@pytest.mark.parametrize("window", ["ALL", "TRIPLES 1", "RANGE 10d", "RANGE 10d SLIDE 1ms"])
@pytest.mark.parametrize("form", FORMS)
def test_a_slow_stream_keeps_its_own_terms_alone_in_cqels(window: str, form: str) -> None:
    slow = f"STREAM <urn:slow> [{window}] {{ ?a :slow ?b }}"
    fast = f"{{ SELECT * {{ STREAM <urn:fast> [RANGE 5ms] {{ {STAR} }} }} }}"
    where = f"{{ {slow} {fast} BIND (CONCAT(?b, STR(?s)) AS ?c) }}"
    check(Run(f"SELECT ?s {where} {FORMS[form]}", csparql=False))


@pytest.mark.parametrize("window", ["TRIPLES 1", "10d STEP 1ms", "10d TUMBLING"])
@pytest.mark.parametrize("form", [*FORMS, "aggregate", "construct", "graph"])
def test_a_slow_stream_keeps_its_own_terms_alone_in_csparql(window: str, form: str) -> None:
    named = "NAMED " * (form == "graph")
    streams = f"FROM {named}STREAM <urn:slow> [RANGE {window}] FROM STREAM <urn:fast> [RANGE 5ms"
    slow = "?a :slow ?b" if form != "graph" else "GRAPH ?g { ?a :slow ?b }"
    where = f"{{ {slow} . {STAR} BIND (CONCAT(?b, STR(?s)) AS ?c) }}"
    head, tail = "SELECT ?s", FORMS.get(form, "")
    if form == "aggregate":
        tail = "AGGREGATE { (?k, COUNT(?v), {?s}) (?most, MAX(?c), {?a}) }"
    if form == "construct":
        head = "REGISTER STREAM made AS CONSTRUCT { ?s :made ?c . [] :by ?v }"
    check(Run(f"{head} {streams} STEP 5ms] {where} {tail}", csparql=True))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * { STREAM <urn:s> [RANGE 1d] { ?a <urn:p> ?b } ?b <urn:q> ?c }",
        "SELECT * FROM STREAM <urn:s> [RANGE 1d STEP 1s] { ?a <urn:p> ?b . ?b <urn:q> ?c }",
    ],
)
def test_static_data_that_change_for_ever_leave_nothing(text: str) -> None:
    engine = Engine()
    query = register(engine, text, lambda _: None)
    engine.push("urn:s", ("<urn:a>", "<urn:p>", "<urn:b>"), 1)
    most = 0
    for number in range(1000):
        triple = ("<urn:b>", "<urn:q>", f'"{number}"')
        engine.add([triple])
        engine.remove([triple])
        most = max(most, len(engine.dictionary))
    assert BYTES or most < 300
    query.close()
    assert len(engine.dictionary) == 0


@pytest.mark.parametrize(
    "text",
    [
        "SELECT (MAX(?s) AS ?m) { STREAM <urn:s> [RANGE 9ms] { ?s <urn:v> ?v } }",
        "SELECT ?s FROM STREAM <urn:s> [RANGE 9ms STEP 9ms] { ?s <urn:v> ?v } ORDER BY ?s LIMIT 2",
    ],
)
def test_numbered_subjects_leave_nothing(text: str) -> None:
    gc.collect()
    others = {id(each) for each in gc.get_objects() if type(each) is typed_terms.TypedTerms}
    engine = Engine()
    register(engine, text, lambda _: None)
    feed = engine.record_feed("urn:s", ["urn:v"], "http://example.org/trip/")
    for number in range(ELEMENTS):
        feed.push(number, [number % 5], number)
    engine.sweep()
    values = [each for each in gc.get_objects() if type(each) is typed_terms.TypedTerms]
    assert all(len(each) <= 40 for each in values if id(each) not in others)
    assert len(values) > len(others)
