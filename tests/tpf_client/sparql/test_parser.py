"""The parser and its error messages."""

from contextlib import suppress
from time import process_time

import pytest

from annotations.namespaces import XSD
from annotations.terms import QuadPattern, Term, Variable, literal
from tests.support.w3c import SPARQL11
from tpf_client.errors import QuerySyntaxError, UnsupportedQueryError
from tpf_client.sparql import algebra
from tpf_client.sparql.algebra import (
    BGP,
    Call,
    Constant,
    Filter,
    Join,
    Project,
    VariableRef,
)
from tpf_client.sparql.parser import Dialect, Parser, parse_query
from tpf_client.sparql.rewrite.visitor import join

P = "PREFIX : <http://e/> "


def where(text: str) -> algebra.Pattern:
    pattern = parse_query(P + text).pattern
    assert isinstance(pattern, Project)
    return pattern.input


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("SELECT ?x WHERE { ?x ?p }", 1, 25, "expected a term or a variable, found '}'"),
        ("SELECT *\nWHERE {\n\t?s :p ?o }", 3, 5, "unknown prefix ':'"),
        ("SELECT * { ?s ?p 'abc }", 1, 18, "unexpected an unfinished string"),
        ("SELEKT * {}", 1, 1, "expected SELECT, ASK, CONSTRUCT or DESCRIBE, found 'SELEKT'"),
        ("SELECT * { ?s ?p ?o ", 1, 21, "expected a triple pattern, a group or '}'"),
        ("SELECT * { ?s ?p ?o } LIMIT x", 1, 29, "expected a number, found 'x'"),
        ("SELECT * {} {}", 1, 13, "expected the end of the query, found '{'"),
        ("SELECT * { <a> ?p ?o }", 1, 12, "relative IRI <a> without a BASE"),
        ("SELECT * { ?s ?p ?o FILTER(FOO(?s)) }", 1, 28, "unknown function FOO"),
        ("SELECT * { FILTER(STRLEN(?a, ?b)) }", 1, 19, "STRLEN takes 1 argument(s), not 2"),
        ("SELECT * { ?s ?p ?x BIND(1 AS ?x) }", 1, 31, "?x has a value already"),
        ("SELECT (?n AS ?s)\n{\n ?s ?p ?n }\nLIMIT 3", 1, 8, "?s has a value already"),
        ("SELECT ?y { ?x ?p ?y } GROUP BY ?x", 1, 8, "?y is neither grouped by nor aggregated"),
        (
            "SELECT ?x\n ?x (?y AS ?z) { ?x ?p ?y }\nGROUP BY ?x", 2, 5,
            "?y is neither grouped by nor aggregated",
        ),
        (
            "SELECT (EXISTS { ?x ?q ?y } AS ?e) { ?x ?p ?y } GROUP BY ?x", 1, 8,
            "?y is neither grouped by nor aggregated",
        ),
        (
            "SELECT (IF(EXISTS { ?x ?q ?z }, ?z, 0) AS ?e) { ?x ?p ?y } GROUP BY ?x", 1, 8,
            "?z is neither grouped by nor aggregated",
        ),
        ("DESCRIBE ?y { ?x ?p ?y } GROUP BY ?x", 1, 26, "?y is neither grouped by nor aggregated"),
        ("SELECT * { ?x ?p ?y } GROUP BY ?x", 1, 23, "'*' cannot be grouped"),
        ("SELECT * { FILTER(SUM(?x) > 1) }", 1, 19, "SUM cannot stand here"),
        ("SELECT ?x { ?a ?p ?b } GROUP BY (?a AS ?x) (?b AS ?x)", 1, 44, "?x has a value already"),
        ("SELECT * { _:a ?p 1 OPTIONAL { _:a ?q 2 } }", 1, 32, "_:a occurs in two"),
        ("SELECT * { VALUES (?a ?b) { (1) } }", 1, 29, "2 value(s) wanted, not 1"),
        ("CONSTRUCT WHERE { ?s ?p ?o FILTER(?o) }", 1, 28, "expected '}', found 'FILTER'"),
        ('SELECT * { ?s ?p "\\q" }', 1, 18, "there is no escape \\q"),
        ('SELECT * { ?s ?p "\\uD800" }', 1, 18, "\\uD800 is not a character"),
        ("SELECT * { ?s ?p ?o } LIMIT 1 LIMIT 2", 1, 31, "a second LIMIT"),
        (f"SELECT * {{}} LIMIT {'9' * 5000}", 1, 19, "a number of more than 18 digits"),
        ("", 1, 1, "expected SELECT, ASK, CONSTRUCT or DESCRIBE, found the end of the query"),
    ],
)  # fmt: skip
def test_syntax_errors_point_at_the_place(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(text)
    error = caught.value
    assert (error.line, error.column) == (line, column), str(error)
    assert error.reason.startswith(says), error.reason
    assert str(error) == f"line {line}, column {column}: {error.reason}"
    assert "\n" not in str(error)
    shown, pointer = error.pointed.split("\n")
    assert shown == (text.split("\n")[line - 1] if text else "")
    assert pointer.expandtabs(4).index("^") == len(shown[: column - 1].expandtabs(4))


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("01", '"01"^^<http://www.w3.org/2001/XMLSchema#integer>'),
        ("-1.50", '"-1.50"^^<http://www.w3.org/2001/XMLSchema#decimal>'),
        ("+1e5", '"+1e5"^^<http://www.w3.org/2001/XMLSchema#double>'),
        ("TRUE", '"true"^^<http://www.w3.org/2001/XMLSchema#boolean>'),
        ('"01"^^<http://www.w3.org/2001/XMLSchema#integer>',) * 2,
        ('"a"@EN-gb', '"a"@en-gb'),
        ("'''a\"\n'b'''", '"a\\"\\n\'b"'),
        ('"\\u00e9\\U0001F600"', '"é😀"'),
        (":a\\,b%20c", "<http://e/a,b%20c>"),
        ("<http://e/\\u00e9>", "<http://e/é>"),
    ],
)
def test_terms_keep_their_text(text: str, term: str) -> None:
    assert where(f"SELECT * {{ ?s ?p {text} }}") == BGP(
        (QuadPattern(Variable("?s"), Variable("?p"), Term(term)),)
    )


