"""Measures how long the page takes to its first row over a shaped network, by phase.

./run exec python -m tests.browser.first_row [VISITS]

Each visit is cold (a browser that has never seen the page) and then warm (the same, started
again). Seconds depend on what else the machine does, so the CPU time of all the browser's processes
stands beside them.
"""

import asyncio
import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import psutil

from experiments.free_port import free_port
from tests.browser.chromium import Browser
from tests.support.running_server import RunningServer

RATE: Final = 20e6 / 8
"""Bytes per second, of all connections together."""
DELAY: Final = 0.025
"""Seconds in each direction."""
_PIECE: Final = 2**14
_SECONDS: Final = 120.0
EX = "http://example.org/"
QUERY = (
    f"PREFIX : <{EX}>\nSELECT ?train ?name ?to WHERE {{ ?train :name ?name ; :to ?to }}\n"
    "ORDER BY ?name"
)
_WATCH = """
window.seen = {};
const note = () => {
  const text = document.getElementById("state")?.textContent.replace(/:? *[\\d.]+.*/, "");
  if (text) window.seen[text] ??= performance.now();
  if (document.querySelector("#table tbody td")) window.seen.row ??= performance.now();
};
new MutationObserver(note).observe(document, {subtree: true, childList: true, characterData: true});
"""
_ENTRIES = """
performance.getEntries().map((each) => [each.entryType, each.name.split("/").at(-1).slice(0, 60),
  Math.round(each.startTime), Math.round(each.duration), each.transferSize ?? ""])
"""


class ShapedNetwork:
    """A proxy to a port of this machine, with a bandwidth and a latency.

    Attributes:
        port: where it listens.
        sent: bytes to the client so far.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.sent = 0
        self._target = target
        self._free = 0.0
        """When the line has sent everything that it was given so far."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        listening = asyncio.start_server(self._connected, "127.0.0.1", self.port)
        asyncio.run_coroutine_threadsafe(listening, self._loop).result()

    async def _connected(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        await asyncio.sleep(2 * DELAY)
        try:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(
                self._pump(from_client, to_server, down=False),
                self._pump(from_server, to_client, down=True),
            )
        except OSError:
            pass

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, down: bool
    ) -> None:
        try:
            while piece := await source.read(_PIECE):
                arrives = self._loop.time() + DELAY
                if down:
                    self.sent += len(piece)
                    self._free = max(self._free, self._loop.time()) + len(piece) / RATE
                    # What waits longer than the line's latency is waited for by the sender, too.
                    await asyncio.sleep(max(self._free - self._loop.time() - DELAY, 0))
                    arrives = self._free + DELAY
                self._loop.call_at(arrives, self._write, sink, piece)
            self._loop.call_later(4 * DELAY, sink.close)
        except OSError:
            sink.close()

    @staticmethod
    def _write(sink: asyncio.StreamWriter, piece: bytes) -> None:
        if not sink.is_closing():
            sink.write(piece)


def _cpu(process: int) -> float:
    total = 0.0
    for each in (psutil.Process(process), *psutil.Process(process).children(recursive=True)):
        try:
            times = each.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def visit(profile: Path, address: str, network: ShapedNetwork) -> dict[str, Any]:
    """Open the page once; the instants of its phases in seconds, and what they cost."""
    (profile / "profile/DevToolsActivePort").unlink(missing_ok=True)
    with Browser(profile) as browser:
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=_WATCH)
        sent, cpu = network.sent, _cpu(browser.pid)
        browser.open(address)
        end = time.monotonic() + _SECONDS
        while "row" not in (seen := browser.evaluate("window.seen") or {}):
            assert time.monotonic() < end, seen
            time.sleep(0.1)
        measured = {
            "seen": {name: round(at / 1000, 2) for name, at in seen.items()},
            "cpu": round(_cpu(browser.pid) - cpu, 2),
            "bytes": network.sent - sent,
            "worker": browser.in_worker(_ENTRIES) or [],
        }
        # What is kept for the next visit is kept some seconds later.
        time.sleep(12)
    return measured


def main(visits: int) -> None:
    """Measure and print; what the worker loaded and did comes after the first visits."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [f'<{EX}train/{n}> <{EX}name> "Train {n:02}" .\n' for n in range(50)]
        lines += [f"<{EX}train/{n}> <{EX}to> <{EX}station/{n % 3}> .\n" for n in range(50)]
        (folder / "trains.nt").write_text("".join(lines))
        port = free_port()
        network = ShapedNetwork(port)
        url = f"http://127.0.0.1:{network.port}/"
        config = f'base_url = "{url}"\n[datasets.trains]\nsource = "trains.nt"\n'
        with RunningServer(folder, config, port=port):
            address = f"{url}trains/query/#query={quote(QUERY)}"
            for number in range(visits):
                profile = folder / f"browser-{number}"
                profile.mkdir()
                for kind in ("cold", "warm"):
                    told = visit(profile, address, network)
                    worker = told.pop("worker")
                    sys.stdout.write(f"{kind} {json.dumps(told)}\n")
                    if not number:
                        for entry in worker:
                            sys.stdout.write(f"    {entry}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1)
