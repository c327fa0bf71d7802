"""Triple terms, reified triples and annotations, taken apart into what the algebra has.

Sources: SPARQL 1.2 Query Language (working draft), sections 4.1.5 and 19.8; RDF 1.2 Concepts.

A triple term of constants is a term. One with variables is a hidden variable, whose value must be a
triple term, and whose parts are the values of the variables in it. What stands in ``<< >>``, behind
``~`` and in ``{| |}`` are triples about a reifier: a node with ``rdf:reifies``.
"""

from collections.abc import Callable

from annotations.namespaces import RDF_REIFIES
from annotations.terms import (
    Term,
    TermOrVariable,
    Triple,
    Variable,
    is_blank_node,
    is_iri,
    is_variable,
    triple_term,
)
from tpf_client.sparql.algebra import (
    Call,
    Constant,
    Expression,
    Extend,
    Filter,
    Pattern,
    VariableRef,
)
from tpf_client.sparql.expression_parser import ExpressionParser
from tpf_client.sparql.path_expressions import PathExpression
from tpf_client.sparql.scopes import TRIPLE_TERM, in_scope

Emit = Callable[[TermOrVariable, PathExpression | TermOrVariable, TermOrVariable], None]
_Parts = tuple[TermOrVariable, TermOrVariable, TermOrVariable]
_PARTS = ("SUBJECT", "PREDICATE", "OBJECT")


class TripleTermsParser(ExpressionParser):
    """Reads terms that are made of triples."""

    _in_template = False

    def __init__(self, text: str, base: str | None = None) -> None:
        super().__init__(text, base)
        self._made_of: dict[Variable, _Parts] = {}

    def node(self, emit: Emit) -> TermOrVariable:
        """What may be a subject or an object."""
        raise NotImplementedError

    def simple_node(self) -> TermOrVariable:
        """The same without what has triples of its own: no lists, no property lists."""
        raise NotImplementedError

    def anonymous(self) -> TermOrVariable:
        """A blank node that has no label."""
        raise NotImplementedError

    def triple_term(self) -> TermOrVariable:
        """``<<( s p o )>>``: a term, or a variable that stands for it."""
        opening = self.expect("<<(")
        with self.nested():
            subject = self.simple_node()
            verb = self.variable() if self.token.kind == "variable" else self.verb_iri()
            object_ = self.simple_node()
        self.expect(")>>")
        return self._triple_of((subject, verb, object_), opening.position)

    def _triple_of(self, parts: _Parts, position: int) -> TermOrVariable:
        if self._in_template and any(is_blank_node(part) for part in parts):
            # It would be a blank node of its own in every solution.
            self.fail("a blank node cannot stand in a triple term of a template", position)
        subject, verb, object_ = parts
        if is_iri(subject) and not is_variable(verb) and not is_variable(object_):
            return triple_term(Triple(Term(subject), Term(verb), Term(object_)))
        # Also where nothing is open, but nothing can be it: with a literal as its subject.
        name = self.fresh(TRIPLE_TERM)
        self._made_of[name] = parts
        return name

    def reified_triple(self, emit: Emit) -> TermOrVariable:
        """``<< s p o >>`` or ``<< s p o ~ r >>``: its reifier."""
        opening = self.expect("<<")
        with self.nested():
            subject = self._part(emit)
            verb = self.variable() if self.token.kind == "variable" else self.verb_iri()
            object_ = self._part(emit)
            reifier = self._reifier() if self.take("~") else self.anonymous()
        self.expect(">>")
        emit(reifier, RDF_REIFIES, self._triple_of((subject, verb, object_), opening.position))
        return reifier

    def _part(self, emit: Emit) -> TermOrVariable:
        return self.reified_triple(emit) if self.at("<<") else self.simple_node()

    def _reifier(self) -> TermOrVariable:
        if self.token.kind in ("variable", "blank") or self.at_iri() or self.at("["):
            return self.simple_node()
        return self.anonymous()

    def annotations(
        self,
        subject: TermOrVariable,
        verb: PathExpression | TermOrVariable,
        object_: TermOrVariable,
        emit: Emit,
        properties: Callable[[TermOrVariable, Emit], None],
    ) -> None:
        """``~ r`` and ``{| p o |}`` behind a triple, as many as there are."""
        reifier: TermOrVariable | None = None
        while self.at("~", "{|"):
            sign = self.advance()
            if not isinstance(verb, str):
                self.fail("a path cannot be annotated", sign.position)
            if sign.text == "~" or reifier is None:
                reifier = self._reifier() if sign.text == "~" else self.anonymous()
                parts = (subject, verb, object_)
                emit(reifier, RDF_REIFIES, self._triple_of(parts, sign.position))
            if sign.text == "{|":
                with self.nested():
                    properties(reifier, emit)
                self.expect("|}")
                reifier = None

    # ------------------------------------------------------------------ into the algebra

    def taken_apart(self, pattern: Pattern, *nodes: object) -> Pattern:
        """A pattern with these nodes, whose triple terms have the parts that were written."""
        for node in nodes:
            parts = self._made_of.get(node)  # type: ignore[call-overload]
            if parts is None:
                continue
            whole = VariableRef(Variable(str(node)))
            pattern = Filter(pattern, Call("ISTRIPLE", (whole,)))
            for name, part in zip(_PARTS, parts, strict=True):
                value = Call(name, (whole,))
                if is_variable(part) and part not in in_scope(pattern):
                    pattern = Extend(pattern, Variable(part), value)
                else:
                    same = Call("SAMETERM", (value, _expression(part)))
                    pattern = Filter(pattern, same)
                pattern = self.taken_apart(pattern, part)
        return pattern

    def put_together(self, pattern: Pattern, nodes: list[TermOrVariable]) -> Pattern:
        """A pattern whose solutions have the triple terms of a template, too."""
        for node in nodes:
            if is_variable(node) and node in self._made_of:
                parts = self._made_of[Variable(node)]
                pattern = self.put_together(pattern, list(parts))
                if node not in in_scope(pattern):
                    made = Call("TRIPLE", tuple(map(_expression, parts)))
                    pattern = Extend(pattern, Variable(node), made)
        return pattern


def _expression(node: TermOrVariable) -> Expression:
    return VariableRef(Variable(node)) if is_variable(node) else Constant(Term(node))
