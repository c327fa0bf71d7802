"""Any request gets an answer below 500."""

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.served import Served, parse

PIECES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["<", ">", '"', "<<(", ")>>", "_:", "^^", "@", "?", "http://example.org/t1", "\\", "\n",
         "http://server.test/.well-known/genid/trains/", "%", "\x00", "{", "}", "urn:x:y", " ",
         "http://server.test/trains/facts/property/" + "0" * 32, "rdf:type"]
    ),
)  # fmt: skip
TERMS = st.lists(PIECES, max_size=5).map("".join)
NAMES = st.sampled_from(
    ["subject", "predicate", "object", "graph", "page", "limit", "snapshot", "values", "at", "x"]
)
VIEWS = ["", "/plain", "/singleton-property", "/named-graph", "/implicit-graph", "/reification",
         "/rdf-1.2"]  # fmt: skip
FUZZ = examples(75, fixtures=True)


@FUZZ
@given(
    view=st.sampled_from(VIEWS),
    parameters=st.lists(st.tuples(NAMES, TERMS), max_size=4),
    suffix=st.sampled_from(["", ".nq", ".trig", ".jsonld", ".html"]),
)
def test_no_term_syntax_makes_a_server_error(
    served: Served, view: str, parameters: list[tuple[str, str]], suffix: str
) -> None:
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters)
    response = served.get(f"trains{view}{suffix}?{query}")
    assert response.status_code in (200, 400, 410), response.text
    if response.status_code == 200 and suffix in (".nq", ".trig", ".jsonld"):
        parse(response.content, response.headers["Content-Type"])


@FUZZ
@given(query=st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")))
def test_no_raw_query_makes_a_server_error(served: Served, query: str) -> None:
    environ = {"QUERY_STRING": query.replace("#", "")}
    response = served.app.test_client().get("/trains.nq", environ_overrides=environ)
    assert response.status_code in (200, 400, 410)
    if response.status_code == 200:
        parse(response.data, "application/n-quads")


@FUZZ
@given(
    method=st.sampled_from(["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "X"]),
    path=st.one_of(
        st.text(max_size=20),
        st.sampled_from(["trains", "trains/facts", "trains/plain", "trains.x", ".nq", "/", "a/b"]),
    ),
    headers=st.dictionaries(
        st.sampled_from(
            ["Accept", "If-None-Match", "If-Modified-Since", "Accept-Encoding", "Host", "Range",
             "Accept-Datetime", "Authorization", "Content-Type", "Content-Length"]
        ),
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
        max_size=3,
    ),
)  # fmt: skip
def test_no_path_method_or_header_makes_a_server_error(
    served: Served, method: str, path: str, headers: dict[str, str]
) -> None:
    client = served.app.test_client()
    response = client.open("/" + quote(path), method=method, headers=headers)
    assert response.status_code < 500, response.text


@FUZZ
@given(
    body=st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)),
    query=st.sampled_from(["", "expiration=2016-01-01T00:00:00Z", "annotation=named-graph"]),
    media_type=st.sampled_from(
        ["text/turtle", "application/n-quads", "application/trig", "application/ld+json",
         "application/rdf+xml", "text/n3", "x"]
    ),
)  # fmt: skip
def test_no_body_makes_a_server_error(
    served: Served, body: bytes, query: str, media_type: str
) -> None:
    assert served.post(body, query, media_type).status_code < 500
