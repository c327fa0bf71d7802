"""The plain source: the fragments of one dataset, over HTTP."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from annotations.clock import Clock
from annotations.instants import LAST, format_instant, shifted
from annotations.labels import Fact
from annotations.terms import DEFAULT_GRAPH, QuadPattern, is_literal, is_variable
from tpf_client.errors import (
    HistoryError,
    HttpError,
    OriginError,
    PageError,
    ParseError,
    SourceError,
)
from tpf_client.fragments.blank_nodes import askable
from tpf_client.fragments.documentation import form_for
from tpf_client.fragments.fetcher import Fetcher, Request
from tpf_client.fragments.form import PATTERN_VARIABLES, Form, SparqlForm, probe, sparql_form
from tpf_client.fragments.page import Page
from tpf_client.planner.driver import Task
from tpf_client.planner.reading import Content, ReadRequest, read_pages, selector
from tpf_client.planner.source import Estimate, impossible

T = TypeVar("T")

PAST_STEP = timedelta(seconds=10)
"""How often history is asked for what came before a label ended, where a server tells it."""

ANYTHING = QuadPattern(*PATTERN_VARIABLES)


@dataclass(frozen=True, slots=True)
class SourceUse:
    """How the fragments of a dataset are used.

    Args:
        strict: pages must be read at the requested instant or later (freshness ignores labels).
        changing: everything changes when its freshness by HTTP ends.
        past: a clock of past requests, where the form takes an instant.
        always: a clock of instants at which the present data held, too.
        once: it serves one query; pages read since its start count as current.
        named: data name the dataset, not the user.
        service: it may be a SPARQL endpoint.
        joined: several patterns are joined over it.
    """

    strict: bool = False
    changing: bool = False
    once: bool = False
    past: Clock | None = None
    always: Clock | None = None
    named: bool = False
    service: bool = False
    joined: bool = False


_ANYHOW = SourceUse()


class FragmentSource:
    """The fragments of one dataset, as they are; `form` is its form, if known."""

    def __init__(
        self, fetcher: Fetcher, url: str, form: Form | None = None, use: SourceUse = _ANYHOW
    ) -> None:
        self._use = use
        self._past = use.past
        self._since: datetime | None = None
        self.url = url
        self._fetcher = fetcher
        self._form = form
        self._clock = fetcher.server_clock(url)
        self._long: set[QuadPattern] = set()
        self._all: Page | None = None

    def now(self) -> datetime:
        """The present on the server's clock, as far as known; or the past instant."""
        return (self._past or self._use.always or self._clock).now()

    def wake_at(self, instant: datetime) -> datetime:
        """Return our instant at which the server's clock has surely reached `instant`."""
        return instant if self._past or self._use.always else self._clock.local(instant)

    def form(self) -> Task[Form]:
        """Return the dataset's form, from its page or its server's description."""
        if self._form is None:
            if self._use.named:
                self._fetcher.destinations.named(self.url)
            started = self._clock.now() if self._clock.synchronized else None
            try:
                page, form = yield from self._searched()
            except (PageError, ParseError, HttpError) as error:
                if not self._use.service or (isinstance(error, HttpError) and error.status >= 500):
                    raise self._without_slash(error) from None
                page, form = yield from self._endpoint(error)
            self._form = form
            if page is not None:
                if self.url == form.url(ANYTHING) and page.metadata.next_page is not None:
                    self._all = page
                if self._use.once and self._since is None:
                    self._since = started or page.evaluated_at
        return self._form

    def _without_slash(self, error: SourceError) -> SourceError:
        missing, shorter = HTTPStatus.NOT_FOUND.value, self.url.rstrip("/")
        if not isinstance(error, HttpError) or error.status != missing or shorter == self.url:
            return error
        reason = error.reason.removeprefix(f"HTTP {missing} ")
        return HttpError(self.url, missing, f"{reason} (try {shorter})")

    def _searched(self) -> Task[tuple[Page | None, Form]]:
        page: Page | None = None
        try:
            (page,) = yield [Request(self.url)]
            form = page.metadata.form or (yield from self._described(page.documentation))
        except (PageError, ParseError) as error:
            if page is not None or error.documentation is None:
                raise
            try:
                form = yield from self._described(error.documentation)
            except (OriginError, PageError):
                raise
            except SourceError:
                raise error from None
        return page, form

    def _endpoint(self, error: SourceError) -> Task[tuple[Page | None, Form]]:
        form = sparql_form(self.url)
        url, answer = probe(form)
        try:
            (page,) = yield [Request(url, bare=True)]
        except SourceError:
            raise error from None
        if [fact.quad for fact in page.facts] != [answer]:
            raise error
        return page, form

    def _described(self, documentation: str | None) -> Task[Form]:
        if documentation is None:
            raise PageError(self.url, "the page has no form to search a dataset with")
        (page,) = yield [Request(documentation)]
        return form_for(self.url, page.metadata.forms, documentation)

    def begin(self) -> Task[object]:
        return self.form()

    def estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        return self._of_the_past(self._estimate(pattern))

    def first(self, pattern: QuadPattern) -> Task[tuple[Sequence[Fact], datetime | None]]:
        """Return the matches on the first page, and the next change, if stated."""
        return self._of_the_past(self._first(pattern))

    def read(self, asked: ReadRequest) -> Task[Content]:
        """Read all matches, or the first pages; in large pages where many are needed."""
        always = self._use.always
        if always is None:
            return (yield from self._of_the_past(self._read(asked)))
        content = yield from self._read(replace(asked, at=None))
        return replace(content, evaluated_at=asked.at or always.now(), fresh_until=LAST)

    def _of_the_past(self, task: Task[T]) -> Task[T]:
        try:
            return (yield from task)
        except HttpError as error:
            if self._past is not None and error.status in (404, 410):
                raise HistoryError(error.url, error.reason) from error
            raise

    def _estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        form = yield from self.form()
        if self._nowhere(pattern, form):
            return Estimate(0, 0, 0)
        if isinstance(form, SparqlForm):
            # Its first page is all of it.
            return Estimate(None, None, None, form.block_size)
        block = form.block_size if form.graph is not None or not is_variable(pattern.graph) else 1
        past = None if self._past is None else self._past.now()
        first: Sequence[Fact] = ()
        if self._all is not None and past is None and all(map(is_variable, pattern[:3])):
            # What there is in all graphs is as good a guess at what is in one of them.
            page = self._all
        else:
            url = form.url(pattern, form.as_of(past))
            (page,) = yield [Request(url, past or self._since)]
            lasting = not page.metadata.dynamic and page.metadata.change is None
            if self._use.once and past is None and lasting:
                # What was not as it is on other pages would come from them a second time.
                matches = selector(pattern, form)(page.facts)
                first = [
                    fact for fact in matches
                    if "_:" not in "".join(fact.quad) or all(map(askable, fact.quad))
                ]  # fmt: skip
        metadata = page.metadata
        per_page = metadata.page_size or len(page.facts)
        if metadata.next_page is None:
            return Estimate(len(page.facts), 0, metadata.dynamic, block)
        # However few a server says there are: there is another page.
        count = None if metadata.count is None else max(metadata.count, len(page.facts) + 1)
        pages = max(math.ceil(count / per_page) - 1, 1) if count is not None and per_page else None
        if pages is not None and count is not None and form.max_limit is not None:
            larger = math.ceil(count / form.max_limit)
            if larger < pages:
                # The first page comes again then, within a larger one.
                self._long.add(pattern)
                pages = larger
        return Estimate(count, pages, metadata.dynamic, block, first)

    def _first(self, pattern: QuadPattern) -> Task[tuple[Sequence[Fact], datetime | None]]:
        form = yield from self.form()
        if self._nowhere(pattern, form):
            return (), None
        past = None if self._past is None else self._past.now()
        url = form.url(pattern, form.as_of(past))
        (page,) = yield [Request(url, past or self._since)]
        select = selector(pattern, form)
        return select(page.facts), page.metadata.change

    def _read(self, asked: ReadRequest) -> Task[Content]:
        form = yield from self.form()
        pattern, at, on_page = asked.pattern, asked.at, asked.on_page
        block, more, strict = asked.block, asked.more, self._use.strict or asked.anew
        if self._nowhere(pattern, form):
            now = self.now()
            return Content((), now, LAST, None, None, dynamic=False)
        if self._past is not None:
            at = at or self._past.now()
        pinned = form.as_of(None if self._past is None else at)
        extra = pinned if block is None else pinned | form.restricted(block)
        if pattern in self._long or (block is not None and more is None):
            extra = extra | form.large_page()
        url = form.url(pattern, extra)
        select = selector(pattern, form)
        tell = None
        if on_page is not None:

            def tell(facts: Sequence[Fact]) -> None:
                on_page(select(facts))

            if self._use.once and block is None and extra != pinned:
                # The first page of the usual size is there already.
                (page,) = yield [Request(form.url(pattern, pinned), at or self._since)]
                tell(page.facts)
        at = at or self._since
        bare = isinstance(form, SparqlForm)
        read = partial(read_pages, at=at, on_page=tell, strict=strict, bare=bare)
        content: Content | None = None
        if more is not None and block is None and extra != pinned:
            # The first page of the usual size may do.
            content = yield from read(form.url(pattern, pinned), more=lambda _: False)
        if content is None or (more is not None and not content.complete and more(1)):
            content = yield from read(url, more=more)
        if bare and self._use.joined:
            self._refuse_blank_nodes(content.facts)
        if self._past is not None:
            if content.evaluated_at != at:
                shown = format_instant(content.evaluated_at)
                raise HistoryError(url, f"it shows {shown} instead of the instant that was asked")
            # What holds now says nothing of how soon it changed then.
            content = replace(content, fresh_until=shifted(content.evaluated_at, PAST_STEP))
        return replace(
            content,
            facts=select(content.facts),
            dynamic=self._use.changing or content.dynamic,
        )

    def _refuse_blank_nodes(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            for term in (fact.quad.subject, fact.quad.object):
                if "_:" in term and not is_literal(term) and not askable(term):
                    raise SourceError(
                        self.url,
                        "a blank node of a SPARQL endpoint cannot be asked for again: ask it for "
                        "one pattern at a time",
                    )

    def _nowhere(self, pattern: QuadPattern, form: Form) -> bool:
        if isinstance(form, SparqlForm) and pattern.graph != DEFAULT_GRAPH:
            raise SourceError(self.url, "GRAPH is not asked of a SPARQL endpoint here")
        in_a_graph = form.graph is None and bool(pattern.graph) and not is_variable(pattern.graph)
        unaskable = any(not is_variable(term) and not askable(term) for term in pattern)
        return in_a_graph or unaskable or impossible(pattern)
