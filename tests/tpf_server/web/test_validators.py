"""Equal entity tags mean equal bytes, and valid copies are not sent again."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval, Label
from tests.support.examples import examples
from tests.support.served import NOON, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.web.page_bodies import PageBodies

PATHS = (
    "trains", "trains?page=2", "trains.nq?subject=http://example.org/t1", "trains/named-graph.ttl",
    "trains.html", "trains/rdf-1.2.jsonld", "trains.nt?at=2015-12-08T12:00:03Z",
)  # fmt: skip

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(1, 3_000_000)),
        st.tuples(st.sampled_from(("publish", "foretell", "withdraw")), st.integers(1, 5)),
        st.tuples(st.just("read"), st.sampled_from(PATHS)),
    ),
    min_size=4,
    max_size=25,
)


@examples(8)
@given(steps=_steps)
def test_equal_tags_mean_equal_bytes_and_304_means_still_right(
    steps: list[tuple[str, int | str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch = pytest.MonkeyPatch()
    serial = 0
    bodies: dict[tuple[str, str], bytes] = {}
    kept: dict[str, tuple[str, list[str]]] = {}
    with Served(tmp_path_factory.mktemp("s"), STATIC, settings={"page_size": 3}) as served:
        for what, value in [*steps, *[("read", path) for path in PATHS]]:
            if isinstance(value, str):
                response = served.get(value)
                if response.status_code == 404:
                    # What expires has no history: nobody knows what held then.
                    assert "at=" in value
                    continue
                tag = response.headers["ETag"]
                with monkeypatch.context() as patched:
                    patched.setattr(served.app.extensions["tpf_server"], "live_pages", PageBodies())
                    anew = served.get(value)
                assert _timeless(anew.text) == _timeless(response.text)
                assert anew.headers["Expires"] == response.headers["Expires"]
                assert bodies.setdefault((value, tag), response.content) == response.content
                if value in kept:
                    old_tag, old_data = kept[value]
                    again = served.get(value, If_None_Match=f'"other", W/{old_tag}')
                    if again.status_code == 304:
                        assert again.headers["ETag"] == old_tag
                        assert _timeless(response.text) == old_data
                kept[value] = tag, _timeless(response.text)
                assert served.get(value, If_None_Match=tag).status_code == 304
            elif what == "wait":
                served.clock.advance_to(served.clock.now() + timedelta(microseconds=value))
            else:
                now = served.clock.now()
                end = now + timedelta(seconds=value)
                assert served.live is not None
                if what == "withdraw":
                    gone = [Fact(quad(f"t{value}", "delay", f'"{value}"'))]
                    served.live.publish([], now, withdrawn=gone)
                    continue
                label: Label = Expiration(end)
                if what == "foretell":
                    serial += 1
                    label = Interval(end, end + timedelta(seconds=2))
                subject = f"t{value}" if what == "publish" else f"u{serial}"
                served.live.publish([Fact(quad(subject, "delay", f'"{value}"'), label)], now)


def test_304_has_the_fields_that_rfc_9110_wants_of_it(served: Served) -> None:
    served.publish((quad("t1", "delay", '"1"'), Expiration(NOON + timedelta(seconds=7))))
    served.clock.advance_to(NOON + timedelta(seconds=4))
    pinned = 0
    for path in PATHS:
        whole = served.get(path)
        again = served.get(path, If_None_Match=whole.headers["ETag"])
        assert again.status_code == 304
        pinned += "Content-Location" in whole.headers
        for name in ("Cache-Control", "Content-Location", "Date", "ETag", "Expires", "Vary"):
            assert again.headers.get(name) == whole.headers.get(name), (path, name)
    assert pinned == 1


def _timeless(body: str) -> list[str]:
    """The body without what tells the time of the answer."""
    told = ("evaluatedAt", "snapshot=", "data-now")
    return [line for line in body.splitlines() if not any(word in line for word in told)]


def test_other_settings_make_other_tags(tmp_path: Path) -> None:
    tags = []
    settings: list[dict[str, Any]] = [{}, {"title": "New"}, {"max_page_size": 10}]
    for number, titles in enumerate(settings):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Served(folder, STATIC, live=False, settings=titles) as served:
            tags.append(served.get("trains", "text/html").headers["ETag"])
    assert len(set(tags)) == 3
