"""SPARQL 1.1 over Triple Pattern Fragments, once or continuously.

```python
from tpf_client import Client
```

Names are imported on first use: a server that uses the parser loads no HTTP stack.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpf_client.async_client import AsyncClient
    from tpf_client.client import Client
    from tpf_client.solutions import Solution, Solutions
    from tpf_client.stream import Stream, Update

_WHERE = {
    "AsyncClient": "tpf_client.async_client",
    "Client": "tpf_client.client",
    "Stream": "tpf_client.stream",
    "Update": "tpf_client.stream",
    "Solution": "tpf_client.solutions",
    "Solutions": "tpf_client.solutions",
}

__all__ = ["AsyncClient", "Client", "Solution", "Solutions", "Stream", "Update"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return value
