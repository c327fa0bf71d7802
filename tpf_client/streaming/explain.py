"""What of a continuous query is static, what is dynamic, and why, as text and as JSON."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from annotations.instants import LAST, format_instant
from annotations.terms import QuadPattern, is_variable
from tpf_client.planner.evaluation import Evaluation
from tpf_client.planner.explain import explain_plan, step_json
from tpf_client.planner.leaves import FragmentLeaves, Step
from tpf_client.planner.live_fragment import LiveFragment, canonical_pattern
from tpf_client.planner.plan_tree import plan_tree
from tpf_client.streaming.detection import Detected

_HOW = {
    "labels": "labels travel with the pages",
    "freshness": "the server's answers change, without labels: HTTP tells for how long they hold",
    "static": "nothing is labelled: the answer cannot change",
}


def explain_stream(detected: Detected, evaluation: Evaluation, plan: Sequence[Step]) -> str:
    """How each dataset is labelled, and of each step of the plan whether it changes.

    Args:
        detected: how the datasets are labelled.
        evaluation: the query, evaluated at least once.
        plan: its steps.
    """
    parts = detected.parts or (detected,)
    lines = [f"{part.source.url}: {_labelling(part)}" for part in parts]
    for number, step in enumerate(plan, 1):
        lines.append(f"{number}. {explain_plan([step]).removeprefix('1. ')}")
        kind, why = _change(step, evaluation)
        lines.append(f"   {kind}: {why}" if kind else f"   {why}")
    return "\n".join(lines)


def stream_json(
    detected: Detected, evaluation: Evaluation, leaves: FragmentLeaves, began: datetime
) -> dict[str, Any]:
    """The same as a JSON object.

    Args:
        detected: how the datasets are labelled.
        evaluation: the query, evaluated at least once.
        leaves: know its plan.
        began: when the last evaluation began.
    """
    plan = leaves.plan
    parts = detected.parts or (detected,)
    steps = []
    for step in plan:
        kind, why = _change(step, evaluation)
        steps.append(step_json(step, began) | {"change": kind, "why": why})
    datasets = [{"url": part.source.url, "labels": _labelling(part)} for part in parts]
    tree = [] if leaves.pattern is None else plan_tree(leaves.pattern, plan)
    return {"datasets": datasets, "steps": steps, "tree": tree}


def _labelling(part: Detected) -> str:
    if part.how != "rewriting":
        return _HOW[part.how]
    ways = [f"{each.method.name} with {each.labelling} labels" for each in part.annotations]
    return f"patterns are rewritten: {', '.join(ways)}"


def _change(step: Step, evaluation: Evaluation) -> tuple[str | None, str]:
    """Whether a step is ``dynamic`` or ``static`` (``None``: nobody knows), and why."""
    wanted = canonical_pattern(step.pattern)
    fragments = [each for each in evaluation.fragments() if _belongs(each, wanted)]
    facts = dict.fromkeys(quad for each in fragments for quad in each.quads())
    held = evaluation.held
    labels = [held.label(quad) for quad in facts if quad in held]
    ends = [label.end for label in labels if label is not None]
    if ends:
        first = format_instant(min(ends))
        return (
            "dynamic",
            f"{len(ends)} of {len(labels)} facts are labelled; the first ends at {first}",
        )
    if any(each.dynamic for each in fragments):
        until = format_instant(min(each.fresh_until for each in fragments if each.dynamic))
        return "dynamic", f"its facts change, none has a label now; fresh until {until}"
    if not facts:
        return None, "nothing matches now, or nothing was asked for"
    due = min(each.due(evaluation.freshness) for each in fragments)
    again = "" if due == LAST else f"; looked at again at {format_instant(due)}"
    return "static", f"none of {len(labels)} facts is labelled{again}"


def _belongs(fragment: LiveFragment, wanted: QuadPattern) -> bool:
    return all(
        is_variable(term) or term == other
        for term, other in zip(wanted, fragment.pattern, strict=True)
    )
