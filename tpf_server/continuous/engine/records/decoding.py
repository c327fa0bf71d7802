"""Columns that are encoded by dictionaries or runs, as plain ones.

A dictionary is shared by all records of a file: what is wrong with a text in it is wrong with the
records that have the text, and only damage is wrong with all.
"""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

# Of the types of texts, those of which nothing is to be UTF-8.
_BYTES: Final = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


def check_encoding(column: pa.Array) -> None:
    """See that a column can be decoded: its dictionary or its runs are not damaged.

    Texts that are no UTF-8 are wrong only where records have them.

    Raises:
        pa.ArrowInvalid: they are damaged.
    """
    values = column
    while True:
        if pa.types.is_dictionary(values.type):
            values.validate()
            values = values.dictionary
        elif pa.types.is_run_end_encoded(values.type):
            values.validate()
            # This sees to the order of ends, whatever the values are.
            pa.RunEndEncodedArray.from_arrays(values.run_ends, values.run_ends)
            values = values.values
        else:
            break
    if values is not column and (kind := _BYTES.get(values.type)) is not None:
        values.cast(kind).validate(full=True)


def value_type(kind: pa.DataType) -> pa.DataType:
    """The type of what a column has, without what encodes it."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    return kind


def decodable(column: pa.Array) -> pa.Array:
    """The same column, whose dictionary is none of views: nothing takes these by their places.

    It takes the time of the whole dictionary, whatever part of a column this is.
    """
    if not (
        pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.dictionary.type)
    ):
        return column
    return pa.DictionaryArray.from_arrays(column.indices, _texts(column.dictionary), safe=False)


def _texts(views: pa.Array) -> pa.Array:
    return views.cast(pa.large_string())


def decoded(column: pa.Array) -> pa.Array:
    """The same values, encoded neither by a dictionary nor by runs; see `check_encoding`.

    Raises:
        IndexError: one is not in the dictionary.
        pa.ArrowNotImplementedError: what encodes them encodes no such values.
    """
    while True:
        if pa.types.is_dictionary(column.type):
            column = decodable(column).dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        else:
            return column
