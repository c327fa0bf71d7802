"""Small drawings of how much was published lately, without styles of their own."""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

_WIDE: Final = 3
_GAP: Final = 1
_HIGH: Final = 24


def sparkline(counts: Sequence[int]) -> Markup:
    """Bars for the counts of minutes, the highest as high as the drawing, with what it shows.

    Args:
        counts: of each minute; the present one last.
    """
    most = max(counts, default=0)
    if not most:
        return Markup('<span class="note">no updates in the last hour</span>')
    bars = "".join(
        f"M{place * _WIDE},{_HIGH}v-{max(1, round(count * _HIGH / most))}h{_WIDE - _GAP}V{_HIGH}z"
        for place, count in enumerate(counts)
        if count
    )
    said = f"{sum(counts):,} updates in the last hour, at most {most:,} in a minute"
    return Markup(
        '<svg class="updates" viewBox="0 0 {} {}" role="img" aria-label="{}"><title>{}</title>'
        '<path d="{}"/></svg> <span class="note">{}</span>'
    ).format(len(counts) * _WIDE, _HIGH, said, said, bars, said)
