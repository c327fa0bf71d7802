"""What comes out of a query at an instant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from annotations.terms import Term, TermOrVariable, Variable, is_variable
from tpf_client.sparql.algebra import Query

Row = tuple[Term | None, ...]


@dataclass(frozen=True, slots=True)
class Answer:
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


_TRIPLE = (Variable("?s"), Variable("?p"), Variable("?o"))


def answer_of(
    name: str, at: int, query: Query, variables: Sequence[Variable], rows: Iterable[Row]
) -> Answer:
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
            return Answer(name, at, "CONSTRUCT", _TRIPLE, _constructed(query, variables, rows, at))
        case "DESCRIBE":
            return Answer(name, at, "DESCRIBE", _TRIPLE, tuple(dict.fromkeys(rows)))
        case "ASK":
            return Answer(name, at, "ASK", (), ((),) if any(True for _ in rows) else ())
        case _:
            return Answer(name, at, "SELECT", tuple(variables), tuple(rows))


def _constructed(
    query: Query, variables: Sequence[Variable], rows: Iterable[Row], at: int
) -> tuple[Row, ...]:
    """The graph of a CONSTRUCT template; what would not be RDF is left out."""
    result: dict[Row, None] = {}
    for number, row in enumerate(rows):
        values = dict(zip(variables, row, strict=True))
        for pattern in query.template:
            triple = tuple(_place(term, values, f"{at}x{number}") for term in pattern)
            subject, predicate, object_ = triple
            if (
                subject is not None
                and subject[0] != '"'
                and predicate is not None
                and predicate[0] == "<"
                and object_ is not None
            ):
                result[triple] = None
    return tuple(result)


def _place(term: TermOrVariable, values: dict[Variable, Term | None], instance: str) -> Term | None:
    if is_variable(term):
        return values.get(Variable(term))
    if term.startswith("_:"):
        # A blank node of the template is a new one for each solution of each evaluation.
        return Term(f"_:{term[2:]}x{instance}")
    return Term(term)
