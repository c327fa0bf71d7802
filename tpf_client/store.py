"""A read-only rdflib store over fragments; its graph is the dataset's default graph.

```python
graph = rdflib.Graph(store="TPF")
graph.open("http://localhost:3000/trains")      # several URLs: with spaces between them
graph.query("SELECT ...")                       # by our engine, in few requests
graph.triples((None, RDF.type, None))
```
"""
# ruff: noqa: ARG002 - the signatures are rdflib's

from collections.abc import Generator, Iterator, Mapping
from typing import Any

import rdflib
from rdflib.query import Result
from rdflib.store import NO_STORE, VALID_STORE, Store
from rdflib.term import BNode, Identifier, Literal, URIRef, Variable

from annotations.terms import QuadPattern, TermOrVariable
from annotations.terms import Variable as OurVariable
from tpf_client.client import Client
from tpf_client.solutions import Solutions
from tpf_client.sparql.results import python_term, rdflib_term

_PLACES = ("s", "p", "o")


def _term_of(node: Identifier) -> TermOrVariable:
    if not isinstance(node, URIRef | BNode | Literal):
        raise TypeError(f"not an RDF term: {node!r}")
    return python_term(node)


class FragmentStore(Store):
    """The rdflib store named ``TPF``.

    `configuration` are URLs of datasets, separated by spaces (or `open` them later); `client`
    answers instead.
    """

    context_aware = False
    formula_aware = False
    transaction_aware = False
    graph_aware = False

    def __init__(
        self,
        configuration: str | None = None,
        identifier: Identifier | None = None,
        *,
        client: Client | None = None,
    ) -> None:
        self._client = client
        self._prefixes: dict[str, URIRef] = {}
        super().__init__(configuration, identifier)

    @property
    def client(self) -> Client:
        """The client.

        Raises:
            ValueError: the store is not open.
        """
        if self._client is None:
            raise ValueError("open the store with the URL of a dataset first")
        return self._client

    def open(self, configuration: str | tuple[str, str], create: bool = False) -> int | None:
        """Take the datasets of these URLs."""
        if create or not isinstance(configuration, str) or not configuration.split():
            return NO_STORE
        self.close()
        self._client = Client(*configuration.split())
        return VALID_STORE

    def close(self, commit_pending_transaction: bool = False) -> None:
        """Stop all requests."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def triples(
        self, triple_pattern: Any, context: Any = None
    ) -> Iterator[tuple[Any, Iterator[None]]]:
        """Yield the triples that match.

        Raises:
            SourceError: a fragment could not be fetched.
        """
        subject, predicate, object_ = (
            OurVariable(f"?{name}") if node is None else _term_of(node)
            for name, node in zip(_PLACES, triple_pattern, strict=True)
        )
        for triple in self.client.match(QuadPattern(subject, predicate, object_)):
            yield tuple(map(rdflib_term, triple)), iter(())

    def __len__(self, context: Any = None) -> int:
        return sum(1 for _ in self.triples((None, None, None)))

    def query(
        self,
        query: Any,
        initNs: Mapping[str, Any],  # noqa: N803 - as rdflib calls it
        initBindings: Mapping[str, Identifier],  # noqa: N803
        queryGraph: str,  # noqa: N803
        **kwargs: Any,
    ) -> Result:
        """Answer a query by our engine; rdflib evaluates prepared queries over `triples`.

        Raises:
            QueryError: it is invalid, or cannot be answered.
            SourceError: a fragment could not be fetched.
        """
        if not isinstance(query, str) or initBindings:
            raise NotImplementedError
        prefixes = "".join(f"PREFIX {name}: <{uri}> " for name, uri in initNs.items())
        answer = self.client.query(prefixes + query)
        if isinstance(answer, bool):
            result = Result("ASK")
            result.askAnswer = answer
        elif isinstance(answer, rdflib.Graph):
            result = Result("CONSTRUCT")
            result.graph = answer
        else:
            result = Result("SELECT")
            result.vars = [Variable(name) for name in answer.variables]
            result.bindings = _bindings(answer)
        return result

    def bind(self, prefix: str, namespace: URIRef, override: bool = True) -> None:
        """Remember a prefix, here only."""
        if override or prefix not in self._prefixes:
            self._prefixes[prefix] = namespace

    def prefix(self, namespace: URIRef) -> str | None:
        """The prefix of a namespace."""
        return next((name for name, each in self._prefixes.items() if each == namespace), None)

    def namespace(self, prefix: str) -> URIRef | None:
        """The namespace of a prefix."""
        return self._prefixes.get(prefix)

    def namespaces(self) -> Iterator[tuple[str, URIRef]]:
        """All prefixes."""
        return iter(self._prefixes.items())

    def add(self, triple: Any, context: Any = None, quoted: bool = False) -> None:
        """Refused.

        Raises:
            TypeError: always.
        """
        raise TypeError("fragments are read-only")

    def remove(self, triple: Any, context: Any = None) -> None:
        """Refused.

        Raises:
            TypeError: always.
        """
        raise TypeError("fragments are read-only")


def _bindings(answer: Solutions) -> Generator[dict[Variable, Identifier], None, None]:
    for solution in answer:
        yield {Variable(name): value for name, value in solution.items()}
