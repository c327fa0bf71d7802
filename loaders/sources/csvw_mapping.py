"""Map tables to triples by CSV on the Web (CSVW) metadata, read by the package csvw.

Source: W3C *Metadata Vocabulary for Tabular Data* and *Generating RDF from Tabular Data on the Web*
(minimal mode), 2015; `docs/loading.md` lists what is supported.
"""

import copyreg
import csv
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

import csvw
import re2
from csvw import datatypes
from csvw.dsv import UnicodeReaderWithLineNumber
from uritemplate import URITemplate

from annotations.errors import TermError
from annotations.namespaces import XSD
from annotations.terms import Quad, Term, blank_node, iri, literal
from loaders.errors import InputError
from loaders.places import InputPlace, beside, input_place, json_in
from loaders.sources.base import size_of

# Its titles go to workers, too; as they are, they could not be unpickled there.
copyreg.pickle(csvw.NaturalLanguage, lambda titles: (csvw.NaturalLanguage, (titles.value,)))

_SHOWN = 80


# A column of a table as CSV on the Web (CSVW) metadata describe it: which values its cells have.
#
# Source: W3C Recommendation *Metadata Vocabulary for Tabular Data*, 2015, sections 5.6 and 6.4.

# What the package reads more leniently than XML Schema: forms by the names of datatypes.
_DECIMAL = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_DOUBLE = rf"{_DECIMAL}([eE][+-]?[0-9]+)?|[+-]?INF|NaN"
_YEAR = r"-?([1-9][0-9]{3,}|0[0-9]{3})"
_MONTH = "(0[1-9]|1[0-2])"
_DAY = "(0[1-9]|[12][0-9]|3[01])"
_MONTH_DAY = f"(?!02-3|(0[469]|11)-31){_MONTH}-{_DAY}"
_TIME = r"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?|24:00:00(\.0+)?)"
_ZONE = "(Z|[+-]((0[0-9]|1[0-3]):[0-5][0-9]|14:00))"
_DAYS = r"([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?"
_FORMS = {
    "integer": re.compile("[+-]?[0-9]+"),
    "decimal": re.compile(_DECIMAL),
    **dict.fromkeys(("double", "float"), re.compile(_DOUBLE)),
    "dateTime": re.compile(f"{_YEAR}-{_MONTH_DAY}T{_TIME}{_ZONE}?"),
    "dateTimeStamp": re.compile(f"{_YEAR}-{_MONTH_DAY}T{_TIME}{_ZONE}"),
    "date": re.compile(f"{_YEAR}-{_MONTH_DAY}{_ZONE}?"),
    "time": re.compile(f"{_TIME}{_ZONE}?"),
    "gYear": re.compile(f"{_YEAR}{_ZONE}?"),
    "gYearMonth": re.compile(f"{_YEAR}-{_MONTH}{_ZONE}?"),
    "gMonth": re.compile(f"--{_MONTH}{_ZONE}?"),
    "gMonthDay": re.compile(f"--{_MONTH_DAY}{_ZONE}?"),
    "gDay": re.compile(f"---{_DAY}{_ZONE}?"),
    "duration": re.compile(f"-?P(?!$)([0-9]+Y)?([0-9]+M)?{_DAYS}"),
    "dayTimeDuration": re.compile(f"-?P(?!$){_DAYS}"),
    "yearMonthDuration": re.compile("-?P(?!$)([0-9]+Y)?([0-9]+M)?"),
}
_ANY_ZONE = re.compile(" ?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
_OBJECT = re.compile(r"<[^<>]* object at 0x[0-9a-f]+>|<class '[^']*'>|re\.compile\([^)]*\)")
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
    """The description of one column, inherited properties included."""

    def __init__(self, column: csvw.Column, around: Sequence[Any]) -> None:
        self._column = column
        self.title = str(column.header)
        self.name = str(column.name or quote(self.title, safe=""))
        self.is_virtual = bool(column.virtual)
        self.is_suppressed = bool(column.suppressOutput)
        self.about = _template(column.inherit("aboutUrl"))
        self.property = _template(column.inherit("propertyUrl"))
        self.value = _template(column.inherit("valueUrl"))
        self._separator = column.inherit("separator")
        self._type = column.inherit("datatype")
        self.default = str(column.inherit("default") or "")
        self.is_required = bool(column.inherit("required"))
        self._pattern = _bounded(self._type)
        self._is_decimal = self._type is not None and issubclass(
            self._type.basetype, datatypes.decimal
        )
        base = self._type.base if self._type is not None else "string"
        language = _language((column, *around))
        self.language = language if base in _PLAIN else None
        self.datatype = None if base in _PLAIN else _DATATYPES.get(base, XSD + base)
        self._form = _FORMS.get((self.datatype or "").removeprefix(XSD))
        if self._is_decimal and base != "decimal":
            self._form = _FORMS["integer"]
        self._format = self._type.derived_description if self._form else {}
        self._decimal = self._format.get("decimalChar") or "."
        has_groups = "," in (self._format.get("pattern") or "")
        group = self._format.get("groupChar") or ("," if has_groups else "")
        self._group = re.compile(f"(?<=[0-9]){re.escape(group)}(?=[0-9])")

    def is_called(self, title: str) -> bool:
        """True where a header cell names this column."""
        return bool(self._column.has_title(title))

    def values(self, text: str) -> list[str]:
        """Return a cell's lexical forms; none where null.

        Raises:
            ValueError: the cell does not fit the description.
        """
        if self._is_decimal and not _NOT_FINITE.isdisjoint(text.split(self._separator)):
            raise ValueError(f"{text[:_SHOWN]!r} of the column {self.title} is no decimal")
        try:
            read = self._column.read(text)
        except ValueError as error:
            if str(error).startswith(("required", "value must")):
                raise ValueError(f"{text[:_SHOWN]!r} of the column {self.title}: {error}") from None
            raise self._misfit(text, self._type.format) from None
        if read is None:
            return []
        text = text or self.default
        if not isinstance(read, list):
            return [self._lexical(read, text)]
        texts = text.split(self._separator) if text else []
        if len(read) != len(texts):
            raise ValueError(
                f"the column {self.title} has {len(texts)} values, of which {len(read)} are read"
            )
        return [
            self._lexical(value, each or self.default)
            for value, each in zip(read, texts, strict=True)
            if value is not None
        ]

    def _lexical(self, value: Any, text: str) -> str:
        if self._pattern is not None and not self._pattern.fullmatch(text):
            raise self._misfit(text, self._pattern.pattern)
        lexical = self._written(value, text)
        if self._form is not None and not self._form.fullmatch(lexical):
            raise self._misfit(text, None)
        return lexical

    def _misfit(self, text: str, form: object) -> ValueError:
        cell = repr(text[:_SHOWN])
        if form is not None:
            return ValueError(f"{cell} has not the format {form!r} of the column {self.title}")
        is_date = issubclass(self._type.basetype, datatypes.dateTime)
        limits = " (of the years 1 to 9999, before 24:00)" if is_date else ""
        return ValueError(f"{cell} of the column {self.title} is no {self._type.base}{limits}")

    def _written(self, value: Any, text: str) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if self.datatype is None:
            return text
        text = text.strip()
        if isinstance(value, int | float | Decimal):
            whole, point, fraction = text.partition(self._decimal)
            # A point that is neither of the format's characters is no decimal point.
            whole = self._group.sub("", whole).replace(".", "?")
            number = f"{whole}.{fraction}" if point else whole
            if number[-1:] in {"%", "‰"} and _FORMS["decimal"].fullmatch(number[:-1]):
                return f"{value:f}" if isinstance(value, Decimal) else str(value)
            return number
        if isinstance(value, date | time) and self._type.format:
            # The package ignores what follows the format: such a text is kept, if it is a form.
            shorter = _ANY_ZONE.sub("", text) if self._format["tz_marker"] else text
            if any(map(self._format["regex"].fullmatch, (text, shorter))):
                return _iso(value, self._type.base)
        return text


def _bounded(datatype: Any) -> Any:
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
    """Strip the text of Python's objects from a message."""
    return _OBJECT.sub("…", message)


def _template(template: Any) -> URITemplate | None:
    if template is None:
        return None
    if not hasattr(template, "uri"):
        raise ValueError("a malformed URL template")
    return URITemplate(template.uri)


def _language(descriptions: Iterable[Any]) -> str | None:
    languages = (getattr(each, "lang", None) for each in descriptions)
    return next((str(each) for each in languages if each and each not in _LANGUAGES), None)


def _iso(value: date | time, base: str) -> str:
    text = value.isoformat()
    if base == "date" and isinstance(value, datetime):
        # With its zone, which stands behind the time.
        text = text[:10] + text[19:]
    elif base == "time" and isinstance(value, datetime):
        text = value.timetz().isoformat()
    return text.replace("+00:00", "Z")


CSVW_PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "csvw": "http://www.w3.org/ns/csvw#",
        "dc": "http://purl.org/dc/terms/",
        "dc11": "http://purl.org/dc/elements/1.1/",
        "dcat": "http://www.w3.org/ns/dcat#",
        "dcterms": "http://purl.org/dc/terms/",
        "foaf": "http://xmlns.com/foaf/0.1/",
        "geo": "http://www.w3.org/2003/01/geo/wgs84_pos#",
        "org": "http://www.w3.org/ns/org#",
        "owl": "http://www.w3.org/2002/07/owl#",
        "prov": "http://www.w3.org/ns/prov#",
        "qb": "http://purl.org/linked-data/cube#",
        "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
        "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
        "schema": "http://schema.org/",
        "skos": "http://www.w3.org/2004/02/skos/core#",
        "sosa": "http://www.w3.org/ns/sosa/",
        "ssn": "http://www.w3.org/ns/ssn/",
        "time": "http://www.w3.org/2006/time#",
        "vcard": "http://www.w3.org/2006/vcard/ns#",
        "void": "http://rdfs.org/ns/void#",
        "xsd": XSD,
    }
)
"""Prefixes that URL templates may begin with: those of the RDFa initial context, and ``geo``."""

