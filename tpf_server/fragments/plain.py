"""The plain view: a live fact is shown as its own quad, its label only in the metadata."""

from collections.abc import Sequence

from annotations.labels import Fact
from annotations.methods.base import FactPattern, Naming, Part
from annotations.terms import Quad, QuadPattern, Term, TermOrVariable, is_variable
from tpf_server.settings import PLAIN


class Plain:
    """Shows facts through no annotation method; it can only be matched."""

    name = PLAIN

    def match(self, pattern: QuadPattern, naming: Naming) -> Sequence[Part]:  # noqa: ARG002
        """One part: the facts' own quads."""
        positions: dict[str, list[int]] = {}
        for position, term in enumerate(pattern):
            if is_variable(term):
                positions.setdefault(term, []).append(position)
        repeated = [group for group in positions.values() if len(group) > 1]

        def equal(fact: Fact) -> bool:
            return all(len({fact.quad[p] for p in group}) == 1 for group in repeated)

        looked_up = FactPattern(
            _bound(pattern.subject),
            _bound(pattern.predicate),
            _bound(pattern.object),
            _bound(pattern.graph),
            repeats=bool(repeated),
        )
        return (Part(looked_up, _own_quad, equal if repeated else None),)


def _bound(term: TermOrVariable) -> Term | None:
    return None if is_variable(term) else Term(term)


def _own_quad(fact: Fact) -> Quad:
    return fact.quad
