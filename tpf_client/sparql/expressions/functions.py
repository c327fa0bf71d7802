"""Builtin functions of typed values (SPARQL 1.1, sections 17.4.3 to 17.4.6)."""

import hashlib
import math
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from importlib.util import find_spec
from time import perf_counter
from typing import Any, TypeAlias
from urllib.parse import quote

from annotations.errors import TermError
from annotations.namespaces import XSD
from annotations.terms import literal
from tpf_client.sparql.expressions.dates import (
    DATE_READERS,
    Date,
    DateTime,
    Duration,
    Moment,
    Time,
    as_kind,
    zone_name,
)
from tpf_client.sparql.expressions.environment import Spend
from tpf_client.sparql.expressions.guarded_regex import GuardedRegex
from tpf_client.sparql.expressions.values import (
    LONGEST,
    LONGEST_STRING,
    EvaluationError,
    LanguageString,
    Single,
    Value,
    bounded,
    decimal_of_float,
    exact,
    read_decimal,
    read_double,
    read_integer,
    shorten,
    value_of,
)

# Constructor functions (SPARQL 1.1, section 17.5; XPath casting rules).

_BLANKS = " \t\r\n"


def _read(value: Value, reader: Callable[[str], Value | None]) -> Value:
    if type(value) is not str:
        raise EvaluationError
    lexical = value.strip(_BLANKS)
    result = reader(lexical) if len(lexical) <= LONGEST else None
    if result is None:
        raise EvaluationError
    return result


def to_boolean(value: Value) -> bool:
    """xsd:boolean(value)."""
    if isinstance(value, bool):
        return value
    if isinstance(value, (int, Decimal)):
        return bool(value)
    if isinstance(value, float):
        return bool(value) and not math.isnan(value)
    return bool(_read(value, {"true": True, "1": True, "false": False, "0": False}.get))


def to_integer(value: Value) -> Value:
    """xsd:integer(value)."""
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            raise EvaluationError
        return int(value)
    if isinstance(value, (bool, int, Decimal)):
        return int(value)
    return _read(value, read_integer)


def to_decimal(value: Value) -> Value:
    """xsd:decimal(value)."""
    if isinstance(value, float):
        return decimal_of_float(value)
    if isinstance(value, (bool, int)):
        return Decimal(int(value))
    if isinstance(value, Decimal):
        return value
    result = _read(value, read_decimal)
    assert isinstance(result, Decimal)
    return shorten(result)


