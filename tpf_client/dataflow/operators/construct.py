"""Construct: the triples of a template, kept up to date.

A triple is there as long as some solution makes it. Blank nodes of the template get names from the
solution and the number of its copy: so the same ones go that came, however the query is planned.
"""

import hashlib
from collections.abc import Sequence
from functools import partial

from annotations.terms import Triple, TriplePattern, Variable
from tpf_client.dataflow.changes import Solution
from tpf_client.dataflow.construct import constructor
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.dataflow.node import Node
from tpf_client.sparql.algebra import Row

TRIPLE = (Variable("?subject"), Variable("?predicate"), Variable("?object"))
"""The variables of solutions that are triples."""


class Construct(Node):
    """The distinct triples that solutions make.

    Args:
        upstream: the solutions.
        template: triples with variables and blank nodes.
        dictionary: the terms.
    """

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
        before = self._copies.get(solution, 0)
        after = before + count
        if after:
            self._copies[solution] = after
        else:
            del self._copies[solution]
        for copy in range(min(before, after), max(before, after)):
            self._change(solution, copy, 1 if count > 0 else -1)

    def _change(self, solution: Solution, copy: int, count: int) -> None:
        """There are so many more of the triples that this copy of a solution makes."""
        decode, encode = self._dictionary.decode, self._dictionary.encode
        row = tuple([decode(each) if each else None for each in solution])
        for triple in self._triples(row, partial(_label, row, copy), 1):
            old = self._support.get(triple, 0)
            new = self._support[triple] = old + count
            if not new:
                del self._support[triple]
            if (old > 0) != (new > 0):
                self.emit(tuple([encode(term) for term in triple]), 1 if new > 0 else -1)


def _label(row: Row, copy: int) -> str:
    """The beginning of the names of a copy's blank nodes, by what is in its row."""
    text = "\0".join("" if term is None else term for term in row)
    return f"c{hashlib.blake2s(text.encode(), digest_size=8).hexdigest()}x{copy}"
