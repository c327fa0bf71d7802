"""The words of texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.tokens import Token, tokenize

PIECES = (
    "a", "Z", "_", "0", "7", "-", ".", ":", "%4a", "\\~", "\\", "e", "E", "+", "?", "$", "<", ">",
    "_:", "'", '"', "\'\'\'", '"""', "@en", "--ltr", "^^", " ", "\n", "#", "{|", "|}", "<<(", "&&",
)  # fmt: skip


def words(text: str) -> list[Token] | tuple[str, int, int]:
    """The words, or what is wrong."""
    try:
        return tokenize(text)
    except QuerySyntaxError as error:
        return error.reason, error.line, error.column


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_words_are_the_same_whatever_a_comment_says(text: str) -> None:
    """ASCII texts have patterns of their own."""
    assert words(f"{text}\n#e") == words(f"{text}\n#\u00e9")


@pytest.mark.parametrize("text", ["'{}'", '"""{}"""', "<urn:{}>", "?{}", "p:{}", "_:{}", "# {}"])
def test_half_of_a_surrogate_pair_is_a_syntax_error(text: str) -> None:
    """What a shell gives for bytes that are no UTF-8."""
    for half in "\ud800\udcff":
        with pytest.raises(QuerySyntaxError, match="half of a surrogate pair") as caught:
            tokenize(text.format(half))
        assert caught.value.column == text.index("{") + 1