def to_double(value: Value) -> Value:
    """xsd:double(value)."""
    if isinstance(value, (bool, int, Decimal, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _read(value, read_double)


def to_float(value: Value) -> Value:
    """xsd:float(value)."""
    double = to_double(value)
    assert isinstance(double, float)
    return Single(double)


def _to_moment(kind: type[Moment], name: str) -> Callable[[Value], Value]:
    kinds = (DateTime, Date) if kind is DateTime else (DateTime, kind)

    def convert(value: Value) -> Value:
        if isinstance(value, kinds):
            return as_kind(kind, value)
        return _read(value, DATE_READERS[XSD + name])

    return convert


def _to_duration(name: str) -> Callable[[Value], Value]:
    def convert(value: Value) -> Value:
        if isinstance(value, Duration):
            months = 0 if name == "dayTimeDuration" else value.months
            seconds = Decimal(0) if name == "yearMonthDuration" else value.seconds
            return Duration(months, seconds, name)
        return _read(value, DATE_READERS[XSD + name])

    return convert


CASTS: dict[str, Callable[[Value], Value] | None] = {
    f"<{XSD}{name}>": function
    for name, function in {
        "string": None,
        "boolean": to_boolean,
        "integer": to_integer,
        "decimal": to_decimal,
        "double": to_double,
        "float": to_float,
        "dateTime": _to_moment(DateTime, "dateTime"),
        "date": _to_moment(Date, "date"),
        "time": _to_moment(Time, "time"),
        "duration": _to_duration("duration"),
        "dayTimeDuration": _to_duration("dayTimeDuration"),
        "yearMonthDuration": _to_duration("yearMonthDuration"),
    }.items()
}
"""By the IRI of the datatype; xsd:string looks at the term too."""

# Regular expressions of XPath, in time proportional to the text.
#
# They run on RE2, which does not backtrack, whatever the pattern and the text. What differs from
# XPath is rewritten: flags, ``\i``, ``\c``, ``\d``, ``\w`` and ``\s``, the dot. ``\w`` has the
# underscore, too, as everywhere but in XML Schema. Back references need an engine that backtracks:
# it has a tenth of a second for each text. Both engines are loaded when the first pattern needs
# them. Where RE2 is not installed, the other one does all; where neither is, Python's own.
#
# Source: XPath functions and operators 3.1, section 5.6; XML Schema 1.1 part 2, appendix G.

_NAME_START = (
    r":A-Z_a-z\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{2FF}\x{370}-\x{37D}\x{37F}-\x{1FFF}"
    r"\x{200C}-\x{200D}\x{2070}-\x{218F}\x{2C00}-\x{2FEF}\x{3001}-\x{D7FF}\x{F900}-\x{FDCF}"
    r"\x{FDF0}-\x{FFFD}"
)
_NAME = _NAME_START + r"\-.0-9\x{B7}\x{300}-\x{36F}\x{203F}-\x{2040}"
_SPACE = r" \t\n\r"
_WORD = r"\p{L}\p{M}\p{N}\p{S}_"
_NO_WORD = r"\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}\p{Po}\p{Z}\p{C}"
# The insides of character classes: of each escape, and of what it leaves out, if that can be said.
_CLASSES = {
    "i": (_NAME_START, None),
    "c": (_NAME, None),
    "d": (r"\p{Nd}", r"\P{Nd}"),
    "w": (_WORD, _NO_WORD),
    "s": (_SPACE, r"\x00-\x08\x0b\x0c\x0e-\x1f\x21-\x{10FFFF}"),
}
_CATEGORY = re.compile(
    r"L[ulmto]?|M[nce]?|N[dlo]?|P[cdseifo]?|Z[slp]?|S[mcko]?|C[cofn]?",
)
_BACK_REFERENCE = re.compile(r"[^\\]*+(?:\\[^1-9][^\\]*+)*+\\[1-9]", re.DOTALL)
# Flags, names and looking around are not XPath's: groups keep what they match, or do not.
_OTHER_GROUP = re.compile(r"\(\?[^:]")
_POINT = re.compile(r"\\x\{([0-9A-F]+)\}")
_SECONDS = 0.1
# What matching costs, in characters of a text that is read: RE2 reads one each time, unless it must
# follow many states on its own; a match costs Python some, a new pattern its program.
_STATES = 64
_TEXT, _MATCH = 16, 64
_NEW_PATTERN, _NEW_STATE, _WRONG_PATTERN = 400, 32, 2**18
_IN_A_SECOND = 10_000_000
HAS_RE2 = find_spec("re2") is not None
HAS_REGEX = find_spec("regex") is not None
"""A browser's tab has neither: see `GuardedRegex`."""


def free(_characters: int) -> None:
    """Spend nothing: nobody counts."""


class _Linear:
    def __init__(self, pattern: str, flags: str) -> None:
        self._pattern = f"(?m:{pattern})" if "m" in flags else pattern
        self._flags = flags
        # Who only asks whether it matches needs no groups, and no places in the text.
        searching = self._compiled(keep=False)
        self._search = searching.search
        self.states: int = searching.programsize
        self._weight = 1 + self.states // _STATES

    def _compiled(self, *, keep: bool) -> Any:
        import re2

        options = re2.Options()
        options.log_errors = False
        options.never_capture = not keep
        options.case_sensitive = "i" not in self._flags
        # Where its states need more, it is slower, but still linear.
        options.max_mem = 2**21
        try:
            return re2.compile(self._pattern, options)
        except re2.error:
            raise EvaluationError from None

    @property
    def groups(self) -> int:
        count: int = self._compiled(keep=True).groups
        return count

    def found_in(self, text: str, spend: Spend = free) -> bool:
        spend(_TEXT + len(text) * self._weight)
        return self._search(_bytes(text)) is not None

    def matches(self, text: str, spend: Spend = free) -> Iterator[re.Match[str]]:
        spend(_TEXT + len(text) * self._weight)
        _bytes(text)
        yield from self._compiled(keep=True).finditer(text)


class _Backtracking:
    def __init__(self, pattern: str, flags: str) -> None:
        import regex as backtracking

        options = backtracking.VERSION0
        options |= backtracking.IGNORECASE if "i" in flags else 0
        options |= backtracking.MULTILINE if "m" in flags else 0
        try:
            self._pattern = backtracking.compile(pattern, options)
        except backtracking.error:
            raise EvaluationError from None
        self.groups: int = self._pattern.groups
        self.states = len(pattern)

    def found_in(self, text: str, spend: Spend = free) -> bool:
        return next(self.matches(text, spend), None) is not None

    def matches(self, text: str, spend: Spend = free) -> Iterator[re.Match[str]]:
        begun = perf_counter()
        try:
            yield from self._pattern.finditer(text, timeout=_SECONDS)
        except TimeoutError:
            raise EvaluationError from None
        finally:
            spend(len(text) + int((perf_counter() - begun) * _IN_A_SECOND))


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EvaluationError from None


Regex: TypeAlias = _Linear | _Backtracking | GuardedRegex
"""A compiled pattern."""


class _Pattern:
    """A pattern, if it is one, and what its first user pays for it."""

    def __init__(self, pattern: str, flags: str) -> None:
        try:
            self.regex: Regex | None = _compiled(pattern, flags)
            self.price = _NEW_PATTERN + _NEW_STATE * self.regex.states
        except EvaluationError:
            self.regex, self.price = None, _WRONG_PATTERN


pattern_of = lru_cache(maxsize=256)(_Pattern)
"""The latest patterns."""


def regex(pattern: str, flags: str = "", spend: Spend = free) -> Regex:
    """Compile an XPath regular expression."""
    entry = pattern_of(pattern, flags)
    if entry.price:
        price, entry.price = entry.price, 0
        spend(price)
    if entry.regex is None:
        raise EvaluationError
    return entry.regex


def _compiled(pattern: str, flags: str) -> Regex:
    if not set(flags) <= set("imsxq"):
        raise EvaluationError
    try:
        if "q" in flags:
            return (_Linear if HAS_RE2 else GuardedRegex)(re.escape(pattern), flags)
        if "x" in flags:
            pattern = _without_blanks(pattern)
        if HAS_RE2 and HAS_REGEX and not _BACK_REFERENCE.match(pattern):
            return _Linear(_translated(pattern, dot_all="s" in flags, end="$"), flags)
        end = "$" if "m" in flags else r"\Z"
        translated = _translated(pattern, dot_all="s" in flags, end=end)
        engine = _Backtracking if HAS_REGEX else GuardedRegex
        return engine(_POINT.sub(_python_point, translated), flags)
    except (UnicodeEncodeError, OverflowError, RecursionError):
        raise EvaluationError from None


def _python_point(match: re.Match[str]) -> str:
    return f"\\U{int(match[1], 16):08x}"


def _without_blanks(pattern: str) -> str:
    result: list[str] = []
    depth, escaped = 0, False
    for character in pattern:
        if character in " \t\n\r" and not depth and not escaped:
            continue
        if not escaped:
            depth += (character == "[") - (character == "]" and depth > 0)
        escaped = character == "\\" and not escaped
        result.append(character)
    return "".join(result)


def _translated(pattern: str, *, dot_all: bool, end: str) -> str:
    result: list[str] = []
    position, in_class = 0, False
    while position < len(pattern):
        character = pattern[position]
        if character == "\\" and position + 1 < len(pattern):
            following = pattern[position + 1]
            position += 2
            if following in "pP":
                close = pattern.find("}", position, position + 8)
                if close < 0 or not _CATEGORY.fullmatch(pattern, position + 1, close):
                    raise EvaluationError
                result.append(f"\\{following}{pattern[position : close + 1]}")
                position = close + 1
            elif following.lower() in _CLASSES:
                result.append(_class(following, in_class))
            elif following.isalnum() and following not in "nrt123456789":
                raise EvaluationError
            else:
                result.append(character + following)
            continue
        position += 1
        if character == "[":
            # A class inside a class is a subtraction, which no engine here has.
            if in_class:
                raise EvaluationError
            in_class = True
        elif character == "]":
            in_class = False
        elif character == "$" and not in_class:
            character = end
        elif character == "." and not in_class:
            character = "(?s:.)" if dot_all else r"[^\n\r]"
        elif not in_class and _OTHER_GROUP.match(pattern, position - 1):
            raise EvaluationError
        result.append(character)
    return "".join(result)


def _class(escape: str, in_class: bool) -> str:
    inside, outside = _CLASSES[escape.lower()]
    if not in_class:
        return f"[{'^' if escape.isupper() else ''}{inside}]"
    chosen = outside if escape.isupper() else inside
    if chosen is None:
        raise EvaluationError
    return chosen


_GROUP = re.compile(r"\\(.)|\$([0-9]+)|([\\$])", re.DOTALL)


def replace(text: str, pattern: str, replacement: str, flags: str = "", spend: Spend = free) -> str:
    """fn:replace."""
    compiled = regex(pattern, flags, spend)
    if compiled.found_in(""):
        raise EvaluationError
    parts = [replacement] if "q" in flags else _parts(replacement, compiled.groups)
    used = {part for part in parts if isinstance(part, int)}
    result: list[str] = []
    size = position = 0
    for match in compiled.matches(text, spend):
        if not len(result) % 8:
            spend(4 * _MATCH)
        kept = {number: match.group(number) or "" for number in used}
        made = "".join([part if isinstance(part, str) else kept[part] for part in parts])
        result += (text[position : match.start()], made)
        # Parts without a text take time, too.
        size += len(made) + len(parts)
        if size > 2 * LONGEST_STRING:
            raise EvaluationError
        position = match.end()
    result.append(text[position:])
    return bounded("".join(result))


@lru_cache(maxsize=256)
def _parts(replacement: str, groups: int) -> list[str | int]:
    parts: list[str | int] = []
    position = 0
    for match in _GROUP.finditer(replacement):
        parts.append(replacement[position : match.start()])
        escaped, number, alone = match.groups()
        if alone or (escaped and escaped not in "\\$"):
            raise EvaluationError
        if escaped:
            parts.append(escaped)
        else:
            # As many digits as make the number of a group; the rest are digits.
            count = 1
            while count < min(len(number), 9) and int(number[: count + 1]) <= groups:
                count += 1
            if int(number[:count]) <= groups:
                parts.append(int(number[:count]))
            parts.append(number[count:])
        position = match.end()
    parts.append(replacement[position:])
    return [part for part in parts if part != ""]


# -------------------------------------------------------------------------------- strings


def _text_of(value: Value) -> str:
    if type(value) is str:
        return value
    if isinstance(value, LanguageString):
        return value.text
    raise EvaluationError


def like(value: Value, text: str) -> Value:
    """Give a string the language tag of another, if it has one."""
    return LanguageString(text, value.language) if isinstance(value, LanguageString) else text


def _plain(value: Value) -> str:
    if type(value) is not str:
        raise EvaluationError
    return value


def _compatible(left: Value, right: Value) -> tuple[str, str]:
    texts = _text_of(left), _text_of(right)
    if isinstance(right, LanguageString) and (
        not isinstance(left, LanguageString) or left.language != right.language
    ):
        raise EvaluationError
    return texts


def _strlen(value: Value) -> int:
    return len(_text_of(value))


def _position(value: Value) -> int:
    if type(value) is not int:
        raise EvaluationError
    return value


def _substr(value: Value, start: Value, length: Value | None = None) -> Value:
    text, first = _text_of(value), _position(start)
    last = len(text) if length is None else first + _position(length) - 1
    return like(value, text[max(first, 1) - 1 : max(last, 0)])


def _ucase(value: Value) -> Value:
    return like(value, _text_of(value).upper())


def _lcase(value: Value) -> Value:
    return like(value, _text_of(value).lower())


def _of_texts(test: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: test(*_compatible(left, right))


def _strbefore(left: Value, right: Value) -> Value:
    one, other = _compatible(left, right)
    start = one.find(other)
    return "" if start < 0 else like(left, one[:start])


def _strafter(left: Value, right: Value) -> Value:
    one, other = _compatible(left, right)
    start = one.find(other)
    return "" if start < 0 else like(left, one[start + len(other) :])


def _concat(*values: Value) -> Value:
    texts = [_text_of(value) for value in values]
    if sum(map(len, texts)) > LONGEST_STRING:
        raise EvaluationError
    text = "".join(texts)
    languages = {value.language if isinstance(value, LanguageString) else None for value in values}
    if len(languages) == 1:
        (language,) = languages
        if language is not None:
            return LanguageString(text, language)
    return text


def _encode_for_uri(value: Value) -> str:
    return bounded(quote(_text_of(value), safe="-_.~"))


def _langmatches(tag: Value, pattern: Value) -> bool:
    language, wanted_range = _plain(tag).lower(), _plain(pattern).lower()
    if wanted_range == "*":
        return bool(language)
    return language == wanted_range or language.startswith(f"{wanted_range}-")


def _strlang(value: Value, tag: Value) -> Value:
    if "--" in _plain(tag):
        raise EvaluationError
    try:
        return value_of(literal(_plain(value), language=_plain(tag)))
    except TermError:
        raise EvaluationError from None


def _strlangdir(value: Value, tag: Value, direction: Value) -> Value:
    if _plain(direction) not in ("ltr", "rtl"):
        raise EvaluationError
    tagged = _strlang(value, tag)
    assert isinstance(tagged, LanguageString)
    return LanguageString(tagged.text, f"{tagged.language}--{direction}")


def _regex(spend: Spend, value: Value, pattern: Value, flags: Value = "") -> bool:
    return regex(_plain(pattern), _plain(flags), spend).found_in(_text_of(value), spend)


def _replace(
    spend: Spend, value: Value, pattern: Value, replacement: Value, flags: Value = ""
) -> Value:
    texts = _plain(pattern), _plain(replacement), _plain(flags)
    return like(value, replace(_text_of(value), *texts, spend))


# -------------------------------------------------------------------------------- numbers


def _abs(value: Value) -> Value:
    if isinstance(value, Single):
        return Single(abs(value))
    if isinstance(value, Decimal):
        return value.copy_abs()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return abs(value)
    raise EvaluationError


def _to_whole(
    of_decimal: Callable[[Decimal], Decimal], of_float: Callable[[float], float]
) -> Callable[[Value], Value]:
    def convert(value: Value) -> Value:
        if type(value) is int:
            return value
        if isinstance(value, Decimal):
            return of_decimal(value)
        if not isinstance(value, float):
            raise EvaluationError
        if math.isnan(value) or math.isinf(value):
            return value
        # The sign of a zero is kept, as IEEE 754 wants it.
        result = math.copysign(of_float(value), value)
        return Single(result) if isinstance(value, Single) else result

    return convert


_ceil = _to_whole(lambda value: value.to_integral_value(ROUND_CEILING), math.ceil)
_floor = _to_whole(lambda value: value.to_integral_value(ROUND_FLOOR), math.floor)
_HALF = Decimal("0.5")
# Halves go up, negative ones too.
_round = _to_whole(
    lambda value: exact(Context.add, value, _HALF).to_integral_value(ROUND_FLOOR),
    lambda value: math.floor(value) + (value % 1 >= 0.5),
)

# ---------------------------------------------------------------------- dates and times


def _component(name: str, *kinds: type) -> Callable[[Value], Value]:
    def get(value: Value) -> Value:
        if not isinstance(value, kinds):
            raise EvaluationError
        result: Value = getattr(value, name)
        return result

    return get


def _zone(value: Value) -> int | None:
    if not isinstance(value, Moment):
        raise EvaluationError
    return value.zone


def _timezone(value: Value) -> Value:
    zone = _zone(value)
    if zone is None:
        raise EvaluationError
    return Duration(0, Decimal(zone * 60), "dayTimeDuration")


def _tz(value: Value) -> str:
    return zone_name(_zone(value))


# --------------------------------------------------------------------------------- hashes


def _hash(name: str) -> Callable[[Value], str]:
    def digest(value: Value) -> str:
        return hashlib.new(name, _plain(value).encode(), usedforsecurity=False).hexdigest()

    return digest


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "STRLEN": _strlen,
    "SUBSTR": _substr,
    "UCASE": _ucase,
    "LCASE": _lcase,
    "CONTAINS": _of_texts(str.__contains__),
    "STRSTARTS": _of_texts(str.startswith),
    "STRENDS": _of_texts(str.endswith),
    "STRBEFORE": _strbefore,
    "STRAFTER": _strafter,
    "CONCAT": _concat,
    "ENCODE_FOR_URI": _encode_for_uri,
    "LANGMATCHES": _langmatches,
    "STRLANG": _strlang,
    "STRLANGDIR": _strlangdir,
    "REGEX": _regex,
    "REPLACE": _replace,
    "ABS": _abs,
    "CEIL": _ceil,
    "FLOOR": _floor,
    "ROUND": _round,
    "YEAR": _component("year", DateTime, Date),
    "MONTH": _component("month", DateTime, Date),
    "DAY": _component("day", DateTime, Date),
    "HOURS": _component("hour", DateTime, Time),
    "MINUTES": _component("minute", DateTime, Time),
    "SECONDS": _component("second", DateTime, Time),
    "TIMEZONE": _timezone,
    "TZ": _tz,
    "MD5": _hash("md5"),
    "SHA1": _hash("sha1"),
    "SHA256": _hash("sha256"),
    "SHA384": _hash("sha384"),
    "SHA512": _hash("sha512"),
}

SPENDING = frozenset(("REGEX", "REPLACE"))
"""Functions whose first argument is what they spend."""
WEIGHTS = {
    **dict.fromkeys(
        (
            "STRLEN", "SUBSTR", "UCASE", "LCASE", "CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE",
            "STRAFTER", "CONCAT", "LANGMATCHES", "MD5", "SHA1", "SHA256", "SHA384", "SHA512",
        ),
        1,
    ),
    "ENCODE_FOR_URI": 32,
    "STRLANG": 8,
    "STRLANGDIR": 8,
}  # fmt: skip
"""Functions whose work grows with the texts that they are given, and how much."""
