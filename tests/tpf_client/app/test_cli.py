"""tpf-query against the real server on loopback, mostly in this process."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast
from wsgiref.types import StartResponse, WSGIEnvironment

import pytest
from werkzeug.serving import make_server

from annotations.clock import SystemClock
from annotations.labels import Expiration, Fact
from annotations.namespaces import DCTERMS, HYDRA, VOID
from annotations.terms import Quad, iri, literal
from tests.support.stores import static_store
from tests.support.threaded import in_thread
from tests.tpf_client.conftest import Done
from tpf_client import commands
from tpf_client.app.cli import _watch
from tpf_client.errors import UnstableError
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.store import open_live_store

EX = "http://example.org/"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("cli")
    clock = SystemClock()
    live = open_live_store(path / "live.sqlite")
    static = static_store(path / "static", [Quad(iri(EX + "a"), iri(EX + "p"), literal("1"))])
    now = clock.now()
    live.publish(
        [Fact(Quad(iri(EX + "a"), iri(EX + "d"), literal("5")), Expiration(now + timedelta(60)))],
        now,
    )
    server = make_server("127.0.0.1", 0, lambda *_: [])
    base = f"http://127.0.0.1:{server.server_port}/"
    dataset = OpenDataset(DatasetSettings(name="d"), static, live)
    server.app = create_app(Settings(base_url=base), [dataset], clock)
    with in_thread(server):
        yield base + "d"
    static.close()
    live.close()


Run: TypeAlias = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command to its end."""

    def to_its_end(*arguments: str) -> Done:
        capsys.readouterr()
        status = commands.run("tpf-query", arguments)
        said = capsys.readouterr()
        return Done(status, said.out.replace("\r\n", "\n"), said.err)

    return to_its_end


def test_without_a_query_it_lists_datasets(run: Run, url: str, tmp_path: Path) -> None:
    server = url.removesuffix("d")
    file = tmp_path / "data.nt"
    file.write_text(f"<{EX}a> <{EX}p> '1' .\n".replace("'", '"'))
    for asked, listed, facts in ((server, url, 2), (url, url, 2), (str(file), str(file), 1)):
        done = run(asked)
        assert done.returncode == 0
        row = next(line for line in done.stdout.splitlines() if "│" in line)
        assert row.split("│")[2].strip() == str(facts)
        assert done.stderr == f"tpf-query {listed} 'SELECT * {{ ?s ?p ?o }} LIMIT 10'\n"
        assert run(asked, "--watch").returncode == 2
    assert run(server, server).stdout.count("│") == 2 * run(server).stdout.count("│")
    nothing = run(f"{server}healthz")
    assert nothing.returncode == 1
    assert nothing.stderr.startswith(f"tpf-query: {server}healthz: malformed text/plain")


