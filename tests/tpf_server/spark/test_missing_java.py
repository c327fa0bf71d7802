"""All commands report a missing Java in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
QUERY = """REGISTER QUERY q AS SELECT ?s FROM STREAM <urn:s> [RANGE 1s STEP 1s] { ?s <urn:p> ?o }"""


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("tpf-load rdf a.nt -o store --engine spark", "; or use --engine local"),
        (
            "tpf-continuous run q.rq --stream urn:s=s.tsv --semantics csparql --engine spark",
            "; or take the native engine",
        ),
    ],
)
def test_without_java_a_command_says_so_in_the_same_words(
    tmp_path: Path, command: str, instead: str
) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "a.nt").write_text('<http://e/a> <http://e/p> "x" .\n')
    (tmp_path / "q.rq").write_text(QUERY)
    (tmp_path / "s.tsv").write_text("1\t<urn:a>\t<urn:p>\t<urn:b>\n")
    name = command.partition(" ")[0]
    done = subprocess.run(
        [sys.executable, "-m", "tpf_client.commands", *command.split()],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(PROJECT), "TPF_SPARK_JAVA_HOME": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == (
        f"{name}: no Java in {tmp_path / 'none'} (there is no bin/java that runs){instead}\n"
    )
    assert done.returncode == 1
