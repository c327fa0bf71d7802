"""``GET /{dataset}/ldes``: what was published and withdrawn, as a Linked Data Event Stream."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Final, NamedTuple
from urllib.parse import urlencode

from flask import Request, Response

from annotations.terms import Triple
from tpf_server.errors import NotFoundError, RequestError, SnapshotExpired
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.freshness import matching_tag
from tpf_server.fragments.negotiation import Chosen
from tpf_server.store.protocols import BatchRun, LiveStore
from tpf_server.web.documents import rdf_answer
from tpf_server.web.event_nodes import BLOCK, LEAF, EventNodes
from tpf_server.web.event_page import event_page
from tpf_server.web.html_writer import HtmlWriter
from tpf_server.web.responses import answer, without_body

_NUMBER: Final = re.compile("[0-9]{1,12}")
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_PARAMETERS: Final = ("page", "block", "part")


class _Node(NamedTuple):
    """What a node says.

    Args:
        triples: its triples.
        state: what they depend on.
        full: whether it never changes, but for what is not kept any more.
    """

    triples: Sequence[Triple]
    state: tuple[int, ...]
    full: bool = False


def event_stream(endpoint: Endpoint, request: Request, chosen: Chosen, title: str = "") -> Response:
    """A node of the stream of a dataset.

    Args:
        endpoint: the dataset at its own URL.
        request: for the node.
        chosen: the format.
        title: of the site, for people.

    Raises:
        NotFoundError: the dataset keeps no events, or there is no such node yet.
        RequestError: a malformed URL.
        SnapshotExpired: what the node held is not kept any more.
        StoreError: the store cannot be read.
    """
    live, keep = endpoint.dataset.live, endpoint.dataset.settings.event_stream
    if live is None or keep is None:
        raise NotFoundError(f"dataset {endpoint.dataset.settings.name} has no event stream")
    asked = _parameters(request)
    nodes = EventNodes(endpoint, timedelta(seconds=keep))
    if "page" in asked:
        node = _leaf(live, nodes, asked["page"], asked.get("part", 1))
    elif "block" in asked:
        node = _block(live, nodes, asked["block"])
    else:
        node = _root(live, nodes)
    text = repr((endpoint.version, chosen.media_type, sorted(asked.items()), node.state))
    tag = f'"{blake2b(text.encode(), digest_size=12).hexdigest()}"'
    known = request.headers.get("If-None-Match")
    if known is not None and matching_tag(known, tag) is not None:
        response = without_body(304)
    else:
        response = _shown(endpoint, node, chosen, asked, title)
    # Programs need not ask for a full node again; how people see it may change.
    people = isinstance(chosen.writer, HtmlWriter)
    recent = f"public, max-age={int(endpoint.max_age)}"
    response.headers["Cache-Control"] = _FOR_EVER if node.full and not people else recent
    response.headers["ETag"] = tag
    response.headers["Vary"] = "Accept"
    return response


def _shown(
    endpoint: Endpoint, node: _Node, chosen: Chosen, asked: Mapping[str, int], title: str
) -> Response:
    if not isinstance(chosen.writer, HtmlWriter):
        return rdf_answer(node.triples, chosen)
    page = event_page(endpoint, node.triples, urlencode(asked), title)
    return answer(page, "text/html; charset=utf-8")


def _parameters(request: Request) -> Mapping[str, int]:
    asked = {}
    for name in request.args:
        values = request.args.getlist(name)
        if name not in _PARAMETERS:
            raise RequestError(f"there is no parameter {name!r} here; there are page, block, part")
        if len(values) > 1 or not _NUMBER.fullmatch(values[0]):
            raise RequestError(f"{name} is a number, not {', '.join(map(repr, values))}")
        asked[name] = int(values[0])
    if "part" in asked and ("page" not in asked or not asked["part"]):
        raise RequestError("part is of a page, from 1: ?page=0&part=1")
    if "page" in asked and "block" in asked:
        raise RequestError("a node is a page or a block, not both")
    return asked


def _root(live: LiveStore, nodes: EventNodes) -> _Node:
    blocks = live.spans(LEAF * BLOCK)
    leaves: Sequence[BatchRun] = ()
    if blocks:
        leaves = live.spans(LEAF, blocks[-1].number * LEAF * BLOCK)
    state = (blocks[0].first, blocks[-1].last) if blocks else ()
    return _Node(list(nodes.root(blocks[:-1], leaves)), state)


def _block(live: LiveStore, nodes: EventNodes, number: int) -> _Node:
    size = LEAF * BLOCK
    after = number * size
    leaves = [span for span in live.spans(LEAF, after) if span.number < (number + 1) * BLOCK]
    if not leaves:
        raise _missing(live, after)
    first, last = leaves[0].first, leaves[-1].last
    full = (first, last) == (after + 1, after + size)
    return _Node(list(nodes.block(number, leaves)), (first, last), full)


def _leaf(live: LiveStore, nodes: EventNodes, number: int, part: int) -> _Node:
    after = number * LEAF
    batches = live.events(after, after + LEAF)
    if not batches:
        raise _missing(live, after)
    first, last = batches[0].sequence, batches[-1].sequence
    triples, members, more = nodes.leaf(number, part, batches)
    if part > 1 and not members:
        raise NotFoundError(f"page {number} has no part {part}")
    full = first == after + 1 and (more or last == after + LEAF)
    # A part that has all it can have stays as it is while the leaf goes on.
    return _Node(triples, () if full else (first, last), full)


def _missing(live: LiveStore, after: int) -> NotFoundError | SnapshotExpired:
    if live.spans(LEAF, after):
        return SnapshotExpired("what was published then is not kept any more")
    return NotFoundError("nothing was published that far yet")
