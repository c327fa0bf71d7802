"""HTML: working links, no injection, no third parties."""

import html
import re
from collections import Counter
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from annotations.labels import Expiration, Fact, Interval
from annotations.terms import Quad, Term, literal
from tests.support.served import BASE, HYDRA, NOON, TMP, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.store.protocols import MOST_FREQUENT

EX = "http://example.org/"
EVIL = [
    Quad(
        Term("<javascript:alert(1)>"),
        Term("<http://example.org/p'onclick=alert(1)>"),
        Term('"<script>alert(1)</script>\\"onmouseover=alert(1) \'"'),
    ),
    Quad(Term("<http://example.org/a&b>"), Term("<data:text/html,x>"), Term('"a"@en')),
]


class Elements(HTMLParser):
    """All elements with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def links(self) -> list[str]:
        return [attributes["href"] for tag, attributes in self.found if tag == "a"]


def test_terms_cannot_inject_script_or_links(tmp_path: Path) -> None:
    with Served(tmp_path, EVIL) as served:
        for path in (
            "trains",
            "trains?subject=",
            "trains?object=%22%3Cscript%3Ealert(1)%3C/script%3E%22",
            "%3Cb%3E",
        ):
            response = served.get(path, "text/html")
            elements = Elements(response.text)
            assert [tag for tag, _ in elements.found].count("script") == 1
            assert "<script>alert" not in response.text
            for tag, attributes in elements.found:
                assert not any(name.startswith("on") for name in attributes), (tag, attributes)
            links = [link for link in elements.links() if link != "#subject"]
            assert all(link.startswith(("http://", "https://")) for link in links)
            assert "script-src 'sha256-" in response.headers["Content-Security-Policy"]


def test_texts_tell_their_language_and_direction(tmp_path: Path) -> None:
    texts = [Term(f'"{text}') for text in ('مرحبا"@ar--rtl', 'ciao"@it', 'plain"', '"', '  "')]
    with Served(tmp_path, [quad("a", "says", text) for text in texts]) as served:
        page = served.get("trains?subject=", "text/html").text
    # What has nothing to see can be told apart.
    assert (">(empty)</a>" in page, ">&#34;  &#34;</a>" in page) == (True, True)
    elements = Elements(page)
    links = [a for tag, a in elements.found if tag == "a" and "?object=%22" in a.get("href", "")]
    told = {(each.get("lang"), each.get("dir")) for each in links}
    assert told == {("ar", "rtl"), ("it", None), (None, None)}


def test_every_link_to_this_server_works(served: Served) -> None:
    served.publish((quad("t1", "delay", '"5"'), Expiration(NOON + timedelta(seconds=8))))
    paths = {""}
    for path in ("", "trains", "trains?page=2", f"trains?subject={EX}t1",
                 f"trains/named-graph?predicate={EX}delay"):  # fmt: skip
        links = Elements(served.get(path, "text/html").text).links()
        paths |= {link.removeprefix(BASE) for link in links if link.startswith(BASE)}
    assert len(paths) > 20
    for path in paths:
        # The page of a dataset is that of all.
        status = 303 if path.startswith("trains/query/") else 200
        assert served.get(path, "text/html, */*;q=0.1").status_code == status, path


def test_the_form_is_labelled_and_filled(shared: Served) -> None:
    elements = Elements(shared.get("trains?subject=http://example.org/t1", "text/html").text).found
    labels = {attributes["for"] for tag, attributes in elements if tag == "label"}
    inputs = {a["name"]: a for tag, a in elements if tag == "input"}
    assert list(inputs) == ["subject", "predicate", "object", "graph", "at", "known"]
    assert set(inputs) == labels
    assert inputs["subject"]["value"] == "http://example.org/t1"
    text = shared.get("trains?known=2015-12-08T12:00:00Z", "text/html").text
    assert 'name="known" type="datetime-local" value="2015-12-08T12:00:00"' in text
    assert f"{TMP}known" in shared.page("trains").objects(f"{HYDRA}property")


def test_counts_pages_and_time_badges(served: Served) -> None:
    served.publish((quad("t1", "delay", '"5"'), Expiration(NOON + timedelta(seconds=8))))
    text = served.get("trains?page=2", "text/html").text
    assert "items 4–6 of 9, 1 of them live" in text
    assert re.findall(r'rel="(\w+)">', text)[:4] == ["first", "previous", "next", "last"]
    delay = served.get("trains?predicate=http://example.org/delay", "text/html").text
    assert "valid until 12:00:08 UTC<span>, in 8 s</span>" in delay
    assert "as of" not in delay
    pinned = "trains?page=1&snapshot=1449576000000000.1"
    assert "as of 2015-12-08T12:00:00Z" in served.get(pinned, "text/html").text
    # A status region is read aloud, and must not change every second.
    text = served.get("trains?subject=", "text/html").text
    (region,) = re.findall(r'role="status">(.*?)</span>', text, re.DOTALL)
    assert "items 1–3 of 9" in region
    assert "<time" not in region
    (renewed,) = re.findall(r'data-renewed="(\d+)"', served.get("trains", "text/html").text)
    assert int(renewed) == (NOON + timedelta(seconds=8)).timestamp() * 1000


def test_terms_are_abbreviated(tmp_path: Path) -> None:
    rows = [
        quad("a", "b", '"1"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        quad("a", "b", "_:b"),
        quad("a", "b", "<http://example.net/a>"),
    ]
    with Served(tmp_path, rows, settings={"prefixes": {"ex": "http://example.org/"}}) as served:
        text = served.get("trains?subject=", "text/html").text
        assert text.count('title="http://example.org/a">ex:a</a>') == 3
        assert 'title="xsd:integer" class="value">1</a>' in text
        assert re.search(rf'title="{BASE}(.well-known/genid/trains/\S+)">/\1</a>', text)
        assert 'title="http://example.net/a">http://example.net/a</a>' in text


def test_a_dataset_has_prefixes_of_its_own(tmp_path: Path) -> None:
    own = {"ex": "http://example.org/", "t": "http://example.org/train#"}
    server = {"prefixes": {"ex": "http://elsewhere.example/", "o": "http://other.example/"}}
    with Served(
        tmp_path, [quad("a", "b", "<http://other.example/c>")], settings=server,
        dataset={"prefixes": own},
    ) as served:  # fmt: skip
        text = served.get("trains?subject=", "text/html").text
        assert 'title="http://example.org/a">ex:a</a>' in text
        assert 'title="http://other.example/c">o:c</a>' in text
        assert served.page("trains?subject=ex:a").total == 1
        assert served.page("trains?object=o:c").total == 1


def test_no_third_party_is_asked(shared: Served) -> None:
    for path in ("", "trains", "trains?subject=", f"trains?subject={EX}t1", "nothing"):
        for tag, attributes in Elements(shared.get(path, "text/html").text).found:
            for name in ("src", "srcset", "poster", "data", "action"):
                assert attributes.get(name, BASE).startswith(BASE), tag
            if tag == "link":
                assert attributes["href"].startswith("data:")


def test_downloads_offer_every_format(shared: Served) -> None:
    text = shared.get("trains?page=2", "text/html").text
    for suffix in ("trig", "nq", "ttl", "nt", "jsonld"):
        assert f'href="{BASE}trains.{suffix}?page=2"' in text


def test_the_page_has_one_heading_and_a_language(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC) as served:
        elements = Elements(served.get("trains", "text/html").text).found
        assert [tag for tag, _ in elements].count("h1") == 1
        assert ("html", {"lang": "en"}) in elements


def test_the_front_of_a_dataset(served: Served) -> None:
    served.publish((quad("t1", "delay", '"5"'), Expiration(NOON + timedelta(seconds=8))))
    served.publish((quad("t1", "delay", '"7"'), Expiration(NOON + timedelta(seconds=9))))
    text = served.get("trains", "text/html").text
    (content,) = re.findall(r'<section id="content".*?</section>', text, re.DOTALL)
    table = content.partition("</table>")[0]
    rows = [
        [re.sub(r"<[^>]+>|↗", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.DOTALL)
    ]
    static = Counter(each.predicate[1:-1] for each in STATIC)
    # A live predicate comes first, with a value that holds and how often it changed.
    assert rows[1] == [f"{EX}delay", "7", "", "1", "2", "ask · watch"]
    assert len(rows) == 1 + len(static | {f"{EX}delay": 1})
    for predicate, count in static.items():
        assert any(predicate.rpartition("/")[2] in row[0] and row[2] == str(count) for row in rows)
    assert "last change 2015-12-08 12:00:00 UTC" in content
    assert "1 live fact now, with expirations" in re.sub(r"<[^>]+>", "", content)
    assert 'id="content"' not in served.get("trains?page=2", "text/html").text
    for how in (f"tpf-query {BASE}trains", f'Client("{BASE}trains")', f'sources: ["{BASE}trains"]'):
        assert how.replace('"', "&#34;") in text or how in text
    # Facts come one click later.
    assert 'id="matches"' not in text
    assert f'href="{BASE}trains?subject="' in text


def test_the_front_offers_the_queries_of_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / "1.rq").write_text("# The <late>\nSELECT * { ?s ?p 1 }")
    with Served(tmp_path, STATIC, settings={"query_examples": str(folder)}) as served:
        text = served.get("trains", "text/html").text
    (link,) = re.findall(r'<li><a href="([^"]*)">The &lt;late&gt;</a>', text)
    asked = parse_qs(urlsplit(link).fragment)
    assert asked == {"query": ["# The <late>\nSELECT * { ?s ?p 1 }"]}
    assert "watch=false" not in link


def test_a_subject_has_its_name_as_heading(tmp_path: Path) -> None:
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    named = quad("a", "b", '"2"')._replace(predicate=Term(label), object=Term('"The <a>"'))
    rows = [quad("a", "b", '"1"'), quad("a", "b", '"2"'), quad("c", "b", '"3"'), named]
    with Served(tmp_path, rows) as served:
        text = served.get("trains?subject=http://example.org/a", "text/html").text
        assert "<h1>The &lt;a&gt;</h1>" in text
        # Its own column is left out, and a predicate stands beside all its values.
        assert text.count(">subject</th>") == 0
        assert 'rowspan="2"' in text
        assert text.count("predicate=http://example.org/b") == 1
        nameless = served.get("trains?subject=http://example.org/c", "text/html").text
        assert "<h1>http://example.org/c</h1>" in nameless


def test_things_are_called_by_their_names(tmp_path: Path) -> None:
    label = Term("<http://www.w3.org/2000/01/rdf-schema#label>")
    rows = [
        quad("a", "to", "<http://example.org/b>"),
        *(quad("b", "x", text)._replace(predicate=label) for text in ('"Be <"@nl', '"Bee <"@en')),
    ]
    with Served(tmp_path, rows) as served:
        text = served.get(f"trains?subject={EX}a", "text/html").text
        assert f'title="{EX}b">Bee &lt;</a>' in text
        text = served.get(f"trains?subject={EX}b", "text/html").text
        assert "<h1>Bee &lt;</h1>" in text
        (leading,) = re.findall(r"<li>(.*?)</li>", text)
        assert f'href="{BASE}trains?subject={EX}a"' in leading


def test_a_subject_shows_what_leads_to_it_as_it_changes(served: Served) -> None:
    url, end = f"trains?subject={EX}nobody", NOON + timedelta(seconds=8)
    served.publish((quad("t1", "towards", f"<{EX}nobody>"), Expiration(end)))
    response = served.get(url, "text/html")
    assert f"{EX}t1" in response.text
    (renewed,) = re.findall(r'data-renewed="(\d+)"', response.text)
    assert int(renewed) == end.timestamp() * 1000
    served.clock.advance_to(end)
    later = served.get(url, "text/html", **{"If-None-Match": response.headers["ETag"]})
    assert later.status_code == 200
    assert f"{EX}t1" not in later.text


def test_a_subject_shows_the_history_of_its_facts(served: Served) -> None:
    for minute, delay in enumerate(("5", "5", '<i>"', "6")):
        begin = NOON + timedelta(minutes=minute)
        label = Interval(begin, begin + timedelta(minutes=1 if minute < 3 else 60))
        value = literal(delay)
        served.publish((quad("t9", "delay", value), label))
    served.clock.advance_to(NOON + timedelta(minutes=4))
    text = served.get(f"trains?subject={EX}t9", "text/html").text
    (line,) = re.findall(r'<svg class="line".*?</svg>', text)
    drawn = re.findall(r'<rect x="([\d.]+)"[^>]*><title>(.*?), 2015-12-08 (\S+)', line)
    # Equal values that follow each other are one.
    assert drawn == [("0.0", "5", "12:00:00"), ("500.0", "&lt;i&gt;&#34;", "12:02:00"),
                     ("750.0", "6", "12:03:00")]  # fmt: skip
    assert "3 values since 12:00:00 UTC" in text
    (back,) = re.findall(rf'href="({BASE}[^"]*at=[^"]*12:02:00Z)"', text)
    then = served.get(html.unescape(back).removeprefix(BASE), "text/html").text
    assert "2 values since" in then


def test_what_expires_is_drawn_from_its_publication_on(served: Served) -> None:
    for delay in ("5", "6"):
        label = Expiration(served.clock.now() + timedelta(minutes=3))
        served.publish((quad("t9", "delay", literal(delay)), label))
        served.clock.advance_to(served.clock.now() + timedelta(minutes=1))
    text = served.get(f"trains?subject={EX}t9", "text/html").text
    drawn = re.findall(
        r"<rect [^>]*><title>(.*?), 2015-12-08 ([\d:]+) to 2015-12-08 ([\d:]+)<", text
    )
    assert drawn == [("5", "12:00:00", "12:01:00"), ("6", "12:01:00", "12:04:00")]
    (back,) = re.findall(rf'href="({BASE}[^"]*at=[^"]*12:00:00Z)"', text)
    assert ">5<" in served.get(html.unescape(back).removeprefix(BASE), "text/html").text
    # When the last one was published is forgotten some time after others were.
    for minutes, name in ((7, "t9"), (8, "t8"), (20, "t8"), (21, "t8")):
        served.clock.advance_to(NOON + timedelta(minutes=minutes))
        label = Expiration(NOON + timedelta(minutes=60 + minutes))
        served.publish((quad(name, "delay", literal("7")), label))
    text = served.get(f"trains?subject={EX}t9", "text/html").text
    assert "<rect" not in text
    assert ">7<" in text


def test_an_instant_without_a_time_zone_is_utc(shared: Served) -> None:
    for text in ("2015-12-08T12:00", "2015-12-08T12:00:00", "2015-12-08T12:00:00.000"):
        page = shared.get(f"trains?at={text}", "text/html").text
        assert "As of 2015-12-08T12:00:00Z" in page
    assert shared.get("trains?at=2015-12-08", "text/html").status_code == 400


def test_an_error_keeps_what_was_filled_in(shared: Served) -> None:
    response = shared.get("trains?subject=%22a%22%3E&page=1&at=noon", "text/html")
    assert response.status_code == 400
    elements = Elements(response.text).found
    inputs = {a["name"]: a["value"] for tag, a in elements if tag == "input"}
    assert inputs == {
        "subject": '"a">', "predicate": "", "object": "", "graph": "", "page": "1", "at": "noon"
    }  # fmt: skip
    (form,) = [a for tag, a in elements if tag == "form"]
    assert form["action"] == f"{BASE}trains"
    assert "<form" not in shared.get("nothing", "text/html").text


def test_a_past_page_leads_back_to_now(shared: Served) -> None:
    text = shared.get(
        "trains?predicate=http://example.org/p&at=2015-12-08T12:00:00Z", "text/html"
    ).text
    (banner,) = re.findall(r'<p class="banner">(.*?)</p>', text)
    assert f'href="{BASE}trains?predicate=http' in banner
    assert "at=" not in banner
    assert 'data-renewed="' not in text


def test_the_front_of_a_dataset_counts_few_of_many_predicates(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = served.live
    assert live is not None
    end = Expiration(NOON + timedelta(hours=1))
    facts = [Fact(quad("t1", f"p{n}", '"5"'), end) for n in range(3 * MOST_FREQUENT)]
    live.publish([*facts, Fact(quad("t2", "p7", '"5"'), end)], served.clock.now())
    counted: list[object] = []
    count = live.count
    monkeypatch.setattr(live, "count", lambda *asked: counted.append(asked) or count(*asked))
    text = served.get("trains", "text/html").text
    assert len(counted) < MOST_FREQUENT + 20
    assert "p7" in text.partition("and others")[0]
