"""What a user of the client sees: solutions of rdflib terms, and their formats."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import rdflib
from rdflib.query import Result
from rdflib.term import BNode, Identifier, Literal, URIRef

from annotations.terms import (
    Term,
    TriplePattern,
    Variable,
    is_blank_node,
    is_iri,
    is_literal,
    is_variable,
    literal_parts,
)

if TYPE_CHECKING:
    import pandas

Row: TypeAlias = tuple[Term | None, ...]
_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"


def rdflib_term(term: str) -> Identifier:
    """The rdflib term of a term; a lexical form is kept as it is.

    rdflib has no triple terms: they become literals of their N-Triples text with the datatype
    ``rdf:tripleTerm``.
    """
    if is_iri(term):
        return URIRef(term[1:-1])
    if is_blank_node(term):
        return BNode(term[2:])
    if is_literal(term):
        parts = literal_parts(term)
        if parts.language is not None:
            return Literal(parts.lexical, lang=parts.language.partition("--")[0])
        datatype = None if parts.datatype == _XSD_STRING else URIRef(parts.datatype)
        return Literal(parts.lexical, datatype=datatype, normalize=False)
    triple_term = "http://www.w3.org/1999/02/22-rdf-syntax-ns#tripleTerm"
    return Literal(term, datatype=URIRef(triple_term), normalize=False)


class Solution(Mapping[str, Identifier]):
    """One solution: the values of those variables that have one, by name.

    ``solution["delay"]`` and ``solution.delay``; a variable without a value is absent.
    """

    __slots__ = ("_variables", "row")

    def __init__(self, variables: tuple[Variable, ...], row: Row) -> None:
        self._variables = variables
        self.row = row

    def __getitem__(self, name: str) -> Identifier:
        wanted = name if name.startswith("?") else f"?{name}"
        for variable, term in zip(self._variables, self.row, strict=True):
            if variable == wanted and term is not None:
                return rdflib_term(term)
        raise KeyError(name)

    def __getattr__(self, name: str) -> Identifier:
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

    def to_json(self) -> dict[str, dict[str, str]]:
        """The solution as a binding of the SPARQL 1.1 Query Results JSON Format."""
        pairs = zip(self._variables, self.row, strict=True)
        return {name[1:]: json_term(term) for name, term in pairs if term is not None}


def json_term(term: str) -> dict[str, str]:
    """A term in the SPARQL 1.1 Query Results JSON Format."""
    if is_iri(term):
        return {"type": "uri", "value": term[1:-1]}
    if is_blank_node(term):
        return {"type": "bnode", "value": term[2:]}
    if not is_literal(term):
        return {"type": "triple", "value": term}
    parts = literal_parts(term)
    result = {"type": "literal", "value": parts.lexical}
    if parts.language is not None:
        result["xml:lang"] = parts.language
    elif parts.datatype != _XSD_STRING:
        result["datatype"] = parts.datatype
    return result


class Solutions:
    """The solutions of a SELECT query: iterate once as they come, or ask for all.

    Args:
        variables: the variables of the query.
        rows: the solutions, as they become known.
        close: stops what is still under way.
    """

    def __init__(
        self,
        variables: tuple[Variable, ...],
        rows: Iterable[Row],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._variables = variables
        self._rows = iter(rows)
        self._kept: list[Row] = []
        self._close = close

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, without their question marks."""
        return tuple(name[1:] for name in self._variables)

    def __iter__(self) -> Iterator[Solution]:
        """The solutions; those seen once are kept, so that iterating again is possible."""
        place = 0
        while True:
            while place < len(self._kept):
                yield Solution(self._variables, self._kept[place])
                place += 1
            row = next(self._rows, None)
            if row is None:
                return
            self._kept.append(row)

    def close(self) -> None:
        """Stop what is still under way."""
        self._close()

    def to_pandas(self) -> "pandas.DataFrame":
        """The solutions as a table of Python values; ``None`` where a variable has none.

        Raises:
            ImportError: pandas is not installed.
        """
        return table(self.variables, self)

    def serialize(self, format: str = "json") -> str:  # noqa: A002 - as rdflib calls it
        """The solutions as text: ``json``, ``xml``, ``csv`` or ``tsv``.

        Source: the SPARQL 1.1 Query Results formats.

        Raises:
            ValueError: another format.
        """
        return serialize(self.variables, self, format)


def table(variables: tuple[str, ...], solutions: Iterable[Solution]) -> "pandas.DataFrame":
    """Solutions as a pandas table."""
    import pandas

    rows = [[_python_value(solution.get(name)) for name in variables] for solution in solutions]
    return pandas.DataFrame(rows, columns=list(variables), dtype=object).infer_objects()


def _python_value(term: Identifier | None) -> Any:
    if isinstance(term, Literal):
        value = Literal(str(term), lang=term.language, datatype=term.datatype).toPython()
        return str(term) if isinstance(value, Literal) else value
    return None if term is None else str(term)


def serialize(variables: tuple[str, ...], solutions: Iterable[Solution], form: str) -> str:
    """Solutions in one of the SPARQL result formats.

    Raises:
        ValueError: an unknown format.
    """
    if form == "tsv":
        lines = ["\t".join(f"?{name}" for name in variables)]
        lines += [
            "\t".join(term if term is not None else "" for term in solution.row)
            for solution in solutions
        ]
        return "\n".join(lines) + "\n"
    if form not in ("json", "xml", "csv"):
        raise ValueError(f"no format {form!r}: json, xml, csv or tsv")
    result = Result("SELECT")
    result.vars = [rdflib.Variable(name) for name in variables]
    result.bindings = [
        {rdflib.Variable(name): value for name, value in solution.items()} for solution in solutions
    ]
    stream = io.BytesIO()
    result.serialize(stream, format=form)
    return stream.getvalue().decode()


def construct(
    template: Iterable[TriplePattern], variables: tuple[Variable, ...], rows: Iterable[Row]
) -> rdflib.Graph:
    """The graph that a template makes of solutions.

    A triple with an unbound variable, or that is none in RDF, is left out; blank nodes of the
    template are new ones for each solution (SPARQL 1.1 Query Language, section 16.2).
    """
    graph = rdflib.Graph()
    template = tuple(template)
    for number, row in enumerate(rows):
        binding = dict(zip(variables, row, strict=True))
        for triple in template:
            terms = [_filled(term, binding, number) for term in triple]
            if None in terms:
                continue
            subject, predicate, object_ = terms
            if isinstance(subject, (URIRef, BNode)) and isinstance(predicate, URIRef):
                assert object_ is not None
                graph.add((subject, predicate, object_))
    return graph


def _filled(term: str, binding: Mapping[Variable, Term | None], number: int) -> Identifier | None:
    if is_variable(term):
        value = binding.get(Variable(term))
        return None if value is None else rdflib_term(value)
    if is_blank_node(term):
        return BNode(f"{term[2:]}r{number}")
    return rdflib_term(term)
