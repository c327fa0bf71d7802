"""Folders in an object store that speaks S3, by URL.

Where it is and who may use it comes from the environment, under the names that the tools of AWS
know: ``AWS_ENDPOINT_URL`` (or ``AWS_ENDPOINT_URL_S3``), ``AWS_REGION``, ``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN``; without keys there, from where those look for
them. A request that fails, or is not answered in time, is tried again, five times in all.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tpf_server.errors import SettingsError, StoreUnreachableError

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_SCHEMES: Final = ("s3", "s3a")
_ATTEMPTS: Final = 5
_CONNECT_SECONDS: Final = 5
_REQUEST_SECONDS: Final = 30
_BLOCK: Final = 4 << 20


def is_store_url(place: object) -> bool:
    """Whether a store is meant that lies in an object store."""
    scheme, separator, _ = str(place).partition("://")
    return bool(separator) and scheme.lower() in _SCHEMES


def s3_system(environment: Mapping[str, str]) -> "FileSystem":
    """The object store that an environment names.

    Raises:
        SettingsError: its address is none.
    """
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


class RemoteFolder:
    """A folder in an object store; it can be pickled, with what opens it.

    Args:
        url: ``s3://BUCKET/FOLDER``; ``s3a://`` is the same.
        environment: says where the object store is.

    Raises:
        SettingsError: the URL names no folder in a bucket, or the address is none.
    """

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        # It is no URL of the web: a path as it stands, of which `urlsplit` would take the end.
        other = "?" in url or "#" in url
        bucket, _, path = url.partition("://")[2].partition("/")
        folder = path.strip("/")
        if not bucket or not folder or other or "@" in bucket or "//" in folder:
            raise SettingsError(f"{url} is no folder in a bucket: s3://BUCKET/FOLDER")
        self.url = url.rstrip("/")
        self._path = f"{bucket}/{folder}"
        self._environment = {k: v for k, v in environment.items() if k.startswith("AWS_")}
        self._system = s3_system(self._environment)

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteFolder, (self.url, self._environment)

    def blocks(self, name: str) -> Iterator[bytes]:
        """What a file holds, block by block.

        Raises:
            FileNotFoundError: there is none.
            StoreUnreachableError: the object store does not give it.
        """
        with self._telling(name), self._system.open_input_stream(f"{self._path}/{name}") as file:
            while block := file.read(_BLOCK):
                yield block

    def read(self, name: str) -> bytes:
        """What a small file holds; see `blocks`."""
        return b"".join(self.blocks(name))

    def write(self, name: str, blocks: Iterable[bytes]) -> None:
        """Make a file, which is there when it is complete, and not before.

        Raises:
            StoreUnreachableError: the object store does not take it.
        """
        with self._telling(name), self._system.open_output_stream(f"{self._path}/{name}") as file:
            for block in blocks:
                file.write(block)

    def folders(self) -> dict[str, datetime]:
        """The folders in this one, each with the instant at which its newest file was written.

        Raises:
            StoreUnreachableError: the object store does not say.
        """
        from pyarrow import fs

        newest: dict[str, datetime] = {}
        with self._telling(""):
            wanted = fs.FileSelector(self._path, allow_not_found=True, recursive=True)
            for info in self._system.get_file_info(wanted):
                name, separator, _ = info.path.removeprefix(f"{self._path}/").partition("/")
                if info.type is fs.FileType.File and separator:
                    newest[name] = max(info.mtime, newest.get(name, info.mtime))
        return newest

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it; it may be gone already.

        Raises:
            StoreUnreachableError: the object store does not.
        """
        with self._telling(folder), suppress(FileNotFoundError):
            self._system.delete_dir(f"{self._path}/{folder}")

    @contextmanager
    def _telling(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            reason = str(error).strip().splitlines()[0]
            raise StoreUnreachableError(f"{self.url}/{name}: {reason}") from error
