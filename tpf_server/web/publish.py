"""``POST`` and ``DELETE /{dataset}/facts``: publish and withdraw labelled facts, all or none.

The body is RDF in any format that pyoxigraph reads: plain, with the label in the query
(``?expiration=`` or ``?initial=&final=``), or annotated by a method, which is recognised by its
vocabulary or named (``?annotation=``). ``?batch=`` is an identifier: published again, the batch is
acknowledged and does nothing.

Plain facts are withdrawn from now on, or within ``?initial=&final=``; annotated ones within their
intervals. A patch (`tpf_server.web.rdf_patch`) is posted, and does both.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

from flask import Request, Response

from annotations.errors import AnnotationError, InstantError, LabelError, TermError
from annotations.instants import parse_instant
from annotations.labels import Expiration, Fact, Interval, Label, at_instant
from annotations.methods import METHODS, method_named
from annotations.methods.method import Method, reads_as_annotation
from annotations.methods.names import read_fragment_iri
from annotations.namespaces import RDF_OBJECT, RDF_REIFIES, Vocabulary
from annotations.terms import DEFAULT_GRAPH, Quad, is_blank_node, is_iri
from tpf_server.errors import (
    BodyError,
    ForbiddenError,
    MediaTypeError,
    PublishError,
    RequestError,
)
from tpf_server.fragments.endpoint import Endpoint
from tpf_server.web.bodies import authorize
from tpf_server.web.responses import json_answer
from tpf_server.web.site import Site

_PARAMETERS = frozenset({"expiration", "instant", "initial", "final", "annotation", "batch"})
_MAX_BATCH_ID = 200


def publish_facts(site: Site, endpoint: Endpoint, request: Request) -> Response:
    """Publish or withdraw the facts in the body; ``201`` with a receipt once that is durable.

    Raises:
        ForbiddenError: the dataset takes no facts, or no token is set.
        UnauthorizedError: no token, or a wrong one.
        RequestError, BodyError: a bad parameter, a malformed body.
        PublishError: the facts cannot be published.
    """
    dataset = endpoint.dataset
    token = dataset.settings.token or site.settings.publish_token
    authorize(request, token, "publishing")
    withdraws = request.method == "DELETE"
    if dataset.live is None:
        raise ForbiddenError(f"dataset {dataset.settings.name} has no live facts")
    parameters = _parameters(request)
    body = site.bodies.read(request)
    # A server where nobody publishes does not load a parser.
    from tpf_server.web.bodies import check_terms, parse_body
    from tpf_server.web.rdf_patch import PATCH_MEDIA_TYPES, Patch, parse_patch

    patches = request.mimetype in PATCH_MEDIA_TYPES
    if patches:
        if withdraws:
            raise MediaTypeError("a patch says itself what it withdraws: POST it")
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
    facts = _facts(quads, parameters, endpoint) if quads or not (patches or withdraws) else ()
    withdrawn = _withdrawn(gone, parameters, endpoint) if gone else ()
    # Whoever publishes nothing has made a mistake; a patch may say that nothing has changed.
    if not (facts or withdraws or (patches and body.strip())):
        raise BodyError("there is no fact in the body: nothing would be published")
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


def _detect_method(quads: Sequence[Quad], vocabulary: Vocabulary) -> Method | None:
    """Return the method that annotates these quads; ``None``: there is no label."""
    predicates = {quad.predicate for quad in quads}
    if vocabulary.singleton_property_of in predicates:
        return method_named("singleton-property")
    if RDF_REIFIES in predicates:
        return method_named("rdf-1.2")
    if RDF_OBJECT in predicates:
        return method_named("reification")
    labels = {vocabulary.expiration, vocabulary.instant, vocabulary.interval}
    labels.add(vocabulary.interval_final)
    labelled = {quad.subject for quad in quads if quad.predicate in labels}
    if not labelled:
        return None
    if labelled & {quad.graph for quad in quads}:
        return method_named("named-graph")
    if any(is_iri(node) and read_fragment_iri(node) is not None for node in labelled):
        return method_named("implicit-graph")
    return None


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
    if isinstance(label, Interval) or method is None:
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
        return _detect_method(quads, endpoint.vocabulary)
    if named not in {method.name for method in METHODS}:
        raise RequestError(
            f"no annotation method {named!r}; there are {', '.join(m.name for m in METHODS)}"
        )
    return method_named(named)


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
