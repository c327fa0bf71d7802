"""Tables that CSV on the Web describes, as RDF."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from annotations.terms import Quad
from loaders.errors import InputError
from loaders.sources.csvw_mapping import Tabular
from tests.loaders.test_cli import run

SENSORS = """id,name,opened,height,open,tags,site
a b,Nørreport,21.03.2014,"1,234.5",yes,x;y,7
c,,01.12.2015,-3,no,,
"""
MAPPING: dict[str, Any] = {
    "@context": ["http://www.w3.org/ns/csvw", {"@base": "http://example.org/data/"}],
    "url": "sensors.csv",
    "tableSchema": {
        "aboutUrl": "sensors/{id}",
        "columns": [
            {"name": "id", "suppressOutput": True},
            {"name": "name", "propertyUrl": "rdfs:label", "lang": "da"},
            {
                "name": "day",
                "titles": "opened",
                "datatype": {"base": "date", "format": "dd.MM.yyyy"},
                "propertyUrl": "dcterms:created",
            },
            {"name": "height", "datatype": {"base": "decimal", "format": "#,##0.#"}},
            {"name": "open", "datatype": {"base": "boolean", "format": "yes|no"}},
            {"name": "tags", "separator": ";", "propertyUrl": "http://example.org/tag"},
            {"name": "site", "propertyUrl": "sites#at", "valueUrl": "/sites/{site}"},
            {
                "name": "kind",
                "virtual": True,
                "propertyUrl": "rdf:type",
                "valueUrl": "http://www.w3.org/ns/sosa/Sensor",
            },
        ],
    },
}


def write(folder: Path, mapping: object, text: str = SENSORS, name: str = "sensors.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    path = folder / "sensors-metadata.json"
    path.write_text(mapping if isinstance(mapping, str) else json.dumps(mapping))
    return path


def mapped(source: Tabular, count: int = 1) -> list[Quad]:
    # As workers get it.
    source = pickle.loads(pickle.dumps(source))
    return [quad for piece in source.pieces(count) for quad in source.quads(piece)]


def lines(quads: list[Quad]) -> list[str]:
    return sorted(f"{q.subject} {q.predicate} {q.object}" for q in quads)


XSD = "http://www.w3.org/2001/XMLSchema#"
A = "<http://example.org/data/sensors/a%20b>"
C = "<http://example.org/data/sensors/c>"
WANTED = sorted(
    [
        f'{A} <http://www.w3.org/2000/01/rdf-schema#label> "Nørreport"@da',
        f'{A} <http://purl.org/dc/terms/created> "2014-03-21"^^<{XSD}date>',
        f'{A} <http://example.org/data/sensors.csv#height> "1234.5"^^<{XSD}decimal>',
        f'{A} <http://example.org/data/sensors.csv#open> "true"^^<{XSD}boolean>',
        f'{A} <http://example.org/tag> "x"',
        f'{A} <http://example.org/tag> "y"',
        f"{A} <http://example.org/data/sites#at> <http://example.org/sites/7>",
        f"{A} <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/ns/sosa/Sensor>",
        f'{C} <http://purl.org/dc/terms/created> "2015-12-01"^^<{XSD}date>',
        f'{C} <http://example.org/data/sensors.csv#height> "-3"^^<{XSD}decimal>',
        f'{C} <http://example.org/data/sensors.csv#open> "false"^^<{XSD}boolean>',
        f"{C} <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/ns/sosa/Sensor>",
    ]
)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_cells_become_statements(tmp_path: Path, count: int) -> None:
    assert lines(mapped(Tabular(write(tmp_path, MAPPING)), count)) == WANTED


def test_columns_may_stand_anywhere_and_others_are_left_out(tmp_path: Path) -> None:
    rows = [line.split(";") for line in (
        "extra;site;tags;open;height;opened;name;id",
        "?;7;x|y;yes;1,234.5;21.03.2014;Nørreport;a b",
        "?;;;no;-3;01.12.2015;;c",
    )]  # fmt: skip
    mapping = json.loads(json.dumps(MAPPING))
    mapping["dialect"] = {"delimiter": ";"}
    mapping["tableSchema"]["columns"][5]["separator"] = "|"
    text = "\n".join(";".join(row) for row in rows)
    assert lines(mapped(Tabular(write(tmp_path, mapping, text)))) == WANTED


def test_files_of_another_name_and_another_base(tmp_path: Path) -> None:
    metadata = write(tmp_path, MAPPING)
    (tmp_path / "more.csv").write_text(SENSORS)
    source = Tabular(metadata, [tmp_path / "more.csv"], base="http://other.org/x/")
    text = "\n".join(WANTED).replace("http://example.org/data/", "http://other.org/x/")
    text = text.replace("http://example.org/sites", "http://other.org/sites")
    assert lines(mapped(source)) == sorted(text.splitlines())


def test_numbers_keep_their_form_and_rows_without_names_are_blank_nodes(tmp_path: Path) -> None:
    columns = [
        {"name": "a", "datatype": "integer", "propertyUrl": "http://e/a"},
        {"name": "b", "datatype": "double", "propertyUrl": "http://e/b"},
        {"name": "c", "datatype": "dateTime", "propertyUrl": "http://e/c"},
        {"name": "d", "propertyUrl": "http://e/d", "null": ["-"], "default": "none"},
    ]
    mapping = {"url": "t.csv", "tableSchema": {"columns": columns}, "dialect": {"header": False}}
    text = '007,1e3,2014-01-01T00:00:00+01:00,"two\nlines"\n1,INF,2014-01-01T00:00:00Z,-\n2,,,\n'
    quads = mapped(Tabular(write(tmp_path, mapping, text, "t.csv")))
    assert [(q.predicate[-2], q.object) for q in quads] == [
        ("a", f'"007"^^<{XSD}integer>'),
        ("b", f'"1e3"^^<{XSD}double>'),
        ("c", f'"2014-01-01T00:00:00+01:00"^^<{XSD}dateTime>'),
        ("d", '"two\\nlines"'),
        ("a", f'"1"^^<{XSD}integer>'),
        ("b", f'"INF"^^<{XSD}double>'),
        ("c", f'"2014-01-01T00:00:00Z"^^<{XSD}dateTime>'),
        ("a", f'"2"^^<{XSD}integer>'),
        ("d", '"none"'),
    ]
    assert len({q.subject for q in quads}) == 3
    assert all(q.subject.startswith("_:") for q in quads)


def test_several_tables(tmp_path: Path) -> None:
    group = {
        "@context": "http://www.w3.org/ns/csvw",
        "tables": [
            {
                "url": f"{name}.csv",
                "tableSchema": {
                    "aboutUrl": "http://e/{x}",
                    "columns": [{"name": "x", "propertyUrl": f"http://e/{name}"}],
                },
            }
            for name in ("one", "two")
        ],
    }
    (tmp_path / "one.csv").write_text("x\n1\n")
    metadata = write(tmp_path, group, "x\n2\n", "two.csv")
    assert lines(mapped(Tabular(metadata), 2)) == [
        '<http://e/1> <http://e/one> "1"', '<http://e/2> <http://e/two> "2"'
    ]  # fmt: skip
    with pytest.raises(InputError, match="several tables"):
        Tabular(metadata, [tmp_path / "one.csv"])


@pytest.mark.parametrize(
    ("change", "text", "message"),
    [
        ({}, SENSORS.replace("21.03.2014", "21.3.14"), "sensors.csv, line 2: "),
        ({}, SENSORS.replace("no,,", "maybe,,"), "sensors.csv, line 3: "),
        ({}, SENSORS.replace("opened", "shut"), "line 1: no column 'day'"),
        ({}, "id,name,opened,height,open,tags,site\na\n", "line 2: no cell of name"),
        ({"@context": "http://www.w3.org/ns/csvw"}, SENSORS, "is relative, and there is no base"),
        ({"url": "absent.csv"}, SENSORS, "absent.csv: no such file"),
        ({"tableSchema": 7}, SENSORS, "no CSVW metadata"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, change: dict[str, Any], text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        mapped(Tabular(write(tmp_path, MAPPING | change, text)))


def objects(folder: Path, column: dict[str, Any], text: str) -> list[str]:
    """The objects of a table of rows `ROW,CELL` without a header, of which the column is one."""
    columns = [{"name": "id", "suppressOutput": True}, {"propertyUrl": "http://e/p", **column}]
    mapping = {"url": "t.csv", "tableSchema": {"columns": columns}, "dialect": {"header": False}}
    return [quad.object for quad in mapped(Tabular(write(folder, mapping, text, "t.csv")))]


GERMAN = {"decimalChar": ",", "groupChar": "."}
COMMA = {"decimalChar": ","}


@pytest.mark.parametrize(
    ("base", "form", "cell", "lexical"),
    [
        ("decimal", GERMAN, "1.234", "1234"),
        ("decimal", GERMAN, "-1.234,5", "-1234.5"),
        ("decimal", GERMAN, "12,5%", "0.125"),
        ("decimal", GERMAN, ".5", None),
        ("decimal", GERMAN, "1,5.3", None),
        ("integer", GERMAN, "1.234", "1234"),
        ("decimal", COMMA, "1,5", "1.5"),
        ("decimal", COMMA, "1.5", None),
        ("double", COMMA, "1.5", None),
        ("decimal", {"groupChar": " "}, "1 234.5", "1234.5"),
        ("decimal", "#,##0.#", "1,234.5", "1234.5"),
        ("integer", "#,##0", "1,234", "1234"),
        ("decimal", None, " +1.50 ", "+1.50"),
        ("decimal", None, "25%", "0.25"),
        ("decimal", None, "25‰", "0.025"),
        ("integer", None, "100%", "1"),
        ("decimal", None, "1_000", None),
        ("decimal", None, "١٢", None),
        ("integer", None, "1_000", None),
        ("integer", None, "1.0", None),
        ("byte", None, "-05", "-05"),
        ("double", None, "1_0", None),
        ("double", None, "-1.5E-3", "-1.5E-3"),
        ("double", None, "-INF", "-INF"),
        ("float", None, "NaN", "NaN"),
        ("double", None, "infinity", None),
        ("dateTime", None, "2024-01-02T10:00:00.5-05:00", "2024-01-02T10:00:00.5-05:00"),
        ("dateTime", None, "2024-01-02T10:00:00", "2024-01-02T10:00:00"),
        ("dateTime", None, "20240102", None),
        ("dateTime", None, "2024-01-01", None),
        ("dateTime", None, "2024-01-01 10:00", None),
        ("dateTimeStamp", None, "2024-01-02T10:00:00Z", "2024-01-02T10:00:00Z"),
        ("dateTimeStamp", None, "2024-01-02T10:00:00", None),
        ("date", None, "2024-02-29+14:00", "2024-02-29+14:00"),
        ("date", None, "2024-01-02T10:00:00", None),
        ("date", "dd.MM.yyyy", "02.01.2024", "2024-01-02"),
        ("date", "dd.MM.yyyy", "02.01.2024 or so", None),
        ("date", "dd.MM.yyyy XXX", "02.01.2024 +01:00", "2024-01-02+01:00"),
        ("date", "dd.MM.yyyyXXX", "02.01.2024Z", "2024-01-02Z"),
        ("time", "HH:mm XXX", "10:00 Z", "10:00:00Z"),
        ("time", "HH:mm XXX", "10:00 -05:00", "10:00:00-05:00"),
        ("dateTime", "dd.MM.yyyy HH:mm", "02.01.2024 10:00+01:00", None),
        ("dateTime", "dd.MM.yyyy HH:mmXXX", "02.01.2024 10:00Z", "2024-01-02T10:00:00Z"),
        ("time", None, "10:00:00.25Z", "10:00:00.25Z"),
        ("time", None, "10:00:00 sharp", None),
        ("gYear", None, "-0044", "-0044"),
        ("gYear", None, "44", None),
        ("gYearMonth", None, "2024-12Z", "2024-12Z"),
        ("gYearMonth", None, "2024-13", None),
        ("gMonth", None, "--12", "--12"),
        ("gMonth", None, "12", None),
        ("gMonthDay", None, "--02-29", "--02-29"),
        ("gMonthDay", None, "--02-30", None),
        ("gMonthDay", None, "--11-31", None),
        ("gDay", None, "---31", "---31"),
        ("gDay", None, "31", None),
        ("duration", None, "-P1Y2M3DT4H5M6.7S", "-P1Y2M3DT4H5M6.7S"),
        ("duration", None, "PT", None),
        ("duration", None, "P1W", None),
        ("dayTimeDuration", None, "P1DT1S", "P1DT1S"),
        ("dayTimeDuration", None, "P1Y", None),
        ("yearMonthDuration", None, "P1Y2M", "P1Y2M"),
        ("yearMonthDuration", None, "P1D", None),
        ("boolean", None, "1", "true"),
        ("boolean", None, "yes", None),
    ],
)  # fmt: skip
def test_cells_have_the_form_of_their_datatype(
    tmp_path: Path, base: str, form: object, cell: str, lexical: str | None
) -> None:
    datatype = {"base": base} if form is None else {"base": base, "format": form}
    column, text = {"name": "a", "datatype": datatype}, f'1,"{cell}"\n'
    if lexical is not None:
        assert objects(tmp_path, column, text) == [f'"{lexical}"^^<{XSD}{base}>']
    else:
        with pytest.raises(InputError, match=r"t\.csv, line 1: "):
            objects(tmp_path, column, text)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ({"name": "unit", "virtual": True, "default": "C"}, ['"C"', '"C"']),
        ({"name": "unit", "virtual": True, "default": "7", "datatype": "int"},
         [f'"7"^^<{XSD}int>'] * 2),
        ({"name": "unit", "virtual": True}, []),
        ({"name": "tags", "separator": ";", "default": "none"},
         ['"x"', '"none"', '"y"', '"none"']),
        ({"name": "tags", "separator": ";", "default": "a;b"},
         ['"x"', '"a;b"', '"y"', '"a"', '"b"']),
        ({"name": "tags", "separator": ";", "default": "-", "null": "-"}, ['"x"', '"y"']),
    ],
)  # fmt: skip
def test_defaults(tmp_path: Path, column: dict[str, Any], values: list[str]) -> None:
    assert objects(tmp_path, column, "1,x;;y\n2,\n") == values


@pytest.mark.parametrize(
    ("default", "values"), [("none", ['"x"', '"none"', '"y"']), ("", ['"x"', '"y"'])]
)
def test_a_row_of_empty_cells_has_its_defaults(
    tmp_path: Path, default: str, values: list[str]
) -> None:
    column = {"name": "kind", "default": default}
    assert objects(tmp_path, column, "1,x\n,\n\n2,y\n") == values


@pytest.mark.parametrize(
    ("datatype", "cell", "fault"),
    [
        ("integer", "1x", "'1x' of the column c is no integer"),
        ("boolean", "maybe", "'maybe' of the column c is no boolean"),
        ("date", "2021-02-29", "'2021-02-29' of the column c is no date .of the years 1 to 9999"),
        ("dateTime", "-0044-03-15T00:00:00", "is no dateTime .of the years 1 to 9999"),
        ("time", "24:00:00", "'24:00:00' of the column c is no time .*before 24:00"),
        ({"base": "boolean", "format": "Y|N"}, "J", "'J' has not the format 'Y.N'"),
        ({"base": "int", "minimum": 3}, "2", "'2' of the column c: value must be >= 3"),
        ("string", "", "'' of the column c: required column value is missing"),
    ],
)
def test_a_cell_that_does_not_fit_is_quoted_with_its_column(
    tmp_path: Path, datatype: Any, cell: str, fault: str
) -> None:
    column = {"name": "c", "datatype": datatype, "required": True}
    with pytest.raises(InputError, match=rf"t\.csv, line 1: .*{fault}"):
        objects(tmp_path, column, f"1,{cell}\n")
    # Also where the row has nothing but that.
    with pytest.raises(InputError, match=r"line 1: '' of the column c: required"):
        objects(tmp_path, column, ",\n")


def test_a_column_without_name_is_called_by_its_encoded_title(tmp_path: Path) -> None:
    schema = {
        "aboutUrl": "room/{Room%20name}",
        "columns": [
            {"titles": "Room name"},
            {"name": "k%20l", "titles": "k"},
            {"titles": "°C", "propertyUrl": "#{_name}", "valueUrl": "/{Room name}"},
        ],
    }
    base = "http://e/"
    metadata = write(tmp_path, {"url": "t.csv", "tableSchema": schema},
                     "Room name,k,°C\na b,1,2\n", "t.csv")  # fmt: skip
    assert lines(mapped(Tabular(metadata, base=base))) == [
        "<http://e/room/a%20b> <http://e/t.csv#%C2%B0C> <http://e/a%20b>",
        '<http://e/room/a%20b> <http://e/t.csv#Room%20name> "a b"',
        '<http://e/room/a%20b> <http://e/t.csv#k%20l> "1"',
    ]
    (tmp_path / "t.csv").write_text("k,°C\n1,2\n")
    with pytest.raises(InputError, match="line 1: no column 'Room name'"):
        mapped(Tabular(metadata, base=base))


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', '{"tables": 7}'])
def test_metadata_that_are_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"sensors-metadata\.json"):
        Tabular(write(tmp_path, text))
    with pytest.raises(InputError, match="No such file"):
        Tabular(tmp_path / "absent.json")


def test_the_command(tmp_path: Path) -> None:
    metadata = write(tmp_path, MAPPING)
    arguments = ["csv", metadata, tmp_path / "sensors.csv", "-o", tmp_path / "out", "--quiet"]
    arguments += ["--engine", "local", "--format", "ntriples", "--base", "http://example.org/data/"]
    assert run("load", *arguments) == 0
    text = (tmp_path / "out" / "part-00000.nt").read_text()
    assert text.splitlines() == [f"{line} ." for line in WANTED]
