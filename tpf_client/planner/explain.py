"""A plan as text."""

from collections.abc import Iterable

from tpf_client.planner.leaves import Step


def explain_plan(steps: Iterable[Step]) -> str:
    """The steps of a plan, one per line: what, how, and what was expected and done.

    Args:
        steps: in the order in which they feed each other.
    """
    lines = []
    for number, step in enumerate(steps, 1):
        estimate = step.estimate
        count = "unknown" if estimate.count is None else str(estimate.count)
        line = f"{number}. {step.how} {' '.join(step.pattern).strip()}  matches: {count}"
        if estimate.dynamic:
            line += f" ({estimate.dynamic} labelled)"
        if step.lookup is not None:
            done = step.lookup
            way = "whole fragment" if done.whole else f"{done.asked} requests"
            line += f"  keys: {done.keys} by {way}"
        if step.output is not None:
            line += f"  rows: {step.output.rows}"
        lines.append(line)
    return "\n".join(lines)
