"""Read a fragment page by page, in parallel where the URLs of pages are predictable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TypeVar

from annotations.labels import Fact
from annotations.terms import DEFAULT_GRAPH, Quad, QuadPattern, Term, is_variable
from tpf_client.errors import HttpError, PageError
from tpf_client.fragments.blank_nodes import as_read
from tpf_client.fragments.fetcher import Request
from tpf_client.fragments.form import Block, Form
from tpf_client.fragments.page import Page, PageMetadata
from tpf_client.planner.driver import PAUSE, Joined, Task

T = TypeVar("T")

FIRST_WINDOW = 2
MAX_WINDOW = 32

MAX_REPEATS = 8
"""Pages in a row that say nothing new, before they are taken for a chain without an end."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a source shall read: all matches, or the first pages.

    Args:
        at: the instant at which they must hold, on its clock; ``None``: now.
        on_page: receives matches as they come.
        block: bindings one of which each match must fit.
        anew: revalidate even what HTTP calls fresh.
        more: read on after so many pages? ``None``: read all.
    """

    pattern: QuadPattern
    at: datetime | None = None
    on_page: Callable[[Sequence[Fact]], None] | None = None
    block: Block | None = None
    anew: bool = False
    more: Callable[[int], bool] | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a fragment; ``None`` where not stated.

    `expires` is the first end of a match's label, `changes` the first end or beginning; `complete`:
    these were all `pages`; `cached`: a cache on the way had them.
    """

    facts: Sequence[Fact]
    evaluated_at: datetime
    fresh_until: datetime
    expires: datetime | None
    changes: datetime | None
    dynamic: bool | None
    warnings: tuple[str, ...] = ()
    pages: int = 1
    complete: bool = True
    cached: bool = False


def together(tasks: Sequence[Task[T]]) -> Task[list[T]]:
    """Run several tasks concurrently; return their results in order.

    An error goes to the task that sent the request, which may know what to do.
    """
    results: dict[int, T] = {}
    asked: dict[int, Sequence[Request]] = {}
    waiting: dict[int, Sequence[Request]] = {}
    places: list[tuple[int, int]] = []

    def advance(number: int, go_on: Callable[..., Sequence[Request]], *given: object) -> None:
        try:
            asked[number] = go_on(*given)
        except StopIteration as stop:
            results[number] = stop.value

    def failed(place: int, error: BaseException) -> BaseException | None:
        number, inner = places[place]
        requests = waiting.get(number, ())
        left = requests.failed(inner, error) if isinstance(requests, Joined) else error
        if left is None or waiting.pop(number, None) is None:
            return None
        try:
            advance(number, tasks[number].throw, left)
        except Exception as unmended:  # noqa: BLE001 - for all of them
            return unmended
        return None

    for number, task in enumerate(tasks):
        advance(number, task.__next__)
    while asked:
        waiting, asked = asked, {}
        places = [(number, inner) for number in waiting for inner in range(len(waiting[number]))]
        pages = yield Joined(chain.from_iterable(waiting.values()), failed)
        answers: dict[int, list[Page]] = {number: [] for number in waiting}
        for (number, _), page in zip(places, pages, strict=True):
            if number in answers:
                answers[number].append(page)
        for number, sent in answers.items():
            advance(number, tasks[number].send, sent)
    return [results[number] for number in range(len(tasks))]


