"""Follow a Linked Data Event Stream: read its nodes, and give its members in order, once.

A labelled statement is a fact; any other member is a version of an object (`ldes:versionOfPath`),
valid until a newer version or a deletion.
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pyoxigraph as ox
import requests

from annotations.clock import Clock
from annotations.errors import AnnotationError, EncodeError, NestingError
from annotations.instants import from_micros, instant_of_term, to_micros
from annotations.labels import Expiration, Fact, Interval, Label, key_of
from annotations.methods.names import identity
from annotations.namespaces import (
    ACTIVITY,
    DEFAULT_VOCABULARY,
    LDES,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_STATEMENT,
    RDF_SUBJECT,
    RDF_TYPE,
    TREE,
    VOID,
    Vocabulary,
)
from annotations.nesting import most_written
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    Term,
    Triple,
    is_blank_node,
    is_iri,
    is_triple_term,
    triple_of_term,
    triple_term,
)
from annotations.urls import origin_of
from loaders.errors import InputError, StateError
from loaders.fetching import AnswerError, checked_response, retry_after
from tpf_server.store.static.ox_terms import read_quads

# A node of a Linked Data Event Stream: its members, and where it leads.
#
# Sources: *Linked Data Event Streams*, version 1.0; the TREE hypermedia specification, which has a
# member be all that is said of it, with blank nodes, and what stands in a graph of its name.

ACCEPT: Final = (
    "application/trig, application/n-quads;q=0.9, text/turtle;q=0.8, application/n-triples;q=0.7, "
    "application/ld+json;q=0.5"
)
_MEMBER: Final = Term(f"<{TREE}member>")
_VIEW: Final = Term(f"<{TREE}view>")
_RELATION: Final = Term(f"<{TREE}relation>")
_NODE: Final = Term(f"<{TREE}node>")
_CLASS: Final = Term(f"<{TREE}Node>")
_NAMES: Final = (
    "timestampPath", "versionOfPath", "versionDeletePath", "versionDeleteObject", "immutable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    """A member; its quads have no blank nodes."""

    name: Term
    quads: tuple[Quad, ...]


@dataclass(frozen=True, slots=True)
class LdesNode:
    """A node: members, URLs of relations and root nodes, stream properties, left-out parts."""

    members: tuple[Member, ...] = ()
    leads_to: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    about: Mapping[str, Term] = field(default_factory=dict)
    faults: tuple[str, ...] = ()


def read_node(content: bytes, media_type: str, url: str) -> LdesNode:
    """Read the node in an answer."""
    essence = media_type.partition(";")[0].strip().lower()
    form = ox.RdfFormat.from_media_type(essence) if essence else None
    if form is None:
        raise InputError(f"answers with {essence or 'no media type'} instead of RDF", url)
    try:
        quads = list(read_quads(content, form, base=url))
    except NestingError as error:
        raise InputError(error.reason, url, error.line) from None
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise InputError(f"malformed {essence} ({reason})", url) from None
    by_subject: dict[Term, list[Quad]] = {}
    graphs: dict[Term, list[Quad]] = {}
    for quad in quads:
        by_subject.setdefault(quad.subject, []).append(quad)
        if quad.graph:
            graphs.setdefault(quad.graph, []).append(quad)
    names = dict.fromkeys(quad.object for quad in quads if quad.predicate == _MEMBER)
    relations = {quad.object for quad in quads if quad.predicate == _RELATION}
    targets = [q.object for q in quads if q.predicate == _NODE and q.subject in relations]
    views = [quad.object for quad in quads if quad.predicate == _VIEW]
    stated = {Term(f"<{LDES}{name}>"): name for name in _NAMES}
    stated[Term(f"<{VOID}vocabulary>")] = "vocabulary"
    properties: dict[str, Term] = {}
    for quad in quads:
        if quad.predicate in stated:
            properties.setdefault(stated[quad.predicate], quad.object)
    if not (names or targets or views or properties or any(q.object == _CLASS for q in quads)):
        raise InputError("is no node of an event stream: no tree:view, no tree:member", url)
    members: list[Member] = []
    unusable = {
        "a member without a name": sum(not is_iri(each) for each in names),
        "leads to what is no URL": sum(not is_iri(each) for each in (*targets, *views)),
    }
    left = most_written(len(content))
    for name in filter(is_iri, names):
        members.append(_member(name, by_subject, graphs.get(name, ()), url, left))
        # Members may share blank nodes: each has what is said of them.
        left -= sum(sum(map(len, quad)) for quad in members[-1].quads)
    return LdesNode(
        tuple(members),
        _urls(targets),
        _urls(views),
        properties,
        tuple(f"{fault} ({count} in all)" for fault, count in unusable.items() if count),
    )


def instant_of(member: Member, path: Term, source: str) -> datetime:
    """Return the timestamp of a member."""
    for quad in member.quads:
        if quad.subject == member.name and quad.predicate == path:
            try:
                return instant_of_term(quad.object)
            except AnnotationError as error:
                raise InputError(f"member {member.name}: {error}", source) from None
    raise InputError(f"member {member.name} has no {path}", source)


def _member(
    name: Term, by_subject: Mapping[Term, list[Quad]], of_graph: Iterable[Quad], url: str, most: int
) -> Member:
    results: dict[Quad, None] = {}
    waiting, seen = [name], {name}

    def take(quad: Quad, *leads_to: Term) -> None:
        nonlocal most
        results[quad] = None
        most -= sum(map(len, quad))
        if most < 0:
            raise InputError("members that share too much: what they say is too large", url)
        for node in leads_to:
            if is_blank_node(node) and node not in seen:
                seen.add(node)
                waiting.append(node)

    for quad in of_graph:
        take(quad, quad.subject, quad.object)
    while waiting:
        for quad in by_subject.get(waiting.pop(), ()):
            take(quad, quad.object)
    # A blank node means nothing outside its document.
    names: dict[Term, Term] = {}

    def shown(term: Term) -> Term:
        if is_triple_term(term):
            return triple_term(Triple(*map(shown, triple_of_term(term))))
        if not is_blank_node(term):
            return term
        return names.setdefault(term, Term(f"{name[:-1]}#genid-{len(names)}>"))

    # A graph of the member's name is there to hold it, and is none of what it says.
    rows = (
        Quad(shown(s), p, shown(o), DEFAULT_GRAPH if g == name else g) for s, p, o, g in results
    )
    return Member(name, tuple(dict.fromkeys(rows)))


def _urls(terms: Iterable[Term]) -> tuple[str, ...]:
    urls = (term[1:-1].partition("#")[0] for term in terms if is_iri(term))
    return tuple(dict.fromkeys(urls))


# What is remembered of an event stream that is followed, in a file of SQLite.
#
# Nodes that need not be read again, members that came, those that wait to be told in order, and
# the newest version of everything. A step is one transaction: whoever is stopped goes on where it
# was.

_FORMAT: Final = "1"
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS nodes
    (url TEXT PRIMARY KEY, etag TEXT NOT NULL, leads_to TEXT NOT NULL, full INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS members (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waiting
    (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, name TEXT NOT NULL, quads TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS waiting_in_order ON waiting (at, number);
CREATE TABLE IF NOT EXISTS versions (entity TEXT PRIMARY KEY, at INTEGER, quads TEXT NOT NULL);
"""


