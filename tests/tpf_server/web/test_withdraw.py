"""Withdrawing and correcting facts over HTTP."""

from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

from annotations.instants import format_instant
from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.methods.base import Naming
from tests.support.served import BASE, NOON, TOKEN, Served, quad
from tpf_server.store.live.log import LiveSettings

EX = "http://example.org/"
DELAY = quad("t9", "delay", '"5"')
LINE = f'<{EX}t9> <{EX}delay> "5" .\n'
OTHER = LINE.replace('"5"', '"6"')
FRAGMENT = f"trains?predicate={EX}delay"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def span(start: float, end: float) -> str:
    return f"initial={format_instant(at(start))}&final={format_instant(at(end))}"


def expires(seconds: float) -> str:
    return f"expiration={format_instant(at(seconds))}"


def delays(served: Served, query: str = "") -> list[str]:
    return [row.object for row in served.fragment(FRAGMENT + query)]


def when(served: Served, seconds: int, known: float | None = None) -> str:
    """Return the value of each second: a digit, or a point."""
    suffix = "" if known is None else f"&known={format_instant(at(known))}"
    found = [delays(served, f"&at={format_instant(at(n))}{suffix}") for n in range(seconds)]
    return "".join("".join(row).replace('"', "") or "." for row in found)


def test_a_withdrawn_fact_is_gone_at_once_and_its_batch_counts_once(served: Served) -> None:
    served.post(LINE, expires(60))
    page = served.get(FRAGMENT)
    receipt = served.delete(LINE, "batch=a")
    assert receipt.status_code == 201
    assert receipt.json() == {"sequence": 2, "added": 0, "replaced": 1, "repeated": False}
    assert delays(served) == []
    # The copy of a client is not right any more.
    assert served.get(FRAGMENT, **{"If-None-Match": page.headers["ETag"]}).status_code == 200
    served.post(LINE, expires(60))
    repeated = served.delete(LINE, "batch=a")
    assert (repeated.status_code, repeated.json()["repeated"]) == (200, True)
    assert delays(served) == ['"5"']
    assert served.delete(LINE, "batch=b").status_code == 201
    assert delays(served) == []


def test_what_is_not_there_needs_no_withdrawal(served: Served) -> None:
    served.post(LINE, expires(60))
    for body in (OTHER, LINE.replace("delay", "late"), LINE.replace(" .", " <x:g> .")):
        assert served.delete(body).json()["replaced"] == 0
    assert delays(served) == ['"5"']


def test_an_expiration_that_ended_needs_no_withdrawal(served: Served) -> None:
    served.post(LINE, expires(10))
    served.clock.advance_to(at(20))
    assert served.delete(LINE, span(5, 40)).json()["replaced"] == 0


def test_an_interval_ends_now_or_where_it_is_cut(served: Served) -> None:
    served.post(LINE, span(0, 20))
    served.clock.advance_to(at(4))
    served.delete(LINE, span(8, 12))
    assert served.delete(LINE, span(1, 2)).json()["replaced"] == 1
    served.clock.advance_to(at(15))
    assert when(served, 15) == "5.555555....555"
    served.delete(LINE)
    served.clock.advance_to(at(20))
    assert when(served, 20) == "5.555555....555....."


LABELS: list[Label] = [Expiration(at(60)), Interval(at(-5), at(60))]


def test_what_was_annotated_is_withdrawn_as_it_was_published(served: Served) -> None:
    """The method is found out."""
    naming = Naming("http://publisher.test/facts/", BASE + "trains")
    for method, label in product(METHODS, LABELS):
        rows = method.encode(Fact(DELAY, label), naming)
        body = "".join(f"{' '.join(term for term in row if term)} .\n" for row in rows)
        published = served.post(body)
        assert (published.status_code, published.json()["added"]) == (201, 1)
        assert delays(served) == ['"5"']
        # One label, not two: nothing is acknowledged that was not done.
        for query in (span(0, 60), f"{span(0, 60)}&annotation={method.name}"):
            refused = served.delete(body, query)
            assert (refused.status_code, "not both" in refused.text) == (400, True)
        assert delays(served) == ['"5"']
        assert served.delete(body).json()["replaced"] == 1
        assert delays(served) == []


