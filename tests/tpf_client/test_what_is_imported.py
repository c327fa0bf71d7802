"""Imports of a program with one query are few."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.support.threaded import http_server

LIBRARIES = {
    "brotli", "cachetools", "certifi", "charset_normalizer", "cython_runtime", "idna", "pyoxigraph",
    "requests", "uritemplate", "urllib3",
}  # fmt: skip
"""All that a query takes from libraries; the first where it is installed."""
HTTP = {"brotli", "certifi", "charset_normalizer", "idna", "requests", "urllib3"}
"""What comes with the first client that is made."""
SLOW = {"asyncio", "sqlite3", "unittest", "xml.dom", "xml.etree", "xml.sax"}
"""Of the standard library, what takes long to import and is not needed."""
LATER = {
    "annotations.methods", "tpf_client.stream", "tpf_client.streaming.detection",
    "tpf_client.streaming.streamer", "tpf_server",
}  # fmt: skip
PAGE = """
@prefix hydra: <http://www.w3.org/ns/hydra/core#> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
<urn:s> <urn:p> "o" .
<{url}#metadata> {{
    <{url}#metadata> <http://xmlns.com/foaf/0.1/primaryTopic> <{url}> .
    <{url}> hydra:totalItems 1 ; hydra:search [ hydra:template "{url}{{?s,p,o}}" ; hydra:mapping
        [ hydra:variable "s" ; hydra:property rdf:subject ],
        [ hydra:variable "p" ; hydra:property rdf:predicate ],
        [ hydra:variable "o" ; hydra:property rdf:object ] ] .
}}
"""


def _fragment(asked: BaseHTTPRequestHandler) -> None:
    """Answer with the one page that there is."""
    asked.send_response(200)
    asked.send_header("Content-Type", "application/trig")
    asked.end_headers()
    port = asked.connection.getsockname()[1]
    asked.wfile.write(PAGE.format(url=f"http://127.0.0.1:{port}/d").encode())


@pytest.fixture
def url() -> Iterator[str]:
    with http_server(_fragment) as port:
        yield f"http://127.0.0.1:{port}/d"


def imported(program: str) -> set[str]:
    """The modules that a new process loads for a program."""
    told = f"import sys\nbefore = set(sys.modules)\n{program}\nimport json\n"
    told += "print(json.dumps(sorted(set(sys.modules) - before)))"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout.splitlines()[-1]))


def inside(module: str, packages: set[str]) -> bool:
    return any(f"{module}.".startswith(f"{each}.") for each in packages)


def check(modules: set[str], libraries: set[str], later: set[str], most: int) -> None:
    ours = {each for each in modules if inside(each, {"annotations", "tpf_client"})}
    assert not {each for each in modules if inside(each, later)}
    tops = {each.partition(".")[0] for each in modules - ours if not each.startswith("_")}
    assert tops - sys.stdlib_module_names <= libraries
    assert len(ours) <= most


def test_the_client() -> None:
    check(imported("from tpf_client import Client"), LIBRARIES - HTTP, SLOW | LATER, 150)
    check(imported("import tpf_client"), set(), SLOW | LATER, 1)


def test_a_query(url: str) -> None:
    program = f"""
from tpf_client import Client
with Client({url!r}) as client:
    found = client.select("SELECT ?o {{ ?s <urn:p> ?o FILTER(?o != 'x') }} ORDER BY ?o")
    assert [each.row for each in found] == [('"o"',)]
"""
    check(imported(program), LIBRARIES | {"backports", "regex", "re2"}, SLOW | LATER, 160)


MISSING = [
    "google", "pyoxigraph", "rdflib", "re2", "regex", "requests", "rich", "typer", "urllib3",
    "waitress",
]  # fmt: skip
"""What a browser's tab does without."""
IN_A_LOOP = r"""
import asyncio
from datetime import UTC, datetime
from tpf_client import AsyncClient
from tpf_client.fragments.responses import Fields, Response
import tpf_client.tab

URL = "http://server.test/d"
HYDRA = "http://www.w3.org/ns/hydra/core#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
ABOUT = f"<{URL}#metadata>"
LINES = [
    r'<urn:s> <urn:p> "Zug \u00fc" .',
    f"{ABOUT} <http://xmlns.com/foaf/0.1/primaryTopic> <{URL}> {ABOUT} .",
    f'<{URL}> <{HYDRA}totalItems> "1"^^<http://www.w3.org/2001/XMLSchema#integer> {ABOUT} .',
    f"<{URL}> <{HYDRA}search> _:f {ABOUT} .",
    f'_:f <{HYDRA}template> "{URL}{{?s,p,o}}" {ABOUT} .',
]
for name, role in (("s", "subject"), ("p", "predicate"), ("o", "object")):
    LINES += [
        f"_:f <{HYDRA}mapping> _:{name} {ABOUT} .",
        f'_:{name} <{HYDRA}variable> "{name}" {ABOUT} .',
        f"_:{name} <{HYDRA}property> <{RDF}{role}> {ABOUT} .",
    ]
accepted = set()


class Pages:
    async def get(self, url, headers):
        accepted.add(headers["Accept"])
        now = datetime.now(UTC)
        fields = Fields({"content-type": "application/n-quads"})
        return Response(200, fields, "\n".join(LINES).encode(), now, now)

    def close(self):
        pass


async def main():
    async with AsyncClient(URL, http=Pages()) as client:
        text = "SELECT ?o { ?s <urn:p> ?o FILTER REGEX(?o, '^z.g', 'i') }"
        return [row["o"] async for row in client.query(text)]


assert asyncio.run(main()) == ['"Zug ü"']
assert accepted == {"application/n-quads,application/n-triples;q=0.5"}
"""


def test_a_query_in_an_event_loop_needs_two_libraries() -> None:
    """As in a browser's tab: what is not there cannot be imported."""
    program = f"sys.modules.update(dict.fromkeys({MISSING!r}))\n{IN_A_LOOP}"
    tops = {each.partition(".")[0] for each in imported(program) if not each.startswith("_")}
    others = tops - sys.stdlib_module_names - {"annotations", "tpf_client", *MISSING}
    assert others <= {"cachetools", "uritemplate"}


def test_a_command_loads_beside_what_reads_its_arguments_no_more(url: str) -> None:
    later = LATER | {"numpy", "pandas", "pyarrow", "rdflib"}
    for arguments in (["--help"], [url, "SELECT * { ?s ?p ?o }"]):
        program = (
            f"from tpf_client import commands\nassert commands.run('tpf-query', {arguments!r}) == 0"
        )
        modules = imported(program)
        assert not {each for each in modules if inside(each, later)}
