"""Columns are mapped as they were written; other arrays are refused."""

from pathlib import Path

import numpy as np
import pytest

from tpf_server.errors import CorruptStoreError
from tpf_server.store.static.columns import map_column


@pytest.mark.parametrize("length", [None, 3])
def test_a_column_is_mapped(tmp_path: Path, length: int | None) -> None:
    np.save(tmp_path / "s.npy", np.array([1, 2, 2**32 - 1], "<u4"))
    assert map_column(tmp_path / "s.npy", length).tolist() == [1, 2, 2**32 - 1]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(4, "<u4"),
        np.zeros(2, "<u4"),
        np.zeros(3, "<i4"),
        np.zeros(3, "<f4"),
        np.zeros(3, ">u4"),
        np.zeros((3, 1), "<u4"),
        np.zeros((), "<u4"),
    ],
)
def test_what_is_no_column_of_this_length_is_refused(tmp_path: Path, array: object) -> None:
    np.save(tmp_path / "s.npy", np.asarray(array))
    with pytest.raises(CorruptStoreError, match=r"s\.npy is no column of 3 ids, but of "):
        map_column(tmp_path / "s.npy", 3)


def test_a_column_that_is_cut_short_or_goes_on_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.zeros(3, "<u4"))
    whole = (tmp_path / "s.npy").read_bytes()
    for content in (whole[:-1], whole + b"x"):
        (tmp_path / "s.npy").write_bytes(content)
        with pytest.raises(CorruptStoreError, match=r"s\.npy is cut short"):
            map_column(tmp_path / "s.npy", 3)
