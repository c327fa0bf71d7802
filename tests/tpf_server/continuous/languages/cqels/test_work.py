"""The cost of an arrival, counted in calls and indexes."""

import sys
from collections.abc import Iterable, Iterator
from functools import partial
from heapq import nsmallest
from itertools import islice
from typing import Any

import pytest

from annotations.terms import QuadPattern, Term, Variable
from tests.support.counted_calls import counted_calls
from tests.support.static_graphs import CountingGraph
from tpf_client.dataflow.codegen import function_code
from tpf_client.dataflow.operators import order as client_order
from tpf_client.dataflow.state.row_index import RowBag
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.plans import slices
from tpf_server.continuous.runtime.plans.registered_query import RegisteredQuery
from tpf_server.continuous.runtime.semantics import CQELS, PAPER, PAPER_DSTREAM, Semantics
from tpf_server.continuous.runtime.static.static_data import Dataset, StaticData
from tpf_server.continuous.runtime.static.static_rows import evaluate_static

_PREFIX = "PREFIX : <urn:> "
Events = list[tuple[int, tuple[str, str, str]]]
STATIC = (
    _PREFIX + "SELECT ?who ?mate { STREAM <urn:s> [TRIPLES 1] { ?who :at ?room }"
    " STREAM <urn:s> [RANGE 5s] { ?mate :at ?room }"
    ' ?paper :by ?who . ?paper :by ?mate . ?who :name "NAME" FILTER(?who != ?mate) }'
)
"""Its constant is in the static part (as in Q3 of the CQELS paper)."""
STREAMED = _PREFIX + "SELECT ?room { STREAM <urn:s> [NOW] { <urn:pNAME> :at ?room } }"
"""Its constant is in the stream."""


def _engine(query: str, instances: int, *, between: bool = False) -> Engine:
    """An engine with queries; `between` them an element comes after each registration."""
    engine = Engine()
    graph = engine.static.memory()
    for number in range(instances):
        author, paper = Term(f"<urn:p{number}>"), Term(f"<urn:paper{number}>")
        mates = [Term(f"<urn:m{number + 1000 * each}>") for each in range(4)]
        graph.add((paper, Term("<urn:by>"), who) for who in (author, *mates))
        graph.add([(author, Term("<urn:name>"), Term(f'"{number}"'))])
    for number in range(instances):
        engine.register(query.replace("NAME", str(number)), _ignore)
        if between:
            engine.push("<urn:s>", ("<urn:nobody>", "<urn:at>", "<urn:nowhere>"), 1)
    return engine


def _ignore(_emission: Emission) -> None:
    pass


def _detections(count: int) -> Events:
    people = [f"<urn:{kind}{number}>" for number in range(5) for kind in "pm"]
    return [
        (1000 + 10 * i, (people[i % 10], "<urn:at>", f"<urn:room{i // 2 % 3}>"))
        for i in range(count)
    ]


def _push(engine: Engine, events: Events, stream: str = "<urn:s>") -> None:
    for at, triple in events:
        engine.push(stream, triple, at)


def _calls(engine: Engine, events: Events, stream: str = "<urn:s>") -> int:
    """Count the functions that arrivals call, including builtins."""
    return counted_calls(partial(_push, engine, events, stream))


TWO_WINDOWS = (
    _PREFIX + "SELECT ?mate { STREAM <urn:s> [NOW] { <urn:pNAME> :at ?room }"
    " STREAM <urn:s> [RANGE 5s] { ?mate :at ?room } }"
)

