"""Write the dynamic side of a source: labelled facts, and streams."""

import enum
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import typer

from annotations.clock import SystemClock
from annotations.methods import METHODS, method_named
from annotations.wording import counted
from loaders.commands.options import InputSpan, LoadWork
from loaders.commands.publishing import dataset_url, given_token
from loaders.distributed.facts import (
    publish_history_spark,
    write_facts_spark,
    write_parts_spark,
    write_streams,
)
from loaders.distributed.shipping import input_places
from loaders.dynamic import (
    history,
    naming_of,
    publish_history,
    write_labelled,
)
from loaders.outputs import parts_folder, put_where_wanted
from loaders.progress import Report
from loaders.publisher import Publisher, is_stream
from loaders.sources.base import Feed, size_of

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
    history: str | None = None

    @property
    def requested(self) -> int:
        return sum(each is not None for each in (self.facts, self.streams, self.history))

    def write(self, make_source: Callable[[], Feed], span: InputSpan, work: LoadWork) -> None:
        """Write the files that the options name, and print what was written."""
        if not self.requested:
            return
        feed = make_source()
        if feed.live:
            if work.engine == "spark":
                raise typer.BadParameter("Spark writes recordings, not live feeds")
            work = replace(work, engine="local")
        feeds = chain((feed,), iter(make_source, None))
        work.run(
            feed.name,
            size_of(input_places(feed)) if not feed.live and work.engine == "auto" else 0,
            lambda context, report: self._written(feeds, span, report, context),
            timed=False,
        )

    def _written(
        self, feeds: Iterator[Feed], span: InputSpan, report: Report, context: "SparkContext | None"
    ) -> list[str]:
        lines = []
        if self.facts is not None:
            count = self._write_facts(self.facts, next(feeds), span, report, context)
            lines.append(f"{counted(count, 'fact')}, annotated by {self.method}, in {self.facts}")
        if self.streams is not None:
            feed = next(feeds)
            with put_where_wanted(self.streams, folder=True) as folder:
                count = write_streams(feed, folder, context, (span.start, span.until), report)
            lines.append(f"{counted(count, 'triple')} of streams in {self.streams}")
        if self.history is not None:
            count = self._publish(self.history, next(feeds), span, report, context)
            lines.append(f"{counted(count, 'fact')} published to {self.history}")
        return lines

    def _write_facts(
        self, output: str, feed: Feed, span: InputSpan, report: Report,
        context: "SparkContext | None",
    ) -> int:  # fmt: skip
        naming = naming_of(self.dataset or f"http://example.org/{feed.name}")
        method = method_named(self.method)
        instants = (span.start, span.until)
        if output.endswith("/"):
            with parts_folder(output) as folder:
                if context is None:
                    file = f"{getattr(folder, 'url', folder)}/part-00000.nq"
                    return self._write_facts(file, feed, span, report, None)
                parts = write_parts_spark(feed, folder, method, naming, context, instants, report)
                return sum(parts.values())
        with put_where_wanted(output) as path:
            if context is None:
                report.stage(f"writing facts of {feed.name}")
                facts = history(feed.batches(*instants))
                return write_labelled(facts, path, method, naming, report)
            return write_facts_spark(feed, path, method, naming, context, instants, report)

    def _publish(
        self, url: str, feed: Feed, span: InputSpan, report: Report, context: "SparkContext | None"
    ) -> int:
        if is_stream(dataset_url(url)):
            raise typer.BadParameter("a stream takes no facts that end: give a dataset")
        file = os.environ.get("TPF_PUBLISH_TOKEN_FILE")
        token = given_token(
            os.environ.get("TPF_PUBLISH_TOKEN"), None if file is None else Path(file)
        )
        instants = (span.start, span.until)
        with closing(Publisher(url, SystemClock(), token)) as publisher:
            if context is None:
                report.stage(f"publishing {feed.name}")
                run = f"history-{token_hex(12)}"
                return publish_history(history(feed.batches(*instants)), publisher, run)
            return publish_history_spark(feed, publisher, context, instants, report)
