"""What only the server says: the metadata of its pages.

Clients take the metadata of a page from the graph that is named after it, or from one whose primary
topic is the page; where a format has no graphs, from the triples about page, fragment and dataset.
Data that says such things of our own pages could lead them to another server. So it is refused when
it is published; and whatever came in by another way (a file, a time at which the server had another
URL) is left out of the pages.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from annotations.namespaces import FOAF, HYDRA, SD, VOID, Vocabulary
from annotations.terms import Quad, Term

_PRIMARY_TOPIC: Final = Term(f"<{FOAF}primaryTopic>")
_SUBSET: Final = Term(f"<{VOID}subset>")
# Labels are data: in some views a page's own URL carries the label of its fact.
_ABOUT_LABELS: Final = (
    "annotationMethod", "at", "changes", "dynamicTriples", "earliestExpiration", "evaluatedAt",
    "labelling", "mapping", "maximum", "nextChange", "plainView",
)  # fmt: skip
_OF_CONTROLS: Final = tuple(f"<{namespace}" for namespace in (HYDRA, VOID, SD))
_METADATA: Final = "#metadata>"


class Authority:
    """Knows the pages of a dataset.

    Args:
        url: where the dataset lies; its views and pages lie below.
        vocabulary: that its pages speak.
    """

    def __init__(self, url: str, vocabulary: Vocabulary) -> None:
        self._of_controls = (*_OF_CONTROLS, *(vocabulary[name] for name in _ABOUT_LABELS))
        self._openings = tuple(f"<{url}{end}" for end in (">", "?", "#", "/", "."))

    def controls(self, quad: Quad) -> bool:
        """Whether a quad, in whatever graph, reads like metadata of a page of the dataset."""
        subject, predicate, value, _ = quad
        if predicate in (_PRIMARY_TOPIC, _SUBSET) and value.startswith(self._openings):
            return True
        return predicate.startswith(self._of_controls) and subject.startswith(self._openings)

    def makes_metadata(self, quad: Quad) -> bool:
        """Whether a quad lies in what would be taken for the metadata of a page, or makes it so."""
        _, predicate, value, graph = quad
        if predicate == _PRIMARY_TOPIC and value.startswith(self._openings):
            return True
        return graph.endswith(_METADATA) and graph.startswith(self._openings)

    def may_control(self, predicates: Iterable[Term]) -> bool:
        """Whether any of the quads with these predicates could be one of the above; quick."""
        # Most pages have one predicate.
        return any(
            predicate.startswith(self._of_controls) or predicate == _PRIMARY_TOPIC
            for predicate in set(predicates)
        )

    def may_make_metadata(self, predicates: Sequence[Term], graphs: Sequence[Term]) -> bool:
        """Whether any of the quads with these could be of the second kind; quick."""
        return _PRIMARY_TOPIC in predicates or (
            any(graphs) and any(graph.endswith(_METADATA) for graph in set(graphs))
        )
