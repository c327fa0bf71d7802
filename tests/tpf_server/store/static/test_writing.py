"""The writer takes pieces of any size, refuses unsorted ones, switches atomically."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Quad, QuadPattern, Term, variable
from tests.support.stores import CREATED, static_store
from tpf_server.errors import StoreBusyError, StoreError
from tpf_server.store.static import layout
from tpf_server.store.static.columnar import open_store
from tpf_server.store.static.indexing import sorted_orders
from tpf_server.store.static.manifest import read_manifest
from tpf_server.store.static.writing import RowColumns, write_store

A, B, C = (Term(f"<http://e/{name}>") for name in "abc")
ANYTHING = QuadPattern(variable("s"), variable("p"), variable("o"), variable("g"))
TERMS = ["", A, B, C]
ROWS = [(1, 2, 3), (2, 2, 1), (2, 2, 3)]


def pieces(rows: Sequence[tuple[int, ...]], size: int) -> Iterator[RowColumns]:
    for start in range(0, len(rows), size):
        columns = np.array(rows[start : start + size], dtype=np.uint32).T
        yield tuple(np.ascontiguousarray(column) for column in columns)


def orders(size: int = 2, **changed: Sequence[tuple[int, ...]]) -> dict[str, Iterator[RowColumns]]:
    permuted: dict[str, Sequence[tuple[int, ...]]] = {
        "spo": sorted(ROWS),
        "pos": sorted((p, o, s) for s, p, o in ROWS),
        "osp": sorted((o, s, p) for s, p, o in ROWS),
    }
    return {name: pieces(rows, size) for name, rows in (permuted | changed).items()}


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_pieces_of_any_size_give_the_same_store(
    tmp_path: Path, size: int, kind: pa.DataType
) -> None:
    terms = [pa.array(TERMS[k : k + size], kind) for k in range(0, len(TERMS), size)]
    # A slice of a larger array, as record batches have them, and an empty piece.
    terms = [pa.concat_arrays([pa.array(["zzz"], kind), piece]).slice(1) for piece in terms]
    terms.append(pa.array([], kind))
    manifest = write_store(
        tmp_path / "s", terms, orders(size), created=CREATED, prefixes={"e": "x"}
    )
    assert (manifest.quads, manifest.terms, manifest.graphs) == (3, 4, 0)
    with open_store(tmp_path / "s") as store:
        expected = [Quad(A, B, C), Quad(B, B, A), Quad(B, B, C)]
        assert store.quads(ANYTHING, 0, 9) == expected
        assert store.quads(ANYTHING._replace(predicate=B, object=C), 0, 9) == expected[::2]
        assert store.count(QuadPattern(variable("x"), variable("x"), variable("o"))) == 2
        assert store.modified == CREATED
        assert store.prefixes == {"e": "x"}


def good_terms() -> list[pa.Array]:
    return [pa.array(TERMS, pa.large_string())]


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (["", B, A, C], "out of order"),
        (["", A, A, C], "out of order"),
        ([A, B, C], "empty text"),
        ([], "empty text"),
        (["", A, None, C], "null"),
    ],
)
@pytest.mark.parametrize("size", [1, 9])
def test_unsorted_terms_are_refused(
    tmp_path: Path, terms: list[str | None], reason: str, size: int
) -> None:
    arrays = [pa.array(terms[k : k + size], pa.string()) for k in range(0, len(terms), size)]
    with pytest.raises(StoreError, match=reason):
        write_store(tmp_path / "s", arrays, orders(), created=CREATED)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"spo": [ROWS[1], ROWS[0], ROWS[2]]}, "ascend"),
        ({"spo": [ROWS[0], ROWS[0], ROWS[2]]}, "ascend"),
        ({"spo": [(1, 2, 3), (2, 2, 1), (2, 2, 4)]}, "beyond the dictionary"),
        ({"osp": [(1, 2, 2), (3, 1, 2)]}, "same quads"),
        ({"pos": [(2, 1, 2), (2, 3, 1), (2, 3, 3)]}, "same quads"),
        ({"pos": [(2, 1), (2, 3)]}, "columns"),
    ],
)
@pytest.mark.parametrize("size", [1, 9])
def test_wrong_rows_are_refused(
    tmp_path: Path, changed: dict[str, list[tuple[int, ...]]], reason: str, size: int
) -> None:
    with pytest.raises(StoreError, match=reason):
        write_store(tmp_path / "s", good_terms(), orders(size, **changed), created=CREATED)
    assert not (tmp_path / "s").exists()


def test_unknown_orders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="orders"):
        write_store(tmp_path / "s", good_terms(), {"spo": pieces(ROWS, 2)}, created=CREATED)


def test_replaced_while_open(tmp_path: Path) -> None:
    path = tmp_path / "s"
    old_quad, new_quad = Quad(A, B, C), Quad(C, B, A)
    with static_store(path, [old_quad]) as old:
        with static_store(path, [new_quad]) as new:
            assert old.quads(ANYTHING, 0, 9) == [old_quad]
            assert new.quads(ANYTHING, 0, 9) == [new_quad]
            assert read_manifest(path).version == new.version != old.version
        folders = [entry.name for entry in path.iterdir() if entry.is_dir()]
        assert folders == [new.manifest.generation], "the old generation is gone from the disk"


def forget_checks(store: Path) -> None:
    """Whoever opens it checks all files."""
    for stamp in store.glob(f"*/{layout.VERIFIED}"):
        stamp.unlink()


def test_a_failed_writer_leaves_the_old_store(tmp_path: Path) -> None:
    path = tmp_path / "s"
    quad = Quad(A, B, C)
    with static_store(path, [quad]) as store:
        before = sorted(entry.name for entry in path.iterdir())
        with pytest.raises(StoreError):
            write_store(path, good_terms(), orders(spo=ROWS[::-1]), created=CREATED)
        assert sorted(entry.name for entry in path.iterdir()) == before
        forget_checks(path)
        with open_store(path) as again:
            assert again.version == store.version


def test_the_litter_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    static_store(path, [Quad(A, B, C)]).close()
    for name in (f"{layout.WRITING_PREFIX}killed", f"{layout.GENERATION_PREFIX}unused"):
        (path / name).mkdir()
        (path / name / layout.TERMS).write_bytes(b"half")
    with open_store(path) as store:
        assert store.count(ANYTHING) == 1
    with static_store(path, [Quad(A, B, A), Quad(A, B, C)]) as store:
        folders = [entry.name for entry in path.iterdir() if entry.is_dir()]
        assert folders == [store.manifest.generation]


HANGING_WRITER = """
import sys, time
from datetime import UTC, datetime
from pathlib import Path
import pyarrow as pa
from tpf_server.store.static.writing import write_store

