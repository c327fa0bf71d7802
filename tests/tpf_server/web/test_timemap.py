"""TimeMaps list every change of a fragment."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote

import pytest

from annotations.instants import format_instant, parse_instant
from annotations.labels import Expiration, Interval
from tests.faults.shots import Shot, fire_raw
from tests.support.served import BASE, NOON, Served, parse, quad
from tests.tpf_server.web.test_memento import QUERY, history

HOUR = timedelta(hours=1)
MAP = QUERY.replace("trains?", "trains/timemap?")
LINK = re.compile(r'<([^>]*)>((?:; [a-z]+="[^"]*")*)(?:,\n|\n)')


def links(served: Served, path: str) -> list[tuple[str, dict[str, str]]]:
    """The targets of a map, with their attributes."""
    response = served.get(path)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/link-format"
    found = LINK.findall(response.text)
    assert sum(len(a) + len(b) for a, b in found) + 4 * len(found) - 1 == len(response.text)
    return [(url, dict(re.findall(r'([a-z]+)="([^"]*)"', rest))) for url, rest in found]


def mementos(found: list[tuple[str, dict[str, str]]]) -> list[datetime]:
    instants = []
    for url, about in found:
        if "memento" in about["rel"].split():
            instant = parse_instant(url.rpartition("at=")[2])
            assert parsedate_to_datetime(about["datetime"]) == instant.replace(microsecond=0)
            instants.append(instant)
    return instants


def each_map(served: Served, path: str) -> Iterator[list[datetime]]:
    """The mementos of a map, and of all that it leads on to."""
    following = [path]
    while following:
        found = links(served, following[0])
        yield mementos(found)
        following = [url.removeprefix(BASE) for url, about in found if about["rel"] == "timemap"]


def test_a_map_lists_every_change(served: Served) -> None:
    history(served)
    for path, joint in ((MAP, "&"), ("trains/named-graph/timemap", "?")):
        found = links(served, path)
        assert mementos(found) == [NOON, NOON + HOUR, NOON + 2 * HOUR]
        assert [about["rel"] for _, about in found] == [
            "original timegate", "self", "first memento", "memento", "last memento"
        ]  # fmt: skip
        pages = []
        for url, about in found[2:]:
            answer = served.get(f"{url.removeprefix(BASE)}&limit=100", "application/n-quads")
            if "last" not in about["rel"]:
                assert answer.headers["Memento-Datetime"] == about["datetime"]
            rows = parse(answer.content, "application/n-quads")
            pages.append({row.object for row in rows if row.predicate.endswith("/platform>")})
        assert pages[0] != pages[1] != pages[2]
        # From an instant on: the state at that instant comes first.
        later = NOON + HOUR / 2
        found = links(served, f"{path}{joint}at={format_instant(later)}")
        assert mementos(found) == [later, NOON + HOUR, NOON + 2 * HOUR]


def test_pages_lead_to_their_map(served: Served) -> None:
    history(served)
    for path in (
        QUERY,
        QUERY.replace("trains?", "trains.nt?"),
        f"{QUERY}&at={NOON:%Y-%m-%dT12:00:00Z}",
    ):
        assert f'<{BASE}{MAP}>; rel="timemap"' in served.get(path).headers["Link"]
    (own,) = [url for url, about in links(served, MAP) if about["rel"] == "self"]
    assert own == BASE + MAP


def test_a_url_that_is_not_escaped_means_what_it_means_for_a_page(served: Served) -> None:
    served.publish((quad("t1", "platform", '"Gleis é"'), Interval(NOON, NOON + HOUR)))
    query = 'object="Gleis+é"'
    page, listed = (
        fire_raw(served.app, Shot("GET", path, query.encode()))
        for path in (b"/trains.nt", b"/trains/timemap")
    )
    assert '"Gleis é"' in page.body.decode()
    assert listed.body.count(b"memento") == 1
    for path in (b"/trains", b"/trains/timemap"):
        assert fire_raw(served.app, Shot("GET", path, b"object=\xff")).status[:3] == "400"


def test_many_changes_take_several_maps(served: Served) -> None:
    second = timedelta(seconds=1)
    starts = [NOON + 2 * n * second for n in range(250)]
    for start in starts:
        served.publish((quad("t1", "platform", '"1"'), Interval(start, start + second)))
    served.clock.advance_to(starts[-1] + HOUR)
    maps = list(each_map(served, MAP))
    assert len(maps) == 3
    seen = [instant for each in maps for instant in each]
    assert seen == sorted(each for start in starts for each in (start, start + second))


def test_what_expires_tells_its_history_from_its_last_change_on(served: Served) -> None:
    served.publish((quad("t1", "platform", '"1"'), Expiration(NOON + HOUR)))
    served.clock.advance_to(NOON + 2 * HOUR)
    for path in (MAP, f"{MAP}&at={format_instant(NOON)}"):
        assert mementos(links(served, path)) == [NOON, NOON + HOUR]
    answer = served.get(f"{MAP}&at={format_instant(NOON - HOUR)}")
    assert (answer.status_code, "ask for" in answer.json()["detail"]) == (404, True)


def test_a_map_of_many_facts_is_shorter(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a map is bounded; all maps together are complete."""
    monkeypatch.setattr("tpf_server.web.memento._MOST_VALID", 100)
    second = timedelta(seconds=1)
    for size in (10, 20, 40):
        name = f"size{size}"
        ends = [NOON + (1 + n) * second for n in range(size)]
        facts = [
            (quad(f"{name}-{n}", name, f'"{n}"'), Interval(NOON, end)) for n, end in enumerate(ends)
        ]
        served.publish(*facts)
    served.clock.advance_to(NOON + HOUR)
    for size in (10, 20, 40):
        predicate = quad("s", f"size{size}", '"x"').predicate[1:-1]
        seen: list[datetime] = []
        for instants in each_map(served, f"trains/timemap?predicate={quote(predicate, safe='')}"):
            # Those that hold from each of them on.
            held = [size - (instant - NOON) // second for instant in instants]
            assert sum(held[:-1]) <= 100 + size
            seen += instants
        assert seen == [NOON + n * second for n in range(size + 1)]


def test_a_map_of_many_patterns_is_shorter(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpf_server.web.memento._MOST_VALID", 100)
    second = timedelta(seconds=1)
    changes = [NOON + n * second for n in range(11)]
    for start in changes[:-1]:
        served.publish((quad("t1", "platform", '"1"'), Interval(start, start + second)))
    served.clock.advance_to(NOON + HOUR)
    rows = "".join(f"(<http://example.org/t{n}>)" for n in range(20))
    maps = list(each_map(served, f"trains/timemap?values={quote(f'(?subject) {{{rows}}}')}"))
    assert [each for instants in maps for each in instants] == changes
    assert max(map(len, maps)) <= 6


def test_expirations_that_came_later_are_on_the_map(served: Served) -> None:
    """Compare with pages of every second."""
    second = timedelta(seconds=1)
    for start, name, length in [(0, "1", 4), (2, "2", 9), (5, "3", 3), (9, "4", 2), (12, "5", 9)]:
        served.clock.advance_to(NOON + start * second)
        fact = quad("t1", "platform", f'"{name}"')
        served.publish((fact, Expiration(NOON + (start + length) * second)))
    served.clock.advance_to(NOON + 30 * second)
    pages = [
        served.get(f"{QUERY}&at={format_instant(NOON + n * second)}", "application/n-quads")
        for n in range(30)
    ]
    said = [
        {row.object for row in parse(page.content, "application/n-quads") if "platform" in row[1]}
        for page in pages
    ]
    changes = [NOON + n * second for n in range(1, 30) if said[n] != said[n - 1]]
    assert len(changes) > 5
    for path in (MAP, f"{MAP}&at={format_instant(NOON)}"):
        assert mementos(links(served, path)) == [NOON, *changes]


def test_wrong_use(served: Served, tmp_path: Path) -> None:
    assert served.get("nothing/timemap").status_code == 404
    assert served.get("trains/timemap?subject=_:x").status_code == 400
    assert served.get("trains/timemap?at=x").status_code == 400
    assert served.request("POST", "trains/timemap").headers["Allow"] == "GET, HEAD, OPTIONS"
    (tmp_path / "still").mkdir()
    with Served(tmp_path / "still", live=False) as static:
        answer = static.get("trains/timemap")
        assert answer.status_code == 404
        assert "has no history" in answer.json()["detail"]
