"""Annotation methods: a new one is a file here and a line in `METHODS`."""

from annotations.errors import MethodError
from annotations.methods.implicit_graph import ImplicitGraph
from annotations.methods.method import Method
from annotations.methods.named_graph import NamedGraph
from annotations.methods.rdf12 import Rdf12Reifier
from annotations.methods.reification import Reification
from annotations.methods.singleton_property import SingletonProperty

METHODS: tuple[Method, ...] = (
    SingletonProperty(),
    NamedGraph(),
    ImplicitGraph(),
    Reification(),
    Rdf12Reifier(),
)
"""All annotation methods, in the order in which they are shown and detected."""


def method_named(name: str) -> Method:
    """Return the method of this name, or raise `MethodError`."""
    for method in METHODS:
        if method.name == name:
            return method
    names = ", ".join(method.name for method in METHODS)
    raise MethodError(f"no annotation method is called {name!r}; there are {names}")
