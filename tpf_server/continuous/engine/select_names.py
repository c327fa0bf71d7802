"""Names of the SELECT clause in GROUP BY and HAVING, as queries of papers and benchmarks use them.

``GROUP BY ?v`` where ``?v`` names an expression of the SELECT clause groups by that expression;
HAVING may use the aggregates that are named there. Source: paper 001, section 2.
"""

from annotations.terms import Variable
from tpf_client.sparql.algebra import Aggregate, Exists, Expression, Pattern, VariableRef
from tpf_client.sparql.parser import QueryParser
from tpf_client.sparql.rewrite.visitor import everything, replaced


class SelectNames(QueryParser):
    """Reads queries in which these clauses use such names."""

    def __init__(self, text: str, base: str | None = None) -> None:
        super().__init__(text, base)
        self._selected: list[tuple[Variable, Expression | None]] = []

    def _modified(
        self,
        pattern: Pattern,
        items: list[tuple[Variable, Expression | None]],
        *,
        star: bool,
        distinct: bool = False,
        reduced: bool = False,
    ) -> tuple[Pattern, tuple[Variable, ...]]:
        outer, self._selected = self._selected, items
        result = super()._modified(pattern, items, star=star, distinct=distinct, reduced=reduced)
        self._selected = outer
        return result

    def _group_by(self) -> list[tuple[Variable, Expression]] | None:
        keys = super()._group_by()
        if keys is None:
            return None
        places = {name: place for place, (name, _) in enumerate(self._selected)}
        for at, (name, expression) in enumerate(keys):
            if expression != VariableRef(name) or name not in places:
                continue
            selected = self._selected[places[name]][1]
            if selected is not None and not _aggregated(selected):
                keys[at] = (name, selected)
                self._selected[places[name]] = (name, None)
        return keys

    def _having(self) -> list[Expression]:
        named: dict[Expression, Expression] = {
            VariableRef(name): expression
            for name, expression in self._selected
            if expression is not None and _aggregated(expression)
        }
        return [replaced(condition, named) for condition in super()._having()]


def _aggregated(expression: Expression) -> bool:
    return any(isinstance(each, Aggregate) for each in everything(expression, Exists))
