"""Records pushed as a stream of Arrow: as if each had come as a line of NDJSON."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from tests.support.continuous_site import NDJSON, Site
from tests.support.examples import examples
from tpf_server.continuous.runtime.plans.fused_stream import FusedStream
from tpf_server.continuous.runtime.records import record_reading
from tpf_server.continuous.runtime.semantics import EngineLimits
from tpf_server.continuous.service.hosting import ARROW, as_lines

XSD = "http://www.w3.org/2001/XMLSchema#"
STREAMS = "http://localhost/streams/"
AS_ARROW = {"Content-Type": ARROW}
RANKED = (
    "SELECT ?k (COUNT(*) AS ?c) { STREAM <streams/s> [RANGE 9ms] { ?s <urn:k> ?k ; <urn:x> ?x } }"
    " GROUP BY ?k ORDER BY DESC(?c) ?k LIMIT 2"
)
QUERIES = {
    "ranked": {"query": RANKED, "semantics": "paper-answer"},
    "star": "SELECT ?s ?k ?x { STREAM <streams/s> [NOW] { ?s <urn:k> ?k ; <urn:x> ?x } }",
    "pairs": "SELECT ?s ?o { STREAM <streams/s> [RANGE 5ms] { ?s <urn:k> ?k }"
    " STREAM <streams/o> [RANGE 5ms] { ?o <urn:k> ?k } }",
    "counted": "SELECT ?x { STREAM <streams/s> [TRIPLES 3] { ?s <urn:x> ?x } }",
    "every": "SELECT ?g ?x { STREAM ?g [NOW] { ?s <urn:x> ?x } }",
    "slides": "SELECT ?x { STREAM <streams/s> [RANGE 6ms SLIDE 3ms] { ?s <urn:x> ?x } }",
    "made": {
        "query": "CONSTRUCT { ?s <urn:k> ?x } { STREAM <streams/s> [NOW] { ?s <urn:x> ?x } }",
        "into": "streams/m",
    },
    "of made": "SELECT ?k { STREAM <streams/m> [NOW] { ?s <urn:k> ?k } }",
    "periodic": "REGISTER QUERY periodic AS SELECT ?s ?x"
    " FROM STREAM <streams/s> [RANGE 6ms STEP 3ms] { ?s <urn:x> ?x }",
    "periodic elsewhere": "REGISTER QUERY elsewhere AS SELECT ?s ?x"
    " FROM STREAM <streams/o> [RANGE 6ms STEP 3ms] { ?s <urn:x> ?x }",
    "periodic of made": "REGISTER QUERY ofMade AS SELECT ?k"
    " FROM STREAM <streams/m> [RANGE 6ms STEP 3ms] { ?s <urn:k> ?k }",
    "registered": "REGISTER STREAM <urn:o> AS CONSTRUCT { ?s <urn:x> ?x }"
    " FROM STREAM <streams/o> [RANGE 6ms STEP 3ms] { ?s <urn:x> ?x }",
    "of registered": "SELECT ?s ?x { STREAM <urn:o> [NOW] { ?s <urn:x> ?x } }",
    "reports": "REGISTER RSTREAM <urn:r> AS SELECT ?x FROM NAMED WINDOW <w> ON <streams/s>"
    " [RANGE 4ms STEP 2ms] WHERE { WINDOW <w> { ?s <urn:x> ?x } }",
}
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "integers": (pa.int64(), st.integers(-3, 3), lambda v: f'"{v}"^^<{XSD}integer>'),
    "decimals": (
        pa.decimal128(9, 1),
        st.integers(-30, 30).map(lambda n: Decimal(n).scaleb(-1)),
        lambda v: f'"{v}"^^<{XSD}decimal>',
    ),
    "floats": (pa.float64(), st.sampled_from((0.5, 2.5)), lambda v: f'"{v}"^^<{XSD}double>'),
    "booleans": (pa.bool_(), st.booleans(), lambda v: f'"{str(v).lower()}"^^<{XSD}boolean>'),
    "instants": (
        pa.timestamp("us", "Europe/Brussels"),
        st.integers(0, 3).map(lambda n: datetime(2020, 1, 1, 0, 0, n, tzinfo=UTC)),
        lambda v: f'"{v:%Y-%m-%dT%H:%M:%S}Z"^^<{XSD}dateTime>',
    ),
    "texts": (
        pa.string(),
        st.sampled_from(('"a"', "<urn:a>", '"é"@fr', ' "a"', "_:b", f'"1"^^<{XSD}integer>')),
        str,
    ),
    "large texts": (pa.large_string(), st.sampled_from(('"a"', "<urn:b>")), str),
    "views": (pa.string_view(), st.sampled_from(('"a"', f'"{"long" * 9}"')), str),
    "some bare": (pa.string(), st.sampled_from(('"a"', "<urn:b>", "<urn:c>", "bare")), str),
}
ENCODINGS = {
    "plain": lambda column: column,
    "dictionary": lambda column: column.dictionary_encode(),
    "runs": pc.run_end_encode,
}


class Pushed(NamedTuple):
    """A batch, in both forms."""

    stream: str
    lines: str
    arrow: bytes
    batch: str | None


def written(*batches: pa.RecordBatch, schema: pa.Schema | None = None, **options: Any) -> bytes:
    """A stream of IPC."""
    sink = pa.BufferOutputStream()
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, schema or batches[0].schema, options=how) as writer:
        for each in batches:
            writer.write_batch(each)
    found: bytes = sink.getvalue().to_pybytes()
    return found


@st.composite
def pushes(draw: Any) -> Pushed:
    kinds = {
        name: draw(st.sampled_from(sorted(KINDS)))
        for name in draw(st.sampled_from((["urn:k", "urn:x"], ["urn:x", "urn:z", "urn:k"])))
    }
    cells = st.tuples(*[KINDS[kind][1] for kind in kinds.values()])
    subjects = st.sampled_from(("<urn:1>", "<urn:2>", "_:b") + ('"none"',) * draw(st.booleans()))
    most = draw(st.sampled_from((8, 8, 60)))
    some = draw(st.lists(st.tuples(st.integers(0, 40), subjects, cells), max_size=most))
    if draw(st.booleans()):
        some.sort(key=lambda each: each[0])
    texts = []
    for at, subject, values in some:
        terms = [KINDS[kind][2](v) for kind, v in zip(kinds.values(), values, strict=True)]
        triples = [[subject, f"<{name}>", o] for name, o in zip(kinds, terms, strict=True)]
        texts.append(json.dumps({"timestamp": at, "triples": triples}))
    times = draw(st.sampled_from((pa.int64(), pa.int16(), pa.timestamp("ms", "UTC"))))
    encode = {
        name: ENCODINGS[draw(st.sampled_from(sorted(ENCODINGS)))]
        for name, kind in kinds.items()
        if kind != "views"
    }
    rows = [values for _, _, values in some]
    columns = {
        "timestamp": pa.array([at for at, _, _ in some], pa.int64()).cast(times),
        "subject": pa.array([subject for _, subject, _ in some], pa.string()),
    }
    for place, (name, kind) in enumerate(kinds.items()):
        column = pa.array([row[place] for row in rows], KINDS[kind][0])
        columns[name] = encode.get(name, ENCODINGS["plain"])(column)
    whole = pa.RecordBatch.from_pydict(columns)
    cut = draw(st.integers(0, len(some)))
    parts = [whole.slice(0, cut), whole.slice(cut)]
    body = written(*parts, schema=whole.schema) if draw(st.booleans()) else written(whole)
    name = draw(st.sampled_from(("s", "s", "s", "o")))
    batch = draw(st.sampled_from((None, None, "one", "two")))
    return Pushed(name, "\n".join(texts), body, batch)


def send(site: Site, pushed: Pushed, *, arrow: bool) -> requests.Response:
    return site.post(
        f"streams/{STREAMS.replace('/', '%2F')}{pushed.stream}",
        pushed.arrow if arrow else pushed.lines,
        AS_ARROW if arrow else NDJSON,
        params={} if pushed.batch is None else {"batch": pushed.batch},
    )


def said(site: Site, names: Sequence[str]) -> list[Any]:
    """What a site tells of its queries and streams."""
    hosted = site.service.queries()
    assert len(hosted) == len(names)
    found = ["".join(as_lines(each, each.log.oldest - 1, follow=False)) for each in hosted]
    return [found, site.service.streams()]


def as_of_lines(answer: requests.Response) -> tuple[int, str]:
    """An answer, as if records were lines."""
    text = re.sub(r"\brecord (?=\d+: )", "line ", answer.text)
    return answer.status_code, text.replace('"record"', '"line"')


@examples(35)
@given(
    some=st.lists(st.tuples(pushes(), st.integers(0, 6)), min_size=1, max_size=5),
    names=st.lists(st.sampled_from(sorted(QUERIES)), unique=True, max_size=4),
    policies=st.fixed_dictionaries(
        {
            "time": st.sampled_from(("clock", "elements", "elements")),
            "lateness": st.sampled_from((0, 0, 0, 4)),
            "ahead": st.sampled_from((15, 100)),
            "delay": st.just(2),
            "whole_batches": st.booleans(),
        }
    ),
    declared=st.sampled_from((None, None, ["urn:k", "urn:x"])),
    refusing=st.booleans(),
    window_rows=st.sampled_from((5, 30, 1000, 1000)),
)
def test_records_are_what_lines_are(
    some: list[tuple[Pushed, int]],
    names: list[str],
    policies: Any,
    declared: Any,
    refusing: bool,
    window_rows: int,
) -> None:
    found = []
    for arrow in (False, True):
        limits = EngineLimits(window_rows=window_rows)
        site = Site(policies=policies, body=100_000, limits=limits)
        site.service.create_stream(f"{STREAMS}s", declared)
        if refusing:
            # What is made of other streams fails.
            site.service.create_stream(f"{STREAMS}m", ["urn:z"])
        register(site, *names)
        told: list[Any] = []
        for pushed, passing in some:
            told.append(as_of_lines(send(site, pushed, arrow=arrow)))
            told.append(said(site, names))
            site.clock.advance_to(site.clock.now() + timedelta(milliseconds=passing))
            site.service.advance()
        found.append((told, said(site, names)))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["made", "counted into", "elsewhere into"])
def test_nothing_is_too_late_once_no_query_is_left(name: str) -> None:
    made = {
        "made": QUERIES["made"],
        "counted into": {
            "query": "CONSTRUCT { ?s <urn:k> ?x }"
            " { STREAM <streams/s> [TRIPLES 3] { ?s <urn:x> ?x } }",
            "into": "streams/m",
        },
        # Whose windows are not of the stream.
        "elsewhere into": {
            "query": "CONSTRUCT { ?s <urn:k> ?x }"
            " { STREAM <streams/o> [RANGE 3ms] { ?s <urn:x> ?x } }",
            "into": "streams/m",
            "semantics": "paper-dstream",
        },
    }[name]
    found = []
    times = [0, 5, 5, 3, 9, 7]
    for arrow in (False, True):
        site = started()
        site.service.create_stream(f"{STREAMS}s")
        site.service.create_stream(f"{STREAMS}m", ["urn:z"])
        assert site.post("queries", json=made).ok
        push(site, written(records(1)), "o")
        assert site.service._engine.queries
        batch = records(len(times), timestamp=pa.array(times))
        lines = [json.dumps({"timestamp": at, "triples": line_of(n)}) for n, at in enumerate(times)]
        answer = send(site, Pushed("s", "\n".join(lines), written(batch), None), arrow=arrow)
        assert not site.service._engine.queries
        found.append([answer.json(), said(site, ["one"]), site.service._engine.time])
    assert found[0] == found[1]
    assert found[0][0]["accepted"] == len(times)


def records(count: int = 30, first: int = 0, **columns: Any) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array(numbers, pa.int64()),
            "subject": pa.array([f"<urn:{number}>" for number in numbers], pa.string()),
            "urn:k": pa.array([number % 3 for number in numbers], pa.int64()),
            "urn:x": pa.array(numbers, pa.int64()),
        }
        | columns
    )


def line_of(number: int) -> list[list[str]]:
    """The triples of one of these."""
    k, x = (f'"{value}"^^<{XSD}integer>' for value in (number % 3, number))
    return [[f"<urn:{number}>", "<urn:k>", k], [f"<urn:{number}>", "<urn:x>", x]]


def push(site: Site, body: bytes, name: str = "s") -> requests.Response:
    return site.post(f"streams/streams%2F{name}", body, AS_ARROW)


def started(*names: str, **options: Any) -> Site:
    site = Site(body=100_000, **{"policies": {"time": "elements"}} | options)
    register(site, *names)
    return site


def register(site: Site, *names: str) -> None:
    for name in names:
        wanted = QUERIES[name]
        made = site.post("queries", json=wanted if isinstance(wanted, dict) else {"query": wanted})
        assert made.status_code == 201, made.text


class Reader:
    """An executor whose queries read one stream."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.heard: list[Any] = []

    def reads(self, stream: str) -> bool:
        return stream == f"<{STREAMS}{self.stream}>"

    def arrive(self, stream: str, triples: Any, at: int) -> None:
        if self.reads(stream):
            self.heard.append((triples, at))

    def advance(self, told: int | None, present: int | None) -> None:
        self.heard.append((told, present))


