"""Publishing: rights, forms, and refused bodies."""

import gzip
from datetime import timedelta

import pytest

from annotations.instants import format_instant
from annotations.labels import Fact, at_instant
from annotations.methods import METHODS
from annotations.methods.base import Naming
from annotations.terms import Quad
from tests.support.facts import points
from tests.support.served import BASE, NOON, TMP, TOKEN, Served, quad

UNTIL = NOON + timedelta(minutes=1)
IN_A_MINUTE = f"expiration={format_instant(UNTIL)}"
DELAY = quad("t9", "delay", '"5"')
LINE = '<http://example.org/t9> <http://example.org/delay> "5" .\n'


def delays(served: Served) -> list[Quad]:
    return served.fragment("trains?predicate=http://example.org/delay")


def test_plain_facts_with_the_label_in_the_query(served: Served) -> None:
    response = served.post(LINE, IN_A_MINUTE)
    assert response.status_code == 201
    assert response.json() == {"sequence": 1, "added": 1, "replaced": 0, "repeated": False}
    assert delays(served) == [DELAY]
    served.clock.advance_to(UNTIL)
    assert delays(served) == []


def test_facts_that_hold_at_an_instant_only(served: Served) -> None:
    naming = Naming("http://publisher.test/facts/", BASE + "trains")
    for method in (None, *METHODS):
        at = served.clock.now() + timedelta(seconds=10)
        if method is None:
            response = served.post(LINE, f"instant={format_instant(at)}")
        else:
            rows = points(list(method.encode(Fact(DELAY, at_instant(at)), naming)))
            body = "".join(f"{' '.join(term for term in row if term)} .\n" for row in rows)
            assert "#instant>" in body
            response = served.post(body)
        assert response.status_code == 201, response.text
        assert delays(served) == []
        served.clock.advance_to(at)
        page = served.page("trains?predicate=http://example.org/delay")
        assert page.data == [DELAY]
        assert page.objects(TMP + "instant") == [format_instant(at)]
        assert page.objects(TMP + "nextChange") == []
        after = at + timedelta(microseconds=1)
        assert page.objects(TMP + "earliestExpiration") == [format_instant(after)]
        served.clock.advance_to(after)
        assert delays(served) == []


FORMATS = [
    ("text/turtle", "@prefix : <http://example.org/> . :t9 :delay '5' ."),
    ("application/trig", "@prefix : <http://example.org/> . { :t9 :delay '5' }"),
    ("application/ld+json", '{"@id": "http://example.org/t9", "http://example.org/delay": "5"}'),
    ("application/n-triples; charset=utf-8", LINE),
]


def test_any_rdf_format(served: Served) -> None:
    for number, (media_type, body) in enumerate(FORMATS):
        published = served.post(body.replace("5", f"{number}"), IN_A_MINUTE, media_type)
        assert published.status_code == 201
        assert delays(served) == [quad("t9", "delay", f'"{number}"')]


def test_blank_nodes_of_two_bodies_are_different(served: Served) -> None:
    for _ in range(2):
        assert served.post('_:x <http://example.org/delay> "1" .', IN_A_MINUTE).status_code == 201
    assert len({row.subject for row in delays(served)}) == 2


def test_a_blank_node_that_was_shown_can_be_published_about(served: Served) -> None:
    (row,) = served.page(
        "trains?predicate=http://example.org/knows&object=http://example.org/t1"
    ).data
    body = f'{row.subject} <http://example.org/delay> "1" .'
    assert served.post(body, IN_A_MINUTE).status_code == 201
    assert served.page("trains?subject=" + row.subject[1:-1]).total == 2


def test_a_batch_with_an_identifier_counts_once(served: Served) -> None:
    first = served.post(LINE, IN_A_MINUTE + "&batch=42")
    second = served.post(LINE, IN_A_MINUTE + "&batch=42")
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json()["repeated"] is True
    assert second.json()["sequence"] == first.json()["sequence"] == 1


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x"])
def test_a_missing_or_wrong_token_is_401(shared: Served, token: str | None) -> None:
    response = shared.post(LINE, IN_A_MINUTE, token=token)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert delays(shared) == []


