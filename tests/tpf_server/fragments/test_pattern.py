import contextlib
from urllib.parse import quote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.errors import TermError
from annotations.terms import DEFAULT_GRAPH, Term, is_blank_node, is_variable
from annotations.urls import parameter_of_term, term_of_parameter
from tests.support.facts import IRIS, LITERALS, OBJECTS_12
from tpf_server.errors import RequestError, TermSyntaxError
from tpf_server.fragments.pattern import POSITIONS, PatternReader, Skolemizer, names_blank_node
from tpf_server.fragments.request import FragmentRequest, read_request
from tpf_server.store.protocols import Snapshot

EX = "http://example.org/"
GENID = "http://server.test/.well-known/genid/trains/"
SKOLEM = Skolemizer(GENID)
READER = PatternReader({"ex": "http://example.org/", "": "http://example.org/empty#"}, SKOLEM)
INTEGER = "<http://www.w3.org/2001/XMLSchema#integer>"


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("<http://example.org/a>", "<http://example.org/a>"),
        ("urn:isbn:1", "<urn:isbn:1>"),
        ("ex:a", "<http://example.org/a>"),
        (":a", "<http://example.org/empty#a>"),
        ("<ex:a>", "<ex:a>"),
        ("ex://host/a", "<ex://host/a>"),
        ('"x"@EN', '"x"@en'),
        (f'"42"^^{INTEGER}', f'"42"^^{INTEGER}'),
        ('"42"^^ex:d', '"42"^^<http://example.org/d>'),
        ('"x^^ex:d"', '"x^^ex:d"'),
        ('"x"^^http://www.w3.org/2001/XMLSchema#string', '"x"'),
        (GENID + "b", "_:b"),
        (f"<{GENID}b>", "_:b"),
        (
            f'<<( <{GENID}b> <http://example.org/p> "x\\n" )>>',
            '<<( _:b <http://example.org/p> "x\\n" )>>',
        ),
        (
            f'<<{GENID}b http://example.org/p "x "y" z"^^{INTEGER[1:-1]}>>',
            f'<<( _:b <http://example.org/p> "x \\"y\\" z"^^{INTEGER} )>>',
        ),
        (
            '<<ex:a ex:p <<ex:a <x:p> ""@en>>>>',
            f'<<( <{EX}a> <{EX}p> <<( <{EX}a> <x:p> ""@en )>> )>>',
        ),
    ],
)
def test_all_term_syntaxes(text: str, term: str) -> None:
    """But for those of forms, which random terms have below."""
    assert READER.term("object", text) == term


@pytest.mark.parametrize(
    "text",
    [
        "_:b", "<_:b>", "a", "<a>", "<http://example.org/a", "http://example.org/a b", '"x', '"',
        '"x"en', '"x"@', '"x"@not_a_tag', '"x"^^', '"x"^^a', '"x"^^<a', "?", "?a b", "<<( )>>",
        "<<a b c>>", "<<>>", "<<ex:a ex:p>>", "<<ex:a ex:p _:b>>", "<<ex:a ex:p ?o>>",
        '<<"x" ex:p ex:o>>', '<<ex:a "p" ex:o>>',
        "<<( _:b <http://example.org/p> _:b )>>", "<<", "http://example.org/<b>", " ",
    ],
)  # fmt: skip
def test_malformed_and_blank_terms_are_refused_with_the_term(text: str) -> None:
    with pytest.raises(TermSyntaxError) as caught:
        READER.term("object", text)
    assert repr(text) in str(caught.value)
    assert caught.value.status == 400


def test_variables_are_absent_empty_or_named() -> None:
    pattern = READER.pattern({"subject": "", "object": "?x", "graph": "?x"})
    assert all(is_variable(term) for term in pattern)
    assert pattern.object == pattern.graph == "?x"
    assert len(set(pattern)) == 3


def test_the_default_graph_has_a_name() -> None:
    assert READER.pattern({"graph": "urn:ldf:defaultGraph"}).graph == DEFAULT_GRAPH


@given(st.one_of(IRIS, LITERALS))
def test_every_term_is_read_back_from_the_forms_representation(term: Term) -> None:
    assert READER.term("object", parameter_of_term(term)) == term