@pytest.mark.parametrize("verb", [":p", "a", "^:p", ":p/:q", ":p|!:q", "(:p)", ":p+", "?p"])
def test_a_sign_and_a_number_are_one_word(verb: str) -> None:
    for number, kind in {"5": "integer", ".5": "decimal", "5e1": "double"}.items():
        for sign in "+-":
            written = where(f'SELECT * {{ ?s {verb} "{sign}{number}"^^<{XSD}{kind}> }}')
            assert where(f"SELECT * {{ ?s {verb} {sign}{number} }}") == written
    assert where("SELECT * { ?s :p+ 5 }") == where("SELECT * { ?s (:p)+ 5 }")


@pytest.mark.parametrize("test", ["(?x > 1)", "EXISTS { ?x :q _:b }", "(1 = ?x || EXISTS {})"])
def test_a_filter_ends_no_basic_graph_pattern(test: str) -> None:
    inside = where(f"SELECT * {{ _:a :p ?x FILTER {test} _:a :q ?y }}")
    assert inside == where(f"SELECT * {{ _:a :p ?x ; :q ?y FILTER {test} }}")


def test_every_form_may_be_grouped() -> None:
    rest = "{ ?s ?p ?o } GROUP BY ?s HAVING (COUNT(*) > 1) ORDER BY MAX(?o) LIMIT 2"
    wanted = parse_query(f"SELECT ?s {rest}").pattern
    for form in ("ASK", "DESCRIBE ?s", "CONSTRUCT { ?s a ?s }"):
        assert parse_query(f"{form} {rest}").pattern == wanted


def test_collections_become_lists() -> None:
    pattern = where("SELECT * { ?s :p (1 ?x) }")
    assert isinstance(pattern, BGP)
    assert len(pattern.patterns) == 5


def test_operators_bind_as_strongly_as_they_should() -> None:
    pattern = where("SELECT * { FILTER(!?a || ?b && ?c + 2 * -3 = ?d -1) }")
    assert isinstance(pattern, Filter)
    shown = str(pattern.condition)
    assert shown.index("'||'") < shown.index("'!'") < shown.index("'&&'") < shown.index("'='")
    assert "'-3'" not in shown
    assert '"-3"' in shown
    assert "Call(name='-'" in shown


