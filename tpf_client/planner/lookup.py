"""Lookups of keys in fragments: key by key, in blocks of keys, or the whole fragment.

Which takes the fewest requests is known only when the keys are. So keys are held back until what
brings them has arrived, unless it is clear before: where those that wait are already more than the
whole fragment is worth, or where there cannot be so many. A few go before, so that the first
solutions need not wait (see `FragmentLookup.scout`). A query that wants only a few solutions
asks for few keys at once, the more the more it has asked for, and gives up on keys after as many
requests as the whole fragment takes (at most twice the requests of the better choice, as in ski
rental), or after a small part of them where a filter follows that lets nothing through. So does one
for which some of the keys may turn out not to matter (see `demand`).
"""

import math
from collections.abc import Iterable

from annotations.terms import QuadPattern, is_variable
from tpf_client.dataflow.build.join_order import SELECTIVITY
from tpf_client.dataflow.changes import Schema
from tpf_client.planner.demand import Choice, Need
from tpf_client.planner.evaluation import Evaluation, Lookups
from tpf_client.planner.key_answers import KeyAnswers
from tpf_client.planner.live_fragment import LiveFragment
from tpf_client.planner.source import Estimate, Source
from tpf_client.planner.star import Star
from tpf_client.planner.turns import URGENT

_WINDOW = 32
"""Requests under way at a time, at most, where only a few solutions are wanted."""

CAUTION = 16
"""The part of the requests for a whole fragment that is risked, beside one, so that the first
solutions come soon."""

EARLY = 2
"""How many times more keys than pages must be expected for the whole fragment to be read before
they have come."""

PATIENCE = 2
"""How many times the requests for a whole fragment are risked for keys that come by and by."""


