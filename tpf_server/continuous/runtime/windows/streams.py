"""Deliver elements to the windows whose patterns match, by predicates and constants.

An arrival costs as many patterns as match, not as there are.
"""

from collections.abc import Callable, Sequence

from annotations.terms import Term
from tpf_client.dataflow.changes import Solution, TermId
from tpf_client.sparql.expressions.typed_terms import Remembered
from tpf_server.continuous.runtime.clock import StreamClock
from tpf_server.continuous.runtime.windows.matchers import ByConstants, EncodedTriple, StarMatcher
from tpf_server.continuous.runtime.windows.window_input import WindowInput

_Listener = tuple[WindowInput, Callable[[EncodedTriple], Solution | None], bool]
_Shape = list[tuple[WindowInput, tuple[int, ...]]]


class ElementStream(StreamClock):
    """A stream of elements, each a sequence of triples, and the inputs that listen to it.

    Attributes:
        triples: count; the last one has this number.
        inputs: the windows over it, in the order in which they take an element.
        version: changes whenever other windows or queries take an element.
    """

    def __init__(self, name: Term) -> None:
        super().__init__()
        self.name = name
        self.triples = 0
        self.inputs: list[WindowInput] = []
        self.counting: list[WindowInput] = []
        self._listeners: ByConstants[_Listener] = ByConstants()
        # Here they are, for `deliver` to look without a call.
        self._of_masks = self._listeners.of_masks
        self._of_predicates = self._listeners.of_predicates
        self._stars: dict[TermId, list[WindowInput]] = {}
        self._shapes: Remembered[tuple[TermId, ...], _Shape | None] = Remembered()
        self.version = 0

    def listen(self, entry: WindowInput) -> None:
        """Add an input, the last in order."""
        self.inputs.append(entry)
        self._changed()
        matcher = entry.matcher
        if isinstance(matcher, StarMatcher):
            for predicate in matcher.predicates:
                self._stars.setdefault(predicate, []).append(entry)
            return
        if entry.by_count:
            self.counting.append(entry)
        self._listeners.add(matcher.mask, (entry, matcher.row, bool(entry.by_count)))

    def leave(self, entry: WindowInput) -> None:
        self.inputs.remove(entry)
        self._changed()
        matcher = entry.matcher
        if isinstance(matcher, StarMatcher):
            for predicate in matcher.predicates:
                self._stars[predicate].remove(entry)
                if not self._stars[predicate]:
                    del self._stars[predicate]
            return
        if entry.by_count:
            self.counting.remove(entry)
        self._listeners.remove(matcher.mask, (entry, matcher.row, bool(entry.by_count)))

    def _changed(self) -> None:
        self.version += 1
        self._shapes.clear()

    def expire_counted(self, coming: int) -> None:
        """Expire from windows that count triples what `coming` more triples push out."""
        for entry in self.counting:
            entry.expire(self.triples + coming)

    def deliver(self, at: int, triples: Sequence[EncodedTriple]) -> None:
        """Give an element, already counted, to its takers, in the order of the inputs."""
        first = self.triples - len(triples) + 1
        if len(triples) == 1 and not self._stars:
            # What most elements come to, without the steps in between.
            triple = triples[0]
            if self._of_masks:
                entries: Sequence[_Listener] = self._interested(triple)
            else:
                entries = self._of_predicates.get(triple[1], ())
            for entry, row_of, by_count in entries:
                row = row_of(triple)
                if row is not None:
                    entry.arrive_row(first if by_count else at, row)
            return
        subject = triples[0][0] if triples else 0
        if all(triple[0] == subject for triple in triples):
            shape = self.shape(tuple([triple[1] for triple in triples]))
            if shape is not None:
                # The subject comes last, so that its place, -1, is the place in this list too.
                terms = [triple[2] for triple in triples]
                terms.append(subject)
                for entry, positions in shape:
                    entry.arrive_star(
                        at, subject, tuple([terms[position] for position in positions])
                    )
                return
        calls: list[tuple[int, int, WindowInput, Sequence[EncodedTriple]]] = []
        for offset, triple in enumerate(triples):
            for entry, _, _ in self._interested(triple):
                calls.append((entry.number, first + offset, entry, (triple,)))
        if self._stars:
            self._call_stars(triples, calls)
        calls.sort(key=lambda call: call[:2])
        for _, number, entry, matching in calls:
            if entry.by_count and number <= self.triples - entry.by_count:
                continue
            entry.arrive(number if entry.by_count else at, matching)

    def shape(self, predicates: tuple[TermId, ...]) -> _Shape | None:
        """Return the windows that take an element with one subject and these predicates.

        ``None``: some pattern takes single triples, or a part of a star (see `StarMatcher.places`).
        """
        if predicates not in self._shapes:
            self._shapes.remember(predicates, self._find_shape(predicates))
        return self._shapes[predicates]

    def _find_shape(self, predicates: tuple[TermId, ...]) -> _Shape | None:
        if self._of_masks or any(each in self._of_predicates for each in predicates):
            return None
        result: dict[int, tuple[WindowInput, tuple[int, ...]]] = {}
        for predicate in predicates:
            for entry in self._stars.get(predicate, ()):
                assert isinstance(entry.matcher, StarMatcher)
                positions = entry.matcher.places(predicates)
                if positions is None:
                    return None
                result[entry.number] = (entry, positions)
        return [result[number] for number in sorted(result)]

    def _call_stars(
        self,
        triples: Sequence[EncodedTriple],
        calls: list[tuple[int, int, WindowInput, Sequence[EncodedTriple]]],
    ) -> None:
        subjects: dict[TermId, list[EncodedTriple]] = {}
        for triple in triples:
            subjects.setdefault(triple[0], []).append(triple)
        for position, group in enumerate(subjects.values()):
            interested: dict[int, WindowInput] = {}
            for _, predicate, _ in group:
                for entry in self._stars.get(predicate, ()):
                    interested[entry.number] = entry
            for number, entry in interested.items():
                calls.append((number, position, entry, group))

    def _interested(self, triple: EncodedTriple) -> list[_Listener]:
        result = self._listeners.of(triple)
        if self._of_masks:
            result.sort(key=lambda listener: listener[0].number)
        return result
