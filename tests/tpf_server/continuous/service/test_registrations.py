"""What was registered is there again, or somebody hears that it is not."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from annotations.clock import ManualClock
from annotations.terms import Term
from tpf_server.continuous.continuous_engine import Engine, EngineLimits
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.runtime.errors import (
    ContinuousError,
    RegistrationsError,
    UnknownEventError,
    UnknownQueryError,
)
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import as_lines
from tpf_server.continuous.service.result_log import Registration, Registrations

SELECT = "SELECT ?a { STREAM <s> [NOW] { ?a <urn:p> ?b } }"
CONSTRUCT = "CONSTRUCT { ?b <urn:q> ?a } { STREAM <s> [NOW] { ?a <urn:p> ?b } }"
PERIODIC = """REGISTER QUERY <http://example.org/queries#counts> COMPUTED EVERY 1s AS
SELECT (COUNT(*) AS ?n) FROM STREAM <s> [RANGE 1s STEP 1s] { ?a <urn:p> ?b }"""


def service(
    path: Path, registrations: Registrations | None = None, **limits: int
) -> ContinuousService:
    engine = Engine(limits=EngineLimits(**limits))
    return ContinuousService(
        engine,
        ManualClock(datetime(2020, 1, 1, tzinfo=UTC)),
        registrations=registrations or Registrations(path),
    )


def kept_in(path: Path) -> list[Registration]:
    """Read the queries as somebody who does not begin with them."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT registration FROM queries ORDER BY position").fetchall()
    return [Registration(**json.loads(each)) for (each,) in rows]


def changed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def listed(found: ContinuousService) -> object:
    streams = [each["stream"] for each in found.streams()]
    return streams, [(each.id, each.semantics, sorted(each.streams)) for each in found.queries()]


def test_everything_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "made" / "kept.sqlite"
    first = service(path)
    assert listed(first) == ([], [])
    first.register(SELECT)
    first.register(SELECT, name="paper", semantics="paper")
    first.register(CONSTRUCT, into="t")
    first.register(PERIODIC)
    first.register(SELECT, name="gone")
    first.create_stream("quiet")
    first.create_stream("lost")
    first.create_stream("quiet", ["urn:p", "urn:q"])
    first.push("pushed", [])
    first.delete("gone")
    first.delete_stream("lost")
    second = service(path)
    assert listed(second) == listed(first)
    streams = {each["stream"].rsplit("/")[-1] for each in second.streams()}
    assert streams == {"s", "t", "quiet", "pushed"}
    assert second.stream("quiet")["predicates"] == ["urn:p", "urn:q"]
    # Numbers go on, and what is registered later is kept too.
    assert second.register(SELECT).id == "3"
    assert listed(service(path)) == listed(second)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    path.write_text("no database" * 100)
    with pytest.raises(RegistrationsError, match=r"kept\.sqlite"):
        service(path)
    assert path.read_text() == "no database" * 100
    path = tmp_path / "other.sqlite"
    Registrations(path).save({}, [])
    changed(path, "INSERT INTO queries VALUES (1, '{\"color\": 1}')")
    with pytest.raises(RegistrationsError, match=r"other\.sqlite.*color"):
        service(path)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"streams": [], "queries": [{"color": 1}]}']
)
def test_an_earlier_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    earlier = tmp_path / "kept.json"
    earlier.write_text(text)
    with pytest.raises(RegistrationsError, match=r"kept\.json"):
        Registrations(tmp_path / "kept.sqlite", earlier=earlier)
    assert earlier.read_text() == text


def test_an_earlier_file_is_taken_over_once(tmp_path: Path) -> None:
    earlier = tmp_path / "kept.json"
    queries = [{"text": SELECT, "name": "q"}, {"text": PERIODIC, "semantics": None}]
    streams = {"streams": ["<urn:s>", "<urn:t>"], "declared": {"<urn:t>": ["<urn:p>"]}}
    earlier.write_text(json.dumps({**streams, "queries": queries}))
    path = tmp_path / "kept.sqlite"
    taken = [Registration(SELECT, "q"), Registration(PERIODIC)]
    for _ in range(2):
        registrations = Registrations(path, earlier=earlier)
        assert registrations.load() == ({"<urn:s>": None, "<urn:t>": ["<urn:p>"]}, taken)
        assert not earlier.exists()