FILTERED = (
    _PREFIX + "SELECT ?who ?room { STREAM <urn:s> [NOW] { ?who :at ?room } FILTER(?who = :pNAME) }"
    " ORDER BY ?room"
)
GROUPED = (
    _PREFIX + "SELECT ?room (COUNT(*) AS ?n) { STREAM <urn:s> [NOW] { :pNAME :at ?room } }"
    " GROUP BY ?room ORDER BY ?n LIMIT NAME1"
)
"""Both constants differ."""


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize(
    "query",
    [
        STATIC,
        STREAMED,
        TWO_WINDOWS,
        FILTERED,
        FILTERED + " LIMIT 3",
        STREAMED + " LIMIT NAME1",
        STATIC + " ORDER BY ?mate OFFSET 1 LIMIT NAME1",
        GROUPED,
    ],
)
def test_cost_follows_the_instances_that_match(query: str, between: bool) -> None:
    """Five of 20 and of 120 queries match."""
    found = []
    for instances in (20, 120):
        engine = _engine(query, instances, between=between)
        assert len({each.plan for each in engine.queries.values()}) <= 3
        events = _detections(1300)
        # Routes settle first: how often they are looked at follows the arrivals, not the queries.
        _push(engine, events[:1100])
        emitted = {name: each.emitted for name, each in engine.queries.items()}
        found.append(_calls(engine, events[1100:]))
        busy = [n for n, each in engine.queries.items() if each.emitted > emitted[n]]
        assert len(busy) == 5
    assert found[0] == found[1]


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[RowBag]:
    """Record the bag of each index."""
    filled: list[RowBag] = []
    original = RowBag._filled

    def fill(self: RowBag, columns: tuple[int, ...]) -> Any:
        filled.append(self)
        return original(self, columns)

    monkeypatch.setattr(RowBag, "_filled", fill)
    return filled


