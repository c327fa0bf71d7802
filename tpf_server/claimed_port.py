"""The port that a server listens on, for itself alone.

Every worker binds the port with ``SO_REUSEPORT``, so nothing would keep a second server from
binding it as well; the two would then answer by turns.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tpf_server.errors import ListenError


@contextmanager
def claimed_port(host: str, port: int) -> Iterator[int]:
    """A port on which nobody listens, and which no other server claims meanwhile.

    Args:
        host: address to listen on.
        port: 0 for any one that is free.

    Raises:
        ListenError: somebody listens there, or the address is not one of this machine.
    """
    with ExitStack() as held:
        try:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                # Connections that have just ended do not count, those who listen do.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
                port = probe.getsockname()[1]
            if sys.platform == "linux":
                # Another server may claim the port before the workers of this one listen. The name
                # has no file, and is given back with the end of the process.
                claim = held.enter_context(socket.socket(socket.AF_UNIX))
                claim.bind(f"\0tpf-server/{host}/{port}")
        except OSError as error:
            raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        yield port
