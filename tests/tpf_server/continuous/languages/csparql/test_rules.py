"""Each rewriting rule changes the plan; for answers see `test_against_reference`."""

from annotations.terms import Term
from tpf_server.continuous.languages.csparql.parser import parse
from tpf_server.continuous.runtime.instants.drawing import drawn
from tpf_server.continuous.runtime.instants.operator_graph import (
    Knowledge,
    OperatorGraph,
    operator_graph,
)
from tpf_server.continuous.runtime.instants.rules import (
    RULES,
    RULES_ON_SPARK,
    Rule,
    collapse_groups,
    distribute_partially,
    distribute_totally,
    merge_joined_patterns,
    optimised,
    push_filters,
    push_projections,
)

BROKERS = """
PREFIX b: <http://e/b#> PREFIX x: <http://e/x#>
SELECT DISTINCT ?broker ?total
FROM STREAM <http://e/market> [RANGE 10ms TUMBLING]
WHERE { ?broker b:is_from ?country . ?broker x:does ?tx . ?tx x:with ?amount .
        FILTER (?country = 'CH' && ?amount >= 10) }
AGGREGATE { (?total, SUM(?amount), ?broker) }
"""
SELLERS = """
PREFIX x: <http://e/x#>
SELECT %s
FROM STREAM <http://e/market> [RANGE 10ms TUMBLING]
FROM STREAM <http://e/other> [RANGE 10ms TUMBLING]
WHERE { GRAPH ?market { ?tx x:by ?broker . ?tx x:with ?amount } }
AGGREGATE { (?total, %s, {%s}) }
"""
BY_MARKET = SELLERS % ("?broker ?market ?total", "SUM(?amount)", "?broker, ?market")
OVER_MARKETS = SELLERS % ("DISTINCT ?broker ?total", "AVG(?amount)", "?broker")
DISTINCT_AMOUNTS = SELLERS % ("DISTINCT ?broker ?total", "COUNT(DISTINCT ?amount)", "?broker")


def initial(text: str) -> OperatorGraph:
    declared = frozenset(Term(f"<http://e/x#{name}>") for name in ("does", "with", "by"))
    predicates = {Term(f"<{name}>"): declared for name in ("http://e/market", "http://e/other")}
    static = "<http://e/b#is_from>"
    return operator_graph(
        parse(text), (), Knowledge(predicates, lambda pattern, _: pattern.predicate == static)
    )


def unchanged(rule: Rule, graph: OperatorGraph) -> bool:
    return rule(graph).pattern == graph.pattern


def test_merging_puts_together_what_has_the_same_source() -> None:
    graph = initial(BROKERS)
    before = """\
SELECT result ?broker ?total
  distinct
    project ?broker ?total
      aggregation ?total = SUM(?amount) by ?broker
        filter ((?country = "CH") && (?amount >= "10"^^<http://www.w3.org/2001/XMLSchema#integer>))
          join
            join
              graph pattern (static) { ?broker <http://e/b#is_from> ?country }
                graph of the repository
              graph pattern (streaming) { ?broker <http://e/x#does> ?tx }
                window RANGE 10ms TUMBLING
                  stream <http://e/market>
            graph pattern (streaming) { ?tx <http://e/x#with> ?amount }
              window RANGE 10ms TUMBLING
                stream <http://e/market>
"""
    assert drawn(graph) == before
    stream_patterns = "?broker <http://e/x#does> ?tx . ?tx <http://e/x#with> ?amount"
    joined = f"""\
          join
            graph pattern (static) {{ ?broker <http://e/b#is_from> ?country }}
              graph of the repository
            graph pattern (streaming) {{ {stream_patterns} }}
              window RANGE 10ms TUMBLING
                stream <http://e/market>
"""
    start = before.index("          join")
    assert drawn(merge_joined_patterns(graph)) == before[:start] + joined


def test_filters_go_to_static_and_streaming_data() -> None:
    after = drawn(push_filters(merge_joined_patterns(initial(BROKERS))))
    assert after.index("join") < after.index('filter (?country = "CH")')
    lines = after.splitlines()
    for condition, pattern in [('(?country = "CH")', "static"), ("(?amount >= ", "streaming")]:
        (place,) = [n for n, line in enumerate(lines) if condition in line]
        assert lines[place + 1].strip().startswith(f"graph pattern ({pattern})")


def test_filters_on_aggregates_stay_above_them() -> None:
    text = BROKERS.replace("?broker) }", "?broker) FILTER(?total > 1 && ?amount > 11) }")
    after = drawn(push_filters(initial(text)))
    # The amount is no grouping variable: below, other transactions would be summed.
    assert after.index("(?amount > ") < after.index("aggregation")
    by_key = BROKERS.replace("?broker) }", "?broker) FILTER(ISIRI(?broker)) }")
    after = drawn(push_filters(initial(by_key)))
    assert after.index("aggregation") < after.index("filter ISIRI(?broker)")


def test_projections_drop_what_nobody_needs() -> None:
    graph = push_projections(merge_joined_patterns(initial(BROKERS)))
    text = drawn(graph)
    assert "project ?broker ?amount\n" in text
    assert text.index("join") < text.index("project ?broker ?amount")


def test_aggregates_of_disjoint_streams_are_distributed() -> None:
    graph = initial(BY_MARKET)
    assert drawn(graph).index("aggregation") < drawn(graph).index("union")
    after = drawn(distribute_totally(graph))
    assert after.count("aggregation ?total = SUM(?amount) by ?broker ?market") == 2
    assert after.index("union") < after.index("aggregation")
    # Over all markets no stream has whole groups.
    assert unchanged(distribute_totally, initial(OVER_MARKETS))


def test_on_spark_there_is_one_aggregation_of_all_streams() -> None:
    graph = initial(BY_MARKET)
    assert drawn(optimised(graph, RULES)).count("aggregation") == 2
    assert drawn(optimised(graph, RULES_ON_SPARK)).count("aggregation") == 1


def test_aggregates_over_streams_are_combined_from_parts() -> None:
    graph = distribute_partially(collapse_groups(initial(OVER_MARKETS)))
    text = drawn(graph)
    assert text.count("group by ?broker: ") == 3
    assert text.index("group by") < text.index("union") < text.rindex("group by")
    assert "extend ?total = (?.gtotal·sum / ?.gtotal·count)" in text
    # Distinct amounts of parts do not add up.
    collapsed = collapse_groups(initial(DISTINCT_AMOUNTS))
    assert unchanged(distribute_partially, collapsed)


def test_groups_collapse_only_under_distinct() -> None:
    assert "group by ?broker" in drawn(collapse_groups(initial(BROKERS)))
    every = BROKERS.replace("DISTINCT ", "")
    assert unchanged(collapse_groups, initial(every))
    member = BROKERS.replace("?broker ?total", "?broker ?tx ?total")
    assert unchanged(collapse_groups, initial(member))
