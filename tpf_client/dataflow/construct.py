"""CONSTRUCT: generate code that makes a template's triples (SPARQL 1.1, section 16.2).

A triple that is not RDF is left out; blank nodes are fresh for each copy of a solution.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from annotations.terms import (
    Term,
    TermOrVariable,
    Triple,
    TriplePattern,
    Variable,
    is_blank_node,
    is_iri,
)
from tpf_client.dataflow.changes import Solution, add_copies
from tpf_client.dataflow.codegen import compiled
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Node
from tpf_client.sparql.algebra import Row


def construct_lines(
    template: Sequence[Sequence[TermOrVariable]],
    values: Mapping[Variable, str],
    names: dict[str, Any],
    triple: str = "({})",
    *,
    text: str = "{}",
    term: str = "{}",
) -> list[str]:
    """Write code that appends a solution's triples, ``count`` times, to the list ``result``.

    `values` names the bound variables, `names` receives the globals; `text` and `term` are
    templates.
    """
    triples: list[tuple[str, str]] = []
    blanks: dict[str, str] = {}

    def code(node: str, at: int, checks: list[str]) -> str:
        """Return the code of a term; ``None`` where it cannot stand."""
        if node[0] == "?":
            name = values.get(Variable(node), "None")
            if name != "None":
                checks.append(name)
                checks += [condition.format(text.format(name)) for condition in _ALLOWED[at]]
            return name
        if not _stands(node, at):
            return "None"
        if node[0] == "_":
            return blanks.setdefault(node, f"b{len(blanks)}")
        name = f"t{len(names)}"
        names[name] = Term(node)
        return term.format(name)

    for pattern in template:
        checks: list[str] = []
        nodes = [code(str(node), at, checks) for at, node in enumerate(pattern)]
        if "None" not in nodes:
            triples.append((triple.format(", ".join(nodes)), " and ".join(checks) or "True"))
    if len(triples) == 1 and not blanks:
        ((made, check),) = triples
        return [f"if {check}:", *indented(repeated(made))]
    lines = [f"if {check}: made.append({made})" for made, check in triples]
    if not blanks:
        return ["made = []", *lines, "result += made * count"]
    labels = {name: term.format(f'f"_:{{label}}{name}"') for name in blanks.values()}
    new = [f"{name} = {label}" for name, label in labels.items()]
    return [
        "made = result",
        "for _ in range(count):",
        "    label = fresh()",
        *indented([*new, *lines]),
    ]


def construct(
    template: Sequence[Sequence[TermOrVariable]],
    variables: Sequence[Variable],
    rows: Iterable[Row],
    fresh: Callable[[Row], str] | None = None,
) -> Iterator[Triple]:
    """Yield the triples of a template, or quads, repetitions included."""
    triples = constructor(template, variables)
    for number, row in enumerate(rows):
        label = f"c{number}" if fresh is None else fresh(row)
        yield from triples(row, partial(str, label), 1)


def constructor(
    template: Sequence[Sequence[TermOrVariable]], variables: Sequence[Variable]
) -> Callable[[Row, Callable[[], str], int], list[Triple]]:
    """Return a function that makes a row's triples, `count` times."""
    values = {name: f"v{column}" for column, name in enumerate(variables)}
    names: dict[str, Any] = {"Triple": Triple}
    lines = ["def triples(row, fresh, count):", "    result = []"]
    if variables:
        lines.append(f"    {', '.join(values.values())}, = row")
    triple = "Triple({})" if all(len(each) == 3 for each in template) else "({})"
    lines += indented(construct_lines(template, values, names, triple))
    lines.append("    return result")
    return compiled("\n".join(lines), "triples", names)


# A literal is no subject; a triple term, which begins with two angles, is only an object.
_ALLOWED: Final = (
    ("{0}[0] != '\"'", "{0}[1] != '<'"),
    ("{0}[0] == '<'", "{0}[1] != '<'"),
    (),
    ("{0}[0] != '\"'", "{0}[1] != '<'"),
)


def _stands(term: str, at: int) -> bool:
    if at in (0, 3):
        return is_iri(term) or is_blank_node(term)
    return at == 2 or is_iri(term)


def repeated(row: str) -> list[str]:
    """Write lines that append a row to the list ``result``, ``count`` times."""
    return [
        "if count == 1:",
        f"    result.append({row})",
        "else:",
        f"    result += [{row}] * count",
    ]


def indented(lines: Sequence[str]) -> list[str]:
    """Lines, one level further to the right."""
    return [f"    {line}" for line in lines]


# Construct: the triples of a template, kept up to date.
#
# A triple is there as long as some solution makes it. Blank nodes of the template get names from
# the solution and the number of its copy: so the same ones go that came, however the query is
# planned.

TRIPLE = (Variable("?subject"), Variable("?predicate"), Variable("?object"))
"""The variables of solutions that are triples."""


class Construct(Node):
    """The distinct triples that solutions make."""

    def __init__(
        self, upstream: Node, template: Sequence[TriplePattern], dictionary: TermDictionary
    ) -> None:
        super().__init__(TRIPLE, frozenset(TRIPLE), monotone=upstream.monotone)
        self._triples = constructor(template, upstream.schema)
        self._dictionary = dictionary
        self._has_blanks = any(term[0] == "_" for triple in template for term in triple)
        self._copies: dict[Solution, int] = {}
        self._support: dict[Triple, int] = {}
        upstream.connect(self._push)

    def _push(self, solution: Solution, count: int) -> None:
        if not self._has_blanks:
            self._change(solution, 0, count)
            return
        after = add_copies(self._copies, solution, count)
        before = after - count
        for copy in range(min(before, after), max(before, after)):
            self._change(solution, copy, 1 if count > 0 else -1)

    def _change(self, solution: Solution, copy: int, count: int) -> None:
        decode, encode = self._dictionary.decode, self._dictionary.encode
        row = tuple([decode(each) if each else None for each in solution])
        for triple in self._triples(row, partial(_label, row, copy), 1):
            new = add_copies(self._support, triple, count)
            if (new - count > 0) != (new > 0):
                self.emit(tuple([encode(term) for term in triple]), 1 if new > 0 else -1)


def _label(row: Row, copy: int) -> str:
    text = "\0".join("" if term is None else term for term in row)
    return f"c{hashlib.blake2s(text.encode(), digest_size=8).hexdigest()}x{copy}"
