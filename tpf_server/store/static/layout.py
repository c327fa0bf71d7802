"""The layout of a static store on disk.

::

    STORE/
        manifest.json           names the generation that counts; replaced atomically
        .lock                   held by the process that writes
        generation-<random>/
            terms.arrow         the dictionary: one column of large_string, strictly ascending
            fence.arrow         every n-th term, to begin a search with
            <order>.starts.npy  where the rows of each first term begin (terms + 1 numbers)
            <order>.<k>.npy     the k-th column of the order, for k from 1
            equal.<position>.npy the quads in which two positions hold the same term
            verified.json       which files have been checked against the manifest's checksums

Ids are dense and ascend with the terms' UTF-8 bytes; id 0 is `DEFAULT_GRAPH`. An order is a
permutation of the positions; its rows are the sorted quads. A pattern is one range of the order
whose first positions are bound: three orders for triples, six for named graphs. The first order
also stores its first column, for the open pattern.
"""

from typing import Final

FORMAT: Final = "tpf-columns"
PARTS_FORMAT: Final = "tpf-parts"
"""Of a store in an object store whose files are made of parts by who fetches it."""
FORMAT_VERSION: Final = 1

QUAD_POSITIONS: Final = "spog"
"""Subject, predicate, object, graph."""

TRIPLE_ORDERS: Final = ("spo", "pos", "osp")
"""The orders of a dataset without named graphs."""
QUAD_ORDERS: Final = ("spog", "posg", "ospg", "gspo", "gpos", "gosp")
"""The orders of a dataset with named graphs."""

MANIFEST: Final = "manifest.json"
LOCK: Final = ".lock"
TERMS: Final = "terms.arrow"
FENCE: Final = "fence.arrow"
VERIFIED: Final = "verified.json"
GENERATION_PREFIX: Final = "generation-"
WRITING_PREFIX: Final = "writing-"


def starts_file(order: str) -> str:
    """Return the file of the beginnings of an order."""
    return f"{order}.starts.npy"


def column_file(order: str, k: int) -> str:
    """Return the file of the `k`-th column (from 1) of an order."""
    return f"{order}.{k}.npy"


def equal_file(position: str) -> str:
    """Return the file of one position of `equal`."""
    return f"equal.{position}.npy"


def stored_columns(order: str, all_orders: tuple[str, ...]) -> range:
    """Return the columns (from 1) of an order that are stored beside `starts`."""
    return range(1 if order == all_orders[0] else 2, len(order) + 1)


def files_of(all_orders: tuple[str, ...]) -> list[str]:
    """Return the files that the manifest of a store with these orders lists."""
    names = [TERMS, FENCE]
    for order in all_orders:
        names.append(starts_file(order))
        names.extend(column_file(order, k) for k in stored_columns(order, all_orders))
    names.extend(equal_file(position) for position in all_orders[0])
    return names
