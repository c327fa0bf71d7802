"""What comes out of a query at an instant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from annotations.terms import Term, Variable
from tpf_client.dataflow.construct import construct
from tpf_client.sparql.algebra import Query, Row
from tpf_server.continuous.engine.elements.elements import in_graph


@dataclass(frozen=True, slots=True)
class PeriodicAnswer:
    """The whole result at an instant (RStream).

    Args:
        query: the name of the query.
        at: the instant, in milliseconds since 1970.
        form: SELECT, ASK, CONSTRUCT or DESCRIBE.
        variables: of the rows; those of a triple are ``?s``, ``?p`` and ``?o``.
        rows: solutions in their order, with repetitions; the triples of a graph, each once; for
            ASK one empty row where the answer is yes.
    """

    query: str
    at: int
    form: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    @property
    def boolean(self) -> bool:
        """The answer of ASK."""
        return bool(self.rows)

    @property
    def makes_triples(self) -> bool:
        """Whether triples came out, which can be elements of a stream."""
        return bool(self.rows) and self.form in ("CONSTRUCT", "DESCRIBE")

    @property
    def elements(self) -> Sequence[Sequence[tuple[Term, Term, Term]]]:
        """What triples come into a stream as: one element; where they are in graphs, one of each.

        The triples of no graph are one, too.
        """
        found: dict[Term | None, list[tuple[Term, Term, Term]]] = {}
        for s, p, o, *graph in self.rows:
            found.setdefault(graph[0] if graph else None, []).append((s, p, o))  # type: ignore[arg-type]
        return [in_graph(name, triples) for name, triples in found.items()]


_TRIPLE = (Variable("?s"), Variable("?p"), Variable("?o"))


def answer_of(
    name: str, at: int, query: Query, variables: Sequence[Variable], rows: Iterable[Row]
) -> PeriodicAnswer:
    """The answer that solutions make.

    Args:
        name: of the query.
        at: the instant.
        query: what makes solutions into an answer.
        variables: of the solutions.
        rows: the solutions (for DESCRIBE: the triples).
    """
    match query.form:
        case "CONSTRUCT":
            numbers = count()
            triples = construct(query.template, variables, rows, lambda _: f"c{at}x{next(numbers)}")
            return PeriodicAnswer(name, at, "CONSTRUCT", _TRIPLE, tuple(dict.fromkeys(triples)))
        case "DESCRIBE":
            return PeriodicAnswer(name, at, "DESCRIBE", _TRIPLE, tuple(dict.fromkeys(rows)))
        case "ASK":
            return PeriodicAnswer(name, at, "ASK", (), ((),) if any(True for _ in rows) else ())
        case _:
            return PeriodicAnswer(name, at, "SELECT", tuple(variables), tuple(rows))
