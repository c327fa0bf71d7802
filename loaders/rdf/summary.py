"""What a load did: the new store, and what was left out."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from annotations.wording import counted
from loaders.errors import InputError
from loaders.rdf.pieces import Reject
from tpf_server.store.static import layout
from tpf_server.store.static.manifest import Manifest


@dataclass(frozen=True, slots=True)
class RdfSummary:
    """What a load did.

    Args:
        manifest: of the new store.
        predicates: how many different predicates the store has.
        rejects: how many malformed lines or statements were left out.
        first_rejects: the first of them.
    """

    manifest: Manifest
    predicates: int
    rejects: int
    first_rejects: list[Reject]


def summary_of(store: Path, manifest: Manifest, rejects: int, first: list[Reject]) -> RdfSummary:
    """What a load did that wrote this manifest."""
    # The predicates are those terms at which the rows of the second order begin anew.
    order = manifest.orders[1]
    starts = np.load(
        store / manifest.generation / layout.starts_file(order), mmap_mode="r", allow_pickle=False
    )
    predicates = int(np.count_nonzero(np.diff(starts)))
    return RdfSummary(manifest, predicates, rejects, first)


def check_not_all_rejected(quads: int, rejects: int, first: Sequence[Reject]) -> None:
    """Refuse to make a store of nothing.

    Raises:
        InputError: nothing was read but what is malformed.
    """
    if rejects and not quads:
        one = first[0]
        malformed = counted(rejects, "malformed part")
        raise InputError(f"nothing but {malformed} ({one.message})", one.path, one.line)


def collect_rejects(work: Path, target: Path | None) -> list[Reject]:
    """Put what the workers wrote aside into one file; the first of it.

    Without rejects there is no file, and none of an earlier load.
    """
    first: list[Reject] = []
    files = sorted((work / "rejects").glob("*.ndjson"))
    if not files:
        if target is not None:
            target.unlink(missing_ok=True)
        return first
    texts = (line for file in files for line in file.read_text(encoding="utf-8").splitlines(True))
    if target is None:
        return [Reject(**json.loads(line)) for line, _ in zip(texts, range(20), strict=False)]
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8") as out:
        for line in texts:
            out.write(line)
            if len(first) < 20:
                first.append(Reject(**json.loads(line)))
    return first
