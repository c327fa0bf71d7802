"""Event streams, as a user does it: ``tpf-load ldes``."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, redirect_stderr
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, cast

import pytest
import requests
import responses

from annotations.clock import ManualClock, SystemClock
from annotations.instants import instant_term
from annotations.labels import Expiration, Fact, Interval
from annotations.methods.base import Naming
from annotations.namespaces import (
    ACTIVITY,
    DEFAULT_VOCABULARY,
    RDF,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_STATEMENT,
    RDF_SUBJECT,
    RDF_TYPE,
    TEMPORAL,
)
from annotations.terms import Quad, Term
from loaders.commands.load_ldes import _published, patches_of
from loaders.errors import InputError, ServerUnreachableError
from loaders.sources.ldes import LdesFollower, LdesState, Member, MemberChanges
from tests.loaders.facts_server import listening
from tests.loaders.test_cli import run
from tests.support.stores import standing
from tpf_server.app import create_app
from tpf_server.errors import PublishError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore, open_live_store

PREFIXES = """
@prefix : <http://x/> . @prefix tree: <https://w3id.org/tree#> .
@prefix ldes: <https://w3id.org/ldes#> .
@prefix dct: <http://purl.org/dc/terms/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix as: <https://www.w3.org/ns/activitystreams#> .
"""
STREAM = """:s a ldes:EventStream ; tree:view <{root}> ; ldes:timestampPath dct:created ;
    ldes:versionOfPath dct:isVersionOf ; ldes:versionDeleteObject as:Delete ;
    ldes:versionDeletePath <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> .
"""


class Nodes:
    """A server of nodes, by path; a text is Turtle, or the path or URL to go to."""

    def __init__(self, nodes: dict[str, str]) -> None:
        self.nodes = nodes
        self.full: set[str] = set()
        self.asked: list[tuple[str, int]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        text = self.nodes.get(path)
        if text is not None and text.startswith(("/", "http:")):
            start_response("302 Found", [("Location", text)])
            return [b""]
        status = "404 Not Found" if text is None else "410 Gone" if text == "gone" else "200 OK"
        body = (PREFIXES + (text or "")).encode()
        tag = f'"{hash(body)}"'
        if environ.get("HTTP_IF_NONE_MATCH") == tag:
            status, body = "304 Not Modified", b""
        self.asked.append((path, int(status[:3])))
        age = "max-age=99, immutable" if path in self.full else "max-age=1"
        headers = [("Content-Type", "text/turtle"), ("ETag", tag), ("Cache-Control", age)]
        start_response(status, headers)
        return [body]


def member(name: str, of: str, second: int, said: str) -> str:
    at = f"2026-01-01T00:00:{second:02}Z"
    return (
        f':s tree:member :{name} . :{name} dct:isVersionOf :{of} ; dct:created "{at}"^^xsd:dateTime'
        + (f" ; {said} ." if said else " .")
    )


def values(live: LiveStore, after: int = 0) -> set[tuple[str, str, str]]:
    """What stands for longer than until an instant: ends of names, and first letters of values."""
    return {
        (row.subject[10:-1], row.predicate[10:-1], row.object[1:2])
        for row, _, end in standing(live)
        if end > after
    }


class Target:
    """A server with a dataset, with or without an event stream."""

    def __init__(self, ending: ExitStack, folder: Path, *, key: Any = "triple", **own: Any) -> None:
        folder.mkdir()
        keep = timedelta(hours=1) if own else None
        settings = LiveSettings(key=key, keep_events=keep, accept_past=True)
        self.live = open_live_store(folder / "live.sqlite", settings)
        dataset = OpenDataset(DatasetSettings(name="d", key=key, **own), None, self.live)
        at = ending.enter_context(listening(lambda *given: self.app(*given)))
        self.app: Callable[..., Any] = create_app(
            Settings(base_url=at, publish_token="t"), [dataset], SystemClock()
        )
        self.url = f"{at.rstrip('/')}/d"


class Said(NamedTuple):
    """Status and output of a command."""

    status: int
    text: str


def load(*arguments: str) -> Said:
    with redirect_stderr(StringIO()) as text:
        status = run("load", "ldes", *arguments)
    return Said(status, text.getvalue())


def push(target: Target, *arguments: str) -> Said:
    return load(*arguments, "--push", target.url, "--token", "t")


class Site(NamedTuple):
    """A dataset that follows a server of nodes, and the server's URL."""

    target: Target
    nodes: Nodes
    at: str


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as ending:
        target, nodes = Target(ending, tmp_path / "target"), Nodes({})
        yield Site(target, nodes, ending.enter_context(listening(nodes)).rstrip("/"))


