"""Errors as ``application/problem+json`` (RFC 9457), HTML or RDF."""

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from flask import Request, Response
from werkzeug.exceptions import HTTPException

from annotations.namespaces import HYDRA, RDF_TYPE, integer
from annotations.terms import Term, Triple, literal
from tpf_server.errors import ServerError, StoreError
from tpf_server.fragments.metadata import triple_lines
from tpf_server.fragments.pattern import POSITIONS
from tpf_server.fragments.writers import WRITERS
from tpf_server.fragments.writers.base import Chosen
from tpf_server.fragments.writers.jsonld import JsonLdWriter, document
from tpf_server.settings import Settings
from tpf_server.web.html import FormField, render
from tpf_server.web.responses import accepted_types, answer, base_of, json_answer

# Small documents that are no fragments, as RDF: the list of datasets, errors.


def rdf_answer(triples: Sequence[Triple], chosen: Chosen, status: int = 200) -> Response:
    """Return triples of the default graph in one of the formats of the fragments."""
    # Every format that we write beside JSON-LD reads lines of N-Triples.
    write = document if isinstance(chosen.writer, JsonLdWriter) else triple_lines
    return answer(write(triples), f"{chosen.media_type}; charset=utf-8", status)


_log = logging.getLogger("tpf_server")
PROBLEM = "application/problem+json"
_RDF = {kind: Chosen(writer, kind) for writer in WRITERS for kind in writer.media_types}
_OFFERS = [PROBLEM, "application/json", "text/html", *_RDF]


class Problems:
    """Answer errors."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def of_error(self, error: ServerError, request: Request) -> Response:
        if isinstance(error, StoreError) and error.status >= 500:
            return self.of_failure(error, request)
        problem = {"title": error.title, "status": error.status, "detail": str(error)}
        return self._answer(problem | dict(error.details), error.headers, request)

    def of_failure(self, error: Exception, request: Request) -> Response:
        """Answer for a failing store; the log has the details."""
        kind = type(error).__name__
        _log.error("%s %.200r failed: %s: %s", request.method, request.path, kind, error)
        detail = "the store does not answer at the moment; the log of the server tells why"
        problem = {"title": StoreError.title, "status": 503, "detail": detail}
        return self._answer(problem, {"Retry-After": "5"}, request)

    def of_http(self, error: HTTPException, request: Request) -> Response:
        status = error.code or 500
        title, detail = HTTPStatus(status).phrase, error.description or ""
        return self._answer({"title": title, "status": status, "detail": detail}, {}, request)

    def _answer(
        self, problem: Mapping[str, Any], headers: Mapping[str, str], request: Request
    ) -> Response:
        status = problem["status"]
        kind = accepted_types(request).best_match(_OFFERS, PROBLEM)
        if kind == "text/html":
            page = self._html(problem, base_of(request.environ, self._settings), request)
            response = answer(page, "text/html; charset=utf-8", status)
        elif kind in _RDF and kind != "application/json":
            response = rdf_answer(_triples(problem), _RDF[kind], status)
        else:
            response = json_answer({"type": "about:blank", **problem}, status, PROBLEM)
        response.headers.update(headers)
        response.headers["Cache-Control"] = "no-store"
        response.headers["Vary"] = "Accept"
        return response

    def _html(self, problem: Mapping[str, object], base: str, request: Request) -> str:
        # A form that was filled in wrongly is there again, with its content.
        filled = any(name in request.args for name in POSITIONS)
        fields = [*POSITIONS, *(name for name in request.args if name not in POSITIONS)]
        return render(
            "problem.html",
            title=f"{problem['title']} – {self._settings.title}",
            site_title=self._settings.title,
            base=base,
            problem=problem,
            # Not the path, which has that of an application around this one, too.
            action=base + "/".join((request.view_args or {}).values()),
            form=[FormField(name, request.args.get(name, "")) for name in fields] if filled else [],
        )


def _triples(problem: Mapping[str, Any]) -> list[Triple]:
    node = Term("_:error")
    return [
        Triple(node, RDF_TYPE, Term(f"<{HYDRA}Error>")),
        Triple(node, Term(f"<{HYDRA}statusCode>"), integer(problem["status"])),
        Triple(node, Term(f"<{HYDRA}title>"), literal(problem["title"])),
        Triple(node, Term(f"<{HYDRA}description>"), literal(problem["detail"])),
    ]
