"""Feed documents with one value exchanged: read, or refused."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad
from loaders.errors import InputError
from loaders.outputs import line_of
from loaders.sources.gbfs import Gbfs
from loaders.sources.irail import read_liveboard
from loaders.sources.ngsi_ld import NgsiLd, reader_of_json
from loaders.sources.siri import Siri
from tests.loaders.commands.test_polling import graph, linked, listed, reading
from tests.loaders.sources.test_gbfs import STATION, VEHICLE, document
from tests.loaders.sources.test_ngsi_ld import NORMALISED, notification
from tests.loaders.sources.test_siri import ET, VM
from tests.support.examples import examples

PLACE = "http://h/document"
CONTEXT = {"@context": linked("0")["@context"]}
TEXTS = st.one_of(
    st.text(max_size=9),
    st.sampled_from(
        ["", "x", "\ud800", "\0", "1:2", "urn:x", "http://[", "9" * 5000, "1e999", "-1", "cancel",
         "9999-12-31T23:59:59Z", "2026-01-05T08:00:00", "P", "@id", "@graph"]
    ),
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | TEXTS
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)  # fmt: skip


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Return containers and keys of all values."""
    names: Iterable[Any] = ()
    if isinstance(document, dict):
        names = document
    elif isinstance(document, list):
        names = range(len(document))
    for name in names:
        yield document, name
        yield from places(document[name])


def check(read: Callable[[bytes, str], Iterable[Quad]], content: bytes) -> None:
    """It is refused, or says what can be sent."""
    try:
        said = list(read(content, PLACE))
    except InputError:
        return
    assert all(line_of(quad).encode() for quad in said)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("json") / "context.json"
    file.write_text(json.dumps(CONTEXT))
    return file


@pytest.mark.parametrize(
    "name", ["irail", "irail of the API", "json", "json-ld", "ngsi-ld", "stations", "vehicles"]
)
@examples(60)
@given(data=st.data(), value=VALUES)
def test_json(context: Path, name: str, data: st.DataObject, value: Any) -> None:
    reads: dict[str, tuple[Callable[[bytes, str], Iterable[Quad]], Any]] = {
        "irail": (read_liveboard, graph("60")),
        "irail of the API": (read_liveboard, listed("60")),
        "json": (reader_of_json(context), reading("1")),
        "json-ld": (reader_of_json(None), linked("1")),
        "ngsi-ld": (NgsiLd().read, notification(NORMALISED)),
        "stations": (Gbfs().read, json.loads(document(stations=[STATION]))),
        "vehicles": (Gbfs().read, json.loads(document("3.0", vehicles=[VEHICLE]))),
    }
    read, whole = reads[name]
    changed = copy.deepcopy(whole)
    inside, key = data.draw(st.sampled_from(list(places(changed))))
    inside[key] = value
    check(read, json.dumps(changed).encode())
    if name == "ngsi-ld":
        with suppress(InputError):
            NgsiLd().instant(json.dumps(changed).encode(), PLACE)


XML_TEXTS = st.one_of(TEXTS, st.floats().map(str)).map(
    lambda text: "".join(c for c in text if not 0xD800 <= ord(c) < 0xE000)
)


@pytest.mark.parametrize("message", [ET, VM], ids=["ET", "VM"])
@examples(60)
@given(data=st.data(), text=st.none() | XML_TEXTS)
def test_siri(message: bytes, data: st.DataObject, text: str | None) -> None:
    root = ElementTree.fromstring(message)
    parents = [element for element in root.iter() if len(element)]
    parent = data.draw(st.sampled_from(parents))
    child = data.draw(st.sampled_from(list(parent)))
    if text is None:
        parent.remove(child)
    else:
        child.text = text
    content = ElementTree.tostring(root)
    check(Siri().read, content)
    with suppress(InputError):
        Siri().instant(content, PLACE)
