"""The files of the page, for any static host or the endpoint.

Names contain hashes, for permanent caching; ``index.html`` names the current files.
"""

import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qs

from tpf_client.map_tiles import MapTiles
from tpf_client.page_runtime import packages_archive, runtime_files, runtime_folder
from tpf_client.protocol import RefusedError, WsgiEnvironment, weighted

Headers: TypeAlias = list[tuple[str, str]]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; img-src data:"
)
"""What the page may load: files of ours, and nothing that stands in its markup.

With ``?embed`` it is the board alone, and any page may have it in a frame.

Where a map has tiles, their origin follows, and nothing else does.
"""
ENGINE_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self' http: https:"
)
"""What the worker may load that evaluates queries: fragments, wherever they are."""

_BUILT: Final = Path(__file__).parent / "page" / "built"
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_LOOK_AGAIN: Final = "no-cache"
_SCRIPT: Final = "text/javascript; charset=utf-8"
_STYLE: Final = "text/css; charset=utf-8"
_HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page."""

    media_type: str
    content: bytes | Path
    policy: str = POLICY
    caching: str = _FOR_EVER

    def encoded(self, encoding: str) -> bytes | None:
        """Return its bytes as ``br``, ``gzip`` or (empty) plain; ``None``: not stored so."""
        suffix = {"br": ".br", "gzip": ".gz", "": ".gz"}[encoding]
        if isinstance(self.content, Path):
            file = self.content.with_name(self.content.name + suffix)
            if not file.is_file():
                return None
            body = file.read_bytes()
            return body if encoding else gzip.decompress(body)
        if not encoding:
            return self.content
        return _compressed(self.content, encoding)


@dataclass(frozen=True, slots=True)
class Example:
    """A query that the page offers."""

    title: str
    query: str


def read_example(file: Path) -> Example:
    """Read an example; its title is the first comment, or the file's name."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not in UTF-8: {error}") from None
    first = text.lstrip().partition("\n")[0]
    title = first.lstrip("# ").strip() if first.startswith("#") else ""
    return Example(title or file.stem, text)


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The page's configuration.

    Args:
        datasets: URLs to ask where a link names none.
        endpoint: queries run at the endpoint beside the page, not in the browser.
        continuous: path of the same server's continuous queries; empty: none.
    """

    datasets: Sequence[str] = ()
    examples: Sequence[Example] = ()
    endpoint: bool = False
    continuous: str = ""
    tiles: MapTiles | None = None
    title: str = "Live Linked Data"

    def over(self, urls: Sequence[str]) -> "PageSettings":
        return replace(self, datasets=urls)

    def to_json(self) -> str:
        settings = {
            "title": self.title,
            "datasets": list(self.datasets),
            "examples": [{"title": each.title, "query": each.query} for each in self.examples],
            "endpoint": self.endpoint,
            "continuous": self.continuous,
            "tiles": self.tiles
            and {"url": self.tiles.template, "attribution": self.tiles.attribution},
        }
        return json.dumps(settings, ensure_ascii=False)


@cache
def bundle(with_engine: bool) -> Mapping[str, PageFile]:
    """Return the page's files by name; ``index.html`` is at ``""``."""
    files: dict[str, PageFile] = {}

    def named(name: str, content: bytes, media_type: str, policy: str = POLICY) -> str:
        stem, _, ending = name.rpartition(".")
        whole = f"{stem}-{_digest(content)}.{ending}"
        files[whole] = PageFile(media_type, content, policy)
        return whole

    folder = runtime_folder() if with_engine else None
    engine = ""
    if folder is not None:
        parts = runtime_files(folder)
        python = f"python-{_digest(repr(parts).encode())}"
        for part in parts:
            files[f"{python}/{part.name}"] = PageFile(part.media_type, folder / part.name)
        archive = packages_archive()
        packages = named("packages.zip", archive, "application/zip")
        loaded = [part for part in parts if not part.name.endswith(".mjs")]
        sent = sum(len(files[f"{python}/{p.name}"].encoded("br") or b"") for p in loaded)
        names = {
            "python": python,
            "packages": packages,
            "whole": str(sum(part.size for part in loaded) + len(archive)),
            "sent": str(sent + len(_compressed(archive, "gzip") or b"")),
        }
        filled = _filled(_built("engine.js"), names)
        engine = named("engine.js", filled, _SCRIPT, ENGINE_POLICY)
    script = named("page.js", _built("page.js"), _SCRIPT)
    style = named("page.css", _built("page.css"), _STYLE)
    outline = named("outline.json", _built("outline.json"), "application/json")
    index = _filled(_built("index.html"), {"engine": engine, "outline": outline})
    index = index.replace(b'"page.js"', f'"{script}"'.encode())
    index = index.replace(b'"page.css"', f'"{style}"'.encode())
    kept = json.dumps(json.dumps(["", "?embed", *files]))[1:-1]
    files["licences.txt"] = PageFile(
        "text/plain; charset=utf-8", _built("licences.txt"), caching=_LOOK_AGAIN
    )
    files[""] = PageFile(_HTML, index, caching=_LOOK_AGAIN)
    # It differs by the content of the index, too.
    offline = _filled(_built("offline.js"), {"files": kept}) + f"// {_digest(index)}\n".encode()
    files["offline.js"] = PageFile(_SCRIPT, offline, caching=_LOOK_AGAIN)
    return files