def test_paths_become_joins_as_far_as_they_go() -> None:
    pattern = where("SELECT * { ?s ^:p/:q ?o }")
    assert isinstance(pattern, BGP)
    assert len(pattern.patterns) == 2
    pattern = where("SELECT * { ?s :p/:q* ?o }")
    assert isinstance(pattern, Join)
    assert isinstance(pattern.right, algebra.Path)


def test_prefixes_may_be_declared_again() -> None:
    query = parse_query("BASE <http://e/> PREFIX p: <a/> PREFIX p: <b/> ASK { ?s p:x <y> }")
    (quad,) = next(each for each in algebra.walk(query.pattern) if isinstance(each, BGP)).patterns
    assert quad[1:3] == ("<http://e/b/x>", "<http://e/y>")


def test_star_selects_in_the_order_of_the_text() -> None:
    query = parse_query(
        P + "SELECT * { ?b ^:p ?a . ?d :p ?c BIND(1 AS ?e) FILTER EXISTS { ?x :p 1 } }"
    )
    assert query.variables == ("?b", "?a", "?d", "?c", "?e")


def test_the_same_text_is_parsed_once() -> None:
    assert parse_query("SELECT * { ?s ?p ?o }") is parse_query("SELECT * { ?s ?p ?o }")


@pytest.mark.skipif(SPARQL11.missing, reason="the W3C tests are not in ../shared/data")
def test_every_text_of_the_w3c_tests_can_be_pointed_into() -> None:
    """A truncated query is a query or a syntax error with a position."""
    for path in sorted(SPARQL11.folder.glob("*/*.rq"))[::9]:
        text = path.read_text(encoding="utf-8")
        for end in range(0, len(text), max(1, len(text) // 15)):
            line = _line_of_error(text[:end])
            assert line is None or 1 <= line <= text.count("\n") + 1


def _line_of_error(text: str) -> int | None:
    try:
        parse_query(text, "http://b/")
    except QuerySyntaxError as error:
        return error.line
    except UnsupportedQueryError:
        return None
    return None


@pytest.mark.parametrize(
    ("declared", "name"), [("PREFIX p: <http://{}/>", "p:x"), ("BASE <http://{}/>", "<x>")]
)
def test_what_is_declared_once_and_written_out_again_and_again_is_bounded(
    declared: str, name: str
) -> None:
    def text(uses: int) -> str:
        return declared.format("n" * 50_000) + f" SELECT * {{ VALUES ?x {{ {f'{name} ' * uses}}} }}"

    assert Parser(text(1_000)).query()
    with pytest.raises(QuerySyntaxError, match="with its prefixes written out, the query is too"):
        Parser(text(2_000)).query()


@pytest.mark.parametrize(
    ("text", "each", "names"),
    [
        ("SELECT # {}", "(1 AS ?x#)", 20_000),
        ("SELECT * { VALUES (#) {} }", "?x#", 40_000),
        ("CONSTRUCT { # } {}", "<urn:a> <urn:b> <<( <urn:c> <urn:d> ?x# )>> .", 5_000),
    ],
)
def test_many_names_are_read_in_time_proportional_to_their_number(
    text: str, each: str, names: int
) -> None:
    long = text.replace("#", " ".join(each.replace("#", str(n)) for n in range(names)))
    before = process_time()
    with suppress(UnsupportedQueryError):
        Parser(long).query()
    assert process_time() - before < 6


@pytest.mark.parametrize(
    "name",
    ["re\u0301sume\u0301", "a\u203fb", "a\u2040", "\u00e9\u00b7x", "\U00010000", "a.b-c", "_0"],
)
def test_names_may_have_all_characters_of_the_grammar(name: str) -> None:
    local = [] if name == "_0" else [f"PREFIX {name}: <http://e/> SELECT * {{ {name}:x ?p ?o }}"]
    for text in [f"{P}SELECT * {{ :{name} ?p ?o }}", *local]:
        assert parse_query(text)
    if "." not in name and "-" not in name:
        assert parse_query(f"SELECT ?{name} {{ ?{name} ?p ?o }}").variables == (f"?{name}",)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("{ :s1 :p1 :o1 :s2 :p2 :o2 . }", 15, "expected '.' or '}', found ':s2'"),
        ("{ () }", 6, "expected a predicate"),
        ("{ [] }", 6, "expected a predicate"),
        ("{ () . ?s ?p ?o }", 6, "expected a predicate"),
        ("{ VALUES (?a ?b ?a) { } }", 17, "?a is listed twice"),
        ("{ ?s ?p ?o . . }", 14, "expected a triple pattern"),
        ("{ :\u00aa ?p ?o }", 4, "unexpected '\u00aa'"),
    ],
)
def test_what_the_grammar_does_not_allow(text: str, column: int, says: str) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_query(f"{P}SELECT * {text}")
    assert says in caught.value.reason
    if says:
        assert caught.value.column == column + len(f"{P}SELECT * ")


