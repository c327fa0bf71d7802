"""Triples and property paths. Source: SPARQL 1.1 Query Language, 19.8 (rules 55 and 75 to 109)."""

from annotations.terms import (
    DEFAULT_GRAPH,
    QuadPattern,
    Term,
    TermOrVariable,
    Variable,
)
from tpf_client.sparql.algebra import (
    BGP,
    EMPTY_GROUP,
    Alternative,
    Inverse,
    Link,
    NegatedSet,
    PathExpression,
    Pattern,
    Repeat,
    Sequence,
)
from tpf_client.sparql.depth import balanced
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.visitor import join
from tpf_client.sparql.triple_terms_parser import Emit, TripleTermsParser

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_FIRST, _REST, _NIL = (Term(f"<{_RDF}{name}>") for name in ("first", "rest", "nil"))


class TriplesParser(TripleTermsParser):
    """Reads triples into basic graph patterns and paths."""

    def __init__(self, text: str, base: str | None = None) -> None:
        super().__init__(text, base)
        self._graph: TermOrVariable = DEFAULT_GRAPH
        # Blank node labels are scoped to one basic graph pattern (section 4.1.4).
        self._block = 0
        self._blocks_opened = 0
        self._labels: dict[str, int] = {}

    def _open_block(self) -> None:
        self._blocks_opened += 1
        self._block = self._blocks_opened

    def _at_triples(self) -> bool:
        return (
            self.token.kind in ("variable", "blank")
            or self.at_iri()
            or self.at_literal()
            or self.at("(", "[", "<<", "<<(")
        )

    def _triples_block(self) -> Pattern:
        found: list[Pattern] = []

        def emit(
            subject: TermOrVariable, verb: PathExpression | TermOrVariable, object_: TermOrVariable
        ) -> None:
            each: Pattern
            if isinstance(verb, str):
                each = BGP((QuadPattern(subject, verb, object_, self._graph),))
            else:
                each = path_pattern(subject, verb, object_, self._graph, self.fresh)
            found.append(self.taken_apart(each, subject, object_))

        self.triples(emit)
        pattern: Pattern = EMPTY_GROUP
        for each in found:
            pattern = join(pattern, each)
        return pattern

    def triples(self, emit: Emit) -> None:
        """Triples that share a subject, separated by full stops."""
        while self._at_triples():
            if self.at("(", "[", "<<"):
                bare = self.ahead().text == ("]" if self.at("[") else ")")
                subject = self.node(emit)
                if bare or not (self.at(".", "}") or self.token.kind == "end"):
                    self._property_list(subject, emit)
            else:
                subject = self.node(emit)
                self._property_list(subject, emit)
            if not self.take("."):
                return

    def _property_list(self, subject: TermOrVariable, emit: Emit) -> None:
        verb = self._verb()
        while True:
            self._object(subject, verb, emit)
            while self.take(","):
                self._object(subject, verb, emit)
            if not self.at(";"):
                return
            while self.take(";"):
                pass
            if not self._at_verb():
                return
            verb = self._verb()

    def _object(
        self, subject: TermOrVariable, verb: PathExpression | TermOrVariable, emit: Emit
    ) -> None:
        node = self.node(emit)
        emit(subject, verb, node)
        self.annotations(subject, verb, node, emit, self._property_list)

    def _at_verb(self) -> bool:
        return (
            self.token.kind == "variable"
            or self.at_iri()
            or (self.token.kind == "word" and self.token.text == "a")
            or (not self._in_template and self.at("^", "!", "("))
        )

    def _verb(self) -> PathExpression | TermOrVariable:
        if not self._at_verb():
            self.expected("a predicate")
        if self.token.kind == "variable":
            return self.variable()
        if self._in_template:
            return self.verb_iri()
        path = self._path_alternative()
        return path.predicate if isinstance(path, Link) else path

    def node(self, emit: Emit) -> TermOrVariable:
        """What may be a subject or an object."""
        if self.at("<<"):
            return self.reified_triple(emit)
        if self.at("[", "("):
            with self.nested():
                if self.at("["):
                    return self._blank_node_property_list(emit)
                return self._collection(emit)
        return self.simple_node()

    def simple_node(self) -> TermOrVariable:
        """The same without what has triples of its own: no lists, no property lists."""
        if self.token.kind == "variable":
            return self.variable()
        if self.at_literal():
            return self.literal()
        if self.token.kind == "blank":
            return self._labelled(self.advance().text[2:])
        if self.at("<<("):
            return self.triple_term()
        if self.take("["):
            self.expect("]")
            return self.anonymous()
        if not self.at_iri():
            self.expected("a term or a variable")
        return self.iri()

    def _labelled(self, label: str) -> TermOrVariable:
        if self._in_template:
            return Term(f"_:{label}")
        if self._labels.setdefault(label, self._block) != self._block:
            self.fail(
                f"_:{label} occurs in two basic graph patterns",
                self.ahead(-1).position,
            )
        return Variable(f"?.b_{label}")

    def anonymous(self) -> TermOrVariable:
        """A blank node that has no label."""
        name = self.fresh()
        return Term(f"_:anon·{name[2:]}") if self._in_template else name

    def _blank_node_property_list(self, emit: Emit) -> TermOrVariable:
        self.expect("[")
        node = self.anonymous()
        if not self.at("]"):
            self._property_list(node, emit)
        self.expect("]")
        return node

    def _collection(self, emit: Emit) -> TermOrVariable:
        self.expect("(")
        if self.take(")"):
            return _NIL
        first = node = self.anonymous()
        while True:
            emit(node, _FIRST, self.node(emit))
            if self.take(")"):
                emit(node, _REST, _NIL)
                return first
            following = self.anonymous()
            emit(node, _REST, following)
            node = following

    # ------------------------------------------------------------------------------ paths

    def _path_alternative(self) -> PathExpression:
        paths = [self._path_sequence()]
        while self.take("|"):
            paths.append(self._path_sequence())
        return balanced(Alternative, paths)

    def _path_sequence(self) -> PathExpression:
        paths = [self._path_step()]
        while self.take("/"):
            paths.append(self._path_step())
        return balanced(Sequence, paths)

    def _path_step(self) -> PathExpression:
        if self.take("^"):
            return Inverse(self._path_repeated())
        return self._path_repeated()

    def _path_repeated(self) -> PathExpression:
        path: PathExpression
        if self.take("!"):
            path = self._negated_set()
        elif self.take("("):
            with self.nested():
                path = self._path_alternative()
            self.expect(")")
        else:
            path = Link(self.verb_iri())
        if self.take("*"):
            return Repeat(path, at_least_once=False, many=True)
        if self.take("+"):
            return Repeat(path, at_least_once=True, many=True)
        if self.take("?"):
            return Repeat(path, at_least_once=False, many=False)
        return path

    def _negated_set(self) -> NegatedSet:
        forward: list[Term] = []
        backward: list[Term] = []

        def one() -> None:
            (backward if self.take("^") else forward).append(self.verb_iri())

        if not self.take("("):
            one()
        elif not self.take(")"):
            one()
            while self.take("|"):
                one()
            self.expect(")")
        return NegatedSet(tuple(forward), tuple(backward))
