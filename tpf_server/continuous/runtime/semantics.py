"""Named policies for emissions; ``docs/continuous-queries.md`` has an example of each."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from tpf_client.dataflow.operators.multiway_join import Routing
from tpf_client.sparql.algebra import Call, Query
from tpf_client.sparql.rewrite.visitor import everything

Kernel = Literal["compiled", "off"]
KERNELS: Final[tuple[Kernel, ...]] = get_args(Kernel)


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """The limits of an engine.

    Args:
        queries: registered at the same time.
        window_rows: entries in the windows of one query; in CQELS-QL checked every 64 arrivals.
        backlog: emissions or answers that wait for a reader.
        join_rows: rows that the joins of a query in CQELS-QL may make, and it may emit, at once;
            each triple gives back a hundredth of it. Expressions may read 64 characters for each.
    """

    queries: int = 10_000
    window_rows: int = 10_000_000
    backlog: int = 1_000_000
    join_rows: int = 1_000_000


# NOW() in continuous queries: it changes while nothing comes, which dataflows do not see.


def says_now(query: Query) -> bool:
    """True if NOW() stands anywhere in a query."""
    return any(isinstance(each, Call) and each.name == "NOW" for each in everything(query))


# What the IRIs of continuous queries are relative to, where nobody says anything else.

BASE: Final = "http://localhost/"


@dataclass(frozen=True, slots=True)
class Semantics:
    """How solutions become output.

    Args:
        relation: ``istream`` emits what comes, ``dstream`` what goes, ``rstream`` the whole result
            at each arrival, ``answer`` that where it has changed, also when nothing is left.
        nets: of bags of solutions, as SPARQL has them, the difference to that before the arrival
            counts (paper 000, section 3.2: the streaming operator). If not, every solution comes
            as often as the arrival derives it anew, the row of a group once for each new solution
            in it, and sub-queries over static data are distinct over the variables that occur
            elsewhere.
    """

    name: str
    relation: Literal["istream", "dstream", "rstream", "answer"] = "istream"
    nets: bool = True


CQELS: Final = Semantics("cqels", nets=False)
"""The model of the conference scenario, as the original engine behaves."""

PAPER: Final = Semantics("paper")
"""Paper 000, section 3.2: SPARQL's bags, and the difference of successive results."""

PAPER_DSTREAM: Final = Semantics("paper-dstream", "dstream")
"""As `PAPER`, but emits what leaves the result."""

PAPER_RSTREAM: Final = Semantics("paper-rstream", "rstream")
"""As `PAPER`, but emits the whole result at each arrival."""

PAPER_ANSWER: Final = Semantics("paper-answer", "answer")
"""As `PAPER`, but emits the whole result whenever it changes."""

_POLICIES = (CQELS, PAPER, PAPER_DSTREAM, PAPER_RSTREAM, PAPER_ANSWER)
SEMANTICS: Final = {policy.name: policy for policy in _POLICIES}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How an engine treats elements and queries.

    Args:
        base: what relative IRIs in queries are relative to.
        semantics: what queries in CQELS-QL emit, where registration says nothing else.
        lateness: milliseconds that elements wait, to be put in order.
        create_streams: naming a stream makes it.
        share: queries that differ in constants only share a plan.
        kernel: what takes batches of records; ``None``: what the environment says.
        skip_idle: queries that answer between elements leave out instants at which nothing is in
            their windows.
    """

    base: str = BASE
    semantics: Semantics = CQELS
    lateness: int = 0
    create_streams: bool = True
    share: bool = True
    routing: Routing = "reviewed"
    kernel: Kernel | None = None
    skip_idle: bool = False
