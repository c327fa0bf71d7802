"""The two kinds of log for all tests of the live store."""

from collections.abc import Iterator

import pytest

from tests.support.peers import POSTGRES
from tests.support.postgres import Address, Addresses, PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(
    scope="session",
    params=["sqlite", pytest.param("postgres", marks=[pytest.mark.peers, POSTGRES.skip])],
)
def addresses(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Addresses:
    server = request.getfixturevalue("postgres") if request.param == "postgres" else None
    return Addresses(tmp_path_factory.mktemp("live"), server.url if server else None)


@pytest.fixture
def address(addresses: Addresses) -> Address:
    return addresses.new()
