"""Detect whether and how a dataset is labelled.

Our servers' pages say so. Other servers are asked for expirations, intervals, and the nodes that
carry them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from annotations.clock import Clock
from annotations.errors import AnnotationError
from annotations.instants import FIRST, LAST, instant_of_term, shifted
from annotations.labels import Expiration, Fact, Interval, Label, at_instant
from annotations.methods import method_named
from annotations.methods.base import Derived, LabelForm, Naming, RewriteOptions, Rewriting
from annotations.methods.method import Method
from annotations.methods.names import read_fragment_iri
from annotations.namespaces import (
    DEFAULT_VOCABULARY,
    RDF_REIFIES,
    RDF_STATEMENT,
    RDF_SUBJECT,
    RDF_TYPE,
    Vocabulary,
)
from annotations.terms import (
    DEFAULT_GRAPH,
    Quad,
    QuadPattern,
    Term,
    TermOrVariable,
    TriplePattern,
    Variable,
    is_variable,
)
from tpf_client.errors import HistoryError, PageError, SourceLimitError
from tpf_client.fragments.blank_nodes import askable
from tpf_client.fragments.fetcher import Fetcher, Request
from tpf_client.fragments.form import PATTERN_VARIABLES, Block
from tpf_client.planner.driver import Task
from tpf_client.planner.fragment_source import FragmentSource, SourceUse
from tpf_client.planner.key_answers import packed
from tpf_client.planner.live_fragment import canonical_pattern
from tpf_client.planner.reading import Content, ReadRequest, together
from tpf_client.planner.source import Estimate, Source, impossible, substitute
from tpf_client.planner.union import UnionSource, ahead
from tpf_client.sparql.algebra import variables_of_quad
from tpf_client.sparql.rewrite.join_order import greedy_order

# A source of annotated data, read as the facts that it says: the rewriting of patterns.
#
# For servers that do not state labels in their pages. A pattern is asked as it is, for the static
# facts, and rewritten for each way in which the data are annotated, for the labelled ones. What
# only annotates (label nodes and what is said of them) is no fact.

# Quad patterns matched together at a source, step by step, in as few requests as the counts allow.
#
# For the small joins inside a rewritten pattern. The joins of queries are a dataflow.

Binding: TypeAlias = dict[Variable, Term]

MOST_BINDINGS = 1_000_000
"""Of one pattern: so many facts, each with its labels."""
_MOST_COSTS = 10_000
"""So many patterns whose counts are kept: some are of one key."""


@dataclass(slots=True)
class Match:
    """The solutions of a match, and the content read for them."""

    bindings: list[Binding] = field(default_factory=lambda: [{}])
    contents: list[Content] = field(default_factory=list)


class Matcher:
    """Match quad patterns together.

    A variable as graph matches the default graph, too.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._costs: dict[QuadPattern, tuple[int | None, int]] = {}

    def match(
        self,
        patterns: Sequence[QuadPattern],
        at: datetime | None,
        derived: Derived | None = None,
        seeds: Sequence[Binding] = ({},),
    ) -> Task[Match]:
        """Return all solutions that extend a seed and hold at an instant (``None``: now)."""
        result = Match([dict(seed) for seed in seeds])
        rest = list(patterns)
        if derived is not None:
            yield from self._extend(result, rest.pop(0), at, derived)
        costs: dict[QuadPattern, tuple[int | None, int]] = {}
        if result.bindings:
            known = yield from together([self._cost(pattern) for pattern in rest])
            costs = dict(zip(rest, known, strict=True))

        def requests(pattern: QuadPattern, _bound: set[Variable]) -> float:
            # Without bindings nothing more is read.
            if not result.bindings:
                return 0
            return _plan(pattern, result.bindings, *costs[pattern])[1]

        bound = result.bindings[0] if result.bindings else ()
        for pattern in greedy_order(rest, variables_of_quad, requests, bound):
            if not result.bindings:
                break
            yield from self._extend(result, pattern, at, None)
        return result

    def link(self, match: Match, link: QuadPattern, at: datetime | None) -> Task[None]:
        """Bind the object of `link` in all solutions: the default graph where nothing matches."""
        before = match.bindings
        if not before:
            return
        yield from self._extend(match, link, at, None)
        node, graph = Variable(link.subject), Variable(link.object)
        linked = {row[node] for row in match.bindings}
        rest = (row for row in before if row[node] not in linked)
        match.bindings += [row | {graph: DEFAULT_GRAPH} for row in rest]

    def _extend(
        self, result: Match, pattern: QuadPattern, at: datetime | None, derived: Derived | None
    ) -> Task[None]:
        cost = yield from self._cost(pattern)
        reads, _ = _plan(pattern, result.bindings, *cost)
        contents = yield from together(
            [self._source.read(ReadRequest(name, at, block=block)) for name, block in reads]
        )
        result.contents += contents
        quads = [fact.quad for content in contents for fact in content.facts]
        result.bindings = _join(result.bindings, pattern, dict.fromkeys(quads), derived)
        if len(result.bindings) > MOST_BINDINGS:
            reason = f"labels of more than {MOST_BINDINGS} combinations of facts"
            raise SourceLimitError(self._source.url, reason)

    def _cost(self, pattern: QuadPattern) -> Task[tuple[int | None, int]]:
        name = canonical_pattern(pattern)
        cost = self._costs.get(name)
        if cost is None:
            estimate = yield from self._source.estimate(name)
            pages = None if estimate.pages is None else estimate.pages + 1
            if len(self._costs) >= _MOST_COSTS:
                self._costs.clear()
            cost = self._costs[name] = (pages, estimate.block)
        return cost


