"""SERVICE with a variable: a pattern at every endpoint that the solutions before it name.

Source: SPARQL 1.1 Federated Query, section 2.4 and section 4.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Change, Solution, TermId
from tpf_client.dataflow.node import Input, Node

Defer: TypeAlias = Callable[[Callable[[], object]], None]
"""Does something as soon as no change is being passed on."""


def at_once(action: Callable[[], object]) -> None:
    """Does it now."""
    action()


class EachEndpoint(Node):
    """The solutions that the endpoints give, each built for when its name first comes.

    Args:
        seed: different solutions, which bind the variable.
        variable: the name of the endpoint.
        schema: variables of the output, `variable` among them.
        build: makes the node of an endpoint's solutions, with this schema, from those solutions of
            the seed that name it.
        defer: building may mean requests; it waits until the dataflow is at rest.
    """

    def __init__(
        self,
        seed: Node,
        variable: Variable,
        schema: Sequence[Variable],
        build: Callable[[TermId, Node], Node],
        defer: Defer = at_once,
    ) -> None:
        super().__init__(schema, frozenset((variable,)), monotone=False)
        self._seed = seed
        self._place = seed.schema.index(variable)
        self._build = build
        self._defer = defer
        self._entries: dict[TermId, Input] = {}
        self._early: dict[TermId, list[Change]] = {}
        seed.connect(self._push)

    @property
    def leads_elsewhere(self) -> bool:
        """Whether an endpoint was named."""
        return bool(self._entries or self._early)

    def _push(self, solution: Solution, count: int) -> None:
        endpoint = solution[self._place]
        entry = self._entries.get(endpoint)
        if entry is not None:
            entry.push(solution, count)
            return
        early = self._early.get(endpoint)
        if early is not None:
            early.append((solution, count))
            return
        self._early[endpoint] = [(solution, count)]
        self._defer(lambda: self._open(endpoint))

    def _open(self, endpoint: TermId) -> None:
        entry = Input(self._seed.schema, self._seed.certain, monotone=self._seed.monotone)
        node = self._build(endpoint, entry)
        node.connect(lambda solution, count: self.emit(solution, count))
        self._entries[endpoint] = entry
        for solution, count in self._early.pop(endpoint):
            entry.push(solution, count)