def terms():
    yield pa.array(["", "<http://e/a>"])
    print("writing", flush=True)
    time.sleep(60)

write_store(Path(sys.argv[1]), terms(), dict.fromkeys(("spo", "pos", "osp"), ()),
       created=datetime(2015, 12, 8, tzinfo=UTC))
"""


def test_a_writer_killed_while_writing(tmp_path: Path) -> None:
    path = tmp_path / "s"
    static_store(path, [Quad(A, B, C)]).close()
    with subprocess.Popen(
        [sys.executable, "-c", HANGING_WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        with pytest.raises(StoreBusyError):
            write_store(path, good_terms(), orders(), created=CREATED)
        writer.kill()
    assert len(list(path.glob(f"{layout.WRITING_PREFIX}*"))) == 1
    forget_checks(path)
    with open_store(path) as store:
        assert store.count(ANYTHING) == 1
    write_store(path, good_terms(), orders(), created=CREATED)
    assert not list(path.glob(f"{layout.WRITING_PREFIX}*"))
    with open_store(path) as store:
        assert store.count(ANYTHING) == len(ROWS)


def test_other_directories_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="other files"):
        write_store(tmp_path, good_terms(), orders(), created=CREATED)
    assert os.listdir(tmp_path) == ["thesis.tex"]
    with pytest.raises(StoreError, match="is a file"):
        write_store(tmp_path / "thesis.tex", good_terms(), orders(), created=CREATED)


@given(
    st.lists(st.tuples(*[st.integers(0, 2**31)] * 2), min_size=1, max_size=8),
    st.data(),
    st.booleans(),
)
def test_sorted_orders_sort_and_deduplicate(
    spread: list[tuple[int, int]], data: st.DataObject, packs: bool
) -> None:
    ids = sorted({number for pair in spread for number in pair})
    rows = data.draw(st.lists(st.tuples(*[st.sampled_from(range(len(ids)))] * 4), max_size=40))
    columns = [np.array([row[k] for row in rows], dtype=np.uint32) for k in range(4)]
    with pytest.MonkeyPatch.context() as patch:
        if not packs:
            patch.setattr("tpf_server.store.static.indexing.KEY_BITS", 0)
        found = {
            name: [tuple(map(int, row)) for piece in given for row in zip(*piece, strict=True)]
            for name, given in sorted_orders(*columns).items()
        }
    names = layout.QUAD_ORDERS if any(row[3] for row in rows) else layout.TRIPLE_ORDERS
    assert found == {
        name: sorted({tuple(row[layout.QUAD_POSITIONS.index(p)] for p in name) for row in rows})
        for name in names
    }
