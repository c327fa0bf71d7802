"""What streams have carried, so that plans may rest on what they have not.

A stream that declares its predicates has no others. Of any other stream it is taken that it carries
only what it carried so far, as far as a query asks for it. So a pattern with another predicate is
static, and its join with other static patterns is evaluated once (paper 003, section 4). When such
a triple comes after all, the plans that rest on its absence are made anew, before it is seen.
"""

from collections.abc import Callable, Iterable, Sequence

from annotations.terms import QuadPattern, Term
from tpf_client.dataflow.changes import TermId
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_server.continuous.csparql.native.evaluation import PeriodicEvaluation
from tpf_server.continuous.csparql.operator_graph import Knowledge
from tpf_server.continuous.csparql.windows import StreamClause
from tpf_server.continuous.engine.errors import ElementError, EngineLimitError
from tpf_server.continuous.engine.windows.matchers import EncodedTriple


class Learning:
    """What is known about the predicates of streams.

    Args:
        dictionary: the integers of terms.
        has_static: see `Knowledge`.
        enabled: whether what was not declared is learned.

    Attributes:
        declared: the predicates of streams that declare them.
        carried: those of other streams that came, and that a query asked for.
    """

    def __init__(
        self,
        dictionary: TermDictionary,
        has_static: Callable[[QuadPattern, tuple[Term, ...]], bool],
        *,
        enabled: bool,
    ) -> None:
        self.declared: dict[Term, frozenset[Term]] = {}
        self.carried: dict[Term, set[Term]] = {}
        self._dictionary = dictionary
        self._has_static = has_static
        self._enabled = enabled
        self._assumed: dict[Term, dict[TermId, dict[PeriodicEvaluation, None]]] = {}

    def declare(self, stream: Term, predicates: frozenset[Term], *, read: bool) -> None:
        """A stream has these predicates and no others from now on.

        Args:
            stream: its IRI.
            predicates: these.
            read: whether queries read it.

        Raises:
            EngineLimitError: queries read others in it.
        """
        others = set(self.carried.get(stream, ()))
        if read:
            others |= self.declared.get(stream, frozenset())
        if not others <= predicates:
            raise EngineLimitError(
                f"{stream} is read already, with {', '.join(sorted(others - predicates))}"
            )
        self.declared[stream] = predicates

    def check(self, stream: Term, predicates: Iterable[str]) -> None:
        """See to it that a stream may have triples with these predicates.

        Raises:
            ElementError: it declares others.
        """
        declared = self.declared.get(stream)
        if declared is not None:
            for each in predicates:
                if each not in declared:
                    raise ElementError(f"{stream} does not declare the predicate {each}")

    def check_triples(self, stream: Term, triples: Iterable[EncodedTriple]) -> None:
        """See to it that a stream may have these triples; see `check`."""
        if stream in self.declared:
            decode = self._dictionary.decode
            self.check(stream, (decode(predicate) for _, predicate, _ in triples))

    def knowledge(self, clauses: Iterable[StreamClause], *, separated: bool = True) -> Knowledge:
        """What a plan of a query over these streams may rest on.

        Args:
            clauses: of the query.
            separated: whether anything is to be told; otherwise every stream may carry everything.
        """
        predicates = {}
        for clause in clauses if separated else ():
            known = self.declared.get(clause.stream)
            if known is None and self._enabled:
                known = frozenset(self.carried.get(clause.stream, ()))
            if known is not None:
                predicates[clause.graph] = known
        return Knowledge(predicates, self._has_static)

    def told(self, clauses: Iterable[StreamClause]) -> Knowledge:
        """What is known of these streams beyond doubt: was declared."""
        declared = {
            clause.graph: self.declared[clause.stream]
            for clause in clauses
            if clause.stream in self.declared
        }
        return Knowledge(declared, self._has_static)

    def rest(self, evaluation: PeriodicEvaluation) -> None:
        """A plan rests on what it assumes."""
        for stream, predicate in evaluation.assumed:
            if stream not in self.declared:
                self._assumed.setdefault(stream, {}).setdefault(predicate, {})[evaluation] = None

    def forget(self, evaluation: PeriodicEvaluation) -> None:
        """A plan is none any more."""
        for stream, predicate in evaluation.assumed:
            plans = self._assumed.get(stream, {})
            plans.get(predicate, {}).pop(evaluation, None)
            if not plans.get(predicate, True):
                del plans[predicate]
            if not plans:
                self._assumed.pop(stream, None)

    def contradicted(
        self, stream: Term, triples: Sequence[EncodedTriple]
    ) -> list[PeriodicEvaluation]:
        """The evaluations whose plans rest on that such triples do not come; now it is known."""
        assumed = self._assumed.get(stream)
        if assumed is None:
            return []
        found: dict[PeriodicEvaluation, None] = {}
        for predicate in {triple[1] for triple in triples} & assumed.keys():
            self.carried.setdefault(stream, set()).add(self._dictionary.decode(predicate))
            found.update(assumed[predicate])
        return list(found)
