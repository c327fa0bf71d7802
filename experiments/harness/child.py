"""The program of child processes: ``child MODULE:NAME [ARGUMENT…]``; NAME handles orders.

Orders are lines of JSON on standard input; an answer repeats the ``id``.
"""

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def follow_orders(handle: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Follow orders until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        sys.stdout.write(json.dumps({**handle(order), "id": order["id"]}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    target = getattr(import_module(module), name)
    follow_orders(target(*sys.argv[2:]) if isinstance(target, type) else target)
