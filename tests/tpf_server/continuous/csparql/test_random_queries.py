"""Random queries of all of SPARQL while others come, fail and go, beside a recomputation.

More of them by hand: ``TPF_EXAMPLES=10000 ./run test --hypothesis-profile=default`` and this file.
"""

import os
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.csparql_reference import Reference, Solutions, solutions
from tests.support.random_continuous_queries import (
    NODES,
    STATIC,
    CsparqlWriter,
    in_csparql,
    random_clauses,
    random_elements,
)
from tpf_server.continuous.csparql.answers import Answer
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.csparql.rules import RULES
from tpf_server.continuous.engine.errors import CallbackError

EXAMPLES = int(os.environ.get("TPF_EXAMPLES", "0"))
RANDOM = st.integers(0, 2**32).map(Random)
Triple = tuple[str, str, str]


class BrokenError(Exception):
    """What callbacks raise."""


class Beside:
    """A query of an engine with others, and what it must answer by itself.

    Args:
        engine: runs it.
        random: chooses the query.
        static: N-Quads.
        done: the last instant of which nobody is asked any more.
        others: that run, of which it may be a copy.
    """

    def __init__(
        self, engine: CsparqlEngine, random: Random, static: str, done: int, others: list["Beside"]
    ) -> None:
        every = random.randint(1, 4) if random.random() < 0.2 else None
        if others and random.random() < 0.4:
            other = random.choice(others)
            text, clauses = other.reference.sparql, list(other.reference.clauses)
        else:
            clauses = random_clauses(random)
            text = CsparqlWriter(random, clauses).query(random.choice([0, 1, 2, 3]))
        self.text = in_csparql(text, clauses, every)
        self.reference: Reference = Reference(text, clauses, static, every=every)
        self.found: list[tuple[int, Solutions]] = []
        self.expected: list[tuple[int, Solutions]] = []
        self.broken = False
        self._done = done
        self._arrived = 0
        self.query = engine.register(self.text.replace("QUERY q", f"QUERY q{id(self)}"), self._take)

    def _take(self, answer: Answer) -> None:
        if self.broken:
            raise BrokenError
        self.found.append((answer.at, solutions(answer.variables, answer.rows)))

    def pass_until(self, at: int) -> None:
        """Nothing comes any more of this instant, or of one before."""
        reference = self.reference
        if reference.periods:
            instants = [each for each in reference.instants(at) if each > self._done]
            self.expected += [(each, reference.judged(each)) for each in instants]
        self._done = at

    def arrive(self, stream: str, triples: Sequence[Triple], at: int) -> None:
        """An element comes."""
        if stream not in {clause.stream for clause in self.reference.clauses}:
            return
        for triple in triples:
            self.reference.push(stream, at, [triple])
            self._arrived += 1
            steps = [clause.step for clause in self.reference.clauses]
            if not self.reference.periods and any(self._arrived % step == 0 for step in steps):
                self.expected.append((at, self.reference.judged(at)))

    def check(self) -> bool:
        """Whether it goes on, having answered what it must."""
        if self.broken and self.expected:
            assert (self.query.state, self.found) == ("stopped", [])
            assert isinstance(self.query.error, CallbackError)
            return False
        assert self.query.state == "running"
        assert self.found == self.expected, self.text
        self.found.clear()
        self.expected.clear()
        return True


@settings(max_examples=EXAMPLES or 60, deadline=None)
@given(RANDOM)
def test_events_between_elements(random: Random) -> None:
    """Queries come and go, static data change, callbacks raise: the others do not notice."""
    engine = CsparqlEngine(rules=random.choice([(), RULES]))
    lines = dict.fromkeys(STATIC.strip().splitlines())
    for line in lines:
        terms = line.split(" ")[:-1]
        engine.add([terms[:3]], terms[3][1:-1] if len(terms) > 3 else None)
    running: list[Beside] = []

    def register(done: int) -> None:
        running.append(Beside(engine, random, "\n".join(lines), done, running))

    def check() -> None:
        running[:] = [each for each in running if each.check()]

    at = 0
    register(-1)
    for stream, pause, triples in random_elements(random, random.randint(1, 20)):
        match random.randrange(8):
            case 0 | 1 if len(running) < 5:
                register(at - 1)
            case 2 if running:
                running.pop(random.randrange(len(running))).query.close()
            case 3:
                triple = (random.choice(NODES), "<urn:near>", random.choice(NODES))
                line = f"{' '.join(triple)} ."
                if line in lines:
                    del lines[line]
                    engine.remove([triple])
                else:
                    lines[line] = None
                    engine.add([triple])
                for each in running:
                    each.reference.restate("\n".join(lines))
            case 4 if running:
                random.choice(running).broken = True
            case 5:
                at += 2
                for each in running:
                    each.pass_until(at)
                engine.advance(at)
                check()
                at += 1
        at += pause
        for each in running:
            each.pass_until(at - 1)
            each.arrive(stream, triples, at)
        engine.push(stream, triples, at)
        check()
    for each in running:
        each.pass_until(at + 4)
    engine.advance(at + 4)
    check()
    for each in running:
        each.query.close()
    assert len(engine._windows) == len(engine._schedule) == len(engine._evaluations) == 0