_MAX_FORMAT = 200
_PREFIXED = re.compile(r"([A-Za-z][\w.-]*):(?!//)(.*)", re.DOTALL)


class MappedRow(NamedTuple):
    """A mapped row: line number, texts by column, statements."""

    line: int
    cells: Mapping[str, str]
    quads: tuple[Quad, ...]


def read_metadata(described: Any, source: str, base: str | None = None) -> list["MappedTable"]:
    """Return the tables that a metadata document describes."""
    if not isinstance(described, dict) or not {"url", "tables"} & set(described):
        raise InputError("no CSVW metadata: neither 'tables' nor 'url'", source)
    context = described.get("@context")
    for part in context if isinstance(context, list) else []:
        if isinstance(part, dict) and "@base" in part and base is None:
            base = part["@base"]
    _check(described, source)
    group = described if "tables" in described else {"tables": [described]}
    group = {"@context": "http://www.w3.org/ns/csvw", **group}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            whole = csvw.TableGroup.fromvalue(group)
        return [MappedTable(table, whole, base) for table in whole.tables]
    except RecursionError:
        raise InputError("no CSVW metadata: nested too deeply", source) from None
    except (ValueError, TypeError, AttributeError, LookupError, AssertionError, UserWarning) as e:
        raise InputError(f"no CSVW metadata: {plain(str(e))}", source) from None


