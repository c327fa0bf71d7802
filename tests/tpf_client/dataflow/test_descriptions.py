"""DESCRIBE against concise bounded descriptions of random data."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from annotations.namespaces import XSD
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tests.support.evaluation import Evaluation, evaluate
from tests.support.oracle import select, store_of

PREFIX = "PREFIX : <http://e/> "
NODES = [Term(f"<http://e/{name}>") for name in "abc"] + [Term(f"_:{name}") for name in "xyz"]
PREDICATES = [Term(f"<http://e/{name}>") for name in "pqr"]
LITERALS = [Term(f'"1"^^<{XSD}integer>'), Term('"t"')]
VARIABLES = ["?u", "?v", "?w"]


def _pattern(chance: Random) -> str:
    subject = chance.choice([*VARIABLES, ":a"])
    object_ = chance.choice([*VARIABLES, *VARIABLES, ":b", "1"])
    return f"{subject} {chance.choice([':p', ':q', '?x'])} {object_} ."


@given(st.randoms(use_true_random=False))
def test_descriptions(chance: Random) -> None:
    quads = {
        Quad(
            chance.choice(NODES),
            chance.choice(PREDICATES),
            chance.choice(NODES + LITERALS),
            DEFAULT_GRAPH,
        )
        for _ in range(chance.randint(3, 14))
    }
    body = _pattern(chance) + (
        f" OPTIONAL {{ {_pattern(chance)} }}" if chance.random() < 0.5 else ""
    )
    items = ["*"] if chance.random() < 0.2 else chance.sample([*VARIABLES, ":a", ":c"], 2)
    described = evaluate(f"{PREFIX}DESCRIBE {' '.join(items)} {{ {body} }}", quads)
    _check(described, quads, items, body)
    gone = set(chance.sample(sorted(quads), len(quads) // 3))
    described.change(removed=gone)
    _check(described, quads - gone, items, body)


def _check(described: Evaluation, quads: set[Quad], items: list[str], body: str) -> None:
    rows = described.rows()
    solutions = select(store_of(quads), f"{PREFIX}SELECT * {{ {body} }}")
    names = {"u", "v", "w", "x"} if items == ["*"] else {each[1:] for each in items}
    waiting = [Term(f"<http://e/{each[1:]}>") for each in items if each.startswith(":")]
    waiting += [
        term for row in solutions for name, term in row.items() if name.removeprefix("?") in names
    ]
    seen = set(waiting)
    wanted = set()
    while waiting:
        resource = waiting.pop()
        for quad in quads:
            if quad.subject == resource:
                wanted.add(tuple(quad.triple))
                if quad.object.startswith("_:") and quad.object not in seen:
                    seen.add(quad.object)
                    waiting.append(quad.object)
    assert len(rows) == len(set(rows))
    assert set(rows) == wanted
