"""Static data of sources, loaded by Spark or in one process."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest

from annotations.terms import Quad, Term
from loaders.distributed.facts import load_as_lines
from loaders.errors import InputError, OutputError
from loaders.outputs import line_of, written
from loaders.sources.base import StaticSource
from loaders.sources.flights import Flights
from loaders.sources.irail import Irail
from tests.loaders.recordings import entry, write_directory, write_flights, write_zip


class Numbers:
    """A source whose pieces share facts and hold awkward texts."""

    name = "numbers"
    prefixes: Mapping[str, str] = {}

    def pieces(self, count: int) -> Sequence[str]:
        return [str(n) for n in range(16)]

    def size(self) -> int:
        return 16

    def quads(self, piece: str) -> Iterator[Quad]:
        for n in range(int(piece), int(piece) + 5):
            yield Quad(
                Term(f"<http://e/{n}>"), Term("<http://e/p>"), Term(f'"a\\n\\"{n}\\\\ ü 🚂\\u0085"')
            )


class Broken(Numbers):
    """A source with a mistake in a later piece."""

    def quads(self, piece: str) -> Iterator[Quad]:
        yield from super().quads(piece)
        if piece == "3":
            raise InputError("a mistake", "table.csv", 7)


def lines_in(directory: Path) -> list[str]:
    files = sorted(directory.iterdir())
    assert [file.name for file in files] == [f"part-{n:05}.nt" for n in range(len(files))]
    return [line for file in files for line in file.read_text().split("\n") if line]


def test_one_process_writes_every_fact_once(tmp_path: Path) -> None:
    source = Numbers()
    summary = load_as_lines(source, tmp_path / "out", None)
    lines = lines_in(tmp_path / "out")
    wanted = {line_of(t) for piece in source.pieces(8) for t in source.quads(piece)}
    assert sorted(lines) == sorted(wanted)
    assert (
        sum(summary)
        == len(wanted)
        == sum(1 for _ in ox.parse(path=tmp_path / "out" / "part-00000.nt"))
    )


def sources(tmp_path: Path) -> list[StaticSource]:
    polls = {
        1417772214687 + n * 60_000: [entry(str(m)) for m in range(n, n + 4)] for n in range(20)
    }
    rows = [f"2013-01-0{1 + n % 9},{600 + n},{n},UA,{n},EWR,IAH" for n in range(50)]
    return [
        Numbers(),
        Irail(write_zip(tmp_path / "day.zip", polls)),
        Irail(write_directory(tmp_path / "day", polls)),
        Flights(write_flights(tmp_path / "flights", rows)),
    ]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_writes_the_same_facts(spark: Any, tmp_path: Path) -> None:
    for number, source in enumerate(sources(tmp_path)):
        one = load_as_lines(source, tmp_path / f"local{number}", None)
        other = load_as_lines(source, tmp_path / f"spark{number}", spark)
        local = lines_in(tmp_path / f"local{number}")
        assert sorted(lines_in(tmp_path / f"spark{number}")) == sorted(local)
        assert sum(one) == sum(other) == len(local) > 0
        assert len(other) >= 1


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_a_mistake_met_by_a_worker_is_named(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^table\.csv, line 7: a mistake$"):
        load_as_lines(Broken(), tmp_path / "out", spark)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_load_leaves_the_old_output(tmp_path: Path) -> None:
    output = tmp_path / "out"
    load_as_lines(Numbers(), output, None)
    before = lines_in(output)
    with pytest.raises(InputError, match="line 7: a mistake"):
        load_as_lines(Broken(), output, None, replace=True)
    assert lines_in(output) == before
    assert list(tmp_path.iterdir()) == [output]


def test_an_output_is_replaced_only_when_told(tmp_path: Path) -> None:
    output = tmp_path / "out"
    load_as_lines(Numbers(), output, None)
    (output / "part-9.nt").write_text("old")
    with pytest.raises(OutputError, match="out exists already"):
        load_as_lines(Numbers(), output, None)
    assert (output / "part-9.nt").exists()
    load_as_lines(Numbers(), output, None, replace=True)
    assert not (output / "part-9.nt").exists()
    assert list(tmp_path.iterdir()) == [output]


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("keep me")
    with pytest.raises(OutputError, match="exists already, with other files: it is left alone"):
        load_as_lines(Numbers(), tmp_path, None, replace=True)
    assert [each.name for each in tmp_path.iterdir()] == ["note.txt"]


def test_a_link_leads_to_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, there = tmp_path / "link", tmp_path / "there"
    link.symlink_to("there")
    load_as_lines(Numbers(), link, None)
    before = lines_in(there)
    load_as_lines(Numbers(), link, None, replace=True)
    assert lines_in(there) == before
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    load_as_lines(Numbers(), Path(), None)
    assert lines_in(tmp_path / "here") == before
    assert {each.name for each in tmp_path.iterdir()} == {"here", "link", "there"}


def test_errors_name_the_output_and_not_what_it_is_made_from() -> None:
    for aside in ("/o/.out.17", "/o/.out.x7/0001"):
        with pytest.raises(OutputError) as caught, written(Path("/o/out")):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", aside)
        assert str(caught.value) == "/o/out: Is a directory"


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="not a directory"):
        load_as_lines(Numbers(), tmp_path / "file", None, replace=True)
    with pytest.raises(OutputError):
        load_as_lines(Numbers(), tmp_path / "file" / "below", None)
