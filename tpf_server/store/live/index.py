"""Index a live store: apply records in order, find slots by pattern."""

import gc
import heapq
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from annotations.instants import from_micros
from annotations.labels import Expiration, Fact, FactKey, Interval
from annotations.methods.base import NAMED_GRAPHS, FactPattern
from annotations.methods.names import identity
from annotations.terms import DEFAULT_GRAPH, Quad, Term
from tpf_server.errors import SnapshotExpired
from tpf_server.store.live.log import (
    FOREVER,
    NO_START,
    Floor,
    Log,
    Record,
    Version,
    decode,
    encode,
)
from tpf_server.store.live.rows import ANY, EXPIRING, INTERVALS, Names, Rows, token_bits
from tpf_server.store.protocols import MOST_FREQUENT, BatchRun, FactEvent

# The versions that wait until retention lets go of them.
#
# Those that were replaced wait in the order in which that happened. Those that stand wait in heaps
# by the ends of their labels, where an entry is left behind when its version is replaced. Once
# those could be half of a heap, all entries are looked at again, a few with each batch, so that no
# batch takes long: the old heap loses one leaf after the other, and is a heap all the time.

_ROW = 0xFFFFFFFF
_SLACK = 1024


class RetirementQueue:
    """Rows that retention will retire. An entry is an instant or a batch, then a row."""

    def __init__(self, rows: Rows, keep_history: bool) -> None:
        self._rows = rows
        self._keep_history = keep_history
        self._superseded: deque[int] = deque()
        self._ends = _Ends(rows), _Ends(rows)

    def __len__(self) -> int:
        return len(self._superseded) + sum(map(len, self._ends))

    def add(self, row: int) -> None:
        """Add a row that stands, or was removed."""
        rows = self._rows
        if rows.removed[row] != FOREVER:
            self._superseded.append(rows.removed[row] << 32 | row)
        elif rows.start[row] == NO_START or not self._keep_history:
            self._ends[rows.kind_of[rows.slot[row]]].add(row)

    def add_again(self, rows: Sequence[int]) -> None:
        """Return rows that were taken and not retired."""
        for row in rows:
            if self._rows.removed[row] != FOREVER:
                self._superseded.appendleft(self._rows.removed[row] << 32 | row)
            else:
                self.add(row)

    def take(self, sequence: int, expired: int, history: int, limit: int) -> list[int]:
        """Take rows that no snapshot can show any more."""
        results: list[int] = []
        while len(results) < limit and self.superseded_until(sequence):
            entry = self._superseded.popleft()
            if self._is_superseded(entry):
                results.append(entry & _ROW)
        results += self._ends[EXPIRING].take(expired, limit - len(results))
        results += self._ends[INTERVALS].take(history, limit - len(results))
        return results

    def superseded_until(self, sequence: int) -> bool:
        """True where rows removed until this batch wait."""
        return bool(self._superseded) and self._superseded[0] >> 32 <= sequence

    def ended_until(self, expired: int, history: int) -> bool:
        """True where an expiring version, or an interval, may have ended."""
        return self._ends[EXPIRING].is_due(expired) or self._ends[INTERVALS].is_due(history)

    def tidy(self, work: int) -> None:
        while self._superseded and not self._is_superseded(self._superseded[0]):
            self._superseded.popleft()
        standing = self._rows.live_rows - len(self._superseded)
        for ends in self._ends:
            ends.tidy(standing, work)

    def _is_superseded(self, entry: int) -> bool:
        row = entry & _ROW
        return self._rows.row_in_use(row) and self._rows.removed[row] == entry >> 32


class _Ends:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._new: list[int] = []
        self._old: list[int] = []
        """What is still to be looked at again."""

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def add(self, row: int) -> None:
        heapq.heappush(self._new, self._rows.end[row] << 32 | row)

    def is_due(self, instant: int) -> bool:
        return any(heap and heap[0] >> 32 <= instant for heap in (self._new, self._old))

    def take(self, instant: int, limit: int) -> list[int]:
        results: list[int] = []
        for heap in (self._new, self._old):
            while heap and len(results) < limit and heap[0] >> 32 <= instant:
                entry = heapq.heappop(heap)
                if self._stands(entry):
                    results.append(entry & _ROW)
        return results

    def tidy(self, standing: int, work: int) -> None:
        if not self._old and len(self._new) > 2 * standing + _SLACK:
            self._old, self._new = self._new, self._old
        for _ in range(min(work, len(self._old))):
            entry = self._old.pop()
            if self._stands(entry):
                heapq.heappush(self._new, entry)

    def _stands(self, entry: int) -> bool:
        rows, row = self._rows, entry & _ROW
        return (
            rows.row_in_use(row) and rows.end[row] == entry >> 32 and rows.removed[row] == FOREVER
        )


