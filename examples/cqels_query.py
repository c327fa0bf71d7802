"""A continuous query on the native engine: who is in a room that is connected to mine?

usage: python cqels_query.py                           (needs: pip install ".[server]")
"""

from tpf_server.continuous.continuous_engine import Engine

NEAR = "http://example.org/floorplan#connected"
AT = "http://example.org/floorplan#detectedAt"
BADGES = "http://example.org/badges"
QUERY = f"""
SELECT ?one ?other
WHERE {{
  STREAM <{BADGES}> [NOW]      {{ ?one <{AT}> ?here }}
  STREAM <{BADGES}> [RANGE 3s] {{ ?other <{AT}> ?there }}
  ?here <{NEAR}> ?there
}}"""


def main() -> None:
    engine = Engine()
    engine.add([("<urn:hall>", f"<{NEAR}>", "<urn:lab>"), ("<urn:lab>", f"<{NEAR}>", "<urn:hall>")])
    engine.register(QUERY, lambda emission: print(emission.at, *emission.rows))
    for milliseconds, person, room in (
        (1_000, "alice", "hall"),
        (2_000, "bob", "lab"),
        (9_000, "carol", "hall"),  # bob was seen too long ago
    ):
        engine.push(BADGES, (f"<urn:{person}>", f"<{AT}>", f"<urn:{room}>"), milliseconds)


if __name__ == "__main__":
    main()
