"""Python code for arithmetic on inlined values: expressions as statements on integers.

What a number means is known when the code is written: its tag, and for decimals how many digits
are behind the point (see `dictionary`). So there are no values, only their unscaled integers.
"""

from collections.abc import Callable, Sequence
from typing import Final

from annotations.terms import Term, Variable
from tpf_client.dataflow.changes import TermId
from tpf_client.sparql.algebra import Call, Constant, Expression, VariableRef
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
    """The unscaled value of a decimal at another scale; ``None`` if it is none or has more."""
    more = scale - (identifier >> TAG_BITS & MOST_SCALE)
    if identifier & TAG != DECIMAL or more < 0:
        return None
    return (identifier >> _SHIFT) * _POWERS[more]


def format_of(identifier: TermId) -> NumberFormat:
    """The tag of an identifier, with the scale of a decimal."""
    return identifier & _MASK if identifier & TAG == DECIMAL else identifier & TAG


class UnsupportedFormatError(Exception):
    """These formats must go through the closures."""


def unpacked(variable: str, place: int, format_: NumberFormat) -> list[str]:
    """Statements that take a number out of its identifier, or go elsewhere if it is another."""
    lines = [f"    {variable} = row[{place}]"]
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
    """Writes an expression as statements on integers; every value knows its tag and its scale.

    Args:
        encode: the integers of terms.
        formats: what the variables are.

    Attributes:
        lines: the statements so far.
        names: what the variables are called in them.
    """

    def __init__(
        self, encode: Callable[[Term], TermId], formats: dict[Variable, NumberFormat]
    ) -> None:
        self.lines: list[str] = []
        self.names = {name: f"x{number}" for number, name in enumerate(formats)}
        self._formats = formats
        self._encode = encode
        self._temporaries = 0

    def write(self, expression: Expression) -> tuple[str, int, int]:
        """The text of a value, its tag and its scale."""
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
        """The text of the identifier of a value; what does not fit goes through the closures."""
        if tag == BOOLEAN:
            return f"({1 << TAG_BITS | BOOLEAN} if {value} else {BOOLEAN})"
        value = self._keep(value)
        places = self._keep(str(scale)) if scale else None
        return self._packed(value, tag, places)

    def quotient_identifier(self, operands: Sequence[Expression]) -> str:
        """The text of the identifier of a quotient, most of which have few digits."""
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
        places = self._keep(f"{scale} if {rest} else {left_scale - right_scale}")
        return self._packed(value, DECIMAL, places)

    def _packed(self, value: str, tag: int, places: str | None) -> str:
        most = MOST_INTEGER if tag == INTEGER else MOST_UNSCALED
        if places is not None:
            self.lines += [
                f"    if not {value} % 10:",
                f"        {value}, {places} = without_zeros({value}, {places})",
            ]
        self.lines += [f"    if not -{most} < {value} < {most}:", "        return slow(row)"]
        if tag == INTEGER:
            return f"{value} << {TAG_BITS} | {INTEGER}"
        if places is None:
            return f"{value} << {_SHIFT} | {DECIMAL}"
        return f"({value} << {SCALE_BITS} | {places}) << {TAG_BITS} | {DECIMAL}"

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
        """The whole number of a quotient, without its 18 digits where they cannot matter.

        They can only where the dividend is negative: to cut off towards zero is then not to round
        down, and what was cut off may decide.
        """
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
        """Cut, not rounded, to 18 digits behind the point."""
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


def without_zeros(value: int, places: int) -> tuple[int, int]:
    """An unscaled decimal and its scale without zeros at its end."""
    if not value:
        return 0, 0
    # Amounts have one or two, quotients many.
    if places > 4 and not value % _POWERS[4]:
        for step in (16, 8, 4):
            if places >= step and not value % _POWERS[step]:
                value //= _POWERS[step]
                places -= step
    while places and not value % 10:
        value //= 10
        places -= 1
    return value, places


def _scaled(text: str, power: int) -> str:
    return f"{text} * {10**power}" if power else text
