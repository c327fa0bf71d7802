"""SPARQL 1.1 over Triple Pattern Fragments, once or continuously.

```python
from tpf_client import Client

with Client("http://127.0.0.1:3000/trains") as client:
    for row in client.select("SELECT * { ?s ?p ?o } LIMIT 10"):
        print(row["s"], row["p"], row["o"])
```

Names are imported on first use: a server that uses the parser loads no HTTP stack.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from annotations.clock import ManualClock, SystemClock
    from annotations.namespaces import Vocabulary
    from tpf_client.async_client import AsyncClient
    from tpf_client.client import Client
    from tpf_client.errors import (
        ClientError,
        ClosedError,
        LimitError,
        QueryError,
        QuerySyntaxError,
        SourceError,
        UnsupportedQueryError,
    )
    from tpf_client.fragments.responses import Limits
    from tpf_client.publishing import publish
    from tpf_client.queries import QueryOptions
    from tpf_client.solutions import Solution, Solutions
    from tpf_client.stream import Stream, Update

_NAMES = {
    "annotations.clock": ("ManualClock", "SystemClock"),
    "annotations.namespaces": ("Vocabulary",),
    "tpf_client.async_client": ("AsyncClient",),
    "tpf_client.client": ("Client",),
    "tpf_client.errors": (
        "ClientError",
        "ClosedError",
        "LimitError",
        "QueryError",
        "QuerySyntaxError",
        "SourceError",
        "UnsupportedQueryError",
    ),
    "tpf_client.fragments.responses": ("Limits",),
    "tpf_client.publishing": ("publish",),
    "tpf_client.queries": ("QueryOptions",),
    "tpf_client.solutions": ("Solution", "Solutions"),
    "tpf_client.stream": ("Stream", "Update"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "ClosedError",
    "LimitError",
    "Limits",
    "ManualClock",
    "QueryError",
    "QueryOptions",
    "QuerySyntaxError",
    "Solution",
    "Solutions",
    "SourceError",
    "Stream",
    "SystemClock",
    "UnsupportedQueryError",
    "Update",
    "Vocabulary",
    "publish",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("live-linked-data")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
