"""Over HTTP a query says what of it is compiled, and a setting of the server switches it off."""

from datetime import UTC, datetime

import pytest
import requests

from annotations.clock import ManualClock
from tests.support.continuous_site import ROOT, ContinuousClient, app_of
from tests.support.wsgi_adapter import WsgiAdapter
from tpf_client.dataflow.state.ranked_groups import library
from tpf_server.continuous.runtime.plans.batch_report import OFF
from tpf_server.continuous.service.assembly import continuous_service
from tpf_server.settings import Settings
from tpf_server.web.bodies import BodyReader

RANKED = """SELECT ?b (COUNT(*) AS ?c) { STREAM <s> [RANGE 9ms] { ?a <urn:p> ?b ; <urn:q> ?x } }
GROUP BY ?b ORDER BY DESC(?c) ?b LIMIT 2"""
CSPARQL = "SELECT ?b FROM STREAM <s> [RANGE 9ms STEP 3ms] { ?a <urn:p> ?b }"
RSPQL = """SELECT ?b FROM NAMED WINDOW <w> ON <s> [RANGE 9ms STEP 3ms]
{ WINDOW <w> { ?a <urn:p> ?b } }"""
ONE_BY_ONE = "SELECT ?b { STREAM <s> [RANGE 9ms] { ?a <urn:p> ?b } }"


def batches(text, **settings):
    """What a server says of a query that is registered there, then and when it is asked."""
    configured = Settings(base_url=ROOT, publish_token="secret", continuous=True, **settings)
    service = continuous_service(configured, [], ManualClock(datetime(2020, 1, 1, tzinfo=UTC)))
    with requests.Session() as session:
        session.mount(ROOT, WsgiAdapter(app_of(service, BodyReader(10_000), configured)))
        client = ContinuousClient(ROOT, session)
        created = client.register(text)
        assert created.status_code == 201
        found = client.get("queries/1")["batches"]
    service.close()
    assert created.json()["batches"] == found
    return found


@pytest.mark.parametrize("kernel", ["compiled", "off"])
def test_the_setting_decides(kernel):
    found = batches(RANKED, stream_kernel=kernel)
    if kernel == "off":
        assert (found["kernel"], found["operators"]) == ("off", [])
        assert found["reason"] == OFF
        return
    if kernel == "compiled" and library() is None:
        assert (found["kernel"], "without a compiler" in found["reason"]) == ("off", True)
    else:
        assert found == {"kernel": kernel, "operators": ["window", "groups", "order"]}


def test_the_environment_of_the_library_does_not(monkeypatch):
    usual = batches(RANKED)
    monkeypatch.setenv("LIVE_LINKED_DATA_KERNEL", "off")
    assert batches(RANKED) == usual


@pytest.mark.parametrize("text", [CSPARQL, RSPQL, ONE_BY_ONE])
def test_what_is_not_compiled_says_so(text):
    found = batches(text)
    assert (found["kernel"], found["operators"]) == ("off", [])
    assert found["reason"]
