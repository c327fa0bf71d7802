"""The background tiles of the page's map."""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from tpf_client.errors import MapTilesError

_NAMED: Final = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]+)?")
"""What a policy can name: no IPv6 address, and other scripts as ``xn--``."""
_CHARACTERS: Final = re.compile(r"[!-~]+")
_HOLE: Final = re.compile(r"\{[^{}]*\}")
_HOLES: Final = ("{z}", "{x}", "{y}")


@dataclass(frozen=True, slots=True)
class MapTiles:
    """Tiles of 256 pixels in the Mercator projection, numbered as by OpenStreetMap.

    Args:
        template: their URL with ``{z}``, ``{x}`` and ``{y}`` for zoom, column and row.
        attribution: shown below the map.
    """

    template: str
    attribution: str

    def __post_init__(self) -> None:
        where = repr(self.template)
        try:
            parts = urlsplit(self.template)
            port = parts.port
        except ValueError:
            raise MapTilesError(f"map tiles: this is no URL: {where}") from None
        ascii_only = _CHARACTERS.fullmatch(self.template)
        if parts.scheme not in ("http", "https") or not ascii_only or parts.fragment:
            raise MapTilesError(
                f"map tiles: this is no http(s) URL of ASCII and no fragment: {where}"
            )
        if "@" in parts.netloc:
            raise MapTilesError(f"map tiles: every reader would see who logs in: {where}")
        if not _NAMED.fullmatch(parts.netloc) or port == 0:
            raise MapTilesError(f"map tiles: a policy cannot name the host of {where}")
        holes = _HOLE.findall(self.template.removeprefix(self.origin))
        for hole in _HOLES:
            if hole not in holes:
                raise MapTilesError(f"map tiles: there is no {hole} in the path of {where}")
        for hole in holes:
            if hole not in _HOLES:
                raise MapTilesError(f"map tiles: nothing is known to put for {hole} in {where}")
        if not (self.attribution.strip() and self.attribution.isprintable()):
            raise MapTilesError(
                f"map tiles: a line that says whose they are is needed, not {self.attribution!r}"
            )

    @property
    def origin(self) -> str:
        parts = urlsplit(self.template)
        return f"{parts.scheme}://{parts.netloc}"


def map_tiles(template: str, attribution: str) -> MapTiles | None:
    """Return the tiles of two settings; ``None`` where both are empty."""
    if not template:
        if attribution:
            raise MapTilesError(f"map tiles: there are none that would be of {attribution!r}")
        return None
    return MapTiles(template, attribution)
