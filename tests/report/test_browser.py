"""The page in a real headless Chromium: keys, pointer, numbers, colours, and no request.

Needs ``chromium`` and ``chromedriver`` (Debian: ``apt-get install chromium chromium-driver``) and selenium.
"""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

import tsattn
from tests.conftest import QUICK, make_waves
from tests.report.test_collect import stand_in, trust_report
from tests.report.test_page import NASTY, nasty_table

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.filterwarnings("ignore::ResourceWarning")]

HORIZON, CONTEXT = 6, 48


@pytest.fixture(scope="module")
def browser():
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no chromium with chromedriver on this machine: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1100,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def opened(browser):
    """A function that opens a file; afterwards nothing may have been logged, and nothing requested."""

    def load(path, width=1100):
        media(browser, "light")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get_log("performance")
        browser.get_log("browser")
        browser.get(path.as_uri())
        return browser

    yield load
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert urls
    assert all(url.startswith(("file://", "data:")) for url in urls), urls
    assert len([url for url in urls if url.startswith("file://")]) == 1


def media(browser, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture(scope="module")
def waves():
    """Two hourly series over the clock change of spring in Berlin, two targets, gaps."""
    table = make_waves(series=2, steps=150)
    stamps = pd.date_range("2024-03-25 00:00", periods=150, freq="h", tz="Europe/Berlin")
    table["ds"] = np.tile(stamps, 2)
    table["z"] = -table["y"]
    return table


@pytest.fixture(scope="module")
def forecaster(waves):
    model = tsattn.Forecaster(
        "transformer",
        horizon=HORIZON,
        context=CONTEXT,
        target=["y", "z"],
        options={"width": 16, "heads": 2, "decoder_layers": 2},
        training=QUICK,
    )
    return model.fit(waves)


@pytest.fixture(scope="module")
def page(forecaster, waves, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, lambda model, data: trust_report())
        return forecaster.report(tmp_path_factory.mktemp("page") / "page.html", waves, windows=2, refit="never")


def readout(browser):
    return browser.find_element(By.ID, "readout").text


def number(label, text):
    return float(re.search(rf"{label} ([-+]?[\d.e-]+)", text)[1])


def choose(browser, name, downs):
    """Pick an option with the keys alone: the control must be reachable, and keep the focus."""
    for _ in range(downs):
        browser.find_element(By.ID, f"pick-{name}").send_keys(Keys.ARROW_DOWN)
        assert browser.switch_to.active_element.get_attribute("id") == f"pick-{name}"


def steps_back(browser, count):
    """Focus the chart and go to the step ``count`` before the last one."""
    chart = browser.find_element(By.ID, "chart")
    chart.send_keys(Keys.END)
    for _ in range(HORIZON + count):
        chart.send_keys(Keys.ARROW_LEFT)
    return readout(browser)


def test_the_readout_says_date_value_weight_and_rank_of_the_map(opened, page, forecaster):
    browser = opened(page)
    attention = forecaster.predict(attention=True).attention
    weights = attention.step_weights(0, 0).mean(axis=(0, 1))
    text = steps_back(browser, 3)
    place = CONTEXT - 1 - 3
    assert text.startswith("2024-03-31 03:00 +02:00")  # 02:00 to 03:00 does not exist on that day
    assert number("y", text) == pytest.approx(attention.history(0)[place], rel=1e-4)
    assert number("attention", text) == pytest.approx(100 * weights[place], rel=6e-3)
    order = np.sort(weights[attention.observed(0)])[::-1]
    assert f"rank {1 + np.sum(order > weights[place])} of {len(order)}" in text
    assert number("times an even spread", text) == pytest.approx(weights[place] * len(order), rel=6e-3)


def test_series_target_horizon_head_and_layer_are_picked_with_keys(opened, page, forecaster):
    browser = opened(page)
    for name, downs in (("series", 1), ("target", 1), ("layer", 1), ("step", 3), ("head", 2)):
        choose(browser, name, downs)
    attention = forecaster.predict(attention=True).attention
    layer = attention.mapped[::-1][1]
    weights = attention.step_weights(1, 1, layer)[1, 2]
    text = steps_back(browser, 5)
    assert browser.find_element(By.ID, "series-title").text == "s1, z"
    assert number("z", text) == pytest.approx(attention.history(1, 1)[CONTEXT - 6], rel=1e-4)
    assert number("attention", text) == pytest.approx(100 * weights[CONTEXT - 6], rel=6e-3)
    assert "forecast step 3 (2024-03-31 09:00 +02:00), head 1." in browser.find_element(By.ID, "summary").text


def test_keys_walk_by_rank_and_enter_picks_a_forecast_step(opened, page, forecaster):
    browser = opened(page)
    chart = browser.find_element(By.ID, "chart")
    chart.send_keys(Keys.END)
    assert "forecast step 6 of 6" in readout(browser)
    chart.send_keys(Keys.ENTER)
    assert browser.find_element(By.ID, "pick-step").get_attribute("value") == "5"
    chart.send_keys(Keys.ARROW_UP)
    assert "rank 1 of" in readout(browser)
    chart.send_keys(Keys.ARROW_DOWN)
    assert "rank 2 of" in readout(browser)
    weights = forecaster.predict(attention=True).attention.step_weights(0, 0).mean(axis=0)[5]
    assert number("attention", readout(browser)) == pytest.approx(100 * np.sort(weights)[-2], rel=6e-3)


def test_forecast_steps_say_forecast_and_interval(opened, page, forecaster):
    browser = opened(page)
    windows = forecaster.predict().windows
    browser.find_element(By.ID, "chart").send_keys(Keys.END)
    text = readout(browser)
    low, high = map(float, re.search(r"80 % interval ([\d.]+) to ([\d.]+)", text).groups())
    assert number(r"forecast \(median\)", text) == pytest.approx(windows.point[0, -1, 0], rel=1e-4)
    assert (low, high) == pytest.approx(tuple(windows.quantiles[0, -1, 0, [0, -1]]), rel=1e-4)


def test_the_pointer_shows_a_tooltip_with_the_same_words(opened, page):
    browser = opened(page)
    chart, tooltip = browser.find_element(By.ID, "chart"), browser.find_element(By.ID, "tooltip")
    assert not tooltip.is_displayed()
    ActionChains(browser).move_to_element_with_offset(chart, -100, 0).perform()
    assert tooltip.is_displayed()
    lines = tooltip.text.split("\n")
    assert [line.partition(":")[0] for line in lines[1:]] == ["y", "attention", "rank", "times an even spread"]
    assert readout(browser) == "; ".join([lines[0], *(line.replace(": ", " ", 1) for line in lines[1:])])
    chart.send_keys(Keys.ESCAPE)
    assert not tooltip.is_displayed()


def test_the_heat_map_moves_with_keys_and_its_row_follows_the_picker(opened, page, forecaster):
    browser = opened(page)
    heat = browser.find_element(By.ID, "heat")
    assert not heat.find_elements(By.CSS_SELECTOR, "rect.chosen:not([visibility])")
    choose(browser, "step", 2)
    heat.send_keys(Keys.ARROW_LEFT * 3, Keys.ARROW_DOWN)  # three steps back, and from row 2 to row 3
    text = readout(browser)
    weights = forecaster.predict(attention=True).attention.step_weights(0, 0).mean(axis=0)
    assert "for step 3, 2024-03-31 09:00 +02:00" in text
    assert number("attention", text) == pytest.approx(100 * weights[2, CONTEXT - 4], rel=6e-3)
    box, row = heat.rect, heat.find_element(By.CSS_SELECTOR, "rect.chosen:not([visibility])").rect
    share = (row["y"] + row["height"] / 2 - box["y"] - 4) / heat.find_element(By.TAG_NAME, "canvas").size["height"]
    assert share == pytest.approx(1.5 / HORIZON, abs=0.03)
    heat.send_keys(Keys.ENTER)
    assert browser.find_element(By.ID, "pick-step").get_attribute("value") == "2"


def test_the_brightest_cell_of_the_canvas_is_the_largest_weight(opened, page, forecaster):
    browser = opened(page)
    pixels = browser.execute_script(
        "const c = document.querySelector('#heat canvas');"
        "return [c.width, c.height, Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)]"
    )
    width, height, data = pixels
    light = np.array(data).reshape(height, width, 4)[..., :3].sum(axis=2)
    weights = forecaster.predict(attention=True).attention.step_weights(0, 0).mean(axis=0)
    assert (height, width) == weights.shape
    assert light[np.unravel_index(weights.argmax(), weights.shape)] == light.min()
    assert np.corrcoef(light.ravel(), np.sqrt(weights).ravel())[0, 1] < -0.9


def test_light_and_dark(opened, page):
    browser = opened(page)

    def look():
        return browser.execute_script(
            "const c = document.querySelector('#heat canvas').getContext('2d');"
            "const s = getComputedStyle(document.body);"
            "return [s.backgroundColor, s.color, Array.from(c.getImageData(0, 0, 1, 1).data).join()]"
        )

    light = look()
    browser.execute_script("document.querySelector('#heat canvas').id = 'light'")
    media(browser, "dark")
    WebDriverWait(browser, 10).until(lambda _: not browser.find_elements(By.ID, "light"))  # drawn anew
    dark = look()
    assert light[0] == "rgb(255, 255, 255)"
    assert max(map(int, re.findall(r"\d+", dark[0]))) < 60
    assert all(a != b for a, b in zip(light, dark, strict=True))


def test_a_phone_scrolls_in_one_direction_only(opened, page):
    browser = opened(page, width=360)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    for name in ("series", "step"):
        assert browser.find_element(By.ID, f"pick-{name}").rect["width"] <= 340


def test_everything_is_reached_with_tab_and_focus_is_seen(opened, page):
    browser = opened(page)
    reached = []
    for _ in range(12):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        reached.append(active.get_attribute("id"))
        assert active.value_of_css_property("outline-style") != "none"
    wanted = ["pick-series", "pick-target", "pick-layer", "pick-step", "pick-head", "chart", "heat"]
    assert [name for name in reached if name in wanted] == wanted


def test_controls_have_names(opened, page):
    browser = opened(page)
    names = [select.accessible_name for select in browser.find_elements(By.TAG_NAME, "select")]
    assert names == ["Series", "Target", "Shown", "Forecast step", "Head"]
    assert browser.find_element(By.ID, "chart").accessible_name.startswith("History and forecast of s0.")


def test_trust_curves_are_drawn_with_their_names(opened, page):
    browser = opened(page)
    figures = browser.find_elements(By.CSS_SELECTOR, "#curves figure")
    assert [each.find_element(By.TAG_NAME, "figcaption").text for each in figures] == [
        "Past steps replaced by mean",
        "Past steps replaced by donor",
    ]
    lines = [figures[0].find_element(By.CSS_SELECTOR, f"svg[role=img] > path.curve.k{k}") for k in (0, 1)]
    ends = [float(re.findall(r"[\d.]+", line.get_attribute("d"))[-1]) for line in lines]
    assert ends[0] < ends[1]  # higher up: the order of the map moves the forecast more


def test_texts_of_the_data_stay_text(opened, tmp_path):
    model = tsattn.Forecaster(
        horizon=6, context=24, id="<u>id</u>", target="</script><script>alert(4)</script>", static=["<i>kind</i>"],
        options={"patch": 6}, training=QUICK,
    ).fit(nasty_table())  # fmt: skip
    browser = opened(model.report(tmp_path / "page.html"), width=360)
    texts = [
        option.get_attribute("textContent") for option in browser.find_elements(By.CSS_SELECTOR, "#pick-series option")
    ]
    assert set(NASTY[:4]) <= set(texts)
    titles = set()
    for _ in texts:
        titles.add(browser.find_element(By.ID, "series-title").get_attribute("textContent"))
        choose(browser, "series", 1)
    assert set(NASTY[:4]) <= titles
    assert not browser.find_elements(By.CSS_SELECTOR, "body img, body b:not(.tooltip b), body u, body i:not(.scale i)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360


def table_of(values, times):
    return pd.DataFrame({"ds": times, "y": values})


def odd_cases():
    hours = pd.date_range("2024-01-01", periods=120, freq="h")
    wave = np.sin(np.arange(120) / 4)
    gaps = np.where(np.arange(120) % 50 > 42, np.nan, wave)
    both = table_of(wave, hours).assign(z=np.where(np.arange(120) < 60, wave, np.nan))
    small = {"width": 8, "heads": 2, "layers": 1}
    yield "one step", "lucid", table_of(wave, hours), {"horizon": 1}, "mean over 1 forecast step"
    yield "integers", "lucid", table_of(wave, np.arange(120)), {}, "ds: 96 to 125"
    yield "missing steps", "lucid", table_of(gaps, hours), {}, "not observed"
    yield "constant", "lucid", table_of(np.full(120, 3.0), hours), {}, "Half of the weight"
    yield "no forecast", "lucid", both, {"target": ["z", "y"]}, "y"
    yield "dlinear", "dlinear", table_of(wave, hours), {"options": {}}, "dlinear has no attention"
    yield "itransformer", "itransformer", table_of(wave, hours), {"options": small}, "not over time"
    yield "patchtst", "patchtst", table_of(wave, hours), {"options": small}, "contribution of each patch"
    yield "tft", "tft", table_of(wave, hours), {"options": {"width": 8, "heads": 2}}, "spent on forecast steps"
    yield "points", "lucid", table_of(wave, hours), {"output": "point"}, "forecast"


@pytest.mark.parametrize("case", list(odd_cases()), ids=lambda case: case[0])
@pytest.mark.filterwarnings("ignore::tsattn.TsattnWarning")
def test_odd_pages_open_and_can_be_walked(case, opened, tmp_path):
    _, name, table, settings, text = case
    settings = {"horizon": 6, "context": 24, "id": None, "options": {"patch": 6}, **settings}
    model = tsattn.Forecaster(name, training=QUICK, **settings).fit(table)
    browser = opened(model.report(tmp_path / "page.html"))
    chart = browser.find_element(By.ID, "chart")
    for key in (Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.END, Keys.ENTER):
        chart.send_keys(key)
    heat = browser.find_element(By.ID, "heat")
    if heat.is_displayed():
        heat.send_keys(Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ENTER)
    assert text in browser.find_element(By.TAG_NAME, "body").text
    assert "NaN" not in browser.find_element(By.ID, "chart").get_attribute("innerHTML")
