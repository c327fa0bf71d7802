"""The servers that are measured."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from experiments.harness import servers
from experiments.harness.servers import fragment_server


def test_a_server_knows_nothing_of_one_before_it_in_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise repeated batch ids would be ignored."""
    orders: list[Sequence[str]] = []

    @contextmanager
    def started(_name: str, order: Sequence[str], **_: Any) -> Iterator[None]:
        orders.append(order)
        yield

    monkeypatch.setattr(servers, "started", started)
    monkeypatch.setattr(servers, "await_answer", lambda *_: 0.0)
    for _ in range(2):
        with fragment_server(tmp_path, "[datasets.board]\nlive = true\n"):
            pass
    data = [Path(order[order.index("--data-dir") + 1]) for order in orders]
    assert data[0] != data[1]
    assert not any(each.exists() for each in data)