class FragmentLookup(KeyAnswers):
    """Answers keys from the fragments of a pattern; a `LookupSource`.

    Args:
        evaluation: the query.
        pattern: the pattern to look up.
        keys: its variables that make a key.
        estimate: how much matches the whole pattern.
        star: what may be asked in place of it, where the key is its subject.
        source: who answers; by default the source of the query.
        bound: how many keys there will be at most, as far as counts tell; ``None``: unknown.
        expected: about how many keys there will be; infinite: nobody knows.
        spread: how many times as many there may be.
        after: the lookups whose answers bring keys.
        need: whether only a few solutions are wanted.
        filtered: whether a filter looks at what this lookup brings, before anything else is asked.
        doubtful: whether a filter may yet leave out what this lookup brings.

    Attributes:
        choice: which keys matter; ``None``: all.
    """

    def __init__(
        self,
        evaluation: Evaluation,
        pattern: QuadPattern,
        keys: Schema,
        estimate: Estimate,
        *,
        star: Star | None = None,
        source: Source | None = None,
        bound: int | None = None,
        expected: float = math.inf,
        spread: float = 1.0,
        after: Iterable[Lookups] = (),
        filtered: bool = False,
        doubtful: bool = False,
        need: Need | None = None,
    ) -> None:
        super().__init__(evaluation, pattern, keys, estimate, star, source, need)
        self.after = frozenset(after)
        self.choice: Choice | None = None
        self._filtered = filtered
        self._doubtful = doubtful
        self._bound = bound
        self._expected = expected
        self._spread = spread
        self._tried = 0
        self._scouts = 0
        self._scouting: list[LiveFragment] = []
        self._missing: int | None = None
        evaluation.lookups.append(self)

    @property
    def patient(self) -> bool:
        """Whether what others find may spare it requests."""
        return self.choice is not None

    def pump(self, *, complete: bool) -> bool:
        """Ask for waiting keys, or for the whole fragment where that takes fewer requests."""
        if self._index is not None and self._given_up():
            self._back_to_keys()
        waiting = len(self._waiting)
        if waiting and self._star is not None and self._star.asked:
            self._look_up_known(self._star)
        self._ask_well(complete)
        return len(self._waiting) < waiting

    def _ask_well(self, complete: bool) -> None:
        if not self._waiting or self._need.met:
            return
        if self._estimate.pages == 0 or self._evaluation.has(self._pattern, self._source):
            self._read_whole()
            return
        if self.choice is not None:
            if not complete or self._ask_chosen(self.choice):
                return
            # It would not spare much: ask for everything.
            self.choice = None
        pages = self._whole_cost()
        eager = self._need.limited and self._promising(pages)
        # What a continuous query asked for long ago costs nothing; what it holds is asked again.
        asked = len(self._batches) if self._evaluation.live else self.report.asked
        if pages is not None:
            next_ones = self._requests(len(self._waiting))
            if eager:
                next_ones = min(next_ones, self._room())
            # Keys that come one after the other, as on a path, may soon come to an end.
            spent = asked if eager or self._evaluation.live else asked - (PATIENCE - 1) * pages
            if max(spent, 0) + next_ones >= max(pages, 1):
                self._read_whole()
                return
        if eager:
            self._ask_some()
        elif complete:
            self._repack()
            self._ask(list(self._waiting))
        elif pages is not None and self._surely_whole(pages):
            self._read_whole()
        elif pages is None or (self._bound is not None and self._requests(self._bound) <= pages):
            full = len(self._waiting) // self._estimate.block * self._estimate.block
            self._ask(list(self._waiting)[:full])

    def _promising(self, pages: int | None) -> bool:
        """Whether a few keys may do, where only a few solutions are wanted.

        Where a filter follows, perhaps none passes it, and all keys would be asked for in vain on
        top of the whole fragment. So a small part of its requests is risked, and more of them as
        far as those before led to solutions.

        Args:
            pages: requests for the whole fragment.
        """
        missing, wanted, asked = self._need.missing, self._missing, self.report.asked
        if not self._doubtful or pages is None or missing is None or wanted is None:
            return True
        if missing == wanted:
            return asked <= pages // CAUTION
        return asked * wanted <= pages * (wanted - missing)

    def _surely_whole(self, pages: int) -> bool:
        """Whether so many keys will come that there is no need to wait for them."""
        least = EARLY * pages * self._estimate.block
        return least <= self._expected < math.inf and not self._evaluation.live

    def scout(self) -> bool:
        """Ask for the first keys at once; whether it did.

        It may take a while to find out how to ask for the keys best, until those that bring them
        have arrived. So that the first solutions do not wait for that, a few keys go before, as
        soon as they are there and before anything else. Not where most probably the whole fragment
        is going to be read, unless solutions wait until it is sure that they have no partner here:
        of that the whole fragment tells at its end only. And one by one, but twice as many
        whenever those before led to no solution of the query.
        """
        need, waiting = self._need, self._waiting
        if not waiting or not need.hurried or need.limited or not self._evaluation.hurried:
            return False
        if self._estimate.block > 1 or self.choice is not None or self.scouts():
            return False
        pages = self._estimate.pages or 0
        unlikely = pages < self._expected * self._spread < math.inf
        risk = min(1 + pages // CAUTION - self._scouts, self._scouts + 1)
        if risk <= 0 or (unlikely and not need.decides):
            return False
        keys = list(waiting)[:risk]
        self._scouts += len(keys)
        self._ask(keys, URGENT)
        asked = (self._entries[key].batch for key in keys)
        self._scouting += [each.fragment for each in asked if each and each.fragment is not None]
        return True

    def scouts(self) -> list[LiveFragment]:
        """What is being read for the first keys."""
        self._scouting = [each for each in self._scouting if each.loading]
        return self._scouting

    def _ask_chosen(self, choice: Choice) -> bool:
        """Ask for some of the keys that matter, if that may be less than asking for all."""
        keys = choice.needed(self._waiting)
        if not keys:
            return True
        block = self._estimate.block
        requests = self._requests(choice.enough(keys))
        pages = self._whole_cost()
        whole = math.inf if pages is None else max(pages, 1) - self.report.asked
        if 2 * requests > min(whole, self._requests(len(keys))):
            return False
        self._ask(keys[: requests * block])
        return True

    def _whole_cost(self) -> int | None:
        """How many requests the alternative to asking for keys takes."""
        star = self._star
        if star is None or not star.worthwhile or not is_variable(self._pattern.object):
            # A pattern with a constant object leaves fewer subjects for the rest of its star.
            return self._estimate.pages
        whole, own = star.whole_cost(), self._estimate.pages
        if not self._filtered or whole is None or own is None:
            return whole
        # So does one whose values a filter tests: how many is not known.
        left = self._requests(math.ceil(len(self._waiting) * SELECTIVITY))
        return own + min(whole - own, left)

    def _ask_some(self) -> None:
        """Ask for a few keys, if not too many of those asked before are under way.

        What is under way when a limit is met was asked for in vain: that is to be a small part.
        """
        loading = sum(b.fragment is not None and b.fragment.loading for b in self._batches)
        room = max(self._room(loading) - loading, 0)
        # Those that had a match on the first page have led to something already.
        keys = sorted(self._waiting, key=lambda key: bool(self._waiting[key].rows))
        keys = keys[: room * self._estimate.block]
        self._tried += len(keys)
        self._ask(keys)

    def _room(self, loading: int = 0) -> int:
        """How many requests may be under way, where only a few solutions are wanted.

        Args:
            loading: how many are.
        """
        missing = self._need.missing
        self._missing = self._missing or missing
        if missing is not None and self._missing is not None and missing < self._missing:
            # As many as it takes, if they bring as much as those before.
            answered = max(self._tried - loading * self._estimate.block, 1)
            keys = math.ceil(answered * missing / (self._missing - missing))
            return min(self._requests(keys), 2 * self._requests(answered), _WINDOW)
        return min(max(math.isqrt(self._requests(self._tried)), 1), _WINDOW)
