"""No two public classes of the packages have the same name."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.__main__ import PACKAGES, ROOT

# A query says what an operator then does.
SAID_AND_DONE = ("tpf_client.sparql.algebra", "tpf_client.dataflow.operators.")
# Each study has its own, under the name that the configuration of a run knows.
OF_EACH_STUDY = {"Sizes"}


def public_classes() -> Iterator[tuple[str, str]]:
    """The name of each class, and its module."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield node.name, module


def test_a_name_means_one_thing() -> None:
    modules = defaultdict(list)
    for name, module in public_classes():
        modules[name].append(module)
    twice = {}
    for name, places in modules.items():
        if name in OF_EACH_STUDY:
            places = [each for each in places if not each.startswith("experiments.studies.")]
        operation = all(each.startswith(SAID_AND_DONE) for each in places) and len(places) == 2
        if len(places) > 1 and not operation:
            twice[name] = places
    assert twice == {}
