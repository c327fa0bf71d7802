"""Expressions.

Source: SPARQL 1.1 Query Language, section 19.8, rules 110 to 128; the functions on triple terms and
base directions are those of SPARQL 1.2.
"""

from collections.abc import Callable

from annotations.terms import Term
from tpf_client.sparql.algebra import (
    Aggregate,
    Call,
    Constant,
    Exists,
    Expression,
    Pattern,
    VariableRef,
)
from tpf_client.sparql.cursor import Cursor
from tpf_client.sparql.depth import balanced, check_chain

# Name: fewest and most arguments (None: any number).
BUILTINS: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(("RAND", "NOW", "UUID", "STRUUID"), (0, 0)),
    **dict.fromkeys(
        (
            "STR", "LANG", "DATATYPE", "IRI", "URI", "ABS", "CEIL", "FLOOR", "ROUND", "STRLEN",
            "UCASE", "LCASE", "ENCODE_FOR_URI", "YEAR", "MONTH", "DAY", "HOURS", "MINUTES",
            "SECONDS", "TIMEZONE", "TZ", "MD5", "SHA1", "SHA256", "SHA384", "SHA512", "ISIRI",
            "ISURI", "ISBLANK", "ISLITERAL", "ISNUMERIC", "ISTRIPLE", "SUBJECT", "PREDICATE",
            "OBJECT", "LANGDIR", "HASLANG", "HASLANGDIR",
        ),
        (1, 1),
    ),
    **dict.fromkeys(
        (
            "LANGMATCHES", "SAMETERM", "CONTAINS", "STRSTARTS", "STRENDS", "STRBEFORE", "STRAFTER",
            "STRLANG", "STRDT",
        ),
        (2, 2),
    ),
    "TRIPLE": (3, 3),
    "STRLANGDIR": (3, 3),
    "BNODE": (0, 1),
    "IF": (3, 3),
    "SUBSTR": (2, 3),
    "REGEX": (2, 3),
    "REPLACE": (3, 4),
    "CONCAT": (0, None),
    "COALESCE": (0, None),
}  # fmt: skip

AGGREGATES = frozenset(
    ("COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT", "MEDIAN")
)  # MEDIAN is ours; no keyword of SPARQL has this name.

_UNARY = {"!": "!", "+": "pos", "-": "neg"}
_COMPARISONS = ("=", "!=", "<", ">", "<=", ">=")


