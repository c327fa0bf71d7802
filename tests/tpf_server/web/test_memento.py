"""History by Memento."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import uritemplate

from annotations.instants import LAST, format_instant
from annotations.labels import Expiration, Interval
from tests.support.served import BASE, HYDRA, NOON, TMP, Served, parse, quad
from tpf_server.store.live.log import LiveSettings
from tpf_server.web.responses import http_date

QUERY = "trains?predicate=http://example.org/platform"


def history(served: Served) -> None:
    for hour in range(3):
        start = NOON + timedelta(hours=hour)
        served.clock.advance_to(start)
        label = Interval(start, start + timedelta(hours=1))
        served.publish(*[(quad(f"t{n}", "platform", f'"{hour}"'), label) for n in range(4)])


def test_accept_datetime_shows_the_facts_of_that_instant(served: Served) -> None:
    history(served)
    for hour in range(3):
        instant = NOON + timedelta(hours=hour, minutes=30)
        response = served.get(QUERY, "application/n-quads", Accept_Datetime=http_date(instant))
        rows = parse(response.content, "application/n-quads")
        values = {row.object for row in rows if row.predicate.endswith("/platform>")
                  and row.graph == ""}  # fmt: skip
        if hour < 2:
            assert values == {f'"{hour}"'}
            assert response.headers["Memento-Datetime"] == http_date(instant)
            pinned = response.headers["Content-Location"]
            following = [
                row.object.strip("<>") for row in rows if row.predicate == f"<{HYDRA}next>"
            ]
            assert served.page(pinned).total == 4
            assert {row.object for row in served.page(following[0]).data} == values
        else:
            assert "Memento-Datetime" not in response.headers
        assert "Accept-Datetime" in response.headers["Vary"]
        assert f'<{BASE}{QUERY}>; rel="original timegate"' in response.headers["Link"]


def test_an_answer_does_not_repeat_a_long_url(served: Served) -> None:
    history(served)
    rows = "".join(f"(<{'http://example.org/train/' * 5}{n}>)" for n in range(20))
    for path in (
        f"trains?values={quote(f'(?subject) {{{rows}}}')}",
        f"trains?object={quote(chr(34) + 'x' * 7000 + chr(34))}",
    ):
        answer = served.get(path)
        assert answer.status_code == 200
        assert sum(len(f"{name}: {value}") for name, value in answer.headers.items()) < 1000


def test_the_forms_at_shows_the_facts_of_that_instant(served: Served) -> None:
    history(served)
    form = served.page("trains")
    (control,) = [row.subject for row in form.metadata if row.object == f"<{TMP}at>"]
    assert form.objects(HYDRA + "variable", control) == ["at"]
    (template,) = form.objects(HYDRA + "template")
    url = uritemplate.expand(
        template, predicate="http://example.org/platform", at="2015-12-08T13:30:00.5Z"
    )
    page = served.page(url)
    assert {row.object for row in page.data} == {'"1"'}
    assert page.total == 4
    following = served.page(page.objects(HYDRA + "next")[0])
    assert {row.object for row in following.data} == {'"1"'}
    assert page.objects(TMP + "evaluatedAt") == ["2015-12-08T13:30:00.500000Z"]
    response = served.get(url.removeprefix(BASE))
    assert response.headers["Memento-Datetime"] == "Tue, 08 Dec 2015 13:30:00 GMT"
    original = f"{BASE}trains?predicate=http%3A%2F%2Fexample.org%2Fplatform"
    assert f'<{original}>; rel="original timegate"' in response.headers["Link"]
    # The form offers it to people, too.
    assert (
        'name="at" type="datetime-local" value="2015-12-08T13:30:00.500"'
        in served.get(url.removeprefix(BASE), "text/html").text
    )


def test_instants_before_1970_have_pages_and_tags(tmp_path: Path) -> None:
    keeping = LiveSettings(accept_past=True)
    with Served(tmp_path, settings={"page_size": 3}, keeping=keeping) as served:
        label = Interval(datetime(1969, 7, 20, 20, 17, tzinfo=UTC), NOON)
        served.publish(*[(quad(f"t{n}", "platform", '"moon"'), label) for n in range(4)])
        path = f"{QUERY}&at=1969-07-21T02:56:15Z"
        assert len(served.fragment(path)) == 4
        tag = served.get(path).headers["ETag"]
        assert served.get(path, If_None_Match=f'"x", {tag}').status_code == 304
        assert served.get(path, If_None_Match='"x"').status_code == 200


def test_the_last_instant_of_a_second_belongs_to_it() -> None:
    assert http_date(LAST) == "Fri, 31 Dec 9999 23:59:59 GMT"
    assert http_date(datetime(1969, 12, 31, 23, 59, 58, 999_999, UTC)).endswith("23:59:58 GMT")


def test_at_a_future_instant_shows_what_is_known_of_it(served: Served) -> None:
    history(served)
    start = NOON + timedelta(days=1)
    label = Interval(start, start + timedelta(hours=1))
    served.publish(*[(quad(f"t{n}", "platform", '"9"'), label) for n in range(4)])
    delays = "trains?predicate=http://example.org/delay"
    served.publish((quad("t1", "delay", '"1"'), Expiration(start + timedelta(minutes=45))))
    for minutes, values in ((-1, set()), (30, {'"9"'}), (60, set())):
        at = format_instant(start + timedelta(minutes=minutes))
        page = served.page(f"{QUERY}&at={at}")
        assert {row.object for row in page.data} == values
        assert page.objects(TMP + "evaluatedAt") == [at]
        for following in page.objects(HYDRA + "next"):
            assert {row.object for row in served.page(following).data} == values
        assert served.get(f"{QUERY}&at={at}").headers["Memento-Datetime"] == http_date(
            start + timedelta(minutes=minutes)
        )
        assert len(served.page(f"{delays}&at={at}").data) == (minutes < 45)


def test_at_no_other_instant(served: Served) -> None:
    history(served)
    for instant in ("", format_instant(served.clock.now())):
        assert {row.object for row in served.page(f"{QUERY}&at={instant}").data} == {'"2"'}
    for nonsense in ("yesterday", "2015-12-08"):
        response = served.get(f"{QUERY}&at={nonsense}")
        assert response.status_code == 400
        assert nonsense in response.json()["detail"]
    future = served.get(QUERY, Accept_Datetime="Thu, 01 Jan 2099 00:00:00 GMT")
    assert "Memento-Datetime" not in future.headers
    assert served.get(QUERY, Accept_Datetime="tomorrow").status_code == 400


def test_the_past_of_what_expires_is_not_known(served: Served) -> None:
    """Neither by the form's `at`, nor by Memento, nor for people."""
    history(served)
    now = served.clock.now()
    served.publish((quad("t1", "delay", '"1"'), Expiration(now + timedelta(minutes=1))))
    delays = "trains?predicate=http://example.org/delay"
    before = NOON - timedelta(minutes=1)
    for path in (delays, "trains", "trains/named-graph", "trains?subject=http://example.org/t1"):
        response = served.get(path, Accept_Datetime=http_date(before))
        assert response.status_code == 404, path
        assert "does not tell since when a fact holds" in response.json()["detail"]
        assert "Memento-Datetime" not in response.headers
    url = f"{delays}&at={before.isoformat().replace('+00:00', 'Z')}"
    assert served.get(url).status_code == 404
    page = served.get(url, "text/html")
    assert page.status_code == 404
    assert "The past is not known" in page.text
    assert "2015-12-08T11:59:00Z" in page.text
    # What carries intervals has its history still; and at this instant all is known.
    assert served.get(QUERY, Accept_Datetime=http_date(before)).status_code == 200
    served.clock.advance_to(now + timedelta(seconds=30))
    response = served.get(delays, Accept_Datetime=http_date(now))
    assert response.status_code == 200
    assert response.headers["Memento-Datetime"] == http_date(now)
