"""From solutions to rows of terms; the code is generated for each query.

Many queries emit far more rows than elements arrive, so what a row costs is what they cost: a
lookup for each term, a check where a term may not stand in its place, nothing else.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from annotations.terms import Variable
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.dataflow.codegen import compiled
from tpf_client.dataflow.construct import construct_lines, repeated
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.algebra import Query, Row
from tpf_server.continuous.engine.delivery import wanted_variables
from tpf_server.continuous.engine.windows.matchers import EncodedTriple

EncodedTriples: TypeAlias = list[EncodedTriple] | None
Make: TypeAlias = Callable[[Sequence[tuple[Solution, int]]], tuple[tuple[Row, ...], EncodedTriples]]


class RowMaker:
    """Makes rows of terms from solutions.

    Args:
        query: its form, variables and template.
        schema: the variables of the solutions.
        dictionary: the terms.
        feeds: whether the triples of CONSTRUCT are wanted as identifiers, too.

    Attributes:
        made: gives the rows of solutions, in their order, repeated by their counts; and nothing, or
            the same as identifiers. Of CONSTRUCT these are the triples of the template; those that
            are no triples are left out, and a blank node of the template is a new one for each copy
            of a solution.
    """

    made: Make

    def __init__(
        self, query: Query, schema: Schema, dictionary: TermDictionary, *, feeds: bool = False
    ) -> None:
        self._feeds = feeds
        self._names: dict[str, Any] = {"texts": dictionary.texts, "encode": dictionary.encode}
        wanted = wanted_variables(query)
        self._values = {name: f"v{at}" for at, name in enumerate(schema) if name in wanted}
        taken = [self._values.get(name, "_") for name in schema]
        lines = ["def rows(solutions):", "    result = []"]
        lines.append(f"    for ({''.join(f'{name}, ' for name in taken)}), count in solutions:")
        if not feeds:
            values = self._values.values()
            lines += [f"        {name} = texts[{name}] if {name} else None" for name in values]
        body = self._selected(wanted) if query.form != "CONSTRUCT" else self._constructed(query)
        lines += [f"        {line}" for line in body]
        texts = "tuple([(texts[s], texts[p], texts[o]) for s, p, o in result])"
        lines.append(f"    return {texts}, result" if feeds else "    return tuple(result), None")
        self.made = compiled("\n".join(lines), "rows", self._names)

    def _selected(self, wanted: Sequence[Variable]) -> list[str]:
        return repeated(f"({''.join(f'{self._values.get(name)}, ' for name in wanted)})")

    def _constructed(self, query: Query) -> list[str]:
        numbers = itertools.count(1)
        self._names["fresh"] = lambda: f"made{next(numbers)}"
        if not self._feeds:
            return construct_lines(query.template, self._values, self._names)
        return construct_lines(
            query.template, self._values, self._names, text="texts[{}]", term="encode({})"
        )
