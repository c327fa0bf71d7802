"""The programs of others that tests need, or the reason why they are missing.

Each peer is a mark that skips a test where the program is missing:

    @NODE.needed
    def test_comunica() -> None: ...

``tests/peers/install`` brings them all.
"""

import json
import select
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from annotations.terms import DEFAULT_GRAPH, Quad, Term, Triple, iri, literal, triple_term
from experiments.errors import UnavailableError
from experiments.harness import peers

PROJECT = Path(__file__).parents[2]
HERE = PROJECT / "tests/peers"
_ANSWER_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Peer:
    """A program: its name, its path (``None``: missing) and how to get it."""

    name: str
    path: Path | None
    reason: str

    def needed(self, test: Any) -> Any:
        """Mark a test as `peers`, and skip it without the program."""
        return pytest.mark.peers(self.skip(test))

    @property
    def skip(self) -> pytest.MarkDecorator:
        """The mark that skips where the program is missing."""
        return pytest.mark.skipif(self.path is None, reason=self.reason)

    @property
    def command(self) -> str:
        """Return the path, or raise `RuntimeError`."""
        if self.path is None:
            raise RuntimeError(self.reason)
        return str(self.path)


def _peer(name: str, find: Callable[[], str | Path]) -> Peer:
    try:
        return Peer(name, Path(find()), "")
    except UnavailableError as missing:
        return Peer(name, None, str(missing))


def _package(name: str) -> Path:
    """An npm package, which needs Node."""
    peers.new_node()
    return peers.package(name)


NODE_MODULES = peers.node_modules()
NODE = _peer("node", peers.new_node)
COMUNICA = _peer("Comunica", lambda: _package("@comunica/query-sparql"))
EVENT_SOURCE = _peer("eventsource", lambda: _package("eventsource"))
LDES_CLIENT = _peer("ldes-client", lambda: _package("ldes-client"))
LDF_CLIENT = _peer("ldf-client", lambda: _package("ldf-client"))
N3 = _peer("N3.js", lambda: _package("n3"))
LDF_SERVER = _peer("ldf-server", lambda: _package("@ldf/server"))
NGINX = _peer("nginx", peers.nginx)
CHROMIUM = _peer("chromium", lambda: peers.program("chromium", "chromium"))
_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
POSTGRES = _peer("postgres", lambda: peers.program("postgres", "postgresql", *map(str, _POSTGRES)))


class Comunica:
    """One Comunica process for many queries; a context manager."""

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
        """Answer a query over sources (URLs, or Comunica's descriptions) in a context.

        Returns:
            ``bindings`` (variable to canonical term), ``quads``, ``boolean`` or
                ``error``; and ``requests``,
            the fetched URLs, ``first`` of which before the first answer.
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
    """Return the canonical text of a term of RDF/JS."""
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
