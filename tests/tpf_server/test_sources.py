"""Checks of the data before a worker starts."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stores import CREATED
from tpf_server.app import DatasetOpener
from tpf_server.configuration import Configuration
from tpf_server.errors import CorruptStoreError, SettingsError, StoreError
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.sources import check_sources
from tpf_server.store.live.store import open_live_store
from tpf_server.store.static.indexing import index_files

CHECK = """
import sys
from tpf_server.cli import configure
from tpf_server.sources import check_sources
check_sources(configure(["trains.store"], None, {"publish_token": "T"}))
print(sorted({"numpy", "pyarrow", "pyoxigraph", "flask"} & sys.modules.keys()))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "trains.nt").write_text("<x:a> <x:p> <x:b> .\n")
    index_files([tmp_path / "trains.nt"], tmp_path / "trains.store", created=CREATED)
    return tmp_path / "trains.store"


def configuration(folder: Path, **dataset: object) -> Configuration:
    settings = DatasetSettings(name="trains", **dataset)  # type: ignore[arg-type]
    return Configuration(Settings(data_dir=str(folder / "data")), (settings,))


def test_it_takes_nothing_that_opens_stores(store: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK],
        cwd=store.parent,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert (store.parent / ".tpf-server/live/trains.sqlite").is_file()


def test_live_facts_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = configuration(tmp_path, live=True)
    DatasetOpener().open_one(wanted.datasets[0], wanted.server).close()

    def read(*_: object) -> None:
        raise AssertionError("the log is read")

    monkeypatch.setattr("tpf_server.store.live.sqlite_log.SqliteLog.read", read)
    check_sources(wanted)


def test_rdf_files_are_indexed(tmp_path: Path) -> None:
    (tmp_path / "trains.nt").write_text("<x:a> <x:p> <x:b> .\n")
    check_sources(configuration(tmp_path, source=str(tmp_path / "trains.nt")))
    assert len(list((tmp_path / "data/indexes").glob("trains-*/manifest.json"))) == 1


def test_what_is_wrong_is_found(store: Path, tmp_path: Path) -> None:
    place = tmp_path / "live.sqlite"
    open_live_store(place).close()
    with pytest.raises(StoreError, match="made with key 'subject-predicate'"):
        check_sources(configuration(tmp_path, live=str(place), key="triple"))
    unseen = Settings(query_examples=str(tmp_path / "nothing"))
    with pytest.raises(SettingsError, match="there is no folder"):
        check_sources(Configuration(unseen, ()))
    (tmp_path / "wrong.rq").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=r"query_examples: .*wrong\.rq: 'utf-8' codec"):
        check_sources(Configuration(Settings(query_examples=str(tmp_path)), ()))
    (tmp_path / "wrong.rq").unlink()
    (tmp_path / "wrong.rq").symlink_to("nowhere")
    with pytest.raises(SettingsError, match=r"query_examples: .*wrong\.rq"):
        check_sources(Configuration(Settings(query_examples=str(tmp_path)), ()))
    for live in ("", "http://example.org/live", "sqlite:///live.sqlite"):
        with pytest.raises(SettingsError, match=f"dataset trains: live is .*, not '{live}'"):
            check_sources(configuration(tmp_path, live=live))
    next(store.glob("generation-*/terms.arrow")).write_bytes(b"cut")
    with pytest.raises(CorruptStoreError, match=r"terms\.arrow"):
        check_sources(configuration(tmp_path, source=str(store)))


def test_a_log_where_no_folder_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "x" / "live.sqlite"
    with pytest.raises(StoreError, match=f"{place}: its folder cannot be made: Not a directory"):
        check_sources(configuration(tmp_path, live=str(place)))
