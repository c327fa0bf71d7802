"""Lookups of keys in fragments: one request per key, or the whole fragment where that is less.

Which is less is known only when the keys are: so keys are held back for a moment, a few are asked
for at a time, and as soon as those asked and those waiting would take as many requests as the
whole fragment, it is read instead (after at most twice the requests of the better choice, as in
the ski rental problem).
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, Variable, is_variable
from tpf_client.dataflow.changes import (
    Change,
    Schema,
    Solution,
    TermDictionary,
    projection,
)
from tpf_client.fragments.blank_nodes import askable
from tpf_client.planner.evaluation import Evaluation, LiveFragment, QuadChanges, Subscriber
from tpf_client.planner.source import Estimate, Source, impossible, substitute
from tpf_client.sparql.algebra import variables_of_quad

Deliver: TypeAlias = Callable[[Iterable[Change]], None]

WINDOW = 32
"""Keys asked for at a time."""


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
    whole: bool = False
    rows: int = 0


@dataclass(slots=True)
class _Key:
    """A key that somebody looks up."""

    deliver: Deliver
    rows: dict[Solution, None] = field(default_factory=dict)
    fragment: LiveFragment | None = None
    subscriber: Subscriber | None = None


class FragmentLookup:
    """Answers keys from the fragments of a pattern; a `LookupSource`.

    Args:
        evaluation: the query.
        pattern: the pattern to look up.
        keys: its variables that make a key.
        estimate: how much matches the whole pattern.
        ask: the pattern that is asked in place of `pattern`; less specific (the star of a subject).
        source: who answers; by default the source of the query.
        whole_cost: requests that reading it whole takes, with the others of its star; by default
            those of the estimate.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        pattern: QuadPattern,
        keys: Schema,
        estimate: Estimate,
        ask: QuadPattern | None = None,
        source: Source | None = None,
        whole_cost: int | None = None,
    ) -> None:
        self._whole_cost = estimate.pages if whole_cost is None else whole_cost
        self._source = source or evaluation.source
        self.schema: Schema = variables_of_quad(pattern)
        self.report = LookupReport(pattern, estimate)
        self._evaluation = evaluation
        self._pattern = pattern
        self._ask = ask or pattern
        self._keys = keys
        self._key_of = projection(self.schema, keys)
        self._estimate = estimate
        self._entries: dict[Solution, _Key] = {}
        self._waiting: dict[Solution, _Key] = {}
        self._loading: list[LiveFragment] = []
        self._index: dict[Solution, dict[Solution, None]] | None = None
        self._extract = extractor(pattern, evaluation.dictionary)
        evaluation.lookups.append(self)

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
        self._let_go(entry)

    def pump(self) -> None:
        """Ask for waiting keys, or for the whole fragment where that takes fewer requests."""
        if self._waiting and self._ask is not self._pattern:
            self._look_up_known()
        if not self._waiting:
            return
        pages = self._whole_cost
        if pages is not None and (
            self._evaluation.has(self._pattern, self._source)
            or self.report.asked + len(self._waiting) >= max(pages, 1)
        ):
            self._read_whole()
            return
        self._loading = [each for each in self._loading if each.loading]
        while self._waiting and len(self._loading) < WINDOW:
            key = next(iter(self._waiting))
            entry = self._waiting.pop(key)
            if not self._look_up(key, entry):
                self._read_whole()
                return

    def _look_up_known(self) -> None:
        """Look up the keys whose fragments are read anyway, for another pattern of the star."""
        decode = self._evaluation.dictionary.decode
        for key, entry in list(self._waiting.items()):
            binding = {name: decode(value) for name, value in zip(self._keys, key, strict=True)}
            if self._evaluation.has(substitute(self._ask, binding), self._source):
                del self._waiting[key]
                self._look_up(key, entry)

    def _look_up(self, key: Solution, entry: _Key) -> bool:
        """Ask for one key; ``False`` where only the whole fragment can answer it."""
        decode = self._evaluation.dictionary.decode
        binding: dict[Variable, Term] = {
            name: decode(value) for name, value in zip(self._keys, key, strict=True)
        }
        if not all(askable(term) for term in binding.values()):
            return False
        bound = substitute(self._pattern, binding)
        if impossible(bound):
            return True
        asked = substitute(self._ask, binding)
        key_of, extract = self._key_of, self._extract

        def receive(changes: QuadChanges) -> None:
            delivered: list[Change] = []
            for quad, count in changes:
                if self._ask is not self._pattern and quad.predicate != self._pattern.predicate:
                    continue
                row = extract(quad)
                if row is None or key_of(row) != key:
                    continue
                if count > 0:
                    entry.rows[row] = None
                else:
                    entry.rows.pop(row, None)
                delivered.append((row, count))
            if delivered:
                self.report.rows += sum(count for _, count in delivered)
                entry.deliver(delivered)

        if not self._evaluation.has(asked, self._source):
            self.report.asked += 1
        entry.subscriber = receive
        entry.fragment = self._evaluation.subscribe(
            asked, receive, dynamic=self._estimate.dynamic != 0, source=self._source
        )
        if entry.fragment.loading:
            self._loading.append(entry.fragment)
        return True

    def _let_go(self, entry: _Key) -> None:
        if entry.fragment is not None and entry.subscriber is not None:
            self._evaluation.unsubscribe(entry.fragment, entry.subscriber)
            entry.fragment = entry.subscriber = None

    def _read_whole(self) -> None:
        """Answer all keys from the whole fragment from now on."""
        self.report.whole = True
        self._waiting.clear()
        index: dict[Solution, dict[Solution, None]] = {}
        self._index = index
        for key, entry in list(self._entries.items()):
            self._let_go(entry)
            if entry.rows and self._evaluation.live:
                # The whole fragment may show another instant: it delivers everything anew.
                entry.deliver([(row, -1) for row in entry.rows])
                entry.rows = {}
            elif entry.rows:
                index[key] = entry.rows
        self._evaluation.subscribe(
            self._pattern,
            self._receive,
            dynamic=bool(self._estimate.dynamic),
            source=self._source,
        )

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
