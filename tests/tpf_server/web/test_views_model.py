"""Every view and pattern shape against a naive model."""

import tempfile
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from annotations.instants import instant_of_term
from annotations.labels import Expiration, Fact, Interval, Label
from annotations.methods import METHODS
from annotations.namespaces import DEFAULT_VOCABULARY
from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from annotations.urls import parameter_of_term
from tests.support.examples import examples
from tests.support.served import NOON, Page, Served, quad
from tests.support.stores import matches
from tpf_server.settings import VIEW_NAMES

NODES = [quad(name, "p", "o").subject for name in ("a", "b", "c")]
PREDICATES = [quad("a", name, "o").predicate for name in ("p", "q")]
OBJECTS = [*NODES, Term('"1"'), Term('"x y"@en')]
GRAPHS = [DEFAULT_GRAPH, NODES[0]]
QUADS = st.builds(
    Quad,
    st.sampled_from(NODES),
    st.sampled_from(PREDICATES),
    st.sampled_from(OBJECTS),
    st.sampled_from(GRAPHS),
)
LABELS: st.SearchStrategy[Label] = st.one_of(
    st.builds(lambda s: Expiration(NOON + timedelta(seconds=s)), st.integers(1, 4)),
    st.builds(
        lambda s, n: Interval(NOON + timedelta(seconds=s), NOON + timedelta(seconds=s + n)),
        st.integers(-3, 3),
        st.integers(4, 6),
    ),
)
VARIABLES = [Variable(f"?{name}") for name in "xyzw"]


def parameter(term: str) -> str:
    if is_variable(term):
        return term
    return "urn:ldf:defaultGraph" if term == DEFAULT_GRAPH else parameter_of_term(term)


def check_labels(page: Page, labels: dict[Quad, Label | None]) -> None:
    """Check that each quad of the page has its label, and no other."""
    tmp = DEFAULT_VOCABULARY
    about: dict[Term, dict[Term, list[Term]]] = {}
    for row in page.metadata:
        about.setdefault(row.subject, {}).setdefault(row.predicate, []).append(row.object)
    found: dict[Quad, set[Label]] = {row: set() for row in page.data}
    for facts in about.values():
        if tmp["predicate"] not in facts:
            continue
        if tmp.expiration in facts:
            label: Label = Expiration(instant_of_term(facts[tmp.expiration][0]))
        else:
            ends = [instant_of_term(facts[name][0]) for name in (tmp.initial, tmp.final)]
            label = Interval(*ends)
        for row in page.data:
            if (
                row.predicate in facts[tmp["predicate"]]
                and row.subject in facts[tmp["subject"]]
                and row.graph == facts.get(tmp["graph"], [DEFAULT_GRAPH])[0]
                and row.object == facts.get(tmp["object"], [row.object])[0]
            ):
                found[row].add(label)
    for row in page.data:
        expected = labels[row]
        assert found[row] == (set() if expected is None else {expected}), row


@examples(15)
@given(
    static=st.sets(QUADS, max_size=5),
    live=st.dictionaries(QUADS, LABELS, max_size=5),
    seconds=st.integers(0, 5),
    data=st.data(),
)
def test_every_view_answers_like_the_annotated_data(
    static: set[Quad], live: dict[Quad, Label], seconds: int, data: st.DataObject
) -> None:
    # One version per key. A quad that is live and static shows once, with its label.
    facts = {(q.subject, q.predicate, q.graph): Fact(q, label) for q, label in live.items()}
    static = static | set(
        data.draw(st.lists(st.sampled_from(list(live)), max_size=4)) if live else ()
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(Path(folder), static, settings={"page_size": 4}) as served,
    ):
        if facts:
            served.publish(*[(f.quad, f.label) for f in facts.values() if f.label is not None])
        now = NOON + timedelta(seconds=seconds)
        served.clock.advance_to(now)
        valid = [fact for fact in facts.values() if fact.valid_at(now)]
        for view in VIEW_NAMES:
            check_view(served, view, static, valid, data)


def check_view(
    served: Served, view: str, static: set[Quad], valid: list[Fact], data: st.DataObject
) -> None:
    """Ask a view for three patterns."""
    site = served.app.extensions["tpf_server"]
    endpoint = site.endpoints(served.settings.base)[f"trains/{view}"]
    method = next((m for m in METHODS if m.name == view), None)
    labels: dict[Quad, Label | None] = dict.fromkeys(static)
    for fact in valid:
        rows = method.encode(fact, endpoint.view.naming) if method else [fact.quad]
        for row in rows:
            labels[endpoint.skolemizer.quad(row)] = fact.label
    everything = sorted(labels)
    terms = sorted({term for row in everything for term in row})
    choices = st.sampled_from([*VARIABLES, VARIABLES[0], *terms, *NODES])
    for _ in range(3):
        pattern = QuadPattern(*[data.draw(choices) for _ in range(4)])  # type: ignore[arg-type]
        if DEFAULT_GRAPH in pattern[:3]:
            continue
        names = ("subject", "predicate", "object", "graph")
        query = "&".join(
            f"{name}={quote(parameter(term), safe='')}"
            for name, term in zip(names, pattern, strict=True)
        )
        expected = matches(everything, pattern)
        assert sorted(served.fragment(f"trains/{view}?{query}")) == sorted(expected)
        page = served.page(f"trains/{view}?{query}")
        assert page.total == len(expected)
        check_labels(page, labels)
