"""Random small graphs and random SPARQL texts that touch every operator."""

from hypothesis import strategies as st

from annotations.namespaces import XSD
from annotations.terms import DEFAULT_GRAPH, Quad, Term

PREFIX = "PREFIX : <http://e/> PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "


def _iri(name: str) -> Term:
    return Term(f"<http://e/{name}>")


SUBJECTS = [_iri(name) for name in "abc"]
PREDICATES = [_iri(name) for name in "pqr"]
LITERALS = [
    *(Term(f'"{number}"^^<{XSD}integer>') for number in (0, 1, 2, 7)),
    Term(f'"1.5"^^<{XSD}decimal>'),
    Term('"x"'),
    Term('"x"@en'),
    Term('"1"'),
    Term(f'"true"^^<{XSD}boolean>'),
]
GRAPHS = [_iri("g"), _iri("h")]

triples = st.builds(
    lambda s, p, o, g: Quad(s, p, o, g),
    st.sampled_from(SUBJECTS),
    st.sampled_from(PREDICATES),
    st.sampled_from(SUBJECTS + LITERALS),
    st.sampled_from([DEFAULT_GRAPH, DEFAULT_GRAPH, DEFAULT_GRAPH, *GRAPHS]),
)
# A path of no steps from a term that the graph lacks has a solution by section 18.4 of the
# specification, but none in pyoxigraph; so the terms that queries mention are always there.
ALWAYS = Quad(_iri("a"), _iri("r"), _iri("b"))
graphs = st.frozensets(triples, min_size=3, max_size=20).map(lambda quads: quads | {ALWAYS})

VARIABLES = ["?u", "?v", "?w"]
variables = st.sampled_from(VARIABLES)
_subjects = st.one_of(variables, variables, variables, st.sampled_from([":a", ":b"]))
_objects = st.one_of(
    variables, variables, variables, variables, st.sampled_from([":a", ":b", "1", '"x"'])
)
_links = st.sampled_from([":p", ":q", ":r"])
_paths = st.one_of(
    _links,
    _links.map(lambda p: f"^{p}"),
    st.tuples(_links, _links).map("/".join),
    _links.map(lambda p: f"{p}*"),
    _links.map(lambda p: f"{p}+"),
    _links.map(lambda p: f"{p}?"),
    _links.map(lambda p: f"(^{p}/:q)+"),
    _links.map(lambda p: f"(:p|{p})*"),
    # Not both directions in one: pyoxigraph takes their union as a set, section 18.4 as a bag.
    st.sampled_from(["!(:p|:q)", "!^:q"]),
)
triple_patterns = st.one_of(
    st.tuples(_subjects, st.one_of(_links, _links, variables), _objects).map(" ".join),
    st.tuples(_subjects, _links, _objects).map(" ".join),
)
_ends = st.one_of(variables, variables, st.sampled_from([":a", ":b"]))
path_patterns = st.one_of(
    st.tuples(_subjects, _paths, _ends).map(" ".join),
    # Two ends that both ways connect are two solutions by section 18.4, one in pyoxigraph.
    st.tuples(_subjects, st.sampled_from(["(:p|:q)", "(:r|:p)", "(^:p|:q)"]), _ends).map(
        lambda parts: f"{{ SELECT DISTINCT * {{ {' '.join(parts)} }} }}"
    ),
)

constants = st.sampled_from(["1", "2", "1.5", '"x"', ":a", "true", '"x"@en'])
_atoms = st.one_of(variables, variables, constants)
# An order with a plain value on one side: pyoxigraph orders an IRI, or a text with a language, and
# itself; section 17.3 does not.
_ordered = st.sampled_from(["1", "2", "1.5", '"x"', "true"])
_comparisons = st.one_of(
    st.tuples(_atoms, st.sampled_from(["=", "!="]), _atoms),
    st.tuples(_atoms, st.sampled_from(["<", ">="]), _ordered),
).map(lambda parts: f"({' '.join(parts)})")
_tests = st.one_of(
    _comparisons,
    _comparisons,
    variables.map(lambda v: f"BOUND({v})"),
    variables.map(lambda v: f"ISLITERAL({v})"),
    variables.map(lambda v: f"ISNUMERIC({v})"),
    st.tuples(variables, constants, constants).map(lambda p: f"({p[0]} IN ({p[1]}, {p[2]}))"),
    st.tuples(variables, variables).map(lambda p: f"SAMETERM({p[0]}, {p[1]})"),
    variables.map(lambda v: f'(STRLEN(STR({v})) > 1 || {v} = "x")'),
)


def _bgp(patterns: list[str]) -> str:
    return " . ".join(patterns)


_bgps = st.lists(triple_patterns, min_size=1, max_size=2).map(_bgp)