def test_versions_hold_until_newer_ones(tmp_path: Path, site: Site) -> None:
    target, nodes, at = site
    # In two views, the members of a node in no order, one with a blank node.
    nodes.nodes |= {
        "/": STREAM.format(root=f"{at}/root") + f":s tree:view <{at}/other> .",
        "/root": STREAM.format(root=f"{at}/root")
        + f"<{at}/root> tree:relation [ tree:node <{at}/1> ], [ tree:node <{at}/2> ] .",
        "/1": member("b2", "b", 3, ":p 2, 3") + member("a1", "a", 1, ':p 1 ; :q "x"'),
        "/2": member("b1", "b", 2, ":p 1, 2 ; :where [ :lat 5 ]")
        + f"<{at}/2> tree:relation [ tree:node <{at}/root> ] .",
    }
    nodes.full.add("/1")
    state = tmp_path / "state"
    options = ("--state", str(state), "--polls", "1")
    found = push(target, f"{at}/", *options)
    assert "3 members published" in found.text, found.text
    held = values(target.live, 2**57)
    assert held >= {("a", "p", "1"), ("a", "q", "x"), ("b", "p", "2"), ("b", "p", "3")}
    assert ("b", "p", "1") not in held
    assert not any(name == "where" for _, name, _ in held)
    # Again: what is full is not read, what has not changed is not sent, and nothing is new.
    nodes.asked.clear()
    assert "0 members" in push(target, f"{at}/", *options).text
    assert sorted(nodes.asked) == [("/", 304), ("/2", 304), ("/root", 304)]
    # Something new, a deletion, and a node that is gone.
    nodes.nodes["/2"] += member("a2", "a", 5, ':p 7 ; :q "x"') + member("b3", "b", 6, "a as:Delete")
    nodes.nodes["/root"] += f"<{at}/root> tree:relation [ tree:node <{at}/3> ] ."
    nodes.nodes["/3"] = "gone"
    assert "2 members" in push(target, f"{at}/", *options).text
    held = values(target.live, 2**57)
    assert {each for each in held if len(each[0]) == 1} == {("a", "p", "7"), ("a", "q", "x")}
    # The file belongs to this stream and this dataset.
    wrong = push(target, f"{at}/root", *options)
    assert (wrong.status, "belongs to another stream" in wrong.text) == (1, True)


def test_links_of_a_node_are_relative_to_where_it_was_found(site: Site) -> None:
    target, nodes, at = site
    nodes.nodes |= {
        "/": "/a/b",
        "/a/b": STREAM.format(root="b") + "<b> tree:relation [ tree:node <c> ] .",
        "/a/c": member("a1", "a", 1, ":p 1"),
    }
    found = push(target, f"{at}/", "--polls", "1")
    assert "1 member published" in found.text, found.text


def test_a_redirect_to_another_origin_is_like_a_link(site: Site) -> None:
    target, nodes, at = site
    with listening(Nodes({"/": STREAM.format(root="/") + member("a1", "a", 1, ":p 1")})) as other:
        nodes.nodes["/"] = other
        found = push(target, f"{at}/", "--polls", "1")
        assert (found.status, "is at another origin" in found.text) == (1, True), found.text
        found = push(target, f"{at}/", "--polls", "1", "--allow-link", other)
    assert "1 member published" in found.text, found.text


def test_a_file_has_what_all_members_come_to(tmp_path: Path, site: Site) -> None:
    _, nodes, at = site
    nodes.nodes["/"] = (
        STREAM.format(root=f"{at}/") + member("a1", "a", 1, ":p 1") + member("a2", "a", 4, ":p 2")
    )
    file = tmp_path / "facts.nq"
    assert load(f"{at}/", "--facts", str(file)).status == 0
    text = file.read_text()
    assert '"2026-01-01T00:00:01Z"' in text
    assert text.count('"2026-01-01T00:00:04Z"') == 2


def test_what_has_no_name_and_links_to_nowhere_are_left_out_alone(site: Site) -> None:
    target, nodes, at = site
    nodes.nodes["/"] = (
        STREAM.format(root=f"{at}/")
        + member("a1", "a", 1, ":p 1")
        + f":s tree:member [ :p 1 ], 7 . <{at}/> tree:relation [ tree:node 'x' ], "
        "[ tree:node </1> ] ."
    )
    nodes.nodes["/1"] = member("b1", "b", 2, ":p 2")
    found = push(target, f"{at}/", "--polls", "2", "--period", "0.01")
    assert [line.partition(f"{at}/: ")[2] for line in found.text.splitlines()[:-1]] == [
        "a member without a name (2 in all)", "leads to what is no URL (1 in all)"
    ]  # fmt: skip
    assert (found.status, values(target.live)) == (0, {("a", "p", "1"), ("b", "p", "2")})