def test_an_index_over_static_data_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes change, indexes over cached sub-queries stay."""
    filled = _watched(monkeypatch)
    engine = _engine(STATIC, 50)
    at = 0
    for step in (5, 3000) * 4:
        for number in range(2100):
            at += step
            triple = (f"<urn:p{number % 50}>", "<urn:at>", f"<urn:room{number % 30}>")
            engine.push("<urn:s>", triple, at)
    plans = {each.plan for each in engine.queries.values()}
    caches = [rows for plan in plans if plan is not None for rows, _ in plan.leaves.static]
    assert sum(join.rerouted for plan in plans if plan for join in plan.leaves.joins) >= 4
    for cache in caches:
        # Over the author, over the co-author and over both.
        assert 1 <= sum(bag is cache.bag for bag in filled) <= 3


def test_windows_that_no_row_asks_have_no_index() -> None:
    """Arriving rows probe static data, which probe windows only when they change."""
    engine = Engine()
    graph = engine.static.memory()
    graph.add([(Term("<urn:room0>"), Term("<urn:name>"), Term('"first"'))])
    query = engine.register(
        _PREFIX + "SELECT ?who ?name { STREAM <urn:s> [RANGE 1h] { ?who :at ?room }"
        " ?room :name ?name }"
    )
    assert query.plan is not None
    ((window, _),) = query.plan.leaves.subscriptions
    _push(engine, _detections(9))
    indexed = [not window.bag.idle]
    assert [row for each in query for row in each.rows] == [
        (triple[0], '"first"') for _, triple in _detections(9) if triple[2] == "<urn:room0>"
    ]
    graph.add([(Term("<urn:room1>"), Term("<urn:name>"), Term('"second"'))])
    engine.static.changed(Term(""))
    indexed.append(not window.bag.idle)
    _push(engine, _detections(600)[9:])
    assert [*indexed, not window.bag.idle] == [False, True, False]


def test_a_route_goes_where_the_rows_of_a_cache_find_least() -> None:
    """Nine of ten friends never come; there are twelve rooms nearby."""
    engine = Engine()
    graph = engine.static.memory()
    for number in range(5):
        knows, me = Term("<urn:knows>"), Term(f"<urn:p{number}>")
        friends = [f"<urn:p{(number + 1) % 5}>", *(f"<urn:x{n + 9 * number}>" for n in range(9))]
        graph.add((me, knows, Term(friend)) for friend in friends)
    for room in range(3):
        near = (Term(f"<urn:near{n}>") for n in range(12))
        graph.add((Term(f"<urn:room{room}>"), Term("<urn:near>"), each) for each in near)
    query = engine.register(
        _PREFIX + "SELECT ?a ?b ?other { STREAM <urn:s> [NOW] { ?a :at ?room } ?a :knows ?b ."
        " STREAM <urn:s> [RANGE 1h] { ?b :at ?where } ?room :near ?other }"
    )
    for at, (who, predicate, room_) in _detections(300):
        engine.push("<urn:s>", (who.replace("m", "p"), predicate, room_), at)
    inputs = query.explain()["joins"][0]["inputs"]
    (route,) = [each["route"] for each in inputs if "NOW" in each["input"]]
    assert [word for each in route for word in ("knows", "RANGE", "near") if word in each] == [
        "knows",
        "RANGE",
        "near",
    ]


ALIKE = (
    _PREFIX + "SELECT ?who (COUNT(?mate) AS ?n) { STREAM <urn:s> [NOW] { ?who :at ?room }"
    " OPTIONAL { STREAM <urn:s> [RANGE 1s] { ?mate :at ?room } }"
    " MINUS { VALUES ?who { :nobody } } FILTER NOT EXISTS { ?who :not+/^:at ?room } }"
    " GROUP BY ?who HAVING (?n > 1)"
)


def test_queries_that_say_the_same_are_computed_once() -> None:
    """Four more cost only their readers; a later one sees less."""
    found = []
    for copies in (1, 5):
        engine = Engine()
        emissions: list[list[Emission]] = [[] for _ in range(copies)]
        queries = [engine.register(ALIKE, each.append) for each in emissions]
        assert len({id(query.plan) for query in queries}) == 1
        calls = _calls(engine, _detections(200))
        assert all(each == emissions[0] for each in emissions)
        found.append((calls, emissions[0]))
    (once, alone), (five, together) = found
    assert together == alone
    assert len(alone) > 100
    # To be found, to be counted, to be called.
    assert (five - once) / (4 * len(alone)) <= 10

    late = engine.register(ALIKE)
    assert late.plan is not queries[0].plan
    for query in queries[:-1]:
        query.close()
    _push(engine, _detections(201)[-1:])
    assert emissions[0] == alone
    assert len(emissions[-1]) > len(alone)
    queries[-1].close()
    assert len({id(each.plan) for each in engine.queries.values()}) == 1


def test_a_predicate_larger_than_estimated_is_not_read_whole() -> None:
    """900 papers of one author among 20,000 are looked up."""
    papers, others = 900, 20_000
    by, name = Term("<urn:by>"), Term("<urn:name>")
    graph = CountingGraph()
    graph.add((Term(f"<urn:paper{n}>"), by, Term("<urn:p0>")) for n in range(papers))
    graph.add((Term(f"<urn:paper{n}>"), by, Term(f"<urn:q{n % 100}>")) for n in range(others))
    graph.add([(Term("<urn:p0>"), name, Term('"0"'))])
    data = StaticData()
    data.attach(graph)
    paper, author, mate = Variable("?paper"), Variable("?author"), Variable("?mate")
    _, rows = evaluate_static(
        Dataset(data),
        [
            QuadPattern(author, name, Term('"0"')),
            QuadPattern(paper, by, author),
            QuadPattern(paper, by, mate),
        ],
    )
    assert len(rows) == 2 * papers
    # The papers, the authors of each, and what was read until it turned out to be too much.
    assert graph.read < 1 + papers + 2 * papers + 5 * papers


@pytest.mark.parametrize("constant", ["FILTER", "RANGE"])
@pytest.mark.parametrize("between", [False, True])
def test_who_is_told_the_same_is_told_together(constant: str, between: bool) -> None:
    """All of them want each row."""
    text = "SELECT ?who { STREAM <urn:s> [RANGE %dms] { ?who :seen ?n } FILTER(?n > %d) }"
    found = []
    for count in (20, 220):
        engine = Engine()
        told: list[Emission] = []
        for number in range(count):
            constants = (number, 1) if constant == "RANGE" else (9, number)
            engine.register(_PREFIX + text % constants, told.append)
            if between:
                engine.push("<urn:s>", ("<urn:p>", "<urn:seen>", '"0"'), 1)
        engine.push("<urn:s>", ("<urn:p>", "<urn:seen>", '"0"'), 500)
        assert len({each.plan for each in engine.queries.values()}) <= 2
        triple = ("<urn:p>", "<urn:seen>", '"1000"^^<http://www.w3.org/2001/XMLSchema#integer>')
        told.clear()
        calls = _calls(engine, [(1000 + n, triple) for n in range(20)])
        assert len(told) == 20 * count
        found.append((calls, len(told)))
    (few, less), (many, more) = found
    assert (many - few) / (more - less) <= 1.5


FIRST = {
    "in order": _PREFIX + "SELECT ?who ?room { STREAM <urn:s> [RANGE 90ms] { ?who :at ?room } }"
    " ORDER BY DESC(?room) ?who LIMIT %d",
    "groups": _PREFIX + "SELECT ?room (MAX(?who) AS ?last)"
    " { STREAM <urn:s> [RANGE 90ms] { ?who :at ?room } } GROUP BY ?room"
    " ORDER BY DESC(?room) LIMIT %d",
    "by arrival": _PREFIX + "SELECT ?who ?room { STREAM <urn:s> [RANGE 90ms] { ?who :at ?room } }"
    " LIMIT %d",
}


def _emitted(engine: Engine) -> int:
    return sum(each.emitted for each in engine.queries.values())


def _of_one_order(text: str, numbers: Iterable[int]) -> tuple[int, int]:
    """Return the calls of 100 arrivals, and the rows that queries of one order emit."""
    engine = Engine(EngineSettings(semantics=PAPER))
    for number in numbers:
        engine.register(text % number, _ignore)
    assert len({each.plan for each in engine.queries.values()}) == 2
    events = _detections(300)
    _push(engine, events[:200])
    emitted = _emitted(engine)
    return _calls(engine, events[200:]), _emitted(engine) - emitted


@pytest.mark.parametrize("kind", FIRST)
def test_an_order_is_kept_once_for_all_limits(kind: str) -> None:
    """Of 100 limits more than 20 change alike; they are more than there are rooms, or rows."""
    few, less = _of_one_order(FIRST[kind], range(20, 40))
    many, more = _of_one_order(FIRST[kind], range(20, 120))
    assert less >= 50 * 20
    assert more >= 50 * 100
    # The rows of its part are looked through for new ones.
    assert (many - few) / (more - less) <= 60


def _unlike(number: int, kind: str) -> str:
    stream = f"STREAM <urn:s{number // 10}> [RANGE 5s] {{ ?who :at ?room }}"
    name = f"?n{number}"
    return (
        _PREFIX
        + {
            "plain": f"SELECT ?who ?room ({number} AS {name}) {{ {stream} }}",
            "groups": f"SELECT ?who (COUNT(*) AS {name}) {{ {stream} }} GROUP BY ?who",
            "first": f"SELECT ?who ({number} AS {name}) {{ {stream} }} ORDER BY DESC(?who) LIMIT 2",
            "not there": f"SELECT ?who ({number} AS {name}) {{ {stream}"
            f" FILTER NOT EXISTS {{ STREAM <urn:s{number // 10}> [NOW] {{ ?who :in ?x }} }} }}",
        }[kind]
    )


@pytest.mark.parametrize("policy", [PAPER, CQELS])
@pytest.mark.parametrize("kind", ["plain", "groups", "first", "not there"])
def test_cost_follows_the_stream_that_has_an_element(kind: str, policy: Semantics) -> None:
    """Ten queries read it; 0 or 140 read others."""
    found = []
    for count in (10, 150):
        engine = Engine(EngineSettings(semantics=policy))
        for number in range(count):
            engine.register(_unlike(number, kind), _ignore)
        # The other windows are not empty.
        for stream in range(count // 10):
            engine.push(f"<urn:s{stream}>", ("<urn:p0>", "<urn:at>", "<urn:r>"), 1000)
        events = _detections(1100)
        while engine.ticks.until_housekeeping < 60:
            engine.push("<urn:s0>", events[0][1], 1000)
        _push(engine, events[:30], "<urn:s0>")
        found.append(_calls(engine, events[30:50], "<urn:s0>"))
    assert found[0] == found[1]


def test_an_engine_has_few_attributes() -> None:
    """Beyond thirty CPython uses a table: an arrival took 15 % longer."""
    engine = Engine()
    engine.register(_PREFIX + "SELECT ?who { STREAM <urn:s> [NOW] { ?who :at ?room } }")
    (stream,) = engine.streams.values()
    for each in (engine, engine.ticks, stream, *stream.inputs):
        assert len(vars(each)) <= 30


OFFSETS = _PREFIX + (
    "SELECT ?who ?room { STREAM <urn:s> [RANGE 400ms] { ?who :at ?room } }"
    " ORDER BY ?room ?who OFFSET %d LIMIT 2"
)


def test_an_offset_costs_where_its_rows_change() -> None:
    """A larger offset costs nothing."""
    some = range(1, 36)
    few, less = _of_one_order(OFFSETS, range(1, 6))
    many, more = _of_one_order(OFFSETS, [*some, 50])
    all_ = _of_one_order(OFFSETS, [*some, *range(50, 150)])
    assert all_[0] <= many + 200
    assert all_[1] == more
    assert more - less > 1000
    assert (many - few) / (more - less) <= 80


@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize(
    "order", ["LIMIT 5", "OFFSET 4", "ORDER BY ?n LIMIT 5", "ORDER BY ?n OFFSET 4 LIMIT 5"]
)
def test_first_rows_that_leave_first_cost_little_in_a_large_window(
    order: str, queries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2,000 rows the next ones are not looked for again and again."""
    looked_at = 0

    def counting(size: int, rows: Iterable[Any], key: Any = None) -> list[Any]:
        nonlocal looked_at
        rows = list(rows)
        looked_at += len(rows)
        return nsmallest(size, rows, key)

    def taken(rows: Iterable[Any], most: int) -> Iterator[Any]:
        nonlocal looked_at
        for each in islice(rows, most):
            looked_at += 1
            yield each

    def windowed(rows: Iterator[Any], *bounds: Any) -> Any:
        return taken_window(taken(rows, sys.maxsize), *bounds)

    taken_window = client_order.window
    for module in (slices, client_order):
        monkeypatch.setattr(module, "nsmallest", counting)
    monkeypatch.setattr(slices, "islice", taken)
    monkeypatch.setattr(client_order, "window", windowed)
    window = "STREAM <urn:s> [RANGE 2s] { ?who :at ?n }"
    engine = Engine()
    for number in range(queries):
        engine.register(
            f"{_PREFIX} SELECT ?who ?n {{ {window} FILTER(?n > {number}) }} {order}",
            _ignore,
        )
    for at in range(1000, 7000):
        instant = f'"{at}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        engine.push("<urn:s>", (f"<urn:p{at % 7}>", "<urn:at>", instant), at)
    assert looked_at <= 20 * 6000 * queries