def reading(reader: Reader) -> dict[str, Any]:
    return {"executors": lambda _lock: ({"other": reader}, "native")}


@pytest.mark.parametrize(
    ("names", "options", "single"),
    [
        (["ranked"], {}, 0),
        (["star", "pairs", "made", "of made"], {}, 0),
        (["ranked", "periodic elsewhere"], {}, 0),
        (["ranked"], reading(Reader("o")), 0),
        (["ranked", "periodic"], {}, 30),
        (["made", "periodic of made"], {}, 30),
        (["ranked", "reports"], {}, 30),
        (["ranked"], reading(Reader("s")), 30),
        (["ranked"], {"policies": {"time": "elements", "lateness": 5}}, 30),
        (["periodic"], {}, 30),
        ([], {}, 30),
    ],
)
def test_elements_are_made_only_where_somebody_looks_at_single_ones(
    monkeypatch: pytest.MonkeyPatch, names: list[str], options: Any, single: int
) -> None:
    made, fused = [], []
    make, run = record_reading._element, FusedStream.run

    def element(*arguments: Any) -> Any:
        made.append(1)
        return make(*arguments)

    def taken(self: FusedStream, rows: Any, passed: Any) -> int:
        done = run(self, rows, passed)
        fused.append(done)
        return done

    monkeypatch.setattr(record_reading, "_element", element)
    monkeypatch.setattr(FusedStream, "run", taken)
    site = started(*names, **options)
    whole = records()
    answer = push(site, written(whole.slice(0, 7), whole.slice(7)))
    assert answer.json() == {"accepted": 30, "dropped": 0, "late": 0, "refused": []}
    assert sum(made) == single
    # The kernel takes them in one call, however many batches they came in.
    assert fused == ([30] if "ranked" in names and not single else [])
    counted = site.get("streams/streams%2Fs")
    # Also while they wait for late ones.
    assert (counted["elements"], counted["triples"]) == (30, 60)


