"""Queries in Python for the browser have the answers of CPython."""

import ast
import asyncio
import io
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import pytest

from annotations.clock import SystemClock
from annotations.instants import format_instant
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from experiments.harness import peers
from tests.support import tab_follower
from tests.support.examples import TIMES
from tests.support.live_server import START
from tests.support.peers import HERE
from tests.support.random_sparql import QueryWriter, random_quads
from tests.support.shelf import Shelf
from tests.support.tab_follower import follow
from tests.support.tab_questions import ENDS, answer_here, answer_of, message, same
from tests.support.w3c import EVALUATED, evaluations
from tpf_client.page_runtime import packages_archive, runtime_folder

RUNTIME = runtime_folder()
NODES = peers.nodes()
pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(RUNTIME is None, reason="no Pyodide: python -m tpf_client.page_runtime"),
    pytest.mark.skipif(not NODES, reason="no Node found: tests/peers/install"),
]

QUERIES = 40 * TIMES
TOGETHER = 20
"""Queries over the same data."""
W3C_STEP = 16
"""Every so many of the W3C's tests."""
MINUTE = timedelta(minutes=1)
PERIOD = 30 * MINUTE
LOOKS = 48 * TIMES
"""In a day."""
_SECONDS = 240


class InPyodide:
    """One process for many queries; a context manager."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp()
        packages = Path(folder) / "packages.zip"
        packages.write_bytes(packages_archive())
        program = [NODES[0][0], str(HERE / "pyodide.mjs"), str(RUNTIME), str(packages)]
        self._process = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._rest = b""
        self.ready = self.next()
        shutil.rmtree(folder)
        self._count = 0

    def __enter__(self) -> "InPyodide":
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode() + b"\n")

    def next(self) -> dict[str, Any]:
        """Return the next event."""
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            ready = select.select([self._process.stdout], [], [], _SECONDS)[0]
            piece = os.read(self._process.stdout.fileno(), 2**16) if ready else b""
            assert piece, "nothing is told"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def run(self, program: str) -> Any:
        """Return the value of a Python program there."""
        self.send(json.dumps({"python": program}))
        return self.until("python").get("value")

    def until(self, *names: str) -> dict[str, Any]:
        while (told := self.next())["event"] not in names:
            assert told["event"] not in ("failed", "refused"), told
        return told

    def once(self, url: str, query: str) -> object:
        """Return what a query that is answered once tells."""
        self._count += 1
        self.send(message(self._count, url, query))
        events = [self.next()]
        while events[-1]["event"] not in ENDS:
            events.append(self.next())
        return answer_of(events)


@pytest.fixture(scope="module")
def pyodide() -> Iterator[InPyodide]:
    with InPyodide() as running:
        yield running


def _compare(pyodide: InPyodide, url: str, query: str) -> None:
    found = pyodide.once(url, query)
    assert same(found, answer_here(url, query)), query


def test_everything_that_is_imported_is_there(pyodide: InPyodide) -> None:
    # Also what is imported late, for an answer in CSV or a date of an older form.
    names = set()
    with zipfile.ZipFile(io.BytesIO(packages_archive())) as archive:
        for path in archive.namelist():
            name = path.removesuffix("c").removesuffix(".py").removesuffix("/__init__")
            spec = find_spec(name.replace("/", "."))
            assert spec is not None
            origin = spec.origin
            for node in ast.walk(ast.parse(Path(str(origin)).read_bytes())):
                if isinstance(node, ast.Import):
                    names |= {each.name for each in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module)
    names -= {each for each in names if each.partition(".")[0] not in sys.stdlib_module_names}
    program = f"""