_Reads: TypeAlias = list[tuple[QuadPattern, Block | None]]


def _plan(
    pattern: QuadPattern, bindings: Sequence[Binding], whole: int | None, size: int
) -> tuple[_Reads, float]:
    """Return what is read to match a pattern, and about how many requests that takes."""
    name, cost = canonical_pattern(pattern), math.inf if whole is None else whole
    bound_names = bindings[0].keys()
    positions = [position for position, term in enumerate(pattern) if term in bound_names]
    if not positions:
        return [(name, None)], cost
    rows = {tuple(each[Variable(pattern[position])] for position in positions) for each in bindings}
    names = tuple(PATTERN_VARIABLES[position] for position in positions)
    fit: list[tuple[tuple[Term, ...], None]] = []
    reads: _Reads = []
    for row in sorted(rows):
        bound = substitute(name, dict(zip(names, row, strict=True)))
        if impossible(bound):
            continue
        if size < 2 or not all(askable(term) and term and term[:2] != "<<" for term in row):
            reads.append((bound, None))
        else:
            fit.append((row, None))
    for block in packed(fit, size):
        values = tuple([row for row, _ in block])
        if len(values) == 1:
            reads.append((substitute(name, dict(zip(names, values[0], strict=True))), None))
        else:
            reads.append((name, Block(names, values)))
    if cost <= len(reads):
        return [(name, None)], cost
    return reads, len(reads)


def _join(
    bindings: Sequence[Binding],
    pattern: QuadPattern,
    quads: dict[Quad, None],
    derived: Derived | None,
) -> list[Binding]:
    bound = bindings[0].keys() if bindings else frozenset()
    positions = [position for position, term in enumerate(pattern) if term in bound]
    index: dict[tuple[Term, ...], list[Quad]] = {}
    for quad in quads:
        index.setdefault(tuple(quad[position] for position in positions), []).append(quad)
    joined: list[Binding] = []
    for binding in bindings:
        if len(joined) > MOST_BINDINGS:
            break
        key = tuple(binding[Variable(pattern[position])] for position in positions)
        for quad in index.get(key, ()):
            row = unify(pattern, quad, binding)
            if row is not None:
                if derived is not None:
                    row[derived.variable] = derived.of(quad)
                joined.append(row)
    return joined


def unify(pattern: QuadPattern, quad: Quad, binding: Binding) -> Binding | None:
    """Extend a binding by a quad; ``None`` where it does not match."""
    row = dict(binding)
    for expected, term in zip(pattern, quad, strict=True):
        if is_variable(expected):
            if row.setdefault(Variable(expected), term) != term:
                return None
        elif expected != term:
            return None
    return row


FreshNames: TypeAlias = Callable[[str], Variable]


def fresh_names() -> FreshNames:
    """Return a maker of variables that no query and no canonical pattern contains."""
    count = 0

    def fresh(hint: str) -> Variable:
        nonlocal count
        count += 1
        return Variable(f"?.{hint}{count}")

    return fresh


