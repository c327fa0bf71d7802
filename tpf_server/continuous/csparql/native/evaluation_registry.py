"""The evaluations of an engine: one for all queries that ask the same, but for constants."""

from collections.abc import Hashable

from tpf_server.continuous.csparql.native.evaluation import PeriodicEvaluation
from tpf_server.continuous.csparql.operator_graph import OperatorGraph


class EvaluationRegistry:
    """Finds evaluations that can take the place of others.

    What a query sees begins when it is registered. So one that comes when elements have come since
    begins by itself, and joins its equals when its windows hold nothing any more that it must not
    see. Those that count triples stay by themselves.
    """

    def __init__(self) -> None:
        self._fresh: dict[Hashable, tuple[PeriodicEvaluation, int]] = {}
        self._whole: dict[Hashable, PeriodicEvaluation] = {}

    def fresh(self, key: Hashable, arrivals: int) -> PeriodicEvaluation | None:
        """The evaluation of an equal query, if no element has come since that was registered.

        Args:
            key: of a new query.
            arrivals: how many elements have come.
        """
        evaluation, since = self._fresh.get(key, (None, 0))
        return evaluation if since == arrivals else None

    def add(self, evaluation: PeriodicEvaluation, arrivals: int | None = None) -> None:
        """It is of one query more.

        Args:
            evaluation: any.
            arrivals: how many elements had come, where that query is new.
        """
        evaluation.owners += 1
        if arrivals is not None and over_time(evaluation.graph):
            self._fresh[evaluation.key] = evaluation, arrivals

    def remove(self, evaluation: PeriodicEvaluation) -> bool:
        """It is of one query less; whether of none now."""
        evaluation.owners -= 1
        if evaluation.owners:
            return False
        key = evaluation.key
        if self._whole.get(key) is evaluation:
            del self._whole[key]
        if self._fresh.get(key, (None, 0))[0] is evaluation:
            del self._fresh[key]
        return True

    def equal(self, evaluation: PeriodicEvaluation) -> PeriodicEvaluation | None:
        """Another one, which can give the same from now on."""
        if evaluation.joined or not evaluation.whole:
            return None
        found = evaluation
        if over_time(evaluation.graph):
            found = self._whole.setdefault(evaluation.key, evaluation)
        evaluation.joined = found is evaluation
        return None if evaluation.joined else found

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._whole) + len(self._fresh)


def over_time(graph: OperatorGraph) -> bool:
    """Whether queries may have all its windows in common."""
    return all(each.window.shared for each in graph.clauses)
