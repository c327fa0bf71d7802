"""Recorded facts as a feed: what they say at any instant, told when it begins."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from annotations.labels import Expiration, Fact, Interval
from annotations.methods import METHODS
from annotations.methods.base import Naming
from annotations.methods.method import Method
from annotations.namespaces import integer
from annotations.terms import Quad, iri
from loaders.dynamic import LabelledFacts
from loaders.errors import InputError
from loaders.outputs import line_of
from tests.loaders.rdf.test_pieces import write_compressed

ZERO = datetime(2026, 5, 1, tzinfo=UTC)
P = iri("http://example.org/p")
NAMING = Naming("http://example.org/facts/", "http://example.org/d")


def fact(subject: int, start: int, end: int) -> Fact:
    label = Interval(ZERO + timedelta(seconds=start), ZERO + timedelta(seconds=end))
    return Fact(Quad(iri(f"http://example.org/{subject}"), P, integer(start)), label)


def lines(method: Method, facts: list[Fact]) -> str:
    return "".join(f"{line_of(quad)}\n" for each in facts for quad in method.encode(each, NAMING))


@given(
    st.sets(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1),
    st.sampled_from(METHODS),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_each_fact_is_told_once_and_when_it_begins(
    tmp_path_factory: pytest.TempPathFactory,
    begun: set[tuple[int, int]],
    method: Method,
    files: int,
    seed: int,
) -> None:
    facts = [fact(subject, start, start + 1 + subject % 2) for subject, start in begun]
    random.Random(seed).shuffle(facts)
    folder = tmp_path_factory.mktemp("facts")
    for number in range(files):
        part = lines(method, facts[number::files])
        ending = [".nq", ".nq.gz", ".nq.zst"][number]
        write_compressed(folder / f"part-{number:05}{ending}", part.encode())
    feed = LabelledFacts(str(folder))
    batches = list(feed.batches(None, None))
    assert [each.at for each in batches] == sorted({each.at for each in batches})
    assert all(timedelta(0) <= b.at - b.since < timedelta(milliseconds=1) for b in batches)  # type: ignore[operator]
    read = [Fact(q, Interval(b.since, b.end)) for b in batches for q in b.quads]  # type: ignore[arg-type]
    assert sorted(read) == sorted(facts)
    span = feed.span(None, None)
    assert span == (batches[0].at, max(each.end for each in batches), len(batches))
    cut = batches[len(batches) // 2].at
    assert [*feed.batches(None, cut), *feed.batches(cut, None)] == batches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<urn:a> <urn:b> .\n", "line|facts.nq"),
        ("<urn:a> <urn:b> <urn:c> .\n", "without an interval: <urn:a> <urn:b> <urn:c>"),
        (lines(METHODS[0], [Fact(Quad(P, P, P), Expiration(ZERO))]), "without an interval"),
        (lines(METHODS[1], [fact(1, 2, 3)]).partition("\n")[2], "facts.nq"),
    ],
)
def test_what_is_wrong_is_quoted(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "facts.nq").write_text(text)
    with pytest.raises(InputError, match=message):
        LabelledFacts(str(tmp_path / "facts.nq")).span(None, None)


def test_no_facts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        LabelledFacts(str(tmp_path / "none.nq")).span(None, None)
    for ending in (".gz", ".bz2", ".zst"):
        path = tmp_path / f"facts.nq{ending}"
        write_compressed(path, lines(METHODS[0], [fact(1, 2, 3)] * 100).encode())
        assert LabelledFacts(str(path)).span(None, None) is not None
        for damaged in (path.read_bytes()[:-20], b"nothing"):
            path.write_bytes(damaged)
            with pytest.raises(InputError, match=path.name):
                LabelledFacts(str(path)).span(None, None)
        path.unlink()
    with pytest.raises(InputError, match=r"a folder without \.nq files"):
        LabelledFacts(str(tmp_path)).span(None, None)
    (tmp_path / "part-00000.nq").write_text("")
    assert LabelledFacts(str(tmp_path)).span(None, None) is None
