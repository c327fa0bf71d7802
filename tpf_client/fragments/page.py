"""A page of a fragment, as a value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from annotations.labels import Fact
from annotations.terms import Quad, Term
from tpf_client.fragments.blank_nodes import kept_quad
from tpf_client.fragments.form import Form

_ROUNDING = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class PageMetadata:
    """What the metadata of a page say.

    Args:
        forms: search forms: that of the dataset, or in a documentation those of all datasets.
        count: how many quads match the pattern; ``None`` where the page does not tell.
        page_size: how many quads a page holds; ``None`` where the page does not tell.
        next_page: URL of the next page, absolute; ``None`` on the last one.
        dynamic: how many matches are labelled facts; ``None`` where the server states no labels.
        method: the annotation method of this view (``plain``, ``named-graph``, …).
        labellings: the kinds of labels of the dataset.
        earliest_expiration: the earliest end of the labels of all matches.
        next_change: the earliest instant after `evaluated_at` at which the label of a match ends,
            or that of a fact that matches then begins; ``None`` where the page does not tell.
        evaluated_at: the instant that the page shows, on the server's clock.
        plain_view: URL of the fragment of the same pattern in the dataset's plain view.
        changes: URL where the server tells what changes.
    """

    forms: tuple[Form, ...] = ()
    count: int | None = None
    page_size: int | None = None
    next_page: str | None = None
    dynamic: int | None = None
    method: str | None = None
    labellings: frozenset[str] = frozenset()
    earliest_expiration: datetime | None = None
    next_change: datetime | None = None
    evaluated_at: datetime | None = None
    plain_view: str | None = None
    changes: str | None = None

    @property
    def form(self) -> Form | None:
        """The dataset's search form; ``None`` where the page has none."""
        return self.forms[0] if self.forms else None

    @property
    def change(self) -> datetime | None:
        """The first instant at which a label ends or begins, as far as the page tells."""
        return self.earliest_expiration if self.next_change is None else self.next_change


@dataclass(slots=True)
class ParsedLine:
    """A parsed line of a page.

    Args:
        quads: its quads, in the graph around it.
        size: bytes of memory that they take.
        kept: the quads with our blank nodes, once they were needed.
    """

    quads: Sequence[Quad] = ()
    size: int = 0
    kept: Sequence[Quad] | None = None

    def of_page(self, url: str) -> Sequence[Quad]:
        """The quads with our blank nodes, read from the page of this URL."""
        kept = self.kept
        if kept is None:
            kept = [kept_quad(quad, url) for quad in self.quads]
            # Most have no blank nodes: one list is enough.
            kept = self.kept = self.quads if kept == self.quads else kept
        return kept


@dataclass(slots=True)
class Scope:
    """The lines under the same directives in the same graph.

    Args:
        graph: the graph; ``None``: its name is not parsed yet.
        lines: the lines by their text.
        words: terms by their text in plain statements.
    """

    graph: Term | None
    lines: dict[bytes, ParsedLine] = field(default_factory=dict)
    words: dict[bytes, Term] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LineMemo:
    """The parsed lines of a page, kept for the next time that it is read.

    Args:
        scopes: by the directives before them and the line that opens their graph.
    """

    scopes: Mapping[tuple[bytes, bytes], Scope] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a fragment.

    Args:
        url: the URL that was asked.
        facts: its data quads, each with the label that the metadata give it.
        metadata: counts, controls and temporal metadata.
        evaluated_at: the instant at which the page was true, on the server's clock; where the
            server does not tell, its ``Date``, in whole seconds.
        fresh_until: the instant, on the server's clock, until which HTTP lets us reuse it.
        etag: its entity tag, for revalidation.
        media_type: its format.
        size: bytes of its body.
        warnings: what was wrong in its labels (an unparsable instant, an inverted interval).
        documentation: where a page without a form says that the interface is described.
        digest: the hash of its body, in this process.
        memo: its parsed lines, for the next time that it is read; ``None``: its lines are not
            whole.
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
    memo: LineMemo | None = None

    @property
    def dynamic(self) -> bool:
        """Whether it tells when it changes."""
        return self.metadata.change is not None

    @property
    def holds_until(self) -> datetime:
        """The first instant, on the server's clock, at which the page may be wrong.

        ``max-age`` is in whole seconds; where the next change is the cause of it, that instant is
        exact.
        """
        change = self.metadata.change
        if change is not None and change - self.fresh_until < _ROUNDING:
            return change
        return self.fresh_until
