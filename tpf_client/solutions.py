"""Solutions of rdflib terms, for users of the client, and their formats."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from annotations.errors import TermError
from annotations.terms import Term, Variable, is_blank_node
from tpf_client.errors import ClosedError, QueryError, check_argument
from tpf_client.sparql import results
from tpf_client.sparql.algebra import Row
from tpf_client.sparql.results import rdflib_term

if TYPE_CHECKING:
    import pandas
    import rdflib
    from rdflib.term import Identifier


def bound_terms(bindings: Mapping[str, object]) -> tuple[tuple[Variable, Term], ...]:
    """Return terms for variables, whose names may have question marks.

    Raises:
        QueryError: a blank node, which would match any term, or an IRI that cannot be written.
        TypeError: a value that is neither a term of rdflib nor a Python value of a literal.
    """
    bound = []
    for name, value in bindings.items():
        check_argument("the name of a variable", name, str)
        try:
            term = results.python_term(value)
        except TermError as error:
            raise QueryError(f"?{name.lstrip('?')}: {error}") from None
        except TypeError as error:
            raise TypeError(f"?{name.lstrip('?')}: {error}") from None
        if is_blank_node(term):
            raise QueryError(f"?{name.lstrip('?')}: a blank node cannot be asked for")
        bound.append((Variable(f"?{name.lstrip('?')}"), term))
    return tuple(bound)


def plain_names(variables: Sequence[Variable]) -> tuple[str, ...]:
    """Return names of variables without question marks."""
    return tuple(name[1:] for name in variables)


class Solution(Mapping[str, "Identifier"]):
    """One solution: the values of its bound variables by name.

    ``solution["delay"]`` and ``solution.delay``; an unbound variable is absent.
    """

    __slots__ = ("_variables", "row")

    def __init__(self, variables: tuple[Variable, ...], row: Row) -> None:
        self._variables = variables
        self.row = row

    def __getitem__(self, name: object) -> "Identifier":
        if not isinstance(name, str):
            names = ", ".join(map(repr, self)) or "none has a value"
            raise TypeError(f"a solution is read by names of variables ({names}), not by {name!r}")
        variable_name = name if name.startswith("?") else f"?{name}"
        for variable, term in zip(self._variables, self.row, strict=True):
            if variable == variable_name and term is not None:
                return _shown(term)
        raise KeyError(name)

    def __getattr__(self, name: str) -> "Identifier":
        if name.startswith("__"):
            # Copies and pickles are asked for these before they have any attribute.
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no value for ?{name}") from None

    def __iter__(self) -> Iterator[str]:
        for variable, term in zip(self._variables, self.row, strict=True):
            if term is not None:
                yield variable[1:]

    def __len__(self) -> int:
        return sum(term is not None for term in self.row)

    def __hash__(self) -> int:
        return hash(self.row)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Solution):
            return (self._variables, self.row) == (other._variables, other.row)
        return super().__eq__(other)

    def __repr__(self) -> str:
        pairs = zip(self._variables, self.row, strict=True)
        return "{" + ", ".join(f"{name} {term}" for name, term in pairs if term is not None) + "}"

    def json_text(self) -> str:
        """The text of `to_json`."""
        return results.json_text(self._variables, self.row)

    def to_json(self) -> dict[str, Any]:
        """Return the solution as a binding of SPARQL 1.1 Query Results JSON."""
        return results.json_binding(self._variables, self.row)


def _shown(term: Term) -> "Identifier":
    try:
        return rdflib_term(term)
    except ImportError:
        plain: Any = term
        return plain  # type: ignore[no-any-return]


class Solutions:
    """The solutions of a SELECT query: iterate as they come, or read all; several threads may.

    `close` stops what still runs.
    """

    def __init__(
        self,
        variables: tuple[Variable, ...],
        rows: Iterable[Row],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._variables = variables
        self._rows = self._counted(rows)
        self._kept: list[Row] = []
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._in_pieces = False
        self._close = close
        self.count = 0
        """How many came so far."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, without question marks."""
        return plain_names(self._variables)

    def __iter__(self) -> Iterator[Solution]:
        """Yield the solutions; they are kept for another iteration.

        Raises:
            SourceError: a source failed, for this or an earlier reader.
        """
        index = 0
        while (row := self._row(index)) is not None:
            yield Solution(self._variables, row)
            index += 1

    def _row(self, index: int) -> Row | None:
        with self._lock:
            if index == len(self._kept):
                if self._error is not None:
                    raise self._error
                if self._in_pieces:
                    raise ClosedError("these solutions were read in pieces, which keeps none")
                try:
                    row = next(self._rows, None)
                except BaseException as error:
                    # Rows that raised are over: for the next reader they would seem complete.
                    interrupted = ClosedError("reading these solutions was interrupted")
                    self._error = error if isinstance(error, Exception) else interrupted
                    raise
                if row is None:
                    return None
                self._kept.append(row)
            return self._kept[index]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Return true if there is a solution, which alone is read."""
        return self._row(0) is not None

    def fetchall(self) -> list[Solution]:
        """Return all solutions."""
        return [*iter(self)]

    def _repr_html_(self) -> str:
        return html_table(self.variables, self)

    def _counted(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self.count += 1
            yield row

    def close(self) -> None:
        """Stop what is still under way."""
        self._close()

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a table of Python values; ``None`` where unbound.

        Raises:
            ImportError: pandas is not installed.
        """
        return data_frame(self.variables, self)

    def serialize(self, format: str = "json") -> str:  # noqa: A002 - as rdflib calls it
        """Write the solutions as ``json``, ``xml``, ``csv``, ``tsv`` (SPARQL 1.1) or ``ndjson``.

        NDJSON has a solution's JSON binding in each line.

        Raises:
            ValueError: another format.
            ResultError: a solution that this format cannot express.
        """
        write = _writer(format)
        return "".join(write(self._variables, (solution.row for solution in self)))

    def pieces(self, format: str = "json") -> Iterator[str]:  # noqa: A002 - as above
        """Yield the text of `serialize` as the solutions come, without keeping them.

        Raises:
            ValueError: another format.
            ResultError: a solution that this format cannot express.
            SourceError: a source failed; the answer is incomplete.
            ClosedError: they were read like that before.
        """
        with self._lock:
            if self._in_pieces:
                raise ClosedError("these solutions were read in pieces, which keeps none")
            if self._error is not None:
                raise self._error
            self._in_pieces = True
        return _writer(format)(self._variables, chain(tuple(self._kept), self._rows))


