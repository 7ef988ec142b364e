"""One HTML string: no address outside the file, and a policy that forbids every request."""

from __future__ import annotations

import html
import json
import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from tsattn.errors import ConfigError
from tsattn.report import tables
from tsattn.writing import write_whole

# One after the other, in one scope.
SCRIPTS = ("decode.js", "draw.js", "chart.js", "heatmap.js", "curves.js", "words.js", "keys.js", "page.js")


def write_page(page: dict[str, Any], path: str | Path) -> Path:
    """Write the page of ``collect`` to ``path``, whole or not at all. Raises ConfigError where that is not possible."""
    path = Path(path)
    text = render(page).encode("utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        write_whole(path, text)
    except OSError as error:
        raise ConfigError(f"Cannot write the report to {str(path)!r}: {error.strerror}.") from None
    return path


def render(page: dict[str, Any]) -> str:
    """The page of ``collect`` as HTML. Every text of the data is escaped; the script finds its data as inert JSON."""
    style, script = _read("page.css"), _script()
    model = dict(page["model"])["model"]
    parts = {
        "policy": html.escape(_policy(style, script)),
        "title": html.escape(f"{model}: forecasts and what they read"),
        "style": style,
        "verdict": tables.verdict(page["trust"]),
        "notes": tables.paragraphs(page["notes"]),
        "variables": tables.variables(page["variables"]),
        "trust": tables.trust(page["trust"]),
        "backtest": tables.backtest(page["backtest"]),
        "model": tables.facts(page["model"]),
        "data": tables.facts(page["data"]),
        "json": inert_json({"pictures": page["pictures"], "curves": page["trust"].get("curves", [])}),
        "script": script,
    }
    # One pass: what stands in a part is never read as a place of another.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _read("template.html"))


def inert_json(value: Any) -> str:
    """JSON that no text can leave: ``<``, ``>`` and ``&`` are written as escapes. NaN is refused."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _policy(style: str, script: str) -> str:
    """Only this style and this script run; nothing is loaded, sent, or framed."""
    sources = {"style-src": style, "script-src": script}
    allowed = "; ".join(f"{name} 'sha256-{_digest(text)}'" for name, text in sources.items())
    return f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")


def _script() -> str:
    return '\n(() => {\n"use strict";\n' + "\n".join(_read(name) for name in SCRIPTS) + "\n})();\n"


def _read(name: str) -> str:
    return (files("tsattn.report") / "web" / name).read_text(encoding="utf-8")