import importlib.util, json
json.dumps([n for n in {sorted(names)!r} if importlib.util.find_spec(n) is None])
"""
    # For packed files, for notebooks, and what nothing but POSIX has; the tab does without.
    missing = ["gzip", "html", "importlib.metadata", "resource"]
    assert json.loads(pyodide.run(program)) == missing
    assert "email.utils" in names
    assert pyodide.run("from email.utils import parsedate_to_datetime as p; "
                       "p('Sunday, 06-Nov-94 08:49:37 GMT').year") == 1994  # fmt: skip


def test_random_queries(pyodide: InPyodide, tmp_path: Path) -> None:
    with Shelf(tmp_path) as shelf:
        for seed in range(QUERIES // TOGETHER):
            random = Random(seed)
            sizes = {"page_size": 3, "server": {"max_page_size": 5, "max_values": 3}}
            url, _ = shelf.add(sorted(random_quads(random)), live=False, **sizes)
            for _ in range(TOGETHER):
                _compare(pyodide, url, QueryWriter(random).query())


@pytest.mark.skipif(any(s.missing for s in EVALUATED), reason="no W3C tests in ../shared/data")
def test_queries_of_the_w3c(pyodide: InPyodide, tmp_path: Path) -> None:
    with Shelf(tmp_path) as shelf:
        for case in evaluations()[::W3C_STEP]:
            url, _ = shelf.add(case.quads(), live=False)
            if case.base:
                _compare(pyodide, url, f"BASE <{case.base}>\n{case.text}")


def _follow(
    pyodide: InPyodide, url: str, query: str, until: datetime, *, brief: bool = False
) -> Any:
    arguments = (url, query, format_instant(START), format_instant(until))
    call = f"await follow(*{arguments!r}, brief={brief})"
    return json.loads(pyodide.run(f"{Path(tab_follower.__file__).read_text()}\n{call}"))


def _in_any_order(updates: list[dict[str, Any]]) -> list[object]:
    """Updates, whatever the order in which answers came, and to the second: attempts after facts
    that expired while they were read come after pauses of random length."""
    return [
        {
            **each,
            "added": sorted(map(json.dumps, zip(each["added"], each["valid"], strict=True))),
            "valid": None,
            "removed": sorted(map(json.dumps, each["removed"])),
        }
        for each in json.loads(re.sub(r"(:\d\d)\.\d+Z", r"\1Z", json.dumps(updates)))
    ]


def test_continuous_queries_have_the_updates_of_cpython(pyodide: InPyodide, tmp_path: Path) -> None:
    changes = followed = 0
    for seed in range(QUERIES // TOGETHER):
        random = Random(seed)
        quads = sorted(random_quads(random))
        # Labelled facts have one value at a time, and no other is static.
        keys = {(quad.subject, quad.predicate, quad.graph): quad for quad in quads}
        dynamic = random.sample(list(keys.values()), len(keys) // 3)
        static = [
            quad for quad in quads if keys[quad.subject, quad.predicate, quad.graph] not in dynamic
        ]
        batches = [
            [Fact(quad, Expiration(START + (step + random.randint(1, 4)) * MINUTE))
             for quad in dynamic if random.random() < 0.6]
            for step in range(10)
        ]  # fmt: skip
        until = START + 12 * MINUTE
        for _ in range(3):
            text = QueryWriter(random, continuous=True).query()
            found = []
            for name in ("tab", "here"):
                folder = tmp_path / f"{seed}-{_}-{name}"
                folder.mkdir()
                with Shelf(folder) as shelf:
                    url, server = shelf.add(static, page_size=3)
                    for step, facts in enumerate(batches):
                        server.clock.schedule(START + step * MINUTE, partial(server.publish, facts))
                    server.clock.advance_to(START)
                    if name == "tab":
                        found.append(_follow(pyodide, url, text, until))
                    else:
                        dates = (format_instant(START), format_instant(until))
                        found.append(json.loads(asyncio.run(follow(url, text, *dates))))
            assert _in_any_order(found[0]) == _in_any_order(found[1]), text
            changes += len(found[0])
            followed += 1
    # More than the first answers.
    assert changes > followed


def test_a_day_leaves_nothing_in_memory(pyodide: InPyodide, tmp_path: Path) -> None:
    with Shelf(tmp_path) as shelf:
        url, server = shelf.add()

        def publish(round_: int) -> None:
            end = Expiration(server.clock.now() + PERIOD)
            quads = [Quad(iri(f"urn:t{n}"), iri("urn:p"), literal(f"{round_}.{n}"))
                     for n in range(20)]  # fmt: skip
            server.publish(Fact(each, end) for each in quads)
            server.clock.schedule(end.end, lambda: publish(round_ + 1))

        publish(0)
        until = START + LOOKS * PERIOD
        looks = _follow(pyodide, url, "SELECT * { ?s <urn:p> ?o }", until, brief=True)
    assert len(looks) == LOOKS + 1
    assert {added for added, _ in looks} == {20}
    blocks = [each for _, each in looks]
    part = len(blocks) // 4
    assert max(blocks[-part:]) <= 1.02 * max(blocks[part : 2 * part])


def test_an_answer_is_kept_up_to_date(pyodide: InPyodide, tmp_path: Path) -> None:
    delay = iri("http://example.org/train#delay")

    def publish(value: int, seconds: float) -> None:
        end = Expiration(SystemClock().now() + timedelta(seconds=seconds))
        server.publish([Fact(Quad(iri("urn:t"), delay, literal(str(value))), end)])

    with Shelf(tmp_path) as shelf:
        url, server = shelf.add(clock=SystemClock())
        publish(1, 4)
        pyodide.send(message(-1, url, f"SELECT ?d {{ ?s {delay} ?d }}", "watch"))
        told = pyodide.until("initial")["data"]
        assert [row["d"]["value"] for row in told["added"]] == ["1"]
        assert told["next_look"]
        shelf.away = True
        assert pyodide.until("error")["data"]["next_look"]
        publish(2, 60)
        shelf.away = False
        told = pyodide.until("update")["data"]
        assert [row["d"]["value"] for row in told["added"]] == ["2"]
        assert [row["d"]["value"] for row in told["removed"]] == ["1"]
        pyodide.send(json.dumps({"stop": -1}))


def test_a_wrong_query_is_refused(pyodide: InPyodide) -> None:
    pyodide.send(message(-2, "http://127.0.0.1:9/d", "SELECT *\n{ ?s ?p }"))
    # What was followed before may have been told something in between.
    while (told := pyodide.next())["id"] != -2:
        pass
    assert (told["event"], told["data"]["line"], told["data"]["column"]) == ("refused", 2, 9)
