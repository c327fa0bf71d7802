import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from annotations.instants import from_micros, instant_of_term, to_micros
from annotations.labels import Expiration, Fact, Interval, Label
from annotations.namespaces import (
    ACTIVITY,
    DCTERMS,
    DEFAULT_VOCABULARY,
    LDES,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_SUBJECT,
    RDF_TYPE,
    RDFS,
    TREE,
)
from annotations.terms import Quad, Term
from tests.support.counted_calls import counted_calls
from tests.support.served import BASE, NOON, Served, parse, quad
from tests.support.stores import standing
from tpf_server.errors import PublishError
from tpf_server.store.live import index, log, sqlite_log, store
from tpf_server.store.live.log import LiveSettings, Record
from tpf_server.store.live.store import LiveStore
from tpf_server.store.protocols import FactEvent
from tpf_server.web import event_stream

HOUR = timedelta(hours=1)
NODE = Term(f"<{TREE}node>")
MEMBER = Term(f"<{TREE}member>")
DELETE = Term(f"<{ACTIVITY}Delete>")
CREATED = Term(f"<{DCTERMS}created>")
VERSION_OF = Term(f"<{DCTERMS}isVersionOf>")
tmp = DEFAULT_VOCABULARY


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of a few batches, so that there are many."""
    monkeypatch.setattr(event_stream, "LEAF", 4)
    monkeypatch.setattr(event_stream, "BLOCK", 3)
    monkeypatch.setattr(event_stream, "MEMBERS", 5)


def streaming(path: Path, **keeping: timedelta) -> Served:
    settings = LiveSettings(keep_events=HOUR, **keeping)  # type: ignore[arg-type]
    return Served(path, dataset={"event_stream": 3600.0}, keeping=settings)


class Node:
    """A node, by subject and predicate."""

    def __init__(self, served: Served, url: str) -> None:
        self.url = url
        self.response = served.get(url.removeprefix(BASE), "application/n-quads")
        assert self.response.status_code == 200, self.response.text
        self.rows = parse(self.response.content, "application/n-quads")
        self.said: dict[Term, dict[Term, list[Term]]] = {}
        for row in self.rows:
            self.said.setdefault(row.subject, {}).setdefault(row.predicate, []).append(row.object)

    @property
    def full(self) -> bool:
        return "immutable" in self.response.headers["Cache-Control"]

    @property
    def members(self) -> dict[Term, dict[Term, list[Term]]]:
        names = [row.object for row in self.rows if row.predicate == MEMBER]
        assert len(names) == len(set(names))
        return {name: self.said[name] for name in names}

    @property
    def following(self) -> list[str]:
        found = [each[NODE][0][1:-1] for each in self.said.values() if NODE in each]
        return list(dict.fromkeys(found))


def nodes(served: Served) -> Iterator[Node]:
    """All nodes, first those that come first."""
    waiting = [f"{BASE}trains/ldes"]
    while waiting:
        node = Node(served, waiting.pop(0))
        waiting = node.following + waiting
        yield node


def label_of(said: dict[Term, list[Term]]) -> Label:
    if tmp.expiration in said:
        return Expiration(instant_of_term(said[tmp.expiration][0]))
    return Interval(instant_of_term(said[tmp.initial][0]), instant_of_term(said[tmp.final][0]))


def materialized(served: Served) -> set[Fact]:
    """Return the newest version of every fact: the state of a follower."""
    newest: dict[Term, Fact | None] = {}
    before: datetime | None = None
    for node in nodes(served):
        for said in node.members.values():
            (name,), (created,) = said[VERSION_OF], map(instant_of_term, said[CREATED])
            assert before is None or before <= created
            before = created
            parts = [said[part][0] for part in (RDF_SUBJECT, RDF_PREDICATE, RDF_OBJECT)]
            row = Quad(*parts, *said.get(tmp.graph, ()))
            newest[name] = None if DELETE in said[RDF_TYPE] else Fact(row, label_of(said))
    return {fact for fact in newest.values() if fact is not None}


@pytest.mark.parametrize("seed", range(8))
def test_the_newest_versions_are_what_stands_and_full_nodes_stay(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    # Whatever has ended stays in the store for as long as this takes.
    with streaming(tmp_path, retention=HOUR) as served:
        live, clock = served.live, served.clock
        assert live is not None
        kept: dict[str, bytes] = {}

        def some(label: bool = True) -> Fact:
            graph = chance.choice([[], ["g"]])
            row = quad("a", chance.choice("pq"), chance.choice("xyz"), *graph)
            start = clock.now() + timedelta(seconds=chance.randrange(-20, 30))
            end = max(start, clock.now()) + timedelta(seconds=chance.randrange(1, 40))
            interval = chance.random() < 0.6
            said = Interval(start, end) if interval else Expiration(end)
            return Fact(row, said if label else None)

        for _ in range(45):
            facts = [some() for _ in range(chance.randrange(4))]
            gone = [some(label=chance.random() < 0.5) for _ in range(chance.randrange(2))]
            gone = [each for each in gone if not isinstance(each.label, Expiration)]
            try:
                live.publish(facts, clock.now(), withdrawn=gone)
            except PublishError:
                continue
            clock.advance_to(clock.now() + timedelta(seconds=chance.randrange(3)))
            if chance.random() < 0.2:
                for node in nodes(served):
                    if node.full:
                        content = node.response.content
                        assert kept.setdefault(node.url, content) == content
        assert kept
        found = materialized(served)
        held = {
            (
                row,
                log.NO_START if said.start is None else to_micros(said.start),
                to_micros(said.end),
            )
            for row, said in found
            if said
        }
        assert held == standing(live)


def test_a_withdrawal_and_a_correction_are_told_as_such(tmp_path: Path) -> None:
    with streaming(tmp_path) as served:
        live = served.live
        assert live is not None
        row = quad("a", "p", "x")
        live.publish([Fact(row, Interval(NOON, NOON + HOUR))], NOON)
        live.publish([Fact(row, Interval(NOON, NOON + HOUR / 2))], NOON)
        live.publish([], NOON, withdrawn=[Fact(row, Interval(NOON, NOON + HOUR))])
        members = list(Node(served, f"{BASE}trains/ldes?page=0").members.values())
        assert len({each[VERSION_OF][0] for each in members}) == 1
        assert [DELETE in each[RDF_TYPE] for each in members] == [False, False, True]
        assert members[1][tmp.final] == members[2][tmp.final] != members[0][tmp.final]
        # Its name leads to what is said of it.
        name = members[0][VERSION_OF][0][1:-1]
        assert served.get(name.removeprefix(BASE)).status_code == 303


def test_the_stream_says_what_it_is(tmp_path: Path) -> None:
    with streaming(tmp_path) as served:
        root = Node(served, f"{BASE}trains/ldes")
        assert root.following == []
        assert not root.full
        said = root.said[Term(f"<{BASE}trains/ldes#stream>")]
        names = {
            name: said[Term(f"<{LDES}{name}>")][0] for name in ("timestampPath", "versionOfPath")
        }
        assert names == {"timestampPath": CREATED, "versionOfPath": VERSION_OF}
        retention = root.said[Term(f"<{BASE}trains/ldes>")][Term(f"<{LDES}retentionPolicy>")][0]
        (duration,) = root.said[retention][Term(f"<{LDES}fullLogDuration>")]
        assert duration.startswith('"PT3600S"')
        page = served.page("trains")
        assert page.objects(f"{RDFS}seeAlso") == [f"{BASE}trains/ldes"]
        catalog = parse(served.get("", "text/turtle").content, "text/turtle")
        assert any(row.object == f"<{LDES}EventStream>" for row in catalog)


def test_members_have_the_shape_that_the_stream_names(tmp_path: Path) -> None:
    shacl = "http://www.w3.org/ns/shacl#"
    with streaming(tmp_path) as served:
        for number in range(7):
            served.publish((quad("a", "p", str(number)), Expiration(NOON + HOUR)))
        root, *others = nodes(served)
        paths = [each for each in root.said.values() if Term(f"<{shacl}path>") in each]
        assert len(paths) == 2
        members = [said for node in others for said in node.members.values()]
        assert len(members) == 7 + 6
        for shape in paths:
            (path,) = shape[Term(f"<{shacl}path>")]
            assert all(len(said[path]) == 1 for said in members)
        # Relations bound what lies behind them.
        for relation in root.said.values():
            if Term(f"<{TREE}value>") in relation:
                (value,) = map(instant_of_term, relation[Term(f"<{TREE}value>")])
                behind = Node(served, relation[NODE][0][1:-1])
                instants = [instant_of_term(said[CREATED][0]) for said in behind.members.values()]
                less = relation[RDF_TYPE] == [Term(f"<{TREE}LessThanOrEqualToRelation>")]
                assert all(each <= value if less else each >= value for each in instants)


def test_people_read_it_as_pages(tmp_path: Path) -> None:
    with streaming(tmp_path) as served:
        empty = served.get("trains/ldes", "text/html")
        assert empty.headers["Content-Type"] == "text/html; charset=utf-8"
        assert "Nothing was published" in empty.text
        for text in ('"<script>"@ar--rtl', '"2"'):
            served.publish((quad("a", "p", text), Expiration(NOON + HOUR)))
        root = served.get("trains/ldes", "text/html")
        assert root.headers["ETag"] != served.get("trains/ldes").headers["ETag"]
        assert f'href="{BASE}trains/ldes?page=0"' in root.text
        leaf = served.get("trains/ldes?page=0", "text/html").text
        assert "<script>&" not in leaf
        assert 'lang="ar" dir="rtl">&lt;script&gt;</a>' in leaf
        assert leaf.count(">said</td>") == 2
        assert leaf.count(">withdrawn</td>") == 1
        for number in range(4):
            served.publish((quad("b", "p", str(number)), Expiration(NOON + HOUR)))
        # Full, but a page for people may look otherwise after an upgrade.
        assert "immutable" in served.get("trains/ldes?page=0").headers["Cache-Control"]
        page = served.get("trains/ldes?page=0", "text/html")
        assert "immutable" not in page.headers["Cache-Control"]


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with streaming(tmp_path) as served:
        served.publish((quad("a", "p", "o"), Expiration(NOON + HOUR)))
        for query in ("page=x", "page=-1", "page=0&page=1", "part=1", "page=0&part=0", "x=1",
                      "page=0&block=0", "page=" + "9" * 13):  # fmt: skip
            assert served.get(f"trains/ldes?{query}").status_code == 400, query
        for query in ("page=1", "page=0&part=2", "block=1", "page=999999999999"):
            assert served.get(f"trains/ldes?{query}").status_code == 404, query
        assert served.get("trains/ldes", "application/rdf+xml").status_code == 406
        assert served.post("", path="trains/ldes").status_code == 405
        tag = served.get("trains/ldes").headers["ETag"]
        assert served.get("trains/ldes", If_None_Match=tag).status_code == 304
        served.publish((quad("b", "p", "o"), Expiration(NOON + HOUR)))
        assert served.get("trains/ldes", If_None_Match=tag).status_code == 200
    with Served(tmp_path / "without", live=False) as served:
        assert served.get("trains/ldes").status_code == 404


def test_what_is_not_kept_any_more_is_gone_and_nothing_before_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_SLACK", 16)
    second = timedelta(seconds=1)
    with streaming(tmp_path, retention=second) as served:
        live, clock = served.live, served.clock
        assert live is not None

        def renew(times: int) -> None:
            for _ in range(times):
                end = clock.now() + HOUR
                facts = [Fact(quad(str(n), "p", "o"), Expiration(end)) for n in range(8)]
                live.publish(facts, clock.now())
                clock.advance_to(clock.now() + 10 * second)

        renew(40)
        assert sum(len(node.members) for node in nodes(served)) == 40 * 8
        clock.advance_to(clock.now() + HOUR)
        assert live.retire(clock.now())
        renew(80)
        assert served.get("trains/ldes?page=0").status_code == 410
        spans = live.spans(1)
        assert 80 <= spans[-1].last - spans[0].first + 1 < 120
        assert sum(len(node.members) for node in nodes(served)) >= 80 * 8


def test_what_was_there_before_is_no_event(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        served.publish((quad("a", "p", "o"), Expiration(NOON + HOUR)))
    with streaming(tmp_path) as served:
        assert list(map(len, (node.members for node in nodes(served)))) == [0]
        served.publish((quad("b", "p", "o"), Expiration(NOON + HOUR)))
        assert sum(len(node.members) for node in nodes(served)) == 1


class Decoded:
    """Counts the decoded events of the log."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events = 0
        usual = log.decode

        def counted(sequence: int, published: int, payload: bytes) -> Record:
            record = usual(sequence, published, payload)
            self.events += len(record.added) + len(record.gone)
            return record

        for module in (index, sqlite_log):
            monkeypatch.setattr(module, "decode", counted)