def test_a_node_that_leads_elsewhere_is_read_again() -> None:
    """Its tag is that of another document."""
    texts = {"/1": PREFIXES + STREAM.format(root="/") + member("a1", "a", 1, ":p 1")}
    texts["/2"] = texts["/1"] + member("a2", "a", 2, ":p 2")
    newest = "/1"

    def latest(environ: dict[str, Any], start_response: Any) -> Any:
        text = texts.get(environ["PATH_INFO"], "")
        known = "HTTP_IF_NONE_MATCH" in environ
        status = "302 Found" if not text else "304 Not Modified" if known else "200 OK"
        headers = [("Content-Type", "text/turtle"), ("ETag", '"1"'), ("Location", newest)]
        start_response(status, headers if not text else headers[:2])
        return [text.encode()]

    with listening(latest) as at, requests.Session() as session:
        memory = LdesState(":memory:", "x")
        follower = LdesFollower(at, memory, session, SystemClock())
        assert follower.look() == 1
        newest = "/2"
        assert follower.look() == 1
        memory.close()


@responses.activate
def test_a_stream_is_looked_at_when_the_server_wishes() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    responses.get("http://h.example/", status=429, headers={"Retry-After": "90"})
    memory = LdesState(":memory:", "x")
    with requests.Session() as session:
        follower = LdesFollower("http://h.example/", memory, session, clock)
        with pytest.raises(InputError, match="HTTP 429"):
            follower.look()
    memory.close()
    assert follower.resume - clock.now() == timedelta(seconds=90)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x", "malformed text/turtle"),
        (":a :b :c .", "is no node of an event stream"),
        (STREAM.format(root="http://elsewhere.example/"), "is at another origin"),
        (
            STREAM.format(root="/") + ":s tree:member :m .",
            "has no <http://purl.org/dc/terms/created>",
        ),
        (STREAM.format(root="/") + ":s tree:member :m . :m dct:created 5 .", "member <http://x/m>"),
        (STREAM.format(root="/") + ":s tree:member [] .", "a member without a name"),
        (":s tree:view </> ; ldes:timestampPath ( :a :b ) .", "is no single property"),
    ],
)
def test_a_bad_node_is_one_line(site: Site, text: str, reason: str) -> None:
    site.nodes.nodes["/"] = text
    found = push(site.target, f"{site.at}/", "--polls", "1")
    assert reason in found.text, found.text
    assert "Traceback" not in found.text


STATEMENT = """:s tree:member :st . :st dct:created "2026-01-01T00:00:03Z"^^xsd:dateTime ;
    a rdf:Statement ; rdf:subject :a ; rdf:predicate :p ; rdf:object 7 ;
    tmp:initial "2026-01-01T00:00:03Z"^^xsd:dateTime ;
    tmp:final "2026-01-01T00:00:02Z"^^xsd:dateTime .
"""


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            member("late", "l", 3, ":p 7").replace("2026-01-01", "9999-12-31"),
            "member <http://x/late>: an interval must end after it starts",
        ),
        (STATEMENT, "member <http://x/st>: an interval must end after it starts"),
        (member("label", "l", 3, "tmp:expiration 7"), "would be read as an annotation"),
    ],
)
def test_a_member_that_cannot_be_told_is_left_out_once(
    tmp_path: Path, site: Site, bad: str, reason: str
) -> None:
    target, nodes, at = site
    prefixes = f"@prefix tmp: <{TEMPORAL}> . @prefix rdf: <{RDF}> . "
    nodes.nodes["/"] = prefixes + STREAM.format(root=f"{at}/") + member("a1", "a", 1, ":p 1") + bad
    options = ("--polls", "1", "--state", str(tmp_path / "state"))
    found = push(target, f"{at}/", *options)
    told, summary = found.text.splitlines()
    assert told.startswith(f"tpf-load: not read: {at}/: member ")
    assert reason in told
    assert (found.status, summary[:18]) == (0, "1 member published")
    assert ("a", "p", "1") in values(target.live)
    # It does not wait for the next time.
    nodes.nodes["/"] += member("a2", "a", 9, ":p 2")
    found = push(target, f"{at}/", *options)
    assert (found.status, found.text.splitlines()[:-1]) == (0, [])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (member("m", "l", 3, ":p 7").replace("03Z", "03"), "an instant needs a time zone"),
        (":s tree:member :m .", "member <http://x/m> has no <http://purl.org/dc/terms/created>"),
    ],
)
def test_a_member_of_no_instant_is_left_out_alone(site: Site, bad: str, reason: str) -> None:
    target, nodes, at = site
    nodes.nodes["/"] = STREAM.format(root=f"{at}/") + member("a1", "a", 1, ":p 1") + bad
    found = push(target, f"{at}/", "--polls", "2", "--period", "0.01")
    told, summary = found.text.splitlines()
    assert told.startswith("tpf-load: not read: ")
    assert reason in told
    assert (found.status, summary[:18]) == (0, "1 member published")
    assert values(target.live) == {("a", "p", "1")}
    # Another node may say more of it.
    nodes.nodes["/"] += f"<{at}/> tree:relation [ tree:node </1> ] ."
    nodes.nodes["/1"] = member("m", "l", 3, ":p 7")
    push(target, f"{at}/", "--polls", "1")
    assert ("l", "p", "7") in values(target.live)


