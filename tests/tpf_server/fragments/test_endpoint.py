"""Common properties of the fragments of an endpoint."""

from pathlib import Path

from annotations.terms import Quad, Term
from tests.support.live_server import LiveServer

QUAD = Quad(Term("<urn:s>"), Term("<urn:p>"), Term("<urn:o>"))


def test_machines_that_serve_the_same_give_the_same_tags(tmp_path: Path) -> None:
    tags = []
    for number, more in enumerate(({}, {}, {"page_size": 7})):
        server = {"host": f"10.0.0.{number}", "port": 3000 + number, "data_dir": f"data-{number}",
                  "workers": number + 1, "publish_token_file": f"/{number}",
                  "allow_streams": {"http://streams.test/": f"secret{number}"}, **more}  # fmt: skip
        folder = tmp_path / str(number)
        folder.mkdir()
        live = LiveServer(folder, [QUAD], live=False, server=server, source=f"/srv/{number}.store")
        answer = live.session().get(live.url, headers={"Accept": "text/turtle"})
        assert answer.headers["Cache-Control"] == "public, max-age=3600, stale-while-revalidate=60"
        tags.append(answer.headers["ETag"])
        live.close()
    assert tags[0] == tags[1] != tags[2]


def test_live_pages_are_never_shown_stale(tmp_path: Path) -> None:
    live = LiveServer(tmp_path, [QUAD])
    answer = live.session().get(live.url, headers={"Accept": "text/turtle"})
    assert answer.headers["Cache-Control"] == "public, max-age=10"
    live.close()
