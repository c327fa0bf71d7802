"""Bindings-restricted fragments: the ``values`` parameter."""

from datetime import timedelta
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration
from annotations.terms import Quad, QuadPattern, Term, Variable
from tests.support.served import HYDRA, NOON, TMP, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.fragments.pattern import Skolemizer
from tpf_server.fragments.request import restricted

EX = "http://example.org/"


def path(values: str, rest: str = "", view: str = "") -> str:
    return f"trains{view}?values={quote(values, safe='')}{rest}"


def test_only_matches_of_the_rows_come_in_their_order(shared: Served) -> None:
    values = f"(?s) {{ (<{EX}t2>) (<{EX}loop>) (<{EX}t2>) (<{EX}nobody>) }}"
    found = shared.fragment(path(values, "&subject=?s"))
    assert [row.subject for row in found] == [quad("t2", "a", "a").subject] * 2 + [
        quad("loop", "a", "a").subject
    ]
    assert shared.page(path(values, "&subject=?s")).total == 3


def test_open_positions_are_called_like_themselves(shared: Served) -> None:
    values = f'(?subject ?object) {{(<{EX}t1> <{EX}ghent>)(<{EX}t1> "IC eins"@de)}}'
    found = shared.fragment(path(values))
    assert found == [quad("t1", "stop", "ghent"), quad("t1", "name", '"IC eins"@de')]


def test_rows_restrict_live_facts_and_pages_are_slices_of_all(served: Served) -> None:
    until = Expiration(NOON + timedelta(seconds=7))
    live = [quad(f"t{number}", "delay", f'"{number}"') for number in range(4)]
    served.publish(*[(row, until) for row in live])
    rows = " ".join(f"(<{EX}t{number}>)" for number in range(4))
    for view in ("", "/named-graph"):
        query = path(f"(?subject) {{ {rows} }}", "&predicate=http://example.org/delay", view)
        assert [row.triple for row in served.fragment(query)] == [row.triple for row in live]
        page = served.page(query)
        assert (page.total, len(page.data)) == (4, 3)
        assert page.objects(TMP + "dynamicTriples") == ["4"]
        assert page.objects(TMP + "earliestExpiration") == ["2015-12-08T12:00:07Z"]
        assert served.get(query).headers["Cache-Control"] == "public, max-age=7"


def test_rows_may_have_triple_terms(tmp_path: Path) -> None:
    inner = r'<<( <http://example.org/a> <http://example.org/p> "1 )>> \"<"@en )>>'
    said = [
        quad(f"s{n}", "says", f"<<( <{EX}a> <{EX}p> {inner if n else '_:b'} )>>") for n in (0, 1)
    ]
    with Served(tmp_path, said) as served:
        shown = served.fragment("trains")
        for row in shown:
            assert served.fragment(path(f"(?object) {{({row.object})}}")) == [row]
            assert served.fragment(
                path(f"(?o ?subject){{(\n{row.object}{row.subject} )}}", "&object=?o")
            ) == [row]
        rows = " ".join(f"({row.object})" for row in shown)
        assert sorted(served.fragment(path(f"(?object) {{{rows}}}"))) == sorted(shown)
        for wrong in (f"<<( <{EX}a> <{EX}p> _:b )>>", f"<<( <{EX}a> <{EX}p> ", "<<( )>>", ")>>"):
            assert served.get(path(f"(?object) {{({wrong})}}")).status_code == 400


def test_the_form_announces_values_and_limit(shared: Served) -> None:
    page = shared.page("trains")
    (template,) = page.objects(HYDRA + "template")
    assert template.endswith("{?subject,predicate,object,graph,limit,values,at,known}")
    assert "http://vocab.org/brtpf#values" in page.objects(HYDRA + "property")
    assert len(page.objects(TMP + "mapping")) == 4
    assert set(page.objects(TMP + "maximum")) == {"64", "1000"}


TERMS = st.sampled_from([None, *(f"<{EX}{name}>" for name in "abc")])


@given(
    rows=st.lists(st.tuples(TERMS, TERMS, TERMS), max_size=6),
    names=st.permutations(["?s", "?p", "?o", "?subject"]),
)
def test_every_compatible_match_is_there_once(
    rows: list[tuple[str | None, ...]], names: list[str]
) -> None:
    asked = QuadPattern(Variable("?s"), Variable("?p"), Variable("?o"), Variable("?g"))
    text = " ".join(f"({' '.join(term or 'UNDEF' for term in row)} UNDEF)" for row in rows)
    value = f"({' '.join(names)}) {{ {text} }}"
    patterns = restricted(asked, value, Skolemizer("http://localhost/"), 10)
    quads = [Quad(*triple) for triple in product((Term(f"<{EX}{n}>") for n in "abcd"), repeat=3)]
    found = [quad for each in patterns for quad in quads if _fits(quad, each)]
    assert len(found) == len(set(found))
    wanted = {
        quad
        for quad in quads
        for row in rows
        if all(
            term in (None, quad[["?s", "?p", "?o"].index(name)])
            for name, term in zip(names, row, strict=False)
            if name != "?subject"
        )
    }
    assert wanted <= set(found)
    if all(None not in row for row in rows) and names[-1] == "?subject":
        assert wanted == set(found)


def _fits(quad: Quad, pattern: QuadPattern) -> bool:
    return all(
        want.startswith("?") or want == term for want, term in zip(pattern, quad, strict=True)
    )


def test_a_short_row_matches_nothing(shared: Served) -> None:
    page = shared.page(path("(?subject ?object) { (<ex:comunica:unknown>) }"))
    assert (page.data, page.total) == ([], 0)


@pytest.mark.parametrize(
    "values",
    [
        "x", "(?subject)", "(subject) {}", "(?subject) { (<x:y> <x:z>) }", "(?subject) { () ) }",
        "(?subject) { (<y>) }", "(?subject) { (_:b) }", "(?subject) { (undef) }", "(?s ?) {}",
        "(?subject) { ((<x:y>)) }", "(?subject) { (<x:y>) } }", "(?subject) { <x:y> }",
        "(?subject) { " + "(<x:y>)" * 65 + " }", "(?subject) { (<x:y>) ",
    ],
)  # fmt: skip
def test_malformed_values_are_400(shared: Served, values: str) -> None:
    assert shared.get(path(values)).status_code == 400


def test_off_by_setting(tmp_path: Path) -> None:
    with Served(tmp_path, STATIC, settings={"max_values": 0}) as served:
        (template,) = served.page("trains").objects(HYDRA + "template")
        assert template.endswith("{?subject,predicate,object,graph,limit,at,known}")
        assert served.page(path("(?subject) {}")).total == len(STATIC)