def test_off_without_a_token(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Served(tmp_path_factory.mktemp("x"), settings={"publish_token": ""}) as served:
        response = served.post(LINE, IN_A_MINUTE)
        assert (response.status_code, response.json()["title"]) == (403, "Forbidden")


def test_a_static_dataset_takes_no_facts(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Served(tmp_path_factory.mktemp("x"), live=False) as served:
        assert served.post(LINE, IN_A_MINUTE).status_code == 403


def test_a_dataset_may_have_its_own_token(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Served(tmp_path_factory.mktemp("x"), dataset={"token": "own"}) as served:
        assert served.post(LINE, IN_A_MINUTE).status_code == 401
        assert served.post(LINE, IN_A_MINUTE, token="own").status_code == 201


def test_an_unknown_dataset_is_404(shared: Served) -> None:
    assert shared.post(LINE, IN_A_MINUTE, path="nothing/facts").status_code == 404


@pytest.mark.parametrize(
    ("body", "query", "media_type", "status", "says"),
    [
        (LINE + LINE + "<a\n", IN_A_MINUTE, "application/n-quads", 400, "line 3"),
        (b"\xff\xfe", IN_A_MINUTE, "application/n-quads", 400, "line 1"),
        ("<a> <b> <c> .", IN_A_MINUTE, "text/turtle", 400, "line 1"),
        ('{"@id": "x", "http://e/p": 1}', IN_A_MINUTE, "application/ld+json", 400, "'x'"),
        (LINE, IN_A_MINUTE, "image/png", 415, "image/png"),
        (LINE, IN_A_MINUTE, "", 415, "no Content-Type"),
        (LINE.encode("latin-1"), IN_A_MINUTE, "text/turtle; charset=latin-1", 415, "latin-1"),
        (LINE, "", "application/n-quads", 422, "no label"),
        (LINE, "expiration=yesterday", "application/n-quads", 400, "yesterday"),
        (LINE, "expiration=2016-01-01T00:00:00", "application/n-quads", 400, "time zone"),
        (LINE, "initial=2016-01-01T00:00:00Z", "application/n-quads", 400, "label"),
        (
            LINE,
            "initial=2016-01-02T00:00:00Z&final=2016-01-01T00:00:00Z",
            "application/n-quads",
            400,
            "end after",
        ),
        (LINE, "expiration=2015-12-08T11:59:59Z", "application/n-quads", 422, "t9"),
        (LINE, IN_A_MINUTE + "&annotation=named-graph", "application/n-quads", 400, "both"),
        (LINE, "annotation=nothing", "application/n-quads", 400, "named-graph"),
        (LINE, "annotation=named-graph", "application/n-quads", 422, "t9"),
        (LINE, IN_A_MINUTE + "&x=y", "application/n-quads", 400, "'x'"),
        (LINE, IN_A_MINUTE + "&" + IN_A_MINUTE, "application/n-quads", 400, "twice"),
        (LINE, IN_A_MINUTE + "&batch=", "application/n-quads", 400, "batch"),
        (LINE + LINE.replace('"5"', '"6"'), IN_A_MINUTE, "application/n-quads", 422, "overlap"),
    ],
)
def test_a_bad_body_is_refused_whole(
    shared: Served, body: str | bytes, query: str, media_type: str, status: int, says: str
) -> None:
    response = shared.post(body, query, media_type)
    assert response.status_code == status, response.text
    assert says in response.json()["detail"]
    assert delays(shared) == []
    assert shared.live is not None
    assert shared.live.snapshot(NOON).sequence == 0


def test_a_body_that_is_too_long_or_of_no_length_is_refused_unread(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Served(tmp_path_factory.mktemp("x"), settings={"max_body": 1000}) as served:
        sent = 0

        def endless():
            nonlocal sent
            while sent < 100_000_000:
                sent += 500
                yield b" " * 500

        chunked = served.request(
            "POST",
            f"trains/facts?{IN_A_MINUTE}",
            data=endless(),
            headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/n-quads"},
        )
        assert chunked.status_code == 411
        assert sent < 50_000_000  # what buffers on the way hold
        assert served.post(b" " * 1001, IN_A_MINUTE).status_code == 413
        assert served.post(LINE, IN_A_MINUTE).status_code == 201


def test_a_compressed_body_is_refused(shared: Served) -> None:
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/n-quads",
        "Content-Encoding": "gzip",
    }
    body = gzip.compress(LINE.encode())
    response = shared.request("POST", f"trains/facts?{IN_A_MINUTE}", data=body, headers=headers)
    assert response.status_code == 415
    assert "gzip" in response.json()["detail"]
    assert delays(shared) == []


@pytest.mark.parametrize(
    "body",
    [
        '<http://example.org/t1> <http://example.org/temporal#expiration> "soon" .',
        f"<{BASE}trains/facts/property/{'0' * 32}> "
        "<http://example.org/singletonproperties#singletonPropertyOf> <http://example.org/p> .",
    ],
)
def test_plain_facts_that_would_read_as_annotations_are_refused(shared: Served, body: str) -> None:
    good = '<http://example.org/t1> <http://example.org/delay> "1" .'
    response = shared.post(f"{good}\n{body}\n", IN_A_MINUTE)
    assert response.status_code == 422
    assert "annotation" in response.json()["detail"]
    assert shared.page("trains?predicate=http://example.org/delay").total == 0


EMPTY = [
    ("", "text/turtle"),
    ("", "application/n-quads"),
    ("# nothing\n", "application/n-triples"),
    ("[]", "application/ld+json"),
    ("@prefix : <http://example.org/> .", "application/trig"),
    ("", "application/rdf-patch"),
]


def test_a_body_without_a_fact_is_refused(served: Served) -> None:
    before = served.post(LINE, IN_A_MINUTE).json()["sequence"]
    for body, media_type in EMPTY:
        for query in (IN_A_MINUTE, ""):
            answer = served.post(body, query, media_type)
            assert (answer.status_code, "no fact in the body" in answer.text) == (400, True)
        if "patch" not in media_type:
            answer = served.delete(body, "", media_type)
            assert (answer.status_code, "nothing would be withdrawn" in answer.text) == (400, True)
    # Nothing has come between.
    assert served.post(LINE, IN_A_MINUTE).json()["sequence"] == before + 1


def test_a_patch_may_say_that_nothing_has_changed(served: Served) -> None:
    assert served.post("TX .\nTC .\n", "", "application/rdf-patch").status_code == 201
