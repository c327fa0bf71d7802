"""The live store at size: a publisher at a fixed rate while reader processes read.

``python -m experiments.studies.live_store`` loads facts, then publishes batches that renew them
while two other processes read the same store. It says the latencies of publishing and of each kind
of read, the CPU of each process, and the memory of a process that opens the store and does nothing
else.
Readers check what they see: the number of facts never changes, and the facts of one batch always
carry one value.
"""

import json
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Annotated, Any

import typer

from annotations.labels import Expiration, Fact
from annotations.methods.base import FactPattern
from annotations.methods.names import identity
from annotations.terms import Quad, Term
from tpf_server.store.live.settings import LiveSettings
from tpf_server.store.live.store import IndexedLiveStore, open_live_store

_PREDICATES = tuple(Term(f"<http://example.org/p{n}>") for n in range(10))
_LOADED_AT_ONCE = 10_000
_PAGE = 100
_SPAWN = multiprocessing.get_context("spawn")


def fact(number: int, value: int, until: datetime) -> Fact:
    """The fact of a number: ten per subject, one per predicate; 100 neighbours change together."""
    subject = Term(f"<http://example.org/s{number // 10}>")
    return Fact(Quad(subject, _PREDICATES[number % 10], Term(f'"{value}"')), Expiration(until))


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Count, median, 99th percentile and maximum, in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {"n": 0}
    places = {"p50": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "max": len(ordered) - 1}
    return {"n": len(ordered)} | {k: round(1000 * ordered[at], 3) for k, at in places.items()}


def cpu_seconds() -> float:
    """CPU that this process has used, the system's share included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory() -> dict[str, float]:
    """Resident memory of this process now and at its highest, in MB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        name: round(int(lines[key].split()[0]) / 1024, 1)
        for name, key in (("resident_mb", "VmRSS"), ("peak_mb", "VmHWM"))
    }


def _open(place: str, retention: float) -> IndexedLiveStore:
    return open_live_store(place, LiveSettings(retention=timedelta(seconds=retention)))


