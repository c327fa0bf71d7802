"""Commands that are used wrongly say why in a line."""

import re
from pathlib import Path

import pytest

from tests.loaders.recordings import entry, write_directory
from tests.loaders.sources.test_gtfs import write
from tests.loaders.sources.test_gtfs_rt import new_message
from tests.loaders.test_cli import run


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("load trams a", 2, "No such command"),
        ("load irail absent.zip", 2, "--facts, --streams or --history"),
        ("load irail absent.zip -o out", 1, "tpf-load: absent.zip: No such file"),
        ("load irail a -o out --from 2014-12-05", 2, "not an xsd:dateTime"),
        ("load irail a -o out --from 2014-12-05T00:00:00", 2, "needs a time zone"),
        ("load irail http://[x/ -o out", 1, "http://[x/: no URL that can be asked"),
        ("load irail http://h/b --output s --push http://h/d", 2, "one output"),
        ("load irail http://h/b --push http://h/d --period 0", 2, "positive"),
        ("load irail recorded.zip --push http://h/d", 2, "tpf-replay irail"),
        ("load flights absent -o out", 1, "airlines.csv: no such file"),
        ("load gtfs absent.zip", 2, "Missing option"),
        ("load gtfs-rt rt.pb --facts f", 2, "Missing option '--schedule'"),
        ("load gtfs-rt rt.pb --schedule feed", 2, "--streams, --history or --push"),
        ("load gtfs-rt http://h/rt --schedule feed --facts f --streams s", 2, "one output"),
        ("load gtfs-rt http://h/rt --schedule feed --push bus", 2, "not the URL of a dataset"),
        ("load siri http://[x/ --facts f", 1, "http://[x/: no URL that can be asked"),
        ("load json http://[x/ --facts f", 2, "can be polled: 'http://[x/'"),
        ("load json http://h/b --context absent --push http://h/d", 1, "No such file"),
        ("load json http://h/b --context list --push http://h/d", 1, "no context"),
        ("load ngsi-ld listen://0.0.0.0:0 --push http://h/d", 2, "give a --receiver-token"),
        ("load ngsi-ld listen://nowhere --push http://h/d", 2, "not an address to listen at"),
        ("load ngsi-ld listen://127.0.0.1:0 --push http://h/d --facts f", 2, "one output"),
        ("load ngsi-ld listen://127.0.0.1:0 --push http://h/d --holds 0", 2, "positive"),
        ("load ldes http://[x/ --push http://h/d", 2, "can be followed: 'http://[x/'"),
        ("load ldes http://h/ --push http://[x/", 2, "a dataset: 'http://[x/'"),
        ("load ldes http://h/", 2, "say where to: --facts or --push"),
        ("load ldes http://h/ --push http://h/streams/s", 2, "a stream takes no facts that end"),
        ("load ldes http://h/ --facts f --state s", 2, "a file is written from the beginning"),
        ("load ldes http://h/ --push http://h/d --period 0", 2, "positive"),
        (
            "load stream day http://h/d --checkpoint c --holds 5 --mapping deep",
            1,
            "deep: not JSON (maximum",
        ),
        ("load publish a.nq http://[x/", 2, "a dataset: 'http://[x/'"),
        ("load ngsi-ld listen://127.0.0.1:0 --push http://h/d --receiver-token \xe9", 2, "ASCII"),
        ("load publish a.nq http://h/d?a=b", 2, "a dataset: 'http://h/d?a=b'"),
        ("load publish http://[x/a.nq http://h/d", 1, "a.nq: no URL that can be asked"),
        ("replay irail day http://[x/", 2, "not the URL of a dataset: 'http://[x/'"),
        ("replay irail day http://h/t --token a\u20acb", 2, "the token: a token is ASCII"),
        ("replay irail day http://h/t#facts", 2, "not the URL of a dataset: 'http://h/t#facts'"),
        ("replay irail day http://h/t --speed 0", 2, "speed of a replay"),
        ("replay irail day http://h/t --speed 1e-300", 2, "speed of a replay"),
        ("replay irail day http://h/t --from 2030-01-01T00:00:00Z", 2, "nothing between"),
        ("replay facts none.nq http://h/t", 1, "tpf-replay: the recording is empty"),
        ("replay flights", 2, "Missing argument"),
        ("replay flights a b http://h/", 2, "at most one INPUT"),
        ("replay gtfs-rt http://h/rt http://h/t --schedule feed", 2, "polls it, with --push"),
    ],
)
def test_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    words: str, status: int, message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "feed")
    write_directory(tmp_path / "day", {1417772214687: [entry("a")]})
    (tmp_path / "rt.pb").write_bytes(new_message().SerializeToString())
    (tmp_path / "none.nq").touch()
    (tmp_path / "list").write_text("[1]")
    (tmp_path / "deep").write_text("[" * 100_000)
    assert run(*words.split()) == status
    assert message in " ".join(re.sub("[│╭╰─╮╯]", " ", capsys.readouterr().err).split())
    assert not (tmp_path / "f").exists()
