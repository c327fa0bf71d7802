"""The board: what is new, what changed, what is gone."""

import io
import itertools
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from annotations.labels import Expiration, Fact
from annotations.terms import Quad, Term, iri, literal
from tests.support.live_server import START, LiveServer
from tpf_client.app.printing import LiveTable, cell, pairs
from tpf_client.sparql.parser import declared_prefixes

EX = "http://example.org/"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with LiveServer(tmp_path) as server:
        yield server


def _publish(server: LiveServer, values: dict[str, str], seconds: int) -> None:
    end = Expiration(server.clock.now() + timedelta(seconds=seconds))
    server.publish(
        [Fact(Quad(iri(EX + s), iri(EX + "d"), literal(v)), end) for s, v in values.items()]
    )


def test_new_changed_and_gone_rows_look_different(server: LiveServer) -> None:
    _publish(server, {"a": "1", "b": "2"}, 5)
    server.clock.schedule(
        START + timedelta(seconds=5), lambda: _publish(server, {"a": "9 [x]", "c": "3"}, 5)
    )
    console = Console(width=100, force_terminal=True, color_system="standard", record=True)
    with server.client() as client:
        updates = iter(client.stream(f"SELECT ?s ?d {{ ?s <{EX}d> ?d }}"))
        board = LiveTable([server.url])
        console.print(board.render(next(updates), client.statistics))
        assert "2 rows at 10:20:00 UTC" in console.export_text(clear=True)
        update = next(updates)
        console.print(board.render(update, client.statistics))
        text = console.export_text(styles=True)
    assert "\x1b[1;33m9 [x]" in text
    assert f"\x1b[32m{EX}c" in text
    assert f"\x1b[2;9m{EX}b" in text
    assert "valid until 10:20:10" in text


def test_iris_are_abbreviated_by_the_prefixes_of_the_query() -> None:
    prefixes = declared_prefixes(
        "PREFIX ex: <http://ex.org/> PREFIX t: <http://ex.org/t#> PREFIX : <urn:> ASK {}"
    )
    shown = {
        "<http://ex.org/a>": "ex:a", "<http://ex.org/t#b-1.x>": "t:b-1.x", "<urn:c>": ":c",
        "<http://ex.org/a/b>": "http://ex.org/a/b", "<http://ex.org/>": "http://ex.org/",
        "<http://ex.org/a.>": "http://ex.org/a.", "<mailto:x>": "mailto:x",
        '"http://ex.org/a"': "http://ex.org/a", "_:b": "_:b",
    }  # fmt: skip
    assert {term: cell(term, prefixes) for term in shown} == shown


def test_a_board_has_the_prefixes_of_the_query(server: LiveServer) -> None:
    _publish(server, {"a": "1"}, 5)
    console = Console(width=100, record=True, file=io.StringIO())
    with server.client() as client:
        update = next(iter(client.stream(f"SELECT ?s {{ ?s <{EX}d> ?d }}")))
        console.print(LiveTable([], {"ex": EX}).render(update, client.statistics))
    assert "│ ex:a │" in console.export_text()


def test_pairs_are_rows_that_agree_in_half_of_their_cells() -> None:
    a, b, c = Term("<a>"), Term("<b>"), Term("<c>")
    assert pairs([(a, b), (c, c)], [(a, c), (b, b)]) == {(a, b): (a, c)}
    # Whichever comes first: a row is rather the one with its first cell.
    assert pairs([(a, b)], [(c, b), (a, c)]) == {(a, b): (a, c)}
    assert pairs([(a, b), (b, c)], [(b, b)]) == {(b, c): (b, b)}
    # What moved is still the same thing.
    one, two = Term('"1"'), Term('"2"')
    assert pairs([(a, one, one)], [(a, two, two)]) == {(a, one, one): (a, two, two)}
    assert pairs([(one, a, a)], [(one, b, b)]) == {}


def test_what_never_changes_is_said(tmp_path: Path) -> None:
    server = LiveServer(tmp_path, [Quad(iri(EX + "a"), iri(EX + "d"), literal("1"))], live=False)
    console = Console(width=100, record=True, file=io.StringIO())
    with server.client() as client:
        stream = client.stream(f"SELECT ?s ?d {{ ?s <{EX}d> ?d }}")
        (update,) = stream
        assert update.wakes_at is None
        assert not update.dynamic
        console.print(LiveTable().render(update, client.statistics))
        explained = stream.explain()
    server.close()
    assert "nothing in this dataset is labelled" in console.export_text()
    assert "nothing is labelled: the answer cannot change" in explained
    assert "static: none of 1 facts is labelled" in explained


def test_what_changes_and_why_is_explained(server: LiveServer) -> None:
    _publish(server, {"a": "1", "b": "2"}, 5)
    with server.client() as client:
        stream = client.stream(
            f"SELECT * {{ ?s <{EX}d> ?d OPTIONAL {{ ?s <{EX}e> ?e }} }}", every=2, explain=True
        )
        update = next(iter(stream))
        assert update.wakes_at == START + timedelta(seconds=2)
        assert update.valid_until == START + timedelta(seconds=5)
        first, _, changes, optional, nothing = stream.explain().splitlines()
        told = stream.plan()
    assert first == f"{server.url}: labels travel with the pages"
    assert changes == (
        "   dynamic: 2 of 2 facts are labelled; the first ends at 2015-12-08T10:20:05Z"
    )
    assert f"<{EX}e>" in optional
    assert nothing == "   nothing matches now, or nothing was asked for"
    assert told["datasets"] == [{"url": server.url, "labels": "labels travel with the pages"}]
    assert told["seconds"] >= 0
    scan, lookup = told["steps"]
    assert scan["done"].pop("seconds") >= 0
    assert scan == {
        "pattern": f"?s <{EX}d> ?d",
        "how": "scan",
        "part": 1,
        "fed": False,
        "expected": {"matches": 2, "labelled": 2, "pages": 1},
        "done": {"keys": None, "requests": None, "pages": 1, "rows": 2},
        "change": "dynamic",
        "why": "2 of 2 facts are labelled; the first ends at 2015-12-08T10:20:05Z",
    }
    assert (lookup["part"], lookup["fed"], lookup["change"]) == (2, True, None)
    assert lookup["expected"]["matches"] == lookup["done"]["rows"] == 0


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 12), (40, 10), (30, 6), (200, 60)])
def test_the_status_stays_in_sight_whatever_wraps(
    server: LiveServer, width: int, height: int
) -> None:
    long = "a value\nof several lines " * 20
    _publish(server, {f"s{n}": f"{n} {long * (n % 2)}" for n in range(50)}, 5)
    end = START + timedelta(seconds=5)
    server.clock.schedule(end, lambda: _publish(server, {"s1": f"new {long}", "s3": "3"}, 5))
    with server.client() as client:
        board = LiveTable([server.url])
        for update in itertools.islice(client.stream(f"SELECT ?s ?d {{ ?s <{EX}d> ?d }}"), 2):
            console = Console(width=width, height=height, record=True, file=io.StringIO())
            console.print(board.render(update, client.statistics))
            lines = console.export_text().splitlines()
            assert len(lines) < height
            said = " ".join(" ".join(lines).split())
            assert "rows at 10:20:0" in said
            assert f"valid until {(update.valid_until or START):%H:%M:%S}" in said
            assert "next look 10:20:" in said
            assert server.url[: width - 10] in said
            rows = [line for line in lines if line.startswith("│")]
            assert len(rows) >= min(height - 10, len(update.results))
            hidden = len(update.results) - len(rows)
            assert hidden <= 0 or not rows or f"{hidden} more row" in said
