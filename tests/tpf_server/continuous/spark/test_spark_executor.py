"""Registered queries that run on Spark, over HTTP, beside the same queries on the native engine."""

import contextlib
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from annotations.clock import ManualClock
from annotations.terms import Term
from tests.support.continuous_site import Site
from tests.support.csparql_spark import settings
from tests.support.eventually import eventually
from tpf_server.continuous.runtime.clock import NO_WAITS, StreamClock, StreamClocks, Waits
from tpf_server.continuous.runtime.errors import ContinuousError
from tpf_server.continuous.runtime.static.static_data import StaticData
from tpf_server.continuous.service.assembly import continuous_service
from tpf_server.errors import SettingsError
from tpf_server.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PATIENCE = 180
TEXT = """REGISTER QUERY {} AS SELECT ?a ?c (COUNT(*) AS ?n)
FROM STREAM <s> [RANGE 20ms STEP 10ms] {{ ?a <urn:at> ?b . ?b <urn:near> ?c }} GROUP BY ?a ?c"""


STREAM = """REGISTER STREAM {} AS CONSTRUCT {{ ?a <urn:q> ?b }}
FROM STREAM <s> [RANGE 20ms STEP 10ms] {{ ?a <urn:at> ?b }}"""


class OnSpark(Site):
    """A server.

    Args:
        spark: its session; ``None``: it never starts.
        work, shared, waits: see `SparkExecutor`.
    """

    def __init__(self, spark: Any, work: Path, shared: str = "", waits: Waits = NO_WAITS) -> None:
        # Only with PySpark can it be imported.
        from tpf_server.continuous.spark.executor import SparkExecutor

        self.starts = threading.Event()

        @contextlib.contextmanager
        def session() -> Iterator[Any]:
            if spark is None:
                self.starts.wait(PATIENCE)
                raise ContinuousError("no Spark")
            yield spark

        def executors(lock: Any) -> Any:
            static, base = self.engine.static, self.engine.base
            made = SparkExecutor(
                static, work, lock, base=base, every=0.1, shared=shared, session=session,
                waits=waits,
            )  # fmt: skip
            return {"spark": made}, "native"

        policies = {"time": "elements", "backlog": 10_000, "lateness": waits.lateness}
        patience = {"patience": waits.patience}
        super().__init__(policies=policies, periodic=patience, body=100_000, executors=executors)
        self.engine.add([("<urn:x>", "<urn:near>", "<urn:y>")])

    def jobs(self) -> list[Any]:
        """What runs on Spark."""
        return list(self.service._executors["spark"]._jobs)  # type: ignore[attr-defined]

    def begin(self, name: str, engine: str, text: str = TEXT) -> requests.Response:
        return self.register(text.format(name), engine=engine)

    def come(self, *elements: tuple[int, str], stream: str = "s") -> None:
        triples = [(at, [f"<urn:{who}>", "<urn:at>", "<urn:x>"]) for at, who in elements]
        lines = ({"timestamp": at, "triple": triple} for at, triple in triples)
        answer = self.push(*lines, name=stream)
        assert answer.ok, answer.text

    def state(self, name: str) -> Any:
        return self.get(f"queries/{name}")

    def answers(self, name: str) -> list[tuple[str, list[dict[str, str]]]]:
        found = self.emissions(name)
        return [(each["at"], sorted(each["result"], key=str)) for each in found if "result" in each]


