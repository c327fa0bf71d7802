"""``POST`` and ``DELETE /{dataset}/facts``: publish and withdraw labelled facts, all or none.

The body is RDF: plain, with the label in the query, or annotated by a method. A batch with a
repeated ``?batch=`` is acknowledged and does nothing. Plain facts are withdrawn from now on, or
within ``?initial=&final=``. A patch (`parse_patch`) does both.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from flask import Request, Response

from annotations.errors import AnnotationError, InstantError, LabelError, MethodError, TermError
from annotations.instants import parse_instant
from annotations.labels import Expiration, Fact, Interval, Label, at_instant
from annotations.methods import detect_method, method_named
from annotations.methods.method import Method, reads_as_annotation
from annotations.nesting import most_written
from annotations.terms import DEFAULT_GRAPH, Quad, is_blank_node
from tpf_server.errors import (
    BodyError,
    ForbiddenError,
    MediaTypeError,
    PublishError,
    RequestError,
)
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.fragments.pattern import DEFAULT_GRAPH_IRI
from tpf_server.web.bodies import authorize, check_terms, parse_body
from tpf_server.web.responses import json_answer
from tpf_server.web.site import Site

# Parse RDF Patch in the body of a request, as one batch without its aborted transactions.
#
# Source: *RDF Patch* of Apache Jena, https://jena.apache.org/documentation/rdf-patch/: a line for
# each change, ``A`` or ``D`` with a triple or quad in the terms of N-Quads or with prefixes
# (``PA``, ``PD``), and ``TX``, ``TC``, ``TA`` around transactions.

PATCH_MEDIA_TYPES: Final = frozenset({"application/rdf-patch", "text/rdf-patch"})
_N_QUADS = "application/n-quads"
_LINE_END = re.compile(r"\r\n?|\n")
_PREFIX = re.compile(r'(?:"([^"]*)"|([^\s":<]*):?)[ \t]+(?:<([^<>"\s]*)>|"([^<>"\s]*)")[ \t]*\.?')
_NO_PREFIX = re.compile(r'(?:"([^"]*)"|([^\s":<]*):?)[ \t]*\.?')
_TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+"'  # a literal
    r"|<[^<>\s]*>|_:[^\s<>\"]+|<<\(?|\)?>>|\^\^|@[A-Za-z0-9-]+|#.*|\s+|\.(?=\s|$)"
    r"|(?P<prefix>[^\s:<>\"@^#()]*):(?P<local>[^\s<>\"^()]*)"
)


class Patch(NamedTuple):
    """The net changes of a patch: of a quad that comes and goes, the last change."""

    added: list[Quad]
    withdrawn: list[Quad]


def parse_patch(body: bytes) -> Patch:
    """Return the changes of a patch; the message of a `BodyError` names the line."""
    try:
        # Not splitlines: a literal may have U+2028 and its like inside.
        lines = _LINE_END.split(body.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise BodyError(f"the patch is not UTF-8: {error.reason}") from None
    reader = _Reader(most_written(len(body)))
    for number, line in enumerate(lines, 1):
        reader.read(number, line.strip())
    reader.end(len(lines))
    document = [""] * len(lines)
    for number, _, statement in reader.changes:
        document[number - 1] = statement
    quads = parse_body("\n".join(document).encode(), _N_QUADS)
    last = dict(zip(quads, [sign for _, sign, _ in reader.changes], strict=True))
    added, withdrawn = ([quad for quad in last if last[quad] == sign] for sign in ("A", "D"))
    return Patch(added, withdrawn)


class _Reader:
    def __init__(self, most: int) -> None:
        self._most = most
        self._prefixes: dict[str, str] = {}
        self.changes: list[tuple[int, str, str]] = []
        """Line, sign and statement of each."""
        self._before: int | None = None
        """How many there were before the transaction that is open."""

    def read(self, number: int, line: str) -> None:
        if not line or line.startswith("#"):
            return
        code, rest = [*line.split(maxsplit=1), ""][:2]
        code = code.rstrip(".")
        if code in ("A", "D") and rest and rest[0] != "#":
            statement = self._statement(number, rest)
            self._most -= len(statement)
            if self._most < 0:
                raise BodyError(
                    f"line {number}: with its prefixes written out, the patch is too long"
                )
            self.changes.append((number, code, statement))
        elif code == "PA" and (match := _PREFIX.fullmatch(rest)):
            self._prefixes[match[1] or match[2] or ""] = match[3] or match[4] or ""
        elif code == "PD" and (match := _NO_PREFIX.fullmatch(rest)):
            self._prefixes.pop(match[1] or match[2] or "", None)
        elif code == "TX" and self._before is None and not rest.strip("."):
            self._before = len(self.changes)
        elif code in ("TC", "TA") and self._before is not None and not rest.strip("."):
            if code == "TA":
                del self.changes[self._before :]
            self._before = None
        elif code != "H":
            raise BodyError(f"line {number}: not a line of a patch here: {line[:100]}")

    def end(self, last: int) -> None:
        if self._before is not None:
            raise BodyError(f"line {last}: the patch ends in the midst of a transaction")

    def _statement(self, number: int, text: str) -> str:
        pieces, position = [], 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise BodyError(f"line {number}: not a term: {text[position : position + 100]}")
            position = match.end()
            prefix = match["prefix"]
            if prefix is None:
                pieces.append(match[0])
            elif prefix in self._prefixes:
                pieces.append(f"<{self._prefixes[prefix]}{match['local']}>")
            else:
                raise BodyError(f"line {number}: the prefix {prefix}: is not known")
        return "".join(pieces)


_PARAMETERS = frozenset({"expiration", "instant", "initial", "final", "annotation", "batch"})
_MAX_BATCH_ID = 200


def publish_facts(site: Site, endpoint: Endpoint, request: Request) -> Response:
    """Publish or withdraw the facts in the body; ``201`` with a receipt once that is durable."""
    dataset = endpoint.dataset
    token = dataset.settings.token or site.settings.publish_token
    authorize(request, token, "publishing")
    withdraws = request.method == "DELETE"
    if dataset.live is None:
        raise ForbiddenError(f"dataset {dataset.settings.name} has no live facts")
    parameters = _parameters(request)
    body = site.bodies.read(request)
    patches = request.mimetype in PATCH_MEDIA_TYPES
    if patches:
        if withdraws:
            raise MediaTypeError("a patch states what it withdraws: POST it")
        patch = parse_patch(body)
    else:
        parsed = parse_body(body, request.mimetype)
        patch = Patch([], parsed) if withdraws else Patch(parsed, [])
    try:
        restore = endpoint.skolemizer.restore_quad
        quads = [restore(quad) for quad in patch.added]
        gone = [restore(quad) for quad in patch.withdrawn]
    except TermError as error:
        raise BodyError(str(error)) from None
    facts = _facts(quads, parameters, endpoint) if quads else ()
    withdrawn = _withdrawn(gone, parameters, endpoint) if gone else ()
    # Whoever sends nothing has made a mistake; a patch may say that nothing has changed.
    if not (facts or withdrawn or (patches and body.strip())):
        done = "withdrawn" if withdraws else "published"
        raise BodyError(f"there is no fact in the body: nothing would be {done}")
    _check(facts, endpoint)
    _check_nodes(withdrawn, patch.withdrawn)
    # An annotation may spell terms in another way, which no parser has seen.
    decoded = set(chain.from_iterable(fact.quad for fact in chain(facts, withdrawn)))
    check_terms(decoded.difference(chain(*quads, *gone), (DEFAULT_GRAPH,)))
    now = site.clock.now()
    receipt = dataset.live.publish(facts, now, parameters.get("batch"), withdrawn)
    return json_answer(
        {
            "sequence": receipt.sequence,
            "added": receipt.added,
            "replaced": receipt.replaced,
            "repeated": receipt.repeated,
        },
        200 if receipt.repeated else 201,
    )


def _parameters(request: Request) -> Mapping[str, str]:
    for name in request.args:
        if name not in _PARAMETERS:
            raise RequestError(
                f"there is no parameter {name!r}; there are {', '.join(sorted(_PARAMETERS))}"
            )
        if len(request.args.getlist(name)) > 1:
            raise RequestError(f"parameter {name} is given twice")
    batch = request.args.get("batch")
    if batch is not None and not 1 <= len(batch) <= _MAX_BATCH_ID:
        raise RequestError(f"batch has 1 to {_MAX_BATCH_ID} characters")
    return request.args


def _check(facts: Sequence[Fact], endpoint: Endpoint) -> None:
    authority = endpoint.authority
    for fact in facts:
        quad = fact.quad
        if quad.graph == DEFAULT_GRAPH_IRI:
            raise PublishError(f"requests call the default graph {quad.graph}: leave it out")
        if authority.makes_metadata(quad) or authority.controls(quad):
            raise PublishError(
                "only the server says this of its own pages: " + " ".join(filter(None, quad))
            )


def _check_nodes(withdrawn: Sequence[Fact], parsed: Sequence[Quad]) -> None:
    """Refuse blank nodes in withdrawals: those of a body are new ones."""
    own = {term for term in chain(*parsed) if is_blank_node(term)}
    for quad, _ in withdrawn:
        if not own.isdisjoint(quad):
            raise PublishError(
                "a blank node of a body names nothing that is there; name it by the IRI that pages "
                "show"
            )


def _withdrawn(
    quads: Sequence[Quad], parameters: Mapping[str, str], endpoint: Endpoint
) -> Sequence[Fact]:
    label = _label(parameters)
    method = _method(quads, parameters, endpoint)
    if isinstance(label, Interval) and method is not None:
        raise RequestError("the label is in the query or in the body, not both")
    if method is None:
        return [Fact(quad, label) for quad in quads]
    return _decoded(method, quads, endpoint)


def _facts(
    quads: Sequence[Quad], parameters: Mapping[str, str], endpoint: Endpoint
) -> Sequence[Fact]:
    label = _label(parameters)
    named = parameters.get("annotation")
    if label is not None:
        if named is not None:
            raise RequestError("the label is in the query or in the body, not both")
        return [_plain(Fact(quad, label), endpoint) for quad in quads]
    method = _method(quads, parameters, endpoint)
    if method is None:
        raise PublishError(
            "the facts carry no label: give ?expiration=, ?instant=, or ?initial= and ?final=, "
            "or annotate them by one of the methods"
        )
    return _decoded(method, quads, endpoint)


def _method(
    quads: Sequence[Quad], parameters: Mapping[str, str], endpoint: Endpoint
) -> Method | None:
    """Return the method that is named, or recognised; ``None``: the quads are plain."""
    named = parameters.get("annotation")
    if named is None:
        return detect_method(quads, endpoint.vocabulary)
    try:
        return method_named(named)
    except MethodError as error:
        raise RequestError(str(error)) from None


def _decoded(method: Method, quads: Sequence[Quad], endpoint: Endpoint) -> Sequence[Fact]:
    try:
        return method.decode(quads, endpoint.view.naming, key=endpoint.fact_key)
    except AnnotationError as error:
        raise PublishError(f"{method.name}: {error}") from None


def _plain(fact: Fact, endpoint: Endpoint) -> Fact:
    if reads_as_annotation(fact, endpoint.view.naming):
        quad = " ".join(fact.quad.triple)
        raise PublishError(f"this would read as a part of an annotation: {quad}")
    return fact


def _label(parameters: Mapping[str, str]) -> Label | None:
    names = ("expiration", "instant", "initial", "final")
    given = {name for name in names if name in parameters}
    try:
        if given == {"expiration"}:
            return Expiration(parse_instant(parameters["expiration"]))
        if given == {"instant"}:
            return at_instant(parse_instant(parameters["instant"]))
        if given == {"initial", "final"}:
            return Interval(
                parse_instant(parameters["initial"]), parse_instant(parameters["final"])
            )
    except (InstantError, LabelError) as error:
        raise RequestError(str(error)) from None
    if given:
        raise RequestError("a label is ?expiration=, ?instant=, or ?initial= and ?final=")
    return None