def test_a_list_of_datasets_is_text(run: Run) -> None:
    list_ = f"""<#all> <{HYDRA}member> <#a>, <#b>, <#c> .
<#a> <{VOID}subset> </d;x> ; <{VOID}triples> {"9" * 5000} ; <{DCTERMS}title> "[/b] :train:" .
<#b> <{VOID}subset> <http://[fe80::1]/b> ; <{VOID}triples> "²" ; <{DCTERMS}title> <urn:x> .
<#c> <{VOID}subset> "no IRI" ."""

    def app(_: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        start("200 OK", [("Content-Type", "text/turtle")])
        return [list_.encode()]

    server = make_server("127.0.0.1", 0, app)
    base = f"http://127.0.0.1:{server.server_port}/"
    with in_thread(server):
        done = run(base)
    assert done.returncode == 0
    rows = [line.split("│")[1:-1] for line in done.stdout.splitlines() if "│" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        [f"{base}d;x", "1,000,000,000,000,000,000", "[/b] :train:"],
        ["http://[fe80::1]/b", "", ""],
    ]
    assert done.stderr == f"tpf-query '{base}d;x' 'SELECT * {{ ?s ?p ?o }} LIMIT 10'\n"


def test_a_file_is_a_dataset(run: Run, url: str, tmp_path: Path) -> None:
    file, second = tmp_path / "a.nt", tmp_path / "b.ttl"
    file.write_text(f"<{EX}a> <{EX}p> <{EX}b> .")
    second.write_text(f"<{EX}b> <{EX}p> 2 .")
    query = f"SELECT ?o {{ <{EX}a> <{EX}p> ?x . ?x <{EX}p> ?o }}"
    done = run(str(file), str(second), query, "--format", "csv")
    assert (done.returncode, done.stdout) == (0, "o\n2\n")
    assert run(str(file), url, query).returncode == 0


def test_plan_and_statistics(run: Run, url: str) -> None:
    query = f"SELECT ?o {{ ?s <{EX}p> ?o }}"
    result = run(url, "-q", query, "--format", "csv", "--stats", "--explain")
    assert (result.returncode, result.stdout) == (0, "o\n1\n")
    plan, statistics = result.stderr.strip().splitlines()
    assert "scan" in plan
    told = json.loads(statistics)
    assert told["results"] == 1
    assert told["requests"] == 2
    assert {"bytes", "seconds", "cache_hits"} <= told.keys()


def test_the_query_may_stand_behind_the_urls(run: Run, url: str, tmp_path: Path) -> None:
    query = f"SELECT ?o {{ ?s <{EX}p> ?o }} ORDER BY ?o"
    file = tmp_path / "q.rq"
    file.write_text(query)
    expected = run(url, "-q", query, "--format", "csv").stdout
    assert expected.count("\n") > 1
    assert run(url, query, "--format", "text/csv").stdout == expected
    assert run("--format", "csv", url, url, query).stdout == expected
    assert run(url, url, "-f", str(file), "--format", "csv").stdout == expected
    for wrong in ([query], [url, query, "-q", query], [url, query, url], [url, query, query]):
        refused = run(*wrong)
        assert (refused.returncode, refused.stdout) == (2, ""), wrong


_FOUR_TIMES = ', "(.)", "$1$1$1$1")'


@pytest.mark.parametrize("options", [[], ["--watch"]])
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT (COUNT(*) AS ?n) {{ {' '.join(f'?a{n} ?b{n} ?c{n} .' for n in range(30))} }}",
        f"SELECT ({'REPLACE(' * 11}'aaaa'{_FOUR_TIMES * 11} AS ?n) {{ ?s ?p ?o }}",
    ],
)
def test_seconds_end_what_needs_no_request(
    run: Run, url: str, query: str, options: list[str]
) -> None:
    """Joins and expressions take as long as they like, without a page that could end them."""
    result = run(url, "-q", query, "--seconds", "0.5", *options)
    over = "no complete answer within 0.5 s"
    assert (result.returncode, over in result.stderr) == ((0, False) if options else (1, True))


def test_the_answer_as_of_another_instant(run: Run, url: str) -> None:
    query = f"SELECT ?o {{ ?s <{EX}p> ?o }}"
    for instant in ("2001-02-03T04:05:06+07:00", "2100-01-01T00:00:00Z"):
        other = run(url, "-q", query, "--format", "json", "--at", instant)
        assert len(json.loads(other.stdout)["results"]["bindings"]) == 1
    expiring = f"SELECT ?o {{ ?s <{EX}d> ?o }}"
    for options in ([], ["--watch"]):
        unknown = run(url, "-q", expiring, "--at", "2001-02-03T04:05:06Z", *options)
        assert unknown.returncode == 1
        assert not unknown.stdout
        (line,) = unknown.stderr.splitlines()
        assert "does not tell since when a fact holds; ask for" in line
    wrong = run(url, "-q", query, "--at", "yesterday")
    assert wrong.returncode == 2
    assert "yesterday" in wrong.stderr


