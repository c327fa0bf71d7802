"""Which queries make the streams that others read, and so in which order they are evaluated."""

from collections.abc import Iterable, Mapping

from annotations.terms import Term
from tpf_server.cqels.errors import UnsupportedContinuousQueryError
from tpf_server.csparql.registered_query import RegisteredQuery


class Feeding:
    """Streams that are made from streams: by queries, and by others who say so."""

    def __init__(self) -> None:
        self._links: dict[str, tuple[Term, frozenset[Term]]] = {}

    def link(self, name: str, made: Term, reads: Iterable[Term]) -> None:
        """Somebody of this name makes a stream from others."""
        self._links[name] = (made, frozenset(reads))

    def unlink(self, name: str) -> None:
        """Nobody of this name makes a stream any more."""
        self._links.pop(name, None)

    def ranks(self, queries: Mapping[str, RegisteredQuery]) -> dict[str, int]:
        """The rank of each query: higher than those of all queries whose triples it reads.

        Raises:
            UnsupportedContinuousQueryError: a query would feed itself, or it reads what are no
                triples.
        """
        makers = {each.stream: each for each in queries.values() if each.stream is not None}
        ranks: dict[str, int] = {}

        def rank(query: RegisteredQuery, above: tuple[str, ...]) -> int:
            if query.name in above:
                raise UnsupportedContinuousQueryError(
                    f"{query.name} would feed itself through its streams"
                )
            if query.name not in ranks:
                origins = {stream for each in query.reads for stream in self._origins(each)}
                path = (*above, query.name)
                below = [rank(makers[stream], path) for stream in origins if stream in makers]
                ranks[query.name] = 1 + max(below, default=0)
            return ranks[query.name]

        for query in queries.values():
            rank(query, ())
            for stream in query.reads:
                maker = makers.get(stream)
                if maker is not None and maker.query.query.form == "SELECT":
                    raise UnsupportedContinuousQueryError(
                        f"{query.name} reads {stream}, whose elements are no triples: "
                        f"{maker.name} is a SELECT"
                    )
        return ranks

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
