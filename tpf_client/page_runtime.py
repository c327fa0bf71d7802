"""Python for the browser: fetched once, checked, trimmed, compressed.

Pyodide's npm package is fetched from the configured registry when this project is installed or its
wheel is built (by hand: `python -m tpf_client.page_runtime`), checked against the hash below, and
cached for the user. Only the standard library is imported, for building a wheel.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.request import Request, urlopen

VERSION: Final = "314.0.7"
"""Of Pyodide: Python 3.14."""
_SHA512: Final = (
    "0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
)
"""Of the package, as the registry states it (``npm view pyodide dist.integrity``)."""
_REGISTRY: Final = "https://registry.npmjs.org/"
_MOST_BYTES: Final = 2**26
_SECONDS: Final = 30.0
_RECIPE: Final = 3
"""Counts what is done to the files; a cache of another number is left alone."""

FOLDER: Final = Path(__file__).parent / "page" / "runtime"
"""Where it is in an installed package."""

_FILES: Final = {
    "pyodide.mjs": "text/javascript; charset=utf-8",
    "pyodide.asm.mjs": "text/javascript; charset=utf-8",
    "pyodide.asm.wasm": "application/wasm",
    "pyodide-lock.json": "application/json",
    "python_stdlib.zip": "application/zip",
}
_UNUSED: Final = (
    "__phello__ _aix_support _android_support _apple_support _ast_unparse _ios_support "
    "_osx_support _pydatetime _pydecimal _pyio _pyrepl antigravity argparse bdb cProfile cmd "
    "colorsys compileall configparser ctypes curses dbm difflib doctest ensurepip filecmp "
    "fileinput ftplib getopt getpass gettext html http.cookiejar http.cookies http.server "
    "idlelib imaplib lib2to3 logging.config logging.handlers mailbox mimetypes modulefinder "
    "multiprocessing netrc nntplib nturl2path optparse pdb pickletools plistlib poplib "
    "profile pstats pty pyclbr pydoc pydoc_data rlcompleter runpy sched shelve smtplib "
    "socketserver sqlite3 statistics symtable tabnanny tarfile test this timeit tkinter "
    "tomllib trace tracemalloc tty turtle turtledemo unittest urllib.robotparser venv wave "
    "webbrowser wsgiref xml.dom xml.sax xmlrpc zipapp"
)
"""Modules of the standard library that nothing in the tab imports."""
_ENCODINGS: Final = (
    "__init__ aliases ascii cp437 idna latin_1 punycode raw_unicode_escape unicode_escape "
    "utf_8 utf_8_sig utf_16 utf_16_be utf_16_le"
)
"""The codecs that are left."""


class RuntimeFile(NamedTuple):
    """A file that the browser loads, with its size and SHA-256."""

    name: str
    media_type: str
    size: int
    sha256: str


class RuntimeMissingError(Exception):
    """Python for the browser could not be fetched."""


def registry() -> str:
    """Return the configured npm registry, with a final slash."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/") + "/"
    npm = shutil.which("npm")
    if npm is not None:
        try:
            asked = subprocess.run(  # noqa: S603 (npm, as it is installed)
                [npm, "config", "get", "registry"],
                capture_output=True, text=True, timeout=20, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            pass
        else:
            if asked.stdout.startswith("http"):
                return asked.stdout.strip().rstrip("/") + "/"
    file = Path.home() / ".npmrc"
    if file.is_file():
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "registry" and value.strip().startswith("http"):
                return value.strip().rstrip("/") + "/"
    return _REGISTRY


def cache_folder() -> Path:
    """Return the cache across installations."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "live-linked-data" / f"pyodide-{VERSION}-{_RECIPE}"


def runtime_folder() -> Path | None:
    """Return the folder of the files; ``None``: they were not fetched."""
    for folder in (FOLDER, cache_folder()):
        if (folder / "files.json").is_file() and _told(folder).get("recipe") == _name():
            return folder
    return None


def runtime_files(folder: Path) -> list[RuntimeFile]:
    """The files in a folder."""
    return [RuntimeFile(*each) for each in _told(folder)["files"]]


def _told(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / "files.json").read_text())
    return told


def _name() -> str:
    return f"{VERSION}-{_RECIPE}"


def fetched_runtime(quality: int = 9) -> Path:
    """Fetch the files into the cache unless there; return their folder.

    `quality` is Brotli's, up to 11: a tenth smaller, ten times slower.

    Raises:
        RuntimeMissingError: they cannot be fetched.
    """
    target = cache_folder()
    if (target / "files.json").is_file() and _told(target).get("recipe") == _name():
        return target
    try:
        package = _downloaded(f"{registry()}pyodide/-/pyodide-{VERSION}.tgz")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            made = Path(folder) / "made"
            made.mkdir()
            _write(_members(package), made, quality)
            shutil.rmtree(target, ignore_errors=True)
            # In one step; where another process was first, its files are the same.
            try:
                made.rename(target)
            except OSError:
                if not (target / "files.json").is_file():
                    raise
    except (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise RuntimeMissingError(str(error)) from error
    return target


def _downloaded(url: str) -> bytes:
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"no registry of npm: {url}")
    asked = Request(url, headers={"User-Agent": "live-linked-data"})  # noqa: S310 (see above)
    with urlopen(asked, timeout=_SECONDS) as answer:  # noqa: S310
        body: bytes = answer.read(_MOST_BYTES)
    if base64.b64encode(hashlib.sha512(body).digest()).decode() != _SHA512:
        raise ValueError(f"{url} is not Pyodide {VERSION}: its SHA-512 is another one")
    return body


def _members(package: bytes) -> dict[str, bytes]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for name in _FILES:
            member = archive.extractfile(f"package/{name}")
            if member is None:
                raise ValueError(f"the package has no {name}")
            found[name] = member.read()
    found["python_stdlib.zip"] = _trimmed(found["python_stdlib.zip"])
    # Of its own packages none is loaded; what is left says which Python it is.
    lock = json.loads(found["pyodide-lock.json"])
    found["pyodide-lock.json"] = json.dumps({**lock, "packages": {}}).encode()
    return found


def _trimmed(library: bytes) -> bytes:
    """Drop unused parts of the standard library; store uncompressed, as the file will be."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(library)) as before, zipfile.ZipFile(made, "w") as after:
        for entry in sorted(before.infolist(), key=lambda each: each.filename):
            if not entry.is_dir() and _is_used(entry.filename):
                after.writestr(
                    zipfile.ZipInfo(entry.filename, (1980, 1, 1, 0, 0, 0)), before.read(entry)
                )
    return made.getvalue()


def _is_used(name: str) -> bool:
    parts = name.removesuffix(".pyc").removesuffix(".py").split("/")
    if parts[0] == "encodings":
        return parts[-1] in _ENCODINGS.split()
    return {".".join(parts[:length]) for length in (1, 2)}.isdisjoint(_UNUSED.split())


def _write(contents: dict[str, bytes], folder: Path, quality: int) -> None:
    """Write each compressed, and their list last."""
    try:
        import brotli
    except ImportError:
        brotli = None
    files = []
    for name, content in contents.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
        if brotli is not None:
            packed = brotli.compress(content, quality=quality, lgwin=24)
            (folder / f"{name}.br").write_bytes(packed)
        digest = hashlib.sha256(content).hexdigest()
        files.append(RuntimeFile(name, _FILES[name], len(content), digest))
    told = {"recipe": _name(), "files": files}
    (folder / "files.json").write_text(json.dumps(told, indent=1) + "\n")


def put_runtime(quality: int = 9) -> bool:
    """Put the files into the package; return success.

    A failure is a line on standard error: only the page needs them.
    """
    try:
        source = fetched_runtime(quality)
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(source, FOLDER)
    except (RuntimeMissingError, OSError) as error:
        sys.stderr.write(f"live-linked-data: without Python for its page: {error}\n")
        return False
    return True


if __name__ == "__main__":
    sys.exit(0 if put_runtime() else 1)
