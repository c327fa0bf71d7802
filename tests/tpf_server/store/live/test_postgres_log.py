"""The log in PostgreSQL: restarts, rights, settings."""

import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from annotations.instants import to_micros
from annotations.labels import Expiration, Fact
from annotations.methods.base import FactPattern
from annotations.terms import Quad, Term
from tests.support.eventually import eventually
from tests.support.peers import POSTGRES
from tests.support.postgres import Address, PostgresServer
from tests.support.served import Served, quad
from tests.tpf_server.web.test_event_stream import nodes
from tpf_server.app import DatasetOpener
from tpf_server.errors import StoreError
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.log import LiveSettings
from tpf_server.store.live.store import LiveStore
from tpf_server.web import event_stream

START = datetime(2026, 1, 1, tzinfo=UTC)
FOR_EVER = Expiration(START + timedelta(days=9))
ALL = FactPattern()

psycopg = pytest.importorskip("psycopg")
pytestmark = [pytest.mark.peers, POSTGRES.skip]


@pytest.fixture
def address(postgres: PostgresServer) -> Address:
    return Address(postgres.url, f"{time.monotonic_ns()}")


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with PostgresServer() as server:
        yield server


def batch(publisher: str, number: int) -> list[Fact]:
    predicate = Term("<http://x/p>")
    return [
        Fact(Quad(Term(f"<http://x/{publisher}-{number}-{n}>"), predicate, Term('"1"')), FOR_EVER)
        for n in range(5)
    ]


def batches_of(store: LiveStore) -> list[str]:
    """The publisher and number of every fact."""
    facts = store.facts(ALL, store.snapshot(START), 0, 1_000_000)
    return sorted(fact.quad.subject[len("<http://x/") : -1].rpartition("-")[0] for fact in facts)


@pytest.mark.parametrize("seed", [1, 2])
def test_restarts_of_the_database_lose_and_double_nothing(
    own_server: PostgresServer, seed: int
) -> None:
    address = Address(own_server.url, "restarted")
    dice = random.Random(seed)
    watching = address.open()
    done = threading.Event()
    acknowledged: dict[str, list[int]] = {"a": [], "b": []}
    failures = {"a": 0, "b": 0, "reader": 0}

    # Before anything is stopped.
    stores = {name: address.open() for name in acknowledged}

    def publish(name: str) -> None:
        store = stores[name]
        number = 0
        while not done.is_set():
            try:
                receipt = store.publish(batch(name, number), START, f"{name}-{number}")
            except StoreError:
                failures[name] += 1
                time.sleep(0.01)
                continue
            # Whether at once or after a failure: what the first try did is told.
            assert receipt.added == 5
            acknowledged[name].append(receipt.sequence)
            number += 1
        store.close()

    def read() -> None:
        last = 0
        while not done.is_set():
            try:
                snapshot = watching.snapshot(START)
            except StoreError:
                failures["reader"] += 1
                continue
            assert snapshot.sequence >= last
            assert watching.count(ALL, snapshot) == 5 * snapshot.sequence
            last = snapshot.sequence

    threads = [threading.Thread(target=publish, args=(name,)) for name in acknowledged]
    threads.append(threading.Thread(target=read))
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(0.1 + dice.random() / 5)
        own_server.stop()
        own_server.start()
    progress = {name: len(numbers) for name, numbers in acknowledged.items()}
    # Both come back.
    eventually(lambda: all(len(acknowledged[name]) >= progress[name] + 3 for name in progress))
    done.set()
    for thread in threads:
        thread.join()
    assert all(failures.values())
    numbers = sorted(acknowledged["a"] + acknowledged["b"])
    assert numbers == list(range(1, len(numbers) + 1))  # no gap, no batch twice
    expected = sorted(
        f"{name}-{number}"
        for name, said in acknowledged.items()
        for number in range(len(said))
        for _ in range(5)
    )
    again = address.open()
    for store in (watching, again):
        assert batches_of(store) == expected
        store.close()


def test_an_idle_store_does_not_notice_a_restart(own_server: PostgresServer) -> None:
    store = Address(own_server.url, "idle").open()
    store.publish(batch("a", 0), START, "first")
    own_server.stop("fast")
    with pytest.raises(StoreError):
        store.snapshot(START)
    own_server.start()
    assert store.snapshot(START).sequence == 1
    own_server.stop("fast")
    own_server.start()
    assert store.publish(batch("a", 1), START).sequence == 2
    assert store.publish(batch("a", 0), START, "first").repeated
    store.close()
    with pytest.raises(StoreError):
        store._log.changed()


def test_a_transaction_that_is_cut_off_leaves_nothing(address: Address) -> None:
    store = address.open()
    store.publish(batch("a", 0), START)
    with psycopg.connect(address.place, autocommit=True) as database:
        waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'transactionid'"
        row = f"SELECT 1 FROM live_{address.name}.settings FOR UPDATE"
        with psycopg.connect(address.place) as other:
            other.execute(row)
            failed: list[StoreError] = []

            def publish() -> None:
                try:
                    store.publish(batch("a", 1), START, "cut")
                except StoreError as error:
                    failed.append(error)

            thread = threading.Thread(target=publish)
            thread.start()
            # Twice, because what had not begun is begun again over a new connection.
            cut_off: set[int] = set()
            while len(cut_off) < 2:
                for (pid,) in database.execute(waiting).fetchall():
                    database.execute("SELECT pg_terminate_backend(%s)", (pid,))
                    cut_off.add(pid)
            thread.join()
        assert failed
    assert store.snapshot(START).sequence == 1
    receipt = store.publish(batch("a", 1), START, "cut")
    assert (receipt.sequence, receipt.repeated) == (2, False)
    assert batches_of(store) == ["a-0"] * 5 + ["a-1"] * 5
    store.close()


