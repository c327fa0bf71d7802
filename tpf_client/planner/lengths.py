"""How long fragments are in truth, where their servers' counts are wrong."""

import math
from dataclasses import replace

from annotations.terms import QuadPattern
from tpf_client.planner.live_fragment import canonical_pattern
from tpf_client.planner.source import Estimate, Source

SURPRISE = 2
"""How many times as many pages as were promised are a reason to plan anew."""


class Lengths:
    """What was found out about fragments that are longer than their servers say."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, QuadPattern], int] = {}

    def learn(self, source: Source, pattern: QuadPattern, pages: int) -> None:
        """A fragment has more than so many pages."""
        self._pages[source.url, canonical_pattern(pattern)] = pages

    def knows(self, source: Source, pattern: QuadPattern) -> bool:
        """Whether a fragment is longer than its server says."""
        return (source.url, canonical_pattern(pattern)) in self._pages

    def corrected(self, source: Source, pattern: QuadPattern, estimate: Estimate) -> Estimate:
        """What a server says of a fragment, in the light of what was found out.

        A fragment of unknown length is taken for four times as long as was read of it: so what is
        read in vain is a part of the whole, however long that is.
        """
        pages = self._pages.get((source.url, canonical_pattern(pattern)))
        if pages is None or estimate.pages is None or estimate.count is None:
            return estimate
        times = SURPRISE**2 * pages / (estimate.pages + 1)
        return replace(
            estimate,
            count=math.ceil(estimate.count * max(times, 1)),
            pages=max(math.ceil(SURPRISE**2 * pages), estimate.pages),
        )