class KnownNode(NamedTuple):
    """A node read before; a `full` one never changes."""

    etag: str
    leads_to: tuple[str, ...]
    full: bool


class Waiting(NamedTuple):
    """A member not given yet, and its timestamp."""

    number: int
    at: datetime
    member: Member


class LdesState:
    """The memory of one stream, in a SQLite file."""

    def __init__(self, path: Path | str, stream: str) -> None:
        self._path = path
        with self._translated():
            self._database = sqlite3.connect(path, isolation_level=None)
            self._database.executescript(_SCHEMA)
        for name, value in (("format", _FORMAT), ("stream", stream)):
            stored = self.setting(name, value)
            if stored != value:
                raise StateError(f"{path} belongs to another stream: {stored}")

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StateError(f"{self._path}: {error}") from None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Make the block's changes durable together, or none."""
        with self._translated():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def setting(self, name: str, value: str | None = None) -> str:
        """Return a setting; set it to `value` if new."""
        with self._translated():
            if value is not None:
                self._database.execute(
                    "INSERT OR IGNORE INTO settings VALUES (?, ?)", (name, value)
                )
            row = self._database.execute("SELECT value FROM settings WHERE name = ?", (name,))
            return str((row.fetchone() or ("",))[0])

    def node(self, url: str) -> KnownNode | None:
        """A node, as it was read last."""
        with self._translated():
            row = self._database.execute(
                "SELECT etag, leads_to, full FROM nodes WHERE url = ?", (url,)
            ).fetchone()
        return None if row is None else KnownNode(row[0], tuple(json.loads(row[1])), bool(row[2]))

    def remember(self, url: str, node: KnownNode) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)",
            (url, node.etag, json.dumps(node.leads_to), node.full),
        )

    def add(self, member: Member, at: datetime) -> bool:
        """Add a waiting member; return false if it was added before."""
        new = self._database.execute(
            "INSERT OR IGNORE INTO members VALUES (?)", (member.name,)
        ).rowcount
        if new:
            self._database.execute(
                "INSERT INTO waiting (at, name, quads) VALUES (?, ?, ?)",
                (to_micros(at), member.name, json.dumps(member.quads)),
            )
        return bool(new)

    def waiting(self, limit: int) -> list[Waiting]:
        """Return the next members, in order, never splitting an instant."""
        with self._translated():
            last = self._database.execute(
                "SELECT at FROM waiting ORDER BY at, number LIMIT 1 OFFSET ?", (limit - 1,)
            ).fetchone()
            until = last[0] if last else 2**62
            rows = self._database.execute(
                "SELECT number, at, name, quads FROM waiting WHERE at <= ? ORDER BY at, number",
                (until,),
            ).fetchall()
        return [
            Waiting(number, from_micros(at), Member(Term(name), _quads(quads)))
            for number, at, name, quads in rows
        ]

    def mark_given(self, entries: Iterable[Waiting]) -> None:
        self._database.executemany(
            "DELETE FROM waiting WHERE number = ?", ((each.number,) for each in entries)
        )

    def version(self, entity: Term) -> tuple[datetime, tuple[Quad, ...]] | None:
        """Return an object's newest version and its timestamp."""
        row = self._database.execute(
            "SELECT at, quads FROM versions WHERE entity = ?", (entity,)
        ).fetchone()
        return None if row is None else (from_micros(row[0]), _quads(row[1]))

    def set_version(self, entity: Term, at: datetime, quads: Iterable[Quad]) -> None:
        """There is a newer version of something."""
        self._database.execute(
            "INSERT OR REPLACE INTO versions VALUES (?, ?, ?)",
            (entity, to_micros(at), json.dumps(list(quads))),
        )


