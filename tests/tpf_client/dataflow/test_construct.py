"""CONSTRUCT templates."""

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from annotations.terms import Term, Triple, TriplePattern, Variable, literal
from tpf_client.dataflow.construct import TRIPLE, Construct, construct
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Input
from tpf_client.dataflow.operators.basic import Output

NAMES = (Variable("?a"), Variable("?b"))


def test_who_keeps_an_answer_names_blank_nodes_by_their_solution() -> None:
    p = Term("<http://e/p>")
    template = [TriplePattern(Term("_:x"), p, NAMES[0]), TriplePattern(Term("_:y"), p, Term("_:x"))]
    rows = [(literal("1"),), (literal("2"),)]
    once, again = (
        Counter(construct(template, NAMES[:1], data, lambda row: f"r{str(row[0])[1]}"))
        for data in (rows, rows[::-1])
    )
    assert once == again
    assert len({term for triple in once for term in triple if term.startswith("_:")}) == 4


def test_nothing_of_a_query_is_in_the_code() -> None:
    """A term is passed as a value, whatever is in it."""
    evil = Term('"{v0} \\"\\"\\" \\n} __import__(\'os\')"')
    template = [TriplePattern(Term("_:x.\u00b7}{"), Term("<http://e/{p}>"), evil)]
    (made,) = construct(template, (), [()])
    assert made == Triple(Term("_:c0b0"), Term("<http://e/{p}>"), evil)


TERMS = [None, Term("<http://e/a>"), Term("<http://e/b>"), literal("1")]
PARTS = [*map(Variable, ("?a", "?b", "?c")), Term("_:x"), Term("_:y"), Term("<http://e/p>")]
TEMPLATES = st.lists(
    st.tuples(*[st.sampled_from(PARTS)] * 3).map(lambda parts: TriplePattern(*parts)),
    min_size=1,
    max_size=3,
)
ROWS = st.tuples(st.sampled_from(TERMS), st.sampled_from(TERMS))


def shape(triples: Iterable[Sequence[str]]) -> Counter[frozenset[tuple[str, ...]]]:
    """Split triples into those without blank nodes and those of one solution."""
    groups: dict[str, set[tuple[str, ...]]] = {}
    for triple in triples:
        made = next((term for term in triple if term.startswith("_:")), "")
        name = made.rpartition("b")[0]
        groups.setdefault(name or str(triple), set()).add(
            tuple(term.rpartition("b")[2] if term.startswith("_:") else term for term in triple)
        )
    return Counter(map(frozenset, groups.values()))


@given(TEMPLATES, st.lists(st.tuples(ROWS, st.integers(-2, 2))))
def test_triples_that_are_kept_are_those_of_the_solutions_that_there_are(
    template: list[TriplePattern], changes: list[tuple[tuple[Term | None, ...], int]]
) -> None:
    dictionary = TermDictionary()
    node = Input(NAMES)
    output = Output(Construct(node, template, dictionary), TRIPLE)
    there: Counter[tuple[Term | None, ...]] = Counter()
    told: Counter[tuple[int, ...]] = Counter()
    for row, count in changes:
        if count and there[row] + count >= 0:
            there[row] += count
            node.push(tuple(dictionary.encode(term) if term else 0 for term in row), count)
        told.update(dict(output.take_changes()))
        assert set(told.values()) <= {0, 1}
        assert +told == output.multiset()
        kept = [[dictionary.decode(each) for each in row] for row in output.rows()]
        expected = construct(template, NAMES, there.elements())
        assert shape(kept) == shape(expected)
