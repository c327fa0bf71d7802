"""A periodic query: how many cars passed each tollgate in the last ten minutes, every five?

usage: python csparql_query.py                         (needs: pip install ".[server]")
"""

from tpf_server.continuous.continuous_engine import Engine

GATES = "http://example.org/tollgates"
REGISTERS = "http://example.org/traffic#registers"
QUERY = f"""
REGISTER QUERY Passages AS
SELECT DISTINCT ?gate ?passages
FROM STREAM <{GATES}> [RANGE 10m STEP 5m]
WHERE {{ ?gate <{REGISTERS}> ?car }}
AGGREGATE {{ (?passages, COUNT, {{?gate}}) }}"""
MINUTE = 60_000


def main() -> None:
    engine = Engine()
    engine.register_csparql(QUERY, lambda answer: print(answer.at // MINUTE, *sorted(answer.rows)))
    for minute, gate, car in ((1, "north", 156), (2, "south", 75), (6, "north", 130)):
        element = (f"<urn:{gate}>", f"<{REGISTERS}>", f'"{car}"')
        engine.push(GATES, element, minute * MINUTE)
    engine.advance(15 * MINUTE)


if __name__ == "__main__":
    main()
