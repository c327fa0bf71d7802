import time

import pytest

from loaders.web_files import found_at
from tpf_server.store.static.attempts import AgainError


def test_what_is_no_url_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it is asked again"))
    for wrong in ("http://[x/", "http://h:x/"):
        with pytest.raises(OSError, match="no URL that can be asked") as caught:
            found_at(wrong)
        assert not isinstance(caught.value, AgainError)
