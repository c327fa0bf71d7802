"""Lookups of keys in fragments: key by key, in blocks of keys, or the whole fragment.

Which takes the fewest requests is known only when the keys are. So keys are held back until what
brings them has arrived, unless it is clear before: where those that wait are already more than the
whole fragment is worth, or where there cannot be so many. A few go before, so that the first
solutions need not wait (see `FragmentLookup.scout`). A query that wants only a few solutions
asks for few keys at once, the more the more it has asked for, and gives up on keys after as many
requests as the whole fragment takes (at most twice the requests of the better choice, as in ski
rental). So does one for which some of the keys may turn out not to matter (see `demand`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.build.join_order import SELECTIVITY
from tpf_client.dataflow.changes import Change, Schema, Solution, projection
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.fragments.blank_nodes import askable
from tpf_client.fragments.form import POSITIONS, Block
from tpf_client.planner.demand import Choice, Need
from tpf_client.planner.evaluation import Evaluation, Lookups
from tpf_client.planner.lengths import SURPRISE
from tpf_client.planner.live_fragment import LiveFragment, QuadChanges, Subscriber
from tpf_client.planner.source import Estimate, Source, impossible, substitute
from tpf_client.planner.turns import URGENT
from tpf_client.sparql.algebra import variables_of_quad

Deliver: TypeAlias = Callable[[Iterable[Change]], None]

WINDOW = 32
"""Requests under way at a time, at most, where only a few solutions are wanted."""

CAUTION = 16
"""The part of the requests for a whole fragment that is risked, beside one, so that the first
solutions come soon."""

EARLY = 2
"""How many times more keys than pages must be expected for the whole fragment to be read before
they have come."""

PATIENCE = 2
"""How many times the requests for a whole fragment are risked for keys that come by and by."""

BLOCK_CHARACTERS = 5000
"""Characters of a block at most: servers and proxies refuse URLs much longer than this."""


def extractor(
    pattern: QuadPattern, dictionary: TermDictionary
) -> Callable[[Quad], Solution | None]:
    """A function from a quad to the solution of the pattern's variables, ``None``: no match.

    A variable as graph does not match the default graph (SPARQL 1.1, section 13.3).
    """
    variables = variables_of_quad(pattern)
    places = [pattern.index(name) for name in variables]
    repeats = [
        (place, pattern.index(term))
        for place, term in enumerate(pattern)
        if is_variable(term) and pattern.index(term) != place
    ]
    constants = [
        (place, term)
        for place, term in enumerate(pattern[:3])
        if not is_variable(term) and term.startswith(("_:", '"'))
    ]
    named_only = is_variable(pattern.graph)
    encode = dictionary.encode

    def extract(quad: Quad) -> Solution | None:
        if named_only and quad.graph == DEFAULT_GRAPH:
            return None
        for place, first in repeats:
            if quad[place] != quad[first]:
                return None
        for place, term in constants:
            if quad[place] != term:
                return None
        return tuple([encode(quad[place]) for place in places])

    return extract


@dataclass(slots=True)
class LookupReport:
    """What a lookup did, for explanations and tests."""

    pattern: QuadPattern
    estimate: Estimate
    keys: int = 0
    asked: int = 0
    whole: LiveFragment | None = None
    rows: int = 0


@dataclass(slots=True)
class Star:
    """What is asked per subject in place of several patterns of the same subject.

    Args:
        pattern: the pattern that is asked: any property of the subject.
        members: the patterns that it can stand for, with the requests that each takes when it is
            read whole; ``None``: unknown. Those that were answered otherwise are taken out.
    """

    pattern: QuadPattern
    members: dict[QuadPattern, int | None]
    asked: dict[Solution, Block | None] = field(default_factory=dict)

    @property
    def worthwhile(self) -> bool:
        """Whether it spares requests beside asking for one property."""
        return len(self.members) > 1 or bool(self.asked)

    def whole_cost(self) -> int | None:
        """How many requests it takes to read all members whole."""
        known = [pages for pages in self.members.values() if pages is not None]
        return sum(known) if len(known) == len(self.members) else None


@dataclass(slots=True, eq=False)
class _Batch:
    """Keys that are answered from one fragment."""

    keys: set[Solution]
    fragment: LiveFragment | None = None
    subscriber: Subscriber | None = None


@dataclass(slots=True)
class _Key:
    """A key that somebody looks up."""

    deliver: Deliver
    rows: dict[Solution, None] = field(default_factory=dict)
    batch: _Batch | None = None


class FragmentLookup:
    """Answers keys from the fragments of a pattern; a `LookupSource`.

    Args:
        evaluation: the query.
        pattern: the pattern to look up.
        keys: its variables that make a key.
        estimate: how much matches the whole pattern.
        star: what may be asked in place of it, where the key is its subject.
        source: who answers; by default the source of the query.
        bound: how many keys there will be at most, as far as counts tell; ``None``: unknown.
        expected: about how many keys there will be; infinite: nobody knows.
        spread: how many times as many there may be.
        after: the lookups whose answers bring keys.
        need: whether only a few solutions are wanted.
        filtered: whether a filter looks at what this lookup brings, before anything else is asked.

    Attributes:
        choice: which keys matter; ``None``: all.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        pattern: QuadPattern,
        keys: Schema,
        estimate: Estimate,
        *,
        star: Star | None = None,
        source: Source | None = None,
        bound: int | None = None,
        expected: float = math.inf,
        spread: float = 1.0,
        after: Iterable[Lookups] = (),
        filtered: bool = False,
        need: Need | None = None,
    ) -> None:
        self.after = frozenset(after)
        self.choice: Choice | None = None
        self._filtered = filtered
        self._need = need or Need()
        self.schema: Schema = variables_of_quad(pattern)
        self.report = LookupReport(pattern, estimate)
        self._source = source or evaluation.source
        self._star = star
        self._bound = bound
        self._expected = expected
        self._spread = spread
        self._evaluation = evaluation
        self._pattern = pattern
        self._keys = keys
        self._key_of = projection(self.schema, keys)
        self._estimate = estimate
        self._turn = len(evaluation.leaves)
        self._entries: dict[Solution, _Key] = {}
        self._waiting: dict[Solution, _Key] = {}
        self._batches: dict[_Batch, None] = {}
        self._unanswered: list[_Batch] = []
        self._tried = 0
        self._scouts = 0
        self._scouting: list[LiveFragment] = []
        self._missing: int | None = None
        self._index: dict[Solution, dict[Solution, None]] | None = None
        self._extract = extractor(pattern, evaluation.dictionary)
        self._places = [
            (place, keys.index(Variable(term)))
            for place, term in enumerate(pattern)
            if term in keys
        ]
        evaluation.lookups.append(self)

    @property
    def patient(self) -> bool:
        """Whether what others find may spare it requests."""
        return self.choice is not None

    def at_rest(self) -> bool:
        """Whether all keys have been answered."""
        if self._waiting:
            return False
        if self._index is not None:
            return self.report.whole is not None and self.report.whole.loaded
        unanswered = self._unanswered
        while unanswered and unanswered[-1].fragment is not None and unanswered[-1].fragment.loaded:
            unanswered.pop()
        return not unanswered

    def answered(self, key: Solution) -> bool:
        """Whether everything with a key that is asked for has been delivered."""
        if self._index is not None:
            return self.report.whole is not None and self.report.whole.loaded
        batch = self._entries[key].batch
        if batch is None:
            # It can match nothing, or it waits.
            return key not in self._waiting
        return batch.fragment is not None and batch.fragment.loaded

    def request(self, key: Solution, deliver: Deliver) -> None:
        """Ask for the matches with this key."""
        self.report.keys += 1
        entry = self._entries[key] = _Key(deliver)
        if self._index is None:
            self._waiting[key] = entry
            return
        rows = self._index.get(key)
        if rows:
            deliver([(row, 1) for row in rows])

    def release(self, key: Solution) -> None:
        """Nobody looks up this key any more."""
        entry = self._entries.pop(key)
        self._waiting.pop(key, None)
        self._let_go(key, entry)

    # ------------------------------------------------------------------- what to ask, and when

    def pump(self, *, complete: bool) -> bool:
        """Ask for waiting keys, or for the whole fragment where that takes fewer requests."""
        if self._index is not None and self._given_up():
            self._back_to_keys()
        waiting = len(self._waiting)
        if waiting and self._star is not None and self._star.asked:
            self._look_up_known(self._star)
        self._ask_well(complete)
        return len(self._waiting) < waiting

    def _ask_well(self, complete: bool) -> None:
        if not self._waiting or self._need.met:
            return
        if self._estimate.pages == 0 or self._evaluation.has(self._pattern, self._source):
            self._read_whole()
            return
        if self.choice is not None:
            if not complete or self._ask_chosen(self.choice):
                return
            # It would not spare much: ask for everything.
            self.choice = None
        pages = self._whole_cost()
        eager = self._need.limited
        # What a continuous query asked for long ago costs nothing; what it holds is asked again.
        asked = len(self._batches) if self._evaluation.live else self.report.asked
        if pages is not None:
            next_ones = self._requests(len(self._waiting))
            if eager:
                next_ones = min(next_ones, self._room())
            # Keys that come one after the other, as on a path, may soon come to an end.
            spent = asked if eager or self._evaluation.live else asked - (PATIENCE - 1) * pages
            if max(spent, 0) + next_ones >= max(pages, 1):
                self._read_whole()
                return
        if eager:
            self._ask_some()
        elif complete:
            self._repack()
            self._ask(list(self._waiting))
        elif pages is not None and self._surely_whole(pages):
            self._read_whole()
        elif pages is None or (self._bound is not None and self._requests(self._bound) <= pages):
            full = len(self._waiting) // self._estimate.block * self._estimate.block
            self._ask(list(self._waiting)[:full])

    def _surely_whole(self, pages: int) -> bool:
        """Whether so many keys will come that there is no need to wait for them."""
        least = EARLY * pages * self._estimate.block
        return least <= self._expected < math.inf and not self._evaluation.live

    def scout(self) -> bool:
        """Ask for the first keys at once; whether it did.

        It may take a while to find out how to ask for the keys best, until those that bring them
        have arrived. So that the first solutions do not wait for that, a few keys go before, as
        soon as they are there and before anything else. Not where most probably the whole fragment
        is going to be read, unless solutions wait until it is sure that they have no partner here:
        of that the whole fragment tells at its end only. And one by one, but twice as many
        whenever those before led to no solution of the query.
        """
        need, waiting = self._need, self._waiting
        if not waiting or not need.hurried or need.limited or not self._evaluation.hurried:
            return False
        if self._estimate.block > 1 or self.choice is not None or self.scouts():
            return False
        pages = self._estimate.pages or 0
        unlikely = pages < self._expected * self._spread < math.inf
        risk = min(1 + pages // CAUTION - self._scouts, self._scouts + 1)
        if risk <= 0 or (unlikely and not need.decides):
            return False
        keys = list(waiting)[:risk]
        self._scouts += len(keys)
        self._ask(keys, URGENT)
        asked = (self._entries[key].batch for key in keys)
        self._scouting += [each.fragment for each in asked if each and each.fragment is not None]
        return True

    def scouts(self) -> list[LiveFragment]:
        """What is being read for the first keys."""
        self._scouting = [each for each in self._scouting if each.loading]
        return self._scouting

    def _ask_chosen(self, choice: Choice) -> bool:
        """Ask for some of the keys that matter, if that may be less than asking for all."""
        keys = choice.needed(self._waiting)
        if not keys:
            return True
        block = self._estimate.block
        requests = self._requests(choice.enough(keys))
        pages = self._whole_cost()
        whole = math.inf if pages is None else max(pages, 1) - self.report.asked
        if 2 * requests > min(whole, self._requests(len(keys))):
            return False
        self._ask(keys[: requests * block])
        return True

    def _requests(self, keys: int) -> int:
        """How many requests it takes to ask for this many keys."""
        return -(-keys // self._estimate.block)

    def _whole_cost(self) -> int | None:
        """How many requests the alternative to asking for keys takes."""
        star = self._star
        if star is None or not star.worthwhile or not is_variable(self._pattern.object):
            # A pattern with a constant object leaves fewer subjects for the rest of its star.
            return self._estimate.pages
        whole, own = star.whole_cost(), self._estimate.pages
        if not self._filtered or whole is None or own is None:
            return whole
        # So does one whose values a filter tests: how many is not known.
        left = self._requests(math.ceil(len(self._waiting) * SELECTIVITY))
        return own + min(whole - own, left)

    def _ask_some(self) -> None:
        """Ask for a few keys, if not too many of those asked before are under way.

        What is under way when a limit is met was asked for in vain: that is to be a small part.
        """
        loading = sum(b.fragment is not None and b.fragment.loading for b in self._batches)
        room = max(self._room(loading) - loading, 0)
        keys = list(self._waiting)[: room * self._estimate.block]
        self._tried += len(keys)
        self._ask(keys)

    def _room(self, loading: int = 0) -> int:
        """How many requests may be under way, where only a few solutions are wanted.

        Args:
            loading: how many are.
        """
        missing = self._need.missing
        self._missing = self._missing or missing
        if missing is not None and self._missing is not None and missing < self._missing:
            # As many as it takes, if they bring as much as those before.
            answered = max(self._tried - loading * self._estimate.block, 1)
            keys = math.ceil(answered * missing / (self._missing - missing))
            return min(self._requests(keys), 2 * self._requests(answered), WINDOW)
        return min(max(math.isqrt(self._requests(self._tried)), 1), WINDOW)

    def _repack(self) -> None:
        """Ask anew, together, for keys that are left over in many blocks (live fragments)."""
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

    # ---------------------------------------------------------------------------------- asking

    def _look_up_known(self, star: Star) -> None:
        """Answer the keys whose subjects were asked for, for another pattern of the star."""
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
        """Ask for these keys, as far as they can match at all."""
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
                rows.append((tuple(values[place] for _, place in self._places), key))
        blocks = _blocks(sorted(rows), self._estimate.block)
        for block in blocks:
            if len(block) == 1:
                alone.append(block[0][1])
                continue
            names = tuple(POSITIONS[place] for place, _ in self._places)
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
            self.report.asked += 1

    def _subscribe(
        self,
        asked: QuadPattern,
        block: Block | None,
        keys: Sequence[Solution],
        turn: int | None = None,
    ) -> None:
        """Answer these keys, which wait, from one fragment."""
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
                self.report.rows += sum(count for _, count in each)
                if key in batch.keys:
                    entries[key].deliver(each)

        batch.subscriber = receive
        batch.fragment = self._evaluation.subscribe(
            asked,
            receive,
            dynamic=self._estimate.dynamic != 0,
            source=self._source,
            block=block,
            turn=self._turn if turn is None else turn,
        )

    def _let_go(self, key: Solution, entry: _Key) -> None:
        batch, entry.batch = entry.batch, None
        if batch is None:
            return
        batch.keys.discard(key)
        if not batch.keys:
            del self._batches[batch]
            if batch.fragment is not None and batch.subscriber is not None:
                self._evaluation.unsubscribe(batch.fragment, batch.subscriber)

    def _read_whole(self) -> None:
        """Answer all keys from the whole fragment from now on."""
        self._waiting.clear()
        if self._star is not None:
            self._star.members.pop(self._pattern, None)
        index: dict[Solution, dict[Solution, None]] = {}
        self._index = index
        for key, entry in list(self._entries.items()):
            self._let_go(key, entry)
            if entry.rows and self._evaluation.live:
                # The whole fragment may show another instant: it delivers everything anew.
                entry.deliver([(row, -1) for row in entry.rows])
                entry.rows = {}
            elif entry.rows:
                index[key] = entry.rows
        self.report.whole = self._evaluation.subscribe(
            self._pattern,
            self._receive,
            dynamic=bool(self._estimate.dynamic),
            source=self._source,
            enough=None if self._evaluation.live else self._enough,
            limited=self._need.limited,
            pages=None if self._estimate.pages is None else self._estimate.pages + 1,
            turn=self._turn,
        )

    def _enough(self) -> bool:
        """Whether to read no further page: there are enough, or more than it would take by keys.

        Where a server's count is wrong, nobody knows how long a fragment is. Some pages in vain are
        risked then for what they may spare.
        """
        whole, estimate = self.report.whole, self._estimate
        if self._need.met or whole is None or estimate.pages is None:
            return self._need.met
        known = self._evaluation.lengths.knows(self._source, self._pattern)
        if not known and whole.pages <= SURPRISE * (estimate.pages + 1):
            return False
        return self._requests(len(self._entries)) <= SURPRISE**2 * whole.pages

    def _given_up(self) -> bool:
        whole = self.report.whole
        unfinished = whole is not None and not whole.loaded and not whole.loading
        return unfinished and not self._need.met and not self._evaluation.live

    def _back_to_keys(self) -> None:
        """Ask for keys after all; what was read of the whole fragment stays."""
        whole, index = self.report.whole, self._index
        assert whole is not None
        assert index is not None
        self._evaluation.unsubscribe(whole, self._receive)
        self._index, self._star = None, None
        self._estimate = replace(self._estimate, pages=None)
        for key, entry in self._entries.items():
            entry.rows = index.get(key, {})
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
            self.report.rows += count
            if key in self._entries:
                delivered.setdefault(key, []).append((row, count))
        for key, each in delivered.items():
            entry = self._entries.get(key)
            if entry is not None:
                entry.deliver(each)


Row: TypeAlias = tuple[tuple[Term, ...], Solution]


def _blocks(rows: Sequence[Row], size: int) -> Iterable[Sequence[Row]]:
    """The rows in as few blocks as their number and length allow."""
    block: list[Row] = []
    characters = 0
    for row in rows:
        length = sum(len(term) + 3 for term in row[0])
        if block and (len(block) >= size or characters + length > BLOCK_CHARACTERS):
            yield block
            block, characters = [], 0
        block.append(row)
        characters += length
    if block:
        yield block
