"""Bearer tokens (RFC 6750): who may change what, and see what is not for everybody."""

import hmac

from flask import Request

from tpf_server.errors import ForbiddenError, UnauthorizedError


def authorize(request: Request, token: str, what: str) -> None:
    """See to it that a request carries a token.

    Args:
        request: the request.
        token: the right one; nobody has it where it is empty.
        what: what needs it, for the message.

    Raises:
        ForbiddenError: there is no right one.
        UnauthorizedError: the request carries none, or another one.
    """
    if not token:
        raise ForbiddenError(f"{what} is off: the server has no publish_token")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthorizedError(f"{what} needs Authorization: Bearer TOKEN")
    if not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise UnauthorizedError("this is not the right token")
