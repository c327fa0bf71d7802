"""Folders by URL: in an object store that speaks S3 (configured as AWS's tools), or in HDFS.

HDFS is reached by its REST interface (``webhdfs``, ``swebhdfs``), or with libhdfs (``hdfs``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from tpf_server.errors import SettingsError, StoreUnreachableError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from tpf_server.store.static.webhdfs import WebHdfs

Access: TypeAlias = tuple[tuple[str, str], ...]
"""What of an environment says where file systems are and who may use them."""

OBJECTS: Final = ("s3", "s3a")
HADOOP: Final = ("hdfs", "webhdfs", "swebhdfs")
_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*")
_USER: Final = "HADOOP_USER_NAME"
_ATTEMPTS: Final = 5
_CONNECT_SECONDS: Final = 5
_REQUEST_SECONDS: Final = 30
_BLOCK: Final = 4 << 20


def local_path(path: object) -> Path | None:
    """Return the path of a ``file://`` URL (RFC 8089) or a path; ``None``: another URL."""
    scheme, separator, rest = str(path).partition("://")
    if not separator or _SCHEME.fullmatch(scheme) is None:
        return Path(str(path))
    host, _, path = rest.partition("/")
    here = scheme.lower() == "file" and host.lower() in ("", "localhost")
    return Path(f"/{unquote(path)}") if here else None


def is_store_url(path: object) -> bool:
    """True for the URL of an object store or of HDFS."""
    scheme, separator, _ = str(path).partition("://")
    return bool(separator) and scheme.lower() in (*OBJECTS, *HADOOP)


def access_in(environment: Mapping[str, str]) -> Access:
    """Return the variables of an environment that configure file systems."""
    variables = (
        each for each in environment.items() if each[0].startswith("AWS_") or each[0] == _USER
    )
    return tuple(sorted(variables))


def location_of(url: str) -> str:
    """Return the path of a URL within its file system."""
    scheme, _, rest = url.partition("://")
    return rest if scheme.lower() in OBJECTS else f"/{rest.partition('/')[2]}"


def system_of(url: str, access: Access) -> "FileSystem | WebHdfs":
    """Return the file system of a URL."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() in OBJECTS:
        return s3_system(dict(access))
    return _hadoop(scheme.lower(), rest.partition("/")[0], dict(access).get(_USER))


def _hadoop(scheme: str, authority: str, user: str | None) -> "FileSystem | WebHdfs":
    if scheme != "hdfs":
        from tpf_server.store.static.webhdfs import WebHdfs

        return WebHdfs(authority, user, secure=scheme == "swebhdfs")
    from pyarrow import fs

    try:
        return fs.HadoopFileSystem.from_uri(f"hdfs://{authority}")
    except OSError as error:
        if "load lib" in str(error):
            why = str(error).strip().splitlines()[0]
            raise OSError(
                f"HDFS needs libhdfs and a Java for pyarrow ({why}); webhdfs:// needs neither"
            ) from None
        raise


def s3_system(environment: Mapping[str, str]) -> "FileSystem":
    """Return the object store of an environment."""
    # A server without such stores is spared the library.
    from pyarrow import fs

    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    options: dict[str, Any] = {}
    if endpoint:
        where = urlsplit(endpoint)
        if where.scheme not in ("http", "https") or not where.netloc:
            raise SettingsError(f"AWS_ENDPOINT_URL is no URL of a server: {endpoint!r}")
        options = {"endpoint_override": where.netloc + where.path, "scheme": where.scheme}
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        options["region"] = region or "us-east-1"
    if "AWS_ACCESS_KEY_ID" in environment:
        options["access_key"] = environment["AWS_ACCESS_KEY_ID"]
        options["secret_key"] = environment.get("AWS_SECRET_ACCESS_KEY", "")
        options["session_token"] = environment.get("AWS_SESSION_TOKEN")
    return fs.S3FileSystem(
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        background_writes=False,
        **options,
    )


def _is_object(url: str) -> bool:
    return url.partition("://")[0].lower() in OBJECTS


class RemoteFolder:
    """A folder in an object store or in HDFS; picklable."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        # It is no URL of the web: a path as it stands, of which `urlsplit` would take the end.
        other = "?" in url or "#" in url
        bucket, _, path = url.partition("://")[2].partition("/")
        folder = path.strip("/")
        if not bucket or not folder or other or "@" in bucket or "//" in folder:
            if _is_object(url):
                raise SettingsError(f"{url} is no folder in a bucket: s3://BUCKET/FOLDER")
            raise SettingsError(f"{url} is no folder in HDFS: webhdfs://HOST:PORT/FOLDER")
        self.url = url.rstrip("/")
        self._path = location_of(self.url)
        self._environment = dict(access_in(environment))
        with self._reporting(""):
            self._system = system_of(url, access_in(environment))

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFolder, (self.url, self._environment)

    @property
    def replaces(self) -> bool:
        """True where a file can replace another one in one step; libhdfs cannot."""
        return not self.url.lower().startswith("hdfs:")

    def blocks(self, name: str) -> Iterator[bytes]:
        """Read a file block by block; `FileNotFoundError`, `StoreUnreachableError`."""
        with self._reporting(name), self._system.open_input_stream(f"{self._path}/{name}") as file:
            while block := file.read(_BLOCK):
                yield block

    def read(self, name: str) -> bytes:
        return b"".join(self.blocks(name))

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Make a file, or replace one if `replaces`; it appears when it is complete."""
        target = f"{self._path}/{name}"
        with self._reporting(name):
            if _is_object(self.url):
                self._put(target, blocks)
                return
            folder, _, last = target.rpartition("/")
            new = f"{folder}/.{last}.{token_hex(8)}"
            self._system.create_dir(folder)
            try:
                self._put(new, blocks)
                self._system.move(new, target)
            except BaseException:
                with suppress(OSError):
                    self._system.delete_file(new)
                raise

    def put(self, name: str, file: Path) -> None:
        with file.open("rb") as content:
            self.write(name, iter(partial(content.read, _BLOCK), b""))

    def _put(self, target: str, blocks: Iterable[bytes]) -> None:
        with self._system.open_output_stream(target) as file:
            for block in blocks:
                file.write(block)

    def files(self) -> list[str]:
        """Return the names of the files in this folder, in order."""
        from pyarrow import fs

        with self._reporting(""):
            selector = fs.FileSelector(self._path, allow_not_found=True)
            infos = self._system.get_file_info(selector)
            return sorted(info.base_name for info in infos if info.type is fs.FileType.File)

    def folders(self) -> dict[str, datetime]:
        """Return the folders in this one, each with the time of its newest file."""
        from pyarrow import fs

        newest: dict[str, datetime] = {}
        with self._reporting(""):
            selector = fs.FileSelector(self._path, allow_not_found=True, recursive=True)
            for info in self._system.get_file_info(selector):
                name, separator, _ = info.path.removeprefix(f"{self._path}/").partition("/")
                if info.type is fs.FileType.File and separator:
                    newest[name] = max(info.mtime, newest.get(name, info.mtime))
        return newest

    def remove(self, folder: str) -> None:
        """Remove a folder with its content; it may be missing."""
        with self._reporting(folder), suppress(FileNotFoundError):
            self._system.delete_dir(f"{self._path}/{folder}")

    @contextmanager
    def _reporting(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise StoreUnreachableError(f"{self.url}/{name}: {reason}") from error
