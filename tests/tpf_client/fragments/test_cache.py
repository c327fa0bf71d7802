"""The cache charges pages their memory."""

import gc
import tracemalloc
from datetime import UTC, datetime

import pytest

from tpf_client.fragments.fetcher import PageCache
from tpf_client.fragments.page import LineMemo, Page
from tpf_client.fragments.page_reader import PageReader

URL = "http://ex.org/d"
NOW = datetime(2020, 1, 1, tzinfo=UTC)
ROWS = 1000


def _body(version: int) -> bytes:
    """A page of labelled facts as our server writes it."""
    stations = [f"</station/{row:05d}>" for row in range(ROWS)]
    values = [(row * 7 + version) % 97 for row in range(ROWS)]
    lines = [
        "@prefix x: <http://www.w3.org/2001/XMLSchema#> .",
        "@prefix t: <http://example.org/temporal#> .",
        "@base <http://ex.org/> .",
        *(f'{s} <http://ex.org/delay> "{v}" .' for s, v in zip(stations, values, strict=True)),
        "<http://ex.org/d#m> {",
        f'_:l1 t:expiration "2020-01-0{version + 1}T00:00:00Z"^^x:dateTime .',
        f"_:l1 t:predicate </delay>;t:subject {','.join(stations)} .",
        "<http://ex.org/d#m> <http://xmlns.com/foaf/0.1/primaryTopic> <http://ex.org/d> .",
        "}",
    ]
    return "\n".join(lines).encode()


@pytest.mark.parametrize("again", [True, False])
def test_pages_are_charged_what_they_take(again: bool) -> None:
    """With remembered lines, too."""
    PageReader().read(_body(9), "application/trig", URL)
    gc.collect()
    tracemalloc.start()
    try:
        known = LineMemo() if again else None
        for version in range(3):
            body = _body(version)
            read = PageReader().read(body, "application/trig", URL, before=known)
            known = read.memo if again else None
        size = len(body)
        page = Page(URL, read.facts, read.metadata, NOW, NOW, size=size, memo=known)
        del body, read, known
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    cache = PageCache(2**30)
    cache.put(page)
    assert 0.75 * taken < cache.size < 1.25 * taken, (cache.size / size, taken / size)
