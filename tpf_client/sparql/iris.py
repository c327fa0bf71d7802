"""Relative IRIs. Source: RFC 3986, section 5.2."""

import re

_PARTS = re.compile(r"(?:([^:/?#]+):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)


def is_absolute(iri: str) -> bool:
    """True if an IRI has a scheme."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", iri) is not None


def resolve(base: str, reference: str) -> str:
    """Resolve an IRI reference against a base."""
    base_match, match = _PARTS.fullmatch(base), _PARTS.fullmatch(reference)
    assert base_match is not None
    assert match is not None
    base_scheme, base_authority, base_path, base_query, _ = base_match.groups()
    scheme, authority, path, query, fragment = match.groups()
    if scheme is not None:
        path = _without_dots(path)
    else:
        scheme = base_scheme
        if authority is not None:
            path = _without_dots(path)
        else:
            authority = base_authority
            if not path:
                path = base_path
                query = base_query if query is None else query
            elif path.startswith("/"):
                path = _without_dots(path)
            else:
                path = _without_dots(_merged(base_authority, base_path, path))
    return "".join(
        (
            "" if scheme is None else f"{scheme}:",
            "" if authority is None else f"//{authority}",
            path,
            "" if query is None else f"?{query}",
            "" if fragment is None else f"#{fragment}",
        )
    )


def _merged(authority: str | None, base: str, path: str) -> str:
    if authority is not None and not base:
        return f"/{path}"
    return base[: base.rfind("/") + 1] + path


def _without_dots(path: str) -> str:
    output: list[str] = []
    segments = path.split("/")
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == ".":
            if last:
                output.append("")
        elif segment == "..":
            if len(output) > 1 or (output and output[0]):
                output.pop()
            if last:
                output.append("")
        else:
            output.append(segment)
    return "/".join(output)
