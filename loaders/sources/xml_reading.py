"""Reads XML of others: without document types, so that no entity can be declared."""

from xml.etree import ElementTree

from loaders.errors import InputError

_CHUNK = 1 << 16
_DEPTH = 200


class _Tree(ElementTree.TreeBuilder):
    """Builds elements, as deep as anything that was meant."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: str, attrs: dict[str, str], /) -> ElementTree.Element:
        self._depth += 1
        if self._depth > _DEPTH:
            raise ValueError(f"elements are nested more than {_DEPTH} deep")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> ElementTree.Element:
        self._depth -= 1
        return super().end(tag)

    def doctype(self, *_: object) -> None:
        """The document has a type."""
        raise ValueError("it has a document type, and may declare entities")


def read_xml(content: bytes, place: str) -> ElementTree.Element:
    """The root of a document.

    Raises:
        InputError: it is no XML, has a document type, or is nested too deep.
    """
    parser = ElementTree.XMLParser(target=_Tree())  # noqa: S314 - see the target
    try:
        for start in range(0, len(content), _CHUNK):
            parser.feed(content[start : start + _CHUNK])
        root: ElementTree.Element = parser.close()
    except ElementTree.ParseError as error:
        line, _ = error.position
        reason = str(error).partition(": line")[0]
        raise InputError(f"not XML ({reason})", place, line) from None
    except (ValueError, LookupError) as error:
        # LookupError: an encoding that nobody knows.
        raise InputError(f"not read ({error})", place) from None
    return root
