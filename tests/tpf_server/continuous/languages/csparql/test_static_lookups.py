"""Static triples looked up by keys: reads, and exact changes."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import cast

import pytest
from hypothesis import given

from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.csparql_reference import Clause, Reference, solutions
from tests.support.examples import examples
from tests.support.random_continuous_queries import RANDOM
from tests.support.static_graphs import CountingGraph, HeldStore
from tests.tpf_server.continuous import test_side_by_side
from tests.tpf_server.continuous.languages.csparql import (
    test_against_reference,
    test_declared_predicates,
    test_sharing,
)
from tpf_server.continuous.continuous_engine import Engine, EngineSettings, InstantSettings
from tpf_server.continuous.runtime import forgetting
from tpf_server.continuous.runtime.delivery import Emission
from tpf_server.continuous.runtime.instants import builder
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.rules import RULES
from tpf_server.continuous.runtime.semantics import PAPER
from tpf_server.continuous.runtime.static import static_rows
from tpf_server.continuous.runtime.static.static_data import StoreGraph
from tpf_server.continuous.runtime.static.static_rows import Preparation
from tpf_server.store.static.columnar import ColumnarStore

WINDOW = "FROM STREAM <urn:s> [RANGE 2s STEP 1s]"
Triple = tuple[str, str, str]


@pytest.fixture(autouse=True)
def many_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make lookups by streams as small as those by static rows."""
    monkeypatch.setattr(builder, "_MANY", builder._FEW)


# ------------------------------------------------------------------------------- what is read


def counting(triples: Sequence[Triple]) -> tuple[Engine, CountingGraph]:
    """An engine over triples, and the graph that they are in."""
    graph = CountingGraph()
    graph.add((Term(s), Term(p), Term(o)) for s, p, o in triples)
    engine = Engine()
    engine.attach(graph)
    return engine, graph


def papers(people: int) -> list[Triple]:
    """Each paper is by two people who follow each other."""
    return [
        triple
        for n in range(people)
        for triple in (
            (f"<urn:paper{n}>", "<urn:by>", f"<urn:person{n}>"),
            (f"<urn:paper{n}>", "<urn:by>", f"<urn:person{(n + 1) % people}>"),
            (f"<urn:person{n}>", "<urn:name>", f'"{n}"'),
        )
    ]


@pytest.mark.parametrize("declared", [True, False])
def test_a_query_reads_what_its_constants_lead_to(declared: bool) -> None:
    """However many static triples there are."""
    found = []
    for people in (3_000, 9_000):
        engine, graph = counting(papers(people))
        if declared:
            engine.declare("urn:s", ["urn:at"])
        query = engine.register_csparql(
            f"SELECT ?name {WINDOW} {{ ?a <urn:at> ?x . ?paper <urn:by> ?a . ?paper <urn:by> ?b ."
            ' ?a <urn:name> "7" . ?b <urn:name> ?name FILTER(?a != ?b) }'
        )
        read = [graph.read]
        for second, person in enumerate([7, 8, 7]):
            engine.push("urn:s", (f"<urn:person{person}>", "<urn:at>", "<urn:x>"), 1000 * second)
            read.append(graph.read)
        engine.advance(3000)
        read.append(graph.read)
        assert [sorted(each.rows) for each in query] == [[('"6"',), ('"8"',)]] * 4
        found.append(read)
    assert found[0] == found[1]
    assert max(found[0]) < 60


def test_each_key_is_looked_up_once_and_let_go_of_when_nobody_has_it() -> None:
    engine, graph = counting([(f"<urn:b{n}>", "<urn:in>", f"<urn:c{n}>") for n in range(20_000)])
    seen = []
    engine.register_csparql(
        f"SELECT * {WINDOW} {{ ?a <urn:at> ?b . ?b <urn:in> ?c }}",
        lambda answer: seen.append(len(answer.rows)),
    )
    engine.push("urn:s", ("<urn:a>", "<urn:at>", "<urn:none>"), 0)
    begun = graph.read
    assert begun < 20
    for n in range(100):
        engine.push("urn:s", ("<urn:a>", "<urn:at>", f"<urn:b{n % 50}>"), 1000 + n)
    engine.advance(2000)
    assert seen[-1] == graph.read - begun == 50
    for n in range(20_000):
        engine.push("urn:s", ("<urn:a>", "<urn:at>", f"<urn:b{n}>"), 3000 + 100 * n)
    engine.advance(2_010_000)
    assert max(seen) == 50
    assert graph.read - begun <= 50 + 20_000
    (rows,) = [each for each in engine.instants._shared_rows if each._indexes]
    (index,) = rows._indexes.values()
    assert len(index) < static_rows._LEAST
    # Of 40,000 terms that came.
    assert len(engine.dictionary) < 26_000