def filled(served: Served, sizes: list[int]) -> LiveStore:
    """A store with batches of these sizes; each ends the facts of the one before."""
    live = served.live
    assert isinstance(live, LiveStore)
    for number, size in enumerate(sizes):
        facts = [
            Fact(quad(str(n), "p", f'"{number}"'), Expiration(NOON + HOUR)) for n in range(size)
        ]
        live.publish(facts, NOON + number * timedelta(milliseconds=1))
    return live


@pytest.mark.parametrize("seed", range(6))
def test_a_page_of_events_is_a_part_of_what_the_log_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(index, "_SLICE", 3)
    monkeypatch.setattr(index, "_SLICES", 2_000)
    chance = random.Random(seed)
    with streaming(tmp_path) as served:
        live = filled(served, [chance.choice([0, 1, 2, 5, 20]) for _ in range(30)])
        every = [
            FactEvent(
                record.sequence,
                place,
                record.published,
                Fact(Quad(*map(Term, event[2:6])), Expiration(from_micros(event.end))),
                place < len(record.gone),
            )
            for record in live._log.read(0)
            for place, event in enumerate((*record.gone, *record.added))
        ]
        for _ in range(200):
            after, offset = chance.randrange(-1, 32), chance.randrange(60)
            until, limit = after + chance.randrange(12), chance.randrange(1, 30)
            among = [each for each in every if after < each.sequence <= until]
            page = live.events(after, until, offset, limit)
            assert page == among[offset : offset + limit]


