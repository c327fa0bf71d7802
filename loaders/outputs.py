"""Outputs that are complete or not there: written aside, then renamed, or put at a URL."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from annotations.terms import Quad
from loaders.errors import OutputError
from tpf_server.errors import ServerError
from tpf_server.store.static.file_systems import RemoteFolder, is_store_url, local_path


def line_of(quad: Quad) -> str:
    """The N-Quads line of a quad, without its line end; in the default graph, it is N-Triples."""
    graph = f" {quad.graph}" if quad.graph else ""
    return f"{quad.subject} {quad.predicate} {quad.object}{graph} ."


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
def output_errors() -> Iterator[None]:
    """Raise what an object store or HDFS refuses in this block as errors of an output.

    Raises:
        OutputError: it refuses, or does not answer.
    """
    try:
        yield
    except ServerError as error:
        raise OutputError(str(error)) from error


def output_path(output: str) -> Path:
    """The path of an output on this machine.

    Args:
        output: a path, or a ``file://`` URL.

    Raises:
        OutputError: it is another URL: this output is not written there.
    """
    path = local_path(output)
    if path is None:
        raise OutputError(f"{output}: nothing is written to {output.partition(':')[0]}://")
    return path


@contextmanager
def put_where_wanted(output: str, *, folder: bool = False) -> Iterator[Path]:
    """A path for a file, or for a directory of files, that go to `output` when the block ends well.

    Args:
        output: a path, which is the path that comes, or a URL of what a `RemoteFolder` is or holds.
        folder: whether files go into it, each whole.

    Raises:
        OutputError: no files go to such a URL, or who has it refuses or does not answer.
    """
    if not is_store_url(output):
        yield output_path(output)
        return
    place, _, name = output.rstrip("/").rpartition("/")
    with TemporaryDirectory(prefix="tpf-load-") as work:
        path = Path(work, name)
        with output_errors(), written(path):
            there = RemoteFolder(output if folder else place, os.environ)
            yield path
            for file in sorted(path.iterdir()) if folder else [path]:
                there.put(file.name, file)


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
