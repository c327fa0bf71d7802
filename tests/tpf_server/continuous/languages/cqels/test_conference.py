"""The conference scenario of the CQELS paper, with results known from other engines."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from tpf_server.continuous.continuous_engine import Engine, EngineSettings

CONFERENCE = Path(__file__).parents[6] / "shared" / "data" / "conference"
STREAM = "<http://deri.org/streams/rfid>"
FLOORPLAN = "http://deri.org/floorplan/"

# Of 100,000 static triples, by query: rows and digests after 5,000 and 20,000 events.
EXPECTED = {
    "Q1": {5000: (24, "f3abdeae62e7a9e0"), 20_000: (97, "51304f31a612e036")},
    "Q2": {5000: (142_955, "f24778b497489379"), 20_000: (639_981, "91e1204bb8d73d6f")},
    "Q3": {5000: (89, "7064989d076157aa"), 20_000: (375, "efd934f0b36871eb")},
    "Q4": {5000: (743, "fc4c660c10410a93"), 20_000: (3043, "57590469a49ca153")},
    "Q5": {5000: (721, "619c342437792a9e"), 20_000: (3186, "145863c59a41f8c1")},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    if not CONFERENCE.exists():
        pytest.skip("the shared data are absent")
    folder = tmp_path_factory.mktemp("conference")
    generator = CONFERENCE / "gen_conference.py"
    subprocess.run(
        [sys.executable, generator, folder, "--sizes", "10000,100000", "--events", "20000"],
        check=True,
        capture_output=True,
    )
    return folder


class Digest:
    """Rows and the sum of their hashes, modulo 2 to the 64."""

    def __init__(self):
        self.rows = 0
        self.sum = 0

    def __call__(self, emission):
        for row in emission.rows:
            line = f"{emission.sequence}\t0\t{' '.join(row)}"
            self.rows += 1
            digest = hashlib.sha1(line.encode()).digest()
            self.sum = (self.sum + int.from_bytes(digest[:8], "big")) % 2**64

    @property
    def value(self):
        return self.rows, format(self.sum, "x")


def test_digests(data):
    engine = Engine()
    engine.load(data / "floorplan.nt", FLOORPLAN)
    engine.load(data / "dblp_100000.nt")
    digests = {query: Digest() for query in EXPECTED}
    for query, digest in digests.items():
        text = (CONFERENCE / "queries" / f"{query}.rq").read_text()
        engine.register(text.replace("$Name$", "Author 0"), digest)
    lines = (data / "rfid_p200.tsv").read_text().splitlines()
    for number, line in enumerate(lines, 1):
        at, *triple = line.split("\t")
        engine.push(STREAM, triple, int(at))
        if number in (5000, 20_000):
            found = {query: digest.value for query, digest in digests.items()}
            expected = {query: digest[number] for query, digest in EXPECTED.items()}
            assert found == expected, f"after {number} events"


def test_instances_share_a_plan_and_keep_their_results(data):
    """Forty instances of each query in one engine, and each alone."""
    lines = (data / "rfid_p200.tsv").read_text().splitlines()[:1500]
    for query in ("Q1", "Q3", "Q4", "Q5"):
        text = (CONFERENCE / "queries" / f"{query}.rq").read_text()
        found = []
        for share in (True, False):
            engine = Engine(EngineSettings(share=share))
            engine.load(data / "floorplan.nt", FLOORPLAN)
            engine.load(data / "dblp_10000.nt")
            digests = [Digest() for _ in range(40)]
            registered = [
                engine.register(text.replace("$Name$", f"Author {number}"), digest)
                for number, digest in enumerate(digests)
            ]
            for line in lines:
                at, *triple = line.split("\t")
                engine.push(STREAM, triple, int(at))
            found.append([digest.value for digest in digests])
            assert len({id(each.plan) for each in registered}) == (2 if share else 40)
        assert found[0] == found[1]
        assert sum(rows for rows, _ in found[0]) > 0
