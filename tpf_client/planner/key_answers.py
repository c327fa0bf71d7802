"""Keys, and the fragments that answer them: of one key, a block of keys, or the whole."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import Change, Schema, Solution, projection
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.fragments.blank_nodes import askable
from tpf_client.fragments.form import PATTERN_VARIABLES, Block
from tpf_client.planner.demand import Need
from tpf_client.planner.evaluation import SURPRISE, Evaluation
from tpf_client.planner.live_fragment import (
    FragmentReading,
    LiveFragment,
    OnQuadChanges,
    QuadChanges,
)
from tpf_client.planner.source import Estimate, Source, Star, impossible, substitute
from tpf_client.sparql.algebra import variables_of_quad

# From the quads of a fragment to solutions of its pattern.


def extractor(
    pattern: QuadPattern, dictionary: TermDictionary
) -> Callable[[Quad], Solution | None]:
    """Return a function from a quad to the pattern's solution, if it matches.

    A variable as graph does not match the default graph (SPARQL 1.1, section 13.3).
    """
    variables = variables_of_quad(pattern)
    positions = [pattern.index(name) for name in variables]
    repeats = [
        (position, pattern.index(term))
        for position, term in enumerate(pattern)
        if is_variable(term) and pattern.index(term) != position
    ]
    constants = [
        (position, term)
        for position, term in enumerate(pattern[:3])
        if not is_variable(term) and term.startswith(("_:", '"'))
    ]
    named_only = is_variable(pattern.graph)
    encode = dictionary.encode
    if not (repeats or constants or named_only):
        if len(positions) == 1:
            (only,) = positions
            return lambda quad: (encode(quad[only]),)
        if len(positions) == 2:
            first, second = positions
            return lambda quad: (encode(quad[first]), encode(quad[second]))

    def extract(quad: Quad) -> Solution | None:
        if named_only and quad.graph == DEFAULT_GRAPH:
            return None
        for position, first in repeats:
            if quad[position] != quad[first]:
                return None
        for position, term in constants:
            if quad[position] != term:
                return None
        return tuple([encode(quad[position]) for position in positions])

    return extract


# Blocks of keys that one request is restricted to.

BLOCK_BYTES = 5000
"""UTF-8 of a block at most, which takes up to three times as much in a URL: servers and proxies
refuse URLs much longer than this."""

T = TypeVar("T")


def packed(
    rows: Iterable[tuple[tuple[Term, ...], T]], size: int
) -> Iterator[Sequence[tuple[tuple[Term, ...], T]]]:
    """Pack rows with their values into as few blocks as number and length allow."""
    block: list[tuple[tuple[Term, ...], T]] = []
    taken = 0
    for row in rows:
        length = sum(len(term.encode()) + 3 for term in row[0])
        if block and (len(block) >= size or taken + length > BLOCK_BYTES):
            yield block
            block, taken = [], 0
        block.append(row)
        taken += length
    if block:
        yield block


Deliver: TypeAlias = Callable[[Iterable[Change]], None]


@dataclass(slots=True)
class LookupReport:
    """The work of a lookup, for explanations and tests."""

    pattern: QuadPattern
    estimate: Estimate
    keys: int = 0
    requests: int = 0
    whole: LiveFragment | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    keys: set[Solution]
    fragment: LiveFragment | None = None
    subscriber: OnQuadChanges | None = None


@dataclass(slots=True)
class _Key:
    deliver: Deliver
    rows: dict[Solution, None] = field(default_factory=dict)
    batch: _Batch | None = None


class KeyAnswers:
    """The keys of a lookup: waiting, requested and answered ones."""

    def __init__(
        self,
        evaluation: Evaluation,
        pattern: QuadPattern,
        keys: Schema,
        estimate: Estimate,
        star: Star | None,
        source: Source | None,
        need: Need | None,
    ) -> None:
        self.schema: Schema = variables_of_quad(pattern)
        self.report = LookupReport(pattern, estimate)
        self._need = need or Need()
        self._source = source or evaluation.source
        self._star = star
        self._evaluation = evaluation
        self._pattern = pattern
        self._keys = keys
        self._key_of = projection(self.schema, keys)
        self._estimate = estimate
        self._turn = len(evaluation.leaves)
        self._unlabelled = evaluation.unlabelled(self._source, pattern, estimate)
        self._entries: dict[Solution, _Key] = {}
        self._waiting: dict[Solution, _Key] = {}
        self._batches: dict[_Batch, None] = {}
        self._unanswered: list[_Batch] = []
        self._index: dict[Solution, dict[Solution, None]] | None = None
        self._extract = extractor(pattern, evaluation.dictionary)
        self._seen: dict[Solution, dict[Solution, None]] | None = None
        self._settled: set[Solution] = set()
        self._positions = [
            (position, keys.index(Variable(term)))
            for position, term in enumerate(pattern)
            if term in keys
        ]

    def at_rest(self) -> bool:
        if self._waiting:
            return False
        if self._index is not None:
            return self.report.whole is not None and self.report.whole.loaded
        unanswered = self._unanswered
        while unanswered and unanswered[-1].fragment is not None and unanswered[-1].fragment.loaded:
            unanswered.pop()
        return not unanswered

    def answered(self, key: Solution) -> bool:
        """True if everything with a requested key has been delivered."""
        if self._index is not None:
            return self.report.whole is not None and self.report.whole.loaded
        batch = self._entries[key].batch
        if batch is None:
            # It can match nothing, was answered before the whole fragment was begun, or waits.
            return key not in self._waiting
        return batch.fragment is not None and batch.fragment.loaded

    def request(self, key: Solution, deliver: Deliver) -> None:
        self.report.keys += 1
        entry = self._entries[key] = _Key(deliver)
        if self._index is None:
            self._waiting[key] = entry
            self._settled.discard(key)
            rows = entry.rows = self._on_first_page().pop(key, {})
        else:
            rows = self._index.get(key, {})
        if rows:
            deliver([(row, 1) for row in rows])

    def _on_first_page(self) -> dict[Solution, dict[Solution, None]]:
        if self._seen is None:
            self._seen = {}
            if not self._evaluation.live:
                for fact in self._estimate.first:
                    row = self._extract(fact.quad)
                    if row is not None:
                        self._seen.setdefault(self._key_of(row), {})[row] = None
        return self._seen

    def release(self, key: Solution) -> None:
        entry = self._entries.pop(key)
        self._waiting.pop(key, None)
        self._let_go(key, entry)

    def _look_up_known(self, star: Star) -> None:
        blocks: dict[Block | None, list[Solution]] = {}
        for key in self._waiting:
            if key in star.asked:
                blocks.setdefault(star.asked[key], []).append(key)
        for block, keys in blocks.items():
            if block is not None:
                self._subscribe(star.pattern, block, keys)
            else:
                for key in keys:
                    self._subscribe(substitute(star.pattern, self._binding(key)), None, [key])

    def _binding(self, key: Solution) -> dict[Variable, Term]:
        decode = self._evaluation.dictionary.decode
        return {name: decode(value) for name, value in zip(self._keys, key, strict=True)}

    def _ask(self, keys: Sequence[Solution], turn: int | None = None) -> None:
        star = self._star if self._star is not None and self._star.worthwhile else None
        pattern = self._pattern if star is None else star.pattern
        rows: list[tuple[tuple[Term, ...], Solution]] = []
        alone: list[Solution] = []
        for key in keys:
            binding = self._binding(key)
            if not all(askable(term) for term in binding.values()):
                # Only the whole fragment can tell.
                self._read_whole()
                return
            if impossible(substitute(self._pattern, binding)):
                del self._waiting[key]
            elif self._estimate.block < 2 or any(t.startswith("<<") for t in binding.values()):
                alone.append(key)
            else:
                values = tuple(binding.values())
                rows.append((tuple(values[position] for _, position in self._positions), key))
        for block in packed(sorted(rows), self._estimate.block):
            if len(block) == 1:
                alone.append(block[0][1])
                continue
            names = tuple(PATTERN_VARIABLES[position] for position, _ in self._positions)
            values_of = Block(names, tuple(values for values, _ in block))
            block_keys = [key for _, key in block]
            self._count(pattern, values_of)
            if star is not None:
                star.asked.update(dict.fromkeys(block_keys, values_of))
            self._subscribe(pattern, values_of, block_keys, turn)
        for key in alone:
            bound = substitute(pattern, self._binding(key))
            self._count(bound, None)
            if star is not None:
                star.asked[key] = None
            self._subscribe(bound, None, [key], turn)

    def _count(self, pattern: QuadPattern, block: Block | None) -> None:
        if not self._evaluation.has(pattern, self._source, block):
            self.report.requests += 1

    def _subscribe(
        self,
        asked: QuadPattern,
        block: Block | None,
        keys: Sequence[Solution],
        turn: int | None = None,
    ) -> None:
        batch = _Batch(set(keys))
        self._batches[batch] = None
        if not self._evaluation.live:
            self._unanswered.append(batch)
        for key in keys:
            self._waiting.pop(key).batch = batch
        key_of, extract, entries = self._key_of, self._extract, self._entries
        predicate, object_ = self._pattern.predicate, self._pattern.object
        whatever = is_variable(object_)
        starred = self._star is not None

        def receive(changes: QuadChanges) -> None:
            delivered: dict[Solution, list[Change]] = {}
            for quad, count in changes:
                if starred and (
                    quad.predicate != predicate or not (whatever or quad.object == object_)
                ):
                    continue
                row = extract(quad)
                if row is None or (key := key_of(row)) not in batch.keys:
                    continue
                rows = entries[key].rows
                if count < 0:
                    rows.pop(row, None)
                elif row in rows:
                    continue
                else:
                    rows[row] = None
                delivered.setdefault(key, []).append((row, count))
            for key, each in delivered.items():
                if key in batch.keys:
                    entries[key].deliver(each)

        batch.subscriber = receive
        reading = FragmentReading(
            dynamic=self._estimate.dynamic != 0,
            turn=self._turn if turn is None else turn,
            unlabelled=self._unlabelled,
        )
        batch.fragment = self._evaluation.subscribe(asked, receive, self._source, reading, block)

    def _let_go(self, key: Solution, entry: _Key) -> None:
        batch, entry.batch = entry.batch, None
        if batch is None:
            return
        batch.keys.discard(key)
        if not batch.keys:
            del self._batches[batch]
            if batch.fragment is not None and batch.subscriber is not None:
                self._evaluation.unsubscribe(batch.fragment, batch.subscriber)

    def _repack(self) -> None:
        block = self._estimate.block
        if not self._evaluation.live or block < 2:
            return
        keys = sum(len(batch.keys) for batch in self._batches) + len(self._waiting)
        if len(self._batches) < 2 * self._requests(keys):
            return
        for batch in [each for each in self._batches if len(each.keys) * 2 < block]:
            for key in list(batch.keys):
                entry = self._entries[key]
                self._let_go(key, entry)
                if entry.rows:
                    entry.deliver([(row, -1) for row in entry.rows])
                    entry.rows = {}
                self._waiting[key] = entry

    def _requests(self, keys: int) -> int:
        return -(-keys // self._estimate.block)

    def _read_whole(self) -> None:
        self._waiting.clear()
        if self._star is not None:
            self._star.members.pop(self._pattern, None)
        index: dict[Solution, dict[Solution, None]] = {}
        self._index = index
        for key, entry in list(self._entries.items()):
            read = None if entry.batch is None else entry.batch.fragment
            if not self._evaluation.live and read is not None and read.loaded:
                # The whole fragment may call the same otherwise, or be of a later instant.
                self._settled.add(key)
            self._let_go(key, entry)
            if entry.rows and self._evaluation.live:
                # The whole fragment may show another instant: it delivers everything anew.
                entry.deliver([(row, -1) for row in entry.rows])
                entry.rows = {}
            elif entry.rows:
                index[key] = entry.rows
        reading = FragmentReading(
            dynamic=bool(self._estimate.dynamic),
            enough=self._need.enough if self._evaluation.live else self._enough,
            limited=self._need.limited,
            pages=None if self._estimate.pages is None else self._estimate.pages + 1,
            turn=self._turn,
            unlabelled=self._unlabelled,
        )
        self.report.whole = self._evaluation.subscribe(
            self._pattern, self._receive, self._source, reading
        )

    def _enough(self) -> bool:
        """With a wrong count the length is unknown: some pages are risked for the gain."""
        whole, estimate = self.report.whole, self._estimate
        if self._need.met or whole is None or estimate.pages is None:
            return self._need.met
        longer = self._evaluation.lengths.knows(self._source, self._pattern)
        if not longer and whole.pages <= SURPRISE * (estimate.pages + 1):
            return False
        return self._requests(len(self._entries)) <= SURPRISE**2 * whole.pages

    def _given_up(self) -> bool:
        whole = self.report.whole
        unfinished = whole is not None and not whole.loaded and not whole.loading
        return unfinished and not self._need.met and not self._evaluation.live

    def _back_to_keys(self) -> None:
        whole, index = self.report.whole, self._index
        assert whole is not None
        assert index is not None
        self._evaluation.unsubscribe(whole, self._receive)
        self._index, self._star = None, None
        self._estimate = replace(self._estimate, pages=None)
        for key, entry in self._entries.items():
            entry.rows = index.get(key, {})
            if key not in self._settled:
                self._waiting[key] = entry

    def _receive(self, changes: QuadChanges) -> None:
        index = self._index
        assert index is not None
        key_of, extract = self._key_of, self._extract
        delivered: dict[Solution, list[Change]] = {}
        for quad, count in changes:
            row = extract(quad)
            if row is None:
                continue
            key = key_of(row)
            if key in self._settled:
                continue
            rows = index.setdefault(key, {})
            if count > 0:
                if row in rows:
                    continue
                rows[row] = None
            elif row in rows:
                del rows[row]
                if not rows:
                    del index[key]
            else:
                continue
            if key in self._entries:
                delivered.setdefault(key, []).append((row, count))
        for key, each in delivered.items():
            entry = self._entries.get(key)
            if entry is not None:
                entry.deliver(each)
