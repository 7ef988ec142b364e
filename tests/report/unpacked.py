"""The decoding of the page's script, in Python, and the parts of a page read back from its HTML."""

from __future__ import annotations

import json
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np


def floats(text: str) -> np.ndarray:
    return np.frombuffer(b64decode(text), "<f4")


def weights_of(raw: dict) -> np.ndarray:
    """Weights ``[N, rows kept, L]``; a last row beyond ``step`` is the mean over all forecast steps."""
    kind, most = ("<i2", 32767) if raw["signed"] else ("<u2", 65535)
    numbers = np.frombuffer(b64decode(raw["numbers"]), kind).reshape(raw["shape"])
    column = np.frombuffer(b64decode(raw["column"]), "<u2")
    return numbers[:, raw["row"]][:, :, column] / most * raw["scale"]


def stamps_of(pictures: dict, series: int) -> list[str]:
    axis, pool = pictures["series"][series]["axis"], pictures["stamps"]
    day, clock = (np.frombuffer(b64decode(axis[name]), "<u4") for name in ("day", "clock"))
    return [f"{pool['days'][d]} {pool['clocks'][c]}".strip() for d, c in zip(day, clock, strict=True)]


class Elements(HTMLParser):
    """Every element with its attributes, and all text in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.content: dict[str, str] = {}  # of style and the scripts, by "style", "script" or the id
        self.text: list[str] = []
        self._raw: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("style", "script"):
            self._raw = dict(attrs).get("id", tag)

    def handle_endtag(self, tag):
        if tag in ("style", "script"):
            self._raw = None

    def handle_data(self, data):
        if self._raw is None:
            self.text.append(data)
        else:
            self.content[self._raw] = self.content.get(self._raw, "") + data

    @property
    def data(self) -> dict:
        return json.loads(self.content["page-data"])
