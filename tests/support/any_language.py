"""Register queries of any language, by their texts."""

from typing import Any

from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.service.hosting import CSPARQL, RSPQL, semantics_of


def register(engine: Engine, text: str, take: Any = None, **options: Any) -> Any:
    """Start a query in the language that its text tells."""
    start = {CSPARQL: engine.register_csparql, RSPQL: engine.register_rspql}
    return start.get(semantics_of(text) or "", engine.register)(text, take, **options)
