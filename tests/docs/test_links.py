"""Files and pages that the documentation links to exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")]
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
_ANCHOR = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#([^)\s]+)\)")
_MODULE = re.compile(
    r"`((?:annotations|tpf_client|tpf_server|loaders|experiments|tests)/[\w/.]+?)(?:::(\w+))?`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    text = page.read_text("utf-8")
    missing = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    for name, test in _MODULE.findall(text):
        path = ROOT / name
        if not path.exists() or (test and f"def {test}(" not in path.read_text("utf-8")):
            missing.append(f"{name}::{test}")
    assert not missing


def _anchors(page: Path) -> set[str]:
    """Return GitHub's anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.*?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors(page: Path) -> None:
    found = _ANCHOR.findall(page.read_text("utf-8"))
    pages = [(page.parent / link if link else page, anchor) for link, anchor in found]
    missing = [
        (str(there), anchor)
        for there, anchor in pages
        if there.suffix == ".md" and anchor not in _anchors(there)
    ]
    assert not missing


def test_the_site_has_every_page() -> None:
    named = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(
        [*(str(page.relative_to(ROOT)) for page in PAGES), "docs/report/README.md"]
    )