def test_rows_of_queries_that_ended_are_forgotten() -> None:
    """Of queries that share an order, also where nobody else sees their rows."""
    engine = Engine()
    window = "STREAM <urn:s> [RANGE 1s] { ?who :at ?n }"

    def registered(least: int) -> RegisteredQuery:
        text = f"{_PREFIX} SELECT ?who {{ {window} FILTER(?n > {least}) }} LIMIT 3"
        return engine.register(text, _ignore)

    at = 0

    def push() -> None:
        nonlocal at
        at += 1
        value = f'"{at % 99 + 100}"^^<http://www.w3.org/2001/XMLSchema#integer>'
        engine.push("<urn:s>", ("<urn:p>", "<urn:at>", value), at)

    kept = []
    for least in (9_000, 9_500, 9_900):
        kept.append(registered(least))
        push()
    for number in range(100):
        query = registered(number)
        for _ in range(10):
            push()
        query.close()
    shared = [each.flow.nodes[-1] for each in engine.ticks.plans.plans]
    held = [len(each._entries) for each in shared if isinstance(each, slices.Slices)]
    assert held
    assert max(held) <= 50
    assert all(each.state == "running" for each in kept)


DUE = {
    "groups": "SELECT ?room (COUNT(*) + %d AS ?n) { STREAM <urn:s> [RANGE 1s] { ?who :at ?room } }"
    " GROUP BY ?room",
    "ranges": "SELECT ?room (COUNT(*) AS ?n) { STREAM <urn:s> [RANGE %dms] { ?who :at ?room } }"
    " GROUP BY ?room",
    "streams": "SELECT ?room (COUNT(*) AS ?n) { STREAM <urn:s%d> [RANGE 1s] { ?who :at ?room } }"
    " GROUP BY ?room",
    "slides": "SELECT ?who (%d AS ?n) { STREAM <urn:s> [RANGE 1s SLIDE 1s] { ?who :at ?room } }",
    "in order": "SELECT ?who (%d AS ?n) { STREAM <urn:s> [RANGE 1s SLIDE 1s] { ?who :at ?room } }"
    " ORDER BY ?who LIMIT 5",
}


