"""A cluster whose executors cannot reach the driver is refused at once."""

from pathlib import Path
from threading import RLock

import pytest

from tpf_client import commands
from tpf_server.continuous.languages.csparql.parser import parse
from tpf_server.continuous.runtime.errors import UnsupportedContinuousQueryError
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.spark.java import JavaNotFoundError, SparkSettingError
from tpf_server.spark.session import SparkSettings, java_for, spark_context

QUERY = "REGISTER QUERY q AS SELECT ?s FROM STREAM <urn:s> [RANGE 1s STEP 1s] { ?s <urn:p> ?o }"
REASON = "executors of {} cannot reach the driver at {}: set TPF_SPARK_HOST to the address"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "localhost", "::1"])
@pytest.mark.parametrize(
    "master",
    ["spark://far.test:7077", "spark://10.0.0.7:7077", "spark://localhost:7077,far.test:7077",
     "spark://[fd00::1]:7077", "yarn", "k8s://https://far.test:443", "k8s://https://127.0.0.1:443"],
)  # fmt: skip
def test_a_driver_at_loopback_is_for_this_machine(master: str, host: str, tmp_path: Path) -> None:
    settings = SparkSettings(master=master, host=host, java_home=str(tmp_path))
    with pytest.raises(SparkSettingError) as refused:
        java_for(settings, {})
    assert str(refused.value).startswith(REASON.format(master, host))
    with pytest.raises(SparkSettingError), spark_context(settings, {}):
        pass


@pytest.mark.parametrize(
    ("master", "host"),
    [("local[*]", "127.0.0.1"), ("local", "::1"), ("local-cluster[2,1,1024]", "localhost"),
     ("spark://127.0.0.1:7077", "127.0.0.1"), ("spark://localhost:7077,[::1]:7077", "localhost"),
     ("spark://far.test:7077", "10.0.0.1"), ("yarn", "driver.test")],
)  # fmt: skip
def test_others_are_started(master: str, host: str, tmp_path: Path) -> None:
    with pytest.raises(JavaNotFoundError):
        java_for(SparkSettings(master=master, host=host, java_home=str(tmp_path)), {})


def test_a_registration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from tpf_server.continuous.spark.executor import SparkExecutor

    monkeypatch.delenv("TPF_SPARK_HOST", raising=False)
    master = "spark://far.test:7077"
    executor = SparkExecutor(StaticData(), tmp_path, RLock(), base="u:", master=master)
    reason = REASON.format(master, "127.0.0.1")
    with pytest.raises(UnsupportedContinuousQueryError, match=reason):
        executor.start(parse(QUERY, "u:"), lambda _answer: None, name="q")


@pytest.mark.parametrize(
    "words",
    [
        "rdf a.nt -o store --engine spark --master MASTER",
        "stream . http://127.0.0.1:9/t --checkpoint c --once --master MASTER",
    ],
)
def test_a_command_says_what_to_set(
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TPF_SPARK_HOST", raising=False)
    Path("a.nt").write_text('<http://e/a> <http://e/p> "x" .\n')
    master = "spark://far.test:7077"
    assert commands.run("tpf-load", words.replace("MASTER", master).split()) != 0
    assert REASON.format(master, "127.0.0.1") in capsys.readouterr().err.replace("\n", " ")
