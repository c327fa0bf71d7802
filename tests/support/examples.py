"""How many random examples a test tries: few by default, more by ``TPF_EXAMPLES``.

The profiles of `tests.conftest` have all other settings of random tests.
"""

import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("TPF_EXAMPLES", "1"))
"""How many times as many examples as usual."""


def examples(count: int, *, shrink: bool = True, fixtures: bool = False) -> settings:
    """Return the settings of a test of so many random examples.

    Args:
        count: of examples.
        shrink: those that fail.
        fixtures: all examples share those of the test.
    """
    options: dict[str, Any] = {}
    if not shrink:
        options["phases"] = [Phase.explicit, Phase.reuse, Phase.generate]
    if fixtures:
        options["suppress_health_check"] = list(HealthCheck)
    return settings(max_examples=count * TIMES, **options)
