"""Serve the files of the page where queries are written and their answers watched.

The browser evaluates the queries from fragments, as any client (`tpf_client.page_files`).
"""

from typing import Final

from flask import Blueprint, Response, request

from tpf_client.map_tiles import map_tiles
from tpf_client.page_files import PageFiles, PageSettings, read_example
from tpf_server.errors import NotFoundError
from tpf_server.settings import example_files
from tpf_server.web.resources import Operation, Resource
from tpf_server.web.responses import (
    ALL_METHODS,
    NO_SNIFFING,
    AsGiven,
    base_of,
    by_method,
    see_other,
)
from tpf_server.web.site import Site

_READ: Final = Operation("Read the page", None, None, (304, 404))

QUERY_PAGE_RESOURCES: Final = {
    "query_page": Resource(
        "/query/",
        "The page where a query is written and its answer watched; the browser evaluates it.",
        {"GET": _READ},
    ),
    "query_file": Resource("/query/<path:file>", "What belongs to the page.", {"GET": _READ}),
    "dataset_query_page": Resource(
        "/<name>/query/",
        "Leads to the same page, for this dataset.",
        {"GET": Operation("Find the page", None, None, (303, 404))},
    ),
}
"""By the names of their rules."""


class QueryPage:
    """Serve the page. Thread-safe."""

    def __init__(self, site: Site) -> None:
        self._site = site
        settings = site.settings
        self._told = PageSettings(
            examples=[read_example(file) for file in example_files(settings.query_examples)],
            continuous="../queries" if settings.continuous else "",
            tiles=map_tiles(settings.query_map_tiles, settings.query_map_attribution),
        )
        self._files: PageFiles | None = None

    def blueprint(self) -> Blueprint:
        """Return the rules, for `Flask.register_blueprint`."""
        blueprint = Blueprint("query", __name__)

        def view(name: str = "", file: str = "") -> Response:
            base = base_of(request.environ, self._site.settings)
            if name:
                dataset = self._site.dataset(name).settings.name
                return by_method(
                    ("GET", "HEAD", "OPTIONS"),
                    lambda: see_other(f"{base}query/?dataset={dataset}"),
                )
            return by_method(("GET", "HEAD", "OPTIONS"), lambda: self._file(base, file))

        for name, resource in QUERY_PAGE_RESOURCES.items():
            blueprint.add_url_rule(
                resource.rule, name, view, methods=ALL_METHODS, provide_automatic_options=False
            )
        return blueprint

    def _file(self, base: str, name: str) -> Response:
        if self._files is None:
            # Put together when somebody first wants it: most workers serve fragments alone.
            self._files = PageFiles(self._told)
        files = self._files
        if name == "page.json":
            urls = [base + each for each in self._site.datasets]
            files = PageFiles(self._told.over(urls))
        if name not in files:
            raise NotFoundError(f"the page has no {name}")
        status, headers, body = files.answer(request.environ, name)
        content = b"" if request.method == "HEAD" else body
        more = [NO_SNIFFING, ("Vary", "Accept-Encoding")]
        return AsGiven(f"{status.value} {status.phrase}", [*headers, *more], content)
