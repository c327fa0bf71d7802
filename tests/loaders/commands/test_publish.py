"""``tpf-load publish`` against the real server."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from annotations.instants import format_instant
from tests.support.served import TOKEN, Served
from tpf_client import commands

EX = "http://example.org/"
LINE = f'<{EX}t9> <{EX}delay> "5" .\n'


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path) as running:
        yield running


def run(served: Served, *arguments: object, token: str | None = TOKEN) -> int:
    where = f"http://127.0.0.1:{served.port}/trains"
    options = [] if token is None else ["--token", token]
    file, *rest = map(str, arguments)
    return commands.run("tpf-load", ["publish", file, where, *rest, *options])


def delays(served: Served) -> list[str]:
    return [row.object for row in served.fragment(f"trains?predicate={EX}delay")]


def test_facts_are_published_corrected_and_withdrawn(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts, patch = tmp_path / "facts.nt", tmp_path / "patch.rdfp"
    facts.write_text(LINE)
    patch.write_text(f"D {LINE}A {LINE.replace('5', '6')}")
    until = format_instant(served.clock.now() + timedelta(minutes=1))
    assert run(served, facts, "--expiration", until, "--batch", "x") == 0
    assert "published to" in capsys.readouterr().err
    assert delays(served) == ['"5"']
    assert run(served, patch, "--expiration", until) == 0
    assert delays(served) == ['"6"']
    # Under its name it counts once.
    assert run(served, facts, "--expiration", until, "--batch", "x", "--quiet") == 0
    assert delays(served) == ['"6"']
    facts.write_text(LINE.replace("5", "6"))
    capsys.readouterr()
    assert run(served, facts, "--withdraw") == 0
    assert "withdrawn from" in capsys.readouterr().err
    assert delays(served) == []


def test_a_span_is_withdrawn(served: Served, tmp_path: Path) -> None:
    facts = tmp_path / "facts.nt"
    facts.write_text(LINE)
    now = served.clock.now()
    whole = ["--initial", format_instant(now), "--final", format_instant(now + timedelta(hours=1))]
    part = ["--initial", format_instant(now), "--final", format_instant(now + timedelta(minutes=1))]
    assert run(served, facts, *whole) == 0
    assert delays(served) == ['"5"']
    assert run(served, facts, "--withdraw", *part) == 0
    assert delays(served) == []
    served.clock.advance_to(now + timedelta(minutes=1))
    assert delays(served) == ['"5"']


def test_what_is_wrong_is_said_in_a_line(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = tmp_path / "facts.nt"
    facts.write_text(LINE)
    (tmp_path / "facts.xyz").touch()
    instant = "2015-12-08T12:30:00Z"
    for status, arguments, says in (
        (1, [tmp_path / "none.nt"], "none.nt"),
        (1, [tmp_path / "facts.xyz"], "ends in none of"),
        (2, [facts, "--initial", instant], "--initial and --final"),
        (2, [facts, "--initial", instant, "--final", instant], "end after"),
        (1, [facts], "no label"),
        (1, [facts, "--expiration", "2001-01-01T00:00:00Z"], "ended"),
    ):
        assert run(served, *arguments) == status
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
    assert run(served, facts, "--withdraw", token=None) == 1
    assert "--token" in capsys.readouterr().err
    assert delays(served) == []
