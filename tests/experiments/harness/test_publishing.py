"""Published reports: small, complete, and without names of the machine."""

import json
import re
from pathlib import Path

import pytest

from experiments.errors import ConfigurationError, ExperimentError
from experiments.harness.publishing import publish_report, unpack_report
from experiments.harness.report import FACTS, RAW
from tests.experiments.harness.test_runner import Squares, run

README = "# Project\n\n<!-- report -->\nold\n<!-- /report -->\n\nMore.\n"


def test_page_summary_figures_and_the_line_in_the_readme(tmp_path: Path) -> None:
    run(tmp_path / "results", Squares())
    readme = tmp_path / "README.md"
    readme.write_text(README)
    folder = tmp_path / "docs/report"
    page = publish_report(tmp_path / "results", [Squares()], folder, readme)
    html, summary = page.read_text(), (folder / "README.md").read_text()
    images = re.findall(r'src="([^"]+)"', html)
    assert images
    assert set(re.findall(r"\]\((figures/[^)]+)\)", summary)) <= set(images)
    assert all((folder / image).read_text().startswith("<?xml") for image in images)
    assert "raw.csv" not in html
    text = readme.read_text()
    assert "old" not in text
    assert "[Measured](docs/report/README.md) 20" in text
    assert "; 1 experiment on commit" in text
    assert ", in 0 h 1 min." in text
    assert text.endswith("<!-- /report -->\n\nMore.\n")
    # Again: what was there is replaced.
    publish_report(tmp_path / "results", [Squares()], folder, readme)
    assert readme.read_text() == text


def test_the_summary_compares_with_the_papers_and_says_of_which_commit_it_is(
    tmp_path: Path,
) -> None:
    taxi = Squares()
    taxi.name = "taxi"
    run(tmp_path / "results", taxi)
    facts_file = tmp_path / "results" / taxi.name / FACTS
    facts = json.loads(facts_file.read_text())
    facts["started"] = "2025-04-03T02:01:00Z"
    facts["versions"]["commit"] = "0123456789ab"
    facts_file.write_text(json.dumps(facts))
    publish_report(tmp_path / "results", [taxi], tmp_path / "report")
    summary = (tmp_path / "report/README.md").read_text()
    assert summary.index("## The papers' figures") < summary.index("## taxi")
    assert "Q1: 0.022 ms from a trip to its result in the mean. | 0.022 | — | not mea" in summary
    assert "2025-04-03, commit 0123456789ab; load of the machine" in summary
    assert "1 experiment on commit 0123456789ab, in" in summary


def test_the_summary_says_what_is_not_in_it(tmp_path: Path) -> None:
    # Twice each, for one reason.
    run(tmp_path / "results", Squares(broken={("plain", 1), ("plain", 2)}, unavailable={"shifted"}))
    publish_report(tmp_path / "results", [Squares()], tmp_path / "report")
    said = "- 4 measurements could not be made.\n- Not measured: shifted.\n"
    assert said in (tmp_path / "report/README.md").read_text()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", Squares(stop_after=1))
    publish_report(tmp_path / "cut", [Squares()], tmp_path / "second")
    assert "- The run did not end.\n" in (tmp_path / "second/README.md").read_text()


def test_both_commits_of_results_are_named_and_no_paths_of_the_machine(tmp_path: Path) -> None:
    run(tmp_path / "results", Squares())
    facts_file = tmp_path / "results" / Squares().name / FACTS
    facts = json.loads(facts_file.read_text())
    facts["versions"]["commit"] = "0123456789ab, 9876543210cd"
    # The run did not end.
    del facts["seconds"], facts["load at the end"]
    facts["left_out"] = {
        "group": "no\n/home/somebody/data/x.csv, file:///tmp/somebody; see http://a.example/home/x"
    }
    facts["settings"] = {"data": "/home/somebody/kept"}
    facts_file.write_text(json.dumps(facts))
    html = publish_report(tmp_path / "results", [Squares()], tmp_path / "report").read_text()
    assert "1 experiment on commits 0123456789ab and 9876543210cd.<" in html
    assert "somebody" not in html
    assert ">…</td>" in html
    assert "http://a.example/home/x" in html


def test_nothing_is_published_of_nothing_or_over_other_files(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    with pytest.raises(ConfigurationError, match="no results"):
        publish_report(tmp_path / "results", [Squares()], tmp_path / "report")
    run(tmp_path / "inside/results", Squares())
    with pytest.raises(ConfigurationError, match="holds the results"):
        publish_report(tmp_path / "inside/results", [Squares()], tmp_path / "inside")
    assert (tmp_path / "inside/results" / Squares().name / RAW).exists()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/client.md").write_text("mine")
    with pytest.raises(ConfigurationError, match="other files"):
        publish_report(tmp_path / "results", [Squares()], tmp_path / "docs")
    assert (tmp_path / "docs/client.md").read_text() == "mine"
    run(tmp_path / "results", Squares())
    readme = tmp_path / "README.md"
    readme.write_text("no place")
    with pytest.raises(ConfigurationError, match="no place"):
        publish_report(tmp_path / "results", [Squares()], tmp_path / "report", readme)


def test_results_that_were_published_can_be_had_again_and_gone_on_with(tmp_path: Path) -> None:
    first = run(tmp_path / "results", Squares())
    publish_report(tmp_path / "results", [Squares()], tmp_path / "report")
    assert unpack_report(tmp_path / "report", tmp_path / "again") == [Squares().name]
    assert (tmp_path / "again" / Squares().name / RAW).read_bytes() == (
        tmp_path / "results" / Squares().name / RAW
    ).read_bytes()
    squares = Squares()
    assert run(tmp_path / "again", squares, resume=True) == first
    assert squares.calls == []
    # Published anew they are the same files.
    page = (tmp_path / "report/index.html").read_text()
    assert publish_report(tmp_path / "again", [Squares()], tmp_path / "second").read_text() == page
    with pytest.raises(ConfigurationError, match="has results of"):
        unpack_report(tmp_path / "report", tmp_path / "again")
    packed = tmp_path / "report/results" / Squares().name / "raw.csv.xz"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ExperimentError, match=r"raw\.csv\.xz"):
        unpack_report(tmp_path / "report", tmp_path / "third")
    assert list((tmp_path / "third").iterdir()) == []
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="no published results"):
        unpack_report(tmp_path / "empty", tmp_path / "other")
