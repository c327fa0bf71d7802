"""C-SPARQL from the command line: recorded streams, drawings and explanations."""

import io
from pathlib import Path

from tpf_server.continuous.service.cli import StreamReplay, explained, run_native

QUERY = """PREFIX : <http://e/>
SELECT ?z ?o FROM <http://e/g> FROM STREAM :s [RANGE 2ms TUMBLING]
WHERE { ?s :p ?o . ?s :in ?z FILTER(?o != "no") }"""


def files(directory: Path) -> tuple[Path, Path]:
    graph = directory / "g.ttl"
    graph.write_text("<http://e/x> <http://e/in> <http://e/z> .")
    stream = directory / "s.tsv"
    stream.write_text('1\t<http://e/x>\t<http://e/p>\t"yes"\n1\t<http://e/x>\t<http://e/p>\t"no"\n')
    return graph, stream


def test_run(tmp_path: Path) -> None:
    graph, stream = files(tmp_path)
    output = io.StringIO()
    replay = StreamReplay([QUERY], [("http://e/s", stream)], graphs=[("http://e/g", graph)])
    done = run_native(replay, replay.engine(), output)
    assert output.getvalue() == '2\t0\t<http://e/z>\t"yes"\n'
    assert (done.elements, done.answers) == (2, 1)


def test_explain(tmp_path: Path) -> None:
    graph, _ = files(tmp_path)
    declared = {"http://e/s": ["http://e/p"]}
    engine = StreamReplay([], graphs=[("http://e/g", graph)], declared=declared).engine()
    text = explained(engine, QUERY)
    assert text.startswith("Operators as written\n\nSELECT result ?z ?o\n")
    assert "graph pattern (static)" in text
    assert "graph pattern (streaming)" in text
