"""The token of a server: from a flag, the environment or a file."""

from pathlib import Path

import pytest
import typer

from loaders.commands.publishing import token_of


def test_a_token_stands_in_a_file_or_is_given(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")
    assert token_of(None, None) is None
    assert token_of("given", None) == "given"
    assert token_of(None, file) == "secret"
    for token, path in (("given", file), (None, tmp_path / "none"), (None, tmp_path)):
        with pytest.raises(typer.BadParameter, match=r"not both|No such|directory"):
            token_of(token, path)
