"""Continuous queries over HTTP: `CONTINUOUS_RESOURCES`.

A stream's name is an IRI (percent-encoded) or relative to the base of the engine.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from flask import Blueprint, Response, request

from tpf_server.continuous.runtime.elements.elements import (
    RDF_TYPES,
    elements_of,
    instant,
    read_json,
    read_ndjson,
    read_rdf,
)
from tpf_server.continuous.runtime.errors import ElementError
from tpf_server.continuous.runtime.records.record_bodies import read_records
from tpf_server.continuous.service.continuous_service import ContinuousService, Pushed
from tpf_server.continuous.service.hosting import ARROW, NDJSON, as_arrow, as_events, as_lines
from tpf_server.continuous.service.rdf_messages import (
    LOG,
    LOG_TYPE,
    NDJSON_LD,
    as_documents,
    as_log,
    as_message_events,
    is_log,
    read_messages,
)
from tpf_server.errors import (
    BusyError,
    MediaTypeError,
    NotAcceptableError,
    RequestError,
    ServerError,
)
from tpf_server.settings import Settings
from tpf_server.web.bodies import BodyReader, authorize
from tpf_server.web.html import HtmlTable, link, table_page
from tpf_server.web.problems import Problems
from tpf_server.web.resources import Operation, Resource
from tpf_server.web.responses import (
    ALL_METHODS,
    EVENTS,
    READ_METHODS,
    accepted_types,
    base_of,
    by_method,
    client_of,
    html_answer,
    json_answer,
    wants_html,
)

_CHANGE: Final = (400, 401, 403)

CONTINUOUS_RESOURCES: Final = {
    "streams": Resource(
        "/streams", "The streams.", {"GET": Operation("List the streams", None, None, (401, 403))}
    ),
    "stream": Resource(
        "/streams/<path:name>",
        "A stream, by its IRI or a relative one.",
        {
            "GET": Operation("See how much came through it", None, None, (401, 403, 404)),
            "PUT": Operation(
                "Make a stream", None, None, (201, 204, *_CHANGE, 409, 411, 413, 415, 503)
            ),
            "POST": Operation("Push elements", None, None, (*_CHANGE, 404, 411, 413, 415, 503)),
            "DELETE": Operation("Forget a stream", None, None, (204, *_CHANGE, 404, 409)),
        },
    ),
    "queries": Resource(
        "/queries",
        "The continuous queries.",
        {
            "GET": Operation("List the queries", None, None, (401, 403)),
            "POST": Operation(
                "Start a query", "query", None, (201, *_CHANGE, 409, 411, 413, 415, 422, 429, 503)
            ),
        },
    ),
    "query": Resource(
        "/queries/<name>",
        "A continuous query: its state and plan.",
        {
            "GET": Operation("See its state and plan", None, None, (401, 403, 404)),
            "DELETE": Operation("Stop a query", None, None, (204, *_CHANGE, 404)),
        },
    ),
    "results": Resource(
        "/queries/<name>/results",
        "What a continuous query has found.",
        {"GET": Operation("Follow results", None, None, (400, 401, 403, 404, 406, 410, 503))},
    ),
}
"""By the names of their rules."""


_SCALARS: Final = re.compile(r"[^\ud800-\udfff]*")
_WRITERS: Final[dict[str, Callable[..., Iterator[str] | Iterator[bytes]]]] = {
    EVENTS: as_events,
    NDJSON: as_lines,
    ARROW: as_arrow,
}
"""What writes results, by media types; the first one where nobody says."""
_MESSAGES: Final[dict[str, Callable[..., Iterator[str]]]] = {
    LOG: as_log, NDJSON_LD: as_documents,
}  # fmt: skip
"""What writes triples as RDF Messages."""
_OPTIONS: Final = frozenset({"name", "semantics", "into", "engine"})


def continuous_blueprint(
    service: ContinuousService, bodies: BodyReader, settings: Settings
) -> Blueprint:
    """Make the rules of continuous queries.

    Without a `publish_token` in the settings nobody may register, delete or push.
    """
    views = _Views(service, bodies, settings)
    blueprint = Blueprint("continuous", __name__)
    functions: dict[str, dict[str, Callable[..., Response]]] = {
        "streams": {"GET": views.streams},
        "stream": {
            "GET": views.stream,
            "PUT": views.push,
            "POST": views.push,
            "DELETE": partial(views.delete, service.delete_stream),
        },
        "queries": {"GET": views.queries, "POST": views.register},
        "query": {
            "GET": views.query,
            "DELETE": partial(views.delete, service.delete),
        },
        "results": {"GET": views.results},
    }
    for name, resource in CONTINUOUS_RESOURCES.items():
        blueprint.add_url_rule(
            resource.rule,
            name,
            _by_method(resource, functions[name], views.look),
            methods=ALL_METHODS,
            provide_automatic_options=False,
        )
    problems = Problems(settings)
    blueprint.register_error_handler(ServerError, lambda each: problems.of_error(each, request))
    return blueprint


def _by_method(
    resource: Resource, functions: Mapping[str, Callable[..., Response]], look: Callable[[], None]
) -> Callable[..., Response]:
    """Dispatch by method; `look` authorizes reading."""

    def answer(**arguments: str) -> Response:
        def chosen() -> Response:
            if request.method in READ_METHODS:
                look()
            return functions["GET" if request.method == "HEAD" else request.method](**arguments)

        return by_method(resource.methods, chosen)

    return answer


def _json(value: object, status: int = 200) -> Response:
    response = json_answer(value, status)
    response.headers["Cache-Control"] = "no-store"
    return response


def _state(state: Mapping[str, Any], *shown: str) -> HtmlTable:
    rows = [(name, _text_of(each)) for name, each in state.items() if name not in shown]
    return HtmlTable(("what", "value"), [row for row in rows if row[1] not in ("", "[]", "null")])


def _text_of(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Views:
    def __init__(self, service: ContinuousService, bodies: BodyReader, settings: Settings) -> None:
        self._service = service
        self._bodies = bodies
        self._settings = settings

    def _authorize(self) -> None:
        authorize(request, self._settings.publish_token, "changing streams and queries")

    def look(self) -> None:
        if not self._settings.open_queries:
            authorize(request, self._settings.publish_token, "looking at streams and queries")

    def _seen(self, value: Mapping[str, Any], page: Callable[[], str]) -> Response:
        response = html_answer(page()) if wants_html(request) else _json(value)
        response.headers["Cache-Control"] = "no-store"
        response.headers["Vary"] = "Accept"
        return response

    def _page(self, title: str, intro: str, table: HtmlTable, *texts: str) -> str:
        base = base_of(request.environ, self._settings)
        return table_page(title, self._settings.title, base, intro, [table], texts)

    def _body(self) -> bytes:
        return self._bodies.read(request)

    # ---------------------------------------------------------------------------- streams

    def streams(self) -> Response:
        streams = self._service.streams()
        base = base_of(request.environ, self._settings)

        def page() -> str:
            columns = [name for name in (streams[0] if streams else ()) if name != "stream"]
            rows = [
                (
                    link(f"{base}streams/{quote(each['stream'], safe='')}", each["stream"]),
                    *(_text_of(each[name]) for name in columns),
                )
                for each in streams
            ]
            table = HtmlTable(("stream", *columns), rows, "There are no streams yet.")
            return self._page("Streams", "What was pushed to each stream.", table)

        return self._seen({"streams": streams}, page)

    def stream(self, name: str) -> Response:
        state = self._service.stream(name)
        table = _state(state, "stream")
        return self._seen(state, lambda: self._page(state["stream"], "A stream.", table))

    def delete(self, delete: Callable[[str], None], name: str) -> Response:
        self._authorize()
        delete(name)
        return Response(status=204)

    def push(self, name: str) -> Response:
        self._authorize()
        # A PUT that only makes the stream needs no body, and no length of it.
        bare = request.method == "PUT" and not (
            request.content_length or "Transfer-Encoding" in request.headers
        )
        # Of a body that cannot be read no stream is made.
        pushed = None if bare else self._elements(self._body())
        created = False
        if request.method == "PUT":
            predicates = request.args.getlist("predicate") or None
            created = self._service.create_stream(name, predicates)
        if pushed is None:
            return Response(status=201 if created else 204)
        batch = request.args.get("batch")
        receipt = self._service.push(name, pushed, batch=batch)
        result: dict[str, Any] = {
            "accepted": receipt.accepted,
            "dropped": receipt.dropped,
            "late": receipt.late,
            "refused": [{each.unit: each.line, "reason": str(each)} for each in receipt.refused],
        }
        if batch is not None:
            result["repeated"] = receipt.repeated
        return _json(result, 201 if created else 200)

    def _elements(self, body: bytes) -> Pushed:
        media_type = request.mimetype
        stamp = request.args.get("timestamp")
        at = self._service.now if stamp is None else instant(stamp)
        if is_log(media_type, request.mimetype_params.get("version", ""), body):
            return list(read_messages(_text(body), media_type, at))
        if media_type in RDF_TYPES:
            return list(read_rdf(body, RDF_TYPES[media_type], at))
        if media_type == ARROW:
            return read_records(body, self._bodies.limit, self._service.name)
        text = _text(body)
        if media_type in (NDJSON, "application/json"):
            return list(read_ndjson(text, self._service.now))
        if media_type in ("text/tab-separated-values", "text/plain"):
            return list(elements_of(text.split("\n"), self._service.now))
        types = ", ".join((NDJSON, "text/tab-separated-values", ARROW, *RDF_TYPES, NDJSON_LD))
        raise MediaTypeError(f"cannot read {media_type or 'a body of no type'}: send {types}")

    # ---------------------------------------------------------------------------- queries

    def queries(self) -> Response:
        result = [
            {
                "name": each.id,
                "language": each.language,
                "state": self._service.condition(each)["state"],
                "url": self._url(each.id),
            }
            for each in self._service.queries()
        ]

        def page() -> str:
            columns = ("name", "language", "state")
            rows = [(link(e["url"], e["name"]), e["language"], e["state"]) for e in result]
            table = HtmlTable(columns, rows, "There are no continuous queries yet.")
            return self._page("Continuous queries", "Queries over streams.", table)

        return self._seen({"queries": result}, page)

    def query(self, name: str) -> Response:
        state = self._service.explain(name)

        def page() -> str:
            results = link(f"{self._url(name)}/results?follow=false", "Results so far")
            table = _state(state, "id", "name", "text")
            return self._page(state["name"], results, table, state["text"].strip())

        return self._seen(state, page)

    def _url(self, name: str) -> str:
        return f"{base_of(request.environ, self._settings)}queries/{quote(name)}"

    def register(self) -> Response:
        self._authorize()
        text = _text(self._body())
        options: dict[str, Any] = dict(request.args)
        if request.mimetype == "application/json":
            try:
                body = read_json(text)
            except ElementError as error:
                raise RequestError(str(error)) from None
            if not isinstance(body, dict) or not isinstance(body.get("query"), str):
                raise RequestError('expected an object with "query"')
            text = body.pop("query")
            options |= body
        unknown = options.keys() - _OPTIONS
        if unknown or not all(isinstance(value, str) for value in options.values()):
            raise RequestError(f"unknown or malformed: {', '.join(sorted(unknown or options))}")
        for value in (text, *options.values()):
            if not _SCALARS.fullmatch(value):
                raise RequestError(f"half of a surrogate pair is no character: {value!r}")
        hosted = self._service.register(text, **options)
        response = _json(self._service.explain(hosted.id), 201)
        response.headers["Location"] = self._url(hosted.id)
        return response

    # ---------------------------------------------------------------------------- results

    def results(self, name: str) -> Response:
        hosted = self._service.query(name)
        after = hosted.log.oldest - 1
        last = request.headers.get("Last-Event-ID") or request.args.get("after")
        if last is not None:
            if not re.fullmatch("[0-9]{1,18}", last):
                raise RequestError(f"not the number of an event: {last!r}")
            after = int(last)
            hosted.log.check(after)
        follow = request.args.get("follow", "true") != "false"
        messages = request.args.get("messages", "false") != "false"
        writers = {**_WRITERS, **(_MESSAGES if hosted.variables is None else {})}
        if messages:
            writers = {EVENTS: as_message_events, **_MESSAGES}
            if hosted.variables is not None:
                raise RequestError("messages: only triples (CONSTRUCT, DESCRIBE) are RDF Messages")
        accepted = accepted_types(request).best_match([*writers])
        if accepted is None:
            raise NotAcceptableError(f"results come as {', '.join(writers)}")
        write = writers[accepted]
        slots = self._service.slots
        address = client_of(request.environ, self._settings)
        if follow and not slots.take(address):
            raise BusyError(
                f"{slots.limit} readers follow results already, or {slots.per_address} of this "
                "address; "
                "try again, or ask from time to time with ?follow=false"
            )
        chunks = self._sent(write(hosted, after, follow=follow), request.remote_addr or "")
        response = Response(chunks, content_type=LOG_TYPE if accepted == LOG else accepted)
        if follow:
            response.call_on_close(lambda: slots.leave(address))
        response.headers["Cache-Control"] = "no-store"
        response.headers["X-Accel-Buffering"] = "no"
        return response

    def _sent(self, chunks: Iterator[Any], address: str) -> Iterator[Any]:
        for chunk in chunks:
            # Who reads nothing would keep a thread for ever.
            with self._bodies.watched(address):
                yield chunk


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise RequestError(f"not UTF-8 at byte {error.start}") from None
