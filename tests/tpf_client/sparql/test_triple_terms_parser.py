"""Triple terms in queries, beside pyoxigraph: once, over changes, over HTTP."""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random

import pyoxigraph as ox
import pytest
from hypothesis import given

from annotations.instants import instant_term
from annotations.labels import Expiration, Fact
from annotations.terms import Quad, Term
from tests.support.evaluation import Evaluation, evaluate
from tests.support.examples import examples
from tests.support.judges import by_pyoxigraph
from tests.support.live_server import START, LiveServer
from tests.support.memory_leaves import LookupLeaves, ScanningLeaves
from tests.support.oracle import quad_of
from tests.support.random_sparql import randoms
from tpf_client import Client, Solutions
from tpf_client.dataflow.construct import construct
from tpf_client.errors import QuerySyntaxError
from tpf_client.sparql.parser import parse_query

PREFIXES = (
    "PREFIX : <http://e/> PREFIX rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>\n"
    "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>\n"
)
TEXT = """
@prefix : <http://e/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
:r rdf:reifies <<( :a :b "x"@ar--rtl )>> .
:q :says <<( :a :b <<( :c :d 1 )>> )>>, <<( :a :a :a )>>, "plain" .
:a :b :c ~ :ann {| :since 2010 |} .
:c :d 1 ~ :other {| :since 2011 ; :by :q |} .
"""
DATA = [quad_of(each) for each in ox.parse(TEXT, ox.RdfFormat.TURTLE)]
URL = "http://server.test/trains"
NAMES = (":a", ":b", ":c", ":r")


@pytest.mark.parametrize(
    "group",
    [
        "?r rdf:reifies <<( ?s :b ?o )>> . ?s ?p ?o",
        "?s :says <<( ?a ?a ?a )>>",
        "?s :says <<( ?s ?p ?o )>>",
        "?s :says <<( _:x ?p _:x )>>",
        "?s :says <<( [] ?p ?o )>>",
        "<<( :a :b :c )>> ?p ?o",
        "<< ?s ?p ?o >> :since ?y",
        "<< :c :d 1 ~ ?r >> :since ?y ; :by ?who .",
        "<< :a :b :c >> .",
        "?x :by ?who . << << :a :b :c >> ?p ?o >> ?y ?z",
        "?s ?p ?o ~ ?r . ?r :since ?y",
        ":a :b :c ~ {| :since ?x |} ~ ?z",
        "?s ?p ?o ~ ?r {| :since ?x ; :by ?y |}, ?o2",
        "?s :b ?o {| :since ?x |} {| :since ?z |}",
        "?q (:says|:none)+ <<( ?a ?b ?c )>>",
        "OPTIONAL { ?r rdf:reifies <<( :a ?p ?o )>> } FILTER(BOUND(?p))",
        "VALUES ?t { <<( :a :a :a )>> <<( :a :b <<( :c :d 1 )>> )>> } ?s :says ?t",
        "?s :says ?t BIND(<<( :a :a :a )>> AS ?u) FILTER(?t = ?u)",
        "?s :says ?t FILTER(isTRIPLE(?t))",
        "?s :says ?t BIND(SUBJECT(?t) AS ?x) BIND(PREDICATE(?t) AS ?y) BIND(OBJECT(?t) AS ?z)",
        "?s :says ?t FILTER(!isTRIPLE(?t) || isTRIPLE(OBJECT(?t)))",
        "?s :says ?t FILTER EXISTS { ?x ?y ?z FILTER(sameTerm(OBJECT(?t), <<( ?x ?y ?z )>>)) }",
        "{ SELECT ?t { ?s :says ?t } } MINUS { ?x :says <<( ?t ?y ?z )>> }",
        "?s :says ?t FILTER(?t IN (<<( :a :a <http://e/a> )>>, 1))",
    ],
)
def test_groups(group: str) -> None:
    text = f"{PREFIXES} SELECT * {{ {group} }}"
    evaluation = evaluate(text, DATA)
    names = evaluation.query.variables
    assert Counter(evaluation.rows()) == by_pyoxigraph(text, DATA, names), text


