"""Takes batches of elements in: each is checked, and a batch that comes again is known."""

from collections.abc import Callable, Sequence

from annotations.terms import Term
from tpf_server.continuous.cqels.engine import Engine
from tpf_server.continuous.csparql.engine import CsparqlEngine
from tpf_server.continuous.engine.elements.elements import Element
from tpf_server.continuous.engine.elements.timestamps import iso
from tpf_server.continuous.engine.errors import ElementError
from tpf_server.continuous.policies import Policies
from tpf_server.continuous.receipts import Receipt, Receipts
from tpf_server.continuous.streams import SharedStreams


class Intake:
    """What a service does with elements from outside.

    Args:
        engine: for CQELS-QL.
        periodic: for C-SPARQL; it knows what streams declare.
        streams: of both.
        policies: what is refused.
        now: tells the time, in milliseconds since 1970.

    Attributes:
        receipts: of batches.
    """

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

    def checked(
        self, stream: Term, elements: Sequence[Element | ElementError]
    ) -> list[Element | ElementError]:
        """The elements, with an error in the place of each that is refused.

        Raises:
            ElementError: by setting, one of them is; then none is taken.
        """
        found = [self._checked(each, stream) for each in elements]
        for each in found if self._policies.whole_batches else ():
            if isinstance(each, ElementError):
                raise each
        return found

    def _checked(self, element: Element | ElementError, stream: Term) -> Element | ElementError:
        if isinstance(element, Element):
            try:
                self._periodic.check_declared(stream, (each[1] for each in element.triples))
            except ElementError as error:
                return ElementError(str(error), element.line)
            if self._policies.time == "clock" and element.at > self._now() + self._policies.ahead:
                return ElementError(f"{iso(element.at)} is in the future", element.line)
        return element

    def take(
        self, stream: Term, batch: str | None, checked: Sequence[Element | ElementError]
    ) -> Receipt:
        """Give elements that were checked to the engines, unless their batch came before."""
        repeated = self.receipts.repeated(stream, batch)
        if repeated is not None:
            return repeated
        dropped, late = self._engine.dropped, self._periodic.late
        accepted = 0
        for each in checked:
            if isinstance(each, Element):
                self._streams.arrive(stream, each.triples, each.at)
                accepted += 1
        self._streams.end_batch()
        dropped = self._engine.dropped - dropped
        late = self._periodic.late - late
        refused = tuple(each for each in checked if isinstance(each, ElementError))
        receipt = Receipt(accepted - dropped, refused, dropped, late)
        self.receipts.keep(stream, batch, receipt)
        return receipt

    def forget(self, stream: Term) -> None:
        """A stream is no more."""
        self.receipts.forget(stream)
