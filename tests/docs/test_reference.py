"""The reference of the packages can be written: `./run docs`."""

import warnings

from tests.reference import looked_at, warnings_of


def test_the_reference_is_written_without_a_warning() -> None:
    assert warnings_of(looked_at) == []


def test_what_is_warned_of_is_told_once() -> None:
    def warned() -> None:
        for text in ("no type", "no type", "no module"):
            warnings.warn(text, stacklevel=1)

    assert warnings_of(warned) == ["no type", "no module"]
