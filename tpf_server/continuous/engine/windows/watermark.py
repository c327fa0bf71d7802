"""What of a window a query sees that was registered when the window was in use already."""


class Watermark:
    """Counts registrations.

    A row of a window that queries share whenever they come is stamped with the number of the last
    registration before it; a query sees the rows whose stamps are not smaller than its own number.

    Attributes:
        last: the number of the last registration.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0

    def next(self) -> int:
        """The number of a new registration."""
        self.last += 1
        return self.last
