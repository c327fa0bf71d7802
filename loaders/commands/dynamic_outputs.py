"""Write the dynamic side of a source: labelled facts, and streams."""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

import typer

from annotations.methods import METHODS, method_named
from annotations.wording import counted
from loaders.commands.options import InputSpan, LoadEngine, LoadWork
from loaders.distributed.facts import write_facts_spark, write_streams_spark
from loaders.distributed.shipping import input_places, session_of
from loaders.dynamic import FeedStream, naming_of, write_facts, write_streams
from loaders.outputs import put_where_wanted
from loaders.progress import Report
from loaders.sources.base import Feed, MeasurableFeed, StreamSource, size_of

if TYPE_CHECKING:
    from pyspark import SparkContext

MethodChoice = enum.StrEnum(  # type: ignore[misc]  # the names are known at run time alone
    "MethodChoice", {method.name: method.name for method in METHODS}
)
_NAMED_GRAPH = MethodChoice("named-graph")


@dataclass(frozen=True, slots=True)
class DynamicOutputs:
    """The destinations of a source's dynamic side."""

    facts: str | None = None
    method: MethodChoice = _NAMED_GRAPH
    dataset: str | None = None
    streams: str | None = None

    @property
    def requested(self) -> int:
        return (self.facts is not None) + (self.streams is not None)

    def write(self, make_source: Callable[[], Feed], span: InputSpan, work: LoadWork) -> None:
        """Write the files that the options name, and print what was written."""
        if not self.requested:
            return
        feed = make_source()
        measured = isinstance(feed, MeasurableFeed)
        if not measured:
            if work.engine is LoadEngine.SPARK:
                raise typer.BadParameter("Spark writes what was recorded, not what is told now")
            work = replace(work, engine=LoadEngine.LOCAL)
        feeds = chain((feed,), iter(make_source, None))
        work.run(
            feed.name,
            size_of(input_places(feed)) if measured and work.engine is LoadEngine.AUTO else 0,
            lambda context, report: self._written(feeds, span, report, context),
            lambda report: self._written(feeds, span, report, None),
            timed=False,
        )

    def _written(
        self, feeds: Iterator[Feed], span: InputSpan, report: Report, context: "SparkContext | None"
    ) -> list[str]:
        lines = []
        if self.facts is not None:
            feed = next(feeds)
            naming = naming_of(self.dataset or f"http://example.org/{feed.name}")
            method = method_named(self.method)
            with put_where_wanted(self.facts) as file:
                if context is None:
                    count = write_facts(feed, file, method, naming, span.start, span.until, report)
                else:
                    assert isinstance(feed, MeasurableFeed)
                    count = write_facts_spark(
                        feed, file, method, naming, session_of(context), (span.start, span.until),
                        report,
                    )  # fmt: skip
            lines.append(f"{counted(count, 'fact')}, annotated by {method.name}, in {self.facts}")
        if self.streams is not None:
            feed = next(feeds)
            source: StreamSource = feed if isinstance(feed, StreamSource) else FeedStream(feed)
            with put_where_wanted(self.streams, folder=True) as folder:
                if context is None:
                    count = write_streams(source, folder, span.start, span.until, report)
                else:
                    count = write_streams_spark(
                        source, folder, session_of(context), span.start, span.until, report
                    )
            lines.append(f"{counted(count, 'triple')} of streams in {self.streams}")
        return lines