def _with_filter(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(inner, conditions(inner)).map(lambda p: f"{p[0]} FILTER({p[1]})")


def conditions(patterns: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return conditions, with EXISTS over such patterns."""
    exists = st.tuples(st.sampled_from(["EXISTS", "NOT EXISTS"]), patterns).map(
        lambda p: f"{p[0]} {{ {p[1]} }}"
    )
    return st.one_of(
        _tests,
        _tests,
        st.tuples(_tests, st.sampled_from(["&&", "||"]), _tests).map(" ".join),
        _tests.map(lambda t: f"!({t})"),
        exists,
        exists,
        exists,
        st.tuples(_tests, exists).map(" || ".join),
    )


_computed = st.one_of(
    st.sampled_from([":a", ":c", "1 / 0", "1 / 0", "?z"]),
    variables.map(lambda v: f"IF(ISIRI({v}), {v}, 1 / 0)"),
    variables.map(lambda v: f"IRI(CONCAT('http://e/', STR({v})))"),
)


def _by_key(pattern: str, counted: str, computed: str, optional: str) -> str:
    # The specification leaves open what a key is that the pattern binds already.
    key = "?k" + "g" * pattern.count("AS ?k")
    return (
        f"{{ SELECT {key} (COUNT({counted}) AS ?n) {{ {pattern} }}"
        f" GROUP BY (COALESCE({computed}) AS {key}) }}"
        f" OPTIONAL {{ {{ {optional} }} {key} :p {counted} }}"
    )


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    both = st.tuples(inner, inner)
    return st.one_of(
        both.map(lambda p: f"{{ {p[0]} }} {{ {p[1]} }}"),
        both.map(lambda p: f"{p[0]} OPTIONAL {{ {p[1]} }}"),
        st.tuples(inner, inner, _tests).map(
            lambda p: f"{p[0]} OPTIONAL {{ {p[1]} FILTER({p[2]}) }}"
        ),
        both.map(lambda p: f"{{ {p[0]} }} UNION {{ {p[1]} }}"),
        both.map(lambda p: f"{p[0]} MINUS {{ {p[1]} }}"),
        _with_filter(inner),
        _with_filter(inner),
        st.tuples(inner, variables, constants).map(
            lambda p: f"{p[0]} VALUES ({p[1]} ?z) {{ ({p[2]} 1) (UNDEF 2) (:a UNDEF) }}"
        ),
        st.tuples(inner, _atoms).map(lambda p: f"{{ {p[0]} }} BIND({p[1]} AS ?k)"),
        # What is computed, or an error, meets a pattern.
        st.tuples(inner, _computed, _links, _objects).map(
            lambda p: f"{{ {p[0]} }} BIND({p[1]} AS ?k) {{ ?k {p[2]} {p[3]} }}"
        ),
        st.tuples(inner, _computed, _links, _objects).map(
            lambda p: f"{{ {p[0]} }} BIND({p[1]} AS ?k) OPTIONAL {{ ?k {p[2]} {p[3]} }}"
        ),
        # The same before anything else, and a set function of nothing: keys of all that follows.
        st.tuples(_computed, variables, inner).map(
            lambda p: f"{{ BIND({p[0]} AS {p[1]}) }} {p[2]}"
        ),
        st.tuples(_computed, variables, inner).map(
            lambda p: f"{{ BIND({p[0]} AS {p[1]}) }} MINUS {{ {p[2]} }}"
        ),
        st.tuples(_computed, variables, inner, inner).map(
            lambda p: f"{{ BIND({p[0]} AS {p[1]}) }} OPTIONAL {{ {p[2]} }} {{ {p[3]} }}"
        ),
        st.tuples(variables, _links, inner).map(
            lambda p: f"{{ SELECT (MAX(?z) AS {p[0]}) {{ ?x {p[1]} ?y }} }} {p[2]}"
        ),
        st.tuples(inner, variables, _computed, inner).map(lambda p: _by_key(*p)),
        st.tuples(inner, variables, st.sampled_from([":a", ":b", "1"])).map(
            lambda p: f"VALUES {p[1]} {{ {p[2]} }} {p[0]}"
        ),
        st.tuples(inner, variables).map(
            lambda p: f"{{ SELECT DISTINCT {p[1]} WHERE {{ {p[0]} }} }}"
        ),
        st.tuples(inner, variables, variables).map(
            lambda p: (
                f"{{ SELECT {p[1]} (COUNT({p[2]}) AS ?n) WHERE {{ {p[0]} }} GROUP BY {p[1]} }}"
            )
        ),
        st.tuples(_bgps, st.sampled_from([":g", "?g"])).map(lambda p: f"GRAPH {p[1]} {{ {p[0]} }}"),
        path_patterns,
    )


groups = st.recursive(_bgps, _grow, max_leaves=4)

# MIN and MAX go by the order of ORDER BY (section 18.5.1.5), which section 15.1 leaves open between
# literals that ``<`` does not compare. There pyoxigraph has no order to agree with: each of 9, 10
# and "2" is smaller than the next, so its answer hangs on which of them comes first. So the
# arguments of MIN and MAX are of one kind here: texts, numbers, or IRIs.
_distinct = st.sampled_from(["", "DISTINCT "])
_aggregates = st.one_of(
    st.tuples(st.sampled_from(["COUNT", "SUM", "AVG"]), _distinct, variables),
    st.tuples(
        st.sampled_from(["MIN", "MAX"]),
        _distinct,
        st.tuples(
            st.sampled_from(["STR({0})", "IF(ISNUMERIC({0}), {0}, -1)", "IF(ISIRI({0}), {0}, :a)"]),
            variables,
        ).map(lambda parts: parts[0].format(parts[1])),
    ),
).map(lambda parts: f"{parts[0]}({parts[1]}{parts[2]})")

queries = st.one_of(
    groups.map(lambda g: f"{PREFIX} SELECT * WHERE {{ {g} }}"),
    groups.map(lambda g: f"{PREFIX} SELECT * WHERE {{ {g} }}"),
    groups.map(lambda g: f"{PREFIX} ASK {{ {g} }}"),
    st.tuples(groups, variables).map(
        lambda p: f"{PREFIX} SELECT DISTINCT {p[1]} WHERE {{ {p[0]} }}"
    ),
    st.tuples(groups, _aggregates, variables).map(
        lambda p: f"{PREFIX} SELECT {p[2]} ({p[1]} AS ?agg) WHERE {{ {p[0]} }} GROUP BY {p[2]}"
    ),
    st.tuples(groups, _aggregates).map(
        lambda p: f"{PREFIX} SELECT ({p[1]} AS ?agg) (COUNT(*) AS ?all) WHERE {{ {p[0]} }}"
    ),
)
