"""Random queries while others come, fail and go, beside a recomputation."""

from collections.abc import Iterable, Sequence
from random import Random

from hypothesis import example, given

from tests.support.csparql_reference import Clocks, Reference, Solutions, solutions
from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    NODES,
    RANDOM,
    STATIC,
    STREAMS,
    CsparqlWriter,
    in_csparql,
    random_clauses,
    random_elements,
)
from tpf_server.continuous.continuous_engine import Engine, EngineSettings, InstantSettings
from tpf_server.continuous.runtime.clock import ReorderBuffer
from tpf_server.continuous.runtime.errors import CallbackError
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.runtime.instants.rules import RULES

Triple = tuple[str, str, str]
TIMELY = (
    "BIND (NOW() AS ?now)"
    " FILTER (SECONDS(NOW()) < 0.015 || SECONDS(NOW()) > 0.025 && NOT EXISTS { ?a <urn:p> ?c })"
)


class BrokenError(Exception):
    """An error of a callback."""


class Beside:
    """A query among others, and its expected answers.

    Args:
        engine: runs it.
        random: chooses the query.
        static: N-Quads.
        clocks: the time of streams.
        others: running queries, of which it may be a copy.
    """

    def __init__(
        self,
        engine: Engine,
        random: Random,
        static: str,
        clocks: Clocks,
        others: list["Beside"],
    ) -> None:
        every = random.randint(1, 4) if random.random() < 0.2 else None
        if others and random.random() < 0.4:
            other = random.choice(others)
            text, clauses = other.reference.sparql, list(other.reference.clauses)
        else:
            clauses = random_clauses(random)
            text = CsparqlWriter(random, clauses).query(random.choice([0, 1, 2, 3]))
            if Random(text).random() < 0.2:
                text = text.replace("WHERE {", f"WHERE {{ {TIMELY}", 1)
                text = text.replace("?c ?d WHERE", "?c ?d ?now WHERE", 1)
        self.text = in_csparql(text, clauses, every)
        self.reference: Reference = Reference(text, clauses, static, every=every)
        self.found: list[tuple[int, Solutions]] = []
        self.expected: list[tuple[int, Solutions]] = []
        self.broken = False
        self._clocks = clocks
        self._streams = {clause.stream for clause in clauses}
        self._late = 0
        self._last = -1
        self._arrived = 0
        # The last instant of which nobody is asked any more, and the first of all.
        self._done = -1
        self._begin: int | None = None
        self.look()
        self.query = engine.register_csparql(
            self.text.replace("QUERY q", f"QUERY q{id(self)}"), self._take
        )

    def _take(self, answer: PeriodicAnswer) -> None:
        if self.broken:
            raise BrokenError
        self.found.append((answer.at, solutions(answer.variables, answer.rows)))

    def look(self, stream: str | None = None) -> None:
        """Note that time has passed on a stream, or on all."""
        if stream is not None and stream not in self._streams:
            return
        while self._clocks.passed(self._streams, self._done + 1):
            self._done += 1
            due = any(self._done % each == 0 for each in self.reference.periods)
            if self._begin is not None and self._done >= self._begin and due:
                self.expected.append((self._done, self.reference.judged(self._done)))
                self._last = self._done

    def arrive(self, stream: str, triples: Sequence[Triple], at: int) -> None:
        """An element comes."""
        if stream not in self._streams:
            return
        if self._begin is None:
            self._begin = max(at, self._done + 1)
        self._late += at <= self._last
        for triple in triples:
            self.reference.push(stream, at, [triple])
            self._arrived += 1
            steps = [clause.step for clause in self.reference.clauses]
            if not self.reference.periods and any(self._arrived % step == 0 for step in steps):
                self.expected.append((at, self.reference.judged(at)))

    def check(self) -> bool:
        """Check the answers; return True if it goes on."""
        if self.broken and self.expected:
            assert (self.query.state, self.found) == ("stopped", [])
            assert isinstance(self.query.error, CallbackError)
            return False
        assert self.query.state == "running"
        assert self.found == self.expected, self.text
        assert self.query.late == self._late
        self.found.clear()
        self.expected.clear()
        return True


