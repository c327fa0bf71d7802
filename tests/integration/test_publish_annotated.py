"""A view published to another server shows the same facts there."""

from datetime import timedelta
from pathlib import Path

import pytest

from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.terms import Quad
from tests.support.served import BASE, NOON, Served, quad

QUADS = [
    quad("t1", "delay", '"60"^^<http://www.w3.org/2001/XMLSchema#integer>'),
    quad("t1", "platform", '"7 \\"a\\"\\n"@de', "ghent"),
    quad("t2", "delay", "t1"),
]


@pytest.mark.parametrize("labelling", ["expiration", "interval"])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_pages_can_be_published_again(method: Method, labelling: str, tmp_path: Path) -> None:
    end = NOON + timedelta(minutes=1)
    label: Label = Expiration(end) if labelling == "expiration" else Interval(NOON, end)
    facts = [Fact(one, label) for one in QUADS]
    path = f"trains/{method.name}"
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    with Served(folders[0]) as first, Served(folders[1]) as second:
        first.publish(*((one, label) for one in QUADS))
        body = "".join(f"{' '.join(one).strip()} .\n" for one in first.fragment(path))
        response = second.post(body, query=f"annotation={method.name}")
        assert response.status_code == 201, response.text
        assert sorted(second.fragment(path)) == sorted(first.fragment(path))
        naming = Naming(f"{BASE}trains/facts/", BASE + path)
        assert set(method.decode(second.fragment(path), naming)) == set(facts)


def test_the_method_is_found_out(tmp_path: Path) -> None:
    label = Expiration(NOON + timedelta(minutes=1))
    naming = Naming("http://elsewhere.example/", "http://elsewhere.example/")
    for method in METHODS:
        folder = tmp_path / method.name
        folder.mkdir()
        with Served(folder) as served:
            quads: list[Quad] = method.encode(Fact(QUADS[1], label), naming)
            response = served.post("".join(f"{' '.join(one).strip()} .\n" for one in quads))
            assert response.status_code == 201, response.text
            assert served.fragment("trains") == [QUADS[1]]
