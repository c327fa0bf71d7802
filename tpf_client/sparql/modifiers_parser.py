"""The parser of solution modifiers. Source: SPARQL 1.1 Query Language, section 15."""

from annotations.terms import Variable
from tpf_client.sparql.algebra import Expression, OrderCondition, VariableRef
from tpf_client.sparql.pattern_parser import PatternParser


class ModifiersParser(PatternParser):
    """Parses GROUP BY, HAVING, ORDER BY, LIMIT and OFFSET."""

    def _group_by(self) -> list[tuple[Variable, Expression]] | None:
        if not self.take_word("GROUP"):
            return None
        self.expect_word("BY")
        keys: list[tuple[Variable, Expression]] = []
        while True:
            if self.token.kind == "variable":
                name = self.variable()
                keys.append((name, VariableRef(name)))
            elif self.take("("):
                expression = self.expression()
                named = self.variable() if self.take_word("AS") else None
                self.expect(")")
                keys.append((named or self._key_name(expression), expression))
            elif self.at_iri() or self._at_builtin():
                expression = self.constraint()
                keys.append((self._key_name(expression), expression))
            elif keys:
                return keys
            else:
                self.expected("what to group by")

    def _key_name(self, expression: Expression) -> Variable:
        return expression.variable if isinstance(expression, VariableRef) else self.fresh("k")

    def _at_builtin(self) -> bool:
        modifiers = ("HAVING", "ORDER", "LIMIT", "OFFSET", "VALUES", "ASC", "DESC")
        return self.token.kind == "word" and not self.at_word(*modifiers)

    def _having(self) -> list[Expression]:
        conditions: list[Expression] = []
        if self.take_word("HAVING"):
            self._aggregates_allowed = True
            conditions.append(self.constraint())
            while self.at("(") or self.at_iri() or self._at_builtin():
                conditions.append(self.constraint())
            self._aggregates_allowed = False
        return conditions

    def _order_by(self) -> list[OrderCondition]:
        conditions: list[OrderCondition] = []
        if not self.take_word("ORDER"):
            return conditions
        self.expect_word("BY")
        self._aggregates_allowed = True
        while True:
            if self.at_word("ASC", "DESC"):
                descending = self.advance().text.upper() == "DESC"
                conditions.append(OrderCondition(self.bracketed(), descending))
            elif self.token.kind == "variable":
                conditions.append(OrderCondition(VariableRef(self.variable())))
            elif self.at("(") or self.at_iri() or self._at_builtin():
                conditions.append(OrderCondition(self.constraint()))
            elif conditions:
                self._aggregates_allowed = False
                return conditions
            else:
                self.expected("what to order by")

    def _limits(self) -> tuple[int, int | None]:
        offset: int | None = None
        limit: int | None = None
        while self.at_word("LIMIT", "OFFSET"):
            word = self.token.text.upper()
            if (limit if word == "LIMIT" else offset) is not None:
                self.fail(f"a second {word}")
            self.advance()
            number = self.whole_number()
            if word == "LIMIT":
                limit = number
            else:
                offset = number
        return offset or 0, limit
