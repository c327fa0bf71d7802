"""Foreign text on terminals."""

import unicodedata

import pytest

from annotations.wording import printable


@pytest.mark.parametrize("text", ["a\nb\tc", "a\r\nb", "é\u0301 \u00a0\u200d😀", "مرحبا", ""])
def test_text_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x9b2J", "\x07", "\rx", "\x7f", "\u202eabc", "\u2066", "\u2028", "\ud800"]
)
def test_controls_do_not(text: str) -> None:
    assert printable(f"a{text}b") == f"a\ufffd{text[1:]}b"


def test_no_control_character_is_forgotten() -> None:
    controls = [chr(n) for n in range(0x3000) if unicodedata.category(chr(n)) == "Cc"]
    turning = [c for c in map(chr, range(0x3000)) if unicodedata.bidirectional(c) in (
        "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")]  # fmt: skip
    assert set(printable(" ".join(controls + turning))) == {"\ufffd", "\n", "\t", " "}
