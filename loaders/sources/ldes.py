"""A Linked Data Event Stream that is followed: nodes are read, members told in order, once.

A member that is a labelled statement, as our server tells them, is a fact with its label. Any other
is a version of something (`ldes:versionOfPath`): what it says holds from its instant on, until a
newer version says otherwise. A deletion ends what was said.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import requests

from annotations.clock import Clock
from annotations.errors import AnnotationError, EncodeError
from annotations.instants import instant_of_term
from annotations.labels import Expiration, Fact, Interval, Label, key_of
from annotations.namespaces import (
    ACTIVITY,
    DEFAULT_VOCABULARY,
    RDF_OBJECT,
    RDF_PREDICATE,
    RDF_STATEMENT,
    RDF_SUBJECT,
    RDF_TYPE,
    Vocabulary,
)
from annotations.origins import origin_of
from annotations.terms import DEFAULT_GRAPH, Quad, Term, is_iri
from loaders.errors import InputError
from loaders.fetching import answered
from loaders.sources.ldes_nodes import ACCEPT, LdesNode, Member, instant_of, read_node
from loaders.sources.ldes_state import KnownNode, LdesState, Waiting

OPEN: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""The end of what holds until something newer comes."""
_MOST_NODES: Final = 1_000_000
_AT_ONCE: Final = 500
_DELETED: Final = Term(f"<{ACTIVITY}Delete>")


_Version: TypeAlias = tuple[datetime, tuple[Quad, ...]]
"""From when on something is said, and what."""


class MemberChanges(NamedTuple):
    """What members say together.

    Args:
        gone: what is not said any more, with the labels that it had.
        said: facts.
        members: how many members say so.
    """

    gone: Sequence[Fact]
    said: Sequence[Fact]
    members: int


