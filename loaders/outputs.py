"""Outputs that are complete or absent."""

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
    """Return a quad's N-Quads line without line end."""
    graph = f" {quad.graph}" if quad.graph else ""
    return f"{quad.subject} {quad.predicate} {quad.object}{graph} ."


def check_output(output: Path, replace: bool) -> None:
    """Raise an `OutputError` early if an output cannot be written."""
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output} is not a directory")
    if output.exists() and not replace and any(output.iterdir()):
        raise OutputError(f"{output} exists already; --replace writes it anew")


@contextmanager
def written(output: Path) -> Iterator[None]:
    """Raise errors of the system as `OutputError` with the path."""
    try:
        yield
    except ConnectionError:
        raise  # of Java, not of a file
    except OSError as error:
        name = str(error.filename or output)
        # Until it is complete, an output has a name that the user does not know.
        shown = output if f"/.{output.name}." in f"/{name}" else name
        raise OutputError(f"{shown}: {error.strerror or error}") from error


@contextmanager
def output_errors() -> Iterator[None]:
    """Raise errors of an object store or HDFS as `OutputError`."""
    try:
        yield
    except ServerError as error:
        raise OutputError(str(error)) from error


def output_path(output: str) -> Path:
    """Return the path of a local output; refuse URLs."""
    path = local_path(output)
    if path is None:
        raise OutputError(f"{output}: nothing is written to {output.partition(':')[0]}://")
    return path


@contextmanager
def put_where_wanted(output: str, *, folder: bool = False) -> Iterator[Path]:
    """Give a local path, moved to `output` on success."""
    if not is_store_url(output):
        yield output_path(output)
        return
    folder_url, _, name = output.rstrip("/").rpartition("/")
    with TemporaryDirectory(prefix="tpf-load-") as work:
        path = Path(work, name)
        with output_errors(), written(path):
            destination = RemoteFolder(output if folder else folder_url, os.environ)
            yield path
            for file in sorted(path.iterdir()) if folder else [path]:
                destination.put(file.name, file)


@contextmanager
def parts_folder(output: str) -> Iterator[Path | RemoteFolder]:
    """Give a folder for files that are parts of an output; ``_SUCCESS`` completes one at a URL."""
    if not is_store_url(output):
        with directory_aside(output_path(output), replace=True) as aside:
            yield aside
        return
    with output_errors():
        folder = RemoteFolder(output, os.environ)
        if names := folder.files():
            raise OutputError(f"{output} is not empty: it has {names[0]}")
        yield folder
        folder.write("_SUCCESS", [])


@contextmanager
def directory_aside(output: Path, replace: bool = False) -> Iterator[Path]:
    """Give a directory that replaces one of parts, also behind a link, on success."""
    check_output(output, replace)
    if output.is_dir() and not all(each.name.startswith("part-") for each in output.iterdir()):
        raise OutputError(f"{output} exists already, with other files: it is left alone")
    output = output.resolve()
    with written(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.parent))
    try:
        aside.chmod(0o755)
        with written(output):
            try:
                yield aside
            except OutputError as error:
                # The user does not know the temporary directory.
                raise OutputError(str(error).replace(str(aside), str(output))) from error
        if output.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{output.name}.old.", dir=output.parent))
            os.replace(output, old)
            os.replace(aside, output)
            shutil.rmtree(old)
        else:
            os.replace(aside, output)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
