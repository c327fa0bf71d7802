"""The programs of others that tests meet, or the reason why they are not here.

Each peer is a mark that skips a test, with what to do about it, where the program is missing:

    @NODE.needed
    def test_comunica() -> None: ...

``tests/peers/install`` brings them all.
"""

import json
import select
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from annotations.terms import DEFAULT_GRAPH, Quad, Term, Triple, iri, literal, triple_term

PROJECT = Path(__file__).parents[2]
HERE = PROJECT / "tests/peers"
NODE_MODULES = PROJECT / ".run/peers/node_modules"
_INSTALL = "run tests/peers/install"
_POSTGRES = Path("/usr/lib/postgresql")
_OLDEST_NODE = 22
_ANSWER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Peer:
    """A program.

    Args:
        name: what people call it.
        path: where it is; ``None`` where it is missing.
        reason: why it is missing, and how to get it.
    """

    name: str
    path: Path | None
    reason: str

    def needed(self, test: Any) -> Any:
        """Decorates a test that meets this peer: marked `peers`, skipped without it."""
        return pytest.mark.peers(self.skip(test))

    @property
    def skip(self) -> pytest.MarkDecorator:
        """The mark that skips where the program is missing."""
        return pytest.mark.skipif(self.path is None, reason=self.reason)

    @property
    def command(self) -> str:
        """The path to run.

        Raises:
            RuntimeError: the program is missing; the test lacks the mark.
        """
        if self.path is None:
            raise RuntimeError(self.reason)
        return str(self.path)


def _debian(name: str, package: str, *elsewhere: Path) -> Peer:
    found = shutil.which(name)
    paths = [Path(found)] if found else [path for path in elsewhere if path.is_file()]
    reason = f"no {name} found: install Debian's package {package}, or as root {_INSTALL}"
    return Peer(name, paths[0] if paths else None, reason)


def _node() -> Peer:
    """Node of the version that Comunica needs: from npm beside it, or on the path."""
    reason = f"no Node >= {_OLDEST_NODE} found: {_INSTALL} (needs npm)"
    for candidate in (str(NODE_MODULES / ".bin/node"), shutil.which("node")):
        if candidate is None or not Path(candidate).is_file():
            continue
        answer = subprocess.run([candidate, "--version"], capture_output=True, text=True)
        major = answer.stdout.strip().lstrip("v").partition(".")[0]
        if answer.returncode == 0 and major.isdigit() and int(major) >= _OLDEST_NODE:
            return Peer("node", Path(candidate), reason)
    return Peer("node", None, reason)


def _package(name: str, file: str) -> Peer:
    """A package of npm, which needs Node."""
    path = NODE_MODULES / file
    if NODE.path is None:
        return Peer(name, None, NODE.reason)
    reason = f"no {name} found in .run/peers: {_INSTALL}"
    return Peer(name, path if path.is_file() else None, reason)


NODE = _node()
COMUNICA = _package("Comunica", "@comunica/query-sparql/package.json")
LDF_SERVER = _package("ldf-server", "@ldf/server/bin/ldf-server")
NGINX = _debian("nginx", "nginx", Path("/usr/sbin/nginx"))
CHROMIUM = _debian("chromium", "chromium")
POSTGRES = _debian(
    "postgres", "postgresql", *sorted(_POSTGRES.glob("*/bin/postgres"), reverse=True)
)


class Comunica:
    """Comunica in one process for many queries, because its start takes seconds.

    A context manager that ends the process.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [NODE.command, str(HERE / "comunica.mjs"), str(NODE_MODULES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Comunica":
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, query: str, *sources: str | dict[str, str], **options: Any) -> dict[str, Any]:
        """Have a query answered.

        Args:
            query: SPARQL.
            sources: URLs, or Comunica's descriptions of sources.
            options: more of Comunica's context.

        Returns:
            ``bindings`` (variable to canonical term), ``quads``, ``boolean`` or ``error``; and
            ``requests``, the URLs that were fetched, ``first`` of which before the first answer.
        """
        question = {"query": query, "sources": sources, "options": options}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        ready = select.select([self._process.stdout], [], [], _ANSWER_SECONDS)[0]
        line = self._process.stdout.readline() if ready else ""
        assert line, f"Comunica does not answer {query}"
        answer: dict[str, Any] = json.loads(line)
        if "bindings" in answer:
            rows = answer["bindings"]
            answer["bindings"] = [{name: _term(row[name]) for name in row} for row in rows]
        if "quads" in answer:
            answer["quads"] = [Quad(*map(_term, quad)) for quad in answer["quads"]]
        return answer


def _term(said: dict[str, Any]) -> Term:
    """The canonical text of a term of RDF/JS."""
    match said["termType"]:
        case "NamedNode":
            return iri(said["value"])
        case "BlankNode":
            return Term(f"_:{said['value']}")
        case "DefaultGraph":
            return DEFAULT_GRAPH
        case "Quad":
            return triple_term(Triple(*map(_term, said["parts"])))
    tag = said["language"] + (f"--{said['direction']}" if said.get("direction") else "")
    return literal(said["value"], tag or None, None if tag else said["datatype"])