def test_a_patch_corrects_in_one_batch(served: Served) -> None:
    served.post(LINE, span(0, 20))
    patch = f"""H id <urn:uuid:1> .
TX .
PA "e" <{EX}> .
D e:t9 e:delay "5" .
A e:t9 e:delay "6" .
TC .
TX .
A e:t9 e:delay "7" .
TA .
"""
    done = served.post(patch, span(8, 12), "application/rdf-patch")
    assert done.json() == {"sequence": 2, "added": 1, "replaced": 1, "repeated": False}
    # What is left of the old one stands in the way of what would reach into it.
    again = served.post(OTHER, span(4, 9))
    assert again.status_code == 422
    assert "overlaps" in again.json()["detail"]
    served.clock.advance_to(at(20))
    assert when(served, 20) == "55555555666655555555"
    # A fact that expires is corrected without a word about what it was.
    served.post(LINE, expires(60))
    served.post(OTHER, expires(50))
    assert delays(served) == ['"6"']


def test_history_tells_what_was_true_and_what_was_said(tmp_path: Path) -> None:
    keeping = LiveSettings(retention=timedelta(days=1))
    with Served(tmp_path, keeping=keeping) as served:
        served.post(LINE, span(0, 20))
        served.clock.advance_to(at(10))
        served.post(f"D {LINE}A {OTHER}", span(10, 20), "application/rdf-patch")
        served.clock.advance_to(at(15))
        served.delete(OTHER, span(12, 14))
        served.clock.advance_to(at(30))
        assert when(served, 20) == "5" * 10 + "66..666666"
        assert when(served, 20, known=12) == "5" * 10 + "6" * 10
        assert when(served, 20, known=9) == "5" * 20
        assert when(served, 20, known=-1) == "." * 20
        # Alone, it is the answer that was given then; its links lead on in the same state.
        alone = f"&known={format_instant(at(9))}"
        assert delays(served, alone) == ['"5"']
        page = served.get(FRAGMENT + alone)
        assert page.headers["Content-Location"].endswith(".1")
        assert f"<{BASE}{FRAGMENT}>; rel=" in page.headers["Link"]
        assert served.get("trains?known=yesterday").status_code == 400


def test_what_was_said_is_not_kept_for_ever(served: Served) -> None:
    served.post(LINE, span(0, 1000))
    served.clock.advance_to(at(10))
    served.delete(LINE)
    for seconds in (400, 800):
        served.clock.advance_to(at(seconds))
        served.post(LINE.replace("t9", "t8"), expires(seconds + 60))
    gone = served.get(f"{FRAGMENT}&known={format_instant(at(5))}")
    assert gone.status_code == 404
    assert "is not kept" in gone.text
    # Of a fact that expires nobody knows since when it held.
    for past in ("at", "known"):
        assert served.get(f"{FRAGMENT}&{past}={format_instant(at(450))}").status_code == 404


BAD = [
    ("_:x <x:p> <x:o> .", "", "application/n-quads", 422, "blank node"),
    (f"D {LINE}", "", "application/rdf-patch", 415, "POST it"),
    (LINE + "<a\n", "", "application/n-quads", 400, "line 2"),
    (LINE, "initial=2016-01-01T00:00:00Z", "application/n-quads", 400, "label"),
    (LINE, "annotation=nothing", "application/n-quads", 400, "named-graph"),
    (LINE, "x=y", "application/n-quads", 400, "'x'"),
]


def test_a_bad_withdrawal_changes_nothing_and_only_who_may_publish_may_withdraw(
    served: Served,
) -> None:
    served.post(LINE, expires(60))
    for body, query, media_type, status, says in BAD:
        refused = served.delete(body, query, media_type)
        assert refused.status_code == status, refused.text
        assert says in refused.json()["detail"]
    for token in (None, "wrong"):
        assert served.delete(LINE, token=token).status_code == 401
    assert delays(served) == ['"5"']
    assert served.delete(LINE, token=TOKEN).status_code == 201
    assert delays(served) == []


def test_a_blank_node_is_withdrawn_by_the_name_that_pages_show(served: Served) -> None:
    served.post(f'_:x <{EX}delay> "1" .', expires(60))
    (row,) = served.page(FRAGMENT).data
    assert served.delete(f'{row.subject} <{EX}delay> "1" .').json()["replaced"] == 1
    assert delays(served) == []