@examples(18)
@given(RANDOM)
@example(Random(54809))
def test_events_between_elements(random: Random) -> None:
    """Queries come and go, static data change, callbacks raise, streams run ahead."""
    lateness = random.choice([0, 0, 2])
    waiting: ReorderBuffer[tuple[str, Sequence[Triple]]] = ReorderBuffer(lateness)
    clocks = Clocks(patience=random.choice([0, 0, 3, 20]))
    by_clock = random.random() < 0.3
    engine = Engine(
        EngineSettings(lateness=lateness),
        instants=InstantSettings(rules=random.choice([(), RULES]), patience=clocks.patience),
    )
    lines = dict.fromkeys(STATIC.strip().splitlines())
    for line in lines:
        terms = line.split(" ")[:-1]
        engine.add([terms[:3]], terms[3][1:-1] if len(terms) > 3 else None)
    running: list[Beside] = []

    def register() -> None:
        running.append(Beside(engine, random, "\n".join(lines), clocks, running))

    def look(stream: str | None = None) -> None:
        for each in running:
            each.look(stream)

    def arrive(released: Iterable[tuple[int, tuple[str, Sequence[Triple]]]]) -> None:
        for own, (stream, triples) in released:
            clocks.newest[stream] = own
            look(stream)
            for each in running:
                each.arrive(stream, triples, own)

    def advance(at: int) -> None:
        arrive(waiting.until(at - lateness))
        clocks.told = at - lateness
        look()
        engine.advance(at)
        check()

    def check() -> None:
        running[:] = [each for each in running if each.check()]

    at = 0
    ahead = dict.fromkeys(["urn:s1", "urn:s2", "urn:s3"], 0)
    register()
    for stream, pause, triples in random_elements(random, random.randint(1, 20)):
        match random.randrange(8):
            case 0 | 1 if len(running) < 5:
                register()
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
                advance(at)
                at += 1
            case 6:
                ahead[random.choice([*ahead])] += random.choice([1, 4, 15])
        at += pause
        if by_clock:
            clocks.present = engine.present = at
        if random.random() < 0.1:
            stream = "urn:s3"
        own = at + ahead[stream]
        arrive(waiting.add(stream, own, (stream, triples)))
        engine.push(stream, triples, own)
        check()
    advance(at + 25)
    for each in running:
        each.query.close()
    assert (
        len(engine.instants.readers.windows)
        == len(engine.instants.timetable)
        == len(engine.instants._evaluations)
        == 0
    )


@examples(18)
@given(RANDOM)
def test_rows_that_go_make_room_for_others(random: Random) -> None:
    """Whenever its windows are empty a query has the same room."""
    engine = Engine(instants=InstantSettings(rules=random.choice([(), RULES])))
    for line in STATIC.strip().splitlines():
        terms = line.split(" ")[:-1]
        engine.add([terms[:3]], terms[3][1:-1] if len(terms) > 3 else None)
    queries = []
    for number in range(4):
        clauses = [each for each in random_clauses(random) if not each.triples]
        text = CsparqlWriter(random, clauses).query(random.choice([0, 1, 2, 3]))
        text = in_csparql(text, clauses).replace("QUERY q", f"QUERY q{number}")
        queries += [engine.register_csparql(text)] if clauses else []
    at = 0
    rooms = []
    for count in (5, 20, 5):
        for stream in STREAMS:
            engine.push(stream[1:-1], (NODES[0], "<urn:p>", NODES[1]), at)
        for stream, pause, triples in random_elements(random, count):
            at += pause
            engine.push(stream, triples, at)
        at += 100
        engine.advance(at)
        assert {
            (each.state, sum(each.evaluation.held(each.question).values())) for each in queries
        } <= {("running", 0)}
        rooms.append([each.evaluation._main.work.left for each in queries])
    assert rooms[0] == rooms[1] == rooms[2]
