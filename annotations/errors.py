"""Errors of the kernel.

AnnotationError
├── TermError
├── InstantError
├── LabelError
│   └── OverlapError
├── EncodeError
├── DecodeError
├── NestingError
└── MethodError
"""


class AnnotationError(Exception):
    """Root of the errors of this package."""


class TermError(AnnotationError, ValueError):
    """A text that is not an RDF term in N-Triples form."""


class InstantError(AnnotationError, ValueError):
    """An instant without a time zone, or a malformed ``xsd:dateTime``."""


class LabelError(AnnotationError, ValueError):
    """A label that cannot hold."""


class OverlapError(LabelError):
    """Two labels of the same fact overlap in time."""


class EncodeError(AnnotationError, ValueError):
    """A fact that would itself be read as an annotation."""


class DecodeError(AnnotationError, ValueError):
    """Quads that do not form an annotated fact."""


class NestingError(AnnotationError, ValueError):
    """A document is nested too deep, or would grow too large, to be parsed.

    `line` counts from 1; ``None``: in no one line.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason = reason
        self.line = line
        super().__init__(f"line {line}: {reason}" if line else reason)


class MethodError(AnnotationError, ValueError):
    """No annotation method has this name."""
