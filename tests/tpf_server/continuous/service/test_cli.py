"""``tpf-continuous run``: from files to lines."""

import json
import re
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tpf_client.dataflow.state.ranked_groups import library
from tpf_server.continuous.continuous_engine import Engine
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.plans.batch_report import EVERY, OFF, OTHERWISE, REORDERED
from tpf_server.continuous.runtime.semantics import EngineLimits
from tpf_server.continuous.service import cli
from tpf_server.continuous.service.cli import app

QUERY = """SELECT ?a ?c
FROM NAMED <http://g/>
WHERE { STREAM <http://s/> [RANGE 5ms] { ?a <urn:p> ?b } GRAPH <http://g/> { ?b <urn:q> ?c } }
"""
STREAM = """1\t<urn:a1>\t<urn:p>\t<urn:b1>
3\t<urn:a2>\t<urn:p>\t<urn:b2>
4\t<urn:a3>\t<urn:p>\t<urn:none>
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "query.rq").write_text(QUERY)
    (tmp_path / "graph.ttl").write_text("<urn:b1> <urn:q> 1, 2 . <urn:b2> <urn:q> 'x'@en .")
    (tmp_path / "stream.tsv").write_text(STREAM)
    return tmp_path


def run(files, *more, stream="stream.tsv", query="query.rq"):
    arguments = ["run", str(files / query) if "{" not in query else query]
    arguments += ["--graph", f"http://g/={files / 'graph.ttl'}"]
    arguments += ["--stream", f"http://s/={files / stream}", *more]
    return CliRunner().invoke(app, arguments)


def test_lines_of_results(files):
    result = run(files)
    assert result.exit_code == 0
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    assert sorted(result.output.splitlines()) == [
        f'1\t0\t<urn:a1> "1"{integer}',
        f'1\t0\t<urn:a1> "2"{integer}',
        '2\t0\t<urn:a2> "x"@en',
    ]


def test_a_file_of_results_and_other_semantics(files):
    output = files / "out"
    result = run(files, "--output", str(output), "--semantics", "paper-dstream")
    assert result.exit_code == 0
    assert output.read_text() == ""


def test_a_text_instead_of_a_file_and_graphs_as_elements(files):
    lines = "7\t<urn:a> <urn:p> <urn:b> <urn:g1> .\n7\t<urn:a> <urn:q> <urn:c> <urn:g1> .\n"
    (files / "graphs.nq").write_text(lines + "7\t<urn:a> <urn:q> <urn:d> <urn:g2> .\n")
    text = (
        "SELECT ?x { STREAM <http://s/> [TRIPLES 2] { <urn:a> <urn:p> ?b . <urn:a> <urn:q> ?x } }"
    )
    result = run(files, stream="graphs.nq", query=text)
    assert result.output.splitlines() == ["1\t0\t<urn:c>"]


def test_what_is_wrong_is_said_with_its_place(files):
    (files / "bad.tsv").write_text(STREAM + "5\t<urn:a>\t<urn:p>\n")
    result = run(files, stream="bad.tsv")
    assert result.exit_code == 1
    assert "bad.tsv: line 4: not a" in result.output
    skipped = run(files, "--skip-malformed", stream="bad.tsv")
    assert skipped.exit_code == 0
    assert "1 malformed line or record left out" in skipped.output
    (files / "bad.tsv").write_text("5\t<urn:a>\t<urn:p>\nnothing\n")
    nothing = run(files, "--skip-malformed", stream="bad.tsv")
    assert nothing.exit_code == 1
    assert "nothing but 2 malformed lines or records" in nothing.output
    wrong = run(files, query="SELECT * { STREAM <http://s/> { ?a ?b ?c } }")
    assert wrong.exit_code == 2
    assert wrong.output.startswith("tpf-continuous: line 1, column 31: ")
    assert wrong.output.rstrip().endswith("^")
    assert run(files, "--semantics", "magic").exit_code == 2
    assert run(files, stream="absent").exit_code == 1
    assert run(files, "--lateness", "-1").exit_code == 2
    nothing = CliRunner().invoke(app, ["run", ""])
    assert nothing.output.startswith("tpf-continuous: line 1, column 1: expected SELECT, ASK, ")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ?a { STREAM <http://s/> [NOW] { ?a ?b ?c } STREAM <http://t/> [NOW] { ?a ?b ?c } }",
        "SELECT ?a FROM STREAM <http://t/> [RANGE 4ms STEP 2ms] { ?a ?b ?c }",
        "SELECT ?a FROM NAMED WINDOW <w> ON <http://t/> [RANGE PT1S] { WINDOW <w> { ?a ?b ?c } }",
    ],
)
def test_a_stream_without_a_file_is_named_unless_a_query_makes_it(files, query):
    result = run(files, query=query)
    assert (result.exit_code, result.output) == (
        1,
        "tpf-continuous: query 0 reads <http://t/>, which no --stream names\n",
    )
    makes = "CONSTRUCT { ?a ?b ?c } FROM STREAM <http://s/> [RANGE 4ms STEP 2ms] { ?a ?b ?c }"
    if "FROM STREAM" in query:
        made = run(files, f"REGISTER STREAM <http://t/> AS {makes}", query=query)
        assert (made.exit_code, "\t0\t<urn:a1>\n" in made.output) == (0, True)


def test_a_byte_order_mark_is_no_part_of_a_query_or_stream(files):
    (files / "marked.rq").write_text(QUERY, "utf-8-sig")
    (files / "marked.tsv").write_text(STREAM, "utf-8-sig")
    assert run(files, stream="marked.tsv", query="marked.rq").output == run(files).output


PERIODIC = """SELECT ?a ?c FROM <http://g/> FROM STREAM <http://s/> [RANGE 4ms STEP 2ms]
WHERE { ?a <urn:p> ?b . ?b <urn:q> ?c FILTER(ISNUMERIC(?c)) }"""


def test_c_sparql_is_told_by_its_clauses(files):
    result = run(files, query=PERIODIC)
    assert result.exit_code == 0, result.output
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    assert sorted(result.output.splitlines()) == [
        f'{at}\t0\t<urn:a1>\t"{n}"{integer}' for at in (2, 4) for n in (1, 2)
    ]
    assert run(files, "--semantics", "csparql", query=PERIODIC).output == result.output
    assert run(files, "--semantics", "paper", query=PERIODIC).exit_code == 2
    both = run(files, PERIODIC)
    assert both.exit_code == 2
    assert "some of the queries are CQELS-QL" in both.output


def test_explain(files):
    result = run(files, "--explain", query=PERIODIC)
    assert "Operators as they run" in result.output
    assert result.output.startswith("Operators as written\n\nSELECT result ?a ?c\n")
    for declared, part in (([], "mixed"), (["--declare", "http://s/=urn:p"], "static")):
        result = run(files, "--explain", *declared, query=PERIODIC)
        assert f"graph pattern ({part}) {{ ?b <urn:q> ?c }}" in result.output
    by_graph = (
        "SELECT ?g ?a ?n FROM STREAM <http://s/> [RANGE 2ms STEP 2ms] FROM STREAM <http://t/> "
        "[RANGE 2ms STEP 2ms] { GRAPH ?g { ?a <urn:p> ?b } } "
        "AGGREGATE { (?n, COUNT(?b), {?a, ?g}) }"
    )
    runs = []
    for engine in ("native", "spark"):
        more = ["--stream", f"http://t/={files / 'stream.tsv'}", "--explain", "--engine", engine]
        found = run(files, *more, query=by_graph).output.partition("Operators as they run")[2]
        runs.append(found.count("aggregation ?n"))
    # Of both streams and the graph, or of all at once.
    assert runs == [3, 1]
    plan = json.loads(run(files, "--explain").output)
    assert [each["input"] for each in plan["joins"][0]["inputs"]]


RANKED = """SELECT ?b (COUNT(*) AS ?c)
{ STREAM <http://s/> [RANGE 9ms] { ?a <urn:p> ?b ; <urn:q> ?x } }
GROUP BY ?b ORDER BY DESC(?c) ?b LIMIT 2"""


@pytest.mark.parametrize(
    ("query", "options", "kernel", "reason"),
    [
        (RANKED, [], "compiled", None),
        (RANKED, ["--kernel", "off"], "off", OFF),
        (RANKED, ["--lateness", "5"], "off", REORDERED),
        (RANKED, ["--semantics", "paper-rstream"], "off", EVERY),
        (QUERY, [], "off", OTHERWISE),
    ],
)
def test_explain_says_what_is_compiled(files, query, options, kernel, reason):
    if kernel == "compiled" and library() is None:
        kernel = "off"
    found = json.loads(run(files, "--explain", *options, query=query).output)["batches"]
    assert found["kernel"] == kernel
    assert found["operators"] == ([] if kernel == "off" else ["window", "groups", "order"])
    missing = library() is None and reason is None and kernel == "off"
    assert missing or found.get("reason") == reason
    assert run(files, *options, query=query).exit_code == 0


def test_explain_says_that_nothing_of_other_languages_is_compiled(files):
    rspql = """SELECT ?a FROM NAMED WINDOW <w> ON <http://s/> [RANGE 4ms STEP 2ms]
    WHERE { WINDOW <w> { ?a <urn:p> ?b } }"""
    for query in (PERIODIC, rspql):
        said = run(files, "--explain", query=query).output.splitlines()
        assert said[-1].startswith("Compiled: nothing; ")


def test_results_as_arrow(files):
    output = files / "results.arrow"
    for query, columns, rows in (
        (QUERY, ["?a", "?c"], 3),
        (PERIODIC, ["?a", "?c"], 4),
        ("ASK FROM STREAM <http://s/> [RANGE 4ms STEP 2ms] { ?a <urn:p> <urn:b1> }", [], 2),
    ):
        text = run(files, query=query)
        written = run(files, "--format", "arrow", "--output", str(output), query=query)
        assert (written.exit_code, written.output) == (0, "")
        table = pa.ipc.open_stream(output).read_all()
        assert table.schema.names == ["sequence", "at", "multiplicity", *columns]
        assert table.num_rows == rows == len(text.output.splitlines())
        terms = [each.to_pylist() for each in table.columns[3:]]
        shown = sorted(re.split(r"\s", line, maxsplit=2)[2] for line in text.output.splitlines())
        if columns:
            separator = " " if query == QUERY else "\t"
            assert sorted(map(separator.join, zip(*terms, strict=True))) == shown
        assert run(files, "--format", "arrow", query=query).stdout_bytes == output.read_bytes()


def test_results_as_arrow_are_written_while_they_come(files, monkeypatch):
    few = EngineLimits(backlog=3)
    monkeypatch.setattr(cli, "Engine", partial(Engine, limits=few))
    lines = "".join(f"{at}\t<urn:a{at}>\t<urn:p>\t<urn:b1>\n" for at in (*range(2_500), 9_000))
    (files / "many.tsv").write_text(lines)
    output = files / "results.arrow"
    ask = "ASK FROM STREAM <http://s/> [RANGE 1ms STEP 1ms] { ?a <urn:p> ?b }"
    for query, rows in ((QUERY, 2 * 2_501), (ask, 9_001)):
        written = run(
            files, "--format", "arrow", "--output", str(output), stream="many.tsv", query=query
        )
        assert (written.exit_code, written.output) == (0, "")
        batches = list(pa.ipc.open_stream(output))
        assert sum(each.num_rows for each in batches) == rows
        assert max(each.num_rows for each in batches) <= 2_000
        numbers = [n for each in batches for n in each.column("sequence").to_pylist()]
        assert numbers == sorted(numbers)
        assert query != ask or numbers == [*range(1, 9_002)]


@pytest.mark.parametrize("kind", ["text", "arrow"])
@pytest.mark.parametrize("query", ["CQELS-QL", "C-SPARQL"])
def test_a_query_that_a_limit_stops_ends_the_run(files, monkeypatch, query, kind):
    few = EngineLimits(window_rows=10)
    monkeypatch.setattr(cli, "Engine", partial(Engine, limits=few))
    lines = "".join(f"{at}\t<urn:a{at}>\t<urn:p>\t<urn:b1>\n" for at in range(2_000))
    (files / "many.tsv").write_text(lines)
    pattern = "{ ?a <urn:p> ?b }"
    texts = {
        "CQELS-QL": f"SELECT ?a {{ STREAM <http://s/> [RANGE 9s] {pattern} }}",
        "C-SPARQL": f"SELECT ?a FROM STREAM <http://s/> [RANGE 9s STEP 9ms] {pattern}",
    }
    stopped = run(files, "--format", kind, stream="many.tsv", query=texts[query])
    assert (stopped.exit_code, len(stopped.stderr.splitlines())) == (1, 1)
    assert re.search("more than 10 |10 are allowed", stopped.stderr)
    # What it emitted before is there.
    assert stopped.stdout_bytes


@pytest.mark.parametrize("options", [[], ["--engine", "spark"]])
def test_a_predicate_that_its_stream_does_not_declare_is_malformed(files, monkeypatch, options):
    execution = SimpleNamespace(SparkExecution=None, continuous_session=None, punctuate=None)
    monkeypatch.setitem(sys.modules, "tpf_server.continuous.spark.execution", execution)
    monkeypatch.setattr(cli, "java_for", lambda *_: None)
    (files / "odd.tsv").write_text(f"{STREAM}5\t<urn:a>\t<urn:odd>\t<urn:b>\n")
    declared = ["--declare", "http://s/=urn:p"]
    refused = run(files, *declared, *options, stream="odd.tsv", query=PERIODIC)
    assert refused.exit_code == 1
    assert "odd.tsv: line 4: <http://s/> does not declare the predicate <urn:odd>" in refused.stderr
    if not options:
        skipped = run(files, *declared, "--skip-malformed", stream="odd.tsv")
        assert (skipped.exit_code, skipped.stdout) == (0, run(files).stdout)
        assert "1 malformed line or record left out" in skipped.stderr


def test_a_line_that_is_no_utf_8_is_malformed_as_any_other(files):
    (files / "bad.tsv").write_bytes(STREAM.encode() + b"4\t<urn:\xff>\t<urn:p>\t<urn:b1>\n\xff\n")
    refused = run(files, stream="bad.tsv")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
    assert "bad.tsv: line 4: not a" in refused.stderr
    skipped = run(files, "--skip-malformed", stream="bad.tsv")
    assert (skipped.exit_code, skipped.stdout) == (0, run(files).stdout)
    assert "2 malformed lines or records left out" in skipped.stderr
    (files / "bad.rq").write_bytes(b"SELECT \xff")
    assert run(files, query="bad.rq").exit_code == 2


def test_nothing_is_a_file_of_arrow_too(files):
    output = files / "results.arrow"
    (files / "empty.tsv").write_text("")
    run(files, "--format", "arrow", "--output", str(output), stream="empty.tsv")
    assert pa.ipc.open_stream(output).read_all().num_rows == 0


@pytest.mark.parametrize(
    "options", [[QUERY], ["--explain"], ["--engine", "spark", "--semantics", "csparql"]]
)
def test_what_cannot_be_one_file_of_arrow_is_refused(files, options):
    refused = run(files, *options, "--format", "arrow")
    assert refused.exit_code == 2
    assert "--format arrow is for one query" in refused.output


def test_an_unknown_kernel_is_refused(files):
    refused = run(files, "--kernel", "fast")
    assert refused.exit_code == 2
    assert "'fast' is none of" in refused.output


def test_spark_without_java_is_one_line(files, monkeypatch, tmp_path):
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "nowhere"))
    result = run(files, "--engine", "spark", query=PERIODIC)
    assert result.exit_code == 1
    assert result.output == (
        f"tpf-continuous: no Java in {tmp_path / 'nowhere'} (there is no bin/java that runs); "
        "or take the native engine\n"
    )
    assert run(files, "--engine", "spark").exit_code == 2
    monkeypatch.delenv("TPF_SPARK_HOST", raising=False)
    far = run(files, "--engine", "spark", "--master", "spark://far.test:7077", query=PERIODIC)
    assert far.exit_code == 1
    assert "spark://far.test:7077 cannot reach the driver at 127.0.0.1: set" in far.output


def test_on_spark_too_a_stream_of_before_1970_ends_with_its_last_element(files, monkeypatch):
    (files / "old.tsv").write_text("-7\t<urn:a1>\t<urn:p>\t<urn:b1>\n")
    ends = []

    def no_session(*_):
        raise ContinuousError("no Spark")

    execution = SimpleNamespace(
        SparkExecution=None,
        continuous_session=no_session,
        punctuate=lambda _folder, until: ends.append(until),
    )
    monkeypatch.setitem(sys.modules, "tpf_server.continuous.spark.execution", execution)
    monkeypatch.setattr(cli, "java_for", lambda *_: None)
    result = run(files, "--engine", "spark", stream="old.tsv", query=PERIODIC)
    assert (result.exit_code, result.output) == (1, "tpf-continuous: no Spark\n")
    assert ends == [-6]


def test_the_command_does_not_load_spark():
    code = "import sys, tpf_server.continuous.service.cli; print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_late_elements_of_c_sparql_are_counted(files):
    (files / "late.tsv").write_text(STREAM + "1\t<urn:a4>\t<urn:p>\t<urn:b1>\n")
    result = run(files, query=PERIODIC, stream="late.tsv")
    assert "1 late element came after the evaluation" in result.output


def test_a_stream_that_is_a_variable(files):
    """All streams are read; static data say which count."""
    (files / "more.tsv").write_text("2\t<urn:a9>\t<urn:p>\t<urn:b1>\n")
    (files / "names.ttl").write_text("<http://t/> <urn:in> <urn:hall> .")
    text = "SELECT ?s ?a { STREAM ?s [NOW] { ?a <urn:p> ?b } ?s <urn:in> <urn:hall> }"
    more = ["--stream", f"http://t/={files / 'more.tsv'}", "--static", str(files / "names.ttl")]
    result = run(files, *more, query=text)
    assert (result.exit_code, result.output) == (0, "2\t0\t<http://t/> <urn:a9>\n")
    explained = run(files, "--explain", query=text)
    assert json.loads(explained.output)["reason"] == "?s: there is no stream"


RSPQL_QUERY = (
    "REGISTER ISTREAM <o> AS SELECT ?a ?b FROM NAMED WINDOW <w> ON <http://s/> [RANGE 4ms STEP 2ms]"
    " WHERE { WINDOW <w> { ?a <urn:p> ?b } }"
)


def test_rsp_ql_is_told_by_its_clauses(files):
    result = run(files, query=RSPQL_QUERY)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "4\t0\t<urn:a1>\t<urn:b1>",
        "4\t0\t<urn:a2>\t<urn:b2>",
        "4\t0\t<urn:a3>\t<urn:none>",
    ]
    options = ("--semantics", "rspql", "--report", "content change", "--tick", "tuple")
    at_once = run(files, *options, query=RSPQL_QUERY)
    assert [line.split("\t")[0] for line in at_once.output.splitlines()] == ["1", "3", "4"]


def test_graphs_of_elements_in_rsp_ql(files):
    (files / "named.nq").write_text(
        "1\t<urn:a> <urn:p> <urn:b> <urn:g> .\n2\t<urn:c> <urn:p> <urn:d> .\n"
        "3\t<urn:e>\t<urn:p>\t<urn:f>\n3\t<urn:c> <urn:p> <urn:d> _:h .\n"
    )
    text = RSPQL_QUERY.replace("?a ?b", "?g ?a ?b").replace(
        "{ ?a <urn:p> ?b }", "{ GRAPH ?g { ?a <urn:p> ?b } }"
    )
    result = run(files, stream="named.nq", query=text)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "4\t0\t<urn:g>\t<urn:a>\t<urn:b>",
        "4\t0\t_:h\t<urn:c>\t<urn:d>",
    ]


def test_rsp_ql_explained(files):
    shown = run(files, "--explain", query=RSPQL_QUERY).output
    assert "ISTREAM, report: window close, tick: time" in shown
    assert "window RANGE 4ms STEP 2ms" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tick", "tock"), "'tock' is none of time, batch, tuple"),
        (("--report", "never"), "line 1, column 1: expected WINDOW CLOSE"),
        (("--semantics", "csparql"), "expected QUERY or STREAM, found 'ISTREAM'"),
        (("--engine", "spark"), "only C-SPARQL runs on Spark"),
    ],
)
def test_what_is_wrong_with_rsp_ql(files, options, said):
    result = run(files, *options, query=RSPQL_QUERY)
    assert result.exit_code == 2
    assert said in re.sub(r"\s*│?\n│?\s*", " ", result.output)


def test_languages_are_not_mixed(files):
    arguments = [RSPQL_QUERY, QUERY, "--graph", f"http://g/={files / 'graph.ttl'}"]
    result = CliRunner().invoke(app, ["run", *arguments])
    assert result.exit_code == 2
    assert "CQELS-QL and some RSP-QL" in re.sub(r"\s*│?\n│?\s*", " ", result.output)
