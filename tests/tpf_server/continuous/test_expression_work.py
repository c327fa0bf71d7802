"""What expressions of continuous queries read and make is bounded, in whatever they are nested."""

import signal
import threading
import time
from contextlib import suppress
from unittest.mock import patch

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.running_server import TOKEN, RunningServer
from tpf_client.dataflow.node import CHARACTERS
from tpf_client.sparql.expressions import functions
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import JoinLimitError
from tpf_server.continuous.runtime.semantics import SEMANTICS, EngineLimits

ROWS = 1_000
BUDGET = CHARACTERS * ROWS
"""Characters that the expressions of a query may read at once."""

VALUE = "ab" * 50

# Each is at least twice as long as what it is made from, in some way that expressions have.
DOUBLED = [
    "CONCAT({x}, {x})",
    'REPLACE(CONCAT({x}, "ab"), "[a-z]", "$0$0")',
    'REPLACE({x}, "(.)", "$1$1")',
    "UCASE(CONCAT({x}, {x}))",
    "LCASE(CONCAT({x}, {x}))",
    'ENCODE_FOR_URI(CONCAT({x}, "é", {x}))',
    'STRLANG(CONCAT(STR({x}), STR({x})), "en")',
    "STR(STRDT(CONCAT(STR({x}), STR({x})), <urn:t>))",
    "SUBSTR(CONCAT({x}, {x}, {x}), 2)",
    'STRBEFORE(CONCAT({x}, {x}, "|"), "|")',
    'STRAFTER(CONCAT("|", {x}, {x}), "|")',
    'STR(IRI(CONCAT("urn:", ENCODE_FOR_URI({x}), ENCODE_FOR_URI({x}))))',
    "STR(OBJECT(TRIPLE(<urn:s>, <urn:p>, CONCAT({x}, {x}))))",
    "<http://www.w3.org/2001/XMLSchema#string>(CONCAT({x}, {x}))",
    "IF(STRLEN({x}) > 0, CONCAT({x}, {x}), {x})",
]
# Each reads all of it, and makes next to nothing.
READ = [
    'REGEX({x}, "(a|b)*c")',
    'REGEX({x}, "(.)x\\\\1")',
    'CONTAINS({x}, "aab")',
    "SHA512(STR({x}))",
    "MD5(STR({x})) = SHA1(STR({x}))",
    '{x} IN ("a", CONCAT({x}, ""))',
    "{x} = SUBSTR({x}, 1)",
    "{x} < CONCAT({x}, {x})",
    'STRSTARTS({x}, "aaa") || STRENDS({x}, "b")',
]
nests = st.lists(st.sampled_from(DOUBLED), min_size=1, max_size=4)
LANGUAGES = ["cqels", "paper", "csparql", "rspql"]


def chain(doubled, steps):
    """BINDs, each of which makes more of the one before, as long as that can be made."""
    binds = []
    for step in range(steps):
        made = doubled[step % len(doubled)].format(x=f"?x{step}")
        binds.append(f"BIND(COALESCE({made}, ?x{step}) AS ?x{step + 1})")
    return " ".join(binds)


def engine_of(language, rows=ROWS):
    limits = EngineLimits(join_rows=rows)
    if language in ("cqels", "paper"):
        return Engine(EngineSettings(semantics=SEMANTICS[language]), limits=limits)
    return Engine(limits=limits)


def running(engine, language, select, body, tail=""):
    """A query over triples of the last second; the body may bind more to ?x0, its object."""
    triple = "?s <urn:p> ?x0 ."
    if language == "csparql":
        stream = "FROM STREAM <urn:s> [RANGE 1s STEP 1s]"
        return engine.register_csparql(f"{select} {stream} {{ {triple} {body} }} {tail}")
    if language == "rspql":
        window = "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE PT1S STEP PT1S]"
        text = f"REGISTER RSTREAM <urn:o{len(engine.queries)}> AS {select} {window}"
        where = f"WHERE {{ WINDOW <urn:w> {{ {triple} }} {body} }}"
        return engine.register_rspql(f"{text} {where} {tail}")
    stream = f"STREAM <urn:s> [RANGE 1s] {{ {triple} }}"
    return engine.register(f"{select} {{ {stream} {body} }} {tail}")


def pushed(engine, times=4, value=VALUE, begin=0):
    for number in range(times):
        at = begin + 1 + number * 1_500
        engine.push("urn:s", (f"<urn:{number}>", "<urn:p>", f'"{value}"'), at)