@pytest.mark.parametrize(
    "expression",
    [
        "TRIPLE(:a, :b, 1)", 'TRIPLE("a", :b, 1)', "TRIPLE(:a, 1, 1)", "TRIPLE(?no, :b, 1)",
        "TRIPLE(BNODE(), :b, 1) = 1", "isTRIPLE(:a)", "isTRIPLE(?no)", "SUBJECT(1)",
        "SUBJECT(<<( :a :b 01 )>>)", "<<( :a a 1 )>>",
        "STR(<<( :a :b 1 )>>)",
        "<<( :a :b 1 )>> = <<( :a :b 1.0 )>>", "<<( :a :b 1 )>> = <<( :a :b 2 )>>",
        "<<( :a :b 1 )>> != <<( :c :b 1 )>>", "<<( :a :b 1 )>> = :a", "<<( :a :b 1 )>> = 1",
        '<<( :a :b "x"^^:odd )>> = <<( :c :b "y"^^:odd )>>',
        "isIRI(<<( :a :b 1 )>>)",
        "isLITERAL(<<( :a :b 1 )>>)", "DATATYPE(<<( :a :b 1 )>>)",
        'LANG("a"@ar--rtl)', 'LANGDIR("a"@ar--rtl)', 'LANGDIR("a"@ar)', 'LANGDIR("a")',
        "LANGDIR(:a)", 'hasLANG("a"@ar)', 'hasLANG("a"@ar--ltr)', 'hasLANG("a")', "hasLANG(:a)",
        'hasLANGDIR("a"@ar)', 'hasLANGDIR("a"@ar--ltr)', "hasLANGDIR(5)", "hasLANG(?no)",
        'STRLANGDIR("a", "ar", "rtl")', 'STRLANGDIR("a", "ar", "up")',
        'STRLANGDIR("a"@en, "ar", "rtl")', 'STRLANGDIR("a", "?", "rtl")',
        'STRLANG("a", "ar--rtl")', 'DATATYPE("a"@ar--rtl)', '"a"@ar--rtl = "a"@ar',
        'sameTerm("a"@ar--rtl, "a"@ar--ltr)', 'CONCAT("a"@ar--rtl, "b"@ar--rtl)',
        'CONCAT("a"@ar--rtl, "b"@ar)', 'SUBSTR("abc"@ar--rtl, 2)', 'UCASE("a"@ar--rtl)',
        'STRBEFORE("ab"@ar--rtl, "b"@ar)', 'CONTAINS("ab"@ar--rtl, "b")',
        'LANGMATCHES(LANG("a"@ar--rtl), "ar")', 'REPLACE("ab"@ar--rtl, "b", "c")',
    ],
)  # fmt: skip
def test_functions(expression: str) -> None:
    text = f"{PREFIXES} SELECT ({expression} AS ?x) {{}}"
    ours = Counter(evaluate(text, []).rows())
    assert ours == by_pyoxigraph(text, [], ["?x"])


def test_terms_in_triple_terms_stay_as_they_are_written() -> None:
    # pyoxigraph writes the numbers of expressions anew.
    for number in ("01", "1.50", "1e0"):
        text = f"{PREFIXES} SELECT (OBJECT(<<( :a :b {number} )>>) AS ?x) {{}}"
        ((term,),) = evaluate(text, []).rows()
        assert str(term).startswith(f'"{number}"')


def test_triple_terms_are_nested_no_deeper_than_they_can_be_read() -> None:
    nested = f"{'<<( <urn:s> <urn:p> ' * 101}1{' )>>' * 101}"
    with pytest.raises(QuerySyntaxError, match="nested more than 100 deep"):
        parse_query(f"ASK {{ ?s ?p {nested} }}")
    assert evaluate(f"SELECT * {{ BIND({nested} AS ?x) }}", []).rows() == [(None,)]


def test_a_literal_is_the_subject_of_nothing() -> None:
    # pyoxigraph ends with an error here.
    text = f'{PREFIXES} SELECT * {{ ?s :says <<( "no" :b :c )>> }}'
    assert evaluate(text, DATA).rows() == []


@pytest.mark.parametrize(
    ("template", "group"),
    [
        (":x :y <<( ?s ?p ?o )>>", "?s ?p ?o"),
        (":x :y <<( :a :b :c )>>", ""),
        (":x :y <<( ?s :p <<( ?s ?p ?o )>> )>>", "?s ?p ?o"),
        ("?r :is ?t . ?t :of <<( ?s :p ?t )>>", "?r rdf:reifies ?t . ?r :since ?s"),
        (":x :y <<( ?o :p ?s )>>", "?s ?p ?o"),
        ("?s ?p ?o ~ ?y", "?s ?p ?o . BIND(:k AS ?y)"),
        ("?s ?p ?o ~ :k {| :by :me |}", "?s ?p ?o"),
        ("<< ?s ?p ?o ~ :k >> :by :me", "?s ?p ?o"),
    ],
)
def test_templates(template: str, group: str) -> None:
    text = f"{PREFIXES} CONSTRUCT {{ {template} }} WHERE {{ {group} }}"
    evaluation = evaluate(text, DATA)
    made = construct(evaluation.query.template, evaluation.variables, evaluation.rows())
    assert Counter({tuple(triple) for triple in made}) == by_pyoxigraph(text, DATA, ())


