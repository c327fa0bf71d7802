"""``tpf-load siri`` and ``tpf-replay siri`` as a user runs them."""

from pathlib import Path
from typing import Any

import pytest

from annotations.clock import SystemClock
from tests.loaders.facts_server import FactsServer, listening
from tests.loaders.sources.test_siri import ET, VM
from tests.loaders.test_cli import run

DELAY = "<http://example.org/train#delay>"


def test_recorded_messages_as_facts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    (recorded / "a.xml").write_bytes(ET)
    (recorded / "b.xml").write_bytes(VM.replace(b"T08:00:00+01:00", b"T08:01:00+01:00"))
    facts = tmp_path / "facts.nq"
    arguments = ["siri", recorded, "--base", "http://agency.example/", "--facts", facts]
    assert run("load", *arguments) == 0, capsys.readouterr().err
    text = facts.read_text()
    departure = "<http://agency.example/departures/20260105/day/10>"
    assert f'{departure} {DELAY} "150"' in text
    assert (
        "<http://agency.example/vehicles/7> <http://www.w3.org/2003/01/geo/wgs84_pos#lat>" in text
    )
    # From the message to the next one, and from that for the period.
    for instant in ("T07:00:00Z", "T07:01:00Z", "T07:01:30Z"):
        assert f'"2026-01-05{instant}"' in text


@pytest.mark.parametrize("command", ["load", "replay"])
def test_a_server_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    facts = FactsServer(SystemClock())

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "POST":
            return facts(environ, start_response)
        start_response("200 OK", [("Content-Type", "application/xml")])
        return [ET]

    (tmp_path / "a.xml").write_bytes(ET)
    with listening(answer) as origin:
        if command == "load":
            told = [f"{origin}siri", "--push", f"{origin}trains", "--polls", "1"]
        else:
            told = [str(tmp_path / "a.xml"), f"{origin}trains"]
        assert run(command, "siri", *told, "--token", "secret") == 0, capsys.readouterr().err
    (posted,) = facts.accepted
    assert sum(DELAY in line for line in posted.lines) == 3