def _quads(text: str) -> tuple[Quad, ...]:
    return tuple(Quad(*map(Term, row)) for row in json.loads(text))


OPEN: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of what holds until something newer comes."""
_MOST_NODES: Final = 1_000_000
AT_ONCE: Final = 500
_DELETED: Final = Term(f"<{ACTIVITY}Delete>")


_Version: TypeAlias = tuple[datetime, tuple[Quad, ...]]
"""From when on something is said, and what; of a statement with an interval, until when."""


class MemberChanges(NamedTuple):
    """Members' changes: ended facts with labels, and new ones; the members' names."""

    removed: Sequence[Fact]
    added: Sequence[Fact]
    members: Sequence[Term]


class LdesFollower:
    """Reads a stream again and again."""

    def __init__(
        self,
        url: str,
        state: LdesState,
        session: requests.Session,
        clock: Clock,
        allowed: Collection[str] = (),
        failed: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._url = url.partition("#")[0]
        self._state = state
        self._session = session
        self._clock = clock
        self._origins = {origin_of(each) for each in (url, *allowed)} - {None}
        self._failed = failed
        self._unusable: set[str] = set()
        self.resume = clock.now()
        """Until when servers ask to wait."""

    def look(self) -> int:
        """Read new members; return their number.

        Raises:
            InputError: nothing could be read.
            StateError: the memory cannot be written.
        """
        new = self._read(self._url, first=True)
        root = self._state.setting("root") or self._url
        waiting, met = [root], {root}
        if root == self._url:
            node = self._state.node(root)
            waiting = list(node.leads_to) if node is not None else []
            met.update(waiting)
        while waiting:
            url = waiting.pop(0)
            node_ = self._state.node(url)
            if node_ is None or not node_.full:
                try:
                    new += self._read(url)
                except InputError as error:
                    self._failed(str(error))
                node_ = self._state.node(url)
            for each in node_.leads_to if node_ is not None else ():
                if each not in met and len(met) < _MOST_NODES:
                    met.add(each)
                    waiting.append(each)
        return new

    def _read(self, url: str, *, first: bool = False) -> int:
        self._check_origin(url)
        earlier = self._state.node(url)
        headers = {"Accept": ACCEPT}
        if earlier is not None and earlier.etag:
            headers["If-None-Match"] = earlier.etag
        try:
            answer = checked_response(self._session, url, headers, accepted=(304, 410))
        except AnswerError as error:
            now = self._clock.now()
            self.resume = max(self.resume, now + retry_after(error.headers, now))
            raise
        self._check_origin(answer.url)
        if answer.status == 304 and earlier is not None:
            return 0
        if answer.status == 410:
            # What was there is not kept any more; where it led, nobody says.
            with self._state.step():
                leads_to = earlier.leads_to if earlier is not None else ()
                self._state.remember(url, KnownNode("", leads_to, full=True))
            return 0
        node = read_node(answer.content, answer.headers.get("Content-Type", ""), answer.url)
        if first:
            self._begin(node, url)
        stated = answer.headers.get("Cache-Control", "").replace(" ", "").split(",")
        full = "immutable" in stated or "true" in node.about.get("immutable", "")
        path = self._state.setting("timestampPath")
        now = self._clock.now()
        new = 0
        with self._state.step():
            tag = answer.conditions.get("If-None-Match", "")
            self._state.remember(url, KnownNode(tag, node.leads_to, full and not first))
            faults = {url + each: f"{url}: {each}" for each in node.faults}
            for each in node.members:
                try:
                    new += self._state.add(each, instant_of(each, Term(path), url) if path else now)
                except InputError as error:
                    # Another node may say more of it.
                    faults[each.name] = str(error)
        for name in faults:
            if name not in self._unusable:
                self._failed(faults[name])
        self._unusable.update(faults)
        return new

    def _check_origin(self, url: str) -> None:
        if origin_of(url) not in self._origins:
            raise InputError("is at another origin; --allow-link allows it", url)

    def _begin(self, node: LdesNode, url: str) -> None:
        for name in ("timestampPath", "versionOfPath", "versionDeletePath", "versionDeleteObject"):
            path = node.about.get(name, "")
            if path and not is_iri(path):
                raise InputError(f"ldes:{name} is no single property: {path}", url)
            self._state.setting(name, path)
        self._state.setting("vocabulary", node.about.get("vocabulary", ""))
        # One view is the whole stream; others are the same in another order.
        root = url if url in node.views or not node.views else node.views[0]
        self._state.setting("root", root)

    def changes(self, most: int = AT_ONCE) -> Iterator[tuple[MemberChanges, Callable[..., None]]]:
        """Yield waiting changes, in order, each with its acknowledgement.

        Instants are merged while about different objects; members with impossible labels are left
        out.
        """
        while entries := self._state.waiting(most):
            portion = _Portion()
            for at, members in groupby(entries, key=lambda each: each.at):
                following = _Portion(list(members))
                for each in following.entries:
                    try:
                        self._tell(each, at, portion.versions, following)
                        following.told.append(each.member.name)
                    except AnnotationError as error:
                        self._failed(f"{self._url}: member {each.member.name}: {error}")
                if portion.keys.isdisjoint(following.keys):
                    portion.add(following)
                else:
                    yield portion.changes, partial(self._take, portion)
                    portion = following
            yield portion.changes, partial(self._take, portion)

    def _take(self, portion: "_Portion", *, refused: bool = False) -> None:
        with self._state.step():
            self._state.mark_given(portion.entries)
            if not refused:
                for entity, version in portion.versions.items():
                    self._state.set_version(entity, *version)

    def _tell(
        self, waiting: Waiting, at: datetime, before: Mapping[Term, _Version], portion: "_Portion"
    ) -> None:
        member = waiting.member
        deleted = self._is_deleted(member)
        fact = self._statement(member)

        def newest(name: Term) -> _Version | None:
            return portion.versions.get(name) or before.get(name) or self._state.version(name)

        if fact is not None:
            _check_encodable((fact.quad,))
            if isinstance(fact.label, Interval):
                name, (start, end) = Term(identity(fact)), (fact.label.start, fact.label.end)
                known = newest(name)
                if known is not None and end < known[0] and not deleted:
                    # Where ended intervals are not published, the longer one ends all the same.
                    portion.cut(Fact(fact.quad, Interval(end, known[0])))
                portion.versions[name] = (start if deleted else end), ()
            portion.record(fact, removed=deleted)
            return
        path = self._state.setting("versionOfPath")
        named = (q.object for q in member.quads if q.predicate == path)
        entity = next(named, member.name) if path else member.name
        version = newest(entity)
        if version is not None and version[0] > at:
            return  # it is older than what was told
        label = Interval(at, OPEN)
        quads = () if deleted else self._statements(member, entity)
        _check_encodable(quads)
        removed, come = version_changes(version[1] if version is not None else (), quads)
        for quad in removed:
            portion.record(Fact(quad, label), removed=True)
        for quad in come:
            portion.record(Fact(quad, label), removed=False)
        portion.versions[entity] = at, quads

    def _is_deleted(self, member: Member) -> bool:
        path = self._state.setting("versionDeletePath") or RDF_TYPE
        value = self._state.setting("versionDeleteObject") or _DELETED
        return any(
            q.subject == member.name and q.predicate == path and q.object == value
            for q in member.quads
        )

    def _statement(self, member: Member) -> Fact | None:
        own = {q.predicate: q.object for q in member.quads if q.subject == member.name}
        types = {q.object for q in member.quads if q.predicate == RDF_TYPE}
        if RDF_STATEMENT not in types or not {RDF_SUBJECT, RDF_PREDICATE, RDF_OBJECT} <= own.keys():
            return None
        parts = (own[RDF_SUBJECT], own[RDF_PREDICATE], own[RDF_OBJECT])
        stated = self._state.setting("vocabulary")[1:-1]
        # Others name vocabularies, too, which need not be of labels.
        own_vocabulary = [Vocabulary(stated)] if stated else []
        for tmp in (*own_vocabulary, DEFAULT_VOCABULARY):
            label = _label(own, tmp)
            if label is not None:
                return Fact(Quad(*parts, own.get(tmp.graph, DEFAULT_GRAPH)), label)
        return None

    def _statements(self, member: Member, entity: Term) -> tuple[Quad, ...]:
        stamps = (self._state.setting("timestampPath"), self._state.setting("versionOfPath"))
        return tuple(
            q._replace(subject=entity) if q.subject == member.name else q
            for q in member.quads
            if q.subject != member.name or q.predicate not in stamps
        )


def version_changes(old: Sequence[Quad], new: Sequence[Quad]) -> tuple[list[Quad], list[Quad]]:
    """Return what a version removes and adds, in order."""
    before, after = set(old), set(new)
    return [q for q in old if q not in after], [q for q in new if q not in before]


def _check_encodable(quads: Iterable[Quad]) -> None:
    for quad in quads:
        if quad.predicate in DEFAULT_VOCABULARY.label_predicates:
            raise EncodeError(f"{quad.predicate} would be read as an annotation")


def _label(own: Mapping[Term, Term], tmp: Vocabulary) -> Label | None:
    if tmp.initial in own and tmp.final in own:
        return Interval(instant_of_term(own[tmp.initial]), instant_of_term(own[tmp.final]))
    if tmp.expiration in own:
        return Expiration(instant_of_term(own[tmp.expiration]))
    return None


class _Portion:
    def __init__(self, entries: list[Waiting] | None = None) -> None:
        self.entries = entries or []
        self.told: list[Term] = []
        self.versions: dict[Term, _Version] = {}
        self.keys: set[tuple[str, ...]] = set()
        self._removed: dict[tuple[Quad, datetime | None], Fact] = {}
        self._added: dict[tuple[Quad, datetime | None], Fact] = {}

    @property
    def changes(self) -> MemberChanges:
        return MemberChanges(list(self._removed.values()), list(self._added.values()), self.told)

    def cut(self, fact: Fact) -> None:
        """Note a part of an interval in which the fact does not hold, whatever begins with it."""
        assert fact.label is not None
        self.keys.add(key_of(fact.quad))
        self._removed[fact.quad, fact.label.start] = fact

    def record(self, fact: Fact, *, removed: bool) -> None:
        assert fact.label is not None
        name = fact.quad, fact.label.start
        self.keys.add(key_of(fact.quad))
        if removed:
            # What came at the same instant is as if it had never come.
            self._added.pop(name, None)
            self._removed[name] = fact
        else:
            self._added[name] = fact

    def add(self, other: "_Portion") -> None:
        self.entries += other.entries
        self.told += other.told
        self.versions |= other.versions
        self.keys |= other.keys
        self._removed |= other._removed
        self._added |= other._added
