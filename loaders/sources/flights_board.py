"""A departure from New York, and what a board says of it as time goes on.

The data tell how late a flight was in the end, not when that became known. What is announced is
derived from the real delays by these rules, without chance. Let S be the scheduled departure, D the
real delay, and D' = max(D, 0):

- A departure is on the board from S − 60 minutes.
- At the instant τ, the announced delay is D' × clamp((τ − (S − 60 minutes)) / 60 minutes, 0, 1),
  rounded down to whole 5 minutes; from S on it is D' itself. So it is announced little by little,
  never shrinks, and is the real one at the scheduled time.
- From S + D on the status is ``departed``, the delay is D (negative: it left early), and 10 minutes
  later it leaves the board.
- A cancelled flight (one without a departure delay) looks on time until S − 30 minutes; then its
  status is ``cancelled``, it has no delay, and at S + 30 minutes it leaves the board.
- The data know no gates: the platform is the code of the airport of departure.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from annotations.namespaces import integer
from annotations.terms import Quad, Term, iri, literal
from loaders import vocabulary as v

NEW_YORK = ZoneInfo("America/New_York")
FLIGHTS = "http://example.org/flights/"
_STEP = 300
_BOARD = timedelta(minutes=60)
_AFTER_DEPARTURE = timedelta(minutes=10)
_CANCELLATION = timedelta(minutes=30)

_FLIGHT = iri(v.SCHEMA + "Flight")
_PROVIDER = iri(v.SCHEMA + "provider")
_ARRIVAL_AIRPORT = iri(v.SCHEMA + "arrivalAirport")

DEPARTED = literal("departed")


class Flight(NamedTuple):
    """One row of ``flights.csv``; `delay` in seconds, ``None``: cancelled."""

    subject: Term
    carrier: str
    number: str
    origin: str
    destination: str
    scheduled: datetime
    delay: int | None

    def on_board(self) -> tuple[datetime, datetime]:
        """The first instant at which it is on the board, and the first at which it is not."""
        if self.delay is None:
            return self.scheduled - _BOARD, self.scheduled + _CANCELLATION
        left = self.scheduled + timedelta(seconds=self.delay)
        return self.scheduled - _BOARD, left + _AFTER_DEPARTURE

    def dynamic(self, at: datetime) -> Iterator[Quad]:
        """What is known of it at an instant at which it is on the board."""
        delay = self.announced(at)
        if delay is None:
            yield Quad(self.subject, v.STATUS, v.CANCELLED)
        else:
            yield Quad(self.subject, v.DELAY, integer(delay))
        yield Quad(self.subject, v.PLATFORM, literal(self.origin))
        if self.delay is not None and at >= self.scheduled + timedelta(seconds=self.delay):
            yield Quad(self.subject, v.STATUS, DEPARTED)

    def announced(self, at: datetime) -> int | None:
        """The delay in seconds that is known at an instant; ``None``: known to be cancelled."""
        if self.delay is None:
            return 0 if at < self.scheduled - _CANCELLATION else None
        if at >= self.scheduled + timedelta(seconds=self.delay):
            return self.delay
        final = max(self.delay, 0)
        if at >= self.scheduled:
            return final
        passed = max(at - (self.scheduled - _BOARD), timedelta(0))
        return int(final * passed.total_seconds() / _BOARD.total_seconds()) // _STEP * _STEP

    def static(self, airport_names: Mapping[str, str]) -> Iterator[Quad]:
        """What never changes.

        Args:
            airport_names: by code; the code itself where there is none.
        """
        subject = self.subject
        # The local time with its offset; where a clock is put back, the first of the two readings.
        local = self.scheduled.astimezone(NEW_YORK).isoformat()
        yield Quad(subject, v.A, v.DEPARTURE)
        yield Quad(subject, v.A, _FLIGHT)
        yield Quad(subject, v.ROUTE_LABEL, literal(f"{self.carrier} {self.number}"))
        yield Quad(
            subject, v.HEAD_SIGN, literal(airport_names.get(self.destination, self.destination))
        )
        yield Quad(subject, v.DEPARTURE_TIME, v.date_time(local))
        yield Quad(subject, v.STOP, iri(f"{FLIGHTS}airports/{self.origin}"))
        yield Quad(subject, _PROVIDER, iri(f"{FLIGHTS}carriers/{self.carrier}"))
        yield Quad(subject, _ARRIVAL_AIRPORT, iri(f"{FLIGHTS}airports/{self.destination}"))


def read_flight(row: Mapping[str, str]) -> Flight:
    """The flight in a row of ``flights.csv``.

    Raises:
        ValueError: a value is malformed.
        TermError: a value does not fit into an IRI.
    """
    hour, minute = divmod(int(row["sched_dep_time"]), 100)
    year, month, day = int(row["year"]), int(row["month"]), int(row["day"])
    scheduled = datetime(year, month, day, hour, minute, tzinfo=NEW_YORK).astimezone(UTC)
    delay = row["dep_delay"]
    subject = iri(
        f"{FLIGHTS}{year}-{month:02}-{day:02}/{row['origin']}/{row['carrier']}{row['flight']}"
    )
    return Flight(
        subject, row["carrier"], row["flight"], row["origin"], row["dest"], scheduled,
        None if delay in {"", "NA"} else round(float(delay) * 60),
    )  # fmt: skip
