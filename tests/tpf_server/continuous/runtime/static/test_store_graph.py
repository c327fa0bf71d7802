"""A graph of static data that is a store on disk."""

from typing import cast

import pytest

from annotations.terms import Quad, QuadPattern, Term
from tpf_server.continuous.runtime.static.static_data import StoreGraph
from tpf_server.store.protocols import StaticStore


class Counting:
    """A store of numbered triples, which counts how many it reads."""

    version = "1"

    def __init__(self, size: int) -> None:
        self.size = size
        self.read = 0
        self.pages = 0

    def quads(self, _pattern: QuadPattern, offset: int, limit: int) -> list[Quad]:
        numbers = range(self.size)[offset : offset + limit]
        self.read += len(numbers)
        self.pages += 1
        return [Quad(Term("<s>"), Term("<p>"), Term(f'"{number}"')) for number in numbers]


@pytest.mark.parametrize("size", [0, 1, 19, 20, 21, 219, 220, 221, 12_219, 12_220, 30_000])
def test_all_triples_are_read_once_in_few_pages(size: int) -> None:
    store = Counting(size)
    found = [each for _, _, each in StoreGraph(cast("StaticStore", store)).match(None, None, None)]
    assert found == [f'"{number}"' for number in range(size)]
    assert store.read == size
    assert store.pages <= 5 + size // 10_000


def test_who_asks_whether_there_is_any_reads_few() -> None:
    store = Counting(1_000_000)
    assert next(StoreGraph(cast("StaticStore", store)).match(None, None, None))
    assert store.read <= 100