class Counted:
    """Counts the characters that functions of texts are given and make."""

    def __init__(self):
        self.characters = 0

    def _counting(self, function):
        def call(*values, **named):
            result = function(*values, **named)
            texts = [getattr(each, "text", each) for each in (*values, result)]
            self.characters += sum(len(each) for each in texts if isinstance(each, str))
            return result

        return call

    def __enter__(self):
        names = functions.WEIGHTS.keys() | functions.SPENDING
        self._patch = patch.dict(
            functions.FUNCTIONS, {n: self._counting(functions.FUNCTIONS[n]) for n in names}
        )
        self._patch.start()
        return self

    def __exit__(self, *_):
        self._patch.stop()


PLACES = {
    "value": ("SELECT (STRLEN(STR({x})) AS ?n)", "{chain}", ""),
    "whole": ("SELECT {x}", "{chain}", ""),
    "group": ("SELECT (GROUP_CONCAT({x}) AS ?n)", "{chain}", ""),
    "key": ("SELECT {x} (COUNT(*) AS ?n)", "{chain}", "GROUP BY {x}"),
    "having": ("SELECT ?s", "{chain}", "GROUP BY ?s HAVING (MAX(STRLEN(STR({x}))) > 0)"),
    "order": ("SELECT ?s", "{chain}", "ORDER BY STRLEN(STR({x})) ?s LIMIT 1"),
    "template": ("CONSTRUCT {{ ?s <urn:q> {x} }}", "{chain}", ""),
    "filter": ("SELECT ?s", "{chain} FILTER(STRLEN(STR({x})) > 0)", ""),
    "optional": ("SELECT *", "OPTIONAL {{ {chain} FILTER(STRLEN(STR({x})) > 0) }}", ""),
    "sub-query": ("SELECT *", "{{ SELECT ({x} AS ?n) {{ BIND(\"a\" AS ?x0) {chain} }} }}", ""),
}  # fmt: skip


@examples(30)
@given(nests, st.sampled_from(sorted(PLACES)), st.sampled_from(LANGUAGES))
def test_texts_that_grow_stop_their_query_and_no_other(doubled, place, language):
    """Whatever function makes them, wherever it stands."""
    steps = 14
    made = chain(doubled, steps)
    if place in ("optional", "sub-query"):
        made = f'BIND("{VALUE}" AS ?y) {made.replace("?x0", "?y")}'
    select, body, tail = (each.format(chain=made, x=f"?x{steps}") for each in PLACES[place])
    engine = engine_of(language)
    modest = running(engine, language, "SELECT ?s", "")
    with Counted() as counted:
        try:
            greedy = running(engine, language, select, body, tail)
            assert greedy.state == "running"
            pushed(engine)
            error = greedy.error
        except JoinLimitError as refused:
            error = refused
    assert "read more than" in str(error)
    # Each is read by the next one, and what is made last is not kept.
    assert counted.characters <= 4 * BUDGET
    assert sum(map(len, engine.dictionary.texts.values())) <= 2 * BUDGET
    pushed(engine, begin=10_000)
    assert (modest.state, modest.emitted > 1) == ("running", True)


