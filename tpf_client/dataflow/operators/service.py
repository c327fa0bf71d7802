"""SERVICE with a variable (SPARQL 1.1 Federated Query, sections 2.4 and 4)."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Change, Solution, TermId
from tpf_client.dataflow.node import Input, Node
from tpf_client.dataflow.operators.basic import Distinct

Defer: TypeAlias = Callable[[Callable[[], object]], None]
"""Does something as soon as no change is being passed on."""


def at_once(action: Callable[[], object]) -> None:
    """Does it now."""
    action()


class OnDemand(Node):
    """A node that `build` makes at the first solution of its input; `defer` waits for rest."""

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
        return self._entry is not None or bool(self._early)

    def _push(self, solution: Solution, count: int) -> None:
        if self._entry is not None:
            self._entry.push(solution, count)
            return
        self._early.append((solution, count))
        if len(self._early) == 1:
            self._defer(self._open)

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


class EachEndpoint(Node):
    """The solutions of all endpoints, each built when its name first comes."""

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
        self._column = seed.schema.index(variable)
        self._build = build
        self._defer = defer
        self._entries: dict[TermId, Input] = {}
        seed.connect(self._push)

    @property
    def leads_elsewhere(self) -> bool:
        return bool(self._entries)

    def _push(self, solution: Solution, count: int) -> None:
        endpoint = solution[self._column]
        entry = self._entries.get(endpoint)
        if entry is None:
            entry = self._entries[endpoint] = _input_of(self._seed)

            def build(entry: Node, _seed: Node | None) -> Node:
                return self._build(endpoint, entry)

            part = OnDemand(entry, self.schema, self.certain, build, self._defer, monotone=False)
            part.connect(lambda row, change: self.emit(row, change))
        entry.push(solution, count)


def _input_of(node: Node) -> Input:
    return Input(node.schema, node.certain, monotone=node.monotone)
