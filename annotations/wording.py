"""Words that several parts say."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 fact``, ``2 facts``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of the project."""
    return f"in a clone of the project, pip install '.{f'[{extra}]' if extra else ''}'"
