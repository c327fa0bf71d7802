"""From solutions to rows of terms; the code is generated for each query.

Many queries emit far more rows than elements arrive, so what a row costs is what they cost: a
lookup for each term, a check where a term may not stand in its place, nothing else.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from annotations.terms import Term, Variable, is_blank_node, is_iri
from tpf_client.dataflow.changes import Schema, Solution
from tpf_client.sparql.algebra import Query
from tpf_server.cqels.delivery import Row, wanted_variables
from tpf_server.cqels.dictionary import InliningDictionary
from tpf_server.cqels.row_index import compiled


class RowMaker:
    """Makes rows of terms from solutions.

    Args:
        query: its form, variables and template.
        schema: the variables of the solutions.
        dictionary: the terms.

    Attributes:
        rows: gives the rows of solutions, in their order, repeated by their counts. Of CONSTRUCT
            these are the triples of the template; those that are no triples are left out, and a
            blank node of the template is a new one for each copy of a solution.
    """

    def __init__(self, query: Query, schema: Schema, dictionary: InliningDictionary) -> None:
        self._names: dict[str, Any] = {"texts": dictionary.texts}
        wanted = wanted_variables(query)
        self._values = {name: f"v{at}" for at, name in enumerate(schema) if name in wanted}
        taken = [self._values.get(name, "_") for name in schema]
        lines = ["def rows(solutions):", "    result = []"]
        lines.append(f"    for ({''.join(f'{name}, ' for name in taken)}), count in solutions:")
        values = self._values.values()
        lines += [f"        {name} = texts[{name}] if {name} else None" for name in values]
        body = self._selected(wanted) if query.form != "CONSTRUCT" else self._constructed(query)
        lines += [f"        {line}" for line in body]
        lines.append("    return tuple(result)")
        self.rows: Callable[[Sequence[tuple[Solution, int]]], tuple[Row, ...]]
        self.rows = compiled("\n".join(lines), "rows", self._names)

    def _selected(self, wanted: Sequence[Variable]) -> list[str]:
        return _repeated("".join(f"{self._values.get(name)}, " for name in wanted))

    def _constructed(self, query: Query) -> list[str]:
        triples: list[tuple[str, str]] = []
        blanks: dict[str, str] = {}
        for pattern in query.template:
            checks: list[str] = []
            places = [self._place(str(term), at, checks, blanks) for at, term in enumerate(pattern)]
            if "None" not in places:
                triples.append((", ".join(places), " and ".join(checks) or "True"))
        if len(triples) == 1 and not blanks:
            ((triple, check),) = triples
            return [f"if {check}:", *_indented(_repeated(triple))]
        lines = [f"if {check}: made.append(({triple}))" for triple, check in triples]
        if not blanks:
            return ["made = []", *lines, "result += made * count"]
        self._names["numbers"] = itertools.count(1)
        new = [f'{name} = f"_:made{{next(numbers)}}"' for name in blanks.values()]
        return ["made = result", "for _ in range(count):", *_indented([*new, *lines])]

    def _place(self, term: str, at: int, checks: list[str], blanks: dict[str, str]) -> str:
        """The expression for a term of the template; ``None`` where it is no part of a triple.

        Args:
            term: a variable, a blank node or a constant.
            at: 0 for the subject, 1 for the predicate, 2 for the object.
            checks: gets what must be true of the values.
            blanks: the names of blank nodes so far.
        """
        if term[0] == "?":
            name = self._values.get(Variable(term), "None")
            if name != "None":
                checks.append(name)
                checks += [condition.format(name) for condition in _ALLOWED[at]]
            return name
        if not _stands(term, at):
            return "None"
        if term[0] == "_":
            return blanks.setdefault(term, f"b{len(blanks)}")
        name = f"t{len(self._names)}"
        self._names[name] = Term(term)
        return name


# A literal is no subject; a triple term, which begins with two angles, is only an object.
_ALLOWED: Final = (
    ("{0}[0] != '\"'", "{0}[1] != '<'"),
    ("{0}[0] == '<'", "{0}[1] != '<'"),
    (),
)


def _stands(term: str, at: int) -> bool:
    """Whether a term of the template may stand at this place of a triple."""
    if at == 0:
        return is_iri(term) or is_blank_node(term)
    return at == 2 or is_iri(term)


def _repeated(values: str) -> list[str]:
    """The lines that add a row of these values, `count` times."""
    return [
        "if count == 1:",
        f"    result.append(({values}))",
        "else:",
        f"    result += [({values})] * count",
    ]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
