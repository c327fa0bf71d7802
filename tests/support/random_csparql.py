"""Random C-SPARQL queries with equivalent SPARQL at an instant, and random streams."""

from hypothesis import strategies as st

from tests.support.csparql_reference import Clause
from tests.support.random_queries import LITERALS, PREDICATES, SUBJECTS, graphs, groups

STREAMS = ["http://e/s1", "http://e/s2"]

triples = st.tuples(
    st.sampled_from(SUBJECTS), st.sampled_from(PREDICATES), st.sampled_from(SUBJECTS + LITERALS)
)
timelines = st.lists(
    st.tuples(st.sampled_from(STREAMS), st.integers(0, 3), triples), min_size=1, max_size=10
)
logical = st.tuples(st.integers(1, 3), st.integers(1, 3)).map(lambda p: (p[0] * p[1], p[1]))
named = st.sampled_from([False, False, True])
clauses = st.tuples(logical, logical, named).map(
    lambda p: [
        Clause(STREAMS[0], p[0][0], p[0][1], named=p[2]),
        Clause(STREAMS[1], p[1][0], p[1][1], named=p[2]),
    ]
)

# Which of a number and a string is the greater one is nobody's business.
NUMBERS = "FILTER(ISNUMERIC(?v) || !ISLITERAL(?v))"

aggregate = st.tuples(
    st.sampled_from(["COUNT", "SUM", "AVG", "MIN", "MAX"]), st.sampled_from("uv"), st.booleans()
)


def _selected(group: str, word: str = "SELECT *") -> tuple[str, str]:
    query = f"{word} {{0}} WHERE {{{{ {group} }}}}"
    return query, query


def _aggregated(group: str, how: tuple[str, str, bool], select: str) -> tuple[str, str]:
    function, argument, distinct = how
    call = f"{function}({'DISTINCT ' if distinct else ''}?{argument})"
    where = f"?u :p ?v . {group} {NUMBERS}"
    csparql = (
        f"{select} {{0}} WHERE {{{{ {where} }}}}"
        f" AGGREGATE {{{{ (?number, {call}, {{{{?u}}}}) (?all, COUNT, ?u) FILTER(?all > 1) }}}}"
    )
    inner = f"SELECT ?u ({call} AS ?number) (COUNT(*) AS ?all) WHERE {{{{ {where} }}}} GROUP BY ?u"
    sparql = f"{select} {{0}} WHERE {{{{ {{{{ {where} }}}} {{{{ {inner} }}}} FILTER(?all > 1) }}}}"
    return csparql, sparql


def _by_graph(how: tuple[str, str, bool], keys: str, select: str) -> tuple[str, str]:
    function, argument, distinct = how
    call = f"{function}({'DISTINCT ' if distinct else ''}?{argument})"
    where = f"GRAPH ?g {{{{ ?u :p ?v }}}} {NUMBERS}"
    key = ", ".join(keys.split())
    csparql = (
        f"SELECT DISTINCT {select} {{0}} WHERE {{{{ {where} }}}}"
        f" AGGREGATE {{{{ (?number, {call}, {{{{{key}}}}}) }}}}"
    )
    inner = f"SELECT {keys} ({call} AS ?number) WHERE {{{{ {where} }}}} GROUP BY {keys}"
    sparql = f"SELECT DISTINCT {select} {{0}} WHERE {{{{ {{{{ {where} }}}} {{{{ {inner} }}}} }}}}"
    return csparql, sparql


def _escaped(group: str) -> str:
    return group.replace("{", "{{").replace("}", "}}")


queries = st.one_of(
    groups.map(_escaped).map(_selected),
    groups.map(_escaped).map(_selected),
    st.tuples(groups.map(_escaped), st.sampled_from(["ASK", "SELECT DISTINCT ?u ?v"])).map(
        lambda p: _selected(*p)
    ),
    st.tuples(groups.map(_escaped), st.just("CONSTRUCT {{ ?u :made ?v . ?v :by ?w }}")).map(
        lambda p: _selected(*p)
    ),
    st.tuples(
        groups.map(_escaped), aggregate, st.sampled_from(["SELECT *", "SELECT DISTINCT ?u ?number"])
    ).map(lambda p: _aggregated(*p)),
    st.tuples(
        aggregate, st.sampled_from(["?u", "?u ?g"]), st.sampled_from(["?u ?number", "?number"])
    ).map(lambda p: _by_graph(*p)),
)

statics = graphs.map(
    lambda quads: "".join(" ".join(term for term in quad if term) + " .\n" for quad in quads)
)
