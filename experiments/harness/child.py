"""The program of every child process that follows orders: ``child MODULE:NAME [ARGUMENT…]``.

The named callable is given the arguments, and returns what is called with each order: a line of
JSON on standard input, answered by a line with the order's ``id``.
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
    follow_orders(getattr(import_module(module), name)(*sys.argv[2:]))
