"""A page of a fragment, as a value."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from annotations.labels import Fact
from tpf_client.fragments.form import Form

_ROUNDING = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """The metadata of a page; ``None`` where not stated.

    Args:
        forms: that of the dataset; in a documentation those of all datasets.
        count: how many quads match the pattern; `dynamic` of them are labelled.
        method: the annotation method of this view (``plain``, ``named-graph``, …).
        earliest_expiration: the earliest end of the labels of all matches.
        next_change: the earliest later instant at which a match's label ends, or begins.
        evaluated_at: the instant that the page shows.
        plain_view: URL of the same fragment in the plain view.
        changes: URL of the change signal.
    """

    forms: tuple[Form, ...] = ()
    count: int | None = None
    page_size: int | None = None
    next_page: str | None = None
    dynamic: int | None = None
    method: str | None = None
    earliest_expiration: datetime | None = None
    next_change: datetime | None = None
    evaluated_at: datetime | None = None
    plain_view: str | None = None
    changes: str | None = None

    @property
    def form(self) -> Form | None:
        """The dataset's search form, if the page has one."""
        return self.forms[0] if self.forms else None

    @property
    def change(self) -> datetime | None:
        """The first instant at which a label ends or begins, if stated."""
        return self.earliest_expiration if self.next_change is None else self.next_change


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a fragment; instants are on the server's clock.

    Args:
        evaluated_at: the instant that it shows, or else its ``Date``.
        fresh_until: until when HTTP lets us reuse it.
        size: bytes of its body; `digest` is its hash in this process.
        documentation: URL of the description of the interface, for a page without a form.
        cached: a cache on the way had it.
    """

    url: str
    facts: tuple[Fact, ...]
    metadata: PageMetadata
    evaluated_at: datetime
    fresh_until: datetime
    etag: str | None = None
    media_type: str = ""
    size: int = 0
    warnings: tuple[str, ...] = ()
    documentation: str | None = None
    digest: int = 0
    cached: bool = False

    @property
    def holds_until(self) -> datetime:
        """The first instant, on the server's clock, at which the page may be wrong.

        ``max-age`` is in whole seconds; the next change is exact.
        """
        change = self.metadata.change
        if change is not None and change - self.fresh_until < _ROUNDING:
            return change
        return self.fresh_until
