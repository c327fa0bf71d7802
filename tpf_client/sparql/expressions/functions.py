"""Builtin functions of typed values.

Source: SPARQL 1.1 Query Language, sections 17.4.3 to 17.4.6.
"""

import hashlib
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from urllib.parse import quote

from annotations.errors import TermError
from annotations.terms import literal
from tpf_client.sparql.expressions.dates import Date, DateTime, Duration, Time, zone_name
from tpf_client.sparql.expressions.patterns import regex, replace
from tpf_client.sparql.expressions.values import (
    LONGEST_STRING,
    EvaluationError,
    LanguageString,
    Single,
    Value,
    bounded,
    exact,
    value_of,
)

# -------------------------------------------------------------------------------- strings


def _text_of(value: Value) -> str:
    """The characters of a string, with or without a language tag.

    Raises:
        EvaluationError: it is no string.
    """
    if type(value) is str:
        return value
    if isinstance(value, LanguageString):
        return value.text
    raise EvaluationError


def like(value: Value, text: str) -> Value:
    """A string with the language tag of another, if it has one."""
    return LanguageString(text, value.language) if isinstance(value, LanguageString) else text


def _plain(value: Value) -> str:
    if type(value) is not str:
        raise EvaluationError
    return value


def _compatible(left: Value, right: Value) -> tuple[str, str]:
    """The texts of two strings that section 17.4.3.1.2 lets meet."""
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


def _contains(left: Value, right: Value) -> bool:
    one, other = _compatible(left, right)
    return other in one


def _strstarts(left: Value, right: Value) -> bool:
    one, other = _compatible(left, right)
    return one.startswith(other)


def _strends(left: Value, right: Value) -> bool:
    one, other = _compatible(left, right)
    return one.endswith(other)


def _strbefore(left: Value, right: Value) -> Value:
    one, other = _compatible(left, right)
    place = one.find(other)
    return "" if place < 0 else like(left, one[:place])


def _strafter(left: Value, right: Value) -> Value:
    one, other = _compatible(left, right)
    place = one.find(other)
    return "" if place < 0 else like(left, one[place + len(other) :])


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
    language, wanted = _plain(tag).lower(), _plain(pattern).lower()
    if wanted == "*":
        return bool(language)
    return language == wanted or language.startswith(f"{wanted}-")


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


def _regex(value: Value, pattern: Value, flags: Value = "") -> bool:
    return regex(_plain(pattern), _plain(flags)).found_in(_text_of(value))


def _replace(value: Value, pattern: Value, replacement: Value, flags: Value = "") -> Value:
    text = replace(_text_of(value), _plain(pattern), _plain(replacement), _plain(flags))
    return like(value, text)


# -------------------------------------------------------------------------------- numbers


def _abs(value: Value) -> Value:
    if isinstance(value, Single):
        return Single(abs(value))
    if isinstance(value, bool):
        raise EvaluationError
    if isinstance(value, int):
        return abs(value)
    if isinstance(value, Decimal):
        return abs(value)
    if isinstance(value, float):
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
    lambda value: math.floor(value + 0.5),
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
    if not isinstance(value, (DateTime, Date, Time)):
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
    "CONTAINS": _contains,
    "STRSTARTS": _strstarts,
    "STRENDS": _strends,
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
