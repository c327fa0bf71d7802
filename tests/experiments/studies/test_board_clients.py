"""The client processes of measurements, where something goes wrong."""

from experiments.free_port import free_port
from experiments.studies.processes import Seen, Streamers


def test_a_query_whose_first_evaluation_fails_is_told_of() -> None:
    """Otherwise it would be waited for."""
    seen = Seen(1)
    order = {
        "url": f"http://127.0.0.1:{free_port()}/nobody", "shared": False, "jitter": 0.0,
        "queries": ["SELECT * { ?s ?p ?o }"],
    }  # fmt: skip
    clients = Streamers(order, seen)
    try:
        assert seen.ready.wait(60)
    finally:
        clients.close()
    told = seen.to_json()
    assert told["failed"] == 1
    assert "/nobody" in told["errors"][0]
