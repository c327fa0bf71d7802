"""C-SPARQL on the engine: registration, instants, lateness and limits."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.errors import (
    BacklogError,
    ElementError,
    EngineClosedError,
    EngineLimitError,
    UnknownQueryError,
    UnsupportedContinuousQueryError,
    WindowLimitError,
)
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.semantics import EngineLimits
from tpf_server.continuous.service.cli import StreamReplay, run_native

P = "<http://e/p>"
ALL = "SELECT ?o FROM STREAM <http://e/s> [RANGE 4ms STEP 2ms] { ?s <http://e/p> ?o }"


def push(engine: Engine, at: int, value: str, stream: str = "http://e/s") -> None:
    engine.push(stream, ("<http://e/x>", P, f'"{value}"'), at)


def values(answers: list[PeriodicAnswer]) -> dict[int, str]:
    return {
        answer.at: "".join(sorted(str(row[0])[1:-1] for row in answer.rows)) for answer in answers
    }


def test_idle_instants_can_be_left_out() -> None:
    engine = Engine(EngineSettings(skip_idle=True))
    registered = engine.register_csparql(ALL)
    push(engine, 1, "a")
    push(engine, 1001, "b")
    engine.finish()
    assert values(list(registered)) == {2: "a", 4: "a", 6: "", 1002: "b"}


def test_a_stream_that_is_made_anew_begins_anew() -> None:
    engine = Engine()
    engine.register_csparql(ALL.replace("e/s", "e/other"))
    push(engine, 1_000, "a")
    engine.delete_stream("http://e/s")
    registered = engine.register_csparql(ALL)
    push(engine, 1, "b")
    push(engine, 3, "c")
    assert values(list(registered)) == {2: "b"}


def test_queries_are_listed_and_unregistered() -> None:
    engine = Engine()
    made = engine.register_csparql(
        "REGISTER STREAM made AS CONSTRUCT { ?s <http://e/q> ?o }"
        " FROM STREAM <http://e/s> [RANGE 2ms TUMBLING] { ?s <http://e/p> ?o }"
    )
    reader = engine.register_csparql(
        "REGISTER QUERY reader AS SELECT ?o FROM STREAM <made> [RANGE 2ms TUMBLING]"
        " { ?s <http://e/q> ?o }"
    )
    assert list(engine.queries) == ["made", "reader"]
    assert made.stream == "<http://localhost/made>"
    push(engine, 1, "a")
    engine.advance(2)
    engine.query("made").close()
    push(engine, 3, "b")
    engine.advance(4)
    assert values(list(reader)) == {2: "a", 4: ""}
    assert (made.state, reader.state) == ("closed", "running")
    with pytest.raises(UnknownQueryError):
        engine.query("made")
    engine.close()
    assert reader.state == "closed"
    with pytest.raises(EngineClosedError):
        push(engine, 5, "c")


def test_streams_must_not_feed_themselves() -> None:
    engine = Engine()
    text = (
        "REGISTER STREAM {0} AS CONSTRUCT {{ ?s ?p ?o }}"
        " FROM STREAM <{1}> [RANGE 2ms TUMBLING] {{ ?s ?p ?o }}"
    )
    engine.register_csparql(text.format("one", "two"))
    with pytest.raises(UnsupportedContinuousQueryError, match="feed itself"):
        engine.register_csparql(text.format("two", "one"))
    assert list(engine.queries) == ["one"]
    engine.register_csparql(
        "REGISTER STREAM rows AS SELECT * FROM STREAM <x> [RANGE 2ms TUMBLING] { ?s ?p ?o }"
    )
    with pytest.raises(UnsupportedContinuousQueryError, match="rows is a SELECT"):
        engine.register_csparql(text.format("three", "rows"))


@pytest.mark.parametrize(
    ("inside", "says"),
    [
        ("SERVICE <urn:e> { ?s ?p ?o }", "cannot be asked from here"),
        ("FILTER (" + "!" * 3000 + "true)", "nested too deeply"),
        ("OPTIONAL { ?s <urn:q> ?c } " * 3000, "nested too deeply"),
    ],
)
def test_what_cannot_be_run_is_refused(inside: str, says: str) -> None:
    engine = Engine()
    with pytest.raises(UnsupportedContinuousQueryError, match=says):
        engine.register_csparql(
            f"SELECT ?s FROM STREAM <s> [RANGE 2ms TUMBLING] {{ ?s ?p ?o {inside} }}"
        )
    assert engine.queries == {}


def test_limits() -> None:
    engine = Engine(limits=EngineLimits(queries=2, window_rows=3, backlog=2))
    small = engine.register_csparql(ALL, name="small")
    slow = engine.register_csparql(
        "SELECT * FROM STREAM <http://e/t> [RANGE 2ms TUMBLING] { ?s ?p ?o }"
    )
    with pytest.raises(EngineLimitError):
        engine.register_csparql(ALL)
    for value in "abcd":
        push(engine, 1, value)
    assert (small.state, list(engine.queries)) == ("stopped", [slow.name])
    with pytest.raises(WindowLimitError):
        list(small)
    push(engine, 1, "a", "http://e/t")
    engine.advance(6)
    taken = iter(slow)
    assert [next(taken).at, next(taken).at] == [2, 4]
    with pytest.raises(BacklogError):
        next(taken)
    with pytest.raises(EngineLimitError):
        engine.register_csparql(ALL, name="x") and engine.register_csparql(ALL, name="x")


def test_bad_input() -> None:
    engine = Engine()
    engine.declare("http://e/s", ["http://e/p"])
    engine.register_csparql(ALL)
    feed = engine.record_feed("http://e/s", ["http://e/q"])
    columns = pa.array(["<http://e/x>"]), pa.record_batch({"q": ['"1"']}), pa.array([1])
    pushes: list[Callable[[], object]] = [
        lambda: engine.push("http://e/s", ("<http://e/x>", "<http://e/q>", '"1"'), 1),
        lambda: feed.push("<http://e/x>", ['"1"'], 1),
        lambda: feed.push_batch(*columns),
    ]
    for each in pushes:
        with pytest.raises(ElementError, match="does not declare"):
            each()
    with pytest.raises(UnsupportedContinuousQueryError, match="one answer"):
        engine.register_csparql("SELECT * { ?s ?p ?o }")
    engine.declare("http://e/s", ["http://e/p"])
    for others in (["http://e/q"], ["http://e/p", "http://e/q"]):
        with pytest.raises(EngineLimitError, match="read already, with <http://e/p>"):
            engine.declare("http://e/s", others)


def test_describe_and_computed_every_without_streams() -> None:
    engine = Engine()
    engine.add([("<http://e/x>", "<http://e/name>", '"X"')])
    described = engine.register_csparql(
        "DESCRIBE ?s FROM STREAM <http://e/s> [RANGE 2ms TUMBLING] { ?s <http://e/p> 'a' }"
    )
    clock = engine.register_csparql(
        "REGISTER QUERY clock COMPUTED EVERY 5ms AS SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"
    )
    engine.advance(0)
    push(engine, 1, "a")
    engine.advance(10)
    assert [answer.at for answer in clock] == [0, 5, 10]
    first, *rest = described
    assert sorted(first.rows) == [
        ("<http://e/x>", "<http://e/name>", '"X"'),
        ("<http://e/x>", "<http://e/p>", '"a"'),
    ]
    assert not any(answer.rows for answer in rest)


def test_files(tmp_path: Path) -> None:
    stream = tmp_path / "s.tsv"
    stream.write_text(f'1\t<http://e/x>\t{P}\t"a"\nbad\n3\t<http://e/x>\t{P}\t"b"\n')
    output = tmp_path / "out.tsv"
    with output.open("w") as file:
        asks = "ASK FROM STREAM <http://e/s> [RANGE 2ms TUMBLING] { ?s ?p 'b' }"
        replay = StreamReplay([ALL, asks], [("http://e/s", stream)], skip_malformed=True)
        done = run_native(replay, Engine(), file)
    assert (done.elements, done.malformed, done.late, done.answers) == (2, 1, 0, 4)
    assert output.read_text() == '2\t0\t"a"\n2\t1\tfalse\n4\t0\t"a"\n4\t0\t"b"\n4\t1\ttrue\n'
    with output.open("w") as file, pytest.raises(ElementError, match="line 2"):
        run_native(StreamReplay([ALL], [("http://e/s", stream)]), Engine(), file)