# _Postings: from a term to the slots in which it occurs, compact for the many terms with few.

_FEW = 16

_Posting = int | tuple[int, ...] | set[int]


class _Postings:
    """Sets of slots by term: one slot is kept as itself, a few as a tuple, many as a set."""

    def __init__(self) -> None:
        self._slots: dict[int, _Posting] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._slots)

    def get(self, term: int) -> Collection[int]:
        """Return the slots of a term; do not change or keep them."""
        posting = self._slots.get(term, ())
        return (posting,) if isinstance(posting, int) else posting

    def add(self, term: int, slot: int) -> None:
        posting = self._slots.get(term)
        if posting is None:
            self._slots[term] = slot
        elif isinstance(posting, set):
            posting.add(slot)
        elif isinstance(posting, int):
            if posting != slot:
                self._slots[term] = (posting, slot)
        elif slot not in posting:
            more = (*posting, slot)
            self._slots[term] = more if len(more) <= _FEW else set(more)

    def discard(self, term: int, slot: int) -> None:
        posting = self._slots.get(term)
        if isinstance(posting, set):
            posting.discard(slot)
            rest: _Posting = posting if len(posting) > _FEW // 2 else tuple(posting)
        elif isinstance(posting, tuple):
            rest = tuple(one for one in posting if one != slot)
        else:
            rest = () if posting == slot or posting is None else posting
        if isinstance(rest, tuple) and len(rest) < 2:
            if rest:
                self._slots[term] = rest[0]
            else:
                self._slots.pop(term, None)
        else:
            self._slots[term] = rest


# Keeps a large index out of the sight of the cyclic garbage collector.
#
# A full collection looks at every element of every list and dictionary that might be part of a
# cycle: a quarter of a second for a million facts, in the midst of some request, and again
# whenever the number of objects has grown by a quarter. Nothing in an index is ever part of a
# cycle.

_MANY = 50_000


class Unwatched:
    """Freeze the index for the garbage collector each time it has doubled.

    ``gc.freeze`` takes all objects of the process; reference counts still free those outside
    cycles.
    """

    def __init__(self) -> None:
        self._next = _MANY

    def grown(self, size: int) -> None:
        if size >= self._next:
            self._next = 2 * size
            gc.collect(1)
            gc.freeze()


