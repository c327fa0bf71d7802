"""Finding out whether and how a dataset is labelled.

A server of ours says so in its pages: then its plain view is read, whose pages carry the labels.
Of any other server a few small questions are asked: are there expirations, are there intervals,
and what are the nodes that carry them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from annotations.clock import Clock
from annotations.methods import method_named
from annotations.methods.base import LabelForm, Naming
from annotations.methods.names import read_fragment_iri
from annotations.namespaces import DEFAULT_VOCABULARY, RDF_REIFIES, RDF_SUBJECT, Vocabulary
from annotations.terms import QuadPattern, Term, Variable, is_iri
from tpf_client.errors import HistoryError, PageError
from tpf_client.fragments.fetcher import Fetcher, Request
from tpf_client.fragments.page import PageMetadata
from tpf_client.planner.driver import Task
from tpf_client.planner.fragment_source import FragmentSource
from tpf_client.planner.reading import together
from tpf_client.planner.source import Source
from tpf_client.planner.union import UnionSource
from tpf_client.streaming.annotated import AnnotatedSource, Annotation

_S, _P, _O, _G = (Variable(name) for name in ("?s", "?p", "?o", "?g"))
_SAMPLE = 20
_GRAPHS = 5
"""How many labelled nodes are tried as names of graphs."""


@dataclass(frozen=True, slots=True)
class Detected:
    """How a dataset is labelled.

    Args:
        source: who answers patterns with facts.
        how: ``labels`` (they travel with the pages), ``rewriting``, ``freshness`` (the data change,
            but only HTTP tells for how long a page holds) or ``static``.
        annotations: the ways of annotation that were found, for ``rewriting``.
        parts: the same for each of several datasets that are read as one.
        settled: whether looking again, at a later instant, cannot find anything else.
        warnings: what was wrong in what was seen.
        changes: when there will be labels of a kind of which there are none now, if anybody tells.
        signals: URLs where servers tell what changes, if all do.
        fresh_until: until when HTTP lets us reuse what was seen; ``None``: it does not.
    """

    source: Source
    how: Literal["labels", "rewriting", "freshness", "static"]
    annotations: tuple[Annotation, ...] = ()
    parts: tuple["Detected", ...] = ()
    settled: bool = False
    warnings: tuple[str, ...] = ()
    changes: datetime | None = None
    signals: tuple[str, ...] = ()
    fresh_until: datetime | None = None

    def extended(self, other: "Detected") -> "Detected":
        """This with the further ways of annotation that were found later.

        None is taken back: that there is no labelled fact of a kind at the moment means nothing.
        """
        if self.parts:
            pairs = zip(self.parts, other.parts, strict=True)
            return _as_one([mine.extended(found) for mine, found in pairs])
        if not self.annotations or other.how not in ("rewriting", "freshness", "static"):
            return other
        new = [each for each in other.annotations if each not in self.annotations]
        if not new:
            return self
        annotations = (*self.annotations, *new)
        assert isinstance(other.source, AnnotatedSource)
        return Detected(AnnotatedSource(other.source.base, annotations), "rewriting", annotations)

    def like(self, other: "Detected") -> bool:
        """Whether the dataset is labelled in the same way."""
        if self.parts:
            return all(map(Detected.like, self.parts, other.parts))
        return (self.how, self.annotations) == (other.how, other.annotations)


def detect_all(
    fetcher: Fetcher,
    urls: Sequence[str],
    vocabulary: Vocabulary = DEFAULT_VOCABULARY,
    past: Clock | None = None,
) -> Task[Detected]:
    """Find out how these datasets, which are read as one, are labelled: see `detect`."""
    parts = yield from together([detect(fetcher, url, vocabulary, past) for url in urls])
    return _as_one(parts)


def _as_one(parts: Sequence[Detected]) -> Detected:
    if len(parts) == 1:
        return parts[0]
    order = ("freshness", "rewriting", "labels", "static")
    signals = tuple(dict.fromkeys(each for part in parts for each in part.signals))
    if not all(part.signals for part in parts):
        signals = ()
    how = min((part.how for part in parts), key=order.index)
    return Detected(
        UnionSource([part.source for part in parts]),
        how,
        parts=tuple(parts),
        warnings=tuple(each for part in parts for each in part.warnings),
        settled=all(part.settled for part in parts),
        changes=min((part.changes for part in parts if part.changes), default=None),
        signals=signals,
        fresh_until=min((part.fresh_until for part in parts if part.fresh_until), default=None),
    )


def detect(
    fetcher: Fetcher,
    url: str,
    vocabulary: Vocabulary = DEFAULT_VOCABULARY,
    past: Clock | None = None,
) -> Task[Detected]:
    """Find out how the dataset at `url` is labelled.

    Args:
        fetcher: gets the pages.
        url: the dataset.
        vocabulary: the namespace of time labels.
        past: a clock by which the facts are wanted as they were, instead of now.

    Raises:
        PageError: the page has no form.
        HistoryError: the facts of the past are wanted, and nobody tells them.
        SourceError: a page could not be had.
    """
    (page,) = yield [Request(url)]
    about = page.metadata
    if about.form is None:
        raise PageError(url, "the page has no form to search a dataset with")
    # A server that keeps history is asked for it; else the intervals in the data may tell.
    asked = past if about.form.at is not None else None
    # Intervals in the data are there whatever the instant; a server's history shows one instant.
    whole = past is not None and asked is None
    if about.plain_view is not None:
        (plain,) = yield [Request(about.plain_view)]
        form = plain.metadata.form
        if form is not None and plain.metadata.method == "plain":
            source = FragmentSource(fetcher, about.plain_view, form, past=asked)
            known = _unless_lost(source, past, asked)
            return Detected(known, "labels", settled=True, signals=_signals(plain.metadata))
    if about.method == "plain":
        source = FragmentSource(fetcher, url, about.form, past=asked)
        known = _unless_lost(source, past, asked)
        return Detected(known, "labels", settled=True, signals=_signals(about))
    base = FragmentSource(
        fetcher, url, about.form, strict=past is None, once=past is not None, past=asked
    )
    annotations, warnings, changes = yield from _annotations(
        base, vocabulary, graphs=about.form.graph is not None
    )
    if annotations:
        told = past if whole else None
        if told is not None and not any(each.labelling != "expiration" for each in annotations):
            raise HistoryError(url, "its labels do not tell since when facts held")
        annotated = AnnotatedSource(base, annotations, told)
        return Detected(
            annotated,
            "rewriting",
            annotations,
            settled=whole,
            warnings=warnings,
            changes=changes,
            fresh_until=page.holds_until if page.holds_until > page.evaluated_at else None,
        )
    if about.evaluated_at is not None:
        source = FragmentSource(fetcher, url, about.form, changing=True, past=asked)
        known = _unless_lost(source, past, asked)
        return Detected(known, "freshness", warnings=warnings, changes=changes)
    source = FragmentSource(fetcher, url, about.form)
    return Detected(source, "static", settled=whole, warnings=warnings)


def _signals(about: PageMetadata) -> tuple[str, ...]:
    return () if about.changes is None else (about.changes,)


def _unless_lost(source: FragmentSource, past: Clock | None, asked: Clock | None) -> FragmentSource:
    if past is not None and asked is None:
        raise HistoryError(source.url, "it keeps no history that could be asked for")
    return source


def _annotations(
    base: FragmentSource, vocabulary: Vocabulary, *, graphs: bool
) -> Task[tuple[tuple[Annotation, ...], tuple[str, ...], datetime | None]]:
    """The ways of annotation that are seen, warnings, and when there may be others."""
    found: list[Annotation] = []
    warnings: list[str] = []
    coming: list[datetime] = []
    labellings: tuple[tuple[LabelForm, Term], ...] = (
        ("expiration", vocabulary.expiration),
        ("interval", vocabulary.interval),
        ("instant", vocabulary.instant),
        ("older interval", vocabulary.interval_initial),
    )
    for labelling, predicate in labellings:
        if labelling == "older interval" and any(each.labelling == "interval" for each in found):
            continue  # nobody writes both
        facts, change = yield from base.first(QuadPattern(_S, predicate, _O, _G))
        nodes = [fact.quad.subject for fact in facts][:_SAMPLE]
        if not nodes:
            coming += [] if change is None else [change]
            continue
        naming = Naming("urn:none:", "urn:none:", vocabulary)
        fragments = [node for node in nodes if read_fragment_iri(node) is not None]
        for address in dict.fromkeys(node[1:].partition("?")[0] for node in fragments):
            implicit = Naming("urn:none:", address, vocabulary)
            found.append(Annotation(method_named("implicit-graph"), labelling, implicit))
        others = [node for node in nodes if node not in fragments]
        if not others:
            continue
        probes = {
            "singleton-property": QuadPattern(_S, vocabulary.singleton_property_of, _O, _G),
            "reification": QuadPattern(_S, RDF_SUBJECT, _O, _G),
            "rdf-1.2": QuadPattern(_S, RDF_REIFIES, _O, _G),
        }
        before = len(found)
        for name, probe in probes.items():
            if (yield from base.first(probe))[0]:
                found.append(Annotation(method_named(name), labelling, naming))
        for node in [each for each in others if graphs and is_iri(each)][:_GRAPHS]:
            # Not every one: some may label in another way, or nothing at all.
            if (yield from base.first(QuadPattern(_S, _P, _O, node)))[0]:
                found.append(Annotation(method_named("named-graph"), labelling, naming))
                break
        if len(found) == before and len(others) == len(nodes):
            warnings.append(f"{len(nodes)} labels and nothing that they label, as of {nodes[0]}")
    return tuple(found), tuple(warnings), min(coming, default=None)