def _writer(name: str) -> results.ResultWriter:
    if name not in results.RESULT_WRITERS:
        raise ValueError(f"no format {name!r}: {', '.join(results.RESULT_WRITERS)}")
    return results.RESULT_WRITERS[name]


_SHOWN = 50


def html_table(variables: Sequence[str], solutions: Iterable[Solution]) -> str:
    """The first solutions as an HTML table; a last row tells whether there are more."""
    from html import escape  # the standard library of a browser tab has no such module

    rows = [*islice(iter(solutions), _SHOWN + 1)]
    cells = [[escape(str(each.get(name, ""))) for name in variables] for each in rows[:_SHOWN]]
    lines = ["".join(f"<td>{cell}</td>" for cell in row) for row in cells]
    if len(rows) > _SHOWN:
        lines.append(f'<td colspan="{max(len(variables), 1)}">…</td>')
    head = "".join(f"<th>{escape(name)}</th>" for name in variables)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def data_frame(variables: tuple[str, ...], solutions: Iterable[Solution]) -> "pandas.DataFrame":
    """Solutions as a pandas table."""
    import pandas

    rows = [[_python_value(solution.get(name)) for name in variables] for solution in solutions]
    return pandas.DataFrame(rows, columns=list(variables), dtype=object).infer_objects()


def _python_value(term: "Identifier | None") -> Any:
    from rdflib.term import Literal

    if isinstance(term, Literal):
        value = term.toPython()
        return str(term) if isinstance(value, Literal) else value
    return None if term is None else str(term)


def rdflib_graph(triples: Iterable[Sequence[Term | None]]) -> "rdflib.Graph":
    """Triples as a graph."""
    import rdflib

    graph = rdflib.Graph()
    for triple in triples:
        subject, predicate, object_ = (rdflib_term(term) for term in triple if term)
        graph.add((subject, predicate, object_))
    return graph


def graph_text(graph: "rdflib.Graph", form: str) -> str:
    """Write a graph as ``turtle``, ``nt``, ``xml`` or ``json-ld``.

    Raises:
        ResultError: a term that this format cannot express.
    """
    try:
        text = graph.serialize(format=form)
        if form == "xml":
            results.check_xml(text)  # rdflib writes them as they are
    except ValueError as error:
        raise results.ResultError(f"this graph cannot be written as {form}: {error}") from error
    return text
