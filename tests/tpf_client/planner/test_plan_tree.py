"""The tree of a plan: what is optional, alternative or nested, with every step in its place."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from annotations.labels import Expiration, Fact
from annotations.terms import Quad, iri, literal
from tests.support.live_server import LiveServer
from tpf_client import Client

EX = "http://example.org/"
PREFIX = f"PREFIX : <{EX}>\n"


def drawn(lines: list[dict[str, Any]]) -> list[str]:
    """Each line, indented, with its parts."""
    return [
        "  " * each["depth"]
        + " ".join([each["operator"], *each["about"].split(), *(f"#{n}" for n in each["parts"])])
        for each in lines
    ]


@pytest.fixture
def planned(tmp_path: Path) -> Any:
    def quad(subject: str, predicate: str, value: str) -> Quad:
        return Quad(iri(EX + subject), iri(EX + predicate), literal(value))

    data = [quad(f"t{n}", p, f"{p}{n}") for n in range(4) for p in ("name", "kind", "note")]
    data += [Quad(iri(f"{EX}t{n}"), iri(EX + "next"), iri(f"{EX}t{n + 1}")) for n in range(3)]
    server = LiveServer(tmp_path, data)
    ends = server.clock.now() + timedelta(hours=1)
    server.publish([Fact(quad(f"t{n}", "delay", str(n)), Expiration(ends)) for n in range(3)])

    def plan(query: str) -> dict[str, Any]:
        with (
            Client(server.url, session=server.session(), clock=server.clock) as client,
            client.stream(PREFIX + query, explain=True) as stream,
        ):
            next(iter(stream))
            return stream.plan()

    yield plan
    server.close()


Planned = Callable[[str], dict[str, Any]]


@pytest.mark.parametrize(
    ("query", "lines"),
    [
        ("SELECT * { ?t :name ?n ; :delay ?d }", ["SELECT ?t ?n ?d", "  match #1"]),
        ("SELECT * { ?t :delay ?d OPTIONAL { ?t :note ?o FILTER (?o != ?d) } }",
         ["SELECT ?t ?d ?o", "  match #1", "  OPTIONAL", "    match #2"]),
        ("SELECT * { { ?t :name ?n } UNION { ?t :kind ?n } UNION { ?t :note ?n } }",
         ["SELECT ?t ?n", "  UNION", "    either", "      match #1", "    or", "      match #2",
          "    or", "      match #3"]),
        ("SELECT ?t { ?t :name ?n MINUS { ?t :delay ?d } }",
         ["SELECT ?t", "  match #1", "  MINUS", "    match #2"]),
        ("SELECT ?t { ?t :name ?n FILTER NOT EXISTS { ?t :delay ?d } }",
         ["SELECT ?t", "  FILTER", "    match #1", "    NOT EXISTS", "      match #2"]),
        ("SELECT ?k (COUNT(*) AS ?c) { ?t :kind ?k { SELECT ?t { ?t :delay ?d } LIMIT 2 } } "
         "GROUP BY ?k ORDER BY ?k",
         ["SELECT ?k ?c", "  ORDER BY ?k", "    BIND ?c", "      GROUP BY ?k",
          "        match #2", "        LIMIT 2", "          SELECT ?t", "            match #1"]),
        ("SELECT * { ?a :next+ ?b }", ["SELECT ?a ?b", "  path ?a … ?b #1"]),
    ],
)  # fmt: skip
def test_the_tree_of_a_plan(planned: Planned, query: str, lines: list[str]) -> None:
    assert drawn(planned(query)["tree"]) == lines


def test_every_step_has_its_place_and_its_time(planned: Planned) -> None:
    either = "{ ?t :kind ?k } UNION { ?t :note ?k }"
    told = planned(f"SELECT * {{ ?t :name ?n ; :delay ?d OPTIONAL {{ ?t :note ?o }} {either} }}")
    placed = [part for line in told["tree"] for part in line["parts"]]
    assert sorted(placed) == sorted({step["part"] for step in told["steps"]})
    # A clock that stands still: all came at once.
    assert {step["done"]["seconds"] for step in told["steps"]} == {0.0}


def test_a_tree_that_nobody_reads_is_cut(planned: Planned) -> None:
    chain = "".join(f"OPTIONAL {{ ?t :note ?o{n} }} " for n in range(300))
    tree = planned(f"SELECT * {{ ?t :delay ?d {chain}}}")["tree"]
    assert 500 <= len(tree) <= 501
