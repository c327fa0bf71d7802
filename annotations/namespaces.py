"""The IRIs that the project writes and reads, as terms.

The temporal and singleton-property namespaces are those of the published query streamer (Taelman
et al., *Continuously Updating Query Results over Real-Time Linked Data*, 2016), so that its data
can be read. They are configurable: see `Vocabulary`.
"""

from dataclasses import dataclass

from annotations.terms import Term

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
XSD = "http://www.w3.org/2001/XMLSchema#"
VOID = "http://rdfs.org/ns/void#"
HYDRA = "http://www.w3.org/ns/hydra/core#"
FOAF = "http://xmlns.com/foaf/0.1/"
SD = "http://www.w3.org/ns/sparql-service-description#"
DCTERMS = "http://purl.org/dc/terms/"

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


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The predicates that carry time labels and annotations.

    Args:
        temporal: namespace of ``expiration``, ``interval``, ``initial`` and ``final``.
        singleton: namespace of ``singletonPropertyOf``.
    """

    temporal: str = TEMPORAL
    singleton: str = SINGLETON

    def __getitem__(self, name: str) -> Term:
        """The term of a name in the temporal namespace."""
        return Term(f"<{self.temporal}{name}>")

    @property
    def expiration(self) -> Term:
        """Instant at which the subject stops being valid."""
        return self["expiration"]

    @property
    def interval(self) -> Term:
        """Points to the node that carries `initial` and `final`."""
        return self["interval"]

    @property
    def initial(self) -> Term:
        """First instant of an interval."""
        return self["initial"]

    @property
    def final(self) -> Term:
        """First instant after an interval."""
        return self["final"]

    @property
    def interval_initial(self) -> Term:
        """Older form of `initial`, directly on the labelled node; read, never written."""
        return self["intervalInitial"]

    @property
    def interval_final(self) -> Term:
        """Older form of `final`, directly on the labelled node; read, never written."""
        return self["intervalFinal"]

    @property
    def singleton_property_of(self) -> Term:
        """Points from a singleton property to the property that it stands for."""
        return Term(f"<{self.singleton}singletonPropertyOf>")


DEFAULT_VOCABULARY = Vocabulary()