@contextmanager
def no_garbage() -> Iterator[None]:
    """Suspend garbage collection while many objects are made that stay."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


NAMED = -2
"""The graph of a pattern that matches all graphs but the default one."""
_WORK, _WORK_AT_LEAST = 4, 64
"""How many entries are looked at again with a batch: per entry of it, and at least."""
_COLUMNS = ("subject_of", "predicate_of", "graph_of", "kind_of")
_new_tuple = tuple.__new__
_KINDS = {None: ANY, "expiration": EXPIRING, "interval": INTERVALS}


class NumberPattern(NamedTuple):
    """A pattern in numbers; `ANY` leaves a position open, `NAMED` is any named graph."""

    subject: int
    predicate: int
    object: int
    graph: int
    kind: int
    repeats: bool = False


class RetainedBatch(NamedTuple):
    """A batch that a snapshot may show."""

    sequence: int
    published: int
    """When, in microseconds."""
    changed: int
    """When facts were published last: batches that only let go of versions do not count."""


class FactIndex:
    """All retained versions by slot, and the slots by term."""

    def __init__(self, key: FactKey, keep_history: bool = True) -> None:
        self.key: FactKey = key
        self.rows = Rows()
        self.retirement = RetirementQueue(self.rows, keep_history)
        self.last = 0
        self.floor = Floor()
        self.batches: deque[RetainedBatch] = deque()
        """The batches, oldest retained first."""
        self._slot_of_key: dict[int, int] = {}
        self._slots: set[int] = set()
        self._repeating: set[int] = set()
        """The slots in which a version holds one term in two positions, or did."""
        self._by_subject = _Postings()
        self._by_predicate = _Postings()
        self._by_object = _Postings()
        self._by_graph = _Postings()
        self._free_rows: set[int] = set()
        self._free_slots: set[int] = set()
        self._next_row = 0
        self._next_slot = 0
        self._names = Names(self.rows)
        self._expiring: dict[str, int] = {}

    # Following the log

    def apply(self, record: Record, touched: Callable[[int, int, int], None]) -> None:
        rows, sequence = self.rows, record.sequence
        self._note_expiring(record)
        for row in record.removed:
            if rows.row_in_use(row):
                rows.removed[row] = sequence
                self.retirement.add(row)
                touched(rows.slot[row], rows.object[row], -1)
        for row in record.retired:
            if rows.row_in_use(row):
                if rows.removed[row] == FOREVER:
                    touched(rows.slot[row], rows.object[row], -1)
                self._retire(row)
        for version in record.added:
            self._insert(version, sequence, FOREVER)
            touched(version.slot, rows.object[version.row], version.row)
        for version, added, removed in record.carried:
            if not rows.row_in_use(version.row):  # read for the first time
                self._insert(version, added, removed)
                touched(version.slot, rows.object[version.row], version.row)
        self.last = sequence
        self.floor = record.floor
        changed = record.published
        if not (record.added or record.removed) and self.batches:
            changed = self.batches[-1].changed
        self.batches.append(RetainedBatch(sequence, record.published, changed))
        while self.batches[0].sequence < self.floor.sequence:
            self.batches.popleft()
        self.retirement.tidy(_WORK * record.entries + _WORK_AT_LEAST)

    def _note_expiring(self, record: Record) -> None:
        expiring, rows = self._expiring, self.rows
        for version in record.added:
            if version.start == NO_START:
                expiring[version.predicate] = record.published
        for version, _, _ in record.carried:
            # Of what is read for the first time it is not known any more when it came.
            if version.start == NO_START and not rows.row_in_use(version.row):
                expiring[version.predicate] = record.published
        ended = [r for r in record.removed if rows.row_in_use(r) and rows.start[r] == NO_START]
        for quad in self.quads(ended):
            expiring[quad.predicate] = record.published

    def published(self, sequence: int) -> int | None:
        """Return when a batch was published, in microseconds; ``None``: that is not retained."""
        first = self.batches[0].sequence if self.batches else self.last + 1
        return self.batches[sequence - first].published if first <= sequence <= self.last else None

    def expiring_since(self, predicate: Term | None) -> int | None:
        """Return when an expiring fact with this predicate (``None``: any) was last changed.

        In microseconds; ``None``: not since this process began to read the log.
        """
        if predicate is None:
            return max(self._expiring.values(), default=None)
        return self._expiring.get(predicate)

    def _insert(self, version: Version, added: int, removed: int) -> None:
        rows, row, slot = self.rows, version.row, version.slot
        self._free_rows.discard(row)
        self._next_row = max(self._next_row, row + 1)
        if rows.insert(version, added, removed):
            self._free_slots.discard(slot)
            self._next_slot = max(self._next_slot, slot + 1)
            self._slots.add(slot)
            self._by_subject.add(rows.subject_of[slot], slot)
            self._by_predicate.add(rows.predicate_of[slot], slot)
            if version.graph:
                self._by_graph.add(rows.graph_of[slot], slot)
                self._by_graph.add(NAMED, slot)
            self._slot_of_key[self._key(slot, rows.object[row])] = slot
        self._by_object.add(rows.object[row], slot)
        if rows.repeats(row):
            self._repeating.add(slot)
        self.retirement.add(row)
        self._names.add(row)

    def _retire(self, row: int) -> None:
        rows = self.rows
        obj = rows.object[row]
        key = self._key(rows.slot[row], obj)
        graph = rows.terms.text(rows.graph_of[rows.slot[row]])
        slot, empty = rows.remove(row)
        self._free_rows.add(row)
        if empty or not rows.holds(slot, obj):
            self._by_object.discard(obj, slot)
        if empty:
            del self._slot_of_key[key]
            self._slots.discard(slot)
            self._repeating.discard(slot)
            self._by_subject.discard(rows.subject_of[slot], slot)
            self._by_predicate.discard(rows.predicate_of[slot], slot)
            if graph:
                self._by_graph.discard(rows.graph_of[slot], slot)
                self._by_graph.discard(NAMED, slot)
            rows.release_slot(slot)
            self._free_slots.add(slot)

    def _key(self, slot: int, obj: int) -> int:
        rows = self.rows
        parts = rows.subject_of[slot] << 64 | rows.predicate_of[slot] << 32 | rows.graph_of[slot]
        if self.key == "triple":
            parts = parts << 32 | obj
        return parts << 1 | rows.kind_of[slot]

    def settle(self) -> None:
        """Collect the free numbers after reading the log."""
        self._free_rows = {n for n in range(self._next_row) if not self.rows.row_in_use(n)}
        self._free_slots = {n for n in range(self._next_slot) if not self.rows.slot_in_use(n)}

    # What the next batch needs

    def take_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        self._next_row += 1
        return self._next_row - 1

    def take_slot(self) -> int:
        if self._free_slots:
            return self._free_slots.pop()
        self._next_slot += 1
        return self._next_slot - 1

    def give_back(self, versions: Sequence[Version]) -> None:
        """Free the numbers of versions that were planned and are not published."""
        self._free_rows.update(version.row for version in versions)
        slots = {version.slot for version in versions}
        self._free_slots.update(slot for slot in slots if not self.rows.slot_in_use(slot))

    def take_back(self, record: Record) -> None:
        """Free what was planned for a record that is not published."""
        self.give_back(record.added)
        self.retirement.add_again(record.retired)

    def slots_of(self, quad: Quad) -> list[int | None]:
        """Return the slots of a fact's key by kind; ``None`` for none."""
        find = self.rows.terms.find
        s, p, o, g = map(find, quad)
        if s is None or p is None or g is None:
            return [None, None]
        parts = s << 64 | p << 32 | g
        if self.key == "triple":
            if o is None:
                return [None, None]
            parts = parts << 32 | o
        slot_of = self._slot_of_key.get
        return [slot_of(parts << 1 | EXPIRING), slot_of(parts << 1 | INTERVALS)]

    # Looking up

    def numbers(self, pattern: FactPattern) -> NumberPattern | None:
        """Return the pattern in numbers; ``None`` where a term occurs nowhere."""
        find = self.rows.terms.find
        numbers = [ANY if term is None else find(term) for term in pattern[:4]]
        if pattern.graph == NAMED_GRAPHS:
            numbers[3] = NAMED
        if None in numbers:
            return None
        return NumberPattern._make((*numbers, _KINDS[pattern.labelling], pattern.repeats))

    def candidates(self, pattern: NumberPattern) -> Collection[int]:
        """Return the fewest slots that hold all matches; do not change them."""
        choices: list[Collection[int]] = [self._repeating if pattern.repeats else self._slots]
        if pattern.subject != ANY:
            choices.append(self._by_subject.get(pattern.subject))
        if pattern.predicate != ANY:
            choices.append(self._by_predicate.get(pattern.predicate))
        if pattern.object != ANY:
            choices.append(self._by_object.get(pattern.object))
        if pattern.graph == NAMED or (pattern.graph != ANY and self.rows.terms.text(pattern.graph)):
            choices.append(self._by_graph.get(pattern.graph))
        return min(choices, key=len)

    def matches_slot(self, slot: int, pattern: NumberPattern) -> bool:
        """True where a slot matches, apart from its objects."""
        rows = self.rows
        subject, predicate, _, graph, kind, _ = pattern
        return (
            (subject == ANY or subject == rows.subject_of[slot])
            and (predicate == ANY or predicate == rows.predicate_of[slot])
            and (
                graph == ANY
                or graph == rows.graph_of[slot]
                or (graph == NAMED and rows.terms.text(rows.graph_of[slot]) != DEFAULT_GRAPH)
            )
            and (kind == ANY or kind == rows.kind_of[slot])
        )

    def matches_row(self, row: int, pattern: NumberPattern) -> bool:
        """True where a row of a matching slot matches."""
        rows = self.rows
        return pattern.object in (ANY, rows.object[row]) and (
            not pattern.repeats or rows.repeats(row)
        )

    def predicates(self) -> list[Term]:
        """Return the predicates that most of the retained facts have."""
        slots = self._by_predicate
        most = heapq.nlargest(MOST_FREQUENT, slots, key=lambda number: len(slots.get(number)))
        return [Term(self.rows.terms.text(number)) for number in most]

    def rows_with(self, predicates: Callable[[Term], bool]) -> npt.NDArray[np.int32]:
        rows = self.rows
        result = np.flatnonzero(rows.in_use()).astype(np.int32)
        numbers = rows.numpy("predicate_of")[rows.numpy("slot")[result]]
        chosen = [n for n in np.unique(numbers).tolist() if predicates(Term(rows.terms.text(n)))]
        return result[np.isin(numbers, chosen)]

    def matching_rows(self, pattern: NumberPattern) -> npt.NDArray[np.int32]:
        """Return the matching rows of every instant and state."""
        rows = self.rows
        candidates = self.candidates(pattern)
        if len(candidates) < rows.live_rows // 50:
            slots = [slot for slot in candidates if self.matches_slot(slot, pattern)]
            result = np.concatenate(
                [np.empty(0, np.int32), *(np.asarray(rows.rows(slot), np.int32) for slot in slots)]
            )
        else:
            result = np.flatnonzero(rows.in_use()).astype(np.int32)
            slot_of = rows.numpy("slot")
            for name, number in zip(_COLUMNS, (*pattern[:2], *pattern[3:5]), strict=True):
                column = rows.numpy(name)
                if number == NAMED:
                    default = self.rows.terms.find(DEFAULT_GRAPH)
                    result = result[
                        column[slot_of[result]] != (ANY if default is None else default)
                    ]
                elif number != ANY:
                    result = result[column[slot_of[result]] == number]
        if pattern.object != ANY:
            result = result[rows.numpy("object")[result] == pattern.object]
        return result

    def slots_of_identity(self, token: str) -> dict[int, set[int]]:
        """Return the rows whose fact has this token, by slot."""
        results: dict[int, set[int]] = {}
        for row in self._names.find(token_bits(token)):
            if self.rows.row_in_use(row) and identity(self.fact(row)) == token:
                results.setdefault(self.rows.slot[row], set()).add(row)
        return results

    def quads(self, rows: Sequence[int]) -> list[Quad]:
        columns, texts = self.rows, self.rows.terms.texts
        slots = list(map(columns.slot.__getitem__, rows))
        terms = (
            texts(map(columns.subject_of.__getitem__, slots)),
            texts(map(columns.predicate_of.__getitem__, slots)),
            texts(map(columns.object.__getitem__, rows)),
            texts(map(columns.graph_of.__getitem__, slots)),
        )
        return list(map(_new_tuple, repeat(Quad), zip(*terms, strict=True)))

    def facts(self, rows: Sequence[int]) -> list[Fact]:
        starts = map(self.rows.start.__getitem__, rows)
        labels = map(label_of, starts, map(self.rows.end.__getitem__, rows))
        return list(map(_new_tuple, repeat(Fact), zip(self.quads(rows), labels, strict=True)))

    def fact(self, row: int) -> Fact:
        return self.facts((row,))[0]


