"""Bodies of records: decompression bombs and damage are refused in a line."""

import struct
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from annotations.terms import Term
from tests.support.mutated_arrow import decimals
from tests.support.peers import PROJECT
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.elements.elements import Element
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.records import record_bodies, record_reading
from tpf_server.continuous.runtime.records.record_bodies import read_records
from tpf_server.continuous.runtime.records.record_reading import term_text
from tpf_server.errors import BodyTooLargeError

LONG = f'"{"long" * 250}"'
LIMIT = 20_000


def written(*batches: pa.RecordBatch, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    how = pa.ipc.IpcWriteOptions(**options)
    with pa.ipc.new_stream(sink, batches[0].schema, options=how) as writer:
        for each in batches:
            writer.write_batch(each)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def records(count: int = 3, **columns: Any) -> pa.RecordBatch:
    texts = pa.array(["<urn:a>"] * count)
    return pa.RecordBatch.from_pydict(
        {"timestamp": pa.array(range(count)), "subject": texts, "urn:x": texts} | columns
    )


def read(body: bytes, limit: int = LIMIT) -> record_bodies.RecordBody:
    return read_records(body, limit, lambda iri: Term(f"<{iri}>"))


def repeated(text: str, count: int) -> pa.Array:
    """A dictionary of one text."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), pa.array([text]))


def runs(value: Any, count: int) -> pa.Array:
    """One run."""
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int64()), pa.array([value]))


def views(text: str, count: int) -> pa.Array:
    """Views of one text."""
    (_, view, content) = pa.array([text], pa.string_view()).buffers()
    many = pa.py_buffer(view.to_pybytes()[:16] * count)
    return pa.Array.from_buffers(pa.string_view(), count, [None, many, content])


def back_and_forth(text: str, count: int) -> pa.Array:
    """Texts that begin again and again at the same place."""
    offsets = pa.py_buffer(struct.pack(f"<{count + 1}i", *[0, len(text)] * (count // 2), 0))
    content = pa.py_buffer(text.encode())
    return pa.Array.from_buffers(pa.string(), count, [None, offsets, content])


FAR = 2**31 - 1
BOMBS = {
    "a dictionary": lambda: records(100, **{"urn:x": repeated(LONG, 100)}),
    "subjects of a dictionary": lambda: records(100, subject=repeated(LONG, 100)),
    "runs": lambda: records(100, **{"urn:x": runs(LONG, 100)}),
    "views": lambda: records(100, **{"urn:x": views(LONG, 100)}),
    "offsets back and forth": lambda: records(100, **{"urn:x": back_and_forth(LONG, 100)}),
    "endless runs": lambda: pa.RecordBatch.from_pydict(
        {"timestamp": runs(1, FAR), "subject": runs("<urn:a>", FAR), "urn:x": runs(LONG, FAR)}
    ),
    "endless runs of numbers": lambda: pa.RecordBatch.from_pydict(
        {"timestamp": runs(1, FAR), "subject": runs("<urn:a>", FAR), "urn:x": runs(7, FAR)}
    ),
    "bits": lambda: records(
        500, **{f"urn:{name}": pa.array([True] * 500) for name in "abcdefghij"}
    ),
    "nothing": lambda: records(
        500, **{f"urn:{name}": pa.nulls(500) for name in "abcdefghij"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_what_would_unfold_is_refused_before_it_does(
    monkeypatch: pytest.MonkeyPatch, bomb: Callable[[], pa.RecordBatch]
) -> None:
    def unfolding(batch: pa.RecordBatch) -> None:
        raise AssertionError(f"{batch.num_rows} records were unfolded")

    monkeypatch.setattr(record_bodies, "columns_of_batch", unfolding)
    body = written(bomb())
    assert len(body) < LIMIT
    before = pa.total_allocated_bytes()
    with pytest.raises(BodyTooLargeError, match=f"at most {LIMIT} bytes, written out; these have"):
        read(body)
    assert pa.total_allocated_bytes() <= before


def test_columns_that_lie_over_each_other_count_each() -> None:
    names = [f"urn:{number}" for number in range(30)]
    text = f'"{"x" * 1030}"'
    whole = records(1, **{name: pa.array([text]) for name in names})
    body = bytearray(written(whole))
    # Each text is where the first is.
    size = struct.pack("<q", len(text))
    found = [at for at in range(len(body)) if body[at : at + 8] == size]
    assert len(found) == 30
    first = bytes(body[found[0] - 8 : found[0]])
    for at in found:
        body[at - 8 : at] = first
    assert read(bytes(body), 2 * len(body)).columns == read(written(whole), 2 * len(body)).columns
    with pytest.raises(BodyTooLargeError):
        read(bytes(body), 30 * 1030)


def test_a_dictionary_counts_for_each_batch() -> None:
    texts = pa.array([f'"{number}{LONG[1:]}' for number in range(10)])
    column = pa.DictionaryArray.from_arrays(pa.array([3], pa.int8()), texts)
    part = records(1, **{"urn:x": column})
    assert read(written(part)).count == 1
    with pytest.raises(BodyTooLargeError):
        read(written(*[part] * 5))


def test_as_much_as_is_allowed_is_taken() -> None:
    # A value counts 8 bytes, or so many as it has, and a text 8 more than it has.
    cases = [
        (pa.array(["<urn:a>"] * 3), 45),
        (repeated("<urn:a>", 3), 45 + 15),
        (pc.run_end_encode(pa.array(["<urn:a>"] * 3)), 45),
        (views("<urn:a>", 3), 45),
        (pa.array([True] * 3), 24),
        (pa.array([1, 2, 3], pa.int8()), 24),
        (pc.run_end_encode(pa.array([1, 2, 3], pa.int8())), 24),
        (pa.array([1, 2, 3], pa.decimal128(3)), 48),
        (pa.array([None] * 3), 24),
        (pa.array(["<urn:a>", None, "<urn:a>"]), 38),
        (pa.array(["<urn:a>", None, "<urn:a>"]).dictionary_encode(), 38 + 15),
    ]
    for column, size in cases:
        body = written(records(**{"urn:x": column}))
        assert read(body, 24 + 45 + size).count == 3, column.type
        with pytest.raises(BodyTooLargeError, match=f" {69 + size} and more"):
            read(body, 24 + 45 + size - 1)


def old_compression() -> bytes:
    """As Arrow 0.17 wrote it."""
    sink = pa.BufferOutputStream()
    how = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_stream(sink, records().schema, options=how) as writer:
        said = {"ARROW:experimental_compression": "lz4"}
        writer.write_batch(records(), custom_metadata=said)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def only_a_dictionary() -> bytes:
    """Compress only the dictionary."""
    whole = records(**{"urn:x": repeated(LONG, 3)})
    plain, packed = written(whole), written(whole, compression="zstd")
    found = b""
    for body, kind in ((plain, "schema"), (packed, "dictionary"), (plain, "record batch")):
        for message in pa.ipc.MessageReader.open_stream(body):
            if message.type == kind:
                found += message.serialize().to_pybytes()
    return found


@pytest.mark.parametrize(
    "body",
    [
        written(records(), compression="lz4"),
        written(records(**{"urn:x": pa.array([LONG * 9] * 3)}), compression="zstd"),
        old_compression(),
        only_a_dictionary(),
    ],
)
def test_compressed_buffers_are_refused(monkeypatch: pytest.MonkeyPatch, body: bytes) -> None:
    def opened(*_arguments: Any) -> None:
        raise AssertionError("they are read")

    monkeypatch.setattr(record_bodies, "opened_batches", opened)
    with pytest.raises(ElementError, match="its buffers are compressed: send them"):
        read(body)


NAIVE = pa.array([0, 1, 2], pa.timestamp("s"))
WIDE = pa.array([1] * 3, pa.decimal256(76, 0))
FINE = pa.Array.from_buffers(pa.decimal256(5, 77), 3, WIDE.buffers())
TWICE = pa.RunEndEncodedArray.from_arrays(pa.array([3]), repeated("<urn:a>", 1))
DAMAGED = {
    "empty": (b"", "Tried reading schema message"),
    "other": (b'{"timestamp": 1, "triple": []}', "the Arrow stream: "),
    "a file": (b"ARROW1\0\0", "it is an Arrow file; write a stream"),
    "cut": (written(records())[:-100], "the Arrow stream: Expected to "),
    "cut early": (written(records())[:100], "the Arrow stream: Expected to "),
    "more": (written(records()) + b"x", "something follows its end"),
    "two": (written(records()) * 2, "something follows its end"),
    "no subject": (written(records().drop_columns("subject")), "expected columns timestamp and"),
    "no values": (written(records().drop_columns("urn:x")), "expected columns timestamp and"),
    "twice": (
        written(pa.RecordBatch.from_arrays([NAIVE] * 3, names=["timestamp", "subject", "subject"])),
        "expected columns timestamp and subject, and others, all of different names",
    ),
    "no IRI": (written(records(**{"a b": NAIVE})), "not a term: '<a b>'"),
    "naive": (written(records(**{"urn:t": NAIVE})), "urn:t: a column of timestamp.s. has no terms"),
    "naive timestamps": (written(records(timestamp=NAIVE)), "timestamps cannot be a column of"),
    "numbers": (written(records(subject=pa.array([1, 2, 3]))), "subjects cannot be a column of"),
    "lists": (written(records(**{"urn:l": pa.array([[1]] * 3)})), "urn:l: a column of list"),
    "fine decimals": (written(records(**{"urn:x": decimals(39, 3)})), "decimal128.* has no terms"),
    "coarse decimals": (
        written(records(**{"urn:x": decimals(-39, 3).dictionary_encode()})),
        "urn:x: a column of decimal128.5, -39. has no terms",
    ),
    "fine wide decimals": (written(records(**{"urn:x": FINE})), "decimal256.5, 77. has no terms"),
    "encoded twice": (written(records(**{"urn:t": TWICE})), "urn:t: a column of run_end_encoded"),
    "strange names": (written(records(**{"urn:\n": NAIVE})), "not a term: '<urn:"),
}


@pytest.mark.parametrize(("body", "message"), DAMAGED.values(), ids=DAMAGED)
def test_what_is_wrong_is_said_in_a_line(body: bytes, message: str) -> None:
    with pytest.raises(ElementError, match=message) as refused:
        read(body)
    assert str(refused.value).isprintable()
    assert (refused.value.status, refused.value.line) == (400, None)


NESTED = pa.nulls(3, pa.struct([(f"f{number}", pa.int8()) for number in range(1000)]))
FAR_ZONE = pa.array([0, 1, 2], pa.timestamp("s", "x" * 5000))
IRI = f"urn:{'x' * 5000}"


@pytest.mark.parametrize(
    "columns",
    [
        {"urn:x": NESTED},
        {IRI: NAIVE},
        {IRI: NESTED},
        {IRI: TWICE},
        {"subject": FAR_ZONE},
        {f"{IRI} ": NAIVE},
        {IRI: pa.array([2**62] * 3, pa.timestamp("s", "UTC"))},
        {IRI: pa.array([None, 1, 2])},
    ],
)
def test_errors_are_short(columns: Any) -> None:
    try:
        said = [str(each) for each in read(written(records(**columns))).elements()]
        assert len(said) == 3
    except ElementError as error:
        said = [str(error)]
    assert all(len(each) < 600 for each in said if not each.startswith("Element("))


def test_a_dictionary_is_read_once_however_many_records_are_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_once, texts_of = [], record_reading._texts

    def texts(views: pa.Array) -> pa.Array:
        read_once.append(len(views))
        return texts_of(views)

    monkeypatch.setattr(record_reading, "_texts", texts)
    terms = pa.array([f'"{number}"' for number in range(40)])
    column = pa.DictionaryArray.from_arrays(
        pa.array(range(40), pa.int8()), terms.cast(pa.string_view())
    )
    times = pa.array([*range(20), *[None] * 20], pa.int64())
    body = written(records(40, timestamp=times, **{"urn:x": column}))
    found = [*read(body).elements()]
    assert [isinstance(each, ElementError) for each in found] == [False] * 20 + [True] * 20
    assert [each.triples[0][2] for each in found if isinstance(each, Element)] == [
        f'"{number}"' for number in range(20)
    ]
    assert [each for each in read_once if each] == [40]


@pytest.mark.parametrize("seed", [1, 2])
def test_damage_is_an_error_and_ends_no_process(seed: int) -> None:
    # In a process of its own: what reads damaged columns may die of them.
    command = [sys.executable, "-m", "tests.support.mutated_arrow", str(seed), "1500"]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 100


@pytest.mark.parametrize(
    ("scale", "rest", "value"), [(2, 8, "0.01"), (2, 0, "0.01"), (38, 0, f"0.{'0' * 37}1")]
)
def test_decimals_end_where_their_records_end(scale: int, rest: int, value: str) -> None:
    engine = Engine()
    found: list[Any] = []
    query = "SELECT ?x { STREAM <urn:s> [NOW] { ?s <urn:x> ?x } }"
    engine.register(query, found.append)
    body = read(written(records(2, **{"urn:x": decimals(scale, 2, rest)})))
    assert body.columns is not None
    engine.record_feed("urn:s", body.predicates).push_batch(*body.columns)
    assert found[-1].rows == ((term_text(Decimal(value)),),)


def test_columns_do_not_bring_pandas(tmp_path: Path) -> None:
    # Which takes a quarter of a second, and much memory, where it is installed.
    path = tmp_path / "body"
    numbers = pa.array([1, 2, 3])
    path.write_bytes(written(records(**{"urn:x": numbers, "urn:k": numbers})))
    example = f"""
import sys
from pathlib import Path
from tests.support.mutated_arrow import _service, read_records
service = _service(whole=True)
body = read_records(Path({str(path)!r}).read_bytes(), 1000, service.name)
assert service._streams.takes_columns("<urn:s>")
assert service.push("urn:s", body).accepted == 3
assert "pandas" not in sys.modules
"""
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