def test_a_query_that_is_refused_now_has_failed_and_the_others_run(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    kept = [
        Registration(SELECT.replace("SELECT ?a", "SELECT ?a (NOW() AS ?now)"), "at"),
        Registration(PERIODIC.replace("COUNT(*)", "COUNTING(")),
        Registration("{", "1"),
        Registration("{"),
        Registration(SELECT, "2"),
        Registration(SELECT, "three"),
    ]
    Registrations(path).save({}, kept)
    again = service(path, queries=1)
    states = {each.id: (each.language, each.running.state) for each in again.queries()}
    assert states == {
        "at": ("CQELS-QL", "stopped"),
        "counts": ("C-SPARQL", "stopped"),
        "1": ("CQELS-QL", "stopped"),
        "3": ("CQELS-QL", "stopped"),
        "2": ("CQELS-QL", "running"),
        "three": ("CQELS-QL", "stopped"),
    }
    assert "CQELS-QL has no NOW()" in again.explain("at")["error"]
    assert "there are 1 queries" in again.explain("three")["error"]
    assert again.explain("counts")["text"] == kept[1].text
    with pytest.raises(ContinuousError, match=r"NOW\(\)"):
        again.query("at").log.read(again.query("at").log.last, 0)
    # It is kept until somebody deletes it, and another may have its name then.
    again.create_stream("quiet")
    assert len(kept_in(path)) == 6
    for name in ("at", "counts", "1", "3"):
        again.delete(name)
    again.delete("2")
    assert again.register(SELECT, name="at").running.state == "running"
    assert [each.name for each in kept_in(path)] == ["three", "at"]


def test_readers_and_publishers_go_on_where_the_last_server_stopped(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    triple = (Term("<urn:a>"), Term("<urn:p>"), Term("<urn:b>"))
    element = Element(1_577_836_800_000, (triple,), 1)

    def read(found: ContinuousService, after: int) -> list[dict[str, Any]]:
        text = "".join(as_lines(found.query("q"), after, follow=False))
        return [json.loads(line) for line in text.splitlines()]

    first = service(path)
    first.register(SELECT, name="q")
    for batch in ("1", "2"):
        assert first.push("s", [element], batch=batch).accepted == 1
    first.close()
    first.close()
    second = service(path)
    begin = second.query("q").log.oldest - 1
    one, two = read(second, begin)
    assert one["added"] == two["added"] == [{"a": "<urn:a>"}]
    assert second.push("s", [element], batch="2").repeated
    assert second.push("s", [element], batch="3").accepted == 1
    (three,) = read(second, two["id"])
    assert three["id"] == two["id"] + 1
    # After one that could not keep them nobody goes on with what is old.
    third = service(path)
    assert read(third, third.query("q").log.oldest - 1) == []
    with pytest.raises(UnknownEventError):
        third.query("q").log.check(three["id"])
    third.close()


def test_a_server_stops_although_results_cannot_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kept.sqlite"
    found = service(path)
    found.register(SELECT)
    changed(path, "DROP TABLE emissions")
    found.close()
    assert "results are not kept: " in caplog.text


def test_what_cannot_be_kept_is_not_begun(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    found = service(path)
    found.register(SELECT, name="kept")
    changed(path, "ALTER TABLE queries RENAME TO elsewhere")
    with pytest.raises(RegistrationsError):
        found.register(SELECT, name="lost")
    with pytest.raises(UnknownQueryError):
        found.query("lost")
    assert found.query("kept").running.state == "running"
    changed(path, "ALTER TABLE elsewhere RENAME TO queries")
    assert kept_in(path) == [Registration(SELECT, "kept")]


def test_a_worker_that_outlives_its_server_writes_nothing_of_the_next_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kept.sqlite"
    orphan = service(path)
    orphan.register(SELECT, name="q")
    following = service(path)
    with pytest.raises(RegistrationsError, match=r"kept\.sqlite: another server has begun with it"):
        orphan.register(SELECT, name="lost")
    following.register(SELECT, name="other")
    orphan.close()
    assert "results are not kept: " in caplog.text
    following.close()
    assert [each.name for each in kept_in(path)] == ["q", "other"]
    assert set(Registrations(path).take_results()[0]) == {"q", "other"}


def test_a_server_that_another_one_overtakes_leaves_all_to_that_one(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    first = service(path)
    first.register(SELECT, name="q")
    first.close()
    slow, following = Registrations(path), Registrations(path)
    for write in (slow.take_results, lambda: slow.save({}, [])):
        with pytest.raises(RegistrationsError, match="another server has begun with it"):
            write()
    assert [each.name for each in following.load()[1]] == ["q"]
    assert set(following.take_results()[0]) == {"q"}
