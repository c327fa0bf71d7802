"""The vocabulary of time labels as a document, served where its namespace says.

Source for the terms: Taelman et al. 2016, section 2.2; the rest is this project's.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from flask import Response

from annotations.namespaces import DCTERMS, RDF, RDF_TYPE, RDFS, XSD
from annotations.terms import Term, Triple, literal
from tpf_server.fragments.negotiation import Chosen
from tpf_server.web.html import render
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.problems import rdf_answer
from tpf_server.web.responses import answer
from tpf_server.web.site import Site


class VocabularyTerm(NamedTuple):
    """A property of a vocabulary.

    Args:
        name: in its namespace.
        comment: what it says.
        range: IRI of what its values are; ``""``: anything.
    """

    name: str
    comment: str
    range: str = ""


_INSTANT: Final = XSD + "dateTime"
_NUMBER: Final = XSD + "integer"
TEMPORAL_TERMS: Final = (
    VocabularyTerm("expiration", "The subject holds until this instant.", _INSTANT),
    VocabularyTerm("instant", "The subject holds at this instant only.", _INSTANT),
    VocabularyTerm("interval", "The subject holds in this interval."),
    VocabularyTerm("initial", "The first instant of an interval.", _INSTANT),
    VocabularyTerm("final", "The first instant after an interval.", _INSTANT),
    VocabularyTerm("intervalInitial", "Older form of initial, on what is labelled.", _INSTANT),
    VocabularyTerm("intervalFinal", "Older form of final, on what is labelled.", _INSTANT),
    VocabularyTerm("graph", "The graph of the labelled facts."),
    VocabularyTerm("predicate", "The predicate of facts of this page that carry this label."),
    VocabularyTerm("subject", "The subjects of facts of this page that carry this label."),
    VocabularyTerm("object", "The objects of facts of this page that carry this label."),
    VocabularyTerm("dynamicTriples", "How many of the matches carry a label.", _NUMBER),
    VocabularyTerm("annotationMethod", "How labelled facts are shown.", XSD + "string"),
    VocabularyTerm("labelling", "A kind of label that matches carry.", XSD + "string"),
    VocabularyTerm("earliestExpiration", "When the first label of a match ends.", _INSTANT),
    VocabularyTerm("nextChange", "When the first label of a match ends or begins.", _INSTANT),
    VocabularyTerm("evaluatedAt", "The instant that the page shows.", _INSTANT),
    VocabularyTerm("plainView", "The same pattern where labelled facts stand for themselves."),
    VocabularyTerm("mapping", "A variable of the form that is no position of a pattern."),
    VocabularyTerm("maximum", "The largest value, or the most rows, of a variable.", _NUMBER),
    VocabularyTerm("changes", "Where server-sent events tell what changes in the dataset."),
    VocabularyTerm("at", "The instant whose facts are asked for.", _INSTANT),
    VocabularyTerm("known", "Until when what was published counts.", _INSTANT),
)
SINGLETON_TERMS: Final = (
    VocabularyTerm("singletonPropertyOf", "The property that a singleton property stands for."),
)


class ServedVocabulary(NamedTuple):
    """A vocabulary that this server is to serve.

    Args:
        namespace: its IRI, with ``#`` at its end.
        title: what it is called.
        terms: what is in it.
    """

    namespace: str
    title: str
    terms: tuple[VocabularyTerm, ...]


def vocabularies(site: Site) -> dict[str, ServedVocabulary]:
    """The vocabularies of the datasets whose namespaces lie on this server, by path."""
    base = site.settings.base
    named = {
        namespace: ServedVocabulary(namespace, title, terms)
        for dataset in site.datasets.values()
        for namespace, title, terms in (
            (dataset.settings.vocabulary, "Time labels", TEMPORAL_TERMS),
            (dataset.settings.singleton_vocabulary, "Singleton properties", SINGLETON_TERMS),
        )
    }
    return {
        "/" + namespace[len(base) : -1]: served
        for namespace, served in named.items()
        if namespace.startswith(base) and namespace.endswith("#")
    }


def vocabulary_document(served: ServedVocabulary, base: str, chosen: Chosen) -> Response:
    """The document of a vocabulary, for people or for programs."""
    namespace, title, terms = served
    if isinstance(chosen.writer, HtmlWriter):
        page = render(
            "vocabulary.html", title=title, site_title=title, base=base, namespace=namespace,
            terms=terms,
        )  # fmt: skip
        response = answer(page, "text/html; charset=utf-8")
    else:
        response = rdf_answer(list(_triples(namespace, title, terms)), chosen)
    response.headers["Cache-Control"] = "public, max-age=3600"
    response.headers["Vary"] = "Accept"
    return response


def _triples(namespace: str, title: str, terms: tuple[VocabularyTerm, ...]) -> Iterator[Triple]:
    document = Term(f"<{namespace[:-1]}>")
    yield Triple(document, RDF_TYPE, Term("<http://www.w3.org/2002/07/owl#Ontology>"))
    yield Triple(document, Term(f"<{DCTERMS}title>"), literal(title))
    for term in terms:
        iri = Term(f"<{namespace}{term.name}>")
        yield Triple(iri, RDF_TYPE, Term(f"<{RDF}Property>"))
        yield Triple(iri, Term(f"<{RDFS}label>"), literal(term.name))
        yield Triple(iri, Term(f"<{RDFS}comment>"), literal(term.comment))
        yield Triple(iri, Term(f"<{RDFS}isDefinedBy>"), document)
        if term.range:
            yield Triple(iri, Term(f"<{RDFS}range>"), Term(f"<{term.range}>"))