def test_a_member_that_the_server_refuses_is_left_out_alone(tmp_path: Path, site: Site) -> None:
    target, nodes, at = site
    one = Term('"1"^^<http://www.w3.org/2001/XMLSchema#integer>')
    later = Interval(*(datetime(year, 1, 1, tzinfo=UTC) for year in (8000, 8001)))
    row = Quad(Term("<http://x/a>"), Term("<http://x/p>"), one)
    target.live.publish([Fact(row, later)], SystemClock().now())
    nodes.nodes["/"] = STREAM.format(root=f"{at}/") + member("b1", "b", 1, ":p 1")
    nodes.nodes["/"] += member("a1", "a", 2, ":p 1") + member("b2", "b", 3, ":p 2")
    nodes.nodes["/"] += "".join(member(f"c{n}", f"c{n}", n, ":p 1") for n in range(4, 13))
    options = ("--polls", "1", "--state", str(tmp_path / "state"))
    found = push(target, f"{at}/", *options)
    told, summary = found.text.splitlines()
    assert told.startswith("tpf-load: not published: <http://x/a1>: "), told
    assert (found.status, summary[:20]) == (0, "11 members published")
    # What comes before it goes alone, and what comes after it at once.
    assert target.live.snapshot(SystemClock().now()).sequence == 3
    # What it would have said is none of what its next version ends or keeps.
    nodes.nodes["/"] += member("a2", "a", 4, ":p 1, 2")
    told, _ = push(target, f"{at}/", *options).text.splitlines()
    assert told.startswith("tpf-load: not published: <http://x/a2>: "), told


def test_whoever_stops_it_while_the_server_is_away_is_told_no_error() -> None:
    stopped, stopping = Event(), False

    class Follower:
        def changes(self, _most: int) -> Iterator[tuple[MemberChanges, Any]]:
            yield MemberChanges([], [], [Term("<http://x/a>")]), pytest.fail

    def send(_changes: MemberChanges) -> None:
        if stopping:
            stopped.set()
        raise ServerUnreachableError("is away")

    follower: Any = Follower()
    with pytest.raises(ServerUnreachableError):
        _published(follower, send, stopped)
    stopping = True
    assert _published(follower, send, stopped) == 0


def test_a_fact_that_went_may_come_again(tmp_path: Path, site: Site) -> None:
    target, nodes, at = site
    nodes.nodes["/"] = f"@prefix tmp: <{TEMPORAL}> . @prefix rdf: <{RDF}> . "
    nodes.nodes["/"] += STREAM.format(root=f"{at}/")
    for second, kind in enumerate(("", ", as:Delete", "")):
        nodes.nodes["/"] += f""":s tree:member :m{second} . :m{second} a rdf:Statement{kind} ;
            dct:created "2026-01-01T00:00:0{second}Z"^^xsd:dateTime ;
            rdf:subject :a ; rdf:predicate :p ; rdf:object 7 ;
            tmp:expiration "9000-01-01T00:00:00Z"^^xsd:dateTime .
        """
        found = push(target, f"{at}/", "--polls", "1", "--state", str(tmp_path / "state"))
        assert "1 member published" in found.text, found.text
        assert (("a", "p", "7") in values(target.live, 2**57)) == (not kind)


def test_a_relation_to_what_is_no_url(site: Site) -> None:
    target, nodes, at = site
    nodes.nodes |= {
        "/": STREAM.format(root=f"{at}/")
        + f"<{at}/> tree:relation [ tree:node <http://a\N{ACCOUNT OF}b/> ], "
        f"[ tree:node <{at}/1> ] .",
        "/1": member("a1", "a", 1, ":p 1"),
    }
    found = push(target, f"{at}/", "--polls", "1")
    told, summary = found.text.splitlines()
    assert "is at another origin" in told
    assert (found.status, summary[:8]) == (0, "1 member")


