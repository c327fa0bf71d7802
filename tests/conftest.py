"""How the suite is spread over two cores, and which random examples it tries."""

import pytest
from hypothesis import settings

# The same examples on every machine: a suite that was green stays green. New examples come with
# `pytest --hypothesis-profile=default`.
settings.load_profile("ci")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests together that share something dear: one Spark session, one program of others."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.get_closest_marker("peers"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)))
