"""What an engine emits and when: named policies.

Engines for continuous queries differ here, so nothing is left implicit. See
``docs/continuous-queries.md`` for each with an example.
"""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Semantics:
    """How solutions become output.

    Args:
        name: what the policy is called.
        output: ``derivations`` emits, at each arrival, every solution that the arrival newly
            derives, as often as it derives it, also where an equal solution was there before;
            ``difference`` emits what the bag of solutions after the arrival has more than the bag
            before it (paper 000, section 3.2: the streaming operator).
        static: ``distinct`` takes every sub-query over static data as distinct over the variables
            that occur elsewhere; ``bag`` keeps multiplicities as SPARQL has them.
        aggregates: ``rows`` emits the row of a group once for each new solution that went into it;
            ``groups`` once if it changed. ``rows`` needs ``derivations``.
        relation: ``istream`` emits what comes, ``dstream`` what goes, ``rstream`` everything that
            is there at each arrival, ``answer`` that where it has changed, also when nothing is
            left (these two with ``difference`` only).
    """

    name: str
    output: Literal["derivations", "difference"]
    static: Literal["distinct", "bag"]
    aggregates: Literal["rows", "groups"]
    relation: Literal["istream", "dstream", "rstream", "answer"] = "istream"


CQELS: Final = Semantics("cqels", "derivations", "distinct", "rows")
"""The model of the conference scenario, as the original engine behaves."""

PAPER: Final = Semantics("paper", "difference", "bag", "groups")
"""Paper 000, section 3.2: SPARQL's bags, and the difference of successive results."""

PAPER_DSTREAM: Final = Semantics("paper-dstream", "difference", "bag", "groups", "dstream")
"""As `PAPER`, but emits what leaves the result."""

PAPER_RSTREAM: Final = Semantics("paper-rstream", "difference", "bag", "groups", "rstream")
"""As `PAPER`, but emits the whole result at each arrival."""

PAPER_ANSWER: Final = Semantics("paper-answer", "difference", "bag", "groups", "answer")
"""As `PAPER`, but emits the whole result whenever it changes."""

_POLICIES = (CQELS, PAPER, PAPER_DSTREAM, PAPER_RSTREAM, PAPER_ANSWER)
SEMANTICS: Final = {policy.name: policy for policy in _POLICIES}