def test_a_reifier_without_a_name_is_a_new_node() -> None:
    text = f"{PREFIXES} CONSTRUCT {{ ?s ?p ?o {{| :by :me |}} }} WHERE {{ VALUES (?s ?p ?o) {{"
    evaluation = evaluate(text + " (:a :b 1) (:a :b 2) } }", [])
    made = set(construct(evaluation.query.template, evaluation.variables, evaluation.rows()))
    assert len(made) == 6
    assert len({triple.subject for triple in made if triple.subject.startswith("_:")}) == 2


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("?s ?p <<( :a :b )>>", "expected a term or a variable"),
        ("?s ?p <<( :a :b :c", "expected '\\)>>'"),
        ("?s ?p <<( :a (:b) :c )>>", "expected an IRI"),
        ("?s ?p <<( :a :b [:c :d] )>>", "expected '\\]'"),
        ("<< :a :b (1) >> ?p ?o", "expected a term or a variable"),
        ("<< :a :b :c :d >> ?p ?o", "expected '>>'"),
        ("?s :p+ ?o {| :a :b |}", "a path cannot be annotated"),
        ("?s ?p ?o {| |}", "expected a predicate"),
        ("?s ?p ?o {| :a :b", "expected '\\|}'"),
        ("VALUES ?t { <<( ?x :b :c )>> }", "a triple term of data is of IRIs"),
        ("BIND(<<( :a :b )>> AS ?x)", "expected an IRI"),
        ("BIND(TRIPLE(:a, :b) AS ?x)", "TRIPLE takes 3"),
    ],
)
def test_what_is_no_query(group: str, reason: str) -> None:
    with pytest.raises(QuerySyntaxError, match=reason):
        evaluate(f"{PREFIXES} SELECT * {{ {group} }}", [])
    with pytest.raises(SyntaxError):
        ox.Store().query(f"{PREFIXES} SELECT * {{ {group} }}")


@pytest.mark.parametrize(
    ("template", "where", "wanted"),
    [
        (":a :b <<( _:x :p :o )>>", "", ":a :b <<( _:x :p :o )>> ."),
        (":a :b <<( [] :p <<( :s :p _:x )>> )>>", "", ":a :b <<( _:y :p <<( :s :p _:x )>> )>> ."),
        (
            "_:x :b <<( :s :p _:x )>>",
            "VALUES ?n { 1 2 }",
            "_:x :b <<( :s :p _:x )>> . _:y :b <<( :s :p _:y )>> .",
        ),
        ("<< :s :p << ?n :q :o >> >>", "VALUES ?n { :n }",
         "<< :s :p << :n :q :o >> >> ."),
        ("?s :b <<( ?s :p _:x )>>", "VALUES ?s { :a 1 }", ":a :b <<( :a :p _:x )>> ."),
    ],
)  # fmt: skip
def test_a_blank_node_in_a_triple_term_of_a_template_is_a_new_one_in_each_solution(
    template: str, where: str, wanted: str
) -> None:
    query = parse_query(f"{PREFIXES} CONSTRUCT {{ {template} }} WHERE {{ {where} }}")
    evaluation = evaluate(query, [])
    made = construct(query.template, evaluation.variables, evaluation.rows())
    text = "".join(f"{' '.join(triple)} .\n" for triple in made)
    graphs = [
        ox.Dataset(ox.parse(text, ox.RdfFormat.N_TRIPLES)),
        ox.Dataset(ox.parse(f"{PREFIXES} {wanted}", ox.RdfFormat.TURTLE)),
    ]
    for graph in graphs:
        graph.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    assert graphs[0] == graphs[1], text


# ------------------------------------------------------------------------------- random


