"""The served files of the endpoint's page, and their sources."""

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import brotli
import pytest

from tests.support.page_modules import PAGE, page_modules
from tests.tpf_client.app.test_endpoint import call
from tpf_client import Client
from tpf_client.app.endpoint import SparqlEndpoint
from tpf_client.map_tiles import MapTiles
from tpf_client.page_files import POLICY, Example, read_example

URL = "http://fragments.test/d"
MOST_BYTES = 250_000


@pytest.fixture(scope="module")
def app() -> SparqlEndpoint:
    hostile = Example("</script><b>", 'SELECT * { ?s ?p "</script>" }')
    return SparqlEndpoint(Client(URL), examples=[hostile])


def fetch(app: SparqlEndpoint, path: str, encoding: str = "") -> tuple[dict[str, str], bytes]:
    code, headers, body = call(app, PATH_INFO=path, HTTP_ACCEPT_ENCODING=encoding)
    assert code == 200
    assert headers.get("Content-Encoding", "") == encoding
    assert int(headers["Content-Length"]) == len(body)
    assert headers["X-Content-Type-Options"] == "nosniff"
    code, again, nothing = call(
        app, PATH_INFO=path, HTTP_ACCEPT_ENCODING=encoding, HTTP_IF_NONE_MATCH=headers["ETag"]
    )
    assert (code, again["ETag"], nothing) == (304, headers["ETag"], b"")
    return headers, body


def test_the_page_is_small_and_loads_nothing_from_elsewhere(app: SparqlEndpoint) -> None:
    html = fetch(app, "/")[1].decode()
    named = re.findall(r'(?:src|href|data-outline)="([\w-]+\.(?:js|css|json))"', html)
    assert len(named) == 3
    size = 0
    for path in ("/", "/page.json", *(f"/{name}" for name in named)):
        headers, packed = fetch(app, path, "gzip")
        assert headers["Content-Security-Policy"] == POLICY
        # What is named by its content stays; what names it is looked at again.
        assert ("immutable" in headers["Cache-Control"]) == (path[1:] in named)
        size += len(packed)
        body = fetch(app, path)[1]
        assert gzip.decompress(packed) == body
        assert brotli.decompress(fetch(app, path, "br")[1]) == body
        refused = call(app, PATH_INFO=path, HTTP_ACCEPT_ENCODING="br;q=0, x-gzip, gzip;q=0.5")
        assert refused[2] == packed
        if path[1:] in named:
            assert hashlib.sha256(body).hexdigest()[:16] in path
    assert size <= MOST_BYTES
    assert "unsafe" not in POLICY
    assert not re.search(
        r"https?://(?!example\.org/dataset|www\.w3\.org/2000/svg)|<style|\sstyle=|\son\w+="
        r"|<script(?! type=\"module\" src)",
        html,
    )
    told = json.loads(call(app, PATH_INFO="/page.json")[2])
    assert told["datasets"] == [URL]
    assert told["endpoint"] is True
    assert told["examples"][0]["title"] == "</script><b>"
    assert call(app, "HEAD", PATH_INFO="/")[2] == b""
    assert call(app, "POST", PATH_INFO="/")[0] == 405
    assert call(app, PATH_INFO="/index.html")[0] == 404
    assert call(app, PATH_INFO="/", HTTP_HOST="attacker.example")[0] == 421


def test_a_map_with_tiles_may_load_them_and_nothing_else(app: SparqlEndpoint) -> None:
    assert re.findall(r"img-src ([^;]*)", POLICY) == ["data:"]
    assert json.loads(call(app, PATH_INFO="/page.json")[2])["tiles"] is None
    assert call(app, PATH_INFO="/")[1]["Referrer-Policy"] == "no-referrer"
    template = "https://tiles.example.org:8443/{z}/{x}/{y}.png"
    tiled = SparqlEndpoint(Client(URL), tiles=MapTiles(template, "\u00a9 <b>us</b>"))
    for path in ("/", "/page.json"):
        headers = call(tiled, PATH_INFO=path)[1]
        assert headers["Content-Security-Policy"] == f"{POLICY} https://tiles.example.org:8443"
        assert headers["Referrer-Policy"] == "strict-origin"
    told = json.loads(call(tiled, PATH_INFO="/page.json")[2])["tiles"]
    assert told == {"url": template, "attribution": "\u00a9 <b>us</b>"}


def test_examples_are_files(tmp_path: Path) -> None:
    file = tmp_path / "late.rq"
    file.write_text("SELECT * {}")
    assert read_example(file) == Example("late", "SELECT * {}")
    file.write_text("# Late trains \nSELECT * {}")
    assert read_example(file) == Example("Late trains", "# Late trains \nSELECT * {}")


def test_the_built_files_are_of_these_sources() -> None:
    told = json.loads((PAGE / "built/sources.json").read_text())
    files = [PAGE / "build.mjs", PAGE / "package-lock.json", *(PAGE / "src").iterdir()]
    now = {
        str(file.relative_to(PAGE)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }
    assert told == now, "run `npm ci && node build.mjs` in tpf_client/page"
    licences = (PAGE / "built/licences.txt").read_text()
    named = re.findall(r"^(\S+) ([0-9.]+) \((.+)\)$", licences, re.MULTILINE)
    assert {licence for _, _, licence in named} == {"BSD-2-Clause", "ISC", "MIT"}
    assert "@codemirror/view" in {name for name, _, _ in named}


@pytest.mark.peers
def test_the_build_gives_the_files_that_are_served(tmp_path: Path) -> None:
    modules = page_modules()
    for name in ("src", "package.json", "package-lock.json", "build.mjs"):
        source = PAGE / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    (tmp_path / "node_modules").symlink_to(modules)
    done = subprocess.run(
        ["node", "--preserve-symlinks", "build.mjs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for file in (PAGE / "built").iterdir():
        assert (tmp_path / "built" / file.name).read_bytes() == file.read_bytes(), file.name


@pytest.mark.peers
def test_an_answer_that_begins_again_has_its_new_order() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node found: install Debian's package nodejs")
    script = """
        import { Answer } from "./answer.js";
        const answer = new Answer();
        for (const letters of ["abcd", "deba"]) {
          const added = [...letters].map((value) => ({ x: { type: "literal", value } }));
          const [valid, places] = [added.map(() => []), added.map((_, n) => n)];
          answer.begin({ vars: ["x"], added, valid, places });
        }
        console.log(answer.live.map((row) => row.cells.x.value).join(""));
    """
    done = subprocess.run(
        [node, "--input-type=module", "-e", script],
        cwd=PAGE / "src", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "deba\n", done.stderr
