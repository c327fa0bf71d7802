"""Continuous queries over HTTP, with a real Flask app in process."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import requests
from flask import Flask

from annotations.clock import ManualClock
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_server.continuous.continuous_engine import (
    Engine,
    EngineLimits,
    EngineSettings,
    InstantSettings,
)
from tpf_server.continuous.service.continuous_service import ContinuousService
from tpf_server.continuous.service.hosting import Policies
from tpf_server.continuous.service.web import continuous_blueprint
from tpf_server.settings import Settings
from tpf_server.web.bodies import BodyReader

ROOT = "http://server.test"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TOKEN = {"Authorization": "Bearer secret"}
NDJSON = {"Content-Type": "application/x-ndjson"}
QUERY = "SELECT ?a ?b { STREAM <http://localhost/s> [RANGE 10ms] { ?a <urn:p> ?b } }"
PERIODIC_TEXT = (
    "REGISTER QUERY NAME COMPUTED EVERY 5ms AS"
    " SELECT ?a ?b FROM STREAM <http://localhost/s> [RANGE 10ms STEP 5ms] { ?a <urn:p> ?b }"
)


class ContinuousClient:
    """Asks a server of continuous queries; it may change them."""

    def __init__(
        self, root: str, session: requests.Session, headers: Mapping[str, str] = TOKEN
    ) -> None:
        self.root = root
        self.session = session
        self._headers = headers

    def ask(
        self,
        method: str,
        path: str,
        body: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> requests.Response:
        data = body.encode() if isinstance(body, str) else body
        headers = {**self._headers, **(headers or {})}
        options.setdefault("timeout", 60)
        return self.session.request(
            method, f"{self.root}/{path}", data=data, headers=headers, **options
        )

    def post(self, path: str, *body: Any, **options: Any) -> requests.Response:
        return self.ask("POST", path, *body, **options)

    def put(self, path: str, *body: Any, **options: Any) -> requests.Response:
        return self.ask("PUT", path, *body, **options)

    def delete(self, path: str) -> requests.Response:
        return self.ask("DELETE", path)

    def get(self, path: str) -> Any:
        """Return the JSON at a path, which anybody may read."""
        return self.session.get(f"{self.root}/{path}", timeout=60).json()

    def push(
        self, *lines: str | Mapping[str, Any], name: str = "s", **options: Any
    ) -> requests.Response:
        """Push elements as lines of JSON."""
        body = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        return self.post(f"streams/{name}", body, NDJSON, **options)

    def register(self, text: str = QUERY, **options: str) -> requests.Response:
        return self.post("queries", json={"query": text, **options})

    def results(
        self, name: str = "1", accept: str = "application/x-ndjson", **options: Any
    ) -> requests.Response:
        options.setdefault("timeout", 60)
        url = f"{self.root}/queries/{name}/results"
        return self.session.get(url, headers={"Accept": accept}, **options)

    def emissions(self, name: str = "1", **parameters: Any) -> list[dict[str, Any]]:
        """Return what a query has emitted until now."""
        found = self.results(name, params={"follow": "false", **parameters})
        return [json.loads(line) for line in found.text.splitlines()]


class Site(ContinuousClient):
    """A service on a clock that is set by hand, which begins with 1970."""

    def __init__(
        self,
        *,
        followers: int = 10,
        periodic: Mapping[str, Any] | None = None,
        policies: Mapping[str, Any] | None = None,
        executors: Any = None,
        body: int = 10_000,
        limits: EngineLimits = EngineLimits(),  # noqa: B008 (it is frozen)
        **settings: Any,
    ) -> None:
        # At the instant from which events are numbered from 1.
        self.clock = ManualClock(EPOCH)
        kept = {"backlog": 100, "followers": followers, **(policies or {})}
        settings = {"lateness": kept.pop("lateness", 0), **settings}
        instants = InstantSettings(eager=True, **(periodic or {}))
        self.engine = Engine(EngineSettings(**settings), limits, instants)
        more = {} if executors is None else {"executors": executors}
        self.service = ContinuousService(self.engine, self.clock, Policies(**kept), **more)
        session = requests.Session()
        session.mount(ROOT, WsgiAdapter(app_of(self.service, BodyReader(body))))
        super().__init__(ROOT, session)


def app_of(
    service: ContinuousService,
    bodies: BodyReader,
    settings: Settings = Settings(base_url=ROOT, publish_token="secret"),  # noqa: B008 (it is frozen)
) -> Flask:
    """Make an application of nothing but continuous queries."""
    app = Flask("test")
    app.register_blueprint(continuous_blueprint(service, bodies, settings))
    return app


def element(at: int, a: str = "<urn:a>", b: str = '"1"') -> dict[str, Any]:
    return {"timestamp": at, "triple": [a, "<urn:p>", b]}