def test_a_publisher_waits_for_another_only_so_long(address: Address) -> None:
    from tpf_server.store.live.postgres_log import PostgresLog

    patient = PostgresLog(address.place, address.name, busy_seconds=30)
    hasty = PostgresLog(address.place, address.name, busy_seconds=1)
    with patient.writing():
        with pytest.raises(StoreError, match="lock timeout"), hasty.writing():
            pass
        assert not list(hasty.read(0))  # readers wait for nobody
    with hasty.writing():
        pass
    with pytest.raises(StoreError, match="failed"), hasty.writing(), patient.writing():
        pass  # the one that said nothing gave way to the other
    with patient.writing(), pytest.raises(StoreError, match="lock timeout"), hasty.writing():
        pass
    patient.close()
    hasty.close()


def test_stores_in_one_database_are_apart(postgres: PostgresServer) -> None:
    addresses = [Address(postgres.url, 'od"d näme'), Address(postgres.url, "plain")]
    for number, address in enumerate(addresses):
        store = address.open()
        store.publish(batch("a", number), START)
        store.close()
    for number, address in enumerate(addresses):
        store = address.open()
        assert batches_of(store) == [f"a-{number}"] * 5
        store.close()


def test_what_cannot_be_opened_is_refused_with_the_reason(address: Address) -> None:
    for broken, reason in (
        (address._replace(name="n" * 59), "too long"),
        (address._replace(place="postgresql://x@127.0.0.1:1/x"), "refused"),
        (address._replace(place="postgresql://x@?port=many"), "failed"),
    ):
        with pytest.raises(StoreError, match=reason):
            broken.open()
    address.open().close()
    with psycopg.connect(address.place) as database:
        database.execute(f"UPDATE live_{address.name}.settings SET value = '9' WHERE name='format'")
    with pytest.raises(StoreError, match="has format 9"):
        address.open()


def test_a_role_that_may_only_use_the_tables_suffices(address: Address) -> None:
    address.open().close()
    role = f"r{address.name}"
    with psycopg.connect(address.place) as database:
        for statement in (
            f"CREATE ROLE {role} LOGIN",
            f"GRANT USAGE ON SCHEMA live_{address.name} TO {role}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "
            f"live_{address.name} TO {role}",
        ):
            database.execute(statement)
    store = Address(address.place.replace("tester@", f"{role}@"), address.name).open()
    assert store.publish(batch("a", 0), START).sequence == 1
    assert batches_of(store) == ["a-0"] * 5
    store.close()


def test_what_is_durable_does_not_depend_on_the_settings_of_the_role(address: Address) -> None:
    store = Address(address.place + "&options=-csynchronous_commit%3Doff", address.name).open()
    ((value,),) = store._log._rows("SHOW synchronous_commit")  # type: ignore[attr-defined]
    assert value == "on"
    store.close()


def test_a_dataset_keeps_its_facts_in_a_database(address: Address, tmp_path: Path) -> None:
    server = Settings(data_dir=str(tmp_path / "data"))
    trains = DatasetSettings(name=f"trains-{address.name}", live=address.place)
    for number in range(2):
        dataset = DatasetOpener().open_one(trains, server)
        assert dataset.live is not None
        assert dataset.live.count(ALL, dataset.live.snapshot(START)) == 5 * number
        dataset.live.publish(batch("a", number), START)
        dataset.close()
    assert not (tmp_path / "data").exists()


def test_runs_of_batches_are_those_of_what_was_published(address: Address) -> None:
    dice = random.Random(7)
    store = address.open(LiveSettings(keep_events=timedelta(days=9)))
    published: list[tuple[int, int]] = []
    now = START
    for number in range(40):
        now += timedelta(microseconds=dice.randrange(1, 10**9))
        published.append((store.publish(batch("a", number), now).sequence, to_micros(now)))
    for dropped in (0, 23):
        with store._log.writing():
            store._log.drop(dropped, 0)
        for _ in range(50):
            size, after = dice.randrange(1, 45), dice.randrange(45)
            runs: dict[int, list[tuple[int, int]]] = {}
            for sequence, instant in published:
                if sequence > max(dropped, after):
                    runs.setdefault((sequence - 1) // size, []).append((sequence, instant))
            assert store.spans(size, after) == [
                (each, run[0][0], run[-1][0], run[0][1], run[-1][1]) for each, run in runs.items()
            ]
    store.close()


def test_a_stream_of_events_is_the_same_from_a_database_as_from_a_file(
    address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "LEAF", 4)
    monkeypatch.setattr(event_stream, "BLOCK", 3)
    hour = timedelta(hours=1)
    told: list[dict[str, bytes]] = []
    for name, place in (("file", None), ("database", address)):
        (tmp_path / name).mkdir()
        served = Served(
            tmp_path / name,
            dataset={"event_stream": 3600.0},
            keeping=LiveSettings(keep_events=hour),
            address=place,
        )
        with served:
            for number in range(30):
                row = quad(str(number % 7), "p", str(number))
                served.publish((row, Expiration(served.clock.now() + hour)))
                served.clock.advance_to(served.clock.now() + timedelta(seconds=1))
            told.append({node.url: node.response.content for node in nodes(served)})
    assert told[0] == told[1]
    assert len(told[0]) > 30 // 4
