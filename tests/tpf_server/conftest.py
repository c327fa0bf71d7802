from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import Served, quad

STATIC = [
    quad("t1", "stop", "ghent"),
    quad("t1", "name", '"IC 1"'),
    quad("t1", "name", '"IC eins"@de'),
    quad("t2", "stop", "ghent"),
    quad("t2", "seats", '"42"^^<http://www.w3.org/2001/XMLSchema#integer>'),
    quad("loop", "knows", "loop"),
    quad("_:b", "knows", "t1"),
    quad("t1", "stop", "bruges", "history"),
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A dataset with eight static quads, three per page, and live facts."""
    with Served(tmp_path, STATIC, settings={"page_size": 3}) as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The same for all tests of a module that change nothing."""
    with Served(tmp_path_factory.mktemp("shared"), STATIC, settings={"page_size": 3}) as server:
        yield server
