"""Bodies that are compressed on their way, decompressed piece by piece.

Source: RFC 9110, section 8.4.1; RFC 1950 to 1952; RFC 7932.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

try:
    import brotli
except ImportError:  # comes with the server, and is not needed
    brotli = None

PIECE: Final = 2**16
"""About the bytes of a piece at most, however much a few bytes stand for."""
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS
_HEADER: Final = 2
"""Bytes that tell whether there is a header."""
_MOST: Final = 5
"""Codings of one body."""


def _inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    inflate = zlib.decompressobj(_ANY_HEADER)
    held, begun, members = b"", False, 1
    for piece in pieces:
        rest, held = held + piece, b""
        if not begun and len(rest) < _HEADER:
            held = rest
            continue
        while True:
            if inflate.eof:
                inflate, members = zlib.decompressobj(_ANY_HEADER), members + 1
            try:
                data = inflate.decompress(rest, PIECE)
            except zlib.error as error:
                if begun and members > 1:
                    return  # what follows the end is no part of it
                if begun:
                    raise ValueError(f"malformed compression: {error}") from None
                # "deflate" without a header, as some servers write it.
                inflate, begun = zlib.decompressobj(-zlib.MAX_WBITS), True
                continue
            begun = True
            if data:
                yield data
            rest = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if not rest and (inflate.eof or len(data) < PIECE):
                break
    if not inflate.eof:
        raise ValueError("the compressed body ends too early")


def _unbrotlied(pieces: Iterable[bytes]) -> Iterator[bytes]:
    decompressor = brotli.Decompressor()
    try:
        for piece in pieces:
            yield decompressor.process(piece, output_buffer_limit=PIECE)
            while not decompressor.can_accept_more_data():
                yield decompressor.process(b"", output_buffer_limit=PIECE)
        # It may have taken all in, and still hold what it stands for.
        while more := decompressor.process(b"", output_buffer_limit=PIECE):
            yield more
    except brotli.error as error:
        raise ValueError(f"malformed compression: {error}") from None
    if not decompressor.is_finished():
        raise ValueError("the compressed body ends too early")


Decode: TypeAlias = Callable[[Iterable[bytes]], Iterator[bytes]]
_DECODERS: dict[str, Decode] = {"gzip": _inflated, "deflate": _inflated}
# Older ones decompress without a limit.
if hasattr(getattr(brotli, "Decompressor", None), "can_accept_more_data"):
    _DECODERS["br"] = _unbrotlied

ACCEPTED: Final = ", ".join(_DECODERS)
"""What a request says that it understands."""


def decoded(pieces: Iterator[bytes], coding: str) -> Iterator[bytes]:
    """A body as it was before it was compressed, in pieces of about `PIECE` bytes at most.

    Args:
        pieces: what comes; none of them: there is no body.
        coding: the field ``Content-Encoding``; empty: it is not compressed.

    Raises:
        ValueError: it is malformed, ends too early, or is compressed in another way.
    """
    names = [each.strip().lower().removeprefix("x-") for each in coding.split(",")]
    names = [each for each in names if each not in ("", "identity")]
    if len(names) > _MOST:
        raise ValueError(f"compressed {len(names)} times")
    for name in reversed(names):
        decode = _DECODERS.get(name)
        if decode is None:
            raise ValueError(f"compressed by {name[:100]}")
        pieces = _unless_empty(pieces, decode)
    return pieces


def _unless_empty(pieces: Iterator[bytes], decode: Decode) -> Iterator[bytes]:
    for first in pieces:
        yield from decode(_again(first, pieces))


def _again(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from pieces