def test_nodes_that_stand_alone() -> None:
    for text in ("(1)", "[ :p :o ]", "(1) .", "[ :p :o ] . ?s ?p ?o", "() :p :o", "[] :p :o"):
        assert parse_query(f"{P}SELECT * {{ {text} }}")


def _copy(parser: Parser, before: algebra.Pattern) -> algebra.Pattern:
    """Parse ``COPY { … } ?from ?to``."""
    pattern = join(before, parser.group_graph_pattern())
    source = VariableRef(parser.variable())
    return algebra.Extend(pattern, parser.variable(), source)


def _half(parser: Parser) -> algebra.Expression:
    """Parse ``HALF(…)``."""
    parser.advance()
    parser.expect("(")
    half = Call("/", (parser.expression(), Constant(literal("2", datatype=XSD + "integer"))))
    parser.expect(")")
    return half


_COPYING = Dialect(elements={"COPY": _copy}, functions={"HALF": _half}, select_names=True)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("SELECT * { COPY { ?s :p ?a } ?a ?b }", "SELECT * { { ?s :p ?a } BIND(?a AS ?b) }"),
        (
            "SELECT * { ?s :p ?a COPY { copy { ?s :p ?b } ?a ?c } ?b ?d OPTIONAL { ?s :q ?e } }",
            "SELECT * { ?s :p ?a { { ?s :p ?b } BIND(?a AS ?c) } BIND(?b AS ?d) "
            "OPTIONAL { ?s :q ?e } }",
        ),
        ("SELECT (half(?a) AS ?b) { ?s ?p ?a }", "SELECT (?a / 2 AS ?b) { ?s ?p ?a }"),
        ("ASK { FILTER EXISTS { COPY {} ?a ?b } }", "ASK { FILTER EXISTS { BIND(?a AS ?b) } }"),
    ],
)
def test_a_dialect_adds_clauses(text: str, same: str) -> None:
    assert Parser(P + text, dialect=_COPYING).query() == parse_query(P + same)
    with pytest.raises(QuerySyntaxError, match=r"found 'COPY'|unknown function half"):
        parse_query(P + text)


def test_a_dialect_may_use_names_of_the_select_clause() -> None:
    pattern = "{ ?s ?p ?a }"
    text = f"SELECT (?a + 1 AS ?b) (COUNT(*) AS ?n) {pattern} GROUP BY ?b HAVING (?n > 2)"
    same = f"SELECT ?b (COUNT(*) AS ?n) {pattern} GROUP BY (?a + 1 AS ?b) HAVING (COUNT(*) > 2)"
    assert Parser(text, dialect=_COPYING).query() == parse_query(same)
    with pytest.raises(QuerySyntaxError, match="is neither grouped by nor aggregated"):
        parse_query(text)


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("SELECT * { COPY ?a ?b }", 17, "expected '{', found '?a'"),
        ("SELECT * { COPY { ?s ?p } ?a ?b }", 25, "expected a term or a variable, found '}'"),
        ("SELECT * { FILTER(HALF(1, 2)) }", 25, "expected ')', found ','"),
        ("SELECT * { FILTER(HALF) }", 19, "expected an expression, found 'HALF'"),
    ],
)
def test_errors_in_clauses_of_a_dialect_point_at_the_text(
    text: str, column: int, says: str
) -> None:
    with pytest.raises(QuerySyntaxError) as caught:
        Parser(text, dialect=_COPYING).query()
    assert (caught.value.line, caught.value.column, caught.value.reason) == (1, column, says)


def test_clauses_of_a_dialect_count_as_levels() -> None:
    def nested(levels: int) -> str:
        return (
            "SELECT * { "
            + "COPY { " * levels
            + "".join(f"}} ?a ?b{each} " for each in range(levels))
            + "}"
        )

    assert Parser(nested(190), dialect=_COPYING).query()
    with pytest.raises(UnsupportedQueryError, match="nested too deeply"):
        Parser(nested(210), dialect=_COPYING).query()
