"""Files that arrive for a streaming job."""

import os
import time
from pathlib import Path


def write_csv(folder: Path, number: int) -> str:
    """A file that arrives complete; returns what its facts look like."""
    aside = folder / f".{number}"
    aside.write_text(f"id,at,value\nsensor{number % 3},2026-01-01T00:00:00Z,{number}\n")
    # One instant per file, so that their sequence is certain.
    os.utime(aside, (time.time() + number / 100,) * 2)
    aside.rename(folder / f"{number:03}.csv")
    integer = "http://www.w3.org/2001/XMLSchema#integer"
    return f'<http://e/sensor{number % 3}> <http://e/value> "{number}"^^<{integer}> .'