@pytest.mark.parametrize("kind", DUE)
def test_to_advance_costs_what_is_due(kind: str) -> None:
    """Ten times as many due queries take ten times as many calls."""
    found = []
    for count in (30, 300):
        engine = Engine(EngineSettings(semantics=PAPER if "SLIDE" in DUE[kind] else PAPER_DSTREAM))
        for number in range(count):
            engine.register(_PREFIX + DUE[kind] % number, _ignore)
        for stream in tuple(engine.streams):
            engine.push(stream, ("<urn:p>", "<urn:at>", "<urn:room>"), 1)
        emitted = _emitted(engine)
        found.append(counted_calls(partial(engine.advance, 5000)))
        assert _emitted(engine) - emitted == count
    few, many = found
    assert many <= 11 * few


AT = "STREAM <urn:s> [RANGE 1h] { ?who :at ?room }"
BEFORE = (
    "SELECT ?mate ?room { STREAM <urn:s> [NOW] { ?mate :at ?room } { SELECT ?room %s } FILTER(%s) }"
)
LATE = {
    "limit": f"SELECT ?who {{ {AT} }} ORDER BY ?room ?who LIMIT %d",
    "limit of groups": f"SELECT ?room (COUNT(*) AS ?n) {{ {AT} }} GROUP BY ?room ORDER BY ?n"
    " LIMIT %d",
    "having": f"SELECT ?room (COUNT(*) AS ?n) {{ {AT} }} GROUP BY ?room HAVING(COUNT(*) > %d)",
    "groups in a sub-query": BEFORE % (f"(COUNT(*) AS ?n) {{ {AT} }} GROUP BY ?room", "?n > %d"),
    "limit in a sub-query": BEFORE
    % (f"?who {{ {AT} }} ORDER BY ?who ?room LIMIT 5", "?who = :p%d"),
}