class ExpressionParser(Cursor):
    """Reads expressions."""

    _aggregates_allowed = False

    def group_graph_pattern(self) -> Pattern:
        """What stands in braces."""
        raise NotImplementedError

    def expression(self) -> Expression:
        """An expression."""
        with self.nested():
            return self._chained("||", lambda: self._chained("&&", self._relation))

    def _chained(self, sign: str, operand: Callable[[], Expression]) -> Expression:
        operands = [operand()]
        while self.take(sign):
            operands.append(operand())
        return balanced(lambda left, right: Call(sign, (left, right)), operands)

    def _relation(self) -> Expression:
        left = self._sum()
        if self.at(*_COMPARISONS):
            return Call(self.advance().text, (left, self._sum()))
        if self.take_word("IN"):
            return Call("IN", (left, *self._arguments()))
        if self.at_word("NOT") and self.ahead().text.upper() == "IN":
            self.advance()
            self.advance()
            return Call("NOT IN", (left, *self._arguments()))
        return left

    def _sum(self) -> Expression:
        return self._in_turn(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._in_turn(("*", "/"), self._unary)

    def _in_turn(self, signs: tuple[str, str], operand: Callable[[], Expression]) -> Expression:
        """A chain whose steps are taken from left to right."""
        left = operand()
        steps = 0
        while self.at(*signs):
            left = Call(self.advance().text, (left, operand()))
            steps += 1
        if steps:
            check_chain(steps)
        return left

    def _unary(self) -> Expression:
        if self.at_signed_number():
            return Constant(self.literal())
        for sign, name in _UNARY.items():
            if self.take(sign):
                with self.nested():
                    return Call(name, (self._unary(),))
        return self._primary()

    def _primary(self) -> Expression:
        if self.at("("):
            return self.bracketed()
        if self.at("<<("):
            return self._triple_term()
        if self._at_plain():
            return self._plain()
        if self.at_iri():
            name = self.iri()
            return self._call(name) if self.at("(") else Constant(name)
        return self.builtin()

    def _at_plain(self) -> bool:
        return self.token.kind == "variable" or self.at_literal()

    def _plain(self) -> Expression:
        """A variable, a literal or an IRI."""
        if self.token.kind == "variable":
            return VariableRef(self.variable())
        return Constant(self.literal() if self.at_literal() else self.iri())

    def _triple_term(self) -> Expression:
        self.expect("<<(")
        with self.nested():
            if self.at("<<(") or self.at_literal():
                self.fail("the subject of a triple term is an IRI or a variable")
            subject = self._plain()
            variable = self.token.kind == "variable"
            verb = VariableRef(self.variable()) if variable else Constant(self.verb_iri())
            object_ = self._triple_term() if self.at("<<(") else self._plain()
        self.expect(")>>")
        return Call("TRIPLE", (subject, verb, object_))

    def bracketed(self) -> Expression:
        """An expression in brackets."""
        self.expect("(")
        inner = self.expression()
        self.expect(")")
        return inner

    def constraint(self) -> Expression:
        """What may stand after FILTER: an expression in brackets or a call."""
        if self.at("("):
            return self.bracketed()
        if self.at_iri():
            return self._call(self.iri())
        return self.builtin()

    def _call(self, name: Term) -> Expression:
        if self.ahead().kind == "word" and self.ahead().text.upper() == "DISTINCT":
            self.fail("DISTINCT belongs to aggregates only", self.ahead().position)
        return Call(name, self._arguments())

    def _arguments(self) -> tuple[Expression, ...]:
        self.expect("(")
        arguments: list[Expression] = []
        while not self.at(")"):
            if arguments:
                self.expect(",")
            arguments.append(self.expression())
        self.expect(")")
        return tuple(arguments)

    def builtin(self) -> Expression:
        """A call of a builtin, an aggregate or EXISTS."""
        token = self.token
        name = token.text.upper() if token.kind == "word" else ""
        if name in AGGREGATES and self.ahead().text == "(":
            return self._aggregate()
        if name == "BOUND":
            self.advance()
            self.expect("(")
            bound = Call(name, (VariableRef(self.variable()),))
            self.expect(")")
            return bound
        if name == "EXISTS":
            self.advance()
            return Exists(self._exists_pattern())
        if name == "NOT" and self.ahead().text.upper() == "EXISTS":
            self.advance()
            self.advance()
            return Exists(self._exists_pattern(), negated=True)
        if name not in BUILTINS:
            if name and self.ahead().text == "(":
                self.fail(f"unknown function {token.text}")
            self.expected("an expression")
        self.advance()
        fewest, most = BUILTINS[name]
        arguments = self._arguments()
        if len(arguments) < fewest or (most is not None and len(arguments) > most):
            wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            self.fail(f"{name} takes {wanted} argument(s), not {len(arguments)}", token.position)
        name = {"URI": "IRI", "ISURI": "ISIRI"}.get(name, name)
        if name == "IRI" and self.base is not None:
            # The base that is in force here is part of what IRI() means.
            arguments = (*arguments, Constant(Term(f"<{self.base}>")))
        return Call(name, arguments)

    def _exists_pattern(self) -> Pattern:
        allowed, self._aggregates_allowed = self._aggregates_allowed, False
        pattern = self.group_graph_pattern()
        self._aggregates_allowed = allowed
        return pattern

    def _aggregate(self) -> Expression:
        token = self.advance()
        name = token.text.upper()
        if not self._aggregates_allowed:
            self.fail(f"{name} cannot stand here", token.position)
        self.expect("(")
        distinct = self.take_word("DISTINCT")
        argument: Expression | None = None
        if not (name == "COUNT" and self.take("*")):
            self._aggregates_allowed = False
            argument = self.expression()
            self._aggregates_allowed = True
        separator = " "
        if name == "GROUP_CONCAT" and self.take(";"):
            self.expect_word("SEPARATOR")
            self.expect("=")
            separator = self.string()
        self.expect(")")
        return Aggregate(name, argument, distinct, separator)
