"""A column of a table as CSV on the Web (CSVW) metadata describe it: which values its cells have.

Source: W3C Recommendation *Metadata Vocabulary for Tabular Data*, 2015, sections 5.6 and 6.4.
"""

import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import csvw
import re2
from csvw import datatypes
from uritemplate import URITemplate

from annotations.namespaces import XSD

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>|<class '[^']*'>|re\.compile\([^)]*\)")
_SHOWN = 80
_RE2 = re2.Options()
_RE2.log_errors = False
_NOT_FINITE = frozenset({"NaN", "INF", "-INF"})
_LANGUAGES = {"und", ""}
_PLAIN = {"string", "any", "anyAtomicType", "anySimpleType"}
_DATATYPES = {
    "number": XSD + "double",
    "binary": XSD + "base64Binary",
    "datetime": XSD + "dateTime",
    "xml": "http://www.w3.org/1999/02/22-rdf-syntax-ns#XMLLiteral",
    "html": "http://www.w3.org/1999/02/22-rdf-syntax-ns#HTML",
    "json": "http://www.w3.org/ns/csvw#JSON",
}


class CsvwColumn:
    """What the description says of one column, inherited properties included.

    Args:
        column: its description.

    Raises:
        ValueError: a URL template is malformed.
    """

    def __init__(self, column: csvw.Column) -> None:
        self._column = column
        self.name = str(column.header)
        self.is_virtual = bool(column.virtual)
        self.is_suppressed = bool(column.suppressOutput)
        self.about = _template(column.inherit("aboutUrl"))
        self.property = _template(column.inherit("propertyUrl"))
        self.value = _template(column.inherit("valueUrl"))
        self._separator = column.inherit("separator")
        self._type = column.inherit("datatype")
        self._pattern = _bounded(self._type)
        self._is_decimal = self._type is not None and issubclass(
            self._type.basetype, datatypes.decimal
        )
        base = self._type.base if self._type is not None else "string"
        language = _language(column)
        self.language = language if base in _PLAIN else None
        self.datatype = None if base in _PLAIN else _DATATYPES.get(base, XSD + base)

    def is_called(self, title: str) -> bool:
        """Whether a cell of the header names this column."""
        return bool(self._column.has_title(title))

    def values(self, text: str) -> list[str]:
        """The lexical forms of the values of a cell; none where it is null.

        Raises:
            ValueError: the cell does not fit the description.
        """
        if self._is_decimal and not _NOT_FINITE.isdisjoint(text.split(self._separator)):
            raise ValueError(f"{text[:_SHOWN]!r} of the column {self.name} is no decimal")
        try:
            read = self._column.read(text)
        except ValueError as error:
            if "re.compile" not in str(error):
                raise
            form = self._type.format
            raise ValueError(
                f"{text[:_SHOWN]!r} has not the format {form!r} of the column {self.name}"
            ) from None
        if read is None:
            return []
        if not isinstance(read, list):
            return [self._lexical(read, text or str(self._column.inherit("default") or ""))]
        texts = text.split(self._separator) if text else []
        if len(read) != len(texts):
            raise ValueError(
                f"the column {self.name} has {len(texts)} values, of which {len(read)} are read"
            )
        return [
            self._lexical(value, each)
            for value, each in zip(read, texts, strict=True)
            if value is not None
        ]

    def _lexical(self, value: Any, text: str) -> str:
        """The lexical form in XML Schema: the text itself where it is one."""
        if self._pattern is not None and not self._pattern.fullmatch(text):
            raise ValueError(
                f"{text[:_SHOWN]!r} has not the format {self._pattern.pattern!r} "
                f"of the column {self.name}"
            )
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float | Decimal):
            text = text.strip()
            if _NUMBER.fullmatch(text):
                return text
            return format(value, "f") if isinstance(value, Decimal) else _special(value)
        if isinstance(value, date | time) and self._type.format:
            return _iso(value, self._type.base)
        return text if self.datatype is None else text.strip()


def _bounded(datatype: Any) -> Any:
    """The regular expression of a type of texts, in an engine whose time is linear.

    It is taken away from csvw, which would leave it to one that can backtrack without end.

    Raises:
        ValueError: it is none that this engine knows.
    """
    if datatype is None or not issubclass(datatype.basetype, datatypes.string):
        return None
    if isinstance(datatype.format, str):
        try:
            datatype.bounded = re2.compile(datatype.format, _RE2)
        except re2.error as error:
            raise ValueError(f"a format that is no regular expression ({error})") from None
        datatype.format = None
    # Several columns may share a type.
    return getattr(datatype, "bounded", None)


def plain(message: str) -> str:
    """A message without the text of Python's objects."""
    return _OBJECT.sub("…", message)


def _template(template: Any) -> URITemplate | None:
    if template is None:
        return None
    if not hasattr(template, "uri"):
        raise ValueError("a malformed URL template")
    return URITemplate(template.uri)


def _language(column: csvw.Column) -> str | None:
    described: Any = column
    while described is not None:
        language = getattr(described, "lang", None)
        if language and language not in _LANGUAGES:
            return str(language)
        described = getattr(described, "_parent", None)
    return None


def _special(value: float) -> str:
    text = str(value)
    return {"nan": "NaN", "inf": "INF", "-inf": "-INF"}.get(text, text)


def _iso(value: date | time, base: str) -> str:
    if base == "date" and isinstance(value, datetime):
        return value.date().isoformat()
    if base == "time" and isinstance(value, datetime):
        return value.timetz().isoformat()
    return value.isoformat().replace("+00:00", "Z")
