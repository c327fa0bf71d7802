"""The papers' claims: unique names, verdicts by bounds, shown on the page."""

import re
from pathlib import Path

from experiments.cli import EXPERIMENTS, names
from experiments.harness.claims import CLAIMS, checks, unmeasured
from experiments.harness.items import Check, Figure, Point
from experiments.harness.report import checks_of, draw, render_report


def test_every_claim_is_of_an_experiment_and_has_one_bound() -> None:
    assert {claim.experiment for claim in CLAIMS} <= set(names())
    assert len({(claim.experiment, claim.name) for claim in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        assert (claim.at_most is None) != (claim.at_least is None), claim.name
        assert claim.says.endswith(".")
        assert re.fullmatch(r"00[0-4]", claim.paper)


def test_what_is_found_is_judged_and_shown() -> None:
    (least,) = [claim for claim in CLAIMS if claim.name == "engines"]
    (most,) = [claim for claim in CLAIMS if claim.name == "server"]
    found = [Check(least, 10.0), Check(least, 9.9), Check(most, 12.0), Check(most, 12.1)]
    assert [check.verdict for check in found] == ["agrees", "differs", "agrees", "differs"]
    (check,) = checks("adaptivity", {"adaptive": lambda: 0.5})
    assert (check.measured, check.verdict) == (0.5, "agrees")
    page = render_report([], [*found, *unmeasured(["taxi"])])
    shown = re.findall(r">(agrees|differs|not measured here)</td>", page)
    # A reason stands only beside what differs.
    assert page.count(least.why) == 1
    assert [check.why for check in found] == ["", least.why, "", most.why]
    assert shown[:4] == ["agrees", "differs", "agrees", "differs"]
    assert set(shown[4:]) == {"not measured here"}
    assert "2 of" in page
    assert "section 6, figure 2a" in page


def test_claims_of_what_was_not_run_are_there_all_the_same() -> None:
    assert len(checks_of([], EXPERIMENTS)) == len(CLAIMS)
    assert checks_of([], []) == []


def test_marks_of_others_and_limits_of_the_machine_are_in_the_legend(tmp_path: Path) -> None:
    figure = Figure(
        "f", "t", "x", "y", {"ours": [Point(1, 2), Point(2, 3, limited=True)]},
        marks={("theirs", "ours"): [Point(1, 9)]},
    )  # fmt: skip
    drawn = draw(figure, tmp_path).read_text()
    assert "theirs: ours, other hardware" in drawn
    assert "the machine was the limit" in drawn
