"""Random timelines of facts, random queries: at every tick the answer is another engine's.

The engine is pyoxigraph (or the specification, see `tests.support.judges`), over exactly the facts
that a plain model of publication holds valid at the tick. Several queries follow one timeline side
by side, over one client, as they would in one process; each of them is a case.
"""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval, Labelling
from annotations.methods import METHODS
from annotations.terms import DEFAULT_GRAPH, Quad, Term, iri, literal
from tests.support import random_queries
from tests.support.examples import examples
from tests.support.judges import judged
from tests.support.live_server import LiveServer
from tests.support.oracle import Publications
from tests.support.random_sparql import QueryWriter, randoms
from tests.support.timelines import START, Batch, Timeline, Universe, timelines
from tpf_client import AsyncClient, Client
from tpf_client.async_client import AsyncStream, answered_async
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_client.sparql.algebra import Query
from tpf_client.sparql.parser import parse_query
from tpf_client.stream import Stream
from tpf_client.streaming.streamer import Tick

QUERIES = 10
"""How many queries follow a timeline."""

SECOND = timedelta(seconds=1)
UNIVERSE = Universe(
    subjects=random_queries.SUBJECTS,
    # Static and labelled facts under one predicate; what has none yet may get some later.
    static=random_queries.PREDICATES[::2],
    live=random_queries.PREDICATES,
    values=random_queries.SUBJECTS + random_queries.LITERALS[:6],
    graphs=[DEFAULT_GRAPH, DEFAULT_GRAPH, DEFAULT_GRAPH, *random_queries.GRAPHS],
    live_graphs=[DEFAULT_GRAPH, DEFAULT_GRAPH, DEFAULT_GRAPH, *random_queries.GRAPHS],
)

Looks: TypeAlias = Generator[Tick | datetime]
Row: TypeAlias = tuple[str | None, ...]
selects = st.one_of(
    random_queries.queries.filter(lambda query: "ASK {" not in query),
    randoms.map(lambda random: QueryWriter(random, continuous=True).query()),
)
_templates = st.lists(
    st.sampled_from(["?u :p ?v", "?v :q ?u", "?w :r 1", "?u ?v ?w", ":a :p ?w"]),
    min_size=1,
    max_size=3,
    unique=True,
).map(" . ".join)
others = st.one_of(
    random_queries.groups.map(lambda group: f"ASK {{ {group} }}"),
    st.tuples(_templates, random_queries.groups).map(
        lambda parts: f"CONSTRUCT {{ {parts[0]} }} WHERE {{ {parts[1]} }}"
    ),
    st.tuples(random_queries.variables, random_queries.groups).map(
        lambda parts: f"DESCRIBE {parts[0]} :b WHERE {{ {parts[1]} }}"
    ),
).map(lambda text: f"{random_queries.PREFIX} {text}")
texts = st.one_of(selects, selects, selects, others)
drivers = st.sampled_from(["one thread", "threads", "loop"])
page_sizes = st.sampled_from([2, 100])


@dataclass
class Engine:
    """The other engine, over the facts that are valid at an instant."""

    model: Publications
    _answers: dict[str, tuple[list[Quad], Counter[Row]]] = field(default_factory=dict)

    def answer(self, text: str, now: datetime) -> Counter[Row]:
        """The answer to a query at an instant: its solutions, its triples, or the empty one."""
        quads = self.model.valid_at(now)
        known = self._answers.get(text)
        if known is None or known[0] != quads:
            known = self._answers[text] = quads, self._evaluate(text, quads)
        return known[1]

    def _evaluate(self, text: str, quads: list[Quad]) -> Counter[Row]:
        query = parse_query(text)
        if query.form == "DESCRIBE":
            return self._description(query, text, quads)
        found = judged(query, text, quads)
        return Counter([()] * found) if isinstance(found, bool) else found

    def _description(self, query: Query, text: str, quads: list[Quad]) -> Counter[Row]:
        """The triples of all that is described; there are no blank nodes in timelines."""
        select = re.sub("DESCRIBE .*? WHERE", "SELECT * WHERE", text, count=1)
        parsed = parse_query(select)
        rows = judged(parsed, select, quads)
        assert not isinstance(rows, bool)
        wanted: set[str | None] = set(query.described)
        for place, name in enumerate(parsed.variables):
            if name in query.variables:
                wanted |= {row[place] for row in rows}
        said = [quad.triple for quad in quads if quad.graph == DEFAULT_GRAPH]
        return Counter({tuple(triple) for triple in said if triple.subject in wanted})


