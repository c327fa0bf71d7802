r"""Regular expressions of XPath on Python's engine.

Source: XPath functions and operators 3.1, section 5.6; XML Schema 1.1 part 2, appendix G. What
differs from Python is rewritten: flags, ``\i`` and ``\c``, Unicode categories that Python lacks
are refused, ``$`` means the very end, and the replacement has ``$1`` for groups.
"""

import re
import unicodedata
from functools import lru_cache

from tpf_client.sparql.expressions.values import EvaluationError

_NAME_START = (
    r":A-Z_a-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u1FFF\u200C-\u200D"
    r"\u2070-\u218F\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFFFD"
)
_NAME = _NAME_START + r"\-.0-9\u00B7\u0300-\u036F\u203F-\u2040"
_CLASSES = {"i": _NAME_START, "c": _NAME}


@lru_cache(maxsize=512)
def regex(pattern: str, flags: str = "") -> re.Pattern[str]:
    """The compiled form of an XPath regular expression.

    Raises:
        EvaluationError: the pattern or a flag is wrong.
    """
    options = 0
    for flag in flags:
        if flag not in "imsxq":
            raise EvaluationError
        options |= {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}.get(flag, 0)
    if "q" in flags:
        return re.compile(re.escape(pattern), options & re.IGNORECASE)
    if "x" in flags:
        pattern = _without_blanks(pattern)
    try:
        return re.compile(_translated(pattern, multiline="m" in flags), options)
    except (re.error, OverflowError):
        raise EvaluationError from None


def _without_blanks(pattern: str) -> str:
    """Blanks outside of character classes mean nothing under the flag x."""
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


@lru_cache(maxsize=64)
def _category(name: str) -> str:
    """The characters of a Unicode category, as the inside of a character class."""
    ranges: list[str] = []
    start: int | None = None
    for code in range(0x110001):
        inside = code < 0x110000 and unicodedata.category(chr(code)).startswith(name)
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    if not ranges:
        raise EvaluationError
    return "".join(ranges)


def _translated(pattern: str, *, multiline: bool) -> str:
    result: list[str] = []
    position, in_class = 0, False
    while position < len(pattern):
        character = pattern[position]
        if character == "\\" and position + 1 < len(pattern):
            following = pattern[position + 1]
            position += 2
            if following in "pP":
                end = pattern.find("}", position)
                if end < 0 or pattern[position : position + 1] != "{":
                    raise EvaluationError
                inside = _category(pattern[position + 1 : end])
                position = end + 1
                result.append(_class(inside, following == "P", in_class))
            elif following.lower() in _CLASSES:
                inside = _CLASSES[following.lower()]
                result.append(_class(inside, following.isupper(), in_class))
            elif following.isalnum() and following not in "nrtdDsSwW0123456789":
                raise EvaluationError
            else:
                result.append(character + following)
            continue
        if character == "[":
            # A class inside a class is a subtraction, which Python does not have.
            if in_class:
                raise EvaluationError
            in_class = True
        elif character == "]":
            in_class = False
        elif character == "$" and not in_class and not multiline:
            character = r"\Z"
        result.append(character)
        position += 1
    return "".join(result)


def _class(inside: str, negated: bool, in_class: bool) -> str:
    if not in_class:
        return f"[{'^' if negated else ''}{inside}]"
    if negated:
        raise EvaluationError
    return inside


_GROUP = re.compile(r"\\(.)|\$(\d+)|([\\$])", re.DOTALL)


def replace(text: str, pattern: str, replacement: str, flags: str = "") -> str:
    """fn:replace.

    Raises:
        EvaluationError: the pattern, the replacement or a flag is wrong.
    """
    compiled = regex(pattern, flags)
    if "q" in flags:
        return compiled.sub(lambda _match: replacement, text)
    parts = _parts(replacement, compiled.groups)
    return compiled.sub(
        lambda match: "".join(
            part if isinstance(part, str) else match.group(part) or "" for part in parts
        ),
        text,
    )


@lru_cache(maxsize=512)
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
            digits = number
            while len(digits) > 1 and int(digits) > groups:
                digits = digits[:-1]
            if int(digits) <= groups:
                parts.append(int(digits))
            parts.append(number[len(digits) :])
        position = match.end()
    parts.append(replacement[position:])
    return parts
