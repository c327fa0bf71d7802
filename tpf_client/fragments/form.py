"""The form of a dataset: how the URL of a fragment is made from a pattern.

Source: Triple Pattern Fragments (Hydra W3C Community Group), section 3.2 "controls"; RFC 6570 for
the template; Hydra core, "explicit representation" for how terms are written in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import uritemplate
from uritemplate.variable import VariableValue

from annotations.methods.names import parameter_of_term
from annotations.terms import DEFAULT_GRAPH, QuadPattern, is_variable
from tpf_client.fragments.blank_nodes import to_wire


@dataclass(frozen=True, slots=True)
class Form:
    """The search form of a dataset.

    Args:
        template: the RFC 6570 template.
        subject: name of the template's variable for the subject; likewise the others.
        graph: ``None`` where the interface has triples only (TPF, not QPF).
        default_graph: the IRI that stands for the default graph in a Quad Pattern Fragments form.
        page: variable for the number of the page, where the form offers it.
        values: variable for a block of bindings (brTPF), where the form offers it.
        limit: variable for the size of a page, where the form offers it.
        max_limit: the largest page that the server gives, where it says so.
    """

    template: str
    subject: str
    predicate: str
    object: str
    graph: str | None = None
    default_graph: str | None = None
    page: str | None = None
    values: str | None = None
    limit: str | None = None
    max_limit: int | None = None
    _expanded: uritemplate.URITemplate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_expanded", uritemplate.URITemplate(self.template))

    def url(self, pattern: QuadPattern, extra: Mapping[str, str] | None = None) -> str:
        """The URL of the fragment of a pattern; its variables stay open.

        `DEFAULT_GRAPH` asks for the default graph where the form can tell graphs apart.

        Args:
            pattern: what to match. Repeated variables are not expressed: filter what comes.
            extra: values of further variables of the template (page, values, limit).
        """
        arguments: dict[str, VariableValue] = dict(extra or {})
        for name, term in (
            (self.subject, pattern.subject),
            (self.predicate, pattern.predicate),
            (self.object, pattern.object),
        ):
            if not is_variable(term):
                arguments[name] = parameter_of_term(to_wire(term))
        if self.graph is not None:
            if pattern.graph == DEFAULT_GRAPH:
                arguments[self.graph] = self.default_graph
            elif not is_variable(pattern.graph):
                arguments[self.graph] = parameter_of_term(to_wire(pattern.graph))
        return self._expanded.expand(arguments)
