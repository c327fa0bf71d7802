"""Words that several parts say."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """So many of something: ``1 fact``, ``2 facts``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
