"""Files of records give the same elements and answers as lines."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from typer.testing import CliRunner

from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.service.cli import app, read_stream

NAMES = ["urn:k", "urn:x", "urn:t"]
XSD = "http://www.w3.org/2001/XMLSchema#"
RANKED = """SELECT ?k (COUNT(*) AS ?c)
{ STREAM <urn:s> [RANGE 40ms] { ?s <urn:k> ?k ; <urn:x> ?x } }
GROUP BY ?k ORDER BY DESC(?c) ?k LIMIT 2"""
PLAIN = "SELECT ?s ?x { STREAM <urn:s> [NOW] { ?s <urn:k> ?k ; <urn:x> ?x } }"
PERIODIC = "SELECT ?k ?x FROM STREAM <urn:s> [RANGE 20ms STEP 20ms] { ?s <urn:k> ?k ; <urn:x> ?x }"


def written(
    path: Path, rows: list[tuple[Any, ...]], size: int = 40, *, whole: bool = False
) -> Path:
    """A file of Arrow."""
    schema = pa.schema(
        [
            ("timestamp", pa.int64()),
            ("urn:k", pa.string()),
            ("subject", pa.string()),
            ("urn:x", pa.decimal128(9, 1)),
            ("urn:t", pa.timestamp("s", "UTC")),
        ]
    )
    make = pa.ipc.new_file if whole else pa.ipc.new_stream
    with make(str(path), schema) as writer:
        for first in range(0, len(rows), size):
            columns = zip(*rows[first : first + size], strict=True)
            arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return path


def lines(path: Path, rows: list[tuple[Any, ...]]) -> Path:
    """Return statements, one element for each time and graph."""
    text = ""
    for number, (at, k, subject, x, t) in enumerate(rows):
        instant = f"{t:%Y-%m-%dT%H:%M:%S}Z"
        for p, o in zip(
            NAMES, (k, f'"{x}"^^<{XSD}decimal>', f'"{instant}"^^<{XSD}dateTime>'), strict=True
        ):
            text += f"{at}\t{subject} <{p}> {o} <urn:g{number}> .\n"
    path.write_text(text)
    return path


def some_rows(count: int = 150) -> list[tuple[Any, ...]]:
    chance, at = Random(5), 0
    return [
        (
            at := at + chance.choice((0, 1, 3)),
            chance.choice(('"a"', '"b"@en', "<urn:c>", '"é"')),
            f"<urn:r{number}>",
            Decimal(chance.randrange(90)).scaleb(-1),
            datetime(2020, 1, 1, 0, 0, chance.randrange(60), tzinfo=UTC),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("whole", [False, True])
def test_elements_are_those_of_lines(tmp_path: Path, whole: bool) -> None:
    rows = some_rows()
    plain = lines(tmp_path / "stream.nq", rows)
    records = written(tmp_path / "stream.arrow", rows, whole=whole)

    def elements(path: Path) -> list[tuple[int, str, set[Any]]]:
        found = []
        for at, name, item in read_stream("urn:s", path, Engine().name):
            assert isinstance(item, Element)
            found.append((at, name, {triple[:3] for triple in item.triples}))
        return found

    assert elements(records) == elements(plain)
    # Of two streams, each element is in its time, or it would be too late.
    both = "--stream", f"urn:a={plain}", "--stream", f"urn:b={records}"
    found = run("SELECT ?n ?s { STREAM ?n [NOW] { ?s <urn:k> ?k } }", *both)
    assert len(found.splitlines()) == 2 * len(rows)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["run", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("query", [RANKED, PLAIN, PERIODIC])
def test_answers_are_those_of_lines_whatever_takes_records(tmp_path: Path, query: str) -> None:
    rows = some_rows()
    records = written(tmp_path / "stream.arrow", rows)
    expected = run(query, "--stream", f"urn:s={lines(tmp_path / 'stream.nq', rows)}")
    assert len(expected.splitlines()) > 20
    policy = [] if query == PERIODIC else ["--semantics", "paper"]
    if policy:
        expected = run(query, "--stream", f"urn:s={tmp_path / 'stream.nq'}", *policy)
    for kernel in ("compiled", "off"):
        more = [*policy, "--kernel", kernel] if policy else []
        assert run(query, "--stream", f"urn:s={records}", *more) == expected
    beside = written(tmp_path / "other.arrow", rows[:9])
    streams = ["--stream", f"urn:s={records}", "--stream", f"urn:other={beside}"]
    assert set(_terms(run(query, *streams, *policy))) >= set(_terms(expected)) - {""}


def _terms(output: str) -> list[str]:
    return [line.split("\t", 2)[2] for line in output.splitlines()]


def saved(path: Path, *batches: pa.RecordBatch) -> Path:
    """A stream of these batches."""
    with pa.ipc.new_stream(str(path), batches[0].schema) as writer:
        for each in batches:
            writer.write_batch(each)
    return path


@pytest.mark.parametrize("content", [b"", b"1\t<urn:a>\t<urn:b>\t<urn:c>\n", b"ARROW1 and no more"])
def test_another_file_is_refused_in_a_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "stream.arrow"
    path.write_bytes(content)
    refused = CliRunner().invoke(app, ["run", PLAIN, "--stream", f"urn:s={path}"])
    assert (refused.exit_code, len(refused.output.splitlines())) == (1, 1)
    assert "stream.arrow" in refused.output


NO_UTF_8 = pa.Array.from_buffers(
    pa.string(), 1, [None, *map(pa.py_buffer, (b"\0\0\0\0\2\0\0\0", b"\xff\xfe"))]
)


def beside_no_utf_8(text: str) -> pa.Array:
    """A dictionary with an unused text that is no UTF-8."""
    dictionary = pa.concat_arrays([NO_UTF_8, pa.array([text])])
    return pa.DictionaryArray.from_arrays(pa.array([1], pa.int32()), dictionary)


def damaged_dictionary() -> pa.Array:
    """The first text ends behind all bytes."""
    offsets = b"\0\0\0\0\x64\0\0\0\2\0\0\0"
    texts = pa.Array.from_buffers(pa.string(), 2, [None, *map(pa.py_buffer, (offsets, b"ab"))])
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), texts)


WRONG = {
    "naive": pa.array([datetime(2020, 1, 1)], pa.timestamp("us")),  # noqa: DTZ001
    "date": pa.array([18_000], pa.date32()),
    "duration": pa.array([5], pa.duration("ms")),
    "bytes": pa.array([b"<urn:b>"]),
    "list": pa.array([["<urn:b>"]]),
    "missing": pa.array([None]),
    "nanoseconds": pa.array([1], pa.timestamp("ns", "UTC")),
    "a far year": pa.array([10**12], pa.timestamp("s", "UTC")),
    "beyond all years": pa.array([10**18], pa.timestamp("s", "UTC")),
    "no UTF-8": NO_UTF_8,
    "bare": pa.array(["bare"]),
    "a bare word of a dictionary": pa.array(["bare"]).dictionary_encode(),
    "a bare word of a dictionary of no UTF-8": beside_no_utf_8("bare"),
    "no UTF-8 of a dictionary": NO_UTF_8.dictionary_encode(),
    "no UTF-8 of runs": pc.run_end_encode(NO_UTF_8),
    "a damaged dictionary": damaged_dictionary(),
    "beyond a dictionary": pa.DictionaryArray.from_arrays(
        pa.array([7], pa.int32()), pa.array(["<urn:b>"]), safe=False
    ),
}
DECIMAL, TRUE = pa.array([Decimal("1.50")]), pa.array([True])
TERMS = {
    "text": (pa.array(["<urn:b>"]), "<urn:b>"),
    "large text": (pa.array(["<urn:b>"], pa.large_string()), "<urn:b>"),
    "view": (pa.array(["<urn:b>"], pa.string_view()), "<urn:b>"),
    "dictionary": (pa.array(["<urn:b>"]).dictionary_encode(), "<urn:b>"),
    "dictionary with no UTF-8 that nobody uses": (beside_no_utf_8("<urn:b>"), "<urn:b>"),
    "dictionary of integers": (pa.array([7]).dictionary_encode(), f'"7"^^<{XSD}integer>'),
    "dictionary of decimals": (DECIMAL.dictionary_encode(), f'"1.50"^^<{XSD}decimal>'),
    "dictionary of booleans": (TRUE.dictionary_encode(), f'"true"^^<{XSD}boolean>'),
    "runs": (pc.run_end_encode(pa.array(["<urn:b>"])), "<urn:b>"),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), f'"{2**64 - 1}"^^<{XSD}integer>'),
    "boolean": (TRUE, f'"true"^^<{XSD}boolean>'),
    "float": (pa.array([0.5]), f'"0.5"^^<{XSD}double>'),
    "decimal": (DECIMAL, f'"1.50"^^<{XSD}decimal>'),
    "negative scale": (pa.array([Decimal(100)], pa.decimal128(5, -2)), f'"100"^^<{XSD}decimal>'),
    "nanoseconds": (
        pa.array([5_000], pa.timestamp("ns", "UTC")),
        f'"1970-01-01T00:00:00.000005Z"^^<{XSD}dateTime>',
    ),
    "another zone": (
        pa.array([0], pa.timestamp("s", "America/New_York")),
        f'"1970-01-01T00:00:00Z"^^<{XSD}dateTime>',
    ),
}
TIMES = {
    "far": (pa.array([10**18]), None),
    "early": (pa.array([-(10**15)]), None),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), None),
    "far seconds": (pa.array([10**17], pa.timestamp("s", "UTC")), None),
    "naive": (pa.array([5], pa.timestamp("ms")), None),
    "missing": (pa.array([None], pa.int64()), None),
    "last": (pa.array([253_402_300_799_999]), 253_402_300_799_999),
    "seconds": (pa.array([5], pa.timestamp("s", "UTC")), 5_000),
    "microseconds before 1970": (pa.array([-1], pa.timestamp("us", "UTC")), -1),
    "nanoseconds": (pa.array([2_500_000], pa.timestamp("ns", "UTC")), 2),
    "dictionary": (pa.array([5]).dictionary_encode(), 5),
}
SIMPLE = "SELECT ?s ?x { STREAM <urn:s> [NOW] { ?s <urn:x> ?x } }"
COLUMNS = [
    *((name, {"urn:x": column}, 1, None) for name, column in WRONG.items()),
    *((name, {"urn:x": column}, 1, term) for name, (column, term) in TERMS.items()),
    *((name, {"timestamp": column}, at, at and "<urn:b>") for name, (column, at) in TIMES.items()),
    ("an encoded subject", {"subject": pa.array(["<urn:a>"]).dictionary_encode()}, 1, "<urn:b>"),
    ("a subject that is a number", {"subject": pa.array([7])}, 1, None),
]


@pytest.mark.parametrize(
    ("changed", "at", "term"),
    [pytest.param(*each, id=name) for name, *each in COLUMNS],
)
def test_a_column_means_the_same_by_batches_and_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: Any, at: int, term: str | None
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    path = kept(tmp_path / "stream.arrow", **changed)
    for query in (SIMPLE, ONCE):
        found = by_batches_and_by_rows(tmp_path, query, path)
        for result in found:
            if term is None:
                lines_said = len(result.output.splitlines())
                assert (result.exit_code, lines_said, result.stdout) == (1, 1, "")
            else:
                assert result.exit_code == 0, result.output
                assert re.split(r"\s", result.stdout.rstrip("\n"), maxsplit=3)[3] == term
                assert query != SIMPLE or result.stdout.startswith("1\t0\t<urn:a> ")
    if term is not None:
        assert [each for each, _, _ in read_stream("urn:s", path, Engine().name)] == [at]


ONCE = "SELECT ?s ?x FROM STREAM <urn:s> [RANGE 9ms STEP 9ms] { ?s <urn:x> ?x }"


def kept(path: Path, **changed: Any) -> Path:
    """A file of one record."""
    columns = {
        "timestamp": pa.array([1]),
        "subject": pa.array(["<urn:a>"]),
        "urn:x": pa.array(["<urn:b>"]),
        **changed,
    }
    return saved(path, pa.RecordBatch.from_pydict(columns))


def by_batches_and_by_rows(tmp_path: Path, query: str, path: Path) -> list[Any]:
    """Run with one stream, and beside another one."""
    beside = tmp_path / "other.tsv"
    beside.write_text("")
    alone = ["run", query, "--stream", f"urn:s={path}"]
    return [
        CliRunner().invoke(app, each) for each in (alone, [*alone, "--stream", f"urn:o={beside}"])
    ]


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        (["temp"], 1),
        (["<urn:x>"], 0),
        (["http://localhost/temp"], 1),
        (["temp", "http://localhost/temp"], None),
        (["not an IRI"], None),
        (['"x"'], None),
        ([], None),
    ],
)
def test_columns_are_called_as_in_queries(
    tmp_path: Path, columns: list[str], count: int | None
) -> None:
    values = {"timestamp": [1], "subject": ["<urn:a>"], **{each: ["<urn:b>"] for each in columns}}
    path = saved(tmp_path / "stream.arrow", pa.RecordBatch.from_pydict(values))
    for query in (SIMPLE, ONCE):
        for result in by_batches_and_by_rows(tmp_path, query.replace("<urn:x>", "<temp>"), path):
            assert result.exit_code == (1 if count is None else 0), result.output
            assert result.stdout.count("<urn:b>") == (count or 0)
            assert count is not None or len(result.output.splitlines()) == 1


@pytest.mark.parametrize("query", [PLAIN, PERIODIC], ids=["by batches", "by rows"])
def test_an_error_says_the_file_and_the_batch(tmp_path: Path, query: str) -> None:
    batches = [record_batch([1_000, 2_000]), record_batch([3_000, 10**18])]
    path = saved(tmp_path / "stream.arrow", *batches)
    refused = CliRunner().invoke(app, ["run", query, "--stream", f"urn:s={path}"])
    assert refused.exit_code == 1
    said = " ".join(refused.output.split())
    assert "stream.arrow: batch 2: record 2: not a timestamp: 1000000000000000000" in said


def record_batch(times: list[int]) -> pa.RecordBatch:
    columns = {
        "timestamp": times,
        "subject": ["<urn:a>", "<urn:b>"],
        "urn:k": [1, 2],
        "urn:x": [1, 2],
    }
    return pa.RecordBatch.from_pydict(columns)


RECORDS = {
    "no timestamp": {"timestamp": pa.array([None], pa.int64())},
    "a year too far": {"timestamp": TIMES["far"][0]},
    "a year too early": {"timestamp": TIMES["early"][0]},
    "a number too large": {"timestamp": TIMES["unsigned"][0]},
    "a second too far": {"timestamp": TIMES["far seconds"][0]},
    "no subject": {"subject": pa.array([None], pa.string())},
    "a subject that is none": {"subject": pa.array(['"a"'])},
    "a subject in no UTF-8": {"subject": WRONG["no UTF-8"]},
    "no value": {"urn:k": pa.array([None], pa.string())},
    **{
        name: {"urn:k": WRONG[name]}
        for name in (
            *("nanoseconds", "a far year", "beyond all years", "no UTF-8", "bare"),
            *("a bare word of a dictionary", "a bare word of a dictionary of no UTF-8"),
            *("no UTF-8 of a dictionary", "no UTF-8 of runs"),
        )
    },
}
"""One record each, of a type that has others."""
RIGHT = {
    "timestamp": {
        pa.int64(): [1, 2, 3, 4],
        pa.uint64(): [1, 2, 3, 4],
        pa.timestamp("s", "UTC"): [1, 2, 3, 4],
    },
    "urn:k": {pa.timestamp("ns", "UTC"): [1_000] * 4, pa.timestamp("s", "UTC"): [1] * 4},
}


@pytest.mark.parametrize("kind", RECORDS)
@pytest.mark.parametrize("query", [PLAIN, PERIODIC], ids=["CQELS-QL", "C-SPARQL"])
def test_a_malformed_record_may_be_left_out(tmp_path: Path, query: str, kind: str) -> None:
    """At the beginning, in the middle and at the end, by turns."""
    changed = RECORDS[kind]
    place = 2 * ((list(RECORDS).index(kind) + (query == PLAIN)) % 3)
    ((name, wrong),) = changed.items()
    right = RIGHT.get(name, {}).get(wrong.type)
    columns: dict[str, Any] = {
        "timestamp": pa.array([1, 2, 3, 4]),
        "subject": pa.array([f"<urn:a{n}>" for n in range(4)]),
        "urn:k": pa.array(["<urn:b>"] * 4),
        "urn:x": pa.array([1] * 4),
    }
    if right is not None:
        columns[name] = pa.array(right, wrong.type)
    elif pa.types.is_dictionary(wrong.type):
        columns[name] = columns[name].dictionary_encode()
    elif pa.types.is_run_end_encoded(wrong.type):
        columns[name] = pc.run_end_encode(columns[name])
    kept_records = pa.RecordBatch.from_pydict(columns)
    broken = pa.RecordBatch.from_pydict(
        {each: values[:1] for each, values in columns.items()} | changed
    )
    assert broken.schema == kept_records.schema
    written_records = [kept_records.slice(0, place), broken, kept_records.slice(place)]
    (whole,) = pa.Table.from_batches(written_records).combine_chunks().to_batches()
    found = []
    for records in ([kept_records], [whole], [kept_records, whole, whole]):
        path = saved(tmp_path / "stream.arrow", *records)
        run_so = ["run", query, "--stream", f"urn:s={path}", "--skip-malformed"]
        found.append(CliRunner().invoke(app, run_so))
        if whole in records:
            refused = CliRunner().invoke(app, run_so[:-1])
            assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
            # Who takes batches says it of the batch where it is no single record that is wrong.
            number = records.index(whole) + 1
            batch_said = f"batch {number}: " if number > 1 else ""
            assert f"stream.arrow: {batch_said}" in refused.stderr
            if query == PERIODIC:
                assert f"{batch_said}record {place + 1}: " in refused.stderr
    none, one, two = found
    assert [each.exit_code for each in found] == [0] * 3, found
    assert none.stderr == ""
    for each, said in (
        (one, "1 malformed line or record left out, "),
        (two, "2 malformed lines or records left out, "),
    ):
        assert each.stderr.startswith(said), each.stderr
    assert none.stdout == one.stdout
    assert len(none.stdout.splitlines()) >= 4


@pytest.mark.parametrize(
    "changed",
    [
        {"timestamp": pa.array(["x"])},
        {"timestamp": TIMES["naive"][0]},
        {"timestamp": pa.array([None])},
        {"subject": pa.array([7])},
        {"urn:x": WRONG["naive"]},
        {"urn:x": WRONG["list"]},
    ],
)
def test_a_column_of_a_wrong_type_is_no_malformed_record(tmp_path: Path, changed: Any) -> None:
    path = kept(tmp_path / "stream.arrow", **changed)
    beside = lines(tmp_path / "beside.nq", some_rows(3))
    streams = [f"--stream={name}={file}" for name, file in (("urn:s", path), ("urn:o", beside))]
    refused = CliRunner().invoke(app, ["run", PLAIN, *streams, "--skip-malformed"])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "a column of" in refused.stderr