@pytest.mark.parametrize("policy", [PAPER, CQELS])
@pytest.mark.parametrize("kind", LATE)
def test_a_query_that_comes_late_costs_little(kind: str, policy: Semantics) -> None:
    """Each of them sees other rows of the window; they have one plan beside the first."""
    found = []
    for count in (10, 60):
        engine = Engine(EngineSettings(semantics=policy))
        events = _detections(count + 60)
        for number in range(count):
            engine.register(_PREFIX + LATE[kind] % number, _ignore)
            _push(engine, events[number : number + 1])
        assert len({each.plan for each in engine.queries.values()}) == 2
        found.append(_calls(engine, events[count:]))
    few, many = found
    # A plan of its own took 60 to 130 calls an element.
    assert (many - few) / (50 * 60) <= 65


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?room (COUNT(*) AS ?n) { STREAM <urn:s> [RANGE 1s] { ?who :at ?room } }"
        " GROUP BY ?room HAVING(COUNT(*) > %d)",
        "SELECT ?room (COUNT(*) AS ?n) { STREAM <urn:s> [RANGE %dms] { ?who :at ?room } }"
        " GROUP BY ?room",
        "SELECT ?who { STREAM <urn:s> [RANGE 1s] { ?who :at ?room } } ORDER BY ?room LIMIT %d",
        "SELECT ?mate { STREAM <urn:s> [TRIPLES %d] { ?who :at ?room }"
        " STREAM <urn:s> [RANGE 1s] { ?mate :at ?room } }",
        "SELECT ?who { STREAM <urn:s> [RANGE %dms SLIDE 1s] { ?who :at ?room } FILTER EXISTS"
        " { STREAM <urn:s> [NOW] { ?mate :at ?room } } }",
    ],
)
def test_the_code_of_a_plan_is_compiled_once(text: str) -> None:
    """Also for plans that an element keeps apart."""
    engine = Engine()
    compiled = []
    for number in range(1, 40):
        engine.register(_PREFIX + text % number, _ignore)
        engine.push("<urn:s>", (f"<urn:p{number}>", "<urn:at>", "<urn:room>"), number)
        compiled.append(function_code.cache_info().misses)
    # Some routes change when windows fill.
    assert compiled[-1] <= compiled[9] + 3


@pytest.mark.parametrize("policy", [PAPER, CQELS])
def test_windows_with_a_slide_cost_nothing_while_they_have_nothing(policy: Semantics) -> None:
    text = (
        "SELECT ?room (COUNT(*) AS ?n) { STREAM <urn:s> [RANGE 3s SLIDE 1s]"
        " { ?who <urn:p%d> ?room } } GROUP BY ?room"
    )
    found = []
    for count in (30, 300):
        engine = Engine(EngineSettings(semantics=policy))
        for number in range(count):
            engine.register(text % number, _ignore)
        triple = ("<urn:a>", "<urn:p0>", "<urn:room>")
        for at in range(1, 5_000, 100):
            engine.push("<urn:s>", triple, at)

        found.append(counted_calls(partial(engine.push, "<urn:s>", triple, 5_000)))
        found[-1] += counted_calls(partial(engine.advance, 9_500))
    assert found[0] == found[1]
