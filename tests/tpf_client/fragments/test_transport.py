"""Requests of a client equal those of `requests`."""

import gzip
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from annotations.clock import SystemClock
from annotations.wording import user_agent
from tests.support.threaded import http_server
from tpf_client.errors import ConnectionFailedError, OriginError, SourceError
from tpf_client.fragments.destinations import Destinations
from tpf_client.fragments.responses import Limits
from tpf_client.fragments.transport import Transport


def _echo(asked: BaseHTTPRequestHandler) -> None:
    """Answer with what was asked."""
    heads = sorted((name.lower(), value) for name, value in asked.headers.items())
    body = "\n".join([asked.path, *(f"{name}: {value}" for name, value in heads)]).encode()
    asked.send_response(200)
    asked.send_header("Content-Length", str(len(body)))
    asked.end_headers()
    asked.wfile.write(body)
    # Unannounced, as servers close what is idle for long.
    asked.close_connection = asked.path == "/once"


def _framed(asked: BaseHTTPRequestHandler) -> None:
    """Answer in the coding and the framing that the path names."""
    _, coding, framing = asked.path.split("/")
    body = gzip.compress(_TEXT) if coding == "gzip" else _TEXT
    fields = {
        "length": ("Content-Length", str(len(body))),
        "chunked": ("Transfer-Encoding", "chunked"),
        "close": ("Connection", "close"),
    }
    if framing == "chunked":
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    asked.send_response(200)
    asked.send_header("Content-Encoding", coding)
    asked.send_header(*fields[framing])
    asked.end_headers()
    asked.wfile.write(body)


_TEXT = b"a text" * 20_000


@pytest.fixture
def port() -> Iterator[int]:
    with http_server(_echo, "HTTP/1.1") as port:
        yield port


def _transport(session: requests.Session | None = None) -> Transport:
    return Transport(SystemClock(), Limits(retries=0), Destinations(), session=session)


def _body(transport: Transport, url: str) -> str:
    return transport.get(url, {"Accept": "text/plain"}).body.decode()


@pytest.mark.parametrize("place", ["127.0.0.1", "user:secret@127.0.0.1"])
@pytest.mark.parametrize("path", ["", "/", "/a b?x=<y>&z=%C3%A9#there", "/ä?q=ö"])
def test_requests_are_those_of_the_library(port: int, place: str, path: str) -> None:
    url = f"http://{place}:{port}{path}"
    with requests.Session() as usual, closing(_transport()) as transport:
        encodings = str(usual.headers["Accept-Encoding"]).replace("deflate, ", "")
        usual.headers.clear()
        usual.headers.update({"User-Agent": user_agent("tpf-client"), "Accept-Encoding": encodings})
        head = {"Accept": "text/plain", "Accept-Encoding": f"{encodings}, dcz"}
        expected = usual.get(url, headers=head, timeout=60.0).text
        assert _body(transport, url) == expected
        assert _body(transport, url) == expected
        assert _body(_transport(usual), url) == expected


def test_bodies_are_decoded_however_they_are_framed() -> None:
    with http_server(_framed, "HTTP/1.1") as port, requests.Session() as session:
        for given in (None, session):
            with closing(_transport(given)) as transport:
                for coding in ("identity", "gzip"):
                    for framing in ("length", "chunked", "close"):
                        url = f"http://127.0.0.1:{port}/{coding}/{framing}"
                        assert transport.get(url, {}).body == _TEXT, url


def test_headers_of_one_request_are_not_in_the_next(port: int) -> None:
    url = f"http://127.0.0.1:{port}/"
    with closing(_transport()) as transport:
        first = transport.get(url, {"If-None-Match": '"tag"'}).body.decode()
        assert 'if-none-match: "tag"' in first
        assert "if-none-match" not in _body(transport, url)


