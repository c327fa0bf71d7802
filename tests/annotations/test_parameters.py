"""Terms as values of form variables, and back."""

import pytest
from hypothesis import given

from annotations.errors import TermError
from annotations.terms import Term
from annotations.urls import parameter_of_term, term_of_parameter
from tests.support.facts import OBJECTS_12


@given(term=OBJECTS_12)
def test_a_parameter_is_read_back(term: Term) -> None:
    assert term_of_parameter(parameter_of_term(term)) == term


def test_parameters_with_brackets() -> None:
    assert term_of_parameter("<urn:x>") == "<urn:x>"
    assert term_of_parameter('"5"^^<urn:d>') == '"5"^^<urn:d>'


@pytest.mark.parametrize("text", ["", "x", '"', '"x', '"x"y', '"x"@', '"x"^^y', "_:", "<<( x )>>"])
def test_parameters_that_stand_for_no_term(text: str) -> None:
    with pytest.raises(TermError):
        term_of_parameter(text)
