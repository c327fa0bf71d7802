"""Formats of answers: which there are, and that they stream."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner
from werkzeug.serving import make_server

import tpf_client.app.cli
from annotations.terms import Quad, iri, literal
from tests.support.live_server import LiveServer
from tests.support.threaded import in_thread
from tpf_client import Client, Solutions
from tpf_client.app.printing import Format, named_format

EX = "http://example.org/"
ROWS = 3000
SELECT = f"SELECT ?n {{ ?s <{EX}name> ?n }}"
QUERIES = {
    "SELECT": SELECT,
    "ASK": "ASK { ?s ?p ?o }",
    "CONSTRUCT": f"CONSTRUCT WHERE {{ <{EX}n1> ?p ?o }}",
    "DESCRIBE": f"DESCRIBE <{EX}n1>",
}
OFFERED = {
    "SELECT": {"table", "json", "csv", "tsv", "xml", "ndjson"},
    "ASK": {"table", "json", "xml"},
    "CONSTRUCT": {"ttl", "nt", "jsonld", "rdfxml"},
    "DESCRIBE": {"ttl", "nt", "jsonld", "rdfxml"},
}
BEGINS = {
    ("ASK", "table"): "true\n",
    ("ASK", "json"): '{"head": {}, "boolean": true}\n',
    ("ASK", "xml"): "<?xml",
    ("SELECT", "table"): "┏",
    ("SELECT", "json"): '{"head": {"vars": ["n"]}, "results": {"bindings": [\n{"n": {',
    ("SELECT", "csv"): "n\n",
    ("SELECT", "tsv"): "?n\n",
    ("SELECT", "xml"): "<?xml",
    ("SELECT", "ndjson"): '{"n": {',
}

BEGIN_OF_GRAPHS = {"ttl": "@prefix", "nt": "<", "jsonld": "[\n", "rdfxml": "<?xml"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    data = [Quad(iri(f"{EX}n{n}"), iri(EX + "name"), literal(f"é{n}")) for n in range(ROWS)]
    with LiveServer(tmp_path_factory.mktemp("formats"), data, live=False) as server:
        yield server


def _client(server: LiveServer) -> Client:
    return server.client()


@pytest.mark.parametrize("form", QUERIES)
@pytest.mark.parametrize("wanted", [each.value for each in Format])
def test_a_format_is_honoured_or_refused(
    server: LiveServer, form: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tpf_client.app.cli, "Client", lambda *_urls, **_options: _client(server))
    asked = len(server.log)
    arguments = [server.url, "-q", QUERIES[form], "--format", wanted]
    result = CliRunner().invoke(tpf_client.app.cli.app, arguments, catch_exceptions=False)
    if wanted in OFFERED[form]:
        assert result.exit_code == 0, result.output
        begin = BEGINS.get((form, wanted), BEGIN_OF_GRAPHS.get(wanted, ""))
        assert begin
        assert result.stdout.replace("\r\n", "\n").startswith(begin)
        assert result.stdout.endswith("\n")
    else:
        assert (result.exit_code, result.stdout, len(server.log)) == (2, "", asked)
        words = " ".join(result.stderr.replace("│", " ").split())
        assert f"{form} has no format {wanted}" in words


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("turtle", "ttl"), ("text/turtle", "ttl"), ("ntriples", "nt"), ("N-Triples", "nt"),
        ("application/n-triples", "nt"), ("application/rdf+xml", "rdfxml"),
        ("application/ld+json", "jsonld"), ("srj", "json"), ("srx", "xml"), ("jsonl", "ndjson"),
        ("application/sparql-results+json", "json"), ("application/sparql-results+xml", "xml"),
        ("text/csv; charset=utf-8", "csv"), ("text/tab-separated-values", "tsv"),
        ("turtles", None), ("", None), ("image/png", None),
    ],
)  # fmt: skip
def test_formats_have_their_usual_names(name: str, wanted: str | None) -> None:
    assert named_format(name) == wanted
    assert all(named_format(each.upper()) is each for each in Format)


def test_updates_in_another_format_are_refused(server: LiveServer) -> None:
    result = CliRunner().invoke(
        tpf_client.app.cli.app, [server.url, "-q", SELECT, "--watch", "--format", "csv"]
    )
    assert result.exit_code == 2
    assert "no format csv" in " ".join(result.stderr.replace("│", " ").split())


@pytest.mark.parametrize("form", ["json", "csv", "tsv", "xml", "ndjson"])
def test_solutions_are_written_as_they_come(server: LiveServer, form: str) -> None:
    with _client(server) as client:
        answer = client.query(SELECT)
        assert isinstance(answer, Solutions)
        pieces = answer.pieces(form)
        asked = len(server.log)
        text = ""
        while "é" not in text:
            text += next(pieces)
        assert len(server.log) - asked <= 1
        text += "".join(pieces)
        assert text.count("é") == ROWS
        assert answer.count == ROWS
        with _client(server) as other:
            again = other.query(SELECT)
            assert isinstance(again, Solutions)
            assert again.serialize(form) == text


def test_a_reader_may_have_seen_enough(tmp_path: Path) -> None:
    http = make_server("127.0.0.1", 0, lambda *_: [], threaded=True)
    base = f"http://127.0.0.1:{http.server_port}/"
    rows = [Quad(iri(f"{EX}n{n}"), iri(EX + "name"), literal(f"name{n}")) for n in range(20_000)]
    server = LiveServer(tmp_path, rows, live=False, server={"base_url": base})
    asked: list[str] = []

    def app(environ: Any, start: Any) -> Any:
        asked.append(environ["QUERY_STRING"])
        return server.app(environ, start)

    http.app = app
    arguments = [
        sys.executable, "-m", "tpf_client.commands", "tpf-query", base + "trains", "-q", SELECT,
        "--format", "csv",
    ]  # fmt: skip
    with (
        in_thread(http),
        subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(200)) == 200
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(60)
    server.close()
    assert errors == b""
    # There are 20 pages of 1,000; a client in a hurry asks for 8 of them at the same time.
    assert len(asked) < 20


def test_nothing_foreign_commands_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = "\x1b]0;gone\x07\x9b2J\u202e"
    rows = [Quad(iri(EX + "a"), iri(EX + "name"), literal(evil))]
    server = LiveServer(tmp_path, rows, live=False)
    monkeypatch.setattr(tpf_client.app.cli, "Client", lambda *_urls, **_options: _client(server))

    def shown(*arguments: str) -> str:
        command = [server.url, "-q", SELECT, *arguments]
        result = CliRunner().invoke(tpf_client.app.cli.app, command, catch_exceptions=False)
        return str(result.stdout + result.stderr)

    assert not set(shown("--format", "table")) & set("\x1b\x07\x9b\u202e")
    # What reads CSV gets it as it is.
    assert evil in shown("--format", "csv")
    wrong = [server.url, "-q", f"SELECT * {{ ?s '{evil} ?o }}"]
    said = CliRunner().invoke(tpf_client.app.cli.app, wrong).stderr
    assert not set(said) & set("\x1b\x07\x9b\u202e")
    assert "line 1" in said
    server.close()


@pytest.mark.parametrize("form", ["ttl", "nt", "jsonld", "rdfxml"])
@pytest.mark.parametrize("character", ["\\u0001", "\\uFFFF", "\\t", "é"])
def test_only_xml_is_refused_for_the_characters_it_cannot_hold(
    tmp_path: Path, form: str, character: str
) -> None:
    file = tmp_path / "data.ttl"
    file.write_text("")
    query = f'CONSTRUCT {{ <{EX}a> <{EX}p> "x{character}y" }} {{}}'
    arguments = [str(file), "-q", query, "--format", form]
    result = CliRunner().invoke(tpf_client.app.cli.app, arguments, catch_exceptions=False)
    refused = form == "rdfxml" and character.startswith("\\u")
    assert (result.exit_code == 1, result.stdout == "") == (refused, refused)
    assert ("XML cannot hold the character U+" in result.stderr) is refused
