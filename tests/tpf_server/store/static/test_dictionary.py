"""The dictionary finds every term, whatever lies before, between and behind."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tpf_server.errors import CorruptStoreError
from tpf_server.store.static.dictionary import Dictionary, write_dictionary

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@examples(15)
@given(st.sets(texts, max_size=60), texts, st.sampled_from([(1, 4), (2, 3), (4, 1000), (64, 1000)]))
def test_any_term(held: set[str], other: str, fence: tuple[int, int]) -> None:
    terms = sorted({"", *held})
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tpf_server.store.static.dictionary._STRIDE", fence[0])
        patch.setattr("tpf_server.store.static.dictionary._FENCE_TERMS", fence[1])
        files = Path(folder, "terms.arrow"), Path(folder, "fence.arrow")
        assert write_dictionary(*files, [pa.array(terms)]) == len(terms)
        assert sorted(entry.name for entry in Path(folder).iterdir()) == [
            "fence.arrow",
            "terms.arrow",
        ]
        dictionary = Dictionary(*files, len(terms))
        for _ in range(2):  # searched, then remembered
            for number, term in enumerate(terms):
                assert dictionary.id_of(term) == number
            assert (dictionary.id_of(other) is not None) == (other in terms)
        assert dictionary.has_prefix(other) == any(term.startswith(other) for term in terms)
        backwards = np.arange(len(terms), dtype=np.uint32)[::-1].copy()
        assert dictionary.terms(backwards.tobytes()) == terms[::-1]
        assert dictionary.terms(b"") == []
        many = np.resize(backwards, 200)
        assert dictionary.terms(many.tobytes()) == [terms[number] for number in many.tolist()]


def test_other_files_are_refused(tmp_path: Path) -> None:
    files = tmp_path / "terms.arrow", tmp_path / "fence.arrow"
    write_dictionary(*files, [pa.array(["", "a", "b"])])
    with pytest.raises(CorruptStoreError, match="3 terms instead of 4"):
        Dictionary(*files, 4)
    files[1].write_bytes(b"")
    with pytest.raises(CorruptStoreError, match=r"fence\.arrow"):
        Dictionary(*files, 3)
    table = pa.table({"other": [1, 2, 3]})
    with pa.ipc.new_file(str(files[0]), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(CorruptStoreError, match="no terms"):
        Dictionary(*files, 3)
