"""The examples of docs/annotations.md are what the methods write and read."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pyoxigraph as ox
import pytest

from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS, method_named
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import Quad, iri, literal
from tests.support.oracle import quad_of

PAGE = (Path(__file__).parents[2] / "docs" / "annotations.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(\w.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))

NAMING = Naming("http://localhost:3000/trains/facts/", "http://localhost:3000/trains")
START, END = (datetime(2015, 12, 8, 10, minute, tzinfo=UTC) for minute in (10, 20))
QUAD = Quad(
    iri("http://example.org/departures/4815"),
    iri("http://example.org/train#delay"),
    literal("300", datatype="http://www.w3.org/2001/XMLSchema#integer"),
)
LABELS: dict[str, Label] = {"expiration": Expiration(END), "interval": Interval(START, END)}


def quads(block: str) -> list[Quad]:
    text = BLOCKS["turtle prefixes"] + BLOCKS[block]
    return [quad_of(quad) for quad in ox.parse(text, format=ox.RdfFormat.TRIG)]


@pytest.mark.parametrize("labelling", LABELS)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_examples(method: Method, labelling: str) -> None:
    fact = Fact(QUAD, LABELS[labelling])
    example = quads(f"trig {method.name} {labelling}")
    assert sorted(example) == sorted(method.encode(fact, NAMING))
    assert method.decode(example, NAMING) == [fact]


def test_older_forms() -> None:
    decoded = method_named("named-graph").decode(quads("trig named-graph older"), NAMING)
    assert decoded == [Fact(QUAD, Interval(START, END))]


def test_python_example() -> None:
    exec(BLOCKS["python"], {})


def test_no_example_is_forgotten() -> None:
    tested = {f"trig {method.name} {labelling}" for method in METHODS for labelling in LABELS}
    assert set(BLOCKS) == tested | {"turtle prefixes", "trig named-graph older", "python"}
