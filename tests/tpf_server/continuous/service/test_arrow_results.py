"""Results over HTTP as a stream of Arrow equal NDJSON."""

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.support.continuous_site import PERIODIC_TEXT, QUERY, Site, element
from tpf_server.continuous.service import hosting
from tpf_server.continuous.service.hosting import ARROW

RSPQL = (
    "REGISTER DSTREAM <http://localhost/streams/out> AS CONSTRUCT { GRAPH ?a { ?a <urn:q> ?b } }"
    " FROM NAMED WINDOW <w> ON <http://localhost/s> [RANGE 4ms STEP 2ms]"
    " WHERE { WINDOW <w> { ?a <urn:p> ?b } }"
)
ASKED = PERIODIC_TEXT.replace("NAME", "asked").replace("SELECT ?a ?b", "ASK")
TEXTS = {
    "select": (QUERY, {}),
    "left": (QUERY, {"semantics": "paper-dstream"}),
    "answers": (QUERY, {"semantics": "paper-answer"}),
    "whether": ("ASK { STREAM <http://localhost/s> [NOW] { ?a <urn:p> ?b } }", {}),
    "optional": (
        QUERY.replace("?b }", "?b OPTIONAL { ?b <urn:none> ?c } }").replace("?a ?b {", "* {"),
        {},
    ),
    "triples": (
        "CONSTRUCT { ?a <urn:q> ?b } { STREAM <http://localhost/s> [NOW] { ?a <urn:p> ?b } }",
        {},
    ),
    "periodic": (PERIODIC_TEXT.replace("NAME", "periodic"), {}),
    "asked": (ASKED, {}),
    "out": (RSPQL, {}),
}


@pytest.fixture
def site() -> Site:
    return Site(policies={"time": "elements"})


def arrow(site: Site, name: str, **options: Any) -> pa.Table:
    found = site.results(name, ARROW, params={"follow": "false", **options})
    assert found.headers["Content-Type"] == ARROW
    return pa.ipc.open_stream(found.content).read_all()


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*[column.to_pylist() for column in table.columns], strict=True))


def expected(found: list[dict[str, Any]], names: list[str]) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []
    for each in found:
        head = each["id"], each["sequence"], datetime.fromisoformat(each["at"])
        (relation,) = each.keys() - {"id", "sequence", "at"}
        said = each[relation]
        said = [{}] * said if isinstance(said, bool) else said
        for row in said:
            cells = row if isinstance(row, list) else [row.get(name[1:]) for name in names]
            made.append((*head, -1 if relation == "removed" else 1, *cells))
        if not said:
            made.append((*head, 0, *[None] * len(names)))
    return made


@pytest.mark.parametrize("first", ["arrow", "ndjson"])
@pytest.mark.parametrize("name", TEXTS)
def test_it_says_what_ndjson_says(site: Site, name: str, first: str) -> None:
    text, options = TEXTS[name]
    registered = site.register(text, **({"name": name, **options} if name != "out" else options))
    assert registered.status_code == 201, registered.text
    pushed = [element(at, f"<urn:a{at % 3}>", f'"{at % 2}"') for at in (1, 2, 2, 7, 13, 40)]
    assert site.push(*pushed).status_code == 200
    # What was written as JSON is kept as that.
    if first == "ndjson":
        site.emissions(name)
    table = arrow(site, name)
    names = table.schema.names
    assert names[:4] == ["id", "sequence", "at", "multiplicity"]
    said = site.emissions(name)
    assert said
    assert rows(table) == expected(said, names[4:])
    assert (names[4:] == ["?s", "?p", "?o", "?g"]) == (name == "out")
    after = said[0]["id"]
    assert rows(arrow(site, name, after=after)) == expected(said[1:], names[4:])
    assert rows(arrow(site, name, after=said[-1]["id"])) == []


def test_a_follower_gets_what_comes_and_then_why_there_is_no_more(site: Site) -> None:
    site.register(name="mine")
    site.push(element(1))
    followed = site.results("mine", ARROW, stream=True)
    site.push(element(2, b='"é"'))
    site.service.close()
    with pa.ipc.open_stream(followed.content) as reader:
        first, _ = reader.read_next_batch_with_custom_metadata()
        last, why = reader.read_next_batch_with_custom_metadata()
        with pytest.raises(StopIteration):
            reader.read_next_batch()
    assert first.column("?b").to_pylist() == ['"1"', '"é"']
    assert (last.num_rows, why[b"error"]) == (0, b"the server stops")


def test_silence_is_an_empty_batch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "_HEARTBEAT", 0.01)
    site.register(name="mine")
    hosted = site.service.query("mine")
    chunks = hosting.as_arrow(hosted, 0, follow=True)
    written = next(chunks)
    site.push(element(1))
    while b"urn:a" not in written:
        written += next(chunks)
    batches = list(pa.ipc.open_stream(written))
    assert [each.num_rows for each in batches][-1] == 1
    assert batches[0].num_rows == 0


def test_what_is_not_written_is_said(site: Site) -> None:
    site.register(name="mine")
    refused = site.results("mine", "application/vnd.apache.arrow.file")
    assert refused.status_code == 406
    assert ARROW in refused.json()["detail"]
    assert site.results("mine", ARROW, params={"after": "7", "follow": "false"}).status_code == 410