def test_errors_are_one_line_and_wrong_use_is_2(run: Run, url: str) -> None:
    broken = run(url, "-q", "SELECT * {\n ?s ?p }")
    assert broken.returncode == 1
    said = broken.stderr.splitlines()
    assert said[0].startswith("tpf-query: line 2, column 8")
    assert said[1:] == [" ?s ?p }", "       ^"]
    astray = run(url, "-q", "ASK {?s ?p ?o}", "--allow-link", "http://[")
    assert astray.returncode == 2
    assert "not a URL that can be asked" in astray.stderr
    unknown = run(url + "x", "-q", "ASK {?s ?p ?o}", "--allow-link", "http://elsewhere.test/")
    assert unknown.returncode == 1
    assert len(unknown.stderr.splitlines()) == 1
    assert "HTTP 404" in unknown.stderr
    assert run(url, "--explain").returncode == 2
    assert run("nonsense", "-q", "ASK {}").returncode == 2
    assert run(url, "-q", "ASK {}", "-f", "x").returncode == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("tpf-query {file} ASK{{}}", "data.ttl: malformed text/turtle"),
        ("tpf-query serve {file}", "data.ttl: malformed text/turtle"),
        ("tpf-query serve {url} --allow-link http://[", "http://[: not a URL"),
        ("tpf-query serve {url} --host {label}", "label"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    called: Callable[..., Done], tmp_path: Path, line: str, reason: str
) -> None:
    file = tmp_path / "data.ttl"
    file.write_text("<a> <b>")
    words = line.format(file=file, url="http://127.0.0.1:9/d", label="a" * 64).split()
    words += ["--port", "0"] if "serve" in words else []
    done = called(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("tpf-query: ")
    assert reason in done.stderr


@pytest.mark.parametrize("value", ["1e10", "soon"])
@pytest.mark.parametrize(
    "option", ["seconds", "min-interval", "max-interval", "every", "keep-checking", "grace"]
)
def test_seconds_that_nobody_can_wait_for_are_wrong_use(run: Run, option: str, value: str) -> None:
    done = run("http://127.0.0.1:9/d", "ASK {}", "--watch", f"--{option}", value)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--{option}" in done.stderr
    assert value in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *((f"--{name} 5", f"--{name}: only with --watch") for name in (
            "min-interval", "max-interval", "every", "keep-checking", "grace",
        )),
        ("--signal --every 3 --at 2026-01-01T00:00:00Z", "--every, --signal: only with --watch"),
        ("--watch --min-interval 5 --max-interval 2.5",
         "--min-interval 5 is more than --max-interval 2.5"),
    ],
)  # fmt: skip
def test_options_that_nothing_would_heed_are_wrong_use(
    run: Run, options: str, message: str
) -> None:
    done = run("http://127.0.0.1:9/d", "ASK {}", *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


def test_a_wrong_number_is_told_by_what_is_taken(run: Run, url: str) -> None:
    done = run(url, "ASK {}", "--seconds", "soon")
    said = "Error: Invalid value for '--seconds': 0 to 1000000000 seconds, not soon"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, said)


@pytest.mark.parametrize("option", ["service", "link", "origin"])
def test_what_an_endpoint_may_ask_or_answer_is_at_urls(
    called: Callable[..., Done], option: str
) -> None:
    done = called("tpf-query", "serve", "http://127.0.0.1:9/d", f"--allow-{option}", "e.org")
    said = "Error: Invalid value for URL: not an http(s) URL: e.org (try http://e.org)"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, said)


def test_a_plan_is_explained_once_there_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first evaluation may have failed by facts that expired meanwhile."""
    told: list[str] = []
    monkeypatch.setattr("tpf_client.app.cli._write_line", lambda update: told.append(update.at))
    errors = [UnstableError("urn:x", "again"), None, None]
    updates = [SimpleNamespace(at=f"update {n}", error=each) for n, each in enumerate(errors)]

    class Told(list[Any]):
        def explain(self) -> str:
            told.append("plan")
            return ""

        def close(self) -> None:
            pass

    assert _watch(cast(Any, None), cast(Any, Told(updates)), None, True) == 3
    assert told == ["update 0", "plan", "update 1", "update 2"]


@pytest.mark.parametrize(
    ("unreachable", "reason"),
    [
        ("http://127.0.0.1:9/d", "Connection refused"),
        ("https://127.0.0.1:9/d", "Connection refused"),
        ("http://no-such-host.invalid/d", "no-such-host.invalid"),
    ],
)
def test_a_server_that_is_not_there_is_said_without_objects(
    run: Run, unreachable: str, reason: str
) -> None:
    done = run(unreachable, "-q", "ASK { ?s ?p ?o }")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tpf-query: {unreachable}: ")
    assert reason in line
    assert "host=" not in line


def test_help_is_short_and_names_what_else_there_is(run: Run) -> None:
    long, short = run("--help"), run("-h")
    assert long.returncode == short.returncode == 0
    assert long.stdout == short.stdout
    assert "tpf-query serve" in long.stdout


def test_a_url_that_is_nearly_right_is_told_with_the_right_one(run: Run, url: str) -> None:
    query = ("-q", "ASK { ?s ?p ?o }")
    bare = url.removeprefix("http://")
    for arguments in ((bare, *query), (bare, "ASK { ?s ?p ?o }")):
        done = run(*arguments)
        assert done.returncode == 2
        assert url in "".join(done.stderr.replace("│", "").split())
    served = run("serve", bare)
    done = run(url + "/", *query)
    assert (done.returncode, served.returncode) == (1, 2)
    assert f"(try {url})" in done.stderr
    elsewhere = url.replace("127.0.0.1", "localhost")
    assert run(elsewhere, *query).stdout == "true\n"
