"""The real server in process, on a manual clock, as a session for the client."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import requests

from annotations.clock import Clock, ManualClock
from annotations.labels import Expiration, Fact
from annotations.terms import Quad
from tests.support.stores import kept_store
from tests.support.wsgi_adapter import WsgiAdapter, WsgiSession
from tpf_client import Client
from tpf_server.app import create_app
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings
from tpf_server.store.live.store import open_live_store

START = datetime(2015, 12, 8, 10, 20, tzinfo=UTC)
BASE = "http://server.test/"


class LiveServer:
    """A server with one dataset, ``trains``, and published facts."""

    def __init__(
        self,
        path: Path,
        static: Iterable[Quad] = (),
        *,
        clock: Clock | None = None,
        live: bool = True,
        page_size: int = 100,
        server: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        # Most tests play on a manual clock, and schedule on it what happens.
        self.clock: Any = clock or ManualClock(START)
        self.live = open_live_store(path / "live.sqlite") if live else None
        self.static = kept_store(path / "static", static)
        dataset = OpenDataset(DatasetSettings(name="trains", **settings), self.static, self.live)
        chosen = {"base_url": BASE, "page_size": page_size, **(server or {})}
        self.settings = Settings(**chosen)
        self.app = create_app(self.settings, [dataset], self.clock)
        self.log: list[tuple[str, str]] = []
        self.url = BASE + "trains"

    def session(self) -> requests.Session:
        """A session whose requests this server answers."""
        session = WsgiSession()
        session.mount(BASE, WsgiAdapter(self.app, self.log))
        return session

    def client(self, path: str = "", **options: Any) -> Client:
        """A client that asks one request after the other, unless told otherwise."""
        options = {"session": self.session(), "clock": self.clock, "parallelism": 0} | options
        return Client(self.url + path, **options)

    def publish(self, facts: Iterable[Fact], withdrawn: Iterable[Fact] = ()) -> None:
        """Publish labelled facts now, and withdraw others."""
        assert self.live is not None
        self.live.publish(list(facts), self.clock.now(), withdrawn=list(withdrawn))

    def publish_rounds(self, period: timedelta, quads_of: Callable[[int], Iterable[Quad]]) -> None:
        """Publish the quads of round 0 for a period, at its end those of round 1, and so on."""

        def publish(number: int) -> None:
            end = Expiration(self.clock.now() + period)
            self.publish(Fact(quad, end) for quad in quads_of(number))
            self.clock.schedule(end.end, lambda: publish(number + 1))

        publish(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the stores."""
        self.static.close()
        if self.live is not None:
            self.live.close()