def read_pages(
    url: str,
    at: datetime | None,
    on_page: Callable[[Sequence[Fact]], None] | None = None,
    *,
    strict: bool = False,
    bare: bool = False,
    more: Callable[[int], bool] | None = None,
) -> Task[Content]:
    """Read the fragment at `url` as it holds at an instant (``None``: now).

    `strict`: only pages read then or later will do; `bare`: it is one page, and all data; `more`:
    read on?
    """
    (first,) = yield [Request(url, at, at if strict else None, bare)]
    facts: list[Fact] = []
    warnings: list[str] = []
    seen = {url}
    page = first
    window = FIRST_WINDOW
    repeats = 0

    distinct: set[Quad] = set()

    def take(taken: Page) -> None:
        nonlocal repeats
        if taken.metadata.next_page is not None or taken is not first:
            before = len(distinct)
            distinct.update([fact.quad for fact in taken.facts])
            # Two pages may lead to each other, under a new name each time.
            repeats = repeats + 1 if len(distinct) == before else 0
        if repeats > MAX_REPEATS:
            raise PageError(taken.url, "the links to next pages have no end")
        facts.extend(taken.facts)
        warnings.extend(taken.warnings)
        if on_page is not None and taken.facts:
            on_page(taken.facts)

    take(first)
    # Later pages of a fragment show the instant of its first page, however old that is.
    shown = first.metadata.evaluated_at or first.evaluated_at
    oldest = min(at, shown) if strict and at is not None else None
    while (following := page.metadata.next_page) is not None:
        if more is not None:
            yield PAUSE
            if not more(len(seen)):
                break
        if following in seen:
            raise PageError(page.url, f"the next page was read already: {following}")
        last, url_of = numbered_pages(following, len(seen), first)
        foretold = range(len(seen) + 2, min(last, len(seen) + window) + 1)
        window = min(window * 2, MAX_WINDOW)
        urls = [following, *map(url_of, foretold)]
        asked = [Request(each, shown, oldest) for each in urls]
        if len(asked) == 1:
            pages = yield asked
        else:
            try:
                pages = yield asked
            except HttpError:
                # The count promised more pages than there are: go from link to link.
                pages = yield asked[:1]
        for each in pages:
            if each.url != page.metadata.next_page:
                break
            seen.add(each.url)
            take(each)
            page = each
    return Content(
        facts,
        first.evaluated_at,
        first.holds_until,
        first.metadata.earliest_expiration,
        first.metadata.change,
        _dynamic(first.metadata),
        tuple(dict.fromkeys(warnings)),
        len(seen),
        following is None,
        first.cached,
    )


def _dynamic(metadata: PageMetadata) -> bool | None:
    if metadata.next_change is not None or metadata.dynamic:
        return True
    return None if metadata.dynamic is None else False


def numbered_pages(following: str, read: int, first: Page) -> tuple[int, Callable[[int], str]]:
    """Return the number of the last page, and the URL of each, from the link to the next one.

    The last one is the next one where nothing can be predicted.
    """
    count = first.metadata.count
    size = first.metadata.page_size or len(first.facts)
    if count is None or size <= 0 or read < 1:
        return read + 1, lambda _: following
    address, _, query = following.partition("?")
    query, hash_, fragment = query.partition("#")
    parameters = query.split("&")
    pairs = [each.partition("=") for each in parameters]
    numbered = [
        number
        for number, (name, _, value) in enumerate(pairs)
        if value == str(read + 1) and "page" in name.lower()
    ]
    if len(numbered) != 1:
        return read + 1, lambda _: following
    (number,) = numbered

    def url_of(page: int) -> str:
        parameters[number] = f"{pairs[number][0]}={page}"
        return f"{address}?{'&'.join(parameters)}{hash_}{fragment}"

    return max(-(-count // size), read + 1), url_of


def selector(pattern: QuadPattern, form: Form) -> Callable[[Sequence[Fact]], Sequence[Fact]]:
    """Return a filter of a page's facts by pattern; servers may send more."""
    constants = [
        (position, as_read(Term(term)))
        for position, term in enumerate(pattern[:3])
        if not is_variable(term)
    ]
    graphs = {pattern.graph}
    if form.graph is None or is_variable(pattern.graph):
        graphs = set()
    elif pattern.graph == DEFAULT_GRAPH and form.default_graph:
        graphs.add(Term(f"<{form.default_graph}>"))

    def select(facts: Sequence[Fact]) -> Sequence[Fact]:
        for position, term in constants:
            facts = [fact for fact in facts if fact[0][position] == term]
        if graphs:
            facts = [fact for fact in facts if fact[0][3] in graphs]
        return facts

    return select