def _check(described: Any, source: str) -> None:
    waiting = [described]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            for name in ("tableSchema", "dialect", "tables", "columns"):
                if isinstance(part.get(name), str):
                    raise InputError(
                        f"no CSVW metadata: {name} must be described here, "
                        f"not in {part[name][:_SHOWN]!r}",
                        source,
                    )
            forms = part.get("format")
            for form in forms.values() if isinstance(forms, dict) else [forms]:
                if isinstance(form, str) and len(form) > _MAX_FORMAT:
                    raise InputError(
                        f"no CSVW metadata: a format of {len(form)} characters", source
                    )
            waiting.extend(part.values())


def file_beside(metadata: InputPlace, url: str) -> InputPlace:
    """Return the file beside or below the metadata."""
    if isinstance(metadata, Path):
        folder = metadata.parent
        inside = (folder / url).resolve().is_relative_to(folder.resolve())
    else:
        inside = not url.startswith("/") and ".." not in PurePosixPath(url).parts
    if ":" in url or "\\" in url or not inside:
        source = str(metadata)
        raise InputError(f"a url that leads elsewhere: {url[:_SHOWN]!r}; name the file", source)
    return beside(metadata, url)


class MappedTable:
    """The mapping of one table."""

    def __init__(self, table: csvw.Table, group: csvw.TableGroup, base: str | None) -> None:
        self.url = str(table.url)
        self._iri = urljoin(base, self.url) if base is not None else None
        self._dialect = table.dialect or group.dialect or csvw.Dialect()
        self.encoding = str(self._dialect.python_encoding)
        if self.encoding == "utf-8":
            self.encoding = "utf-8-sig"
        if table.suppressOutput:
            self._columns: list[CsvwColumn] = []
        else:
            self._columns = [
                CsvwColumn(column, (table.tableSchema, table, group))
                for column in table.tableSchema.columns
            ]

    def rows(
        self, lines: Iterable[str], source: str, share: int = 0, shares: int = 1, scope: str = ""
    ) -> Iterator[MappedRow]:
        """Yield the mapped rows, or every n-th, with blank nodes scoped.

        Raises:
            InputError: a cell or the header does not fit the description.
        """
        readable = lines if hasattr(lines, "read") else list(lines)
        with UnicodeReaderWithLineNumber(readable, dialect=self._dialect) as reader:
            rows = iter(reader)
            header: list[str] | None = None
            try:
                if self._dialect.header:
                    heads = list(itertools.islice(rows, max(self._dialect.headerRowCount, 1)))
                    if not heads:
                        return
                    header = heads[-1][1]
                columns = self._positioned(header, source)
                reads_empty = any(column.default or column.is_required for _, column in columns)
                for number, (line, texts) in enumerate(rows, start=1):
                    if (number - 1) % shares == share and (any(texts) or (texts and reads_empty)):
                        yield self._row(number, line, texts, columns, source, scope)
            except csv.Error as error:
                raise InputError(f"no CSV ({error})", source, reader.lineno + 1) from None

    def _positioned(self, header: list[str] | None, source: str) -> list[tuple[int, CsvwColumn]]:
        real = [column for column in self._columns if not column.is_virtual]
        if header is None:
            return list(enumerate(real))
        columns = []
        for column in real:
            results = [n for n, title in enumerate(header) if column.is_called(title)]
            if not results:
                raise InputError(f"no column {column.title!r}", source, 1)
            columns.append((results[0], column))
        return columns

    def _row(
        self,
        number: int,
        line: int,
        texts: list[str],
        columns: list[tuple[int, CsvwColumn]],
        source: str,
        scope: str,
    ) -> MappedRow:
        values: dict[str, list[str]] = {}
        try:
            for position, column in columns:
                if position >= len(texts):
                    raise ValueError(f"no cell of {column.title}")
                values[column.name] = column.values(texts[position])
            for column in self._columns:
                if column.is_virtual and column.value is None:
                    values[column.name] = column.values("")
                # Options and templates may name a column by its title.
                values[column.title] = values.get(column.name, [])
            cells = {n: " ".join(v) if len(v) != 1 else v[0] for n, v in values.items() if v}
            variables: dict[str, Any] = {
                name: result[0] if len(result) == 1 else result
                for name, result in values.items()
                if result
            }
            variables |= {"_row": number, "_sourceRow": line}
            quads: list[Quad] = []
            for column in self._columns:
                if column.is_suppressed or (not column.is_virtual and not values[column.name]):
                    continue
                variables["_name"] = unquote(column.name)
                subject = self._subject(column, variables, f"{scope}row{line}")
                predicate = self._predicate(column, variables)
                quads.extend(
                    Quad(subject, predicate, term)
                    for term in self._objects(column, variables, values)
                )
        except (ValueError, OverflowError, ArithmeticError, TermError) as error:
            raise InputError(plain(str(error)), source, line) from None
        return MappedRow(line, cells, tuple(quads))

    def _subject(self, column: CsvwColumn, variables: Mapping[str, Any], row: str) -> Term:
        if column.about is None:
            return blank_node(row)
        return self._resolved(column.about, variables)

    def _predicate(self, column: CsvwColumn, variables: Mapping[str, Any]) -> Term:
        if column.property is not None:
            return self._resolved(column.property, variables)
        if self._iri is None:
            raise ValueError(f"the column {column.title} has no propertyUrl, and there is no base")
        # A name is encoded already, as far as URL templates need.
        return iri(f"{self._iri}#{quote(column.name, safe='/%')}")

    def _objects(
        self, column: CsvwColumn, variables: Mapping[str, Any], values: Mapping[str, list[str]]
    ) -> Iterator[Term]:
        if column.value is not None:
            yield self._resolved(column.value, variables)
            return
        for lexical in values.get(column.name, ()):
            yield literal(lexical, column.language, column.datatype)

    def _resolved(self, template: URITemplate, variables: Mapping[str, Any]) -> Term:
        prefixed = _PREFIXED.fullmatch(template.uri)
        if prefixed and prefixed[1] in CSVW_PREFIXES:
            template = URITemplate(CSVW_PREFIXES[prefixed[1]] + prefixed[2])
        reference = template.expand(dict(variables))
        if urlsplit(reference).scheme:
            return iri(reference)
        if self._iri is None:
            raise ValueError(f"{reference!r} is relative, and there is no base")
        return iri(urljoin(self._iri, reference))


