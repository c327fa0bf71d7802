"""The reference of the packages, from docstrings, and what pdoc warns of, as an unknown type."""

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pdoc
from pdoc import doc

import tpf_client

ROOT = Path(__file__).parents[1]
PACKAGES = ("annotations", "tpf_client", "tpf_server", "loaders")


def written(directory: Path) -> None:
    """Write the pages."""
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*PACKAGES, output_directory=directory)


def looked_at() -> None:
    """Render only the parts that can give warnings, in a third of the time."""
    for name in pdoc.extract.walk_specs(PACKAGES):
        for member in shown(doc.Module.from_name(name)):
            if isinstance(member, doc.Function):
                str(member.signature)
            elif isinstance(member, doc.Variable):
                _ = member.annotation_str, member.default_value_str
            elif isinstance(member, doc.Class):
                _ = member.bases


def shown(place: doc.Module | doc.Class) -> Iterator[doc.Doc[Any]]:
    """Return the documented members on a page."""
    for member in place.own_members:
        if not member.name.startswith("_") and not isinstance(member, doc.Module):
            yield member
            if isinstance(member, doc.Class):
                yield from shown(member)


def warnings_of(work: Callable[[], None]) -> list[str]:
    """Return pdoc's warnings in order."""
    # The names of the client are there once they were used.
    for name in tpf_client.__all__:
        getattr(tpf_client, name)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        work()
    return list(dict.fromkeys(str(each.message) for each in found))