def test_an_executor_hears_the_same() -> None:
    for stream in ("s", "o"):
        heard = []
        for arrow in (False, True):
            reader = Reader(stream)
            site = started("ranked", "made", **reading(reader))
            whole = records()
            lines = [
                json.dumps({"timestamp": n, "triples": line_of(n)}) for n in range(whole.num_rows)
            ]
            send(site, Pushed("s", "\n".join(lines), written(whole), None), arrow=arrow)
            heard.append(reader.heard)
        assert heard[0] == heard[1]
        assert heard[0][-1] == (None, None)


def test_predicates_go_with_their_ways_in() -> None:
    site = started("star")
    dictionary = site.service._engine.dictionary
    lasting = dictionary.lasting

    def check() -> None:
        site.service._engine.sweep()
        texts = set(dictionary.texts.values())
        found = {n for n in range(300) if f"<urn:p{n}>" in texts}
        # Another integer that is somewhere may keep some more.
        assert len(found) < 50

    for number in range(300):
        body = written(records(1, number, **{f"urn:p{number}": pa.array(["<urn:o>"])}))
        assert push(site, body).json()["accepted"] == 1
    check()
    assert dictionary.lasting == lasting
    # Those that nobody holds are others when they come again.
    body = written(records(1, 300, **{"urn:p0": pa.array(["<urn:o>"])}))
    assert push(site, body).json()["accepted"] == 1
    check()
    assert site.delete("streams/streams%2Fs").status_code == 409
    assert site.delete("queries/1").ok
    assert site.delete("streams/streams%2Fs").ok
    check()