@pytest.mark.parametrize("seed", range(4))
def test_our_stream_makes_the_same_dataset(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with ExitStack() as ending:
        own: dict[str, Any] = {"vocabulary": "http://vocab.example/time#"} if seed % 2 else {}
        source = Target(
            ending, tmp_path / "source", key="subject-predicate", event_stream=3600.0, **own
        )
        target = Target(ending, tmp_path / "target", key="subject-predicate")
        now = SystemClock().now()
        for _ in range(4):
            for _ in range(6):
                now += timedelta(milliseconds=1)
                facts = {}
                for _ in range(chance.randrange(1, 4)):
                    row = Quad(
                        *(Term(f"<urn:{chance.choice(part)}>") for part in ("ab", "pq", "xyz"))
                    )
                    start, end = (
                        now + timedelta(hours=h)
                        for h in (chance.randrange(-2, 1), chance.randrange(1, 4))
                    )
                    label = Interval(start, end) if chance.random() < 0.5 else Expiration(end)
                    facts[row[:2]] = Fact(row, label)
                gone = [Fact(each.quad) for each in facts.values()] if chance.random() < 0.3 else []
                try:
                    source.live.publish([] if gone else list(facts.values()), now, withdrawn=gone)
                except PublishError:
                    continue
            state = str(tmp_path / "state")
            ldes = f"{source.url}/ldes"
            found = push(target, ldes, "--polls", "1", "--state", state, "--past")
            assert found.status == 0, found.text
        assert standing(target.live) == standing(source.live)


def test_an_interval_that_is_cut_short_ends_where_ended_ones_are_not_published() -> None:
    state, now = LdesState(":memory:", "x"), SystemClock().now()
    follower = LdesFollower("http://x/", state, cast(Any, None), SystemClock())
    start, row = now - timedelta(hours=1), Quad(*(Term(f"<urn:{part}>") for part in "spo"))
    seconds = count()

    def told(minutes: int, *kinds: Term) -> tuple[list[bytes], list[Fact]]:
        """The signs of the lines, and what goes, where it holds for so many minutes from now."""
        name, end = Term(f"<urn:m{next(seconds)}>"), now + timedelta(minutes=minutes)
        parts = zip((RDF_SUBJECT, RDF_PREDICATE, RDF_OBJECT), row.triple, strict=True)
        label = (
            (DEFAULT_VOCABULARY.initial, instant_term(start)),
            (DEFAULT_VOCABULARY.final, instant_term(end)),
        )
        types = ((RDF_TYPE, each) for each in (RDF_STATEMENT, *kinds))
        quads = tuple(Quad(name, *pair) for pair in (*parts, *label, *types))
        with state.step():
            state.add(Member(name, quads), now + timedelta(seconds=next(seconds)))
        changes, taken = next(follower.changes())
        taken()
        patches = list(patches_of(changes, Naming("urn:f:", "http://x/d"), now, past=False))
        return [patch[:1] for patch in patches], list(changes.removed)

    assert told(60) == ([b"A"], [])
    cut = Interval(now - timedelta(minutes=5), now + timedelta(hours=1))
    assert told(-5) == ([b"D"], [Fact(row, cut)])
    assert told(60) == ([b"A"], [])
    assert told(60, Term(f"<{ACTIVITY}Delete>"))[0] == [b"D"]
    # What was there no more holds no longer.
    assert told(30) == ([b"A"], [])


def test_an_expiration_goes_before_its_fact_comes_with_an_interval() -> None:
    """A withdrawal from now on would remove the new interval."""
    now = SystemClock().now()
    first, second = (Quad(*(Term(f"<urn:{part}>") for part in f"s{o}o")) for o in "pq")
    until = now + timedelta(hours=1)
    said = [Fact(first, Interval(now, until)), Fact(second, Expiration(until))]
    gone = [Fact(first, Expiration(until)), Fact(second, Interval(now, until))]
    naming = Naming("urn:fact:", "http://x/d")
    told = list(patches_of(MemberChanges(gone, said, ()), naming, now, past=False))
    assert [sorted({line[:1] for line in each.splitlines()}) for each in told] == [
        [b"D"], [b"A", b"D"], [b"A"],
    ]  # fmt: skip
    assert b"<urn:p>" in told[0]
    assert b"<urn:q>" in told[2]
    told = list(patches_of(MemberChanges(gone[:1], said[1:], ()), naming, now, past=False))
    assert len(told) == 1, "what does not meet stays together"
