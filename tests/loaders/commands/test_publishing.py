"""A server's token from a flag, the environment or a file."""

from pathlib import Path

import pytest
import typer

from loaders.commands.publishing import given_token


def test_a_token_stands_in_a_file_or_is_given(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert given_token(None, None) is None
    assert given_token("given", None) == "given"
    assert given_token(None, file) == "secret"
    for token, path in (("given", file), (None, tmp_path / "none"), (None, tmp_path)):
        with pytest.raises(typer.BadParameter, match=r"not both|No such|directory"):
            given_token(token, path)
    for token in ("s€cret", "secr\u00e9t", "a\nb", "a\x7f"):
        with pytest.raises(typer.BadParameter, match="the token: a token is ASCII"):
            given_token(token, None)
        file.write_text(token + "x")
        with pytest.raises(typer.BadParameter, match="a token is ASCII"):
            given_token(None, file)
