"""The windows of a micro-batch are read and committed once."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.csparql_program import PREDICATE, STREAM, engine
from tests.support.csparql_spark import by_instant, native, settings, write
from tpf_server.continuous.spark.execution import SparkExecution, punctuate

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PARTITIONS = 2
"""More than one: of one alone Spark knows all that it needs to find a kept frame again."""
WINDOW = "PREFIX : <http://e/> SELECT * FROM STREAM :s [RANGE 4ms STEP 2ms] WHERE "
QUERIES = {
    "joins": WINDOW + "{ ?s :value ?v . ?t :value ?v . ?s :in ?z . ?t :in ?z }",
    "optional, aggregate": WINDOW + "{ ?s :value ?v OPTIONAL { ?t :value ?v FILTER(?t != ?s) } } "
    "AGGREGATE { (?n, COUNT, {?v}) }",
}
ELEMENTS = [
    (STREAM, at, (f"<http://e/{'abc'[at % 3]}>", PREDICATE, f'"{at % 2}"')) for at in range(10, 15)
]


@pytest.mark.parametrize("name", QUERIES)
def test_each_state_store_is_opened_once(spark: Any, tmp_path: Path, name: str) -> None:
    settings(spark)
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    streams = write(tmp_path, [STREAM], ELEMENTS)
    (directory,) = streams.values()
    punctuate(directory, 16)
    execution = SparkExecution(spark, QUERIES[name], engine().static, streams, tmp_path / "out")
    execution.replay()
    # A line for an instant that is answered, and for one that is not: that is two entries of
    # windows, of which one is late, and the mark of its first instant, which is late too.
    late = f'15\t<http://e/a>\t{PREDICATE}\t"late"\n'
    (directory / "more.tsv").write_text(late)
    punctuate(directory, 18)
    assert execution.replay().late == 2
    expected = native(engine(), QUERIES[name], ELEMENTS, 16)
    found = by_instant(list(execution.results.read()))
    assert {at: found[at] for at in by_instant(expected)} == by_instant(expected)
    assert any(found.values())
    run: Any = execution._run
    stores = [
        state["numStateStoreInstances"]
        for batch in run._queries[0].recentProgress
        for state in batch["stateOperators"]
    ]
    assert stores
    assert set(stores) == {PARTITIONS}