class LdesFollower:
    """Reads a stream again and again.

    Args:
        url: of the stream, or of a root of its nodes.
        state: what is remembered.
        session: the HTTP session.
        clock: tells when a member came that does not say so itself.
        allowed: further origins that nodes may lie at.
        failed: told of each node that could not be read, and is tried again next time, and of each
            member that says nothing that can be told.
    """

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

    def look(self) -> int:
        """Read what is new; how many members are.

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
            known = self._state.node(url)
            if known is None or not known.full:
                try:
                    new += self._read(url)
                except InputError as error:
                    self._failed(str(error))
                known = self._state.node(url)
            for each in known.leads_to if known is not None else ():
                if each not in met and len(met) < _MOST_NODES:
                    met.add(each)
                    waiting.append(each)
        return new

    def _read(self, url: str, *, first: bool = False) -> int:
        if origin_of(url) not in self._origins:
            raise InputError("is at another origin; --allow-link allows it", url)
        known = self._state.node(url)
        headers = {"Accept": ACCEPT}
        if known is not None and known.etag:
            headers["If-None-Match"] = known.etag
        answer = answered(self._session, url, headers, accepted=(304, 410))
        if answer.status == 304 and known is not None:
            return 0
        if answer.status == 410:
            # What was there is not kept any more; where it led, nobody says.
            with self._state.step():
                leads_to = known.leads_to if known is not None else ()
                self._state.remember(url, KnownNode("", leads_to, full=True))
            return 0
        node = read_node(answer.content, answer.headers.get("Content-Type", ""), url)
        if first:
            self._begin(node, url)
        stated = answer.headers.get("Cache-Control", "").replace(" ", "").split(",")
        full = "immutable" in stated or "true" in node.about.get("immutable", "")
        path = self._state.setting("timestampPath")
        now = self._clock.now()
        made = [(each, instant_of(each, Term(path), url) if path else now) for each in node.members]
        with self._state.step():
            tag = answer.headers.get("ETag", "")
            self._state.remember(url, KnownNode(tag, node.leads_to, full and not first))
            return sum(self._state.add(each, at) for each, at in made)

    def _begin(self, node: LdesNode, url: str) -> None:
        """Learn what the stream says of itself, where its first node is read first."""
        for name in ("timestampPath", "versionOfPath", "versionDeletePath", "versionDeleteObject"):
            path = node.about.get(name, "")
            if path and not is_iri(path):
                raise InputError(f"ldes:{name} is no single property: {path}", url)
            self._state.setting(name, path)
        self._state.setting("vocabulary", node.about.get("vocabulary", ""))
        # One view is the whole stream; others are the same in another order.
        root = url if url in node.views or not node.views else node.views[0]
        self._state.setting("root", root)

    def changes(self) -> Iterator[tuple[MemberChanges, Callable[[], None]]]:
        """What waits, in order, and what to call when that was taken.

        Members of several instants come together as long as they speak of different things. One
        whose facts cannot be told (its label ends before it begins, or it comes about at the end of
        time) is left out.
        """
        while entries := self._state.waiting(_AT_ONCE):
            portion = _Portion()
            for at, members in groupby(entries, key=lambda each: each.at):
                following = _Portion(list(members))
                for each in following.entries:
                    try:
                        self._tell(each, at, portion.versions, following)
                    except AnnotationError as error:
                        following.left_out += 1
                        self._failed(f"{self._url}: member {each.member.name}: {error}")
                if portion.keys.isdisjoint(following.keys):
                    portion.add(following)
                else:
                    yield portion.changes, partial(self._take, portion)
                    portion = following
            yield portion.changes, partial(self._take, portion)

    def _take(self, portion: "_Portion") -> None:
        with self._state.step():
            self._state.told(portion.entries)
            for entity, version in portion.versions.items():
                self._state.set_version(entity, *version)

    def _tell(
        self, waiting: Waiting, at: datetime, before: Mapping[Term, _Version], portion: "_Portion"
    ) -> None:
        """Add what a member says to what the members of its instant say."""
        member = waiting.member
        deleted = self._is_deleted(member)
        fact = self._statement(member)
        if fact is not None:
            _check_encodable((fact.quad,))
            portion.say(fact, gone=deleted)
            return
        path = self._state.setting("versionOfPath")
        named = (q.object for q in member.quads if q.predicate == path)
        entity = next(named, member.name) if path else member.name
        known = portion.versions.get(entity) or before.get(entity) or self._state.version(entity)
        if known is not None and known[0] > at:
            return  # it is older than what was told
        label = Interval(at, OPEN)
        quads = () if deleted else self._said(member, entity)
        _check_encodable(quads)
        old = known[1] if known is not None else ()
        for quad in old:
            if quad not in quads:
                portion.say(Fact(quad, label), gone=True)
        for quad in quads:
            if quad not in old:
                portion.say(Fact(quad, label), gone=False)
        portion.versions[entity] = at, quads

    def _is_deleted(self, member: Member) -> bool:
        path = self._state.setting("versionDeletePath") or RDF_TYPE
        value = self._state.setting("versionDeleteObject") or _DELETED
        return any(
            q.subject == member.name and q.predicate == path and q.object == value
            for q in member.quads
        )

    def _statement(self, member: Member) -> Fact | None:
        """The labelled fact that a member is; ``None``: it is none."""
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

    def _said(self, member: Member, entity: Term) -> tuple[Quad, ...]:
        """What a version says of what it is a version of."""
        stamps = (self._state.setting("timestampPath"), self._state.setting("versionOfPath"))
        return tuple(
            q._replace(subject=entity) if q.subject == member.name else q
            for q in member.quads
            if q.subject != member.name or q.predicate not in stamps
        )


def _check_encodable(quads: Iterable[Quad]) -> None:
    for quad in quads:
        if quad.predicate in DEFAULT_VOCABULARY.label_predicates:
            raise EncodeError(f"{quad.predicate} would be read as an annotation")


def _label(own: Mapping[Term, Term], tmp: Vocabulary) -> Label | None:
    """The label that a member states in a vocabulary."""
    if tmp.initial in own and tmp.final in own:
        return Interval(instant_of_term(own[tmp.initial]), instant_of_term(own[tmp.final]))
    if tmp.expiration in own:
        return Expiration(instant_of_term(own[tmp.expiration]))
    return None


class _Portion:
    """What members say that are told together.

    Args:
        entries: these members.
    """

    def __init__(self, entries: list[Waiting] | None = None) -> None:
        self.entries = entries or []
        self.left_out = 0
        self.versions: dict[Term, _Version] = {}
        self.keys: set[tuple[str, ...]] = set()
        self._gone: dict[tuple[Quad, datetime | None], Fact] = {}
        self._said: dict[tuple[Quad, datetime | None], Fact] = {}

    @property
    def changes(self) -> MemberChanges:
        """The same as facts."""
        return MemberChanges(
            list(self._gone.values()),
            list(self._said.values()),
            len(self.entries) - self.left_out,
        )

    def say(self, fact: Fact, *, gone: bool) -> None:
        """A fact comes, or is not said any more."""
        assert fact.label is not None
        name = fact.quad, fact.label.start
        self.keys.add(key_of(fact.quad))
        if gone:
            # What came at the same instant is as if it had never come.
            self._said.pop(name, None)
            self._gone[name] = fact
        else:
            self._said[name] = fact

    def add(self, other: "_Portion") -> None:
        """Tell this as well, which speaks of other things."""
        self.entries += other.entries
        self.left_out += other.left_out
        self.versions |= other.versions
        self.keys |= other.keys
        self._gone |= other._gone
        self._said |= other._said
