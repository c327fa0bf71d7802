from pathlib import Path

import pytest

from annotations.whole_files import replaced_file


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_the_new_one_or_the_old_one(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "kept.json"
    with replaced_file(path, durable=durable) as file:
        file.write("one\n")
        assert not path.exists()
    with pytest.raises(UnicodeEncodeError), replaced_file(path, durable=durable) as file:
        file.write("two\n\ud800")
    assert path.read_text(encoding="utf-8") == "one\n"
    with replaced_file(path, durable=durable) as file:
        file.write("three\n")
    assert path.read_text(encoding="utf-8") == "three\n"
    assert list(tmp_path.iterdir()) == [path]


def test_who_cannot_write_hears_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replaced_file(tmp_path / "missing" / "file"):
        pass
