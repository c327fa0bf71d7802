"""Continuous queries over HTTP.

===========================  =====================================================================
``GET /streams``             the streams
``PUT /streams/{name}``      make a stream; with a body also push it
``POST /streams/{name}``     push elements: NDJSON, TSV lines, or RDF with ``?timestamp=``
``GET /queries``             the queries
``POST /queries``            start a query: CQELS-QL, or JSON with ``query``, ``name``,
                             ``semantics``, ``into``; ``Location`` says where it is
``GET /queries/{id}``        state and plan, with live counts
``GET …/{id}/results``       server-sent events or NDJSON; ``Last-Event-ID`` or ``?after=`` resumes
``DELETE /queries/{id}``     stop a query
===========================  =====================================================================

A stream's name is an IRI (percent-encoded) or relative to the base of the engine.
"""

import hmac
import json
from collections.abc import Iterator
from typing import Any

from flask import Blueprint, Response, request, url_for

from tpf_server.cqels.delivery import Emission
from tpf_server.cqels.elements import (
    RDF_TYPES,
    Element,
    instant,
    read_lines,
    read_ndjson,
    read_rdf,
)
from tpf_server.cqels.errors import ContinuousError, ContinuousSyntaxError, ElementError
from tpf_server.cqels.result_log import ResultLog
from tpf_server.cqels.service import ContinuousService
from tpf_server.cqels.timestamps import iso
from tpf_server.errors import (
    BodyTooLargeError,
    ForbiddenError,
    MediaTypeError,
    NotAcceptableError,
    RequestError,
    ServerError,
    UnauthorizedError,
)

_NDJSON = "application/x-ndjson"
_EVENTS = "text/event-stream"
_HEARTBEAT = 15.0


def continuous_blueprint(
    service: ContinuousService, *, token: str | None = None, max_body: int = 16_000_000
) -> Blueprint:
    """The rules of continuous queries, for `Flask.register_blueprint`.

    Args:
        service: what they work on.
        token: what callers must show to register, delete and push (``Authorization: Bearer``);
            without one these are off.
        max_body: the longest body that is read, in bytes.
    """
    views = _Views(service, token, max_body)
    blueprint = Blueprint("continuous", __name__)
    blueprint.add_url_rule("/streams", "streams", views.streams, methods=["GET"])
    blueprint.add_url_rule("/streams/<path:name>", "stream", views.stream, methods=["PUT", "POST"])
    blueprint.add_url_rule("/queries", "queries", views.queries, methods=["GET"])
    blueprint.add_url_rule("/queries", "register", views.register, methods=["POST"])
    blueprint.add_url_rule("/queries/<name>", "query", views.query, methods=["GET"])
    blueprint.add_url_rule("/queries/<name>", "delete", views.delete, methods=["DELETE"])
    blueprint.add_url_rule("/queries/<name>/results", "results", views.results, methods=["GET"])
    blueprint.register_error_handler(ServerError, _problem)
    return blueprint


def _problem(error: ServerError) -> Response:
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": error.title,
        "status": error.status,
        "detail": str(error),
    }
    if isinstance(error, ContinuousSyntaxError):
        problem.update(line=error.line, column=error.column, pointed=error.pointed)
    response = _json(problem, error.status, "application/problem+json")
    response.headers.update(error.headers)
    return response


def _json(value: Any, status: int = 200, media_type: str = "application/json") -> Response:
    response = Response(json.dumps(value), status, content_type=media_type)
    response.headers["Cache-Control"] = "no-store"
    return response


