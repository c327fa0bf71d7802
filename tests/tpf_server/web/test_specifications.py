"""Remaining requirements of the specifications; the list names real tests."""

import re
from pathlib import Path
from typing import Any

import uritemplate

from annotations.terms import DEFAULT_GRAPH, Quad
from annotations.urls import parameter_of_term
from tests.support.served import BASE, HYDRA, VOID, Served

TESTS = Path(__file__).parents[1]
LIST = TESTS.parents[1] / "docs" / "specifications.md"


def test_the_list_names_real_tests() -> None:
    text = LIST.read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 40
    for file, name in named:
        assert re.search(rf"^def {name}\(", (TESTS / file).read_text("utf-8"), re.MULTILINE), name
    for row in re.findall(r"^\| (?!requirement).*\|$", text, re.MULTILINE):
        if not row.startswith("|---") and "hydra:nextPage" not in row and "suffixes" not in row:
            assert "::test_" in row, row


def test_every_page_has_the_metadata_and_the_controls(shared: Served) -> None:
    for path, total in (
        ("trains", 8), ("trains?page=2", 8), ("trains?page=9", 8),
        ("trains?subject=http://example.org/nobody", 0),
        ("trains?subject=http://example.org/t2", 2),
    ):  # fmt: skip
        page = shared.page(path)
        fragment = re.sub(r"[?&]page=\d+", "", BASE + path)
        assert page.objects(VOID + "triples", fragment) == [str(total)]
        assert page.objects(HYDRA + "totalItems", fragment) == [str(total)]
        assert len(page.objects(HYDRA + "search", f"{BASE}trains#dataset")) == 1
        assert len(page.objects(HYDRA + "mapping")) == 4


def test_the_form_leads_to_every_fragment(shared: Served) -> None:
    (template,) = shared.page("trains").objects(HYDRA + "template")
    everything = shared.fragment("trains")
    assert len(everything) == 8
    patterns = {
        tuple(term if chosen >> k & 1 else None for k, term in enumerate(row))
        for row in everything
        for chosen in range(16)
    }
    for pattern in patterns:
        values: dict[str, Any] = {
            name: "urn:ldf:defaultGraph" if term == DEFAULT_GRAPH else parameter_of_term(term)
            for name, term in zip(Quad._fields, pattern, strict=True)
            if term is not None
        }
        found = shared.fragment(uritemplate.expand(template, values, limit=100))
        assert sorted(found) == sorted(
            row
            for row in everything
            if all(wanted in (None, term) for wanted, term in zip(pattern, row, strict=True))
        )


def test_a_literal_as_subject_matches_nothing(shared: Served) -> None:
    for query in ("subject=%22x%22", "predicate=%22x%22", "graph=%22x%22"):
        page = shared.page(f"trains?{query}")
        assert (page.data, page.total) == ([], 0)
