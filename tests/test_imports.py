"""Libraries that each part may import; the layers are in pyproject.toml."""

import sys
from collections import defaultdict

import grimp

PACKAGES = (
    "annotations",
    "experiments",
    "loaders",
    "tpf_client",
    "tpf_server",
)

LIBRARIES: dict[str, set[str]] = {
    "annotations": set(),
    "tpf_client": set(),
    "tpf_client.commands": {"click", "typer"},
    "tpf_client.sparql": {"rdflib", "re2", "regex"},
    "tpf_client.dataflow": set(),
    "tpf_client.dataflow.state.ranked_groups": {"numpy"},
    "tpf_client.fragments": {
        "backports", "cachetools", "compression", "js", "pyodide", "pyoxigraph", "requests",
        "uritemplate", "urllib3",
    },
    "tpf_client.planner": set(),
    "tpf_client.streaming": set(),
    "tpf_client.async_client": {"rdflib", "requests"},
    "tpf_client.client": {"rdflib", "requests"},
    "tpf_client.app.endpoint": {"rdflib"},
    "tpf_client.store": {"rdflib"},
    "tpf_client.publishing": {"rdflib", "requests", "urllib3"},
    "tpf_client.solutions": {"pandas", "rdflib"},
    "tpf_client.stream": {"IPython", "pandas", "rdflib"},
    "tpf_client.app.page_command": {"typer"},
    "tpf_client.page_files": {"brotli"},
    "tpf_client.page_runtime": {"brotli"},
    "tpf_client.app.printing": {"rdflib", "rich"},
    "tpf_client.app.serving": {"typer", "waitress"},
    "tpf_client.app.cli": {"rich", "typer"},
    "tpf_server": {"click", "flask", "granian"},
    "tpf_server.spark": {"py4j", "pyspark"},
    "tpf_server.store": set(),
    "tpf_server.store.static": {"numpy", "pyarrow", "pyoxigraph", "requests", "urllib3"},
    "tpf_server.store.live": {"numpy", "psycopg", "sortedcontainers"},
    "tpf_server.fragments": {"werkzeug"},
    "tpf_server.web": {
        "backports", "brotli", "cachetools", "compression", "flask", "hydra_python_core",
        "jinja2", "markupsafe", "prometheus_client", "pyoxigraph", "werkzeug",
    },
    "tpf_server.continuous.runtime": {"numpy", "pyarrow", "pyoxigraph"},
    "tpf_server.continuous.languages": set(),
    "tpf_server.continuous.spark": {"numpy", "pyarrow", "pyspark", "requests", "urllib3"},
    "tpf_server.continuous": {
        "flask", "pyarrow", "pyoxigraph", "requests", "typer", "uritemplate", "urllib3",
    },
    "loaders": {"pyspark", "requests", "rich", "typer"},
    "loaders.places": {"pyarrow", "requests"},
    "loaders.dynamic": {"pyoxigraph"},
    "loaders.jobs": {"py4j", "pyarrow", "pyspark"},
    "loaders.distributed": {"pyarrow", "pyspark"},
    "loaders.rdf": {"numpy", "owlrl", "pyarrow", "pyoxigraph", "pyspark", "rdflib"},
    "loaders.stream": {"paho", "pyarrow", "pyoxigraph", "pyspark", "requests", "urllib3"},
    "loaders.sources": {
        "csvw", "google", "pyoxigraph", "re2", "requests", "uritemplate", "waitress",
    },
    "experiments": {"rich", "typer"},
    "experiments.workloads": {"pyarrow", "pyoxigraph"},
    "experiments.harness": {
        "flask", "granian", "jinja2", "matplotlib", "psutil", "rich", "scipy",
    },
    "experiments.studies": {
        "numpy", "psutil", "pyoxigraph", "rdflib", "requests", "scipy", "urllib3", "werkzeug",
    },
}  # fmt: skip
"""By part; the longest name that fits counts. What a type checker alone reads is left out."""


def part(module: str) -> str:
    """Return the longest listed name of a module and its packages."""
    return max((name for name in LIBRARIES if f"{module}.".startswith(f"{name}.")), key=len)


def test_libraries_are_used_where_they_are_listed() -> None:
    graph = grimp.build_graph(*PACKAGES, include_external_packages=True, cache_dir=None)
    ours = {m for m in graph.modules if m.partition(".")[0] in PACKAGES}
    standard = sys.stdlib_module_names
    used: dict[str, set[str]] = {name: set() for name in LIBRARIES}
    beyond = defaultdict(set)
    for module in ours:
        for library in graph.find_modules_directly_imported_by(module) - ours - standard:
            if library not in LIBRARIES[part(module)]:
                beyond[module].add(library)
            used[part(module)].add(library)
    assert beyond == {}
    assert used == LIBRARIES
