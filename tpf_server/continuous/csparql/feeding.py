"""Which queries make the streams that others read, and so in which order they are evaluated."""

from collections.abc import Iterable

from annotations.terms import Term
from tpf_server.continuous.csparql.registered_query import RegisteredQuery
from tpf_server.continuous.engine.errors import UnsupportedContinuousQueryError


class Feeding:
    """Streams that are made from streams: by queries, and by others who say so."""

    def __init__(self) -> None:
        self._links: dict[str, tuple[Term, frozenset[Term]]] = {}
        self._makers: dict[Term, list[RegisteredQuery]] = {}

    def add(self, registered: RegisteredQuery) -> None:
        """A query may make a stream."""
        if registered.stream is not None:
            self._makers.setdefault(registered.stream, []).append(registered)

    def remove(self, registered: RegisteredQuery) -> None:
        """It makes it no more."""
        if registered.stream is not None:
            self._makers[registered.stream].remove(registered)
            if not self._makers[registered.stream]:
                del self._makers[registered.stream]

    def link(self, name: str, made: Term, reads: Iterable[Term]) -> None:
        """Somebody of this name makes a stream from others."""
        self._links[name] = (made, frozenset(reads))

    def unlink(self, name: str) -> None:
        """Nobody of this name makes a stream any more."""
        self._links.pop(name, None)

    def ranks(self, queries: Iterable[RegisteredQuery]) -> dict[RegisteredQuery, int]:
        """The rank of each of these queries, and of those whose triples they read.

        It is higher than those of all queries whose triples a query reads.

        Raises:
            UnsupportedContinuousQueryError: a query would feed itself, or it reads what are no
                triples.
        """
        makers = self._makers
        ranks: dict[RegisteredQuery, int] = {}

        def rank(query: RegisteredQuery, above: tuple[str, ...]) -> int:
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
                    if maker.query.query.form == "SELECT":
                        raise UnsupportedContinuousQueryError(
                            f"{query.name} reads {stream}, whose elements are no triples: "
                            f"{maker.name} is a SELECT"
                        )
        return ranks

    def of_one_stream(
        self, queries: Iterable[RegisteredQuery]
    ) -> dict[Term, list[RegisteredQuery]]:
        """The queries all of whose elements come from one stream, by that stream."""
        sources: dict[RegisteredQuery, frozenset[Term]] = {}

        def sources_of(query: RegisteredQuery) -> frozenset[Term]:
            if query not in sources:
                found: set[Term] = set()
                for stream in {origin for each in query.reads for origin in self._origins(each)}:
                    makers = self._makers.get(stream, ())
                    found.update(*map(sources_of, makers))
                    if not makers and all(stream != made for made, _ in self._links.values()):
                        found.add(stream)
                sources[query] = frozenset(found)
            return sources[query]

        alone: dict[Term, list[RegisteredQuery]] = {}
        for query in queries:
            if len(sources_of(query)) == 1:
                (stream,) = sources_of(query)
                alone.setdefault(stream, []).append(query)
        return alone

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