def _read(
    place: str,
    retention: float,
    size: int,
    seed: int,
    pause: float,
    ready: Connection,
    done: Event,
) -> None:
    """Read in turn in every way until told to stop; say what it cost."""
    store = _open(place, retention)
    dice = random.Random(seed)
    taken: dict[str, list[float]] = {}
    wrong: list[str] = []
    now = datetime.now(UTC)

    def a_subject() -> None:
        snapshot = store.snapshot(datetime.now(UTC))
        number = dice.randrange(size // 100) * 100
        found: set[str] = set()
        for neighbour in (0, 9):
            subject = fact(number + 10 * neighbour, 0, now).quad.subject
            facts = store.facts(FactPattern(subject=subject), snapshot, 0, _PAGE)
            found.update(one.quad.object for one in facts)
            if len(facts) != 10:
                wrong.append(f"{subject} has {len(facts)} facts in {snapshot}")
        if len(found) != 1:
            wrong.append(f"half a batch in {snapshot}: {found}")

    def a_page(pattern: FactPattern, expected: int, deep: bool) -> None:
        snapshot = store.snapshot(datetime.now(UTC))
        count = store.count(pattern, snapshot)
        offset = dice.randrange(expected // _PAGE) * _PAGE if deep else 0
        facts = store.facts(pattern, snapshot, offset, _PAGE)
        store.next_change(pattern, snapshot)
        if count != expected or len(facts) != _PAGE:
            wrong.append(f"{count} and {len(facts)} facts of {pattern} in {snapshot}")

    everything, one = FactPattern(), FactPattern(predicate=_PREDICATES[3])
    ways: dict[str, Callable[[], None]] = {
        "subject": a_subject,
        "predicate, first page": lambda: a_page(one, size // 10, False),
        "everything, first page": lambda: a_page(everything, size, False),
        "everything, random page": lambda: a_page(everything, size, True),
    }
    for way in ways.values():
        way()
    ready.send(None)
    started, used = time.monotonic(), cpu_seconds()
    while not done.is_set():
        for name, way in ways.items():
            begun = time.perf_counter()
            way()
            taken.setdefault(name, []).append(time.perf_counter() - begun)
            time.sleep(pause)
    ready.send(
        {
            "cpu_percent": round(100 * (cpu_seconds() - used) / (time.monotonic() - started), 1),
            "reads_ms": {name: quantiles(seconds) for name, seconds in taken.items()},
            "wrong": wrong[:5],
            **memory(),
        }
    )
    store.close()


def _minted(place: str, retention: float, size: int, ready: Connection) -> None:
    """Open the store, and ask for a minted name: what that costs a new worker."""
    before = memory()
    begun = time.perf_counter()
    store = _open(place, retention)
    opened = time.perf_counter() - begun
    after = memory()
    snapshot = store.snapshot(datetime.now(UTC))
    known = store.facts(
        FactPattern(subject=fact(size // 2, 0, datetime.now(UTC)).quad.subject), snapshot, 0, 1
    )[0]
    taken = []
    for _ in range(3):
        begun = time.perf_counter()
        found = store.facts(FactPattern(identity=identity(known)), snapshot, 0, 9)
        taken.append(round(1000 * (time.perf_counter() - begun), 3))
    ready.send(
        {
            "open_seconds": round(opened, 2),
            "before": before,
            "opened": after,
            "minted_name_ms": taken,
            "minted_name_found": [one.quad.subject for one in found] == [known.quad.subject],
            "with_minted_names": memory(),
        }
    )
    store.close()


def _answer_of(target: Callable[..., None], *arguments: object) -> Any:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=target, args=(*arguments, theirs))
    process.start()
    answer = ours.recv()
    process.join()
    return answer


def _load(store: IndexedLiveStore, size: int, until: datetime) -> float:
    """Publish `size` facts; the seconds that it took."""
    begun = time.perf_counter()
    for first in range(0, size, _LOADED_AT_ONCE):
        numbers = range(first, min(first + _LOADED_AT_ONCE, size))
        store.publish([fact(number, 0, until) for number in numbers], datetime.now(UTC))
    return time.perf_counter() - begun


def _publish(
    store: IndexedLiveStore, size: int, rate: int, batch: int, seconds: float, until: datetime
) -> dict[str, Any]:
    """Renew random batches of facts at a rate; what it cost."""
    dice = random.Random(1)
    taken, late = [], 0.0
    started, used = time.monotonic(), cpu_seconds()
    number = 0
    while time.monotonic() < started + seconds:
        due = started + number * batch / rate
        late = max(late, time.monotonic() - due)
        time.sleep(max(0.0, due - time.monotonic()))
        first = dice.randrange(size // batch) * batch
        number += 1
        facts = [fact(one, number, until) for one in range(first, first + batch)]
        begun = time.perf_counter()
        store.publish(facts, datetime.now(UTC), f"batch-{number}")
        taken.append(time.perf_counter() - begun)
    passed = time.monotonic() - started
    return {
        "updates_per_second": round(number * batch / passed),
        "cpu_percent": round(100 * (cpu_seconds() - used) / passed, 1),
        "publish_ms": quantiles(taken),
        "over_50_ms": sum(one > 0.05 for one in taken),
        "most_behind_ms": round(1000 * late, 1),
        **memory(),
    }


def main(
    facts: Annotated[int, typer.Option(help="live facts")] = 1_000_000,
    rate: Annotated[int, typer.Option(help="updates per second")] = 10_000,
    batch: Annotated[int, typer.Option(help="facts in a batch")] = 100,
    seconds: Annotated[float, typer.Option(help="how long to publish")] = 15,
    readers: Annotated[int, typer.Option(help="processes that read")] = 2,
    pause: Annotated[float, typer.Option(help="seconds between two reads of a process")] = 0.01,
    retention: Annotated[float, typer.Option(help="seconds that replaced facts are kept")] = 300,
    place: Annotated[str, typer.Option(help="a new file, or postgresql://…")] = "",
) -> None:
    """Measure the live store; under 90 seconds as it stands. Prints JSON."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        place = place or str(Path(folder) / "live.sqlite")
        store = _open(place, retention)
        until = datetime.now(UTC) + timedelta(days=1)
        result: dict[str, Any] = {"load_seconds": round(_load(store, facts, until), 1)}
        pipes, done = [], _SPAWN.Event()
        processes = []
        for seed in range(readers):
            ours, theirs = _SPAWN.Pipe()
            arguments = (place, retention, facts, seed, pause, theirs, done)
            processes.append(_SPAWN.Process(target=_read, args=arguments))
            processes[-1].start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        result["publisher"] = _publish(store, facts, rate, batch, seconds, until)
        done.set()
        result["readers"] = [pipe.recv() for pipe in pipes]
        for process in processes:
            process.join()
        if Path(place).parent == Path(folder):
            files = Path(folder).iterdir()
            result["files_mb"] = {f.name: round(f.stat().st_size / 1e6, 1) for f in files}
        store.close()
        result["worker"] = _answer_of(_minted, place, retention, facts)
        typer.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    typer.run(main)
