"""A client reads each fact with its label, for any objects."""

from datetime import timedelta
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.namespaces import XSD_DATE_TIME, XSD_INTEGER
from annotations.terms import Quad, Term, Triple, iri, is_triple_term, literal, triple_term
from tests.support.examples import examples
from tests.support.served import BASE, NOON, Served
from tpf_client.fragments.page_reader import PageReader
from tpf_server.fragments.writers import WRITERS
from tpf_server.settings import VIEW_NAMES
from tpf_server.store.live.log import LiveSettings

WITHOUT_GRAPHS = ("ttl", "nt")
NAMES = st.sampled_from(["a", "longer/station/1", "/a", "a/../b"]).map(
    lambda name: iri(BASE + name)
)
TEXTS = st.sampled_from([
    f"see <{BASE}x>", "</x>", "1", "+01", "-1", "", "1.5", "1e0", " 1",
    "1 .\n}\n<urn:injected> a 2", "x .\n<urn:injected> a <urn:x>", '"', "\\", '1" , "2',
    "2020-01-01T00:00:00Z", "1\n",
])  # fmt: skip
LITERALS = st.one_of(
    TEXTS.map(literal),
    st.builds(lambda text: literal(text, "en"), TEXTS),
    st.builds(
        lambda text, kind: literal(text, datatype=kind),
        TEXTS,
        st.sampled_from([XSD_INTEGER, XSD_DATE_TIME, f"{BASE}d"]),
    ),
)
OBJECTS = st.recursive(
    NAMES | LITERALS,
    lambda inner: st.builds(lambda *terms: triple_term(Triple(*terms)), NAMES, NAMES, inner),
    max_leaves=2,
)
LABELS: st.SearchStrategy[Label] = st.sampled_from([
    Expiration(NOON + timedelta(hours=1)),
    Expiration(NOON + timedelta(hours=2)),
    Interval(NOON, NOON + timedelta(hours=1)),
])  # fmt: skip
FACTS = st.dictionaries(
    st.builds(Quad, NAMES, NAMES, OBJECTS, st.just(Term(""))), LABELS, min_size=1, max_size=6
)
STATION, SAYS = iri(f"{BASE}longer/station/1"), iri("urn:says")
SEEN = triple_term(Triple(iri("urn:s"), iri("urn:p"), literal(f"see <{BASE}x>")))


def _two(one: Term, other: Term) -> dict[Quad, Label]:
    """Facts of one subject and predicate, whose labels say the object."""
    ends = [Expiration(NOON + timedelta(hours=hours)) for hours in (1, 2)]
    return {
        Quad(STATION, SAYS, value, Term("")): end
        for value, end in zip((one, other), ends, strict=True)
    }


@examples(5, fixtures=True)
@example(facts=_two(SEEN, literal("plain")))
@example(facts=_two(literal("x; <urn:p> <urn:o>", datatype=XSD_INTEGER), literal("plain")))
@example(facts=_two(literal("7", datatype=XSD_INTEGER), literal("plain")))
@given(facts=FACTS)
def test_a_client_reads_each_fact_with_its_label(
    tmp_path_factory: pytest.TempPathFactory, facts: dict[Quad, Label]
) -> None:
    folder = tmp_path_factory.mktemp("served")
    with Served(folder, keeping=LiveSettings(key="triple")) as served:
        served.publish(*facts.items())
        for view, writer in product(VIEW_NAMES, WRITERS):
            endpoint = served.app.extensions["tpf_server"].endpoints(BASE)[f"trains/{view}"]
            method = next((each for each in METHODS if each.name == view), None)
            expected: dict[Quad, Label] = {}
            for quad, label in facts.items():
                rows = method.encode(Fact(quad, label), endpoint.view.naming) if method else [quad]
                expected |= dict.fromkeys(rows, label)
            if any(quad.graph for quad in expected) and writer.suffix in WITHOUT_GRAPHS:
                continue
            if writer.suffix == "jsonld" and any(is_triple_term(q.object) for q in expected):
                continue  # it has no triple terms
            path = f"trains/{view}.{writer.suffix}"
            body = served.get(path).content
            page = PageReader().read(body, writer.media_types[0], BASE + path)
            assert page.warnings == ()
            assert {fact.quad: fact.label for fact in page.facts} == expected, path
