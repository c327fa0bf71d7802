"""A view published to another server shows the same facts there."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.methods.base import Naming
from tests.support.served import BASE, NOON, Served, quad

QUADS = [
    quad("t1", "delay", '"60"^^<http://www.w3.org/2001/XMLSchema#integer>'),
    quad("t1", "platform", '"7 \\"a\\"\\n"@de', "ghent"),
    quad("t2", "delay", "t1"),
]


@pytest.mark.parametrize("labelling", ["expiration", "interval"])
def test_pages_can_be_published_again(labelling: str, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with Served(folders[0]) as first, Served(folders[1]) as second:
        # What each method says is new: the end of the labels.
        for number, method in enumerate(METHODS, 1):
            end = NOON + number * timedelta(minutes=1)
            label: Label = Expiration(end) if labelling == "expiration" else Interval(NOON, end)
            path = f"trains/{method.name}"
            first.publish(*((one, label) for one in QUADS))
            body = "".join(f"{' '.join(one).strip()} .\n" for one in first.fragment(path))
            response = second.post(body, query=f"annotation={method.name}")
            assert response.status_code == 201, response.text
            assert sorted(second.fragment(path)) == sorted(first.fragment(path))
            naming = Naming(f"{BASE}trains/facts/", BASE + path)
            facts = {Fact(one, label) for one in QUADS}
            assert set(method.decode(second.fragment(path), naming)) == facts
