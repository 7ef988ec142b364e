"""The HTML: one file, no address, and no text of the data that is read as markup."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.conftest import QUICK, make_waves
from tests.report.test_collect import large_forecast, stand_in, trust_report
from tests.report.unpacked import Elements
from tsattn.cli import main
from tsattn.errors import ConfigError
from tsattn.report.page import inert_json, render
from tsattn.report.series import draw_series

NASTY = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "a \"quoted\" 'id' & <b>more</b>",
    "{{script}} ${title} \\u003c \\",
    "日本語 שלום \u2028 \x07 🙂",
    "x" * 5000,
]


def nasty_table():
    """Ids, column names and categories that would break a page that does not escape them."""
    table = pd.concat([make_waves(series=1, steps=80).assign(unique_id=name) for name in NASTY], ignore_index=True)
    table["<i>kind</i>"] = np.where(table.index % 160 < 80, "</style><script>alert(3)</script>", "other")
    return table.rename(columns={"y": "</script><script>alert(4)</script>", "unique_id": "<u>id</u>"})


@pytest.fixture(scope="module")
def nasty(tmp_path_factory):
    model = tsattn.Forecaster(
        horizon=6,
        context=24,
        id="<u>id</u>",
        target="</script><script>alert(4)</script>",
        static=["<i>kind</i>"],
        options={"patch": 6},
        training=QUICK,
    ).fit(nasty_table())
    path = model.report(tmp_path_factory.mktemp("report") / "new" / "page.html", nasty_table(), check=False, windows=0)
    return path.read_text(encoding="utf-8")


def empty_page(**parts):
    """The least a page holds."""
    reason = {"reason": "This was not asked for."}
    page = {"model": [("model", "m")], "data": [], "notes": [], "pictures": {}, "variables": []}
    return {**page, "trust": reason, "backtest": reason, **parts}


def test_no_address_and_nothing_to_load(nasty):
    assert "http:" not in nasty
    assert "https:" not in nasty
    page = Elements(nasty)
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object", "base", "audio", "video")]
    assert not [attrs for _, attrs in page.elements if "src" in attrs or "action" in attrs or "srcset" in attrs]
    assert [attrs["href"] for _, attrs in page.elements if "href" in attrs] == ["data:,"]
    assert set(re.findall(r"url\(([^)]*)\)", page.content["style"] + page.content["script"])) == {"#hatch", "#minus"}
    assert "@import" not in page.content["style"]
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(|innerHTML|\beval\b", page.content["script"])


def test_the_policy_allows_this_style_and_this_script_alone(nasty):
    page = Elements(nasty)
    policy = next(attrs["content"] for _, attrs in page.elements if attrs.get("http-equiv"))
    for kind in ("style", "script"):
        digest = b64encode(hashlib.sha256(page.content[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert not [attrs for _, attrs in page.elements if "style" in attrs or any(name.startswith("on") for name in attrs)]


def test_texts_of_the_data_are_no_markup(nasty):
    page = Elements(nasty)
    assert [attrs.get("id") for tag, attrs in page.elements if tag == "script"] == ["page-data", None]
    assert not [tag for tag, _ in page.elements if tag in ("b", "i", "u", "img")]
    pictures = page.data["pictures"]
    found = {each["id"] for each in pictures["series"]}
    assert found >= set(NASTY[:4])
    assert pictures["targets"] == ["</script><script>alert(4)</script>"]
    assert any("column <u>id</u>" in text for text in page.text)
    assert any("<i>kind</i>" in text for text in page.text)


def test_a_very_long_id_is_cut(nasty):
    ids = [each["id"] for each in Elements(nasty).data["pictures"]["series"]]
    assert max(map(len, ids)) == 300


def test_every_text_of_every_part_is_escaped():
    text = "<x-y>&quot;"
    table = {"columns": [text, text], "rows": [[text, text]]}
    curve = {"replace": text, "order": text, "removed": [0.5], "effect": [1.0], "low": [None], "high": [2.0]}
    trust = {
        "verdict": "partly", "reasons": [text], "windows": 1, "method": text, "thresholds": [(text, text)],
        "curves": [curve], "table": table, "findings": [(text,) * 5], "seen": text,
    }  # fmt: skip
    backtest = {"table": table, "windows": 1, "in_sample": False, "trained_until": [text], "model": text}
    variables = [{"layer": text, "pairs": [(text, text, 0.5)], "of": 1, "even": 0.5}]
    page = {"model": [("model", text)], "data": [(text, text)], "notes": [text], "pictures": {"id": text}}
    html = render({**page, "trust": trust, "backtest": backtest, "variables": variables})
    assert text not in html
    assert "x-y" not in {tag for tag, _ in Elements(html).elements}
    assert render(empty_page(trust={"reason": text}, backtest={"reason": text})).count("&lt;x-y&gt;&amp;quot;") == 3


@pytest.mark.parametrize("text", ["</script>", "<!--", "&lt;", "\u2028"])
def test_json_holds_no_sign_that_ends_it(text):
    found = inert_json({"x": text})
    assert not set("<>&\u2028") & set(found)


def test_a_place_holder_in_the_data_stays_text():
    html = render(empty_page(notes=["{{script}} and {{json}}"]))
    assert "<p>{{script}} and {{json}}</p>" in html


def test_every_control_finds_its_label_and_its_help(nasty):
    page = Elements(nasty)
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = [
        attrs[name] for _, attrs in page.elements for name in ("aria-labelledby", "aria-describedby") if name in attrs
    ]
    assert named
    assert set(named) <= set(ids)


def test_twenty_large_series_stay_below_two_megabytes():
    html = render(empty_page(pictures=draw_series(large_forecast())))
    assert 1_000_000 < len(html.encode()) < 2_000_000


def test_verdict_checks_and_curves_stand_on_the_page(monkeypatch, tmp_path):
    stand_in(monkeypatch, lambda forecaster, data: trust_report())
    table = make_waves(steps=150)
    model = tsattn.Forecaster(horizon=6, context=48, options={"patch": 12}, training=QUICK).fit(table)
    page = Elements(model.report(tmp_path / "p.html", table, windows=2, refit="never").read_text(encoding="utf-8"))
    text = " ".join(" ".join(page.text).split())
    assert "Partly The map says something" in text
    assert "It beats a random order, <b>not</b> recency." in text
    assert "Thresholds: skill 0.05, use 0.02," in text
    assert "In sample: the model was trained on rows up to 2024-01-07 05:00" in text
    assert "seasonal_naive" in text
    assert "and 2 more 0.9 to 0.94 One step. A null key." in text
    assert len(page.data["curves"]) == 4


@pytest.mark.parametrize("verdict", ["supported", "partly", "not used", "not supported", "inconclusive"])
def test_every_verdict_has_a_sign_and_a_sentence(verdict):
    trust = {"verdict": verdict, "reasons": [], "windows": 1, "method": "m", "thresholds": [], "curves": [],
             "table": {"columns": [], "rows": []}, "findings": [], "seen": ""}  # fmt: skip
    html = render(empty_page(trust=trust))
    assert f"<strong>{verdict[0].upper()}{verdict[1:]}</strong> The " in html


def test_a_path_that_cannot_be_written(tmp_path):
    model = tsattn.Forecaster("naive", horizon=2, context=4, training=QUICK).fit(make_waves(steps=60))
    with pytest.raises(ConfigError, match="it is a folder"):
        model.report(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Cannot write the report"):
        model.report(tmp_path / "file" / "page.html")


def test_on_the_command_line(tmp_path, capsys):
    table = tmp_path / "waves.csv"
    make_waves(steps=100).to_csv(table, index=False)
    model = tsattn.Forecaster("nlinear", horizon=4, context=24, training=QUICK).fit(str(table))
    model.save(tmp_path / "run")
    out = tmp_path / "pages" / "report.html"
    flags = ["--model", str(tmp_path / "run"), "--data", str(table), "--series", "2", "--check", "false"]
    assert main(["attention", *flags, "--windows", "1", "--out", str(out)]) == 0
    assert f"written to {out}" in capsys.readouterr().err
    page = Elements(out.read_text(encoding="utf-8"))
    assert len(page.data["pictures"]["series"]) == 2
    assert any(str(table) in text for text in page.text)
