"""Output directories that are complete or not there: written aside, then renamed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loaders.errors import OutputError


def check_output(output: Path, replace: bool) -> None:
    """Refuse, before any work, an output that must not or cannot be written.

    Raises:
        OutputError: it exists and is not to be replaced, or is no directory.
    """
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output} is not a directory")
    if output.exists() and not replace and any(output.iterdir()):
        raise OutputError(f"{output} exists already; --replace writes it anew")


@contextmanager
def written(output: Path) -> Iterator[None]:
    """What the system refuses in this block, as a full disk does, is told with the path.

    Raises:
        OutputError: it refused something.
    """
    try:
        yield
    except OSError as error:
        raise OutputError(f"{error.filename or output}: {error.strerror or error}") from error


@contextmanager
def directory_aside(output: Path, replace: bool = False) -> Iterator[Path]:
    """A new directory that takes the place of `output` when the block ends well.

    It lies beside `output`, so that the rename is atomic. When the block fails, `output` is as it
    was before.

    Raises:
        OutputError: `output` exists and is not to be replaced, or cannot be written.
    """
    check_output(output, replace)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    except OSError as error:
        raise OutputError(f"{output}: {error.strerror or error}") from error
    try:
        aside.chmod(0o755)
        with written(output):
            yield aside
        if output.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{output.name}.old.", dir=output.parent))
            os.replace(output, old)
            os.replace(aside, output)
            shutil.rmtree(old)
        else:
            os.replace(aside, output)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
