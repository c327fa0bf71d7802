"""The engine for CQELS-QL: streams in, results out."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from annotations.terms import Term
from tpf_client.errors import UnsupportedQueryError
from tpf_server.cqels.delivery import Callback, Results
from tpf_server.cqels.dictionary import inlined_literal
from tpf_server.cqels.elements import canonical_term, canonical_triple
from tpf_server.cqels.errors import ContinuousError, ElementError, UnsupportedContinuousQueryError
from tpf_server.cqels.limits import Limits
from tpf_server.cqels.parser import BASE, parse
from tpf_server.cqels.records import RecordFeed
from tpf_server.cqels.registered_query import RegisteredQuery
from tpf_server.cqels.semantics import CQELS, Semantics
from tpf_server.cqels.tick_engine import TickEngine
from tpf_server.cqels.timestamps import EPOCH, milliseconds
from tpf_server.cqels.windows.matchers import EncodedTriple

__all__ = ["Engine", "Limits", "RegisteredQuery"]


class Engine(TickEngine):
    """Continuous queries over streams and static data.

    Args:
        semantics: what queries emit, where registration says nothing else.
        lateness: how late an element may come, in milliseconds. Elements wait that long, so that
            those that come out of order are put in order; later ones are dropped and counted.
        base: what relative IRIs in queries are relative to.
        limits: what is allowed.
        create_streams: whether a stream comes into being when it is first pushed to or asked for.
        require_graphs: whether a query may only name static graphs that are loaded.
        share: whether queries that differ in constants only share a plan.
        now: what NOW() gives in queries.

    Attributes:
        semantics: see above.
    """

    def __init__(
        self,
        *,
        semantics: Semantics = CQELS,
        lateness: int = 0,
        base: str = BASE,
        limits: Limits | None = None,
        create_streams: bool = True,
        require_graphs: bool = False,
        share: bool = True,
        now: datetime = EPOCH,
    ) -> None:
        super().__init__(
            base,
            limits,
            lateness=lateness,
            create_streams=create_streams,
            require_graphs=require_graphs,
            share=share,
            now=now,
        )
        self.semantics = semantics

    # ----------------------------------------------------------------------------- queries

    def register(
        self,
        text: str,
        callback: Callback | None = None,
        *,
        name: str | None = None,
        semantics: Semantics | None = None,
        into: str | None = None,
    ) -> RegisteredQuery:
        """Start a query; it sees what arrives from now on.

        Args:
            text: CQELS-QL.
            callback: is called with each `Emission`; without one they wait in the result.
            name: what to call it; a new name where it is ``None``.
            semantics: what it emits.
            into: for CONSTRUCT: the stream that its triples are pushed to, as one element for each
                emission.

        Raises:
            ContinuousSyntaxError: the text is no query.
            UnsupportedContinuousQueryError: it cannot be run.
            UnknownStreamError, UnknownGraphError: by setting, it names one that does not exist.
            LimitError: there are as many queries as allowed.
        """
        self._check_open()
        query = parse(text, self.base)
        name = self._free_name(name)
        for clause in query.windows:
            self.stream(clause.stream)
        self._check_graphs(query.query.dataset)
        registered = RegisteredQuery(
            name, query, callback, Results(self.limits.backlog), self._close_query
        )
        policy = semantics or self.semantics
        if into is not None:
            if policy.relation == "rstream":
                # Each element that it makes would be an arrival at which it emits everything.
                raise UnsupportedContinuousQueryError(f"{policy.name} cannot feed a stream")
            self._feeds.add(registered, self.stream(into).name, self.queries)
        try:
            with self.dictionary.keeping():
                self._plans.add(registered, policy, alone=into is not None)
        except (UnsupportedQueryError, RecursionError) as error:
            self._give_up(name)
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UnsupportedContinuousQueryError(reason) from error
        except ContinuousError:
            self._give_up(name)
            raise
        self.forgetting.opened()
        self._until_housekeeping = 1
        if registered.plan is not None:
            self._housekeeping.added(registered.plan)
        self.queries[name] = registered
        return registered

    def _give_up(self, name: str) -> None:
        """Let go of what a query took that could not be registered."""
        self._feeds.remove(name)
        self._plans.drop_idle()

    def _close_query(self, registered: RegisteredQuery) -> None:
        if self.queries.pop(registered.name, None) is None:
            return
        self._feeds.remove(registered.name)
        self._plans.remove(registered)
        if registered.state == "running":
            registered.state = "closed"
        self.forgetting.closed(len(self.queries))

    # ----------------------------------------------------------------------------- elements

    def push(self, stream: str, element: Sequence[Any], timestamp: int | datetime) -> None:
        """An element arrives.

        Args:
            stream: the IRI of the stream.
            element: a triple of N-Triples texts, or several: a graph.
            timestamp: milliseconds since 1970, or an instant.

        Raises:
            ElementError: a term that is none.
            TimestampError: no instant.
            UnknownStreamError: see `stream`.
        """
        if self._closed:
            self._check_open()
        found = self.streams.get(stream) or self.stream(stream)  # type: ignore[call-overload]
        at = timestamp if type(timestamp) is int else milliseconds(timestamp)
        # What most elements come to, without the steps in between.
        known = (
            self._known_triple(*element) if type(element) is tuple and len(element) == 3 else None
        )
        triples = self._encoded(element) if known is None else [known]
        if self.reorders:
            self.arrive(found, triples, at)
        else:
            self._tick(found, triples, at)

    def record_feed(
        self, stream: str, predicates: Sequence[str], subjects: str | None = None
    ) -> RecordFeed:
        """A way in for elements with one subject and one value for each of these predicates.

        Args:
            stream: the IRI of the stream.
            predicates: IRIs.
            subjects: what the IRIs of subjects begin with, where they end in a number.
        """
        terms = [self.name(each) for each in predicates]
        feed = RecordFeed(self, self.stream(stream), terms, subjects)
        self._records.add(feed)
        return feed

    def _encoded(self, element: Sequence[Any]) -> list[EncodedTriple]:
        if not isinstance(element, Sequence):
            raise ElementError(f"neither a triple nor triples: {element!r}")
        if element and isinstance(element[0], str):
            return [self._encode_triple(element)]
        return [self._encode_triple(each) for each in element]

    def _encode_triple(self, triple: Sequence[str]) -> EncodedTriple:
        """The integers of a triple that comes with a stream.

        Raises:
            ElementError: it is none.
        """
        if isinstance(triple, Sequence) and len(triple) == 3:
            found = self._known_triple(*triple)
            if found is not None:
                return found
        elif isinstance(triple, str) or not isinstance(triple, Sequence):
            raise ElementError(f"neither a triple nor triples: {triple!r}")
        encode = self.dictionary.encode
        s, p, o = canonical_triple(triple, self._canonical)
        return encode(s), encode(p), encode(o)

    def _known_triple(self, s: Any, p: Any, o: Any) -> EncodedTriple | None:
        known = self.dictionary.known
        try:
            subject = known(s)
            predicate = known(p)
            object_ = known(o)
            if object_ is None and o:
                object_ = inlined_literal(o)
        except (TypeError, AttributeError):
            return None
        if subject is None or predicate is None or object_ is None:
            return None
        # What `may_begin` says, without the call.
        if s[0] == '"' or p[0] != "<" or s[1] == "<" or p[1] == "<":
            return None
        return subject, predicate, object_

    def _canonical(self, text: str) -> Term:
        # Who is in the table came through here.
        return Term(text) if self.dictionary.known(text) else canonical_term(text)

    def encode(self, term: str) -> int:
        """The integer of a term that comes with a stream.

        Raises:
            ElementError: it is no term.
        """
        found = self.dictionary.known(term)
        return self.dictionary.encode(canonical_term(term)) if found is None else found
