"""A process that publishes what sensors say: labelled facts, or elements of streams.

It follows orders as `board_feed` does. ``ticks`` holds what each sensor says at each tick.
"""

import json
from datetime import timedelta
from urllib.parse import quote

from annotations.clock import Clock
from annotations.instants import format_instant
from annotations.terms import Quad
from experiments.studies.board_feed import BoardFeed, follow, push_facts, push_lines
from loaders.sources.citybench_sensors import SERVICES


class SensorFeed(BoardFeed):
    """Publishes a reading of every sensor at every tick."""

    def publish(self, clock: Clock) -> None:
        """Publish the ticks."""
        order = self.order
        period, lead = timedelta(seconds=order["period"]), timedelta(seconds=order["lead"])
        window = timedelta(seconds=order["window"])
        begin = clock.now()
        for number, tick in enumerate(order["ticks"]):
            due = begin + number * period
            clock.wait_until(due - lead, self.stopping)
            if self.stopping.is_set():
                return
            now = clock.now()
            if order["mode"] == "facts":
                quads = [Quad(*quad) for quads in tick.values() for quad in quads]
                push_facts(order, quads, due + window, number)
            else:
                for sensor, quads in tick.items():
                    element = {"timestamp": format_instant(now), "triples": [q[:3] for q in quads]}
                    stream = f"{order['url']}streams/{quote(SERVICES + sensor, safe='')}"
                    push_lines(stream, order["token"], [json.dumps(element)])
            self.note(now)


if __name__ == "__main__":
    follow(SensorFeed)