@examples(15)
@given(nests, st.sampled_from(READ), st.sampled_from(LANGUAGES))
def test_texts_that_are_read_again_and_again_stop_their_query(doubled, read, language):
    """They are short enough to be made."""
    steps = 6
    reads = ", ".join([f"STR({read.format(x=f'?x{steps}')})"] * 20)
    engine = engine_of(language)
    with Counted() as counted:
        body = f"{chain(doubled, steps)} BIND(CONCAT({reads}) AS ?r)"
        greedy = running(engine, language, "SELECT *", body)
        pushed(engine)
    assert greedy.state == "stopped"
    assert "the query's expressions read more than 64000 characters" in str(greedy.error)
    assert counted.characters <= 4 * BUDGET


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("doubled", DOUBLED)
def test_texts_that_stay_short_are_made(doubled, language):
    engine = engine_of(language)
    query = running(engine, language, "SELECT (STRLEN(STR(?x3)) AS ?n)", chain([doubled], 3))
    pushed(engine, value="a")
    lengths = [row[0] for each in query.waiting for row in each.rows]
    assert (query.state, len(set(lengths))) == ("running", 1)
    assert int(lengths[0].split('"')[1]) >= 8


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_row_pays_for_a_large_expression(language):
    """Of numbers, too, for which there is code of its own."""
    engine = engine_of(language, rows=100)
    large = " + ".join(["STRLEN(?x0)"] * 300)
    numbers = " * ".join(["?n"] * 300)
    for expression in (large, numbers):
        query = running(engine, language, f"SELECT (({expression}) AS ?v)", "BIND(1 AS ?n)")
        for number in range(200):
            engine.push("urn:s", (f"<urn:{number}>", "<urn:p>", '"a"'), 1_000_000 + number * 20)
        assert query.state == "stopped"
        engine = engine_of(language, rows=100)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_template_makes_no_more_triples_than_rows_are_allowed(language):
    engine = engine_of(language)
    template = " ".join(f"?s <urn:p{n}> ?x0 ." for n in range(600))
    query = running(engine, language, f"CONSTRUCT {{ {template} }}", "")
    for number in range(4):
        triples = [(f"<urn:{n}>", "<urn:p>", f'"{n}"') for n in range(4)]
        engine.push("urn:s", triples, 1 + number * 1_500)
    assert query.state == "stopped"
    assert query.emitted == 0


@pytest.mark.parametrize("language", LANGUAGES)
def test_static_parts_are_refused_at_registration(language):
    engine = engine_of(language)
    engine.add([(f"<urn:{n}>", "<urn:q>", f'"{"ab" * 2_000}{n}"') for n in range(40)])
    body = '?s <urn:q> ?long FILTER(REGEX(?long, "(a|b)*c"))'
    sub = f"{{ SELECT ?s {{ {body} }} }}"
    try:
        query = running(engine, language, "SELECT *", sub)
        pushed(engine)
        error = query.error
    except JoinLimitError as refused:
        error = refused
    assert "read more than" in str(error)
    assert all(each.state != "running" for each in engine.queries.values())


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("value", ["?x25", "OBJECT(?x25)", "?x25 = ?x24", "STR(?x25)"])
def test_triple_terms_are_not_nested_deeper_than_they_can_be_read(value, language):
    """What none could read would end every push."""
    nested = [f"BIND({'TRIPLE(?s, <urn:p>, ' * 5}?x{n}{')' * 5} AS ?x{n + 1})" for n in range(25)]
    engine = engine_of(language, rows=1_000_000)
    query = running(engine, language, f"SELECT ?s ({value} AS ?v)", " ".join(nested), "ORDER BY ?v")
    pushed(engine)
    assert query.state == "running"
    assert {row[1] for each in query.waiting for row in each.rows} == {None}


def test_a_pattern_that_differs_in_each_row_costs_what_it_takes_to_compile():
    engine = engine_of("cqels")
    query = running(engine, "cqels", "SELECT *", r'FILTER(REGEX("é", CONCAT("\\w{5}", STR(?s))))')
    pushed(engine, 20)
    assert query.state == "stopped"


def test_a_server_ends_while_expressions_are_evaluated(tmp_path):
    """The push would take an hour: nothing but the signal ends it."""
    config = 'continuous = true\nmax_join_rows = 100000000\nstream_time = "elements"\n'
    body = " ".join(
        f'BIND(COALESCE(REPLACE(?x{n}, "a", "aa"), ?x{n}) AS ?x{n + 1})' for n in range(200)
    )
    text = f"SELECT (STRLEN(?x200) AS ?n) {{ STREAM <s> [NOW] {{ ?s <urn:p> ?x0 }} {body} }}"
    auth = {"Authorization": f"Bearer {TOKEN}"}
    config += '[datasets.data]\nsource = "data.nt"\n'
    (tmp_path / "data.nt").write_text("<urn:x> <urn:y> <urn:z> .\n")
    with RunningServer(tmp_path, config) as server:
        made = requests.post(f"{server.url}queries", text.encode(), headers=auth, timeout=30)
        assert made.status_code == 201
        ended = threading.Event()

        def push() -> None:
            with suppress(requests.RequestException):
                tsv = auth | {"Content-Type": "text/tab-separated-values"}
                body = '1\t<urn:s>\t<urn:p>\t"a"\n'
                requests.post(f"{server.url}streams/s", body, headers=tsv, timeout=120)
            ended.set()

        threading.Thread(target=push, daemon=True).start()
        time.sleep(1)
        assert not ended.is_set()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert ended.wait(20)
