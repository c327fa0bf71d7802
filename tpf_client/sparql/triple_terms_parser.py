"""Triple terms, reified triples and annotations, taken apart into what the algebra has.

Sources: SPARQL 1.2 Query Language (working draft), sections 4.1.5 and 19.8; RDF 1.2 Concepts.

A triple term of constants is a term. One with variables is a hidden variable, whose value must be a
triple term, and whose parts are the values of the variables in it. What stands in ``<< >>``, behind
``~`` and in ``{| |}`` are triples about a reifier: a node with ``rdf:reifies``.
"""

from collections.abc import Callable, Sequence

from annotations.namespaces import RDF_REIFIES
from annotations.terms import (
    Term,
    TermOrVariable,
    Triple,
    TriplePattern,
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
    PathExpression,
    Pattern,
    VariableRef,
)
from tpf_client.sparql.expression_parser import ExpressionParser
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
        self.expect("<<(")
        with self.nested():
            subject = self.simple_node()
            verb = self.variable() if self.token.kind == "variable" else self.verb_iri()
            object_ = self.simple_node()
        self.expect(")>>")
        return self._triple_of((subject, verb, object_))

    def _triple_of(self, parts: _Parts) -> TermOrVariable:
        subject, verb, object_ = parts
        # A blank node of a template is another one in every solution.
        open_ = any(is_variable(part) or is_blank_node(part) for part in (verb, object_))
        if is_iri(subject) and not open_:
            return triple_term(Triple(Term(subject), Term(verb), Term(object_)))
        # Also where nothing is open, but nothing can be it: with a literal as its subject.
        name = self.fresh(TRIPLE_TERM)
        self._made_of[name] = parts
        return name

    def reified_triple(self, emit: Emit) -> TermOrVariable:
        """``<< s p o >>`` or ``<< s p o ~ r >>``: its reifier."""
        self.expect("<<")
        with self.nested():
            subject = self._part(emit)
            verb = self.variable() if self.token.kind == "variable" else self.verb_iri()
            object_ = self._part(emit)
            reifier = self._reifier() if self.take("~") else self.anonymous()
        self.expect(">>")
        emit(reifier, RDF_REIFIES, self._triple_of((subject, verb, object_)))
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
                emit(reifier, RDF_REIFIES, self._triple_of((subject, verb, object_)))
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

    def put_together(
        self, pattern: Pattern, template: Sequence[TriplePattern]
    ) -> tuple[Pattern, tuple[TriplePattern, ...]]:
        """A pattern whose solutions have the triple terms of a template, too; and the template.

        A blank node in a triple term is a variable of the pattern, for which each solution has a
        new one.
        """
        new: dict[TermOrVariable, Variable] = {}

        def expression(part: TermOrVariable) -> Expression:
            nonlocal pattern
            if part in self._made_of:
                add(Variable(part))
            elif is_blank_node(part) and part not in new:
                new[part] = self.fresh()
                pattern = Extend(pattern, new[part], Call("BNODE", ()))
            return _expression(new.get(part, part))

        def add(node: Variable) -> None:
            nonlocal pattern
            made = Call("TRIPLE", tuple([expression(part) for part in self._made_of[node]]))
            if node not in in_scope(pattern):
                pattern = Extend(pattern, node, made)

        for triple in template:
            for node in triple:
                if node in self._made_of:
                    add(Variable(node))
        return pattern, tuple(
            TriplePattern(*[new.get(node, node) for node in triple]) for triple in template
        )


def _expression(node: TermOrVariable) -> Expression:
    return VariableRef(Variable(node)) if is_variable(node) else Constant(Term(node))
