"""How many random examples a test tries: few by default, more by ``TPF_EXAMPLES``.

The profiles of `tests.conftest` have all other settings of random tests.
"""

import os
from typing import Any

from hypothesis import Phase, settings

TIMES = int(os.environ.get("TPF_EXAMPLES", "1"))
"""How many times as many examples as usual."""


def examples(count: int, *, shrink: bool = True, **others: Any) -> settings:
    """Return the settings of a test of so many random examples; shrink those that fail."""
    if not shrink:
        others["phases"] = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(max_examples=count * TIMES, **others)
