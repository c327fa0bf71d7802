"""Which queries make the streams that others read, and so in which order they are evaluated."""

from collections.abc import Iterable
from typing import NamedTuple

from annotations.terms import Term
from tpf_server.continuous.csparql.periodic_query import PeriodicQuery
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError


class Streams(NamedTuple):
    """The streams of a query.

    Args:
        seen: whose elements it sees, also by what others make of them.
        awaited: those of them that nobody makes.
    """

    seen: frozenset[Term]
    awaited: frozenset[Term]


class Feeding:
    """Streams that are made from streams: by queries, and by others who say so."""

    def __init__(self) -> None:
        self._links: dict[str, tuple[Term, frozenset[Term]]] = {}
        self._makers: dict[Term, list[PeriodicQuery]] = {}

    def add(self, registered: PeriodicQuery) -> None:
        """A query may make a stream."""
        if registered.stream is not None:
            self._makers.setdefault(registered.stream, []).append(registered)

    def remove(self, registered: PeriodicQuery) -> None:
        """It makes it no more."""
        if registered.stream is not None:
            self._makers[registered.stream].remove(registered)
            if not self._makers[registered.stream]:
                del self._makers[registered.stream]

    def link(self, name: str, made: Term, reads: Iterable[Term]) -> None:
        """Somebody of this name makes a stream from others."""
        self._links[name] = (made, frozenset(reads))

    def unlink(self, name: str) -> bool:
        """Nobody of this name makes a stream any more; whether somebody did."""
        return self._links.pop(name, None) is not None

    def ranks(self, queries: Iterable[PeriodicQuery]) -> dict[PeriodicQuery, int]:
        """The rank of each of these queries, and of those whose triples they read.

        It is higher than those of all queries whose triples a query reads.

        Raises:
            UnsupportedContinuousQueryError: a query would feed itself, or it reads what are no
                triples.
        """
        makers = self._makers
        ranks: dict[PeriodicQuery, int] = {}

        def rank(query: PeriodicQuery, above: tuple[str, ...]) -> int:
            if query.name in above:
                raise UnsupportedContinuousQueryError(
                    f"{query.name} would feed itself through its streams"
                )
            if query not in ranks:
                origins = {stream for each in query.reads for stream in self._origins(each)}
                path = (*above, query.name)
                below = [rank(e, path) for stream in origins for e in makers.get(stream, ())]
                ranks[query] = 1 + max(below, default=0)
            return ranks[query]

        for query in queries:
            rank(query, ())
            for stream in query.reads:
                for maker in makers.get(stream, ()):
                    if maker.query.query.form in ("SELECT", "ASK"):
                        raise UnsupportedContinuousQueryError(
                            f"{query.name} reads {stream}, whose elements are no triples: "
                            f"{maker.name} is a {maker.query.query.form}"
                        )
        return ranks

    def streams_of(self, query: PeriodicQuery) -> Streams:
        """The streams whose elements come to a query, also by what others make of them."""
        return self.streams_from(query.reads)

    def streams_from(self, reads: Iterable[Term]) -> Streams:
        """The streams whose elements come to who reads these."""
        seen: set[Term] = set()
        awaited: set[Term] = set()
        asked = list(reads)
        while asked:
            stream = asked.pop()
            if stream in seen:
                continue
            seen.add(stream)
            made_from = [each.reads for each in self._makers.get(stream, ())]
            made_from += [reads for made, reads in self._links.values() if made == stream]
            if not made_from:
                awaited.add(stream)
            for each in made_from:
                asked += each
        return Streams(frozenset(seen), frozenset(awaited))

    def _origins(self, stream: Term) -> set[Term]:
        """The stream, and those that somebody else makes it from."""
        found: set[Term] = set()
        asked = [stream]
        while asked:
            each = asked.pop()
            if each not in found:
                found.add(each)
                asked += (s for made, reads in self._links.values() if made == each for s in reads)
        return found
