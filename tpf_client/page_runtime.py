"""Python for the browser: Pyodide's npm package, fetched once, checked, trimmed, compressed.

By hand: `python -m tpf_client.page_runtime`. It imports only the standard library, to build wheels.
"""

import ast
import base64
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
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
_COMPILE: Final = Path(__file__).parent / "page" / "compile.mjs"
_MODULES: Final = "modules.zip"
"""Compiled modules of ours; the comment of each is the SHA-256 of its source."""
_NO_DATE: Final = (1980, 1, 1, 0, 0, 0)
_ROOT: Final = "tpf_client.tab"
"""The module that the worker begins with."""
_CARRIED: Final = frozenset({"annotations", "cachetools", "tpf_client", "uritemplate"})
"""Packages of which the worker gets what that module imports,"""
_ELSEWHERE: Final = frozenset({"tpf_client.fragments.transport"})
"""but for modules that need what a browser has not."""

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
    "__hello__ __phello__ _aix_support _android_support _apple_support _ast_unparse "
    "_compat_pickle _ios_support _markupbase _osx_support _pydatetime _pydecimal _pyio "
    "_pyrepl _strptime _sysconfigdata__emscripten_wasm32-emscripten antigravity argparse "
    "asyncio.__main__ asyncio.proactor_events asyncio.tools asyncio.windows_events "
    "asyncio.windows_utils bdb cProfile cmd code colorsys compileall compression.bz2 "
    "compression.gzip compression.lzma compression.zlib concurrent.futures.interpreter "
    "concurrent.futures.process concurrent.interpreters configparser ctypes curses dbm "
    "difflib doctest email._encoded_words email._header_value_parser email._policybase "
    "email.contentmanager email.feedparser email.generator email.header email.headerregistry "
    "email.iterators email.message email.mime email.parser email.policy ensurepip filecmp "
    "fileinput ftplib getopt getpass gettext graphlib gzip html http.client http.cookiejar "
    "http.cookies http.server idlelib imaplib importlib.metadata importlib.readers "
    "importlib.resources importlib.simple json.__main__ json.tool lib2to3 logging.config "
    "logging.handlers mailbox mimetypes modulefinder multiprocessing netrc nntplib nturl2path "
    "optparse pathlib.types pdb pickle pickletools pkgutil plistlib poplib pprint profile "
    "pstats pty py_compile pyclbr pydoc pydoc_data pyodide._nodesock_transport "
    "pyodide.console pyodide.http rlcompleter runpy sched shelve shlex smtplib socketserver "
    "sqlite3 sre_compile sre_constants sre_parse statistics symtable sysconfig tabnanny "
    "tarfile test this timeit tkinter tomllib trace tracemalloc tty turtle turtledemo "
    "unittest urllib.error urllib.request urllib.response urllib.robotparser venv wave "
    "webbrowser wsgiref xml.dom xml.etree xml.sax xmlrpc zipapp zipfile.__main__ zoneinfo"
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
    return _cache() / f"pyodide-{VERSION}-{_recipe()}"


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "live-linked-data"


@cache
def _recipe() -> str:
    """Name what is done to the files, from the code that does it: not its docstrings or layout."""
    code = Path(__file__).read_text(encoding="utf-8") + _COMPILE.read_text(encoding="utf-8")
    return _sha256(
        re.sub(r'""".*?"""|#.*?$|\s+', "", code, flags=re.DOTALL | re.MULTILINE).encode()
    )[:8]


def runtime_folder() -> Path | None:
    """Return the folder of the files; ``None``: they were not fetched."""
    for folder in (FOLDER, cache_folder()):
        if _listing(folder).get("recipe") == _recipe():
            return folder
    return None


def runtime_files(folder: Path) -> list[RuntimeFile]:
    """The files in a folder."""
    return [RuntimeFile(*each) for each in _listing(folder)["files"]]


def _listing(folder: Path) -> dict[str, Any]:
    try:
        listing: dict[str, Any] = json.loads((folder / "files.json").read_text())
    except FileNotFoundError:
        return {}
    return listing


def fetched_runtime(quality: int = 9) -> Path:
    """Fetch the files into the cache unless there; return their folder."""
    target = cache_folder()
    listing = _listing(target)
    made_well = listing.get("quality", 0) >= quality and (listing["compiled"] or not _node())
    try:
        if listing.get("recipe") != _recipe() or not made_well:
            package = _downloaded(f"pyodide-{VERSION}.tgz")
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
        _compile_modules(target)
    except (OSError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise RuntimeMissingError(str(error)) from error
    return target


def _downloaded(name: str) -> bytes:
    file = _cache() / name
    if file.is_file() and _is_ours(kept := file.read_bytes()):
        return kept
    url = f"{registry()}pyodide/-/{name}"
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"no registry of npm: {url}")
    asked = Request(url, headers={"User-Agent": "live-linked-data"})  # noqa: S310 (see above)
    with urlopen(asked, timeout=_SECONDS) as answer:  # noqa: S310
        body: bytes = answer.read(_MOST_BYTES)
    if not _is_ours(body):
        raise ValueError(f"{url} is not Pyodide {VERSION}: its SHA-512 is another one")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    return body


def _is_ours(package: bytes) -> bool:
    return base64.b64encode(hashlib.sha512(package).digest()).decode() == _SHA512


def _members(package: bytes) -> dict[str, bytes]:
    members = {}
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for name in _FILES:
            member = archive.extractfile(f"package/{name}")
            if member is None:
                raise ValueError(f"the package has no {name}")
            members[name] = member.read()
    members["python_stdlib.zip"] = _trimmed(members["python_stdlib.zip"])
    # Of its own packages none is loaded; what is left says which Python it is.
    lock = json.loads(members["pyodide-lock.json"])
    members["pyodide-lock.json"] = json.dumps({**lock, "packages": {}}).encode()
    return members