def test_a_stream_that_was_deleted_is_another_one() -> None:
    site = started("every")
    for first in (0, 3, 6):
        assert push(site, written(records(3, first))).json()["accepted"] == 3
        if first == 3:
            assert site.delete("streams/streams%2Fs").ok
    found = [row["x"] for each in site.emissions() for row in each["added"]]
    assert found == [f'"{number}"^^<{XSD}integer>' for number in range(9)]


def test_elements_are_made_while_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, make = [], record_reading._element

    def element(*arguments: Any) -> Any:
        waiting.append(site.service._lock._is_owned())  # type: ignore[attr-defined]
        return make(*arguments)

    monkeypatch.setattr(record_reading, "_element", element)
    body = written(records(**{"urn:k": pa.array(['"a"'] * 29 + ["bare"])}))
    for whole in (True, False):
        site = started("ranked", policies={"time": "elements", "whole_batches": whole})
        assert push(site, body).ok is not whole
        assert waiting == [False] * 30
        waiting.clear()
    # Who comes to look at single ones meanwhile sees them.
    columns = site.service._intake.accepts_columns

    def registers(*arguments: Any) -> bool:
        found = columns(*arguments)
        register(site, "periodic")
        return found

    monkeypatch.setattr(site.service._intake, "accepts_columns", registers)
    assert push(site, written(records(30, 39), records(1, 90))).json()["accepted"] == 31
    assert waiting == [False] * 31
    assert "urn:68" in site.results("periodic", params={"follow": "false"}).text


def test_no_records_are_no_error() -> None:
    site = started("star")
    for body in (written(schema=records().schema), written(records(0))):
        assert push(site, body).json()["accepted"] == 0
