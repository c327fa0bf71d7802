"""Foreign text on a terminal: nothing in it may move the cursor, or change what is shown."""

import re

_CONTROLS = re.compile(
    "\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """A text without control characters, but for the ends of its lines and tabs.

    Each becomes U+FFFD: those that begin escape sequences, of either kind (C0 and C1), those that
    turn the direction of writing around, and halves of characters.
    """
    return _CONTROLS.sub("\ufffd", text)
