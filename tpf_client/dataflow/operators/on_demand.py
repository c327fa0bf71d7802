"""A part of a dataflow that is built when its first solution comes."""

from collections.abc import Callable, Iterable, Sequence

from annotations.terms import Variable
from tpf_client.dataflow.changes import Change, Solution
from tpf_client.dataflow.node import Input, Node
from tpf_client.dataflow.operators.distinct import Distinct
from tpf_client.dataflow.operators.each_endpoint import Defer


class OnDemand(Node):
    """What is made of the solutions of a node, as soon as it has one.

    Args:
        upstream: the node.
        schema: variables of the output.
        certain: those that are always bound.
        build: makes the node of the output, with this schema, from an input that gets the
            solutions, and one that gets those of `seed`.
        defer: building may mean requests; it waits until the dataflow is at rest.
        monotone: whether what is built is so where its input is.
        seed: other solutions that what is built needs; most of them came before it was built.
    """

    def __init__(
        self,
        upstream: Node,
        schema: Sequence[Variable],
        certain: Iterable[Variable],
        build: Callable[[Node, Node | None], Node],
        defer: Defer,
        *,
        monotone: bool,
        seed: Distinct | None = None,
    ) -> None:
        super().__init__(schema, frozenset(certain), monotone=upstream.monotone and monotone)
        self._upstream = upstream
        self._build = build
        self._defer = defer
        self._seed = seed
        self._early: list[Change] = []
        self._entry: Input | None = None
        upstream.connect(self._push)

    @property
    def leads_elsewhere(self) -> bool:
        """Whether a solution came."""
        return self._entry is not None or bool(self._early)

    def _push(self, solution: Solution, count: int) -> None:
        if self._entry is not None:
            self._entry.push(solution, count)
            return
        if not self._early:
            self._defer(self._open)
        self._early.append((solution, count))

    def _open(self) -> None:
        entry, seed = _input_of(self._upstream), self._seed
        seeded = None if seed is None else _input_of(seed)
        self._build(entry, seeded).connect(lambda solution, count: self.emit(solution, count))
        self._entry = entry
        if seed is not None and seeded is not None:
            for solution in seed.present():
                seeded.push(solution, 1)
            seed.connect(seeded.push)
        early, self._early = self._early, []
        for solution, count in early:
            entry.push(solution, count)


def _input_of(node: Node) -> Input:
    """An input for the solutions of a node."""
    return Input(node.schema, node.certain, monotone=node.monotone)
