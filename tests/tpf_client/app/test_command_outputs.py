"""Outputs of commands without space on the disk, or without a reader."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import experiments.cli
import tpf_client.app.cli
from annotations.terms import Quad, iri, literal
from experiments.harness.publishing import publish_report
from tests.experiments.harness.test_runner import Squares
from tests.experiments.harness.test_runner import run as measure
from tests.support.live_server import BASE, LiveServer
from tests.tpf_client.conftest import Done
from tpf_client.app.printing import Format, refusal
from tpf_client.commands import COMMANDS

NAME = "http://example.org/name"
FORMS = {
    "SELECT": f"SELECT ?n {{ ?s <{NAME}> ?n }}",
    "ASK": "ASK { ?s ?p ?o }",
    "CONSTRUCT": f"CONSTRUCT WHERE {{ ?s <{NAME}> ?n }}",
    "DESCRIBE": "DESCRIBE <http://example.org/n1>",
}
ANSWERS = [
    ["tpf-query", f"{BASE}trains", "-q", text, *more]
    for form, text in FORMS.items()
    for more in (
        [],
        *(
            ["--format", each]
            for each in Format
            if refusal(form, each, watch=False, terminal=False) is None  # type: ignore[arg-type]
        ),
        *([["--watch"], ["--watch", "--format", "ndjson"]] if form == "SELECT" else []),
    )
]
PATTERN = "{ ?a <urn:p> ?b }"
CONTINUOUS = {
    "CQELS": f"SELECT ?a ?b {{ STREAM <urn:s> [NOW] {PATTERN} }}",
    "C-SPARQL": f"SELECT ?a ?b FROM STREAM <urn:s> [RANGE 4ms STEP 2ms] {PATTERN}",
    "C-SPARQL, ASK": f"ASK FROM STREAM <urn:s> [RANGE 4ms STEP 2ms] {PATTERN}",
    "RSP-QL": "SELECT ?a ?b FROM NAMED WINDOW <w> ON <urn:s> [RANGE 4ms STEP 2ms]"
    f" {{ WINDOW <w> {PATTERN} }}",
}
STREAMS = ("few.tsv", "many.tsv")
RUNS = [
    ["tpf-continuous", "run", text, "--stream", f"urn:s={{0}}/{stream}", "--format", kind]
    for text in CONTINUOUS.values()
    for stream in STREAMS
    for kind in ("text", "arrow")
]
EXPLAINED = [["tpf-continuous", "run", text, "--explain"] for text in CONTINUOUS.values()]
OTHERS = [
    ["tpf-server", "--help-settings"],
    ["tpf-server", "backup", "--help"],
    ["tpf-server", "restore", "--help"],
    ["tpf-experiments", "list"],
    ["tpf-experiments", "report", "-o", "{0}/results"],
    ["tpf-experiments", "publish", "-o", "{0}/results", "--to", "{1}/published"],
    ["tpf-experiments", "unpack", "{0}/report", "-o", "{1}/unpacked"],
    ["tpf-experiments", "compare", "{0}/results", "{0}/results"],
    ["tpf-experiments", "compare", "{0}/results", "{0}/results", "--json"],
]
LINES = [
    *([*name.split(), "--help"] for name in COMMANDS),
    ["tpf-query", "--version"],
    ["tpf-server", "--version"],
    *ANSWERS,
    *RUNS,
    *EXPLAINED,
    *OTHERS,
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Streams with more results than a buffer, and an experiment."""
    path = tmp_path_factory.mktemp("outputs")
    for stream, count in zip(STREAMS, (4, 1_000), strict=True):
        lines = (f"{n}\t<urn:a{n}>\t<urn:p>\t<urn:b>\n" for n in range(1, count))
        (path / stream).write_text("".join(lines))
    measure(path / "results", Squares())
    publish_report(path / "results", [Squares()], path / "report")
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> LiveServer:
    data = [Quad(iri(f"http://example.org/n{n}"), iri(NAME), literal(str(n))) for n in range(20)]
    return LiveServer(tmp_path_factory.mktemp("server"), data, live=False)


@pytest.fixture
def told(
    folder: Path,
    tmp_path: Path,
    server: LiveServer,
    called: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Done]:
    """Run a line, against that server, and with that experiment alone."""
    monkeypatch.setattr(
        tpf_client.app.cli,
        "Client",
        lambda *_urls, **_options: server.client(),
    )
    monkeypatch.setattr(experiments.cli, "EXPERIMENTS", (Squares(),))
    monkeypatch.setattr(experiments.cli, "STUDY_MINUTES", {Squares.name: 1})

    def to_its_end(line: list[str], output: str | int = "") -> Done:
        places = [each.replace("{0}", str(folder)).replace("{1}", str(tmp_path)) for each in line]
        return called(*places, output=output)

    return to_its_end


def test_every_command_is_asked() -> None:
    written = {line[0] for line in [*ANSWERS, *RUNS, *OTHERS]}
    # All that these say is on standard error: what they write are files, and what is sent.
    silent = {"tpf-load", "tpf-replay", "tpf-demo"}
    assert written | silent == {name.split()[0] for name in COMMANDS}


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_an_output_that_has_no_place(line: list[str], told: Callable[..., Done]) -> None:
    done = told(line, "/dev/full")
    assert done.stderr == f"{line[0]}: standard output: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_an_output_that_nobody_reads(line: list[str], told: Callable[..., Done]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = told(line, writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("line", RUNS, ids=" ".join)
def test_a_file_that_has_no_place(line: list[str], told: Callable[..., Done]) -> None:
    done = told([*line, "--output", "/dev/full"])
    assert done.stderr == f"{line[0]}: /dev/full: No space left on device\n"
    assert done.returncode == 1
