"""``python -m tests.site DIRECTORY`` builds the site: docs, report, reference and the live page.

The pages are gathered as they lie, so that their links stay right. Any warning is an error.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.reference import ROOT, warnings_of, written

PAGES = ROOT / ".run" / "docs" / "pages"
SITE = ROOT / ".run" / "docs" / "site"
"""As mkdocs.yml says."""


def gather() -> None:
    """Copy what pages are made of, and what they link to."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, PAGES / folder, ignore=shutil.ignore_patterns("__pycache__"))
    # The same report as one page, where the site has its pages.
    (PAGES / "docs" / "report" / "index.html").unlink()
    for file in (*ROOT.glob("*.md"), ROOT / "LICENSE"):
        shutil.copy(file, PAGES)


def build(directory: Path) -> None:
    """Build the site.

    Raises:
        subprocess.CalledProcessError: a page has a warning, such as a link that leads nowhere.
    """
    live = [sys.executable, "-m", "tpf_client.commands", "tpf-query", "page"]
    subprocess.run([*live, "--output", str(PAGES / "live")], check=True, cwd=ROOT)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    subprocess.run([*command, "--config-file", "mkdocs.yml"], check=True, cwd=ROOT)
    if directory.resolve() != SITE:
        shutil.copytree(SITE, directory, dirs_exist_ok=True)


if __name__ == "__main__":
    gather()
    said = warnings_of(lambda: written(PAGES / "reference"))
    for each in said:
        print(f"warning: {each}", file=sys.stderr)  # noqa: T201
    build(Path(sys.argv[1]))
    sys.exit(1 if said else 0)