@dataclass
class Follower:
    """One continuous query, checked at every tick."""

    query: str
    engine: Engine
    steps: Looks
    ticks: int = 0

    def __post_init__(self) -> None:
        self._seen: Counter[tuple[Term | None, ...]] = Counter()

    def advance(self, now: datetime) -> datetime | None:
        """Let it evaluate; when it wants to go on, ``None`` where it has ended."""
        for step in self.steps:
            if isinstance(step, datetime):
                return step
            self.ticks += 1
            self._check(step, now)
        return None

    def _check(self, tick: Tick, now: datetime) -> None:
        assert tick.error is None
        assert not tick.warnings
        assert tick.at == now
        added, removed = Counter(tick.added), Counter(tick.removed)
        assert not added & removed, self.query
        assert not removed - self._seen, self.query
        self._seen = self._seen + added - removed
        assert self._seen == self.engine.answer(self.query, tick.at), self.query
        assert Counter(tick.answer()) == self._seen, self.query


@contextmanager
def serve(
    timeline: Timeline, begin: datetime = START, **options: Any
) -> Iterator[tuple[LiveServer, Publications]]:
    """A server to which the timeline is published as its clock goes on, from `begin`."""
    model = Publications(timeline.static)
    with tempfile.TemporaryDirectory() as folder:
        server = LiveServer(Path(folder), timeline.static, **{"max_age": 1.0, **options})
        server.clock.advance_to(begin)

        def publish(at: datetime, facts: list[Any]) -> None:
            server.clock.schedule(at, lambda: (server.publish(facts), model.publish(facts, at)))

        for at, facts in timeline.batches:
            publish(at, facts)
        server.clock.advance_to(begin)
        try:
            yield server, model
        finally:
            server.close()


def _looks(stream: Stream | AsyncStream, loop: asyncio.AbstractEventLoop) -> Looks:
    """What a stream yields, by whatever drives it."""
    streamer = stream.streamer
    if isinstance(stream, Stream):
        yield from streamer.looks()
        return
    looks: AsyncGenerator[Tick | datetime] = answered_async(streamer.steps(), streamer.driver)
    try:
        while True:
            try:
                yield loop.run_until_complete(anext(looks))
            except StopAsyncIteration:
                return
    finally:
        loop.run_until_complete(looks.aclose())


