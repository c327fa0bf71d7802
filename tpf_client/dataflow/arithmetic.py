"""Arithmetic and comparisons on inlined values, as generated functions on integers.

They are specialised for the tags and scales met so far; a guard falls back to the closures of
`Compiler`, with exactly their results.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.dataflow.codegen import compiled
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
from tpf_client.sparql.expressions.compiler import Compiler
from tpf_client.sparql.expressions.environment import Environment
from tpf_client.sparql.expressions.inlined import (
    BOOLEAN,
    DATE_TIME,
    DECIMAL,
    INTEGER,
    MOST_INTEGER,
    MOST_SCALE,
    MOST_UNSCALED,
    SCALE_BITS,
    TAG,
    TAG_BITS,
)

# Python code for arithmetic on inlined values: expressions as statements on integers.
#
# What a number means is known when the code is written: its tag, and for decimals how many digits
# are behind the point (see `dictionary`). So there are no values, only their unscaled integers.

_COMPARISONS: Final = {"=": "==", "!=": "!=", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_LOGIC: Final = {"&&": "and", "||": "or"}
SUPPORTED: Final = frozenset(
    (*_COMPARISONS, *_LOGIC, "!", "+", "-", "*", "/", "neg", "ROUND", "FLOOR", "CEIL")
)
"""The operators and functions that there is code for."""
_MOST_SCALE: Final = 18
_SHIFT: Final = TAG_BITS + SCALE_BITS
_MASK: Final = (1 << _SHIFT) - 1
_POWERS: Final[list[int]] = [10**power for power in range(MOST_SCALE + 1)]

NumberFormat = int
"""The tag, and for decimals the scale above it."""


def aligned(identifier: TermId, scale: int) -> int | None:
    """Return a decimal's unscaled value at another scale, if it fits."""
    more = scale - (identifier >> TAG_BITS & MOST_SCALE)
    if identifier & TAG != DECIMAL or more < 0:
        return None
    return (identifier >> _SHIFT) * _POWERS[more]


def format_of(identifier: TermId) -> NumberFormat:
    """Return the tag of an identifier, and a decimal's scale."""
    return identifier & _MASK if identifier & TAG == DECIMAL else identifier & TAG


class UnsupportedFormatError(Exception):
    """These formats must go through the closures."""


def unpacked(variable: str, column: int, format_: NumberFormat) -> list[str]:
    """Write statements that unpack an identifier of this format, or fall back."""
    lines = [f"    {variable} = row[{column}]"]
    if format_ & TAG != DECIMAL:
        return [
            *lines,
            f"    if {variable} & {TAG} != {format_}:",
            "        return choose(row)",
            f"    {variable} >>= {TAG_BITS}",
        ]
    return [
        *lines,
        f"    if {variable} & {_MASK} == {format_}:",
        f"        {variable} >>= {_SHIFT}",
        "    else:",
        f"        {variable} = aligned({variable}, {format_ >> TAG_BITS})",
        f"        if {variable} is None:",
        "            return choose(row)",
    ]


