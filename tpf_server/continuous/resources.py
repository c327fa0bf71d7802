"""What continuous queries offer over HTTP: each resource, and what can be done with it."""

from typing import Final

from tpf_server.web.resources import Operation, Resource

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
            "PUT": Operation("Make a stream", None, None, (201, 204, *_CHANGE, 411, 413, 415)),
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
                "Start a query", "query", None, (201, *_CHANGE, 409, 411, 413, 415, 422)
            ),
        },
    ),
    "query": Resource(
        "/queries/<name>",
        "A continuous query: its state and plan.",
        {
            "GET": Operation("See its state and plan", None, None, (401, 403, 404)),
            "DELETE": Operation("Stop a query", None, None, (204, *_CHANGE, 404, 409)),
        },
    ),
    "results": Resource(
        "/queries/<name>/results",
        "What a continuous query has found.",
        {"GET": Operation("Follow results", None, None, (401, 403, 404, 406, 410, 503))},
    ),
}
"""By the names of their rules."""
