"""The server within somebody's own application."""

from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from flask import Flask, Response, g, url_for

from tests.support.served import BASE, HYDRA, Served, parse
from tpf_server.app import _Worker, create_app, create_blueprint
from tpf_server.configuration import Configuration
from tpf_server.connections import Connections
from tpf_server.errors import SettingsError
from tpf_server.fragments.dataset import OpenDataset
from tpf_server.settings import DatasetSettings, Settings


@pytest.fixture
def host(served: Served) -> Flask:
    """An application with hooks of its own, and the fragments below ``/ld``."""
    app = Flask("host")
    settings = Settings(base_url=f"{BASE}ld/", page_size=3)
    blueprint = create_blueprint(settings, [served.dataset], served.clock)
    app.register_blueprint(blueprint, url_prefix="/ld")
    app.add_url_rule("/", "home", lambda: "home")
    app.add_url_rule(
        "/where", "where", lambda: url_for("fragments.fragment", name="trains", page=2)
    )

    @app.before_request
    def before() -> None:
        g.seen = "before"

    @app.after_request
    def after(response: Response) -> Response:
        response.headers["X-Host"] = g.seen
        return response

    return app


def test_an_application_embeds_the_fragments(host: Flask, served: Served) -> None:
    client = host.test_client()
    assert client.get("/").text == "home"
    assert "Link" not in client.get("/").headers
    page = client.get("/ld/trains", headers={"Accept": "application/n-quads"})
    assert page.headers["X-Host"] == "before"
    rows = parse(page.data, "application/n-quads")
    (following,) = {row.object for row in rows if row.predicate == f"<{HYDRA}next>"}
    assert following.startswith(f"<{BASE}ld/trains?page=2")
    path = following.strip("<>").removeprefix(BASE)
    assert client.get(f"/{path}").status_code == 200
    assert client.get("/ld/trains/plain.nt").mimetype == "application/n-triples"
    assert client.get("/ld/.well-known/genid/trains/b").status_code == 303
    assert client.get("/ld/").status_code == client.get("/ld/api-doc").status_code == 200
    assert client.get("/ld/query/words.json").mimetype == "application/json"


def test_a_hook_around_the_fragments_may_answer(host: Flask) -> None:
    host.before_request(lambda: Response("who is it?", 401))
    assert host.test_client().get("/ld/trains").status_code == 401


@pytest.mark.parametrize("root", ["", "/ld"])
def test_the_router_redirects_to_the_base_and_not_to_the_host(served: Served, root: str) -> None:
    base = "https://data.example/ld/"
    app = create_app(Settings(base_url=base), [served.dataset], served.clock)
    for path in ("query", "trains/query"):
        environ = {"PATH_INFO": f"/{path}", "SCRIPT_NAME": root, "HTTP_HOST": "attacker.example"}
        answer = app.test_client().get("/?embed", environ_overrides=environ)
        assert (answer.status_code, answer.headers["Location"]) == (
            308,
            f"{base}{path}/?embed",
        )


def test_rules_have_names_for_url_for(host: Flask) -> None:
    assert host.test_client().get("/where").text == "/ld/trains?page=2"
    with host.test_request_context():
        assert url_for("fragments.view", name="trains", view="plain") == "/ld/trains/plain"
        assert url_for("fragments.facts", name="trains") == "/ld/trains/facts"
        assert url_for("fragments.documentation") == "/ld/api-doc"


def test_errors_below_the_prefix_are_problems_and_elsewhere_the_applications(host: Flask) -> None:
    client = host.test_client()
    for path, status in (("trains?page=x", 400), ("nothing", 404), ("a/b/c/d", 404)):
        answer = client.get(f"/ld/{path}")
        assert (answer.status_code, answer.mimetype) == (status, "application/problem+json")
        assert f"<{BASE}ld/api-doc>" in answer.headers["Link"]
    again = client.get("/ld/trains/plain?subject=_:x", headers={"Accept": "text/html"})
    assert f'<form action="{BASE}ld/trains/plain" method="get">' in again.text
    wrong = client.delete("/ld/trains")
    assert (wrong.status_code, wrong.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert client.options("/ld/trains").headers["Allow"] == "GET, HEAD, OPTIONS"
    elsewhere = client.get("/nothing")
    assert (elsewhere.status_code, elsewhere.mimetype) == (404, "text/html")


def test_continuous_queries_are_embedded_with_them(served: Served) -> None:
    app = Flask("host")
    settings = Settings(base_url=BASE, continuous=True, publish_token="token")
    app.register_blueprint(create_blueprint(settings, [served.dataset], served.clock))
    client = app.test_client()
    assert client.get("/queries").json == {"queries": []}
    assert client.get("/trains").status_code == 200
    service = app.extensions["tpf_server.continuous"]
    service.start()
    service.close()
    query = "SELECT * { STREAM <urn:s> [NOW] { ?a ?b ?c } }"
    headers = {"Authorization": "Bearer token", "Content-Type": "text/plain"}
    assert client.post("/queries", data=query, headers=headers).status_code == 503


def test_hooks_see_pages_where_these_go_through_flask(served: Served) -> None:
    app = create_app(Settings(base_url=BASE, direct_pages=False), [served.dataset], served.clock)
    seen: list[str] = []
    app.before_request(lambda: seen.append("before"))

    @app.after_request
    def after(response: Response) -> Response:
        response.headers["X-Seen"] = "after"
        return response

    answer = app.test_client().get("/trains")
    assert (seen, answer.headers["X-Seen"]) == (["before"], "after")
    with app.test_request_context():
        assert url_for("fragment", name="trains", subject="urn:x") == "/trains?subject=urn:x"


def test_old_facts_are_let_go_whatever_fails_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    retired: list[datetime] = []

    class Live:
        def retire(self, now: datetime) -> None:
            retired.append(now)
            if len(retired) == 1:
                raise RuntimeError("of no store")
            if len(retired) == 3:
                raise SystemExit  # else it goes on for ever

    def fail(noted: object) -> None:
        raise FileNotFoundError("gone")

    monkeypatch.setattr("tpf_server.app._TIDY_SECONDS", 0.0)
    worker = _Worker()
    monkeypatch.setattr(worker._metrics._seconds, "observe", fail)
    worker._metrics.count("GET", "200", 0.001)
    worker._datasets = [OpenDataset(DatasetSettings(name="d"), None, cast("Any", Live()))]
    with pytest.raises(SystemExit):
        worker._tidy_up()
    assert "dataset d: RuntimeError('of no store')\n" in capsys.readouterr().err


def test_stores_are_closed_where_settings_cannot_be_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    close = OpenDataset.close

    def noted(dataset: OpenDataset) -> None:
        closed.append(dataset.settings.name)
        close(dataset)

    monkeypatch.setattr(OpenDataset, "close", noted)
    worker = _Worker()
    worker._connections = Connections(0, 1.0, print)
    settings = Settings(query_examples=str(tmp_path / "nothing"))
    dataset = DatasetSettings(name="d", live=str(tmp_path / "live.sqlite"))
    with pytest.raises(SettingsError, match="there is no folder"):
        worker.make(Configuration(settings, (dataset,)))
    assert closed == ["d"]