_S, _P, _O, _G = PATTERN_VARIABLES
_MAX_PASSES = 6
_SPREAD = timedelta(seconds=0.5)
"""Time between the requests of one reading at most; expirations do not tell when facts came."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """One way in which data are annotated: method, kind of label, and vocabulary."""

    method: Method
    labelling: LabelForm
    naming: Naming


class AnnotatedSource:
    """The facts of annotated data; a `Source`.

    `past` shows past facts, from intervals still in the data (an expiration has no start).
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
        return self.base.now() if self._past is None else self._past.now()

    def wake_at(self, instant: datetime) -> datetime:
        """Return the instant of our clock at which the server's has surely reached `instant`."""
        return self.base.wake_at(instant) if self._past is None else instant

    def begin(self) -> Task[object]:
        return self.base.begin()

    def estimate(self, pattern: QuadPattern) -> Task[Estimate]:
        """Estimate the static matches and those of the rewritten patterns."""
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

    def read(self, asked: ReadRequest) -> Task[Content]:
        """Read the matching facts that are valid now, labelled and static."""
        # Labels are elsewhere: what has no label yet is not told page by page.
        pattern, at, block = asked.pattern, asked.at or self.now(), asked.block
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
        plain = yield from self.base.read(ReadRequest(pattern, shown, block=block))
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
            if rewriting.link is not None:
                yield from self._matcher.link(match, rewriting.link, shown)
            contents += match.contents
            for quad, stated in _stated(pattern, rewriting, match.bindings).items():
                found_labels = labels.setdefault(quad, [])
                for initial, finals in stated.items():
                    if annotation.labelling == "older interval" and len(finals) > 1:
                        warnings.append(f"a label of {_named(quad)}: which start has which end?")
                        continue
                    for final in finals:
                        try:
                            found_labels += self._label(annotation.labelling, initial, final)
                        except AnnotationError as error:
                            warnings.append(f"a label of {_named(quad)}: {error}")
            node = self._may_label(pattern, annotation) if plain.facts else None
            if node is not None:
                label_nodes, read = yield from self._label_nodes(node, annotation, shown)
                nodes |= label_nodes
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
        for quad, each_labels in labels.items():
            valid = sorted(
                (each for each in dict.fromkeys(each_labels) if each.valid_at(now)),
                key=lambda each: each.start or FIRST,
            )
            facts += [Fact(quad, label) for label in valid[:1]]
            if len(valid) > 1:
                warnings.append(f"labels of {_named(quad)} overlap: the earliest counts")
        boundaries = [
            instant
            for each_labels in labels.values()
            for label in each_labels
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
        options = RewriteOptions(annotation.labelling, fresh_names(), annotation.naming)
        rewriting = annotation.method.rewrite(TriplePattern(*pattern[:3]), options)
        if rewriting.link is None or is_variable(pattern.graph) or pattern.graph == DEFAULT_GRAPH:
            return rewriting
        # Only what is linked to the graph can match.
        link = rewriting.link._replace(object=pattern.graph)
        return rewriting._replace(patterns=(*rewriting.patterns, link), graph=None, link=None)

    def _may_label(self, pattern: QuadPattern, annotation: Annotation) -> TermOrVariable | None:
        """Return the nodes that matches of a pattern may annotate by, if any."""
        if is_variable(pattern.predicate) or is_variable(pattern.graph):
            return _S
        statements = pattern.predicate == RDF_TYPE and (
            is_variable(pattern.object) or pattern.object == RDF_STATEMENT
        )
        if statements or pattern.predicate in annotation.naming.vocabulary.structure_predicates:
            return _S
        # A graph asked for by name may be that of one fact.
        return pattern.graph if annotation.method.name == "named-graph" and pattern.graph else None

    def _label_nodes(
        self, node: TermOrVariable, annotation: Annotation, at: datetime | None
    ) -> Task[tuple[set[Term], list[Content]]]:
        predicate = _predicates(annotation.naming.vocabulary)[annotation.labelling]
        content = yield from self.base.read(ReadRequest(QuadPattern(node, predicate, _O, _G), at))
        nodes = {fact.quad.subject for fact in content.facts}
        if annotation.labelling == "interval":
            nodes |= {fact.quad.object for fact in content.facts}
        return nodes, [content]

    def _annotates(self, quad: Quad, nodes: set[Term]) -> bool:
        names = self.annotations[0].naming.vocabulary
        if quad.predicate in names.structure_predicates or quad[1:3] == (RDF_TYPE, RDF_STATEMENT):
            return quad.subject in nodes or quad.graph in nodes
        # What else is said of a labelled node is a fact.
        label = quad.predicate in names.label_predicates
        return label or quad.predicate in nodes or quad.graph in nodes


def _predicates(vocabulary: Vocabulary) -> dict[LabelForm, Term]:
    """Return the predicate of a labelled node for each form of labels."""
    return {
        "expiration": vocabulary.expiration,
        "interval": vocabulary.interval,
        "instant": vocabulary.instant,
        "older interval": vocabulary.interval_initial,
    }


def _stated(
    pattern: QuadPattern, rewriting: Rewriting, bindings: Sequence[Binding]
) -> dict[Quad, dict[Term | None, dict[Term, None]]]:
    """Map each matching quad to its labels: start (``None``: none) to ends."""
    result: dict[Quad, dict[Term | None, dict[Term, None]]] = {}
    for binding in bindings:
        graph = binding[rewriting.graph] if rewriting.graph else Term(pattern.graph)
        quad = _instance(pattern, binding, graph)
        if unify(pattern, quad, {}) is not None:
            initial = None if rewriting.initial is None else binding[rewriting.initial]
            result.setdefault(quad, {}).setdefault(initial, {})[binding[rewriting.final]] = None
    return result


def _first(instants: Sequence[datetime | None], now: datetime) -> datetime | None:
    return min((each for each in instants if each is not None and each > now), default=None)


def _named(quad: Quad) -> str:
    return " ".join(quad).strip()


def _seeds(block: Block | None) -> Sequence[Binding]:
    if block is None:
        return ({},)
    rows = [dict(zip(block.variables, row, strict=True)) for row in block.rows]
    named = [{name: term for name, term in row.items() if name != _G} for row in rows]
    return list({tuple(row.values()): row for row in named}.values())


def _instance(pattern: QuadPattern, binding: dict[Variable, Term], graph: Term) -> Quad:
    subject, predicate, object_ = (
        binding[Variable(term)] if is_variable(term) else Term(term) for term in pattern[:3]
    )
    return Quad(subject, predicate, object_, graph)


_SAMPLE = 20
_GRAPHS = 5
"""How many labelled nodes are tried as names of graphs."""


_HOW = {
    "labels": "labels travel with the pages",
    "freshness": "the server's answers change, without labels: HTTP tells for how long they hold",
    "static": "nothing is labelled: the answer cannot change",
}


@dataclass(frozen=True, slots=True)
class Detected:
    """The labelling of a dataset.

    Args:
        how: ``labels`` (in the pages), ``rewriting``, ``freshness`` (only HTTP limits a page's
            validity) or ``static``.
        parts: of several datasets read as one.
        settled: a later look can detect nothing else.
        changes: when labels of a new kind begin, if known.
        signals: URLs of change signals, if all servers have one.
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

    @property
    def datasets(self) -> tuple["Detected", ...]:
        """Return the parts, or itself where it is one dataset."""
        return self.parts or (self,)

    def datasets_json(self) -> list[dict[str, str]]:
        """Return the URL and the labelling of each dataset."""
        return [{"url": each.source.url, "labels": each.labelling} for each in self.datasets]

    @property
    def labelling(self) -> str:
        if self.how != "rewriting":
            return _HOW[self.how]
        ways = [f"{each.method.name} with {each.labelling} labels" for each in self.annotations]
        return f"patterns are rewritten: {', '.join(ways)}"

    def extended(self, other: "Detected") -> "Detected":
        if self.parts:
            pairs = zip(self.parts, other.parts, strict=True)
            return _as_one([mine.extended(newer) for mine, newer in pairs])
        if not self.annotations or other.how not in ("rewriting", "freshness", "static"):
            return other
        new = [each for each in other.annotations if each not in self.annotations]
        if not new:
            return self
        annotations = (*self.annotations, *new)
        assert isinstance(other.source, AnnotatedSource)
        return Detected(AnnotatedSource(other.source.base, annotations), "rewriting", annotations)

    def like(self, other: "Detected") -> bool:
        """True if the dataset is labelled in the same way."""
        if self.parts:
            return all(map(Detected.like, self.parts, other.parts))
        return (self.how, self.annotations) == (other.how, other.annotations)


def detect_all(
    fetcher: Fetcher,
    urls: Sequence[str],
    vocabulary: Vocabulary = DEFAULT_VOCABULARY,
    past: Clock | None = None,
) -> Task[Detected]:
    """Detect the labelling of several datasets read as one: see `detect`."""
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
    ours = parts[0].source

    def earliest(instants: Sequence[datetime | None]) -> datetime | None:
        pairs = zip(parts, instants, strict=True)
        own = [shifted(at, -ahead(part.source, ours)) for part, at in pairs if at is not None]
        return min(own, default=None)

    return Detected(
        UnionSource([part.source for part in parts]),
        how,
        parts=tuple(parts),
        warnings=tuple(each for part in parts for each in part.warnings),
        settled=all(part.settled for part in parts),
        changes=earliest([part.changes for part in parts]),
        signals=signals,
        fresh_until=earliest([part.fresh_until for part in parts]),
    )


def detect(
    fetcher: Fetcher,
    url: str,
    vocabulary: Vocabulary = DEFAULT_VOCABULARY,
    past: Clock | None = None,
) -> Task[Detected]:
    """Detect how the dataset at `url` is labelled; `past` is a clock for past facts."""
    (page,) = yield [Request(url)]
    metadata = page.metadata
    if metadata.form is None:
        raise PageError(url, "the page has no form to search a dataset with")
    # A server that keeps history is asked for it; else the intervals in the data may tell.
    asked = past if metadata.form.at is not None else None
    # Intervals in the data are there whatever the instant; a server's history shows one instant.
    whole = past is not None and asked is None
    views = [(url, metadata)]
    if metadata.plain_view is not None:
        (plain,) = yield [Request(metadata.plain_view)]
        views.insert(0, (metadata.plain_view, plain.metadata))
    for view, about in views:
        if about.form is not None and about.method == "plain":
            source = FragmentSource(fetcher, view, about.form, SourceUse(past=asked))
            labelled = _unless_lost(source, past, asked)
            signals = () if about.changes is None else (about.changes,)
            return Detected(labelled, "labels", settled=True, signals=signals)
    use = SourceUse(strict=past is None, once=past is not None, past=asked)
    base = FragmentSource(fetcher, url, metadata.form, use)
    annotations, warnings, changes = yield from _annotations(
        base, vocabulary, graphs=metadata.form.graph is not None
    )
    if annotations:
        history = past if whole else None
        if history is not None and not any(each.labelling != "expiration" for each in annotations):
            raise HistoryError(url, "its labels do not tell since when facts held")
        annotated = AnnotatedSource(base, annotations, history)
        return Detected(
            annotated,
            "rewriting",
            annotations,
            settled=whole,
            warnings=warnings,
            changes=changes,
            fresh_until=page.holds_until if page.holds_until > page.evaluated_at else None,
        )
    if metadata.evaluated_at is not None:
        use = SourceUse(changing=True, past=asked)
        source = FragmentSource(fetcher, url, metadata.form, use)
        labelled = _unless_lost(source, past, asked)
        return Detected(labelled, "freshness", warnings=warnings, changes=changes)
    source = FragmentSource(fetcher, url, metadata.form, SourceUse(always=past))
    return Detected(source, "static", settled=whole, warnings=warnings)


def _unless_lost(source: FragmentSource, past: Clock | None, asked: Clock | None) -> FragmentSource:
    if past is not None and asked is None:
        raise HistoryError(source.url, "it keeps no history that could be asked for")
    return source


def _annotations(
    base: FragmentSource, vocabulary: Vocabulary, *, graphs: bool
) -> Task[tuple[tuple[Annotation, ...], tuple[str, ...], datetime | None]]:
    annotations: list[Annotation] = []
    warnings: list[str] = []
    coming: list[datetime] = []
    for labelling, predicate in _predicates(vocabulary).items():
        if labelling == "older interval" and any(
            each.labelling == "interval" for each in annotations
        ):
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
            annotations.append(Annotation(method_named("implicit-graph"), labelling, implicit))
        others = [node for node in nodes if node not in fragments]
        if not others:
            continue
        probes = {
            "singleton-property": QuadPattern(_S, vocabulary.singleton_property_of, _O, _G),
            "reification": QuadPattern(_S, RDF_SUBJECT, _O, _G),
            "rdf-1.2": QuadPattern(_S, RDF_REIFIES, _O, _G),
        }
        before = len(annotations)
        for name, probe in probes.items():
            if (yield from base.first(probe))[0]:
                annotations.append(Annotation(method_named(name), labelling, naming))
        for node in [each for each in others if graphs and askable(each)][:_GRAPHS]:
            # Not every one: some may label in another way, or nothing at all.
            if (yield from base.first(QuadPattern(_S, _P, _O, node)))[0]:
                annotations.append(Annotation(method_named("named-graph"), labelling, naming))
                break
        if len(annotations) == before and len(others) == len(nodes):
            warnings.append(f"{len(nodes)} labels and nothing that they label, as of {nodes[0]}")
    return tuple(annotations), tuple(warnings), min(coming, default=None)
