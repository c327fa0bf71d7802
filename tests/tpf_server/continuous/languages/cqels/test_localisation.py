"""The localisation scenario of the CQELS paper, tick by tick."""

from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.semantics import CQELS, PAPER

QUERY = """
PREFIX : <urn:>
CONSTRUCT { ?p2 :reaches ?p1 }
WHERE {
  STREAM :S [NOW] { ?p1 :detectedAt ?l1 }
  STREAM :S [RANGE 2ms] { ?p2 :detectedAt ?l2 }
  ?l1 :conn ?l2
}
"""
ROOMS = [("r1", "r2"), ("r1", "r3"), ("r2", "r1"), ("r3", "r1")]
DETECTED = [("m0", "r1"), ("m1", "r2"), ("m2", "r1"), ("m3", "r2")]
REACHES = [[], [("m0", "m1")], [("m1", "m2")], [("m2", "m3")]]


def test_the_table_of_the_paper():
    """The paper's table omits that the window of 2 still holds tick t - 2.

    Its definition says t' >= t - T: at tick 2 m0 of tick 0 is in the room of m2, at tick 3 m1
    of tick 1
    in that of m3; neither is connected with itself.
    """
    for policy in (CQELS, PAPER):
        engine = Engine(EngineSettings(semantics=policy))
        engine.add([(f"<urn:{a}>", "<urn:conn>", f"<urn:{b}>") for a, b in ROOMS])
        query = engine.register(QUERY)
        for tick, (person, room) in enumerate(DETECTED):
            engine.push("urn:S", (f"<urn:{person}>", "<urn:detectedAt>", f"<urn:{room}>"), tick)
        emitted = {each.at: each.rows for each in query}
        for tick, expected in enumerate(REACHES):
            rows = [(f"<urn:{one}>", "<urn:reaches>", f"<urn:{two}>") for one, two in expected]
            assert list(emitted.get(tick, ())) == rows, (policy.name, tick)