def _trimmed(library: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(library)) as before, zipfile.ZipFile(made, "w") as after:
        for entry in sorted(before.infolist(), key=lambda each: each.filename):
            if not entry.is_dir() and is_used(_module(entry.filename)):
                after.writestr(zipfile.ZipInfo(entry.filename, _NO_DATE), before.read(entry))
    return made.getvalue()


def _module(path: str) -> str:
    return path.removesuffix(".pyc").removesuffix(".py").replace("/", ".")


def is_used(name: str) -> bool:
    """True if a module of the standard library is sent to the browser."""
    parts = name.split(".")
    if parts[0] == "encodings":
        return parts[-1] in _ENCODINGS.split()
    return {".".join(parts[:length]) for length in (1, 2)}.isdisjoint(_UNUSED.split())


def _node() -> str | None:
    return shutil.which("node")


def _compiled(archive: bytes, folder: Path) -> bytes | None:
    """Compile the modules in an archive; ``None``: there is no Node that can."""
    node = _node()
    if node is None:
        return None
    source, target = folder / "source.zip", folder / "target.zip"
    source.write_bytes(archive)
    command = [node, str(_COMPILE), str(folder), str(source), str(target)]
    try:
        subprocess.run(  # noqa: S603 (Node, as it is installed)
            command, check=True, capture_output=True, text=True, timeout=300
        )
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"live-linked-data: Python for its page is not compiled: {error}\n")
        return None
    return target.read_bytes()


def _write(contents: dict[str, bytes], folder: Path, quality: int) -> None:
    try:
        import brotli
    except ImportError:
        brotli = None
    with tempfile.TemporaryDirectory() as plain:
        for name, content in contents.items():
            (Path(plain) / name).write_bytes(content)
        library = _compiled(contents["python_stdlib.zip"], Path(plain))
    if library is not None:
        contents = {**contents, "python_stdlib.zip": library}
    files = []
    for name, content in contents.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
        if brotli is not None:
            packed = brotli.compress(content, quality=quality, lgwin=24)
            (folder / f"{name}.br").write_bytes(packed)
        digest = _sha256(content)
        files.append(RuntimeFile(name, _FILES[name], len(content), digest))
    listing = {"recipe": _recipe(), "quality": quality, "compiled": library is not None}
    (folder / "files.json").write_text(json.dumps({**listing, "files": files}, indent=1) + "\n")


def _compile_modules(folder: Path) -> None:
    """Compile the modules of ours that the worker imports, unless done."""
    kept, sources = _modules(folder), module_sources()
    if all((path, _sha256(source)) in kept for path, source in sources.items()):
        return
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        for each in runtime_files(folder):
            packed = (folder / f"{each.name}.gz").read_bytes()
            (Path(work) / each.name).write_bytes(gzip.decompress(packed))
        made = _compiled(_archive(sources), Path(work))
        if made is None:
            return
        new = Path(work) / _MODULES
        with zipfile.ZipFile(io.BytesIO(made)) as before, zipfile.ZipFile(new, "w") as after:
            for path, source in sources.items():
                entry = zipfile.ZipInfo(f"{path}c", _NO_DATE)
                entry.comment = _sha256(source).encode()
                after.writestr(entry, before.read(f"{path}c"), zipfile.ZIP_DEFLATED)
        new.replace(folder / _MODULES)


def _modules(folder: Path | None) -> dict[tuple[str, str], bytes]:
    if folder is None or not (folder / _MODULES).is_file():
        return {}
    with zipfile.ZipFile(folder / _MODULES) as archive:
        return {
            (entry.filename[:-1], entry.comment.decode()): archive.read(entry)
            for entry in archive.infolist()
        }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def packages_archive() -> bytes:
    """Return the worker's modules as an importable archive."""
    kept, contents = _modules(runtime_folder()), {}
    for path, source in module_sources().items():
        compiled = kept.get((path, _sha256(source)))
        contents[path if compiled is None else f"{path}c"] = compiled or source
    return _archive(contents)


def _archive(contents: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in contents.items():
            archive.writestr(zipfile.ZipInfo(path, _NO_DATE), content)
    return made.getvalue()


def module_sources() -> dict[str, bytes]:
    """Return the sources of the worker's modules by path."""
    return {
        name.replace(".", "/") + ("/__init__" if file.stem == "__init__" else "") + ".py":
        file.read_bytes()
        for name, file in sorted(_imported(_ROOT).items())
    }  # fmt: skip


def _imported(root: str) -> dict[str, Path]:
    """Return the files of a module and of all that it imports, by name."""
    files: dict[str, Path] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        package = name.rpartition(".")[0]
        if name in files or name in _ELSEWHERE or name.partition(".")[0] not in _CARRIED:
            continue
        if package:
            waiting.append(package)
        try:
            spec = find_spec(name)
        except ModuleNotFoundError:  # a name in a module
            continue
        if spec is None or not (spec.origin or "").endswith(".py"):
            continue
        assert spec.origin is not None
        files[name] = Path(spec.origin)
        inside = name if spec.submodule_search_locations is not None else package
        waiting += _imports(ast.parse(files[name].read_bytes()), inside)
    return files


def _imports(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                yield from (each.name for each in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*above, *([module] if module else [])])
                yield base
                yield from (f"{base}.{each.name}" for each in names)
            case _:
                yield from _imports(node, package)


def put_runtime(quality: int = 9) -> bool:
    """Put the files into the package; return success."""
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
