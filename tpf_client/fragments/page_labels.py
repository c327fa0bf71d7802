"""Which label each fact of a page has, as its metadata tell."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter

from annotations.errors import AnnotationError
from annotations.instants import instant_of_term
from annotations.labels import Expiration, Interval, Label, at_instant
from annotations.namespaces import Vocabulary
from annotations.terms import DEFAULT_GRAPH, Quad
from tpf_client.fragments.page import Owners, Statements


def label_nodes(statements: Statements, vocabulary: Vocabulary) -> list[str]:
    """What gives facts a label, or should do so."""
    of_facts = vocabulary["predicate"]
    return [name for name, node in statements.items() if node.get(of_facts)]


def labels_by_node(
    nodes: Iterable[str], statements: Statements, vocabulary: Vocabulary, warnings: list[str]
) -> dict[str, Label]:
    """The labels that such nodes give.

    Args:
        nodes: what gives facts a label.
        statements: what they say.
        vocabulary: in which they say it.
        warnings: takes in what is wrong with those that give none.
    """
    found = ((name, _label(statements[name], vocabulary, warnings)) for name in nodes)
    return {name: label for name, label in found if label is not None}


def owners_of(
    quads: Sequence[Quad],
    labels: Mapping[str, Label],
    statements: Statements,
    vocabulary: Vocabulary,
    warnings: list[str],
    *,
    graphs_kept: bool,
) -> Owners:
    """What gives each of these quads its label.

    Args:
        quads: the data of a page.
        labels: what gives a label.
        statements: of what.
        vocabulary: in which they say it.
        warnings: takes in what is wrong.
        graphs_kept: whether facts in different graphs are told from each other.
    """
    by_subject: dict[tuple[str, str], dict[str, str]] = {}
    by_object: dict[tuple[str, str, str, str], str] = {}
    room = sum([len(said) for node in statements.values() for said in node.values()])
    for name in labels:
        node = statements[name]
        graph = next(iter(node.get(vocabulary["graph"], ())), "") if graphs_kept else ""
        predicates = node.get(vocabulary["predicate"], ())
        objects = node.get(vocabulary["object"], ())
        subjects = node.get(vocabulary["subject"], ())
        # Servers repeat one of the three at most; what they say is as long as what it means.
        room -= len(predicates) * len(subjects) * max(len(objects), 1)
        if room < 0:
            warnings.append("labels of more facts than there are")
            break
        for predicate in predicates:
            for subject in subjects:
                for each in objects:
                    by_object[subject, predicate, each, graph] = name
            if not objects:
                of_predicate = by_subject.setdefault((predicate, graph), {})
                of_predicate.update(dict.fromkeys(subjects, name))
    found: list[str]
    kinds = set(map(itemgetter(1, 3), quads)) if by_subject or by_object else set()
    if by_object or len(kinds) > 1:
        found = []
        for subject, predicate, object_, graph in quads:
            kind = predicate, graph if graphs_kept else DEFAULT_GRAPH
            owner = by_object.get((subject, predicate, object_, kind[1]))
            found.append(owner or by_subject.get(kind, {}).get(subject, ""))
    else:
        # Most pages are of one predicate.
        (kind,) = ((p, g if graphs_kept else DEFAULT_GRAPH) for p, g in kinds or {("", "")})
        owner_of = by_subject.get(kind, {}).get
        found = list(map(owner_of, map(itemgetter(0), quads), repeat("")))
    return Owners(frozenset(labels), found, lasting=room >= 0 and not by_object)


def _label(
    node: Mapping[str, list[str]], vocabulary: Vocabulary, warnings: list[str]
) -> Label | None:
    try:
        finals, initials = node.get(vocabulary.final, ()), node.get(vocabulary.initial, ())
        if initials and finals:
            return Interval(instant_of_term(initials[0]), instant_of_term(finals[0]))
        instants = node.get(vocabulary.instant, ())
        if instants:
            return at_instant(instant_of_term(instants[0]))
        ends = node.get(vocabulary.expiration, ())
        if ends:
            return Expiration(instant_of_term(ends[0]))
        warnings.append("a label without an instant")
    except AnnotationError as error:
        warnings.append(f"a label that cannot hold: {error}")
    return None