class CodeWriter:
    """Write an expression as statements on integers, with tags and scales."""

    def __init__(
        self, encode: Callable[[Term], TermId], formats: dict[Variable, NumberFormat]
    ) -> None:
        self.lines: list[str] = []
        self.names = {name: f"x{number}" for number, name in enumerate(formats)}
        self._formats = formats
        self._encode = encode
        self._temporaries = 0

    def write(self, expression: Expression) -> tuple[str, int, int]:
        """Return the code of a value, its tag and its scale."""
        match expression:
            case VariableRef(variable):
                return self._typed(self.names[variable], self._formats[variable])
            case Constant(term):
                identifier = self._encode(term)
                format_ = format_of(identifier)
                shift = _SHIFT if format_ & TAG == DECIMAL else TAG_BITS
                return self._typed(f"({identifier >> shift})", format_)
            case Call("ROUND" | "FLOOR" as name, (Call("/", operands),)):
                return self._rounded_quotient(name, [self.write(each) for each in operands])
            case Call(name, arguments):
                return self._call(name, [self.write(each) for each in arguments])
            case _:
                raise UnsupportedFormatError

    def _typed(self, text: str, format_: NumberFormat) -> tuple[str, int, int]:
        tag = format_ & TAG
        if tag not in (INTEGER, DECIMAL, DATE_TIME, BOOLEAN):
            raise UnsupportedFormatError
        return text, tag, format_ >> TAG_BITS if tag == DECIMAL else 0

    def _fresh(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    def _keep(self, text: str) -> str:
        name = self._fresh()
        self.lines.append(f"    {name} = {text}")
        return name

    def identifier(self, value: str, tag: int, scale: int) -> str:
        """Return the code of a value's identifier."""
        if tag == BOOLEAN:
            return f"({1 << TAG_BITS | BOOLEAN} if {value} else {BOOLEAN})"
        value = self._keep(value)
        decimals = self._keep(str(scale)) if scale else None
        return self._packed(value, tag, decimals)

    def quotient_identifier(self, operands: Sequence[Expression]) -> str:
        """Return the code of a quotient's identifier; most have few digits."""
        values = [self.write(each) for each in operands]
        (left, left_tag, left_scale), (right, right_tag, right_scale) = values
        if left_scale < right_scale or not {left_tag, right_tag} <= {INTEGER, DECIMAL}:
            return self.identifier(*self._call("/", values))
        value, rest = self._fresh(), self._fresh()
        before, self.lines = self.lines, []
        whole, _, scale = self._quotient(left, left_scale, right, right_scale)
        endless, self.lines = self.lines, before
        self.lines += [
            f"    {value}, {rest} = divmod({left}, {right}) if {right} else (0, 1)",
            f"    if {rest}:",
            *(f"    {line}" for line in endless),
            f"        {value} = {whole}",
        ]
        decimals = self._keep(f"{scale} if {rest} else {left_scale - right_scale}")
        return self._packed(value, DECIMAL, decimals)

    def _packed(self, value: str, tag: int, decimals: str | None) -> str:
        most = MOST_INTEGER if tag == INTEGER else MOST_UNSCALED
        if decimals is not None:
            self.lines += [
                f"    if not {value} % 10:",
                f"        {value}, {decimals} = without_zeros({value}, {decimals})",
            ]
        self.lines += [f"    if not -{most} < {value} < {most}:", "        return slow(row)"]
        if tag == INTEGER:
            return f"{value} << {TAG_BITS} | {INTEGER}"
        if decimals is None:
            return f"{value} << {_SHIFT} | {DECIMAL}"
        return f"({value} << {SCALE_BITS} | {decimals}) << {TAG_BITS} | {DECIMAL}"

    def _call(self, name: str, values: list[tuple[str, int, int]]) -> tuple[str, int, int]:
        tags = {tag for _, tag, _ in values}
        if name in _LOGIC or name == "!":
            if tags != {BOOLEAN}:
                raise UnsupportedFormatError
            if name == "!":
                return f"(not {values[0][0]})", BOOLEAN, 0
            return f"({values[0][0]} {_LOGIC[name]} {values[1][0]})", BOOLEAN, 0
        if name in _COMPARISONS and tags == {DATE_TIME}:
            return f"({values[0][0]} {_COMPARISONS[name]} {values[1][0]})", BOOLEAN, 0
        if not tags <= {INTEGER, DECIMAL}:
            raise UnsupportedFormatError
        tag = DECIMAL if DECIMAL in tags else INTEGER
        if len(values) == 1:
            return self._unary(name, *values[0])
        (left, _, left_scale), (right, _, right_scale) = values
        if name == "*":
            if left_scale + right_scale > _MOST_SCALE:
                raise UnsupportedFormatError
            return self._keep(f"{left} * {right}"), tag, left_scale + right_scale
        if name == "/":
            return self._quotient(left, left_scale, right, right_scale)
        scale = max(left_scale, right_scale)
        left, right = _scaled(left, scale - left_scale), _scaled(right, scale - right_scale)
        if name in _COMPARISONS:
            return f"({left} {_COMPARISONS[name]} {right})", BOOLEAN, 0
        return self._keep(f"{left} {name} {right}"), tag, scale

    def _rounded_quotient(
        self, name: str, values: list[tuple[str, int, int]]
    ) -> tuple[str, int, int]:
        """Truncation rounds down unless the dividend is negative: only then 18 digits matter."""
        (left, left_tag, left_scale), (right, right_tag, right_scale) = values
        positive = right.startswith("(") and right[1:-1].isdecimal() and int(right[1:-1]) > 0
        power = _MOST_SCALE - left_scale + right_scale
        if not positive or power < 0 or not {left_tag, right_tag} <= {INTEGER, DECIMAL}:
            return self._unary(name, *self._call("/", values))
        up, down = 10 ** max(0, right_scale - left_scale), 10 ** max(0, left_scale - right_scale)
        divisor = int(right[1:-1]) * down
        cut = f"-(-{left} * {10**power} // {right})"
        one = 10**_MOST_SCALE
        if name == "ROUND":
            exact = f"({left} * {2 * up} + {divisor}) // {2 * divisor}"
            careful = f"(2 * {cut} + {one}) // {2 * one}"
        else:
            exact, careful = f"{left} * {up} // {divisor}", f"{cut} // {one}"
        return self._keep(f"{exact} if {left} >= 0 else {careful}"), DECIMAL, 0

    def _quotient(
        self, left: str, left_scale: int, right: str, right_scale: int
    ) -> tuple[str, int, int]:
        """Truncate, not round, to 18 decimal digits."""
        power = _MOST_SCALE - left_scale + right_scale
        if power < 0:
            raise UnsupportedFormatError
        self.lines.append(f"    if not {right}:")
        self.lines.append("        return slow(row)")
        dividend = self._keep(_scaled(left, power))
        negative = f"({dividend} < 0) != ({right} < 0)"
        positive = f"abs({dividend}) // abs({right})"
        if right.startswith("(") and not right.startswith("(-"):
            whole = f"{dividend} // {right} if {dividend} >= 0 else -(-{dividend} // {right})"
        else:
            whole = f"-({positive}) if {negative} else {positive}"
        return self._keep(whole), DECIMAL, _MOST_SCALE

    def _unary(self, name: str, value: str, tag: int, scale: int) -> tuple[str, int, int]:
        if name == "neg":
            return self._keep(f"-{value}"), tag, scale
        one = 10**scale
        match name:
            case _ if not scale:
                return value, tag, 0
            case "ROUND":
                return self._keep(f"(2 * {value} + {one}) // {2 * one}"), tag, 0
            case "FLOOR":
                return self._keep(f"{value} // {one}"), tag, 0
            case "CEIL":
                return self._keep(f"-(-{value} // {one})"), tag, 0
            case _:
                raise UnsupportedFormatError


def without_zeros(value: int, decimals: int) -> tuple[int, int]:
    """Strip the trailing zeros of an unscaled decimal; return value and scale."""
    if not value:
        return 0, 0
    # Amounts have one or two, quotients many.
    if decimals > 4 and not value % _POWERS[4]:
        for step in (16, 8, 4):
            if decimals >= step and not value % _POWERS[step]:
                value //= _POWERS[step]
                decimals -= step
    while decimals and not value % 10:
        value //= 10
        decimals -= 1
    return value, decimals


def _scaled(text: str, power: int) -> str:
    return f"{text} * {10**power}" if power else text


_SPECIALISATIONS: Final = 16


class ArithmeticCompiler(Compiler):
    """Specialise conditions and bindings where possible."""

    def __init__(
        self, environment: Environment, schema: Sequence[Variable], row: int | None = None
    ) -> None:
        super().__init__(environment, schema, row)
        self._schema = tuple(schema)

    def condition(self, expression: Expression) -> Callable[[Solution], bool]:
        """Compile to the effective boolean value; an error is false."""
        slow = super().condition(expression)
        if not self._supported(expression):
            return slow
        fast = _Specialised(self, (expression,), slow, truth=True).function()
        return self.paid((expression,), fast)

    def binding(self, expression: Expression) -> Callable[[Solution], TermId]:
        """Compile to the value's identifier; 0 for an error."""
        if isinstance(expression, VariableRef) and expression.variable in self._schema:
            column = self._schema.index(expression.variable)
            return lambda solution: solution[column]
        slow = super().binding(expression)
        if not self._supported(expression):
            return slow
        return self.paid((expression,), _Specialised(self, (expression,), slow).function())

    def bindings(self, expressions: Sequence[Expression]) -> Callable[[Solution], Solution]:
        """Compile several values, as one function where possible."""
        if len(expressions) > 1 and all(map(self._supported, expressions)):
            closures = tuple([Compiler.binding(self, expression) for expression in expressions])

            def slow(solution: Solution) -> Solution:
                return tuple([closure(solution) for closure in closures])

            fast = _Specialised(self, expressions, slow, several=True).function()
            return self.paid(expressions, fast)
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

    def columns(self, expression: Expression) -> dict[Variable, int]:
        """Map the variables of an expression to their columns."""
        match expression:
            case Call(_, arguments):
                return {n: p for each in arguments for n, p in self.columns(each).items()}
            case VariableRef(variable):
                return {variable: self._schema.index(variable)}
            case _:
                return {}


class _Specialised:
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
        self._columns = {
            name: column for each in expressions for name, column in compiler.columns(each).items()
        }
        self._scales = [0 for _ in self._columns]
        """The most digits behind the point that came in each place: fewer are filled up."""
        self._cache: dict[tuple[NumberFormat, ...], Callable[[Solution], Any]] = {}
        self._current: Callable[[Solution], Any] = self._choose

    def function(self) -> Callable[[Solution], Any]:
        """Call the last specialisation that fitted; its guard falls back to here."""
        return lambda solution: self._current(solution)

    def _choose(self, solution: Solution) -> Any:
        formats = tuple(
            [self._format(n, solution[p]) for n, p in enumerate(self._columns.values())]
        )
        function = self._cache.get(formats)
        if function is None:
            if len(self._cache) >= _SPECIALISATIONS:
                return self._slow(solution)
            try:
                function = self._generated(dict(zip(self._columns, formats, strict=True)))
            except UnsupportedFormatError:
                function = self._slow
            self._cache[formats] = function
        if function is self._slow:
            return function(solution)
        self._current = function
        return function(solution)

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
            lines += unpacked(writer.names[name], self._columns[name], format_)
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
