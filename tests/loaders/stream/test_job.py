import pickle
from datetime import timedelta

import pytest

from annotations.instants import LAST, to_micros
from annotations.labels import Labelling
from loaders.jobs import step
from loaders.stream.job import _parsed
from loaders.stream.records import RdfRecords

TEXT = b'<http://e/a> <http://e/b> "c" .\n'


@pytest.mark.parametrize(
    ("at", "labelling", "problem"),
    [
        (0, "expiration", None),
        (to_micros(LAST), "expiration", None),
        (to_micros(LAST), "interval", "must end after it starts"),
        (to_micros(LAST) + 1, "expiration", "date value out of range"),
        (2**62, "expiration", "date value out of range"),
    ],
)
def test_a_record_that_no_label_fits_is_left_out(
    at: int, labelling: Labelling, problem: str | None
) -> None:
    parsed = _parsed(RdfRecords(timedelta(hours=1), labelling), "a.nq", at, TEXT)
    if problem is None:
        assert parsed.problem is None
        assert parsed.publication is not None
        assert (parsed.publication.facts, parsed.publication.body) == (1, TEXT.decode())
    else:
        assert problem in str(parsed.problem)


@pytest.mark.parametrize("suffix", ["nq", "jsonld"])
def test_a_message_without_a_value_says_nothing(suffix: str) -> None:
    """Kafka has those of what was deleted."""
    parsed = _parsed(RdfRecords(timedelta(hours=1), suffix=suffix), "topic-0-7", 0, None)
    assert parsed == ("topic-0-7", None, None)


def test_a_step_keeps_its_name_on_its_way_to_a_worker() -> None:
    sent = pickle.loads(pickle.dumps(step(_parsed, RdfRecords(None), "a.nq")))
    assert (sent.__name__, sent(0, TEXT).name) == ("_parsed", "a.nq")
