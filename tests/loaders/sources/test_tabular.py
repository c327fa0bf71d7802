"""Tables that CSV on the Web describes, as RDF."""

import json
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
