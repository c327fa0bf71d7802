"""What the papers report: facts with their place, and what has to be measured here to agree.

The papers' machines are others than those of a run, so most claims are ratios; where one is a time
or a rate, ours agrees if it is not worse.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

from experiments.harness.items import Check, Claim

_CQELS = "000"
_TAXI = "001"
_THESIS = "002"
_CSPARQL = "003"
_FRAGMENTS = "004"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "server", "server-vs-client", _FRAGMENTS, "section 6, figure 2a",
        "Clients of fragments never take more than one percent of the server's CPU (12 cores).",
        "12", "% of a core, with the most clients at which the machine was no limit, 200 at most",
        at_most=12.0,
    ),
    Claim(
        "engines", "server-vs-client", _FRAGMENTS, "section 7, figure 2a",
        "The server's cost is more than ten times lower on average than with CQELS and C-SPARQL.",
        "10", "times the CPU, in the mean over engines and numbers of clients", at_least=10.0,
    ),
    Claim(
        "growth", "server-vs-client", _FRAGMENTS, "section 7, figure 2a",
        "It grows much slower with the number of clients.",
        "< 1", "growth per client by the least growth of an engine", at_most=1.0,
    ),
    Claim(
        "start", "server-vs-client", _FRAGMENTS, "section 6, figure 2b",
        "A client of fragments is busy at first (80 %), and later it is not (5 %).",
        "0.063", "CPU of a client later by that at first", at_most=0.5,
    ),
    Claim(
        "idle", "server-vs-client", _FRAGMENTS, "section 6, figure 2b",
        "Clients of CQELS and C-SPARQL need nearly no CPU.",
        "≈ 0", "CPU of an engine's clients by that of clients of fragments, the most",
        at_most=0.1,
    ),
    Claim(
        "expiration", "annotation-methods", _FRAGMENTS, "section 6, figure 3",
        "With expiration times an evaluation costs about the same all the time.",
        "≈ 1", "requests in the last quarter by those in the first", at_most=1.1,
    ),
    Claim(
        "interval", "annotation-methods", _FRAGMENTS, "section 6, figure 3",
        "With intervals an evaluation costs more and more, as history grows.",
        "> 1", "requests in the last quarter by those in the first", at_least=1.1,
    ),
    Claim(
        "graphs", "annotation-methods", _FRAGMENTS, "section 7, figure 3",
        "Of the annotation methods, graphs are the quickest.",
        "< 1", "time per evaluation with named graphs by the least of another, patterns rewritten",
        at_most=1.0,
    ),
    *(
        Claim(
            query, "conference", _CQELS, "section 5.2, table 2",
            f"An event takes {query} of CQELS {microseconds:,} µs, with 10^5 static triples.",
            f"{microseconds:,}", "µs of CPU per event", at_most=float(microseconds),
        )
        for query, microseconds in (
            ("Q1", 470), ("Q2", 3900), ("Q3", 510), ("Q4", 530), ("Q5", 21830),
        )
    ),
    Claim(
        "C-SPARQL", "conference", _CQELS, "section 5.2, table 2",
        "An evaluation by C-SPARQL takes some 700 times as long as an event does in CQELS.",
        "> 700", "times, the most of all queries", at_least=100.0,
    ),
    Claim(
        "flat", "conference", _CQELS, "section 5.2, figure 4",
        "From 10^4 to 10^7 static triples the time per event hardly changes.",
        "≈ 1", "time with the most static triples by that with the fewest, worst query",
        at_most=1.5,
    ),
    Claim(
        "instances", "conference", _CQELS, "section 5.2, figure 5",
        "With 1,000 queries at the same time an event takes about a second.",
        "1,000", "ms of CPU per event with the most queries, worst template", at_most=1000.0,
    ),
    *(
        Claim(
            f"{query} rate", "taxi", _TAXI, "section 4, table 1",
            f"{query}: {seconds} s for the trips of 20 days, about two million.",
            f"≈ {2000 / seconds:.0f},000", "trips per second of CPU, from file to file, 30 minutes",
            at_least=2e6 / seconds,
        )
        for query, seconds in (("Q1", 65.77), ("Q2", 69.02), ("Q1 and Q2", 76.64))
    ),
    *(
        Claim(
            f"{query} delay", "taxi", _TAXI, "section 4, table 1",
            f"{query}: {delay} ms from a trip to its result in the mean.",
            f"{delay}", "ms, trips one by one", at_most=delay,
        )
        for query, delay in (("Q1", 0.022), ("Q2", 0.068))
    ),
    *(
        Claim(
            f"{query} factor", "taxi", _TAXI, "section 4, table 1",
            f"{query}: about {times} times faster than computing every answer anew.",
            f"{times}", "times, 30 minutes", at_least=float(times),
        )
        for query, times in (("Q1", 76), ("Q2", 320), ("Q1 and Q2", 360))
    ),
    Claim(
        "windows", "taxi", _TAXI, "section 4",
        "The delay is almost the same with windows of 30 to 240 minutes.",
        "≈ 1", "median delay with the longest windows by that with the shortest, worst query",
        at_most=1.5,
    ),
    Claim(
        "adaptive", "adaptivity", _THESIS, "abstract",
        "Routes that adapt optimise continuous queries.",
        "< 1", "CPU with reviewed routes by that with fixed ones, geometric mean of all workloads",
        at_most=1.0,
    ),
    *(
        Claim(
            f"filters by {what}", "csparql", _CSPARQL, f"section 5.1, figure {figure}",
            f"Pushing filters and projections makes evaluations quicker, whatever the {much}.",
            "< 1", "CPU with both rules by that without rules, worst of all sizes, native",
            at_most=1.0,
        )
        for what, figure, much in (
            ("window", "7a", "size of the window"), ("data", "7b", "size of the static data"),
        )
    ),
    Claim(
        "filters on Spark", "csparql", _CSPARQL, "section 5.1, figure 7",
        "Pushing filters and projections makes evaluations quicker.",
        "< 1", "CPU with both rules by that without rules, worst of all windows, on Spark",
        at_most=1.0,
    ),
    Claim(
        "aggregates", "csparql", _CSPARQL, "section 5.2",
        "To distribute aggregates over streams always makes them quicker.",
        "< 1", "CPU with the rule by that without rules, worst of all, native", at_most=1.0,
    ),
)  # fmt: skip
"""All of them, in the order of the experiments."""


def checks(experiment: str, found: Mapping[str, Callable[[], float | None]]) -> Iterator[Check]:
    """The claims that an experiment looks into, each with what it found.

    Args:
        experiment: its name.
        found: computes what was found, by the name of the claim; ``None``: it was not measured.
    """
    for claim in CLAIMS:
        if claim.experiment == experiment:
            yield Check(claim, found[claim.name]())


def unmeasured(experiments: Collection[str]) -> list[Check]:
    """The claims that experiments look into, of which nothing was found."""
    return [Check(claim, None) for claim in CLAIMS if claim.experiment in experiments]