def test_where_most_keys_are_needed_all_triples_are_read() -> None:
    """For the price of a few readings."""
    engine, graph = counting([(f"<urn:b{n}>", "<urn:in>", f"<urn:c{n}>") for n in range(8000)])
    query = engine.register_csparql(f"SELECT * {WINDOW} {{ ?a <urn:at> ?b . ?b <urn:in> ?c }}")
    for n in range(8000):
        engine.push("urn:s", ("<urn:a>", "<urn:at>", f"<urn:b{n}>"), 500)
    engine.advance(1000)
    assert [len(each.rows) for each in query] == [8000]
    assert graph.read < 2 * 8000
    before = graph.read
    for n in range(8000):
        engine.push("urn:s", ("<urn:a>", "<urn:at>", f"<urn:c{n}>"), 1500)
    engine.advance(2000)
    assert graph.read == before


def test_a_static_part_that_needs_everything_reads_each_triple_once() -> None:
    engine, graph = counting(papers(3_000))
    engine.declare("urn:s", ["urn:at"])
    query = engine.register_csparql(
        f"SELECT ?name {WINDOW} {{ ?a <urn:at> ?x . ?paper <urn:by> ?a . ?paper <urn:by> ?b ."
        " ?b <urn:name> ?name }"
    )
    # And one more for each pattern of which it is asked whether there is any.
    assert graph.read < 3 * 3_000 + 20
    engine.push("urn:s", ("<urn:person7>", "<urn:at>", "<urn:x>"), 0)
    engine.advance(0)
    assert [len(each.rows) for each in query] == [4]


class Failing(CountingGraph):
    """Cannot be read after so many more questions."""

    left = 1_000_000

    def match(
        self, subject: Term | None, predicate: Term | None, object_: Term | None
    ) -> Iterator[tuple[Term, Term, Term]]:
        self.left -= 1
        if self.left < 0:
            raise OSError("gone")
        return super().match(subject, predicate, object_)


def test_a_registration_that_fails_leaves_nothing_behind() -> None:
    graph = Failing()
    graph.add((Term(s), Term(p), Term(o)) for s, p, o in papers(3_000))
    engine = Engine()
    engine.attach(graph)
    engine.declare("urn:s", ["urn:at"])
    text = (
        f"SELECT ?name {WINDOW} {{ ?a <urn:at> ?x . ?paper <urn:by> ?a . ?paper <urn:by> ?b ."
        ' ?a <urn:name> "7" . ?b <urn:name> ?name }'
    )
    for questions in range(1000):
        graph.left = questions
        try:
            query = engine.register_csparql(text)
        except OSError:
            assert len(engine.instants._shared_rows) == 0
        else:
            break
    assert questions > 3
    graph.left = 1_000_000
    engine.push("urn:s", ("<urn:person7>", "<urn:at>", "<urn:x>"), 0)
    engine.advance(0)
    assert [len(each.rows) for each in query] == [4]


def test_queries_share_what_was_looked_up() -> None:
    engine, graph = counting([(f"<urn:b{n}>", "<urn:in>", f"<urn:c{n}>") for n in range(3000)])
    queries = [
        engine.register_csparql(
            f"SELECT * FROM STREAM <urn:s> [RANGE {seconds}s STEP 1s]"
            " { ?a <urn:at> ?b . ?b <urn:in> ?c }"
        )
        for seconds in range(2, 12)
    ]
    engine.push("urn:s", ("<urn:a>", "<urn:at>", "<urn:none>"), 0)
    read = graph.read
    engine.push("urn:s", ("<urn:a>", "<urn:at>", "<urn:b7>"), 1000)
    engine.advance(1000)
    assert graph.read == read + 1
    assert [[len(each.rows) for each in query] for query in queries] == [[0, 1]] * 10


# -------------------------------------------------------------------------------- what changes


NODES = [f"<urn:n{number}>" for number in range(5)]
PATTERNS = (
    "?a <urn:p> ?b . ?b <urn:near> ?c",
    "?a <urn:p> ?b . ?b <urn:near> ?c . ?c <urn:near> ?d",
    "?a <urn:p> ?b . ?b <urn:near> ?c . ?c <urn:kind> ?d . ?d <urn:near> ?b",
    "?a <urn:p> ?b . ?b <urn:near> ?a",
    "?a <urn:p> ?b . ?b <urn:near> ?b",
    "?a <urn:p> ?b . ?c <urn:near> ?b . ?c <urn:kind> <urn:n1>",
    "?a <urn:p> ?b . ?a <urn:near> ?c . ?b <urn:near> ?c",
    "?a <urn:p> ?b . ?b ?q ?c . ?c ?q ?d",
    "?a <urn:p> ?b . ?b ?a ?c",
    "?a <urn:near> ?b . ?b <urn:near> ?c . ?c <urn:kind> ?d",
    "?a <urn:p> ?b OPTIONAL { ?b <urn:near> ?c . ?c <urn:kind> ?d }",
    "?a <urn:p> ?b FILTER NOT EXISTS { ?b <urn:near> ?a }",
    "?a <urn:p> ?b FILTER EXISTS { ?b <urn:near> ?c . ?c <urn:near> ?b }",
    "?a <urn:p> ?b . GRAPH <urn:g> { ?b <urn:near> ?c }",
    "{ ?a <urn:p> ?b . ?b <urn:near> ?c } UNION { ?a <urn:near> ?b . ?b <urn:p> ?c }",
)


