"""C-SPARQL: SPARQL 1.1 with registration, windows over streams, AGGREGATE and timestamps.

What differs from SPARQL 1.1, beside the new clauses:

- Prologue and dataset clauses may also stand before and after REGISTER … AS.
- A variable may have hyphens in its name (``?total-sensor``), and commas may separate the
  variables of SELECT; the paper writes both.
- ``^^`` before a variable is the conjunction that the paper prints so (section 3.4).
- FROM STREAM and AGGREGATE belong to the outermost query only.
- A relative IRI, and the name of a registered stream, is relative to `BASE`.

Source: paper 003, section 2.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Final

from annotations.terms import Term, Variable, iri
from tpf_client.sparql.algebra import (
    Aggregate,
    Aggregated,
    Call,
    Constant,
    DatasetClause,
    Expression,
    Filter,
    PathExpression,
    Pattern,
    Repeat,
    VariableRef,
)
from tpf_client.sparql.iris import resolve
from tpf_client.sparql.parser import QueryParser
from tpf_client.sparql.scopes import in_scope
from tpf_client.sparql.tokens import Token
from tpf_server.continuous.csparql.csparql_query import (
    CsparqlQuery,
    LogicalWindow,
    PhysicalWindow,
    RegisterClause,
    SteppedWindow,
    StreamClause,
)
from tpf_server.continuous.engine.errors import as_continuous_errors
from tpf_server.continuous.engine.semantics import BASE
from tpf_server.continuous.engine.static.service_clauses import with_graphs
from tpf_server.continuous.engine.windows.specification import nanoseconds_of

# How the paper writes C-SPARQL, where that is not how SPARQL is written.


def words_of_the_paper(tokens: list[Token]) -> list[Token]:
    """Join hyphenated names, drop commas between selected variables, read ``^^ ?v`` as ``&&``."""
    result: list[Token] = []
    selecting = False
    depth = 0
    for place, token in enumerate(tokens):
        if token.kind == "word" and token.text.upper() in ("SELECT", "FROM", "WHERE"):
            selecting, depth = token.text.upper() == "SELECT", 0
        elif token.kind == "sign":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
            if token.text == "{":
                selecting = False
            elif token.text == "," and selecting and not depth:
                continue
            elif token.text == "^^" and tokens[place + 1].kind == "variable":
                token = token._replace(text="&&")
        last = result[-1] if result else None
        if (
            token.kind == "word"
            and last is not None
            and len(result) > 1
            and last.text == "-"
            and last.end == token.position
            and result[-2].kind == "variable"
            and result[-2].end == last.position
            and tokens[place + 1].text != "("
        ):
            result.pop()
            name = result.pop()
            token = Token("variable", f"{name.text}-{token.text}", name.position)
        result.append(token)
    return result


TIMESTAMP: Final = "TIMESTAMP"
"""The name of the timestamp function in `Call`."""

_FUNCTIONS = ("COUNT", "SUM", "AVG", "MIN", "MAX")


@lru_cache(maxsize=512)
def parse(text: str, base: str = BASE) -> CsparqlQuery:
    """Read a C-SPARQL query.

    Raises:
        ContinuousSyntaxError: the text is no query, or its clauses contradict each other; it knows
            line and column.
        UnsupportedContinuousQueryError: the algebra cannot say it.
    """
    with as_continuous_errors():
        return CsparqlParser(text, base).registered_query()


class CsparqlParser(QueryParser):
    """Reads C-SPARQL."""

    def __init__(self, text: str, base: str | None = BASE) -> None:
        super().__init__(text, base)
        self._tokens = words_of_the_paper(self._tokens)
        self._streams: list[StreamClause] = []
        self._early = DatasetClause()
        self._nesting = 0
        self._timestamps: list[tuple[Variable, Term | Variable | None, int]] = []
        self._paths: list[tuple[PathExpression, int]] = []

    # ----------------------------------------------------------------------- registration

    def registered_query(self) -> CsparqlQuery:
        """The whole text."""
        self.prologue()
        registration, kind = self._registration()
        self.prologue()
        if self.at_word("FROM"):
            self._early = self._dataset()
            self.prologue()
        form = self.token
        query = self.query()
        if registration is not None and kind is not None:
            if registration.kind == "stream" and query.form == "ASK":
                self.fail("REGISTER STREAM needs triples, and ASK gives none", form.position)
            if not self._streams and registration.every is None:
                self.fail(
                    "neither FROM STREAM nor COMPUTED EVERY says when to evaluate this",
                    kind.position,
                )
        query = replace(query, dataset=_merged(self._early, query.dataset))
        self._check_timestamps()
        streams, paths = tuple(self._streams), tuple(self._paths)
        query, services = with_graphs(query)
        return CsparqlQuery(query, streams, registration, self.text, paths, services)

    def _registration(self) -> tuple[RegisterClause | None, Token | None]:
        if not self.take_word("REGISTER"):
            return None, None
        kind = self.token
        if not self.at_word("QUERY", "STREAM"):
            self.expected("QUERY or STREAM")
        word = self.advance().text.upper()
        name, stream = self._name()
        every = None
        if self.take_word("COMPUTED"):
            self.expect_word("EVERY")
            place = self.token.position
            every = self._duration()
            if not every:
                self.fail("COMPUTED EVERY takes at least one millisecond", place)
        self.expect_word("AS")
        if word == "QUERY":
            return RegisterClause("query", name, None, every), kind
        return RegisterClause("stream", name, stream, every), kind

    def _name(self) -> tuple[str, Term]:
        if self.at_iri():
            term = self.iri()
            return term[1:-1], term
        token = self.token
        if token.kind == "string":
            text = self.string()
        elif token.kind == "word" and not self.at_word("COMPUTED", "AS"):
            text = self.advance().text
        else:
            self.expected("the name of the query")
        if not text or any(character in '<>"{}|^`\\' or character <= " " for character in text):
            self.fail(f"{text!r} cannot name a query", token.position)
        return text, iri(resolve(self.base or BASE, text))

    # ---------------------------------------------------------------------------- dataset

    def _from_stream(self, start: int, is_named: bool) -> bool:
        if not self.take_word("STREAM"):
            return False
        place = self.token.position
        if self.token.kind == "variable":
            self.fail("FROM STREAM names a stream by an IRI, not by a variable")
        stream = self.iri()
        if any(stream == clause.stream for clause in self._streams):
            self.fail(f"FROM STREAM {stream} stands here twice", place)
        if not self.at("["):
            self.expected("a window in square brackets behind FROM STREAM")
        self.advance()
        self.expect_word("RANGE")
        window = self._physical() if self.take_word("TRIPLES") else self._logical()
        self.expect("]")
        self._streams.append(StreamClause(stream, window, is_named, start))
        return True

    def _logical(self) -> SteppedWindow:
        place = self.token.position
        width = self._duration()
        if not width:
            self.fail("RANGE takes at least one millisecond", place)
        if self.take_word("TUMBLING"):
            return LogicalWindow(width, width)
        if not self.at_word("STEP"):
            self.expected("STEP or TUMBLING")
        self.advance()
        place = self.token.position
        step = self._duration()
        if not step:
            self.fail("STEP takes at least one millisecond", place)
        if step > width:
            self.fail(f"STEP {step}ms is longer than RANGE {width}ms", place)
        return LogicalWindow(width, step)

    def _physical(self) -> SteppedWindow:
        count = self._positive("a number of triples")
        if self.take_word("TUMBLING"):
            return PhysicalWindow(count, count)
        if not self.take_word("STEP"):
            return PhysicalWindow(count)
        place = self.token.position
        step = self._positive("a number of triples")
        if step > count:
            self.fail(f"STEP {step} is longer than RANGE TRIPLES {count}", place)
        return PhysicalWindow(count, step)

    def _positive(self, what: str) -> int:
        place = self.token.position
        number = self.whole_number(what)
        if not number:
            self.fail(f"expected {what}, found '0'", place)
        return number

    def _duration(self) -> int:
        number = self.whole_number("a duration such as 10m or 500ms")
        length = nanoseconds_of(self.token.text) if self.token.kind == "word" else None
        if length is None:
            self.expected("a unit of time: ms, s, m, h or d")
        self.advance()
        return number * length // 1_000_000

    # -------------------------------------------------------------------------- AGGREGATE

    def sub_select(self) -> Pattern:
        """A SELECT inside a group."""
        self._nesting += 1
        pattern = super().sub_select()
        self._nesting -= 1
        return pattern

    def _where(self) -> Pattern:
        pattern = super()._where()
        if not self.at_word("AGGREGATE"):
            return pattern
        if self._nesting:
            self.fail("AGGREGATE belongs to the outermost query")
        scope = in_scope(pattern)
        clauses: list[tuple[Variable, Aggregate, tuple[Variable, ...]]] = []
        filters: list[Expression] = []
        while self.take_word("AGGREGATE"):
            self.expect("{")
            while True:
                clauses.append(self._aggregate_clause(scope, [name for name, *_ in clauses]))
                while self.take_word("FILTER"):
                    filters.append(self.constraint())
                if self.take("}"):
                    break
                if not self.at("("):
                    self.expected("'(', FILTER or '}'")
        # All are computed from the solutions of WHERE; only then the conditions select.
        for name, aggregate, keys in clauses:
            pattern = Aggregated(pattern, name, aggregate, keys)
        for condition in filters:
            pattern = Filter(pattern, condition)
        return pattern

    def _aggregate_clause(
        self, scope: tuple[Variable, ...], others: list[Variable]
    ) -> tuple[Variable, Aggregate, tuple[Variable, ...]]:
        self.expect("(")
        place = self.token.position
        name = self.variable()
        if name in scope or name in others:
            self.fail(f"{name} has a value already: AGGREGATE needs a new variable", place)
        self.expect(",")
        token = self.token
        if not self.at_word(*_FUNCTIONS):
            self.expected(", ".join(_FUNCTIONS[:-1]) + f" or {_FUNCTIONS[-1]}")
        function = self.advance().text.upper()
        argument: Expression | None = None
        distinct = False
        if self.take("("):
            distinct = self.take_word("DISTINCT")
            if not (function == "COUNT" and (self.take("*") or self.at(")"))):
                argument = VariableRef(self._of_where(scope))
            self.expect(")")
        if argument is None and function != "COUNT":
            self.fail(f"{function} needs a variable as its argument", token.position)
        self.expect(",")
        keys: list[Variable] = []
        if self.take("{"):
            keys.append(self._of_where(scope))
            while self.take(","):
                keys.append(self._of_where(scope))
            self.expect("}")
        else:
            keys.append(self._of_where(scope))
        self.expect(")")
        return name, Aggregate(function, argument, distinct), tuple(dict.fromkeys(keys))

    def _of_where(self, scope: tuple[Variable, ...]) -> Variable:
        place = self.token.position
        name = self.variable()
        if name not in scope:
            self.fail(f"{name} does not occur in WHERE: AGGREGATE can use nothing else", place)
        return name

    # ------------------------------------------------------------------------------ paths

    def _path_repeated(self) -> PathExpression:
        start = self.token.position
        path = super()._path_repeated()
        if isinstance(path, Repeat):
            self._paths.append((path, start))
        return path

    # -------------------------------------------------------------------------- timestamp

    def builtin(self) -> Expression:
        """A call of a builtin, also ``timestamp(?v[, graph])``."""
        if not (self.at_word(TIMESTAMP) and self.ahead().text == "("):
            return super().builtin()
        start = self.advance().position
        self.expect("(")
        name = self.variable()
        graph: Term | Variable | None = None
        arguments: tuple[Expression, ...] = (VariableRef(name),)
        if self.take(","):
            if self.token.kind == "variable":
                graph = self.variable()
                arguments += (VariableRef(graph),)
            else:
                graph = self.iri()
                arguments += (Constant(graph),)
        self.expect(")")
        self._timestamps.append((name, graph, start))
        return Call(TIMESTAMP, arguments)

    def _check_timestamps(self) -> None:
        streams = {clause.stream for clause in self._streams}
        for _, graph, position in self._timestamps:
            if not streams:
                self.fail("timestamp() in a query without FROM STREAM", position)
            if graph is not None and graph.startswith("<") and graph not in streams:
                self.fail(f"timestamp() of {graph}, which is no stream of this query", position)


def _merged(one: DatasetClause, other: DatasetClause) -> DatasetClause:
    return DatasetClause(one.default + other.default, one.named + other.named)
