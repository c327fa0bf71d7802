"""Following ``next`` shows one snapshot, although facts change meanwhile."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration
from tests.support.served import BASE, HYDRA, NOON, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.protocols import QuadColumns
from tpf_server.store.static.columnar import ColumnarStore

DELAYS = [quad(f"t{number}", "delay", f'"{number}"') for number in range(10)]


def publish(served: Served, seconds: int) -> None:
    label = Expiration(NOON + timedelta(seconds=seconds))
    served.publish(*[(row, label) for row in DELAYS])


def test_pages_show_one_snapshot_while_facts_change(served: Served) -> None:
    publish(served, 30)
    expected = sorted(served.fragment("trains"))
    found, url = [], "trains"
    while url:
        page = served.page(url)
        found += page.data
        assert page.total == len(expected)
        url = next(iter(page.objects(HYDRA + "next")), "")
        # Between two pages facts are replaced, some end, and time goes by.
        served.clock.advance_to(served.clock.now() + timedelta(seconds=7))
        value = served.clock.now().second
        late = Expiration(served.clock.now() + timedelta(hours=1))
        served.publish(
            (quad("t1", "delay", f'"{value}"'), late), (quad("n", f"p{value}", "n"), late)
        )
    assert sorted(found) == expected
    assert sorted(served.fragment("trains")) != expected


def test_links_of_static_fragments_are_not_pinned(served: Served) -> None:
    publish(served, 30)
    static = served.page("trains?predicate=http://example.org/name&limit=1")
    live = served.page("trains?predicate=http://example.org/delay")
    assert "snapshot" not in static.objects(HYDRA + "next")[0]
    assert "snapshot=1449576000000000.1" in live.objects(HYDRA + "next")[0]


def test_a_pinned_page_is_the_same_later(served: Served) -> None:
    publish(served, 5)
    url = served.page("trains?predicate=http://example.org/delay").objects(HYDRA + "next")[0]
    before = served.get(url.removeprefix(BASE))
    served.clock.advance_to(NOON + timedelta(seconds=60))
    after = served.get(url.removeprefix(BASE))
    assert (after.content, after.headers["ETag"]) == (before.content, before.headers["ETag"])
    assert served.get("trains?predicate=http://example.org/delay").status_code == 200


def test_a_page_past_the_end_after_facts_expired(served: Served) -> None:
    publish(served, 5)
    path = "trains?predicate=http://example.org/delay&page=4"
    assert len(served.page(path).data) == 1
    served.clock.advance_to(NOON + timedelta(seconds=5))
    page = served.page(path)
    assert (page.data, page.total) == ([], 0)
    assert page.objects(HYDRA + "previous") == [
        BASE + "trains?predicate=http://example.org/delay&page=1"
    ]


@pytest.mark.parametrize("snapshot", ["1449576000000000.1", "9.9"])
def test_a_snapshot_in_the_future_is_400(shared: Served, snapshot: str) -> None:
    assert shared.get(f"trains?page=1&snapshot={snapshot}").status_code == 400


def test_a_snapshot_that_is_no_longer_retained_is_410(tmp_path: Path) -> None:
    keeping = LiveSettings(retention=timedelta(seconds=10))
    with Served(tmp_path, STATIC, settings={"page_size": 3}, keeping=keeping) as served:
        publish(served, 5)
        url = served.page("trains").objects(HYDRA + "next")[0].removeprefix(BASE)
        for seconds in (60, 120, 180):
            served.clock.advance_to(NOON + timedelta(seconds=seconds))
            publish(served, seconds + 30)
        assert served.get(url).status_code == 410
        assert served.request("HEAD", url).status_code == 410
        assert served.get("trains").status_code == 200


@pytest.mark.parametrize("pattern", ["?page=1", "?predicate=http://example.org/name"])
def test_a_page_takes_no_object_for_each_of_its_quads(
    served: Served, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    publish(served, 3 * 86_400)

    def facts(suffix: str) -> bytes:
        response = served.get(f"trains.{suffix}{pattern}")
        assert response.status_code == 200
        # What is above them in HTML tells of the last hour.
        return response.content.rpartition(b'id="matches"')[2]

    usual = {suffix: facts(suffix) for suffix in ("trig", "ttl", "nq", "nt", "jsonld", "html")}
    assert all(each.count(b"example.org") > 1 for each in usual.values())
    monkeypatch.delattr(QuadColumns, "quads")
    monkeypatch.delattr(ColumnarStore, "quads")
    served.clock.advance_to(served.clock.now() + timedelta(days=1))
    for suffix, before in usual.items():
        assert len(facts(suffix)) == len(before), suffix
