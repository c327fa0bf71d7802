"""From an answer to what is streamed of it: RStream, IStream, DStream; also triples in graphs."""

from collections import Counter
from collections.abc import Iterable, Sequence

from annotations.terms import (
    Term,
    TermOrVariable,
    TriplePattern,
    Variable,
    is_blank_node,
    is_variable,
)
from tpf_client.sparql.algebra import Row
from tpf_server.continuous.csparql.answers import PeriodicAnswer
from tpf_server.continuous.engine.elements.elements import may_begin
from tpf_server.continuous.rspql.reports import StreamOperator

_QUAD = (Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))


def rows_to_stream(
    operator: StreamOperator, before: Counter[Row], rows: Sequence[Row]
) -> tuple[list[Row], Counter[Row]]:
    """What an answer has more (ISTREAM) or less (DSTREAM) than that of before; and its rows.

    Args:
        operator: which of the two.
        before: the rows of the answer of before; solutions are bags.
        rows: the answer.
    """
    now = Counter(rows)
    if operator == "DSTREAM":
        return list((before - now).elements()), now
    left = +before
    found = []
    for row in rows:
        if left[row] > 0:
            left[row] -= 1
        else:
            found.append(row)
    return found, now


def changed(
    operator: StreamOperator, before: Counter[Row], changes: Iterable[tuple[Row, int]]
) -> list[Row]:
    """The same, where it is known what came and went; `before` becomes the answer.

    Args:
        operator: ISTREAM or DSTREAM.
        before: the rows of the answer of before.
        changes: rows, and how often they came (more than 0) or went (less).
    """
    wanted = 1 if operator == "ISTREAM" else -1
    found: list[Row] = []
    for row, count in changes:
        total = before[row] + count
        if total:
            before[row] = total
        else:
            del before[row]
        found += [row] * (wanted * count)
    return found


def quads_of(
    name: str,
    at: int,
    template: Sequence[TriplePattern],
    graphs: Sequence[TermOrVariable | None],
    variables: Sequence[Variable],
    rows: Sequence[Row],
) -> PeriodicAnswer:
    """The answer of CONSTRUCT with GRAPH in its template: rows of triples with their graphs.

    Args:
        name: of the query.
        at: the instant.
        template: its triples.
        graphs: of these, by their places; ``None``: of no graph.
        variables: of the solutions.
        rows: the solutions.
    """
    values = {variable: place for place, variable in enumerate(variables)}
    blanks: dict[str, int] = {}
    found: dict[Row, None] = {}
    for number, row in enumerate(rows):

        def term(text: str | None, row: Row = row, number: int = number) -> Term | None:
            if text is None:
                return None
            if is_variable(text):
                place = values.get(Variable(text))
                return None if place is None else row[place]
            if is_blank_node(text):
                return Term(f"_:c{at}x{number}b{blanks.setdefault(text, len(blanks))}")
            return Term(text)

        for triple, graph in zip(template, graphs, strict=True):
            s, p, o = (term(each) for each in triple)
            where = term(graph)
            if (
                s is not None
                and p is not None
                and o is not None
                and may_begin(s, p)
                and (graph is None or (where is not None and may_begin(where, p)))
            ):
                found[s, p, o, where] = None
    return PeriodicAnswer(name, at, "CONSTRUCT", _QUAD, tuple(found))
