"""Finding out whether and how a dataset is labelled.

A server of ours says so in its pages: then its plain view is read, whose pages carry the labels.
Of any other server a few small questions are asked: are there expirations, are there intervals,
and what are the nodes that carry them.
"""

from dataclasses import dataclass
from typing import Literal

from annotations.labels import Labelling
from annotations.methods import method_named
from annotations.methods.base import Naming
from annotations.methods.names import read_fragment_iri
from annotations.namespaces import DEFAULT_VOCABULARY, RDF_REIFIES, RDF_SUBJECT, Vocabulary
from annotations.terms import QuadPattern, Term, Variable, is_iri
from tpf_client.errors import PageError
from tpf_client.fragments.fetcher import Fetcher, Request
from tpf_client.planner.driver import Task
from tpf_client.planner.source import FragmentSource, Source
from tpf_client.streaming.annotated import AnnotatedSource, Annotation

_S, _P, _O, _G = (Variable(name) for name in ("?s", "?p", "?o", "?g"))
_SAMPLE = 20


@dataclass(frozen=True, slots=True)
class Detected:
    """How a dataset is labelled.

    Args:
        source: who answers patterns with facts.
        how: ``labels`` (they travel with the pages), ``rewriting``, ``freshness`` (the data change,
            but only HTTP tells for how long a page holds) or ``static``.
        annotations: the ways of annotation that were found, for ``rewriting``.
    """

    source: Source
    how: Literal["labels", "rewriting", "freshness", "static"]
    annotations: tuple[Annotation, ...] = ()

    def extended(self, other: "Detected") -> "Detected":
        """This with the further ways of annotation that were found later.

        None is taken back: that there is no labelled fact of a kind at the moment means nothing.
        """
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
        return (self.how, self.annotations) == (other.how, other.annotations)


def detect(
    fetcher: Fetcher, url: str, vocabulary: Vocabulary = DEFAULT_VOCABULARY
) -> Task[Detected]:
    """Find out how the dataset at `url` is labelled.

    Raises:
        PageError: the page has no form.
        SourceError: a page could not be had.
    """
    (page,) = yield [Request(url)]
    about = page.metadata
    if about.form is None:
        raise PageError(url, "the page has no form to search a dataset with")
    if about.plain_view is not None:
        (plain,) = yield [Request(about.plain_view)]
        form = plain.metadata.form
        if form is not None and plain.metadata.method == "plain":
            return Detected(FragmentSource(fetcher, about.plain_view, form), "labels")
    if about.method == "plain":
        return Detected(FragmentSource(fetcher, url, about.form), "labels")
    base = FragmentSource(fetcher, url, about.form, strict=True)
    annotations = yield from _annotations(base, vocabulary, graphs=about.form.graph is not None)
    if annotations:
        return Detected(AnnotatedSource(base, annotations), "rewriting", annotations)
    if about.evaluated_at is not None:
        return Detected(FragmentSource(fetcher, url, about.form, changing=True), "freshness")
    return Detected(FragmentSource(fetcher, url, about.form), "static")


def _annotations(
    base: FragmentSource, vocabulary: Vocabulary, *, graphs: bool
) -> Task[tuple[Annotation, ...]]:
    found: list[Annotation] = []
    labellings: tuple[tuple[Labelling, Term], ...] = (
        ("expiration", vocabulary.expiration),
        ("interval", vocabulary.interval),
    )
    for labelling, predicate in labellings:
        page = yield from base.first(QuadPattern(_S, predicate, _O, _G))
        nodes = [fact.quad.subject for fact in page][:_SAMPLE]
        if not nodes:
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
        if graphs and is_iri(others[0]):
            probes["named-graph"] = QuadPattern(_S, _P, _O, others[0])
        for name, probe in probes.items():
            if (yield from base.first(probe)):
                found.append(Annotation(method_named(name), labelling, naming))
    return tuple(found)