@pytest.fixture
def site(spark: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[OnSpark]:
    settings(spark)
    parameter = getattr(request, "param", None)
    shared = f"file://{tmp_path}/shared/" if parameter == "url" else ""
    waits = parameter if isinstance(parameter, Waits) else NO_WAITS
    made = OnSpark(spark, tmp_path / "spark", shared, waits)
    yield made
    left = made.jobs()
    made.service.close()
    for each in left:
        eventually(each.ended.is_set)


@pytest.mark.parametrize("site", ["url"], indirect=True)
def test_a_query_on_spark_answers_as_the_native_one_does(site: OnSpark, tmp_path: Path) -> None:
    left = tmp_path / "shared" / "queries1" / "of-a-server-that-was-killed"
    left.mkdir(parents=True)
    for name, engine in (("here", "native"), ("there", "spark"), ("too", "spark")):
        made = site.begin(name, engine)
        assert made.status_code == 201, made.text
        assert made.json()["engine"] == engine
    assert made.json()["state"] in ("starting", "running")
    site.come((1, "ann"), (4, "ann"), (12, "bob"))
    eventually(lambda: site.state("there")["state"] == "running")
    site.come((25, "eve"), (41, "eve"))
    eventually(lambda: len(site.answers("there")) >= 4)
    assert not left.exists()
    assert site.answers("there") == site.answers("here")
    eventually(lambda: len(site.answers("too")) >= 4)
    assert site.answers("too") == site.answers("here")
    assert [len(rows) for _, rows in site.answers("there")] == [1, 2, 2, 1]
    # A micro-batch is counted when it has ended, after its answers.
    eventually(lambda: site.state("there")["job"]["lines"] >= 5)
    assert site.state("there")["spark"] == {"executors": 1, "lost": 0, "waiting": False}
    # It ends with its registration; what it wrote goes, and nothing else stops.
    (job,) = site.jobs()
    assert site.delete("queries/there").status_code == 204
    assert site.state("too")["state"] == "running"
    assert site.delete("queries/too").status_code == 204
    eventually(job.ended.is_set)
    assert list((tmp_path / "shared").iterdir()) == []
    site.come((61, "eve"))
    assert site.state("here")["state"] == "running"


BOTH = TEXT.replace("{{ ?a", "FROM STREAM <o> [RANGE 20ms STEP 10ms] {{ ?a")


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        (NO_WAITS, [(), (110, 120), (), (130, 140, 150, 160, 170, 180), ()]),
        (Waits(lateness=15), [(), (), (), (110, 120, 130, 140, 150, 160, 170), ()]),
        (Waits(patience=30), [(), (), (110,), (120, 130, 140, 150), (160, 170, 180)]),
    ],
)
def test_an_instant_is_due_when_late_elements_and_streams_behind_were_waited_for(
    waits: Waits, expected: list[tuple[int, ...]]
) -> None:
    pytest.importorskip("pyspark")
    from tpf_server.continuous.spark.execution import window_query

    _, query = window_query(BOTH.format("q"), StaticData(), base="http://localhost/")
    streams: dict[Term, StreamClock] = {}
    clocks = StreamClocks(streams, waits)
    query.first = 101
    found = []
    for at, name in ((101, "s"), (124, "s"), (112, "o"), (190, "s"), (190, "o")):
        streams.setdefault(Term(f"<http://localhost/{name}>"), StreamClock()).came(at)
        found.append(query.due(clocks))
        if found[-1]:
            query.answered(found[-1][-1])
    assert found == expected


@pytest.mark.parametrize("site", [Waits(lateness=15), Waits(patience=30), NO_WAITS], indirect=True)
def test_queries_wait_for_late_elements_and_for_streams_behind_others(site: OnSpark) -> None:
    for name, engine in (("here", "native"), ("there", "spark")):
        assert site.begin(name, engine, BOTH).status_code == 201
    eventually(lambda: site.state("there")["state"] == "running")
    site.come((101, "ann"), (124, "bob"))
    # What comes from now on is in another batch.
    eventually(lambda: site.state("there")["job"]["lines"] == 2)
    site.come((112, "eve"), stream="o")
    site.come((118, "joe"), (190, "ann"))
    site.come((190, "ann"), stream="o")
    eventually(lambda: len(site.answers("there")) >= 2)
    assert site.answers("there")[:2] == site.answers("here")[:2]
    waited = site.engine.lateness or site.engine.clocks.waits.patience
    counts = [len(rows) for _, rows in site.answers("there")[:2]]
    assert counts == ([1, 3] if waited else [1, 1])


def test_a_job_that_dies_is_a_state_with_a_reason(site: OnSpark) -> None:
    assert site.begin("there", "spark").status_code == 201
    site.come((1, "ann"), (12, "bob"))
    eventually(lambda: site.state("there")["state"] == "running")
    (job,) = site.jobs()
    nonsense: Any = (13, "no", "triple")
    job.arrive(Term("<http://localhost/s>"), [nonsense], 13)
    site.come((41, "eve"))
    eventually(lambda: site.state("there")["state"] == "stopped")
    assert "its job on Spark failed: " in site.state("there")["error"]

    class Gone:
        """A session whose Java is no more."""

        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError(name)

    assert set(site.state("there")["job"]) == {"batches", "lines", "late"}
    assert site.begin("gone", "spark").status_code == 201
    gone = site.jobs()[-1]
    eventually(lambda: site.state("gone")["state"] == "running")
    gone.batches._session = Gone()
    site.come((61, "eve"))
    eventually(lambda: site.state("gone")["state"] == "stopped")
    assert site.state("gone")["error"] == "the Java that Spark runs in has ended"
    assert site.begin("again", "spark").status_code == 201
    again = site.jobs()[-1]
    assert site.delete("queries/again").status_code == 204
    for each in (job, gone, again):
        eventually(each.ended.is_set)


