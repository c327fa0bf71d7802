"""Runs the same work on many items: with Spark, or here where there is too little for that."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from loaders.jobs import collected
from loaders.progress import Report, spark_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext

Item = TypeVar("Item")
Result = TypeVar("Result")


class Tasks:
    """Runs functions over items, one task per item.

    Functions and items are pickled to the workers; what is large goes through files.

    Args:
        context: a Spark context; ``None``: run everything in this process.
        report: where to tell how far it is.
    """

    def __init__(self, context: "SparkContext | None", report: Report) -> None:
        self._context = context
        self.report = report

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""
        return 1 if self._context is None else int(self._context.defaultParallelism)

    def run(
        self,
        description: str,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        here: bool = False,
    ) -> list[Result]:
        """The results, in the sequence of the items.

        Args:
            description: what the user reads.
            function: what to do.
            items: with what.
            here: in this process, because starting tasks would cost more than doing them.

        Raises:
            InputError: a function raised one.
        """
        if not items:
            return []
        if here or self._context is None:
            self.report.stage(description, len(items))
            return list(self._counted(map(function, items)))
        with spark_tasks(self._context, self.report, description):
            # Of very many small items, several share a task.
            slices = min(len(items), 64 * self.cores)
            return collected(self._context, self._context.parallelize(items, slices).map(function))

    def _counted(self, results: Iterable[Result]) -> Iterable[Result]:
        for number, result in enumerate(results, start=1):
            self.report.done(number)
            yield result
