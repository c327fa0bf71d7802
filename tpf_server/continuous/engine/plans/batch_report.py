"""What an explanation says of how a query takes batches of records."""

from collections.abc import Sequence
from typing import Any, Final

from tpf_client.dataflow.kernels import Kernel

OFF: Final = "it is switched off"
REORDERED: Final = "elements wait for late ones, and are put in order one by one"
EVERY: Final = "what has answers at every arrival is evaluated by operators in Python"
OTHERWISE: Final = (
    "only aggregates of groups (COUNT, SUM, AVG, MIN, MAX, MEDIAN), the first of which are shown, "
    "are one state"
)
OTHERS: Final = "another query of the engine takes records one by one"
UNFIT: Final = (
    "operators in Python took records of the last batch: some are ordered by terms that are no "
    "numbers, or have values that are not exact here"
)
FAILED: Final = "operators in Python took over after an error"
AT_INSTANTS: Final = "what is evaluated at instants is evaluated by operators in Python"


def batch_report(
    kernel: Kernel, operators: Sequence[str] = (), reason: str | None = None
) -> dict[str, Any]:
    """What keeps the state of which operators, while records come in batches.

    Args:
        kernel: ``compiled``, or ``off``: the operators, as for all else.
        operators: which are one state there.
        reason: why it is not compiled.
    """
    found: dict[str, Any] = {"kernel": kernel, "operators": list(operators)}
    return found if reason is None else {**found, "reason": reason}