class Writer:
    """Writes random data and queries that speak of triples."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def term(self, depth: int = 0) -> str:
        if depth < 2 and self.random.random() < 0.35:
            return f"<<( {self.name()} {self.name()} {self.term(depth + 1)} )>>"
        return self.random.choice([*NAMES, "1", "2.5", '"x"@ar--rtl'])

    def name(self) -> str:
        return self.random.choice(NAMES)

    def data(self) -> list[Quad]:
        verbs = (":b", ":c", "rdf:reifies")
        text = "".join(
            f"{self.name()} {self.random.choice(verbs)} {self.term()} .\n"
            for _ in range(self.random.randrange(2, 9))
        )
        prefixes = PREFIXES.replace("PREFIX", "@prefix").replace(">", "> .")
        parsed = ox.parse(prefixes + text, ox.RdfFormat.TURTLE)
        return sorted({quad_of(each) for each in parsed})

    def variable(self) -> str:
        return self.random.choice(["?u", "?v", "?w", "?x"])

    def node(self, depth: int = 0) -> str:
        chance = self.random.random()
        if depth < 2 and chance < 0.5:
            return f"<<( {self.either()} {self.either()} {self.node(depth + 1)} )>>"
        return self.variable() if chance < 0.85 else self.term(2)

    def either(self) -> str:
        return self.variable() if self.random.random() < 0.7 else self.name()

    def triple(self) -> str:
        verb = self.random.choice([":b", ":c", "rdf:reifies", self.variable()])
        match self.random.randrange(5):
            case 0:
                return f"<< {self.either()} {self.either()} {self.node(1)} ~ {self.either()} >> ."
            case 1:
                return f"{self.either()} {verb} {self.either()} ~ {self.either()} ."
            case _:
                return f"{self.either()} {verb} {self.node()} ."

    def group(self) -> str:
        triples = " ".join(self.triple() for _ in range(self.random.choice([1, 1, 2])))
        match self.random.randrange(8):
            case 0:
                return f"{triples} OPTIONAL {{ {self.triple()} }}"
            case 1:
                return f"{{ {triples} }} UNION {{ {self.triple()} }}"
            case 2:
                test = self.random.choice(["isTRIPLE({0})", "{0} = {1}", "OBJECT({0}) = {1}"])
                return f"{triples} FILTER({test.format(self.variable(), self.node(1))})"
            case 3:
                return f"{triples} FILTER NOT EXISTS {{ {self.triple()} }}"
            case _:
                return triples


@examples(100)
@given(randoms)
def test_random_queries(random: Random) -> None:
    writer = Writer(random)
    text = f"{PREFIXES} SELECT * {{ {writer.group()} }}"
    evaluation = Evaluation(text, random.choice([ScanningLeaves, LookupLeaves]))  # type: ignore[arg-type]
    before: set[Quad] = set()
    for _ in range(2):
        quads = set(writer.data())
        evaluation.change(sorted(quads - before), sorted(before - quads))
        before = quads
        try:
            wanted = by_pyoxigraph(text, quads, evaluation.query.variables)
        except RuntimeError:
            # It joins first, and then finds that a literal would be a subject.
            continue
        assert Counter(evaluation.rows()) == wanted, text


def test_over_http(tmp_path: Path) -> None:
    with Client(URL, session=LiveServer(tmp_path, static=DATA).session()) as client:
        for group in (
            "?r rdf:reifies <<( :a :b :c )>>", "?r rdf:reifies <<( ?s ?p ?o )>>",
            "?s :says <<( ?a ?b <<( ?c :d ?e )>> )>>", "?s ?p ?o {| :since ?y |}",
            "VALUES ?t { <<( :a :a :a )>> } ?s :says ?t",
        ):  # fmt: skip
            text = f"{PREFIXES} SELECT * {{ {group} }}"
            found = client.query(text)
            assert isinstance(found, Solutions)
            names = [f"?{name}" for name in found.variables]
            assert Counter(row.row for row in found) == by_pyoxigraph(text, DATA, names)


def test_annotated_facts_of_a_server(tmp_path: Path) -> None:
    server = LiveServer(tmp_path)
    fact = Quad(*map(Term, ("<http://e/a>", "<http://e/delay>", '"5"', "")))
    until = START + timedelta(seconds=30)
    server.publish([Fact(fact, Expiration(until))])
    text = (
        "PREFIX : <http://e/> PREFIX tmp: <http://example.org/temporal#>"
        " SELECT ?s ?delay ?until { ?s :delay ?delay {| tmp:expiration ?until |} }"
    )
    with Client(f"{URL}/rdf-1.2", session=server.session(), clock=server.clock) as client:
        found = client.query(text)
        assert isinstance(found, Solutions)
        assert [row.row for row in found] == [("<http://e/a>", '"5"', instant_term(until))]
    server.close()
