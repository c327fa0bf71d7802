"""``python tests/installed.py`` checks an installed wheel, with the standard library alone.

With wheels as arguments, each is installed into an empty environment of this Python, whole where
it has a compiled part, else without the server, and checked there.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

FACT = '<urn:IC1828> <http://example.org/train#headSign> "Oostende" .\n'
QUERY = "SELECT ?sign { ?train <http://example.org/train#headSign> ?sign }"
_PACKAGES = ("annotations", "tpf_client", "tpf_server", "loaders", "experiments")
_CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def check() -> None:
    """Check the files and the commands of this environment."""
    files = {str(each).replace("\\", "/") for each in distribution("live-linked-data").files or ()}
    assert {f"{name}/py.typed" for name in _PACKAGES} <= files
    if os.environ.get("LIVE_LINKED_DATA_PAGE") != "off":
        assert "tpf_client/page/runtime/pyodide.asm.wasm.gz" in files, "no Python for browsers"
    assert printed("tpf-query", "--version").startswith("tpf-query ")
    with tempfile.TemporaryDirectory() as folder:
        printed("tpf-query", "page", "--output", str(Path(folder, "page")))
        assert Path(folder, "page", "index.html").is_file()
        if find_spec("flask"):
            check_server(Path(folder))


def check_server(folder: Path) -> None:
    """Serve a fact, and ask for it."""
    (folder / "trains.nt").write_text(FACT)
    command = [_script("tpf-server"), "trains.nt", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = next(re.findall(r"http://\S+/", line)[0] for line in server.stderr)
            rows = printed("tpf-query", f"{url}trains", "-q", QUERY, "--format", "csv")
            assert rows.split() == ["sign", "Oostende"], rows
        finally:
            server.terminate()


def check_wheel(wheel: Path) -> None:
    """Install a wheel into an empty environment, and check it there."""
    extra = "cli" if wheel.stem.endswith("-none-any") else "server"
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "Scripts" if os.name == "nt" else "bin", "python"))
        _run([python, "-m", "pip", "install", "--quiet", "--constraint", str(_CONSTRAINTS),
              f"{wheel.resolve()}[{extra}]"])  # fmt: skip
        # Not here, where the packages are, too.
        _run([python, str(Path(__file__).resolve())], folder)
    sys.stderr.write(f"{wheel.name}: installed and checked with [{extra}]\n")


def printed(name: str, *arguments: str) -> str:
    """Return what a command of this environment prints."""
    done = subprocess.run(
        [_script(name), *arguments], check=True, stdout=subprocess.PIPE, text=True, timeout=120
    )
    return done.stdout


def _script(name: str) -> str:
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    assert path is not None, f"there is no {name} beside {sys.executable}"
    return path


def _run(command: Sequence[str], folder: str | None = None) -> None:
    # Nothing but the wheel is to be seen.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(command, check=True, cwd=folder, env=environment)


if __name__ == "__main__":
    for each in sys.argv[1:]:
        check_wheel(Path(each))
    if not sys.argv[1:]:
        check()