# What batches did, page by page.
#
# How many events each batch has is known without reading it, so only the batches of a page are
# decoded. A batch that is much larger than a page is kept in compressed slices once it was: whoever
# asks for one page of it asks for the next.

_SLICE = 1_000
_SLICES = 32 * 2**20
"""Bytes of the slices that are kept; those of one batch in any case."""


class _Part(NamedTuple):
    sequence: int
    published: int
    begin: int
    end: int
    total: int


class BatchEvents:
    """The events of the batches of a log, by position."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._sequences, self._published = array("q"), array("q")
        self._ends = array("q")
        """How many events there are up to the end of each batch."""
        self._before = 0
        self._slices: OrderedDict[int, list[bytes]] = OrderedDict()
        self._kept = 0
        self._lock = threading.Lock()

    def note(self, record: Record) -> None:
        self._sequences.append(record.sequence)
        self._published.append(record.published)
        last = self._ends[-1] if self._ends else self._before
        self._ends.append(last + len(record.gone) + len(record.added))

    def forget(self, oldest: int) -> None:
        count = bisect_left(self._sequences, oldest)
        if count:
            self._before = self._ends[count - 1]
            for column in (self._sequences, self._published, self._ends):
                del column[:count]

    def runs(self, size: int, after: int, until: int | None) -> list[BatchRun]:
        sequences, published = self._sequences, self._published
        first = bisect_right(sequences, after)
        stop = len(sequences) if until is None else bisect_right(sequences, until)
        results = []
        while first < stop:
            number = (sequences[first] - 1) // size
            end = min(stop, bisect_right(sequences, (number + 1) * size, first))
            last = end - 1
            results.append(
                BatchRun(
                    number, sequences[first], sequences[last], published[first], published[last]
                )
            )
            first = end
        return results

    def parts(self, after: int, until: int, offset: int, limit: int) -> list[_Part]:
        """Return the events of a page as parts; see `LiveStore.events`."""
        ends, first = self._ends, bisect_right(self._sequences, after)
        stop = bisect_right(self._sequences, until, first)
        begin = (ends[first - 1] if first else self._before) + offset
        results = []
        position = bisect_right(ends, begin, first, stop)
        while position < stop and limit:
            before = ends[position - 1] if position else self._before
            end = min(ends[position], begin + limit)
            if end > begin:
                sequence, total = self._sequences[position], ends[position] - before
                published = self._published[position]
                results.append(_Part(sequence, published, begin - before, end - before, total))
            limit -= end - begin
            begin, position = end, position + 1
        return results

    def read(self, parts: Sequence[_Part]) -> list[FactEvent]:
        with self._lock:
            cut = {each.sequence: self._slices.get(each.sequence) for each in parts}
            for sequence in filter(cut.get, cut):
                self._slices.move_to_end(sequence)
        whole = [sequence for sequence, slices in cut.items() if slices is None]
        records: dict[int, Record] = {}
        if whole:
            read = self._log.read(whole[0] - 1, whole[-1] - whole[0] + 1)
            records = {each.sequence: each for each in read if each.sequence in cut}
        results: list[FactEvent] = []
        for part in parts:
            slices = cut[part.sequence]
            if slices is not None:
                results += _events_of_slices(part, slices)
                continue
            record = records.get(part.sequence)
            if record is None:
                raise SnapshotExpired("what was published then is not kept any more")
            results += _events_of(record, 0, part.begin, part.end)
            if part.total > _SLICE:
                self._keep(record)
        return results

    def _keep(self, record: Record) -> None:
        sequence, published, gone = record.sequence, record.published, record.gone
        slices = []
        for begin in range(0, len(gone) + len(record.added), _SLICE):
            end = begin + _SLICE
            added = record.added[max(0, begin - len(gone)) : max(0, end - len(gone))]
            slices.append(encode(Record(sequence, published, added, gone=gone[begin:end])))
        with self._lock:
            if sequence not in self._slices:
                self._slices[sequence] = slices
                self._kept += sum(map(len, slices))
            while self._kept > _SLICES and len(self._slices) > 1:
                self._kept -= sum(map(len, self._slices.popitem(last=False)[1]))


def _events_of_slices(part: _Part, slices: Sequence[bytes]) -> Iterator[FactEvent]:
    for number in range(part.begin // _SLICE, -(-part.end // _SLICE)):
        first = number * _SLICE
        record = decode(part.sequence, part.published, slices[number])
        yield from _events_of(record, first, part.begin - first, part.end - first)


def _events_of(record: Record, first: int, begin: int, end: int) -> Iterator[FactEvent]:
    gone = len(record.gone)
    for position in range(max(begin, 0), min(end, gone + len(record.added))):
        version = record.gone[position] if position < gone else record.added[position - gone]
        fact = Fact(Quad(*map(Term, version[2:6])), label_of(version.start, version.end))
        yield FactEvent(record.sequence, first + position, record.published, fact, position < gone)


@lru_cache(maxsize=65536)
def label_of(start: int, end: int) -> Expiration | Interval:
    """Return the label of a start and end."""
    if start == NO_START:
        return Expiration(from_micros(end))
    return Interval(from_micros(start), from_micros(end))
