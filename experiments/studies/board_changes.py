"""A process that changes a board now and then, before any label says so.

It follows orders as `board_feed` does. First it publishes the whole board, as facts that hold for a
day; then one delay after the other, whose value is the number of the change.
"""

from datetime import timedelta
from random import Random

from annotations.clock import Clock
from annotations.namespaces import integer
from annotations.terms import Quad, Term
from experiments.studies.board_feed import BoardFeed, follow, push_facts
from experiments.workloads.board import renewal
from loaders import vocabulary as v

_DAY = timedelta(days=1)


class ChangedBoard(BoardFeed):
    """Changes the board, at the longest for so many seconds."""

    def publish(self, clock: Clock) -> None:
        """Publish a change in every interval, at an instant that nobody can foresee."""
        order = self.order
        departures, chance = order["departures"], Random(order["seed"])
        interval = timedelta(seconds=order["interval"])
        begin = clock.now()
        push_facts(order, list(renewal(departures, 0)), begin + _DAY, 0)
        self.note(begin)
        for number in range(1, 1 + int(order["seconds"] / order["interval"])):
            clock.wait_until(begin + interval * (number + chance.random()), self.stopping)
            if self.stopping.is_set():
                return
            departure = Term(departures[number % len(departures)])
            now = clock.now()
            quads = [Quad(departure, v.DELAY, integer(number))]
            push_facts(order, quads, begin + _DAY, number)
            self.note(now)


if __name__ == "__main__":
    follow(ChangedBoard)
