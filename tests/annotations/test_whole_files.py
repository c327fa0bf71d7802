import os
from pathlib import Path

import pytest

from annotations.whole_files import replaced_file, replaced_path


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


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(os.devnull)
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="a device or a pipe"), replaced_file(tmp_path / name):
            pass
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", "link"}


def test_what_a_killed_process_left_is_no_part_of_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    (tmp_path / f".kept.db.{os.getpid()}").write_bytes(b"half of it")
    with replaced_path(path) as aside:
        assert not aside.exists()
        aside.write_bytes(b"all")
    assert path.read_bytes() == b"all"
    with pytest.raises(FileNotFoundError), replaced_path(path):
        pass  # nothing was written: what was there stays
    assert path.read_bytes() == b"all"
    assert list(tmp_path.iterdir()) == [path]