@given(OBJECTS_12)
def test_shown_terms_come_back(term: Term) -> None:
    shown = SKOLEM.term(term)
    assert not names_blank_node(shown)
    assert SKOLEM.restore(shown) == term
    if not is_blank_node(term) and not term.startswith("<<("):
        assert shown == term
    assert READER.term("object", parameter_of_term(shown)) == term


@given(st.text(max_size=30))
def test_any_text_is_a_term_or_a_term_error(text: str) -> None:
    with contextlib.suppress(TermSyntaxError):
        READER.term("subject", text)


@given(st.sampled_from(["http", "ex", "a+b", "1", ""]), st.text(max_size=12))
def test_nothing_is_expanded_before_two_slashes(scheme: str, rest: str) -> None:
    text = f"{scheme}://{rest}"
    try:
        term = term_of_parameter(text)
    except TermError:
        with pytest.raises(TermSyntaxError):
            READER.term("subject", text)
    else:
        assert READER.term("subject", text) == term


def read(query: str) -> FragmentRequest:
    return read_request("http://server.test/trains", query, READER, 100, 500)


def test_the_page_echoes_the_query_and_the_fragment_drops_only_paging() -> None:
    query = "subject=%3chttp%3A//example.org/a%3e&page=2&x=%41&snapshot=5.6&limit=7"
    request = read(query)
    assert request.page_url == "http://server.test/trains?" + query
    assert request.fragment_url == (
        "http://server.test/trains?subject=%3chttp%3A//example.org/a%3e&x=%41"
    )
    assert (request.page, request.limit, request.snapshot) == (2, 7, Snapshot(5, 6))
    assert request.page_link(3, Snapshot(8, 9)) == (
        request.fragment_url + "&limit=7&page=3&snapshot=8.9"
    )


def test_a_request_that_is_read_again_depends_on_who_reads_it_and_where() -> None:
    other = PatternReader({"": "http://other.example/"}, SKOLEM)
    for _ in range(2):
        for url in ("http://a.test/trains", "http://b.test/trains"):
            for reader, namespace in ((READER, None), (other, "http://other.example/")):
                for size in (10, 20):
                    found = read_request(url, "subject=%3Ax", reader, size, 500)
                    assert found.page_url == f"{url}?subject=%3Ax"
                    assert found.limit == size
                    assert (found.pattern.subject == f"<{namespace}x>") == (namespace is not None)


def test_without_parameters_links_start_a_query() -> None:
    assert read("").page_link(2, None) == "http://server.test/trains?page=2"


def test_limit_is_capped() -> None:
    assert read("limit=501").limit == 500


def test_a_plus_is_a_space_and_characters_that_no_iri_holds_are_encoded() -> None:
    request = read('object="a+b"')
    assert request.pattern.object == '"a b"'
    assert request.page_url == "http://server.test/trains?object=%22a+b%22"


@pytest.mark.parametrize(
    "query",
    [
        "page=0", "page=abc", "page=-1", "page=", "page=1.5", "page=%D9%A1", "page=99999999999999",
        "limit=0", "limit=x", "snapshot=1", "snapshot=a.b", "snapshot=1.-1", "snapshot=%D9%A1.1",
        "snapshot=999999999999999999.1", "snapshot=-99999999999999999.1", "subject=%FF",
        "page=1&page=2", "subject=&subject=http://example.org/a",
    ],
)  # fmt: skip
def test_a_bad_page_limit_snapshot_or_encoding_is_refused(query: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(query)
    assert caught.value.status == 400


@given(st.dictionaries(st.sampled_from(POSITIONS), st.text(max_size=12)))
def test_any_percent_encoded_text_is_read_as_itself(values: dict[str, str]) -> None:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in values.items())
    with contextlib.suppress(TermSyntaxError):
        assert read(query).parameters == values


ESCAPES = (
    "%3A",
    "%3a",
    "%2F",
    "%23",
    "%25",
    "%",
    "2",
    "3",
    "A",
    "F",
    "+",
    "%C3",
    "%A9",
    "é",
    "%zz",
)


@given(st.lists(st.sampled_from(ESCAPES), max_size=8))
def test_escapes_are_read_once(pieces: list[str]) -> None:
    raw = "".join(pieces)
    try:
        value = unquote_plus(raw, errors="strict")
    except UnicodeDecodeError:
        with pytest.raises(RequestError, match="not percent-encoded UTF-8"):
            read(f"values={raw}")
    else:
        assert read(f"values={raw}").parameters == {"values": value}