def test_queries_end_where_too_much_waits_for_spark(
    site: OnSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.begin("there", "spark").status_code == 201
    eventually(lambda: site.state("there")["state"] == "running")
    (job,) = site.jobs()
    site.come((1, "ann"), (12, "bob"))
    eventually(lambda: job.behind == 0)
    monkeypatch.setattr("tpf_server.continuous.spark.executor.MOST_WAITING", 2)
    site.come((13, "ann"), (24, "bob"), (35, "eve"), (46, "joe"))
    eventually(lambda: site.state("there")["state"] == "stopped")
    assert site.state("there")["error"] == "more than 2 triples waited for Spark"
    eventually(job.ended.is_set)


def test_queries_that_differ_in_constants_have_one_shape(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    site = OnSpark(None, tmp_path)

    def shapes_with(name: str, text: str = TEXT) -> int:
        assert site.begin(name, "spark", text).status_code == 201
        (job,) = site.jobs()
        return len({each.windows.shape for each in job.queries})

    assert shapes_with("a") == 1
    # Their names have other lengths: what comes later in the text is at other places.
    assert shapes_with("another") == 1
    assert shapes_with("ofSomethingElse", TEXT.replace("urn:near", "urn:far")) == 2
    assert shapes_with("ofAnotherWindow", TEXT.replace("RANGE 20ms", "RANGE 30ms")) == 3
    assert shapes_with("atOtherInstants", TEXT.replace("{} AS", "{} COMPUTED EVERY 30ms AS")) == 4
    for number, constant in enumerate(("1", "2", "3.0", '"a"', '"b"', "<urn:a>", "<urn:b>")):
        filtered = TEXT.replace("}} GROUP", f"FILTER(?a != {constant}) }} }} GROUP")
        filtered = filtered.replace("} } GROUP", "}} GROUP")
        expected = (5, 5, 6, 7, 7, 8, 8)[number]
        assert shapes_with(f"filtered{number}", filtered) == expected
    # What timestamp() means is beside the operators.
    window = "[RANGE 9ms STEP 3ms]"
    both = f"""REGISTER QUERY {{}} AS SELECT ?x (timestamp(?x, <a>) AS ?t)
        FROM STREAM <a> {window} FROM STREAM <b> {window} {{{{ ?x <urn:p> ?y }}}}"""
    assert [shapes_with("s1", both), shapes_with("s2", both)] == [9, 9]
    assert shapes_with("s3", both.replace("?x, <a>", "?x, <b>")) == 10
    # Blank nodes of two streams are different ones, but are made of rows.
    blank = STREAM.replace("<urn:q> ?b", "<urn:q> []")
    assert [shapes_with("m1", blank), shapes_with("m2", blank)] == [11, 11]
    site.engine.add([("<urn:x>", "<urn:near>", "<urn:z>")])
    assert shapes_with("ofOtherStaticData") == 12
    assert site.state("a")["state"] == site.state("another")["state"] == "starting"
    # What is compiled is said as of a native query.
    assert site.state("a")["batches"]["kernel"] == "off"
    (job,) = site.jobs()
    site.starts.set()
    eventually(job.ended.is_set)
    assert {site.state(name)["error"] for name in ("a", "another", "m1")} == {"no Spark"}
    assert site.jobs() == []
    site.service.close()


def test_a_query_sees_what_comes_after_it(site: OnSpark) -> None:
    for name, engine in (("first", "spark"), ("native1", "native")):
        assert site.begin(name, engine).status_code == 201
    site.come((100, "ann"), (104, "bob"))
    for name, engine in (("second", "spark"), ("native2", "native")):
        assert site.begin(name, engine).status_code == 201
    assert len(site.jobs()) == 1
    # The window of 110 has ann and bob for the first one alone.
    site.come((107, "eve"), (112, "joe"))
    site.come((141, "eve"))
    eventually(lambda: site.answers("second")[-1:] == site.answers("native2")[-1:] != [])
    assert site.answers("first") == site.answers("native1")
    assert site.answers("second") == site.answers("native2")
    assert site.answers("first") != site.answers("second")


def test_what_cannot_run_there_is_refused_with_the_reason(site: OnSpark) -> None:
    counted = TEXT.replace("RANGE 20ms STEP 10ms", "RANGE TRIPLES 5")
    assert site.begin("q", "spark", counted).status_code == 422
    itself = STREAM.replace("<s>", "<made>")
    assert "feed itself" in site.begin("made", "spark", itself).json()["detail"]
    again = STREAM.replace(
        "FROM STREAM <s>", "FROM STREAM <s> [RANGE 9s STEP 1s] FROM STREAM <made>"
    )
    assert "feed itself" in site.begin("made", "spark", again).json()["detail"]
    assert "unknown engine 'flink': native, spark" in site.begin("q", "flink").json()["detail"]
    body = {"query": "SELECT ?a { STREAM <s> [NOW] { ?a ?b ?c } }", "engine": "spark"}
    refused = site.post("queries", json=body)
    assert "CQELS-QL does not run on spark" in refused.json()["detail"]
    assert site.service.queries() == []


def test_what_spark_makes_a_stream_of_queries_of_both_languages_read(site: OnSpark) -> None:
    made = site.begin("made", "spark", STREAM)
    assert made.status_code == 201, made.text
    assert made.json()["stream"] == "http://localhost/made"
    periodic = """REGISTER QUERY {} AS SELECT DISTINCT ?a
        FROM STREAM <made> [RANGE 10s STEP 10ms] {{ ?a <urn:q> ?b }}"""
    assert site.begin("periodic", "native", periodic).status_code == 201
    continuous = {"query": "SELECT ?a { STREAM <made> [RANGE 10s] { ?a <urn:q> ?b } }", "name": "c"}
    assert site.post("queries", json=continuous).status_code == 201
    site.come((1, "ann"), (12, "bob"))
    eventually(lambda: site.state("made")["state"] == "running")
    site.come((41, "eve"))

    def heard() -> set[str]:
        """Who came in the stream."""
        return {row["a"] for each in site.emissions("c") for row in each["added"]}

    eventually(lambda: heard() == {"<urn:ann>", "<urn:bob>"})
    counts = site.get("streams/made")
    assert counts["elements"] >= 2
    assert (counts["dropped"], counts["late"]) == (0, 0)
    # Time passes where it is read, too.
    site.come((200, "eve"))
    site.come((400, "eve"))
    assert ["<urn:ann>", "<urn:bob>"] in [
        [row["a"] for row in rows] for _, rows in site.answers("periodic")
    ]
    # A stream that says it has nothing of the kind ends the query that makes it; the others go on.
    site.service.create_stream("http://localhost/other", ["urn:else"])
    assert site.begin("other", "spark", STREAM).status_code == 201
    site.come((600, "joe"))
    eventually(lambda: site.state("other")["state"] == "running")
    site.come((800, "joe"))
    eventually(lambda: site.state("other")["state"] == "stopped")
    assert "does not declare the predicate <urn:q>" in site.state("other")["error"]
    assert site.state("periodic")["state"] == site.state("c")["state"] == "running"


def test_spark_starts_and_answers_an_example_before_the_first_query(
    site: OnSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpf_server.continuous.spark.batches import MicroBatches

    answered: list[Any] = []
    process = MicroBatches.process

    def recorded(*arguments: Any, **named: Any) -> Any:
        answered.append(process(*arguments, **named))
        return answered[-1]

    with monkeypatch.context() as patched:
        patched.setattr(MicroBatches, "process", recorded)
        site.service._executors["spark"].prepare()
        eventually(lambda: len(answered) == 3 and not (tmp_path / "spark" / "example").exists())
    assert [len(rows.rows) for each in answered for _, answers in each for rows in answers]
    assert site.begin("there", "spark").status_code == 201
    site.come((1, "ann"), (12, "bob"))
    eventually(lambda: len(site.answers("there")) >= 1)


def test_a_server_whose_default_engine_cannot_run_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("TPF_SPARK_JAVA_HOME", str(tmp_path / "none"))
    given = Settings(csparql_engine="spark", data_dir=str(tmp_path))
    with pytest.raises(SettingsError, match=r"csparql_engine = spark: no Java in .*none"):
        continuous_service(given, [], ManualClock(datetime(2020, 1, 1, tzinfo=UTC)))
