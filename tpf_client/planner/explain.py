"""A plan as text, and as JSON."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from tpf_client.planner.leaves import Step


def explain_plan(steps: Iterable[Step]) -> str:
    """The steps of a plan, one per line: what, how, what was expected, and what was done.

    Expected are the matches of the whole pattern and the pages that they fill; done are the pages
    read or the requests for keys (the first page of each pattern, which tells the counts, is
    among the pages), and the solutions that came out.

    Args:
        steps: in the order in which they feed each other.
    """
    return "\n".join(f"{number}. {_line(step)}" for number, step in enumerate(steps, 1))


def _line(step: Step) -> str:
    estimate = step.estimate
    count = "unknown" if estimate.count is None else str(estimate.count)
    pages = "unknown" if estimate.pages is None else str(estimate.pages + 1)
    line = f"{step.how} {' '.join(step.pattern).strip()}  expected: {count} matches"
    if estimate.dynamic:
        line += f" ({estimate.dynamic} labelled)"
    line += f" on {pages} pages  done:"
    whole = step.fragment
    if step.lookup is not None:
        whole = step.lookup.whole
        line += f" {step.lookup.keys} keys by {step.lookup.asked} requests"
    if whole is not None:
        line += f" {'and ' if step.lookup is not None else ''}{whole.pages} pages"
    if step.output is not None:
        line += f", {step.output.rows} rows"
    return line


def step_json(step: Step, began: datetime) -> dict[str, Any]:
    """A step as a JSON object: what `explain_plan` says, ``None`` for what nobody knows.

    Args:
        step: the step.
        began: when the last evaluation began: ``seconds`` later its last solution came or went;
            ``None``: none did.
    """
    last = None if step.output is None else step.output.last
    seconds = None if last is None or last < began else (last - began).total_seconds()
    estimate = step.estimate
    lookup = step.lookup
    whole = step.fragment if lookup is None else lookup.whole
    return {
        "pattern": " ".join(step.pattern).strip(),
        "how": step.how,
        "part": step.part,
        "fed": step.fed,
        "expected": {
            "matches": estimate.count,
            "labelled": estimate.dynamic,
            "pages": None if estimate.pages is None else estimate.pages + 1,
        },
        "done": {
            "keys": None if lookup is None else lookup.keys,
            "requests": None if lookup is None else lookup.asked,
            "pages": None if whole is None else whole.pages,
            "rows": None if step.output is None else step.output.rows,
            "seconds": seconds,
        },
    }
