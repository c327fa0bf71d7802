"""Triples and property paths. Source: SPARQL 1.1 Query Language, 19.8 (rules 55 and 75 to 109)."""

from collections.abc import Callable

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
from tpf_client.sparql.expression_parser import ExpressionParser
from tpf_client.sparql.paths import path_pattern
from tpf_client.sparql.rewrite.operands import join

_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_FIRST, _REST, _NIL = (Term(f"<{_RDF}{name}>") for name in ("first", "rest", "nil"))

Emit = Callable[[TermOrVariable, PathExpression | TermOrVariable, TermOrVariable], None]


class TriplesParser(ExpressionParser):
    """Reads triples into basic graph patterns and paths."""

    def __init__(self, text: str, base: str | None = None) -> None:
        super().__init__(text, base)
        self._graph: TermOrVariable = DEFAULT_GRAPH
        # Blank node labels are scoped to one basic graph pattern (section 4.1.4).
        self._block = 0
        self._blocks_opened = 0
        self._labels: dict[str, int] = {}
        self._in_template = False

    def _open_block(self) -> None:
        self._blocks_opened += 1
        self._block = self._blocks_opened

    def _at_triples(self) -> bool:
        return (
            self.token.kind in ("variable", "blank")
            or self.at_iri()
            or self.at_literal()
            or self.at("(", "[")
        )

    def _triples_block(self) -> Pattern:
        found: list[Pattern] = []

        def emit(
            subject: TermOrVariable, verb: PathExpression | TermOrVariable, object_: TermOrVariable
        ) -> None:
            if isinstance(verb, str):
                found.append(BGP((QuadPattern(subject, verb, object_, self._graph),)))
            else:
                found.append(path_pattern(subject, verb, object_, self._graph, self.fresh))

        self.triples(emit)
        pattern: Pattern = EMPTY_GROUP
        for each in found:
            pattern = join(pattern, each)
        return pattern

    def triples(self, emit: Emit) -> None:
        """Triples that share a subject, separated by full stops."""
        while self._at_triples():
            if self.at("(", "["):
                bare = self.ahead().text == ("]" if self.at("[") else ")")
                subject = self._node(emit)
                if bare or not (self.at(".", "}") or self.token.kind == "end"):
                    self._property_list(subject, emit)
            else:
                subject = self._node(emit)
                self._property_list(subject, emit)
            if not self.take("."):
                return

    def _property_list(self, subject: TermOrVariable, emit: Emit) -> None:
        verb = self._verb()
        while True:
            emit(subject, verb, self._node(emit))
            while self.take(","):
                emit(subject, verb, self._node(emit))
            if not self.at(";"):
                return
            while self.take(";"):
                pass
            if not self._at_verb():
                return
            verb = self._verb()

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

    def _node(self, emit: Emit) -> TermOrVariable:
        if self.token.kind == "variable":
            return self.variable()
        if self.at_literal():
            return self.literal()
        if self.token.kind == "blank":
            return self._labelled(self.advance().text[2:])
        if self.at("[", "("):
            with self.nested():
                if self.at("["):
                    return self._blank_node_property_list(emit)
                return self._collection(emit)
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

    def _anonymous(self) -> TermOrVariable:
        name = self.fresh()
        return Term(f"_:anon·{name[2:]}") if self._in_template else name

    def _blank_node_property_list(self, emit: Emit) -> TermOrVariable:
        self.expect("[")
        node = self._anonymous()
        if not self.at("]"):
            self._property_list(node, emit)
        self.expect("]")
        return node

    def _collection(self, emit: Emit) -> TermOrVariable:
        self.expect("(")
        if self.take(")"):
            return _NIL
        first = node = self._anonymous()
        while True:
            emit(node, _FIRST, self._node(emit))
            if self.take(")"):
                emit(node, _REST, _NIL)
                return first
            following = self._anonymous()
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
