"""RDFS and OWL 2 RL entailment, by command and by hand."""

import re
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdflib import RDF, RDFS
from typer.testing import CliRunner

from loaders.rdf.entailment import Entailment
from tests.loaders.test_cli import ANY, run
from tests.support.examples import examples
from tpf_server.continuous.service.cli import app
from tpf_server.store.static.columnar import open_store
from tpf_server.store.static.rdf_files import QuadTexts

TYPE, CLASS, PROPERTY = f"<{RDF.type}>", f"<{RDFS.subClassOf}>", f"<{RDFS.subPropertyOf}>"
DOMAIN, RANGE = f"<{RDFS.domain}>", f"<{RDFS.range}>"
Fact = tuple[str, str, str]


def followed(facts: set[Fact]) -> set[Fact]:
    """Apply rules rdfs2, 3, 5, 7, 9 and 11 to a fixed point."""
    known = set(facts)
    while True:
        new = set()
        for (s, p, o), (x, q, y) in product(known, repeat=2):
            if q == DOMAIN and x == p:
                new.add((s, TYPE, y))
            if q == RANGE and x == p:
                new.add((o, TYPE, y))
            if q == PROPERTY and x == p:
                new.add((s, y, o))
            if q == CLASS and p == TYPE and o == x:
                new.add((s, TYPE, y))
            if p == q and p in (CLASS, PROPERTY) and o == x:
                new.add((s, p, y))
        if new <= known:
            return known - facts
        known |= new


names = st.sampled_from([f"<urn:{letter}>" for letter in "abcde"])
predicates = st.sampled_from([TYPE, CLASS, PROPERTY, DOMAIN, RANGE, "<urn:a>", "<urn:b>"])


@examples(60)
@given(st.sets(st.tuples(names, predicates, names), max_size=8))
def test_what_follows_by_rdfs_is_what_the_rules_say(facts: set[Fact]) -> None:
    entailment = Entailment("rdfs")
    assert set(entailment.noting((*fact, "") for fact in facts)) == {(*f, "") for f in facts}
    found = {quad[:3] for quad in entailment.derived()}
    # That what stands in the middle of a triple is a property is a rule of its own.
    found = {fact for fact in found if not fact[2].startswith(f"<{RDF}")}
    assert found == {
        (s, p, o) for s, p, o in followed(facts) if p not in (CLASS, PROPERTY) or s != o
    }


def loaded(folder: Path, text: str, *options: str) -> set[QuadTexts]:
    file = folder / "data.trig"
    file.write_text(
        "PREFIX : <urn:> PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>"
        f" PREFIX owl: <http://www.w3.org/2002/07/owl#>\n{text}"
    )
    assert run("load", "rdf", file, "-o", folder / "store", "--replace", *options) == 0
    with open_store(folder / "store") as store:
        return {tuple(map(str, quad)) for quad in store.quads(ANY, 0, 1_000)}  # type: ignore[misc]


def test_graphs_are_worlds_of_their_own_and_letters_stay(tmp_path: Path) -> None:
    text = """:p rdfs:subPropertyOf :q . :s :p 01, "ar"@ar--rtl, <<( :p rdfs:range :c )>> .
    :g { :s :p "there" . :x :knows [ a :Student ] . :Student rdfs:subClassOf :Person }"""
    plain = loaded(tmp_path, text)
    entailed = loaded(tmp_path, text, "--entail", "rdfs")
    assert plain < entailed
    new = {(s, p, o, g) for s, p, o, g in entailed - plain if not o.startswith(f"<{RDF}")}
    (blank,) = {s for s, _, o, _ in plain if o == "<urn:Student>"}
    (graph,) = {g for _, p, _, g in plain if p == "<urn:knows>"}
    (default,) = {g for _, p, _, g in plain if p == PROPERTY}
    assert new == {
        ("<urn:s>", "<urn:q>", '"01"^^<http://www.w3.org/2001/XMLSchema#integer>', default),
        ("<urn:s>", "<urn:q>", '"ar"@ar--rtl', default),
        (blank, TYPE, "<urn:Person>", graph),
    }


def test_the_rules_of_owl(tmp_path: Path) -> None:
    text = """:knows a owl:SymmetricProperty . :in a owl:TransitiveProperty .
    :has owl:inverseOf :of . :a :knows :b ; :in :b ; :has :c . :b :in :c . :c owl:sameAs :d ."""
    found = {quad[:3] for quad in loaded(tmp_path, text, "--entail", "owl-rl")}
    for fact in ("b knows a", "a in c", "c of a", "d of a", "d sameAs c"):
        s, p, o = fact.split()
        predicate = f"<http://www.w3.org/2002/07/owl#{p}>" if p == "sameAs" else f"<urn:{p}>"
        assert (f"<urn:{s}>", predicate, f"<urn:{o}>") in found
    assert not any(s == o for s, _, o in found)


def test_continuous_queries_ask_what_follows(tmp_path: Path) -> None:
    text = ":x a :Student . :Student rdfs:subClassOf :Person ."
    (tmp_path / "s.tsv").write_text("1\t<urn:x>\t<urn:enters>\t<urn:room>\n")
    stream = f"http://t/s={tmp_path / 's.tsv'}"
    for options, lines in (((), 0), (("--entail", "rdfs"), 1)):
        loaded(tmp_path, text, *options)
        for query in (
            "SELECT ?x { ?x a <urn:Person> STREAM <http://t/s> [NOW] { ?x <urn:enters> ?r } }",
            "REGISTER QUERY q AS SELECT ?x FROM STREAM <http://t/s> [RANGE 1s STEP 1s]"
            " { ?x a <urn:Person> ; <urn:enters> ?r }",
        ):
            arguments = ["run", query, "--stream", stream, "--static", str(tmp_path / "store")]
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, done.output
            assert done.stdout.count("<urn:x>") == lines


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--entail", "owl-rl"], 1, r"tpf-load: under owl-rl the data contradict themselves: .*"),
        (["--entail", "rdfs", "--engine", "spark"], 2, "computed by one process"),
        (["--entail", "owl"], 2, "'owl' is not one of"),
    ],
)
def test_what_cannot_be(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    file = tmp_path / "data.ttl"
    file.write_text(
        "PREFIX owl: <http://www.w3.org/2002/07/owl#>\n"
        "<urn:A> owl:disjointWith <urn:B> . <urn:x> a <urn:A>, <urn:B> ."
    )
    assert run("load", "rdf", file, "-o", tmp_path / "store", *arguments) == status
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "store").exists()
