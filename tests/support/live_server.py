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
from tests.support.wsgi_adapter import WsgiAdapter, WsgiApplication, WsgiSession
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
        self.app: Any = create_app(self.settings, [dataset], self.clock)
        self.log: list[tuple[str, str]] = []
        self.url = self.settings.base_url + "trains"

    def session(
        self, *others: "LiveServer", app: WsgiApplication | None = None
    ) -> requests.Session:
        """A session whose requests this server and others answer; `app` stands before this one."""
        session = WsgiSession()
        session.mount(self.settings.base_url, WsgiAdapter(app or self.app, self.log))
        for each in others:
            session.mount(each.settings.base_url, WsgiAdapter(each.app, each.log))
        return session

    def client(
        self,
        path: str = "",
        *others: "LiveServer",
        app: WsgiApplication | None = None,
        **options: Any,
    ) -> Client:
        """A client of these datasets that asks one request after the other, unless told otherwise.

        For `app` see `session`.
        """
        session = self.session(*others, app=app)
        options = {"session": session, "clock": self.clock, "parallelism": 0} | options
        return Client(self.url + path, *(each.url for each in others), **options)

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
