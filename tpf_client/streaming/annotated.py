"""A source of annotated data, read as the facts that it says: the rewriting of patterns.

For servers that do not state labels in their pages. A pattern is asked as it is, for the static
facts, and rewritten for each way in which the data are annotated, for the labelled ones. What only
annotates (label nodes and what is said of them) is no fact.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from annotations.clock import Clock
from annotations.errors import AnnotationError
from annotations.instants import FIRST, LAST, instant_of_term
from annotations.labels import Expiration, Fact, Interval, Label, at_instant
from annotations.methods.base import LabelForm, Naming, Rewriting
from annotations.methods.method import Method
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    TriplePattern,
    Variable,
    is_variable,
)
from tpf_client.errors import HistoryError
from tpf_client.fragments.form import Block
from tpf_client.planner.driver import Task
from tpf_client.planner.reading import Content
from tpf_client.planner.source import Estimate, Source
from tpf_client.streaming.matching import Binding, Match, Matcher, fresh_names, unify

_ANY = Variable("?g")
_MAX_PASSES = 6
_SPREAD = timedelta(seconds=0.5)
"""Time between the requests of one reading at most; expirations do not tell when facts came."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """One way in which data are annotated.

    Args:
        method: the annotation method.
        labelling: the kind of label, and how it is written.
        naming: vocabulary, and the address of fragments in implicit graphs.
    """

    method: Method
    labelling: LabelForm
    naming: Naming


class AnnotatedSource:
    """The facts that annotated data say; a `Source`.

    Args:
        base: the data as they are.
        annotations: how they are annotated.
        past: a clock by which facts are shown as they were, from intervals that the data hold still
            (an expiration does not tell since when a fact held).
    """

    def __init__(
        self, base: Source, annotations: Sequence[Annotation], past: Clock | None = None
    ) -> None:
        self._past = past
        self.url = base.url
        self.annotations = tuple(annotations)
        self.base = base
        self._matcher = Matcher(base)

    def now(self) -> datetime:
        """The present instant on the server's clock."""
        return self.base.now() if self._past is None else self._past.now()

    def wake_at(self, instant: datetime) -> datetime:
        """The instant of our clock at which the server's has surely reached `instant`."""
        return self.base.wake_at(instant) if self._past is None else instant

    def begin(self) -> Task[object]:
        """Learn what the first estimates need."""
        return self.base.begin()

    def estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        """How much there is: the static matches, and what the rewritten patterns promise."""
        plain = yield from self.base.estimate(pattern)
        count, pages = plain.count, plain.pages
        for annotation in self.annotations:
            rewriting = self._rewrite(pattern, annotation)
            counts = []
            for each in rewriting.patterns:
                estimate = yield from self.base.estimate(each)
                counts.append(estimate.count)
            if all(each is not None for each in counts):
                most = min(each for each in counts if each is not None)
                count = None if count is None else count + most
                # Reading all of them takes about a request for each, as reading one of them takes
                # one for each pattern.
                pages = None if pages is None else pages + -(-most // (len(counts) * plain.block))
            else:
                count = pages = None
        return Estimate(count, pages, None, plain.block)

    def read(
        self,
        pattern: QuadPattern,
        at: datetime | None = None,
        on_page: Callable[[Sequence[Fact]], None] | None = None,  # noqa: ARG002 - not before labels
        block: Block | None = None,
        *,
        anew: bool = False,  # noqa: ARG002 - every reading is
        more: Callable[[int], bool] | None = None,  # noqa: ARG002 - labels are elsewhere
    ) -> Task[Content]:
        """The matching facts that are valid now, labelled and static."""
        at = at or self.now()
        if self._past is not None:
            return (yield from self._read_once(pattern, at, block))[1]
        for _ in range(_MAX_PASSES):
            contents, content = yield from self._read_once(pattern, at, block)
            latest = max(each.evaluated_at for each in contents)
            if latest - content.evaluated_at < _SPREAD:
                break
            # What was read before and after a pause may not belong together.
            at = latest
        return content

    def _read_once(
        self, pattern: QuadPattern, at: datetime, block: Block | None
    ) -> Task[tuple[list[Content], Content]]:
        shown = at if self._past is None else None
        plain = yield from self.base.read(pattern, shown, None, block)
        seeds = _seeds(block)
        contents = [plain]
        labels: dict[Quad, list[Label]] = {}
        warnings: list[str] = [*plain.warnings]
        nodes: set[Term] = set()
        for annotation in self.annotations:
            rewriting = self._rewrite(pattern, annotation)
            match: Match = yield from self._matcher.match(
                rewriting.patterns, shown, rewriting.derived, seeds
            )
            contents += match.contents
            for quad, stated in _stated(pattern, rewriting, match.bindings).items():
                told = labels.setdefault(quad, [])
                for initial, finals in stated.items():
                    if annotation.labelling == "older interval" and len(finals) > 1:
                        warnings.append(f"a label of {_named(quad)}: which start has which end?")
                        continue
                    for final in finals:
                        try:
                            told += self._label(annotation.labelling, initial, final)
                        except AnnotationError as error:
                            warnings.append(f"a label of {_named(quad)}: {error}")
            if self._may_meet_annotations(pattern):
                found, read = yield from self._label_nodes(annotation, shown)
                nodes |= found
                contents += read
        # Time may have passed between the requests: what they say together holds at the earliest
        # instant, until the first label ends after it.
        now = at
        if self._past is None:
            now = max(at, min(content.evaluated_at for content in contents))
        facts = [
            Fact(quad)
            for quad in (fact.quad for fact in plain.facts)
            if quad not in labels and not self._annotates(quad, nodes)
        ]
        for quad, known in labels.items():
            valid = sorted(
                (each for each in dict.fromkeys(known) if each.valid_at(now)),
                key=lambda each: each.start or FIRST,
            )
            facts += [Fact(quad, label) for label in valid[:1]]
            if len(valid) > 1:
                warnings.append(f"labels of {_named(quad)} overlap: the earliest counts")
        boundaries = [
            instant
            for known in labels.values()
            for label in known
            for instant in (label.start, label.end)
        ]
        # What begins later a server may show only then.
        coming = [*boundaries, *(content.changes for content in contents)]
        changes = _first(coming, now)
        fresh_until = min(content.fresh_until for content in contents)
        if self._past is not None or (changes is not None and fresh_until <= now):
            # The server does not say how long pages hold; the labels do.
            fresh_until = LAST
        return contents, Content(
            facts,
            now,
            fresh_until,
            _first(boundaries, now),
            changes,
            bool(labels) or any(content.changes is not None for content in contents),
            tuple(dict.fromkeys(warnings)),
        )

    def _label(self, labelling: LabelForm, initial: Term | None, final: Term) -> list[Label]:
        """The label of these instants; none of an expiration that had ended at the past instant.

        Raises:
            AnnotationError: there is no such label.
            HistoryError: nobody tells whether the fact held at the past instant.
        """
        end = instant_of_term(final)
        if labelling == "instant":
            return [at_instant(end)]
        if initial is not None:
            return [Interval(instant_of_term(initial), end)]
        if self._past is None:
            return [Expiration(end)]
        if end > self._past.now():
            raise HistoryError(self.url, "an expiration does not tell since when its fact held")
        return []

    def _rewrite(self, pattern: QuadPattern, annotation: Annotation) -> Rewriting:
        triple = TriplePattern(*pattern[:3])
        return annotation.method.rewrite(
            triple, annotation.labelling, fresh_names(), annotation.naming
        )

    def _may_meet_annotations(self, pattern: QuadPattern) -> bool:
        """Whether quads that only annotate may match as well."""
        if is_variable(pattern.predicate) or is_variable(pattern.graph):
            return True
        return pattern.predicate.startswith("<http://www.w3.org/1999/02/22-rdf-syntax-ns#")

    def _label_nodes(
        self, annotation: Annotation, at: datetime | None
    ) -> Task[tuple[set[Term], list[Content]]]:
        """The nodes that carry labels, and those of intervals."""
        tmp = annotation.naming.vocabulary
        s, o = Variable("?s"), Variable("?o")
        predicates: dict[LabelForm, Term] = {
            "expiration": tmp.expiration,
            "instant": tmp.instant,
            "interval": tmp.interval,
            "older interval": tmp.interval_initial,
        }
        predicate = predicates[annotation.labelling]
        content = yield from self.base.read(QuadPattern(s, predicate, o, _ANY), at)
        nodes = {fact.quad.subject for fact in content.facts}
        if annotation.labelling == "interval":
            nodes |= {fact.quad.object for fact in content.facts}
        return nodes, [content]

    def _annotates(self, quad: Quad, nodes: set[Term]) -> bool:
        """Whether a quad annotates instead of saying a fact."""
        return quad.subject in nodes or quad.predicate in nodes or quad.graph in nodes


def _stated(
    pattern: QuadPattern, rewriting: Rewriting, bindings: Sequence[Binding]
) -> dict[Quad, dict[Term | None, dict[Term, None]]]:
    """For each quad that matches, the starts of its labels (``None``: none) with their ends."""
    result: dict[Quad, dict[Term | None, dict[Term, None]]] = {}
    for binding in bindings:
        graph = binding[rewriting.graph] if rewriting.graph else DEFAULT_GRAPH
        quad = _instance(pattern, binding, graph)
        if unify(pattern, quad, {}) is not None:
            initial = None if rewriting.initial is None else binding[rewriting.initial]
            result.setdefault(quad, {}).setdefault(initial, {})[binding[rewriting.final]] = None
    return result


def _first(instants: Sequence[datetime | None], now: datetime) -> datetime | None:
    """The first of these instants that lies in the future."""
    return min((each for each in instants if each is not None and each > now), default=None)


def _named(quad: Quad) -> str:
    return " ".join(quad).strip()


def _seeds(block: Block | None) -> Sequence[Binding]:
    """What the rewritten patterns start from: the rows of a block, but for the graph.

    The graph of a fact has another name in a rewriting, or none.
    """
    if block is None:
        return ({},)
    rows = [dict(zip(block.variables, row, strict=True)) for row in block.rows]
    named = [{name: term for name, term in row.items() if name != _ANY} for row in rows]
    return list({tuple(row.values()): row for row in named}.values())


def _instance(pattern: QuadPattern, binding: dict[Variable, Term], graph: Term) -> Quad:
    subject, predicate, object_ = (
        binding[Variable(term)] if is_variable(term) else Term(term) for term in pattern[:3]
    )
    return Quad(subject, predicate, object_, graph)
