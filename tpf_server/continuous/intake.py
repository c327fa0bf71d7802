"""Takes batches of elements in: each is checked, and a batch that comes again is known."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from annotations.terms import Term
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.engine.elements.elements import LATEST, Element, iso
from tpf_server.continuous.engine.errors import ElementError, EngineClosedError
from tpf_server.continuous.engine.records.record_bodies import RecordBody
from tpf_server.continuous.engine.records.record_columns import milliseconds_of
from tpf_server.continuous.hosted import Policies
from tpf_server.continuous.kept_results import Receipt, Receipts
from tpf_server.continuous.streams import SharedStreams

Pushed: TypeAlias = Sequence[Element | ElementError] | RecordBody
"""What comes: elements, with an error in the place of each that is malformed, or records."""


class Intake:
    """What a service does with elements from outside."""

    def __init__(
        self,
        engine: Engine,
        periodic: CsparqlEngine,
        streams: SharedStreams,
        policies: Policies,
        now: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._periodic = periodic
        self._streams = streams
        self._policies = policies
        self._now = now
        self.receipts = Receipts()

    def takes_columns(self, stream: Term, batch: str | None) -> bool:
        """Whether records may be taken as columns, see `SharedStreams`; of those that are new."""
        new = self.receipts.repeated(stream, batch) is None
        return new and self._streams.takes_columns(stream)

    def checked(self, stream: Term, pushed: Pushed, *, as_columns: bool = False) -> Pushed:
        """The elements, with an error in the place of each that is refused.

        Raises:
            ElementError: by setting, one of them is refused; then none is taken.
        """
        if isinstance(pushed, RecordBody):
            fine = as_columns and self._fine(stream, pushed)
            return pushed if fine else self._each(stream, pushed.elements(), "record")
        return self._each(stream, pushed, "line")

    def _each(
        self, stream: Term, elements: Iterable[Element | ElementError], unit: str
    ) -> list[Element | ElementError]:
        found = []
        for each in elements:
            checked = self._checked(each, stream, unit)
            if self._policies.whole_batches and isinstance(checked, ElementError):
                raise checked
            found.append(checked)
        return found

    def _checked(
        self, element: Element | ElementError, stream: Term, unit: str
    ) -> Element | ElementError:
        if isinstance(element, Element):
            try:
                self._periodic.check_declared(stream, (each[1] for each in element.triples))
            except ElementError as error:
                return ElementError(str(error), element.line, unit)
            if element.at > self._latest:
                return ElementError(f"{iso(element.at)} is in the future", element.line, unit)
        return element

    @property
    def _latest(self) -> int:
        """The last instant that an element may have."""
        return self._now() + self._policies.ahead if self._policies.time == "clock" else LATEST

    def _fine(self, stream: Term, records: RecordBody) -> bool:
        """Whether no record is refused for its time or its predicates."""
        if records.columns is None:
            return False
        try:
            self._periodic.check_declared(stream, records.predicates)
            return bool(milliseconds_of(records.columns.timestamps).max() <= self._latest)
        except ElementError:
            return False

    def take(self, stream: Term, batch: str | None, checked: Pushed) -> Receipt | None:
        """Give elements that were checked to the engines, unless their batch came before.

        Returns:
            What became of them; ``None`` where records cannot be taken as columns, since one of
            them is malformed, or somebody looks at single ones since they were checked. Then
            nothing has happened: they are to be checked as elements.
        """
        repeated = self.receipts.repeated(stream, batch)
        if repeated is not None:
            return repeated
        dropped, late = self._engine.dropped, self._periodic.late
        elements: Iterable[Element | ElementError] = ()
        accepted = 0
        if not isinstance(checked, RecordBody):
            elements = checked
        elif self._streams.arrive_records(stream, checked):
            accepted = checked.count
        else:
            return None
        for each in elements:
            if self._engine.abandoned:
                raise EngineClosedError("the server stops")
            if isinstance(each, Element):
                self._streams.arrive(stream, each.triples, each.at)
                accepted += 1
        refused = tuple(each for each in elements if isinstance(each, ElementError))
        self._streams.end_batch()
        dropped = self._engine.dropped - dropped
        late = self._periodic.late - late
        receipt = Receipt(accepted - dropped, refused, dropped, late)
        self.receipts.keep(stream, batch, receipt)
        return receipt

    def forget(self, stream: Term) -> None:
        """A stream is no more."""
        self.receipts.forget(stream)