def test_a_page_of_events_costs_as_much_as_it_has_whatever_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "LEAF", 64)
    monkeypatch.setattr(event_stream, "MEMBERS", 100)
    monkeypatch.setattr(index, "_SLICE", 100)
    monkeypatch.setattr(store, "_SLACK", 10**6)
    with streaming(tmp_path) as served:
        live = filled(served, [40] * 60 + [2_000, 1])
        decoded = Decoded(monkeypatch)
        costs = []
        for part in range(1, 47 + 40):
            decoded.events = 0
            response = served.get(f"trains/ldes?page=0&part={part}", "application/n-quads")
            if response.status_code == 404:
                break
            costs.append(decoded.events)
        # Small batches, each with what it ended.
        assert max(costs[:40]) <= 100 + 2 * 80
        # The large one is read once, and after that only slices of it.
        large = sorted(costs[40:])
        assert large[-1] >= 2_000
        assert large[-2] <= 300
        # No other answer reads batches at all.
        decoded.events = 0
        for path in ("", "?block=0", "?block=5", "?page=9", "?page=0&part=999"):
            served.get(f"trains/ldes{path}")
        assert decoded.events == 0
        assert live.spans(64)[0].last == 62


def test_runs_of_batches_cost_as_much_as_there_are_runs() -> None:
    def looking(size: int) -> int:
        events = index.BatchEvents(None)  # type: ignore[arg-type]
        for number in range(1, 64 * size + 1):
            events.note(Record(number, number))
        return counted_calls(lambda: [events.runs(2**62, 64, None), events.runs(64, 640, 704),
                              events.parts(0, 64, 0, 1)])  # fmt: skip

    assert looking(4_000) <= looking(100) + 10
