"""Progress bars on a terminal; none where the output is piped."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from pyspark import SparkContext


class Report:
    """Receives the progress of work; this one ignores it."""

    def stage(self, description: str, total: int | None = None) -> None:
        """Start a stage of `total` steps, where known."""

    def done(self, steps: int, total: int | None = None) -> None:
        """Set the steps done, and a new `total`."""


SILENT: Final = Report()


class Bars(Report):
    """One bar per stage."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def stage(self, description: str, total: int | None = None) -> None:
        """Complete the last stage's bar and start a new one."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            steps = task.total or task.completed or 1
            self._progress.update(self._task, total=steps, completed=steps)
        self._task = self._progress.add_task(description, total=total)

    def done(self, steps: int, total: int | None = None) -> None:
        if self._task is not None:
            self._progress.update(self._task, completed=steps, total=total)


@contextmanager
def shown_on(console: Console, quiet: bool = False) -> Iterator[Report]:
    """Give progress bars on a terminal."""
    if quiet or not console.is_terminal:
        yield SILENT
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield Bars(progress)


@contextmanager
def spark_tasks(context: "SparkContext", report: Report, description: str) -> Iterator[None]:
    """Report the tasks done of running Spark stages."""
    report.stage(description)
    if report is SILENT:
        yield
        return
    tracker = context.statusTracker()
    finished = threading.Event()

    def watch() -> None:
        tasks: dict[int, tuple[int, int]] = {}
        while not finished.wait(0.25):
            for stage in tracker.getActiveStageIds():
                info = tracker.getStageInfo(stage)
                if info is not None:
                    tasks[stage] = (info.numCompletedTasks, info.numTasks)
            completed = sum(done for done, _ in tasks.values())
            report.done(completed, sum(total for _, total in tasks.values()) or None)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