@contextmanager
def _client(
    driver: str, server: LiveServer, view: str
) -> Iterator[tuple[Client | AsyncClient, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    url, session = f"{server.url}/{view}", server.session()
    if driver == "loop":
        client = AsyncClient(url, session=session, clock=server.clock)
        yield client, loop
        loop.run_until_complete(client.aclose())
    else:
        threads = 4 if driver == "threads" else 0
        with Client(url, session=session, clock=server.clock, parallelism=threads) as waiting:
            yield waiting, loop
    loop.close()


def _follow(server: LiveServer, view: str, model: Publications, queries: list[str],
            until: datetime, driver: str) -> int:  # fmt: skip
    """Let queries run beside each other until an instant; how many of the texts are queries."""
    engine = Engine(model)
    followers = []
    with _client(driver, server, view) as (client, loop):
        for query in queries:
            try:
                stream = client.stream(
                    query, every=1, static_recheck=0, keep_checking=1, quiet=True, until=until
                )
            except (QuerySyntaxError, UnsupportedQueryError):
                # Random texts may bind a variable twice, or BIND what EXISTS would substitute.
                continue
            followers.append(Follower(query, engine, _looks(stream, loop)))
        now = server.clock.now()
        while True:
            wakes = [follower.advance(now) for follower in followers]
            if now >= until or not wakes:
                break
            now += SECOND
            assert wakes == [now] * len(wakes)
            server.clock.advance_to(now)
        for follower in followers:
            follower.steps.close()
    assert all(follower.ticks == 1 + (until - START) / SECOND for follower in followers)
    return len(followers)


def with_always(timeline: Timeline) -> Timeline:
    """With the quad that random queries presuppose: static, so that it cannot be labelled, too."""
    always = random_queries.ALWAYS
    batches = [
        Batch(at, [fact for fact in facts if fact.quad != always]) for at, facts in timeline.batches
    ]
    return replace(timeline, static=[*dict.fromkeys([*timeline.static, always])], batches=batches)


def _play(timeline: Timeline, view: str, queries: list[str], driver: str, **options: Any) -> None:
    timeline = with_always(timeline)
    with serve(timeline, **options) as (server, model):
        until = min(timeline.instants()[-1], START + 12 * SECOND)
        _follow(server, view, model, queries, until, driver)


labellings: st.SearchStrategy[Literal["expiration", "interval", "mixed"]] = st.sampled_from(
    ["expiration", "interval", "mixed"]
)


@examples(24, shrink=False)
@given(
    timeline=labellings.flatmap(lambda each: timelines(each, max_batches=5, universe=UNIVERSE)),
    queries=st.lists(texts, min_size=QUERIES, max_size=QUERIES),
    view=st.sampled_from(["plain", *(method.name for method in METHODS)]),
    page_size=page_sizes,
    driver=drivers,
)
def test_every_answer_by_labels_in_the_pages_is_right(
    timeline: Timeline, queries: list[str], view: str, page_size: int,
    driver: str,
) -> None:  # fmt: skip
    _play(timeline, view, queries, driver, page_size=page_size)


@pytest.mark.parametrize("method", [method.name for method in METHODS])
@examples(2, shrink=False)
@given(
    data=st.data(),
    labelling=st.sampled_from(["interval", "expiration"]),
    queries=st.lists(texts, min_size=QUERIES, max_size=QUERIES),
    page_size=page_sizes,
    driver=drivers,
)
def test_every_answer_by_rewriting_is_right(
    method: str, data: st.DataObject, labelling: Labelling, queries: list[str], page_size: int,
    driver: str,
) -> None:  # fmt: skip
    timeline = data.draw(timelines(labelling, max_batches=5, universe=UNIVERSE))
    _play(timeline, method, queries, driver, page_size=page_size, page_labels=False)


# ------------------------------------------- evaluated when something changes: right all the time
#
# No period is given (`every`), and instants are no whole seconds. What a server knows beforehand
# (that labels end, that facts begin) is seen at that instant; a publication is seen when the pages
# that were looked at stop being fresh.


SIDE_BY_SIDE = 4
UNIT = timedelta(seconds=0.73)
FLOOR = timedelta(seconds=0.1)
"""Evaluations of one stream lie at least so far apart."""
FRESH = timedelta(seconds=1)
VIEWS = [("plain", True), *((method.name, False) for method in METHODS)]


@dataclass
class Held:
    """One stream, and the answer that it holds."""

    query: str
    engine: Engine
    steps: Generator[Tick | datetime]
    wakes: datetime | None = START
    at: datetime = START
    evaluations: int = 0
    rows: Counter[Row] = field(default_factory=Counter)

    def advance(self) -> None:
        """Let it evaluate."""
        for step in self.steps:
            if isinstance(step, datetime):
                self.wakes = step
                return
            assert step.error is None
            assert step.at >= self.at
            # It comes forward, whatever a server says.
            assert step.wakes_at is None or step.wakes_at >= step.at + FLOOR
            self.at = step.at
            self.evaluations += 1
            self.rows = self.rows + Counter(step.added) - Counter(step.removed)
            assert Counter(step.answer()) == self.rows
        self.wakes = None

    def check(self, now: datetime) -> None:
        """What it holds is the answer."""
        expected = self.engine.answer(self.query, now)
        assert self.rows == expected, (self.query, now, self.at)


def play(timeline: Timeline, view: str, queries: list[str], **options: Any) -> int:
    """Let queries run until some time after the last event; how many of the texts are queries."""
    timeline = with_always(timeline)
    published = [START, *(at for at, _ in timeline.batches)]
    instants = timeline.instants()
    until = min(instants[-1], START + timedelta(seconds=12)) + 2 * FRESH
    # Just after what is known beforehand has happened, and just before the next.
    checks = {each + FLOOR for each in instants} | {each - FLOOR / 1000 for each in instants}
    with serve(timeline, **options) as (server, model):
        engine = Engine(model)
        held = []
        with server.client(f"/{view}") as client:
            for query in queries:
                try:
                    stream = client.stream(
                        query, static_recheck=0, keep_checking=1, quiet=True, until=until
                    )
                except (QuerySyntaxError, UnsupportedQueryError):
                    continue
                held.append(Held(query, engine, stream.streamer.looks()))
            while server.clock.now() < until and held:
                now = server.clock.now()
                for each in held:
                    if each.wakes is not None and each.wakes <= now:
                        each.advance()
                        if all(at + FRESH + FLOOR <= now for at in published if at <= now):
                            each.check(now)
                wakes = [each.wakes for each in held if each.wakes is not None]
                following = min([until, *wakes, *(check for check in checks if check > now)])
                server.clock.advance_to(following)
                last = max(at for at in published if at <= following)
                for each in held:
                    awake = each.wakes is not None and each.wakes <= following
                    if following in checks and last + FRESH + FLOOR <= each.at and not awake:
                        each.check(following)
        seconds = (until - START).total_seconds()
        assert all(each.evaluations <= 3 * seconds + 3 * len(instants) for each in held)
    return len(held)


@examples(10, shrink=False)
@given(
    data=st.data(),
    queries=st.lists(selects, min_size=SIDE_BY_SIDE, max_size=SIDE_BY_SIDE),
    view=st.sampled_from([VIEWS[0], *VIEWS]),
    page_size=st.sampled_from([2, 100]),
)
def test_what_a_stream_holds_is_right_all_the_time(
    data: st.DataObject, queries: list[str], view: tuple[str, bool], page_size: int
) -> None:
    labelling = data.draw(labellings)
    timeline = data.draw(timelines(labelling, max_batches=4, universe=UNIVERSE, unit=UNIT))
    name, page_labels = view
    play(timeline, name, queries, page_size=page_size, page_labels=page_labels)


BLANK = Term("_:b")
SAYS, KNOWS = iri("http://e/says"), iri("http://e/knows")


@pytest.mark.parametrize("view", VIEWS, ids=[name for name, _ in VIEWS])
def test_blank_nodes_are_asked_for_by_their_iris(tmp_path: Path, view: tuple[str, bool]) -> None:
    """Also where they are inside of a triple term: that of RDF 1.2, and that of a fact."""
    name, page_labels = view
    inside = Term(f"<<( {BLANK} {KNOWS} <http://e/b> )>>")
    server = LiveServer(tmp_path, [], page_labels=page_labels)
    until = START + timedelta(minutes=1)
    server.clock.advance_to(START)
    server.publish(
        [
            Fact(Quad(BLANK, SAYS, literal("x")), Expiration(until)),
            Fact(Quad(BLANK, KNOWS, iri("http://e/b")), Interval(START, until)),
            Fact(Quad(iri("http://e/c"), SAYS, inside), Expiration(until)),
        ]
    )
    query = f"SELECT ?x {{ ?s {KNOWS} ?o . ?s {SAYS} ?x }}"
    with server.client(f"/{name}") as client:
        update = next(iter(client.stream(query)))
        assert [str(each["x"]) for each in update.results] == ["x"]
        update = next(iter(client.stream(f"SELECT * {{ ?s {SAYS} ?x FILTER isIRI(?s) }}")))
        assert len(update.results) == 1
    server.close()


def test_what_begins_between_two_seconds_is_seen_then(tmp_path: Path) -> None:
    with LiveServer(tmp_path, [], page_labels=True) as server, server.client() as client:
        server.clock.advance_to(START)
        begins = START + timedelta(seconds=2.7)
        ends = begins + timedelta(seconds=0.55)
        server.publish([Fact(Quad(iri("http://e/a"), SAYS, literal("x")), Interval(begins, ends))])
        updates = client.stream(f"SELECT * {{ ?s {SAYS} ?o }}", until=ends)
        seen = [(update.at, len(update.results)) for update in updates]
    assert seen == [(START, 0), (begins, 1), (ends, 0)]
