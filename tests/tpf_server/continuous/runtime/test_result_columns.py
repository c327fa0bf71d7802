"""Results as record batches of Arrow equal the objects."""

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from tests.support.examples import examples
from tests.support.random_continuous_queries import (
    RANDOM,
    CsparqlWriter,
    QueryWriter,
    in_csparql,
    loaded,
    random_clauses,
    random_elements,
)
from tpf_server.continuous.continuous_engine import Engine, EngineSettings
from tpf_server.continuous.runtime.elements.elements import EPOCH
from tpf_server.continuous.runtime.errors import BacklogError, ContinuousError
from tpf_server.continuous.runtime.semantics import (
    PAPER_ANSWER,
    PAPER_DSTREAM,
    SEMANTICS,
    EngineLimits,
)

TEXT = "SELECT ?a ?b { STREAM <urn:s> [RANGE 3ms] { ?a <urn:p> ?b } }"


def instant(at: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at)


def as_rows(emissions: Any) -> list[tuple[Any, ...]]:
    """The rows that stand for emissions, by definition."""
    found: list[tuple[Any, ...]] = []
    for sequence, at, rows, removed in emissions:
        found += [(sequence, instant(at), -1 if removed else 1, *row) for row in rows]
        if not rows:
            found.append((sequence, instant(at), 0))
    return found


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in batch.columns]
    rows = list(zip(*columns, strict=True))
    assert all(set(row[3:]) <= {None} for row in rows if not row[2])
    return [row if row[2] else row[:3] for row in rows]


@examples(12)
@given(RANDOM)
def test_rows_are_those_of_the_objects(random: Random) -> None:
    text = QueryWriter(random).query()
    elements = random_elements(random, random.randint(1, 12))
    engine = loaded()
    pairs = [
        [engine.register(text, semantics=policy) for _ in range(2)] for policy in SEMANTICS.values()
    ]
    at = 0
    for stream, pause, triples in elements:
        at += pause
        engine.push(stream, triples, at)
        if random.random() < 0.5:
            continue
        for objects, columns in pairs:
            batches = list(columns.results("arrow"))
            assert [row for each in batches for row in rows_of(each)] == as_rows(objects.results())
            assert all(each.schema == columns.columns.schema for each in batches)
            assert columns.columns.schema.names[3:] == list(columns.query.query.variables)


@examples(8)
@given(RANDOM)
def test_rows_are_those_of_answers_at_instants(random: Random) -> None:
    clauses = random_clauses(random)
    text = in_csparql(CsparqlWriter(random, clauses).query(1), clauses, None)
    engine = Engine()
    objects, columns = (engine.register_csparql(text) for _ in range(2))
    at = answers = 0
    for stream, pause, triples in random_elements(random, random.randint(1, 12)):
        at += pause
        engine.push(stream, triples, at)
        found = [row for each in columns.results(format="arrow") for row in rows_of(each)]
        expected = [
            (answers := answers + 1, each.at, each.rows, False) for each in objects.results()
        ]
        assert found == as_rows(expected)


WINDOW = "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE 2ms STEP 2ms] WHERE"
FORMS = {
    "SELECT ?b ?nothing": ["?b", "?nothing"],
    "ASK": [],
    "CONSTRUCT { ?b <urn:r> ?a }": ["?s", "?p", "?o"],
    "CONSTRUCT { GRAPH ?a { ?a <urn:q> ?b } ?b <urn:r> 1 }": ["?s", "?p", "?o", "?g"],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("operator", ["ISTREAM", "DSTREAM", "RSTREAM"])
def test_the_columns_of_each_form(form: str, operator: str) -> None:
    engine = Engine()
    asked = f"AS {form} {WINDOW} {{ WINDOW <urn:w> {{ ?a <urn:p> ?b }} }}"
    objects, columns = (
        engine.register_rspql(f"REGISTER {operator} <urn:{name}> {asked}") for name in "xy"
    )
    for at in (1, 2, 5, 6, 11):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", f"<urn:b{at // 4}>"), at)
    engine.finish()
    assert columns.columns.schema.names == ["sequence", "at", "multiplicity", *FORMS[form]]
    expected = [
        (number, each.at, each.rows, operator == "DSTREAM")
        for number, each in enumerate(objects, 1)
    ]
    assert expected
    assert [row for each in columns.results("arrow") for row in rows_of(each)] == as_rows(expected)


def test_each_result_is_given_once_in_whatever_format() -> None:
    engine = Engine(EngineSettings(semantics=PAPER_DSTREAM))
    query = engine.register(TEXT)
    for at in range(0, 50, 10):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", f'"{at}"'), at)
    first = next(iter(query.results()))
    (rest,) = query.results("arrow")
    assert first.removed
    assert rest.column("multiplicity").to_pylist() == [-1] * 3
    assert not list(query)
    with pytest.raises(ValueError, match="'pandas' is neither objects nor arrow"):
        query.results("pandas")  # type: ignore[call-overload]


def test_why_a_query_was_stopped_comes_after_what_it_emitted() -> None:
    engine = Engine(limits=EngineLimits(backlog=2))
    query = engine.register(TEXT)
    for at in range(4):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", f'"{at}"'), at)
    batches = query.results("arrow")
    assert next(batches).num_rows == 2
    with pytest.raises(BacklogError):
        next(batches)
    with pytest.raises(ContinuousError):
        list(query.results("arrow"))


def test_answers_are_numbered_from_one_also_after_a_stop() -> None:
    engine = Engine(limits=EngineLimits(backlog=3))
    query = engine.register_csparql(
        "SELECT ?a FROM STREAM <urn:s> [RANGE 1ms STEP 1ms] { ?a <urn:p> ?b }"
    )
    for at in range(10):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", f'"{at}"'), at)
    assert next(iter(query)).at == 0
    batches = query.results("arrow")
    assert next(batches).column("sequence").to_pylist() == [2, 3]
    with pytest.raises(BacklogError):
        next(batches)


def test_many_rows_are_several_record_batches() -> None:
    engine = Engine(EngineSettings(semantics=PAPER_ANSWER))
    query = engine.register(TEXT.replace("3ms", "9s"))
    for at in range(600):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", f'"{at}"'), at)
    sizes = [each.num_rows for each in query.results("arrow")]
    assert sum(sizes) == 600 * 601 // 2
    assert 65_536 <= max(sizes) < 66_536


def test_rows_that_come_again_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    array = pa.array

    def counted(values: Any, kind: pa.DataType) -> pa.Array:
        nonlocal read
        read += len(values) if kind == pa.string() else 0
        return array(values, kind)

    monkeypatch.setattr("tpf_server.continuous.runtime.running_query.pa.array", counted)
    engine = Engine(EngineSettings(semantics=PAPER_ANSWER))
    objects, columns = (engine.register(TEXT.replace("3ms", "9s")) for _ in range(2))
    for at in range(40):
        engine.push("urn:s", ("<urn:a>", "<urn:p>", f'"{at}"'), at)
    (found,) = columns.results("arrow")
    assert rows_of(found) == as_rows(objects.results())
    assert found.num_rows == 820
    assert read == 2 * 40
