"""The arguments of a load, and its result."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

import numpy as np

from annotations.wording import counted
from loaders.errors import InputError
from loaders.outputs import written
from loaders.rdf.pieces import Reject
from tpf_server.store.static import layout
from tpf_server.store.static.manifest import Manifest
from tpf_server.store.static.parts import PartsManifest


@dataclass(frozen=True, slots=True)
class RdfLoad:
    """The settings of a load.

    Malformed parts go to `rejects` as lines of JSON, or are only counted; `strict` stops at the
    first. `prefixes` are for display.
    """

    created: datetime
    rejects: Path | None = None
    strict: bool = False
    source: str = ""
    prefixes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RdfSummary:
    """The manifest, number of predicates, and malformed parts of a load."""

    manifest: Manifest | PartsManifest
    predicates: int
    rejects: int
    first_rejects: list[Reject]


def summary_of(store: Path, manifest: Manifest, rejects: int, first: list[Reject]) -> RdfSummary:
    """Return the result of a load that wrote this manifest."""
    # The predicates are those terms at which the rows of the second order begin anew.
    order = manifest.orders[1]
    starts = np.load(
        store / manifest.generation / layout.starts_file(order), mmap_mode="r", allow_pickle=False
    )
    predicates = int(np.count_nonzero(np.diff(starts)))
    return RdfSummary(manifest, predicates, rejects, first)


def check_not_all_rejected(quads: int, rejects: int, first: Sequence[Reject]) -> None:
    """Refuse to make a store of malformed input alone."""
    if rejects and not quads:
        one = first[0]
        malformed = counted(rejects, "malformed part")
        raise InputError(f"nothing but {malformed} ({one.message})", one.path, one.line)


def collect_rejects(blocks: Iterable[bytes], target: Path | None) -> list[Reject]:
    """Write malformed parts, if any; return the first ones."""
    first: list[Reject] = []
    with ExitStack() as stack:
        out: IO[bytes] | None = None
        for block in blocks:
            lines = block.splitlines()[: 20 - len(first)]
            first += [Reject(**json.loads(line)) for line in lines]
            if target is not None:
                with written(target):
                    if out is None:
                        target.parent.mkdir(parents=True, exist_ok=True)
                        out = stack.enter_context(target.open("wb"))
                    out.write(block)
            elif len(first) == 20:
                break
        if out is None and target is not None:
            target.unlink(missing_ok=True)
    return first