def write_page(folder: Path, settings: PageSettings) -> list[str]:
    """Write the page into a folder; return the names of the files."""
    page = PageFile("application/json", settings.to_json().encode(), caching=_LOOK_AGAIN)
    files = {**bundle(not settings.endpoint), "page.json": page}
    for name, file in files.items():
        target = folder / (name or "index.html")
        target.parent.mkdir(parents=True, exist_ok=True)
        for encoding, suffix in (("", ""), ("br", ".br"), ("gzip", ".gz")):
            body = file.encoded(encoding)
            if body is not None:
                target.with_name(target.name + suffix).write_bytes(body)
    return sorted(files)


class PageFiles:
    """The responses at the paths of the page."""

    def __init__(self, settings: PageSettings) -> None:
        page = PageFile("application/json", settings.to_json().encode(), caching=_LOOK_AGAIN)
        self._files = {**bundle(not settings.endpoint), "page.json": page}
        tiles = settings.tiles
        if tiles is not None:
            self._files = {
                name: replace(each, policy=f"{each.policy} {tiles.origin}")
                if each.policy == POLICY
                else each
                for name, each in self._files.items()
            }
        # Who has tiles may want to know for whom, but not for which query.
        self._referrer = "strict-origin" if tiles else "no-referrer"

    def __contains__(self, path: str) -> bool:
        return path.removeprefix("/") in self._files

    def answer(self, environ: WsgiEnvironment, path: str) -> tuple[HTTPStatus, Headers, bytes]:
        """Answer a request for one of our paths."""
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} can only be read")
        file = self._files[path.removeprefix("/")]
        accepted = dict(weighted(environ.get("HTTP_ACCEPT_ENCODING", "")))
        for encoding in ("br", "gzip", ""):
            if not encoding or accepted.get(encoding, 0) > 0:
                body = file.encoded(encoding)
                if body is not None:
                    break
        assert body is not None
        policy = file.policy
        if "embed" in parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True):
            policy = policy.replace("frame-ancestors 'none'", "frame-ancestors *")
        tag = f'"{_digest(body)}"'
        headers = [
            ("ETag", tag),
            ("Cache-Control", file.caching),
            ("Content-Security-Policy", policy),
            ("Referrer-Policy", self._referrer),
        ]
        if tag in environ.get("HTTP_IF_NONE_MATCH", ""):
            return HTTPStatus.NOT_MODIFIED, headers, b""
        headers.append(("Content-Type", file.media_type))
        if encoding:
            headers.append(("Content-Encoding", encoding))
        return HTTPStatus.OK, [*headers, ("Content-Length", str(len(body)))], body


def _built(name: str) -> bytes:
    return (_BUILT / name).read_bytes()


def _filled(text: bytes, values: Mapping[str, str]) -> bytes:
    for name, value in values.items():
        text = text.replace(f"@{name}@".encode(), value.encode())
    return text


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@cache
def _compressed(body: bytes, encoding: str) -> bytes | None:
    if encoding == "gzip":
        return gzip.compress(body, mtime=0)
    try:
        import brotli
    except ImportError:
        return None
    packed: bytes = brotli.compress(body, quality=9, lgwin=22)
    return packed