def test_a_proxy_of_the_environment_is_asked(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    with closing(_transport()) as transport:
        assert _body(transport, "http://far.example/a?b").startswith("http://far.example/a?b\n")


def test_connections_that_were_closed_are_opened_again(port: int) -> None:
    url = f"http://127.0.0.1:{port}/a"
    with requests.Session() as session:
        transport = _transport(session)
        before = _body(transport, url)
        session.close()
        assert _body(transport, url) == before


def test_connections_that_the_server_closed_are_opened_again(port: int) -> None:
    url = f"http://127.0.0.1:{port}/once"
    with closing(_transport()) as transport:
        assert _body(transport, url) == _body(transport, url)


def test_what_nobody_asked_for_is_no_response() -> None:
    """Some servers say that they wait no longer."""
    wait, late = threading.Event(), threading.Event()

    def answer() -> None:
        with ExitStack() as connections:
            for _ in range(2):
                connection = connections.enter_context(server.accept()[0])
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                wait.wait(60)
                connection.sendall(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
                late.set()

    with socket.create_server(("127.0.0.1", 0)) as server, closing(_transport()) as transport:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert transport.get(url, {}).body == b"ok"
        wait.set()
        late.wait(60)
        assert transport.get(url, {}).body == b"ok"
        thread.join(60)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key, and a certificate of `localhost` that nobody signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    encoding = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    file.write_bytes(key.private_bytes(encoding, *form) + made.public_bytes(encoding))
    return file


def test_certificates_are_checked(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with http_server(_echo, "HTTP/1.1", context) as port, requests.Session() as session:
        for trusted, host in ((False, "localhost"), (True, "localhost"), (True, "127.0.0.1")):
            if trusted:
                monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
            for given in (None, session):
                transport = _transport(given)
                with closing(transport):
                    if trusted and host == "localhost":
                        url = f"https://{host}:{port}/a"
                        assert _body(transport, url) == _body(transport, url)
                    else:
                        with pytest.raises(SourceError, match=r"(?i)certificate"):
                            _body(transport, f"https://{host}:{port}/a")


@pytest.mark.parametrize("with_session", [False, True])
def test_what_fails_is_an_error_of_ours(with_session: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, requests.Session() as session:
        port = server.getsockname()[1]
        limits = Limits(retries=0, read_timeout=0.1)
        transport = Transport(
            SystemClock(), limits, Destinations(), session=session if with_session else None
        )
        with pytest.raises(SourceError, match="not an absolute"):
            transport.get("nothing", {})
        with pytest.raises(ConnectionFailedError, match="timed out"):
            transport.get(f"http://127.0.0.1:{port}/", {})
        server.close()
        with pytest.raises(ConnectionFailedError, match="refused"):
            transport.get(f"http://127.0.0.1:{port}/", {})
        transport.close()


@pytest.mark.parametrize(
    ("plain_session", "path"), [(False, "secret"), (False, "sec|ret"), (True, "secret")]
)
def test_a_name_that_came_to_stand_for_a_private_address_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, plain_session: bool, path: str
) -> None:
    """An attacker's name server may answer the check otherwise than the connection."""
    asked: list[str] = []
    answers = ["93.184.216.34", "127.0.0.1"]
    real = socket.getaddrinfo

    def resolve(host: str, *arguments: Any, **options: Any) -> Any:
        known = answers.pop(0) if host == "rebinding.test" else host
        return real(known, *arguments, **options)

    def note(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        _echo(request)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    session = requests.Session() if plain_session else None
    destinations = Destinations(["http://93.184.216.34/d"])
    with (
        http_server(note, "HTTP/1.1") as port,
        closing(Transport(SystemClock(), Limits(retries=0), destinations, session=session)) as it,
    ):
        url = destinations.named(f"http://rebinding.test:{port}/{path}")
        with pytest.raises(OriginError, match="data lead to a private address"):
            it.get(url, {})
        assert asked == []
        assert it.get(f"http://127.0.0.1:{port}/by-the-user", {}).status == 200
