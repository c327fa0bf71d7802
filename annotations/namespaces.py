"""The IRIs of the project, as terms; temporal ones as in Taelman et al. 2016, configurable."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from annotations.terms import Term

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
XSD = "http://www.w3.org/2001/XMLSchema#"
VOID = "http://rdfs.org/ns/void#"
HYDRA = "http://www.w3.org/ns/hydra/core#"
FOAF = "http://xmlns.com/foaf/0.1/"
SD = "http://www.w3.org/ns/sparql-service-description#"
DCTERMS = "http://purl.org/dc/terms/"
DCAT = "http://www.w3.org/ns/dcat#"
LDES = "https://w3id.org/ldes#"
TREE = "https://w3id.org/tree#"
ACTIVITY = "https://www.w3.org/ns/activitystreams#"

TEMPORAL = "http://example.org/temporal#"
SINGLETON = "http://example.org/singletonproperties#"

XSD_DATE_TIME = XSD + "dateTime"
XSD_DATE_TIME_STAMP = XSD + "dateTimeStamp"
XSD_INTEGER = XSD + "integer"

RDF_TYPE = Term(f"<{RDF}type>")
RDF_STATEMENT = Term(f"<{RDF}Statement>")
RDF_SUBJECT = Term(f"<{RDF}subject>")
RDF_PREDICATE = Term(f"<{RDF}predicate>")
RDF_OBJECT = Term(f"<{RDF}object>")
RDF_REIFIES = Term(f"<{RDF}reifies>")


@lru_cache(maxsize=1024)
def integer(value: int) -> Term:
    """The ``xsd:integer`` literal of a number."""
    return Term(f'"{value}"^^<{XSD_INTEGER}>')


def _temporal(name: str) -> "cached_property[Term]":
    return cached_property(lambda vocabulary: vocabulary[name])


@dataclass(frozen=True)
class Vocabulary:
    """The predicates that carry time labels and annotations.

    `temporal` and `singleton` are the namespaces of the labels and of ``singletonPropertyOf``.
    """

    temporal: str = TEMPORAL
    singleton: str = SINGLETON

    expiration = _temporal("expiration")
    """Instant at which the subject stops being valid."""
    instant = _temporal("instant")
    """The only instant at which the subject is valid; written for a page's labels only."""
    interval = _temporal("interval")
    """Points to the node that carries `initial` and `final`."""
    initial = _temporal("initial")
    final = _temporal("final")
    # Older forms, on the labelled node; read, never written.
    interval_initial = _temporal("intervalInitial")
    interval_final = _temporal("intervalFinal")
    graph = _temporal("graph")
    """Link from an annotation graph to the named graph of its fact."""

    def __getitem__(self, name: str) -> Term:
        return Term(f"<{self.temporal}{name}>")

    @cached_property
    def singleton_property_of(self) -> Term:
        """Link from a singleton property to its property."""
        return Term(f"<{self.singleton}singletonPropertyOf>")

    @cached_property
    def label_predicates(self) -> frozenset[Term]:
        """The predicates of labels; no fact has one of them."""
        names = ("expiration", "instant", "interval", "initial", "final")
        older = ("intervalInitial", "intervalFinal")
        return frozenset(self[name] for name in (*names, *older))

    @cached_property
    def structure_predicates(self) -> frozenset[Term]:
        """The predicates that link a labelled node to its fact, in any method."""
        shared = {RDF_SUBJECT, RDF_PREDICATE, RDF_OBJECT, RDF_REIFIES}
        return frozenset(shared | {self.graph, self.singleton_property_of})


DEFAULT_VOCABULARY = Vocabulary()
