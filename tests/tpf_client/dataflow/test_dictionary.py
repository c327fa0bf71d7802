"""Terms as integers: inlined terms come back, old ones are forgotten."""

from hypothesis import example, given
from hypothesis import strategies as st

from annotations.terms import Term
from tpf_client.dataflow.dictionary import TermDictionary
from tpf_client.sparql.expressions.inlined import DECIMAL, INTEGER, TAG

XSD = "http://www.w3.org/2001/XMLSchema#"


def literal(text: str, kind: str) -> Term:
    return Term(f'"{text}"^^<{XSD}{kind}>')


digits = st.text("0123456789", max_size=22)
numbers = st.builds(
    lambda sign, whole, point, rest: sign + whole + (f".{rest}" if point else ""),
    st.sampled_from(["", "-", "+"]),
    digits,
    st.booleans(),
    digits,
)
terms = st.one_of(
    st.builds(literal, numbers, st.sampled_from(["integer", "decimal", "double", "boolean"])),
    st.builds(
        lambda each, tail: literal(f"{each:%Y-%m-%dT%H:%M:%S}{tail}", "dateTime"),
        st.datetimes(),
        st.sampled_from(["Z", "", ".5Z", "+00:00"]),
    ),
    st.sampled_from(
        [literal("true", "boolean"), literal("1", "boolean"), literal("-0", "decimal")]
    ),
    st.builds(lambda number: Term(f"<urn:trip/{number}>"), st.integers(-3, 10**16)),
    st.sampled_from([Term("<urn:trip/007>"), Term("<urn:trip/>"), Term('"x"@en'), Term("_:b1")]),
)


SAME_TO_PYTHON = [
    *(literal(text, "integer") for text in ("10", "1\u0660")),
    *(literal(text, "decimal") for text in ("-10.5", "-1\u0660.5")),
    *(literal(f"2020-01-01T00:00:{text}Z", "dateTime") for text in ("10", "1\u0660")),
    *(literal(f"2020-01-0{text}:00:00Z", "dateTime") for text in ("1T24", "2T00")),
    *(Term(f"<urn:trip/{text}>") for text in ("10", "1\u0660")),
]
"""Python, some of its releases, takes these for the same numbers and instants."""


@given(st.lists(terms, max_size=30), st.booleans())
@example(SAME_TO_PYTHON, False)
@example(SAME_TO_PYTHON, True)
def test_every_term_comes_back(many, keeps):
    dictionary = TermDictionary(permanent=keeps)
    dictionary.register_prefix("urn:trip/")
    numbers = [dictionary.encode(term) for term in many]
    assert [dictionary.decode(number) for number in numbers] == many
    assert [dictionary.encode(term) for term in many] == numbers
    assert len(set(numbers)) == len(set(many))
    assert 0 not in numbers
    for number in numbers:
        assert number.bit_length() <= (103 if number & TAG == DECIMAL else 63)


def test_small_values_need_no_table():
    dictionary = TermDictionary(permanent=False)
    dictionary.register_prefix("urn:trip/")
    values = [literal("42", "integer"), literal("-3.50", "decimal"), Term("<urn:trip/9>")]
    values += [literal("2013-01-01T00:02:00Z", "dateTime"), literal("false", "boolean")]
    for term in values:
        dictionary.encode(term)
    assert len(dictionary) == 0
    assert dictionary.encode(values[0]) & TAG == INTEGER


def test_a_beginning_that_is_known_already_is_not_inlined():
    dictionary = TermDictionary()
    number = dictionary.encode(Term("<urn:trip/9>"))
    assert dictionary.register_prefix("urn:trip/") is None
    assert dictionary.encode(Term("<urn:trip/9>")) == number


def test_only_what_came_with_the_stream_and_is_not_held_is_forgotten():
    dictionary = TermDictionary(permanent=False)
    forgotten = []
    dictionary.on_forget(forgotten.extend)
    with dictionary.permanently():
        kept = dictionary.encode(Term("<urn:static>"))
    old = dictionary.encode(Term("<urn:old>"))
    used = dictionary.encode(Term("<urn:used>"))
    assert dictionary.find("<urn:static>") == kept
    assert dictionary.forget({used, 7}) == 1
    assert forgotten == [old]
    assert dictionary.find("<urn:old>") is None
    assert dictionary.decode(used) == "<urn:used>"
    assert dictionary.encode(Term("<urn:old>")) not in (old, used, kept)
    assert (dictionary.passing, dictionary.lasting) == (2, 1)
    assert dictionary.forget({used}, everything=True) == 2
    assert list(dictionary.texts) == [used]


def test_a_term_of_a_stream_that_a_query_names_lasts():
    dictionary = TermDictionary(permanent=False)
    number = dictionary.encode(Term("<urn:a>"))
    with dictionary.permanently():
        assert dictionary.encode(Term("<urn:a>")) == number
    assert dictionary.forget(set()) == 0
    assert dictionary.find("<urn:a>") == number
