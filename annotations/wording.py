"""Words that several parts say."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """So many of something: ``1 fact``, ``2 facts``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of the project, which is on no package index."""
    return f"in a clone of the project, pip install '.{f'[{extra}]' if extra else ''}'"
