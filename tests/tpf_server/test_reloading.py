"""A worker exchanges its application; the old one closes after its last request."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tpf_server.configuration import Configuration
from tpf_server.errors import SettingsError
from tpf_server.settings import Settings
from tpf_server.sources import MadeApplication, Reloading


class Site:
    """Applications that answer with their title, when allowed."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "settings.json"
        self.closed: list[str] = []
        self.entered = threading.Event()
        self.leave = threading.Event()

    def write(self, title: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(Configuration(Settings(title=title), ()).to_json())
        new.replace(self.file)

    def make(self, configuration: Configuration) -> MadeApplication:
        title = configuration.server.title
        if title == "bad":
            raise SettingsError("bad")

        def app(environ: dict[str, Any], _start: object) -> Iterable[bytes]:
            if environ["PATH_INFO"] == "/slow":
                self.entered.set()
                assert self.leave.wait(60)
            assert title not in self.closed
            return [title.encode()]

        return MadeApplication(app, lambda: self.closed.append(title))


def ask(app: Reloading, path: str = "/") -> str:
    return b"".join(app({"PATH_INFO": path}, lambda *_: lambda _: None)).decode()


def test_the_old_one_is_closed_after_its_last_request(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("one")
    app = Reloading(site.file, site.make)
    answers: list[str] = []
    slow = threading.Thread(target=lambda: answers.append(ask(app, "/slow")))
    slow.start()
    assert site.entered.wait(60)
    for title in ("two", "three"):
        site.write(title)
        assert app.look()
    assert (ask(app), site.closed) == ("three", ["two"])
    site.leave.set()
    slow.join()
    assert (answers, site.closed) == (["one"], ["two", "one"])


def test_settings_of_which_nothing_can_be_made_change_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("one")
    app = Reloading(site.file, site.make)
    assert (ask(app), app.look(), site.closed) == ("one", False, [])
    site.write("bad")
    with pytest.raises(SettingsError):
        app.look()
    assert (ask(app), site.closed) == ("one", [])
    site.write("two")
    assert (app.look(), ask(app), site.closed) == (True, "two", ["one"])
    assert app.look() is False


def test_an_error_does_not_keep_later_settings_from_being_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path)
    site.write("one")
    app = Reloading(site.file, site.make)
    looks = iter([RuntimeError("odd"), OSError("gone"), SystemExit()])

    def look() -> bool:
        raise next(looks)

    monkeypatch.setattr(app, "look", look)
    monkeypatch.setattr("tpf_server.sources.LOOK_SECONDS", 0)
    with pytest.raises(SystemExit):
        app._follow()
    assert [record.message for record in caplog.records] == ["a worker keeps its settings"]
