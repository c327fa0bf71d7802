"""Recent updates in the list of datasets."""

import re
import xml.etree.ElementTree as ET
from datetime import timedelta
from pathlib import Path

from annotations.labels import Expiration
from tests.support.served import NOON, Served, quad
from tests.tpf_server.conftest import STATIC
from tpf_server.web.html import sparkline


def test_updates_are_drawn_minute_by_minute(tmp_path: Path) -> None:
    hours = Expiration(NOON + timedelta(hours=5))
    with Served(tmp_path, STATIC) as served:
        assert "no updates in the last hour" in served.get("", "text/html").text
        for minute, names in ((0, "a"), (10, "bcde"), (10, "f")):
            served.clock.advance_to(NOON + timedelta(minutes=minute))
            served.publish(*[(quad(name, "delay", f'"{minute}"'), hours) for name in names])
        page = served.get("", "text/html").text
        assert "6 updates in the last hour, at most 5 in a minute" in page
        assert " style=" not in page
        served.clock.advance_to(NOON + timedelta(minutes=65))
        assert "5 updates in the last hour" in served.get("", "text/html").text
        served.clock.advance_to(NOON + timedelta(minutes=75))
        assert "no updates in the last hour" in served.get("", "text/html").text


def test_the_drawing_is_right() -> None:
    drawn = str(sparkline([0, 1, 12, 6]))
    root = ET.fromstring(drawn.partition("</svg>")[0] + "</svg>")
    bars = re.findall(r"M(\d+),24v-(\d+)h2V24z", root.findall("path")[0].attrib["d"])
    assert bars == [("3", "2"), ("6", "24"), ("9", "12")]
    assert root.attrib["aria-label"] == "19 updates in the last hour, at most 12 in a minute"
    assert "<svg" not in sparkline([0, 0])
