"""Arithmetic and comparisons on inlined values, as generated functions on integers.

`Compiler` makes closures that work for every type. Streams mostly bring the same types again and
again: decimals with six digits behind the point, integers, instants. For those an expression of
``+ - * / ROUND FLOOR CEIL``, comparisons and ``&& || !`` becomes one function on the integers that
the identifiers are (see `arithmetic_code`), specialised for the tags and scales that it met; a
guard falls back to the closures for everything else. The results are exactly those of the closures.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from annotations.terms import Variable
from tpf_client.dataflow.arithmetic_code import (
    SUPPORTED,
    CodeWriter,
    NumberFormat,
    UnsupportedFormatError,
    aligned,
    format_of,
    unpacked,
    without_zeros,
)
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.codegen import compiled
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import DATE_TIME, DECIMAL, INTEGER, TAG, TAG_BITS

_SPECIALISATIONS: Final = 16


class ArithmeticCompiler(Compiler):
    """A compiler whose conditions and bindings are specialised where they can be."""

    def __init__(
        self, environment: Environment, schema: Sequence[Variable], row: int | None = None
    ) -> None:
        super().__init__(environment, schema, row)
        self._schema = tuple(schema)

    def condition(self, expression: Expression) -> Callable[[Solution], bool]:
        """Whether the effective boolean value is true; an error is false."""
        slow = super().condition(expression)
        if not self._supported(expression):
            return slow
        return _Specialised(self, (expression,), slow, truth=True).function()

    def binding(self, expression: Expression) -> Callable[[Solution], TermId]:
        """The identifier of the value; 0 where there is an error."""
        if isinstance(expression, VariableRef) and expression.variable in self._schema:
            place = self._schema.index(expression.variable)
            return lambda solution: solution[place]
        slow = super().binding(expression)
        if not self._supported(expression):
            return slow
        return _Specialised(self, (expression,), slow).function()

    def bindings(self, expressions: Sequence[Expression]) -> Callable[[Solution], Solution]:
        """The identifiers of several values, in one function where that is possible."""
        if len(expressions) > 1 and all(map(self._supported, expressions)):
            closures = tuple([Compiler.binding(self, expression) for expression in expressions])

            def slow(solution: Solution) -> Solution:
                return tuple([closure(solution) for closure in closures])

            return _Specialised(self, expressions, slow, several=True).function()
        return super().bindings(expressions)

    def _supported(self, expression: Expression) -> bool:
        return isinstance(expression, Call) and self._all_supported(expression)

    def _all_supported(self, expression: Expression) -> bool:
        match expression:
            case Call(name, arguments):
                return name in SUPPORTED and all(map(self._all_supported, arguments))
            case VariableRef(variable):
                return variable in self._schema
            case Constant(term):
                return self.typed.dictionary.encode(term) & TAG in (INTEGER, DECIMAL, DATE_TIME)
            case _:
                return False

    def places(self, expression: Expression) -> dict[Variable, int]:
        """The columns of the variables in an expression."""
        match expression:
            case Call(_, arguments):
                return {n: p for each in arguments for n, p in self.places(each).items()}
            case VariableRef(variable):
                return {variable: self._schema.index(variable)}
            case _:
                return {}


class _Specialised:
    """Expressions, their specialisations and their closure."""

    def __init__(
        self,
        compiler: ArithmeticCompiler,
        expressions: Sequence[Expression],
        slow: Callable[[Solution], Any],
        *,
        truth: bool = False,
        several: bool = False,
    ) -> None:
        self._compiler = compiler
        self._expressions = expressions
        self._slow = slow
        self._truth = truth
        self._several = several
        self._places = {
            name: place for each in expressions for name, place in compiler.places(each).items()
        }
        self._scales = [0 for _ in self._places]
        """The most digits behind the point that came in each place: fewer are filled up."""
        self._known: dict[tuple[NumberFormat, ...], Callable[[Solution], Any]] = {}
        self._current: Callable[[Solution], Any] = self._choose

    def function(self) -> Callable[[Solution], Any]:
        """Calls the specialisation that fitted last; its guard comes back here if it does not."""
        return lambda solution: self._current(solution)

    def _choose(self, solution: Solution) -> Any:
        formats = tuple([self._format(n, solution[p]) for n, p in enumerate(self._places.values())])
        found = self._known.get(formats)
        if found is None:
            if len(self._known) >= _SPECIALISATIONS:
                return self._slow(solution)
            try:
                found = self._generated(dict(zip(self._places, formats, strict=True)))
            except UnsupportedFormatError:
                found = self._slow
            self._known[formats] = found
        if found is self._slow:
            return found(solution)
        self._current = found
        return found(solution)

    def _format(self, number: int, identifier: TermId) -> NumberFormat:
        format_ = format_of(identifier)
        if format_ & TAG == DECIMAL:
            scale = self._scales[number] = max(self._scales[number], format_ >> TAG_BITS)
            return DECIMAL | scale << TAG_BITS
        return format_

    def _generated(self, formats: dict[Variable, NumberFormat]) -> Callable[[Solution], Any]:
        writer = CodeWriter(self._compiler.typed.dictionary.encode, formats)
        lines = ["def compute(row):"]
        for name, format_ in formats.items():
            lines += unpacked(writer.names[name], self._places[name], format_)
        results = []
        for expression in self._expressions:
            if self._truth:
                results.append(f"True if {writer.write(expression)[0]} else False")
            elif isinstance(expression, Call) and expression.name == "/":
                results.append(writer.quotient_identifier(expression.arguments))
            else:
                results.append(writer.identifier(*writer.write(expression)))
        lines += writer.lines
        whole = f"({', '.join(results)},)" if self._several else results[0]
        lines.append(f"    return {whole}")
        space = {
            "choose": self._choose,
            "slow": self._slow,
            "aligned": aligned,
            "without_zeros": without_zeros,
        }
        return compiled("\n".join(lines), "compute", space)