class Tabular:
    """Tables that a CSVW metadata file describes."""

    name = "csv"
    prefixes: Mapping[str, str] = CSVW_PREFIXES

    def __init__(
        self,
        metadata: str | InputPlace,
        files: Sequence[str | InputPlace] = (),
        base: str | None = None,
    ) -> None:
        path = input_place(metadata)
        self._tables = read_metadata(json_in(path), str(path), base)
        if files:
            if len(self._tables) != 1:
                raise InputError("describes several tables; name no files", str(path))
            self._files = [(input_place(file), self._tables[0]) for file in files]
        else:
            self._files = [(file_beside(path, table.url), table) for table in self._tables]
        for file, _ in self._files:
            if not file.is_file():
                raise InputError("no such file", str(file))

    def size(self) -> int:
        """About how many bytes the tables have."""
        return size_of(file for file, _ in self._files)

    def pieces(self, count: int) -> Sequence[str]:
        """Shares of the rows of every file."""
        count = max(count, 1)
        return [
            json.dumps([number, share, count])
            for number in range(len(self._files))
            for share in range(count)
        ]

    def quads(self, piece: str) -> Iterator[Quad]:
        """Yield the statements of every n-th row."""
        number, share, shares = json.loads(piece)
        file, table = self._files[number]
        path = str(file)
        try:
            with file.open(encoding=table.encoding, newline="") as lines:
                for row in table.rows(lines, path, share, shares, f"t{number}"):
                    yield from row.quads
        except UnicodeDecodeError as error:
            raise InputError(f"not {table.encoding} ({error.reason})", path) from None
        except LookupError:
            raise InputError(f"no encoding {table.encoding!r}", path) from None
        except OSError as error:
            raise InputError(error.strerror or str(error), path) from error