def random_triple(random: Random, predicates: Sequence[str]) -> Triple:
    objects = [*NODES, '"1"^^<http://www.w3.org/2001/XMLSchema#integer>', '"01"@en']
    return random.choice(NODES), f"<urn:{random.choice(predicates)}>", random.choice(objects)


def random_static(random: Random) -> Triple:
    return random_triple(random, ["near", "near", "kind", "n1"])


class Beside:
    """A query, and what it must answer."""

    def __init__(self, engine: Engine, random: Random, static: str) -> None:
        clause = Clause("urn:s", random.randint(1, 4), 1)
        self.pattern = random.choice(PATTERNS)
        self.reference = Reference(f"SELECT * WHERE {{ {self.pattern} }}", [clause], static)
        self.found: list[PeriodicAnswer] = []
        text = f"SELECT * {clause} WHERE {{ {self.pattern} }}"
        self.query = engine.register_csparql(text, self.found.append)

    def check(self, at: int) -> None:
        assert self.query.error is None
        assert [each.at for each in self.found] == [at] * bool(self.reference.elements)
        for answer in self.found:
            found = solutions(answer.variables, answer.rows)
            assert found == self.reference.judged(at), (at, self.pattern)
        self.found.clear()


class Changing:
    """An engine, whose static data change in all ways, beside recomputation."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._engine = Engine(
            instants=InstantSettings(
                rules=random.choice([(), RULES]),
            )
        )
        self._memory: dict[str, set[Triple]] = {"": set(), "urn:g": set()}
        self._stored: list[Triple] = []
        self._version = 0
        self._running: list[Beside] = []

    def run(self) -> None:
        random = self._random
        for _ in range(random.randint(0, 12)):
            self._change_memory()
        for at in range(1, random.randint(4, 14)):
            for _ in range(random.randint(0, 2)):
                self._event()
            if random.random() < 0.7:
                self._push(at)
            if random.random() < 0.3:
                self._event()
            self._engine.advance(at)
            for each in self._running:
                each.check(at)
        for each in self._running:
            each.query.close()
        assert len(self._engine.instants._shared_rows) == 0

    def _event(self) -> None:
        random = self._random
        match random.randrange(9):
            case 0 | 1 if len(self._running) < 4:
                self._running.append(Beside(self._engine, random, self._static()))
            case 2 if self._running and random.random() < 0.3:
                self._running.pop(random.randrange(len(self._running))).query.close()
            case 3 | 4:
                self._change_memory()
            case 5:
                self._change_unseen()
            case 6 | 7:
                self._exchange()
            case _:
                self._engine.sweep()
        for each in self._running:
            each.reference.restate(self._static())

    def _push(self, at: int) -> None:
        triples = {
            random_triple(self._random, ["p", "p", "p", "near", "n1"])
            for _ in range(self._random.randint(1, 4))
        }
        self._engine.push("urn:s", [*triples], at)
        for each in self._running:
            each.reference.push("urn:s", at, triples)

    def _static(self) -> str:
        lines = [
            f"{' '.join(triple)} {name and f'<{name}>'} ."
            for name, triples in self._memory.items()
            for triple in triples
        ]
        return "\n".join([*lines, *(f"{' '.join(triple)} ." for triple in self._stored)])

    def _change_memory(self) -> None:
        """Add or remove some triples, present or not."""
        name = self._random.choice(["", "", "urn:g"])
        triples = {random_static(self._random) for _ in range(self._random.randint(1, 3))}
        if self._random.random() < 0.5:
            self._memory[name] |= triples
            self._engine.add([*triples], name or None)
        else:
            triples |= {
                *self._random.sample(sorted(self._memory[name]), len(self._memory[name]) // 2)
            }
            self._memory[name] -= triples
            self._engine.remove([*triples], name or None)

    def _change_unseen(self) -> None:
        """Anything may have changed."""
        graph = self._engine.static.memory(DEFAULT_GRAPH)
        graph.remove(list(graph.match(None, None, None)))
        self._memory[""] = {random_static(self._random) for _ in range(6)}
        graph.add((Term(s), Term(p), Term(o)) for s, p, o in self._memory[""])
        self._engine.static.changed(DEFAULT_GRAPH)

    def _exchange(self) -> None:
        """Exchange a store, prepared or not."""
        static = self._engine.static
        self._version += 1
        stored = [random_static(self._random) for _ in range(self._random.randint(0, 8))]
        quads = [Quad(*map(Term, each)) for each in stored]
        store = cast("ColumnarStore", HeldStore(str(self._version), quads))
        graphs = {DEFAULT_GRAPH: [StoreGraph(store)]}
        prepared = None
        how = self._random.randrange(3)
        if how:
            prepared = Preparation(static.copy(), static.with_stores(graphs))
            if how > 1:
                static.ask(graphs, prepared)
            prepared.run()
        static.exchange(graphs, prepared)
        self._stored = stored


LOOKED_UP = [(-1, 0, 0), (-1, 0, 4), (-1, 8, 1), (-1, 1000, 4), (3, 4, 2)]
"""What is small, what stays, and what a look-up costs."""


def looking_up(patch: pytest.MonkeyPatch, small: int, least: int, cost: int) -> None:
    """Let triples be looked up also where they are few."""
    patch.setattr(builder, "_FEW", small)
    patch.setattr(builder, "_MANY", small)
    patch.setattr(builder, "LOOKUP_COST", 0)
    patch.setattr(static_rows, "_LEAST", least)
    patch.setattr(static_rows, "LOOKUP_COST", cost)


@examples(30)
@given(RANDOM)
def test_changes_are_seen_of_keys_that_were_looked_up_and_of_others(random: Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        looking_up(patch, *random.choice(LOOKED_UP))
        if random.random() < 0.5:
            # Terms are forgotten as often as can be.
            patch.setattr(forgetting, "_LEAST", 0)
            patch.setattr(forgetting, "_SHARE", 10**9)
        Changing(random).run()


@pytest.mark.parametrize(
    "test",
    [
        test_against_reference.test_every_answer_is_that_of_a_recomputation,
        test_against_reference.test_patterns_of_any_shape,
        test_against_reference.test_timestamps_are_the_latest_of_a_triple,
        test_declared_predicates.test_declared_and_unseparated_plans_answer_alike,
        test_sharing.test_queries_that_come_and_go_answer_as_each_alone,
        test_side_by_side.test_queries_of_both_languages_answer_as_in_engines_apart,
    ],
)
def test_any_query_answers_alike_where_all_is_looked_up(
    test: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking_up(monkeypatch, -1, 2, 1)
    assert callable(test)
    test()


def test_what_a_change_makes_one_engine_emit_meets_the_change_in_the_other() -> None:
    engine = Engine(EngineSettings(semantics=PAPER))
    engine.add([(f"<urn:b{n}>", "<urn:in>", "<urn:old>") for n in range(3000)])
    query = engine.register_csparql(f"SELECT ?c {WINDOW} {{ ?a <urn:at> ?b . ?b <urn:in> ?c }}")
    engine.push("urn:s", ("<urn:a>", "<urn:at>", "<urn:b1>"), 500)
    engine.advance(1000)

    def take(emission: Emission) -> None:
        if ("<urn:new>",) in emission.rows:
            engine.push("urn:s", ("<urn:a>", "<urn:at>", "<urn:b2>"), 1500)
            engine.advance(2000)

    engine.register("SELECT ?c { STREAM <urn:t> [ALL] { ?a <urn:at> ?b } ?b <urn:in> ?c }", take)
    engine.push("urn:t", ("<urn:a>", "<urn:at>", "<urn:b9>"), 1001)
    engine.add([(f"<urn:b{n}>", "<urn:in>", "<urn:new>") for n in (1, 2, 9)])
    old, new = ("<urn:old>",), ("<urn:new>",)
    assert [sorted(each.rows) for each in query] == [[old], [new, new, old, old]]


def test_terms_that_no_graph_can_hold_are_in_none() -> None:
    """Streams may have them, and they are looked up like others."""
    engine, _ = counting([(f"<urn:b{n}>", "<urn:in>", f"<urn:c{n}>") for n in range(3000)])
    query = engine.register_csparql(f"SELECT ?b {WINDOW} {{ ?a <urn:at> ?b . ?b <urn:in> ?c }}")
    odd = ["<urn:a[b>", "<urn:%zz>", '"text"', "_:x", "<<( <urn:b1> <urn:in> <urn:c1> )>>"]
    for term in [*odd, "<urn:b7>"]:
        engine.push("urn:s", ("<urn:a>", "<urn:at>", term), 500)
    engine.advance(1000)
    assert [each.rows for each in query] == [(("<urn:b7>",),)]
