"""Generated data and queries: the same seed gives the same text."""

from pathlib import Path


def named_queries(file: str | Path) -> dict[str, str]:
    """Read a file of queries, here or elsewhere, each after a line ``# name``."""
    parts = (Path(__file__).parent / file).read_text(encoding="utf-8").split("# ")[1:]
    return {name: text.strip() for name, _, text in (part.partition("\n") for part in parts)}
