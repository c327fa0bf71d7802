"""What is planned anew again and again leaves no earlier instants; engines show the order."""

from tpf_server.continuous.runtime.due_instants import DueInstants


def test_what_was_given_up_does_not_stay() -> None:
    due: DueInstants[int] = DueInstants()
    for at in range(10_000):
        due.plan(at, 0, 0)
    assert len(due.heap) < 100
    assert due.first(9_999) is None
    assert due.first(10_000) == (9_999, 0)
