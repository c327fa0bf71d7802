"""Python for browsers: where it is fetched from, and what is taken for it."""

import ast
import io
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.support.threaded import http_server
from tpf_client import page_runtime
from tpf_client.page_runtime import (
    VERSION,
    RuntimeMissingError,
    fetched_runtime,
    put_runtime,
    registry,
    runtime_files,
    runtime_folder,
)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """A registry that has something else, and no cache; the paths that it was asked for."""
    paths: list[str] = []
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("package/pyodide.mjs"))

    def answer(asked: BaseHTTPRequestHandler) -> None:
        paths.append(asked.path)
        asked.send_response(200)
        asked.end_headers()
        asked.wfile.write(made.getvalue())

    with http_server(answer) as port:
        monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{port}/npm")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        yield paths


def test_what_has_another_hash_is_refused(
    other: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with pytest.raises(RuntimeMissingError, match="SHA-512"):
        fetched_runtime()
    assert other == [f"/npm/pyodide/-/pyodide-{VERSION}.tgz"]
    monkeypatch.setattr(page_runtime, "FOLDER", tmp_path / "package")
    # An installation goes on, and says what will be missing.
    assert not put_runtime()
    assert "without Python for its page" in capsys.readouterr().err
    assert runtime_folder() is None


def test_the_registry_is_the_one_that_is_configured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("npm_config_registry", "https://npm.example.org/mirror")
    assert registry() == "https://npm.example.org/mirror/"
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert registry() == "https://registry.npmjs.org/"
    (tmp_path / ".npmrc").write_text("audit=false\nregistry = https://other.example.org/npm/\n")
    assert registry() == "https://other.example.org/npm/"


def test_no_module_begins_with_what_the_tab_has_not() -> None:
    missing = []
    for path, source in page_runtime.module_sources().items():
        for node in ast.parse(source).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += (
                [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            )
            missing += [(path, name) for name in names if not page_runtime.is_used(name)]
    assert missing == []


def test_what_is_fetched_is_small() -> None:
    folder = runtime_folder()
    if folder is None:
        pytest.skip("Python for browsers was not fetched: python -m tpf_client.page_runtime")
    files = runtime_files(folder)
    assert {each.name for each in files} >= {"pyodide.mjs", "pyodide.asm.wasm", "python_stdlib.zip"}
    packed = [folder / f"{each.name}.br" for each in files]
    assert sum(file.stat().st_size for file in packed if file.is_file()) <= 4_600_000
