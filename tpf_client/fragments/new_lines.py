"""Lines of a page that say something new: they are parsed together, each for itself."""

import secrets
from typing import Final, NamedTuple

import pyoxigraph as ox

from annotations.errors import NestingError
from annotations.terms import DEFAULT_GRAPH, Quad
from tpf_client.fragments.bodies import quad_of, quad_size, quads_of_body
from tpf_client.fragments.known_lines import LineBlock, SaidLine

# No page can know it, so none can say that a quad of its own comes from another line.
_NAME: Final = f"urn:line:{secrets.token_hex(8)}:"
_WRAPPED: Final = b"<" + _NAME.encode() + b"%d>{%b}\n"


class NewLine(NamedTuple):
    """A line or a word that is to be parsed, and what it says then."""

    block: LineBlock
    text: bytes
    said: SaidLine


class NewLines:
    """What is to be parsed of a page.

    Args:
        url: base for relative IRIs.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._document: list[bytes] = []
        self._new: list[NewLine] = []

    def __len__(self) -> int:
        return len(self._new)

    def direct(self, directives: bytes) -> None:
        """What is added from now on stands after these, too."""
        self._document.append(directives)

    def add(self, new: NewLine, statement: bytes) -> None:
        """Something more, and how it is written as a statement."""
        self._document.append(_WRAPPED % (len(self._new), statement))
        self._new.append(new)

    def parse(self, most: float) -> bool:
        """Note down what each says; whether each is whole and well formed, and all not too much.

        The document holds each line in a graph with the line's number as its name.

        Args:
            most: bytes of memory that the quads may take.
        """
        new = self._new
        said: list[list[Quad]] = [[] for _ in new]
        current: object = None
        place, size = -1, 0
        graph = DEFAULT_GRAPH
        document = b"".join(self._document)
        try:
            for parsed in quads_of_body(document, ox.RdfFormat.TRIG, self._url):
                if parsed.graph_name != current:
                    current = parsed.graph_name
                    if not isinstance(current, ox.NamedNode):
                        return False
                    if not current.value.startswith(_NAME):
                        return False
                    place = int(current.value[len(_NAME) :])
                    block, text, line = new[place]
                    line.quads = said[place]
                    opens = block.opening and text == block.key
                    graph = DEFAULT_GRAPH if opens else block.graph
                quad = quad_of(parsed, graph)
                size += quad_size(quad)
                if size > most:
                    return False
                said[place].append(quad)
        except (NestingError, SyntaxError, ValueError, IndexError):
            # Whoever parses the page as a whole says what is wrong.
            return False
        for (block, text, line), quads in zip(new, said, strict=True):
            if not quads or (block.opening and text == block.key and len(quads) > 1):
                return False
            line.size = sum(map(quad_size, quads))
            if text in block.scope.words:
                block.scope.words[text] = quads[0].object
        return True