class _Views:
    def __init__(self, service: ContinuousService, token: str | None, max_body: int) -> None:
        self._service = service
        self._token = token
        self._max_body = max_body

    def _authorize(self) -> None:
        if self._token is None:
            raise ForbiddenError("no token is set, so that nobody may change anything")
        scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            shown.strip().encode(), self._token.encode()
        ):
            raise UnauthorizedError("a bearer token is needed")

    def _body(self) -> bytes:
        if (request.content_length or 0) > self._max_body:
            raise BodyTooLargeError(f"the body is longer than {self._max_body} bytes")
        body = request.stream.read(self._max_body + 1)
        if len(body) > self._max_body:
            raise BodyTooLargeError(f"the body is longer than {self._max_body} bytes")
        return body

    # ---------------------------------------------------------------------------- streams

    def streams(self) -> Response:
        """The streams."""
        return _json({"streams": self._service.streams()})

    def stream(self, name: str) -> Response:
        """Make a stream, push a batch."""
        self._authorize()
        body = self._body()
        created = self._service.create_stream(name) if request.method == "PUT" else False
        if not body and request.method == "PUT":
            return Response(status=201 if created else 204)
        receipt = self._service.push(name, self._elements(body))
        return _json(
            {
                "accepted": receipt.accepted,
                "dropped": receipt.dropped,
                "refused": [{"line": each.line, "reason": str(each)} for each in receipt.refused],
            },
            201 if created else 200,
        )

    def _elements(self, body: bytes) -> list[Element | ElementError]:
        media_type = request.mimetype
        if media_type in RDF_TYPES:
            stamp = request.args.get("timestamp")
            at = self._service.now if stamp is None else instant(stamp)
            return list(read_rdf(body, RDF_TYPES[media_type], at))
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ElementError(f"not UTF-8 at byte {error.start}") from None
        if media_type in (_NDJSON, "application/json"):
            return list(read_ndjson(text))
        if media_type in ("text/tab-separated-values", "text/plain"):
            return list(read_lines(text.splitlines()))
        known = ", ".join((_NDJSON, "text/tab-separated-values", *RDF_TYPES))
        raise MediaTypeError(f"cannot read {media_type or 'a body of no type'}: send {known}")

    # ---------------------------------------------------------------------------- queries

    def queries(self) -> Response:
        """The queries."""
        names = self._service.names()
        return _json({"queries": [{"name": n, "url": self._url(n)} for n in names]})

    def _url(self, name: str) -> str:
        return url_for("continuous.query", name=name)

    def register(self) -> Response:
        """Start a query."""
        self._authorize()
        text = self._body().decode("utf-8", "replace")
        options: dict[str, Any] = dict(request.args)
        if request.mimetype == "application/json":
            try:
                options = json.loads(text)
            except json.JSONDecodeError as error:
                raise RequestError(f"not JSON: {error}") from None
            if not isinstance(options, dict) or not isinstance(options.get("query"), str):
                raise RequestError('expected an object with "query"')
            text = options.pop("query")
        unknown = options.keys() - {"name", "semantics", "into"}
        if unknown or not all(isinstance(value, str) for value in options.values()):
            raise RequestError(f"unknown or malformed: {', '.join(sorted(unknown or options))}")
        query = self._service.register(
            text,
            name=options.get("name"),
            semantics=options.get("semantics"),
            into=options.get("into"),
        )
        response = _json(self._service.explain(query.name), 201)
        response.headers["Location"] = self._url(query.name)
        return response

    def query(self, name: str) -> Response:
        """State and plan."""
        return _json(self._service.explain(name))

    def delete(self, name: str) -> Response:
        """Stop a query."""
        self._authorize()
        self._service.delete(name)
        return Response(status=204)

    # ---------------------------------------------------------------------------- results

    def results(self, name: str) -> Response:
        """The emissions, as they come."""
        log = self._service.log(name)
        variables = self._service.variables(name)
        last = request.headers.get("Last-Event-ID") or request.args.get("after") or "0"
        if not last.isdecimal():
            raise RequestError(f"not the number of an event: {last!r}")
        follow = request.args.get("follow", "true") != "false"
        accepted = request.accept_mimetypes.best_match([_EVENTS, _NDJSON])
        if accepted is None:
            raise NotAcceptableError(f"results come as {_EVENTS} or {_NDJSON}")
        chunks = _as_events if accepted == _EVENTS else _as_lines
        response = Response(chunks(log, int(last), variables, follow), content_type=accepted)
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        return response


def _event(emission: Emission, variables: list[str] | None) -> str:
    value: dict[str, Any] = {"sequence": emission.sequence, "at": iso(emission.at)}
    rows: list[Any]
    if variables is None:
        rows = [list(row) for row in emission.rows]
    else:
        rows = [
            {name: term for name, term in zip(variables, row, strict=True) if term is not None}
            for row in emission.rows
        ]
    value["removed" if emission.removed else "added"] = rows
    return json.dumps(value)


def _as_events(
    log: ResultLog, after: int, variables: list[str] | None, follow: bool
) -> Iterator[str]:
    try:
        while (found := log.read(after, _HEARTBEAT if follow else 0.0)) is not None:
            if not found:
                if not follow:
                    return
                yield ": still here\n\n"
            for number, emission in found:
                yield f"id: {number}\ndata: {_event(emission, variables)}\n\n"
                after = number
    except ContinuousError as error:
        yield f"event: error\ndata: {json.dumps({'error': str(error)})}\n\n"


def _as_lines(
    log: ResultLog, after: int, variables: list[str] | None, follow: bool
) -> Iterator[str]:
    try:
        while (found := log.read(after, _HEARTBEAT if follow else 0.0)) is not None:
            if not found:
                if not follow:
                    return
                yield "\n"
            for number, emission in found:
                yield f'{{"id": {number}, {_event(emission, variables)[1:]}\n'
                after = number
    except ContinuousError as error:
        yield json.dumps({"error": str(error)}) + "\n"
