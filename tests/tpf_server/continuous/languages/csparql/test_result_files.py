"""AnswerRows of Spark as files: what is written is read."""

from pathlib import Path

from annotations.terms import Term, Variable
from tpf_server.continuous.runtime.instants.csparql_query import PeriodicAnswer
from tpf_server.continuous.spark.execution import ResultFiles
from tpf_server.spark.folders import LocalFolder


def test_literals_with_what_python_takes_for_line_ends(tmp_path: Path) -> None:
    texts = [f'"a{character}b"' for character in "\u2028\u2029\u0085\x0b\x0c\x1c\r"]
    answers = [
        PeriodicAnswer("q", at, "SELECT", (Variable("?x"),), ((Term(text),), (None,)))
        for at, text in enumerate(texts)
    ]
    files = ResultFiles(LocalFolder(tmp_path))
    files.make()
    files.write(0, answers)
    files.write(1, [])
    assert list(files.read("q")) == answers
    assert files.last_before(2) == answers[-1].at
