"""Windows against a list of them."""

from hypothesis import given
from hypothesis import strategies as st

from tpf_server.continuous.languages.rspql.rspql_query import (
    WINDOW_CLOSE,
    SlidingWindow,
    report_instants,
)

END = 60
windows = st.builds(
    SlidingWindow,
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(-3, 8),
    st.integers(0, 4),
)


def listed(window: SlidingWindow) -> list[tuple[int, int]]:
    """Open and close as they are seen: `past` later."""
    opens = range(window.start + window.past, END + 60, window.step)
    return [(opened, opened + window.range) for opened in opens]


def seen(window: SlidingWindow, at: int) -> list[int]:
    """The timestamps up to `END` that are seen at an instant."""
    present = [(c, o) for o, c in listed(window) if o < at <= c]
    if not present:
        return []
    close, opened = min(present)
    past = window.past
    return [t for t in range(-20, END) if opened < t + past <= min(at, close)]


@given(windows, st.integers(-10, END))
def test_what_is_seen_at_an_instant(window: SlidingWindow, at: int) -> None:
    lower, upper = window.bounds(at)
    assert [t for t in range(-20, END) if lower < t <= upper] == seen(window, at)


@given(windows, st.integers(-10, END))
def test_when_it_closes(window: SlidingWindow, at: int) -> None:
    closes = [close for _, close in listed(window)]
    assert window.closes(at) == min(close for close in closes if close >= at)
    assert window.closed(at) == max((close for close in closes if close <= at), default=None)


@given(windows, st.integers(-5, 20))
def test_when_an_element_leaves(window: SlidingWindow, timestamp: int) -> None:
    instants = [at for at in range(-10, END) if timestamp in seen(window, at)]
    if instants:
        assert window.leaves(timestamp) == instants[-1] + 1


def test_windows_that_close_together_have_the_same_instants() -> None:
    """An answer at them is the load of one."""
    windows = [SlidingWindow(4, 2), SlidingWindow(6, 2, past=2), SlidingWindow(4, 2, own=True)]
    assert report_instants(WINDOW_CLOSE, windows).periods == (2, 2)
    assert report_instants(WINDOW_CLOSE, windows[::2]).periods == (2,)
