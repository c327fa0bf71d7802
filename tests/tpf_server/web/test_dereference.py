"""The server's names lead to their descriptions."""

from datetime import timedelta

from annotations.labels import Expiration
from tests.support.served import BASE, NOON, Served, quad

LATER = Expiration(NOON + timedelta(minutes=5))


def test_a_blank_node_leads_to_its_fragment(shared: Served) -> None:
    (row,) = shared.page(
        "trains?predicate=http://example.org/knows&object=http://example.org/t1"
    ).data
    iri = row.subject.strip("<>")
    response = shared.get(iri.removeprefix(BASE))
    assert response.status_code == 303
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert shared.page(response.headers["Location"]).data == [row]


def test_a_minted_name_leads_to_its_label(served: Served) -> None:
    served.publish((quad("t1", "delay", '"5"'), LATER))
    for view in ("singleton-property", "named-graph", "reification", "rdf-1.2"):
        rows = served.fragment(f"trains/{view}?limit=100")
        (label,) = [row for row in rows if row.predicate.endswith("#expiration>")]
        response = served.get(label.subject.strip("<>").removeprefix(BASE))
        assert response.status_code == 303
        assert label in served.fragment(response.headers["Location"])


def test_other_datasets_and_methods(shared: Served) -> None:
    assert shared.get(".well-known/genid/planes/b").status_code == 404
    assert shared.get(f"planes/facts/graph/{'0' * 32}").status_code == 404
    assert shared.get("trains/facts/graph/0").status_code == 404
    assert shared.request("DELETE", f"trains/facts/graph/{'0' * 32}").status_code == 405
