"""The verdict: its rules on hand-made evidence, on networks known in closed form, and on trained planted models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tsattn
from tsattn.data import planted
from tsattn.data.panel import Panel
from tsattn.errors import ConfigError
from tsattn.inspection.deletion import stretch_scores
from tsattn.inspection.diagnose import diagnose
from tsattn.inspection.maps import AttentionMap
from tsattn.inspection.statistics import Interval, interval, needed
from tsattn.inspection.trust import check_attention
from tsattn.inspection.verdict import Evidence, Thresholds, decide
from tsattn.models.base import Axis
from tsattn.models.shortcut import Shortcut

from .hand_maps import panel_of, time_axis, windows_of
from .oracle import oracle


def rows_of(forecaster: tsattn.Forecaster, length: int = 200, series: int = 3) -> object:
    """White noise the forecaster has not seen, made by the rule it follows: a copy of the step 6 before."""
    import pandas as pd

    rng = np.random.default_rng(1)
    y = rng.normal(size=(series, length))
    for t in range(6, length):
        y[:, t] = 0.95 * y[:, t - 6] + np.sqrt(1 - 0.95**2) * y[:, t]
    return pd.DataFrame(
        {
            "unique_id": np.repeat([f"s{i}" for i in range(series)], length),
            "ds": np.tile(pd.date_range("2025-01-01", periods=length, freq="h"), series),
            "y": (10 + 3 * y).ravel(),
        }
    )


QUICK = {"windows": 48, "block": 2, "networks": 0, "draws": 8}


# --------------------------------------------------------------------------------------------------- closed forms


def test_an_oracle_is_supported():
    model = oracle(beta=6.0)
    report = check_attention(model, rows_of(model), **QUICK)
    assert report.verdict == "supported"
    assert report.table["passed"].all()
    # four forecast steps copy four neighbouring steps: two stretches of six hold them all
    curves = report.curves.query("replace == 'mean'").set_index(["order", "removed"])["effect"]
    assert curves["attention"].iloc[2] == pytest.approx(curves["attention"].iloc[3], rel=0.1)
    assert curves["attention"].iloc[1] > 2 * curves["random"].iloc[1]


def test_an_attention_past_which_the_forecast_goes_is_not_used():
    model = oracle(beta=6.0, skip=True)
    report = check_attention(model, rows_of(model), **QUICK)
    assert report.verdict == "not used"
    assert report.evidence.use == Interval(0.0, 0.0, 0.0)
    assert "does without it" in report.reasons[0]


def test_a_map_that_points_beside_what_is_read_is_not_supported():
    """Keys that hold other steps' values, as after a circular convolution: the map looks as crisp as the right one."""
    model = oracle(beta=6.0, lag=9, shift=-3, horizon=3)  # points at lag 9, reads lag 6
    report = check_attention(model, rows_of(model), windows=60, block=3, networks=0)
    assert report.evidence.skill.low > 0.3
    assert report.evidence.use.low > 0.3
    assert report.verdict == "not supported"
    assert "no further than anything else" in report.reasons[0]


def test_a_map_that_random_networks_share_is_not_supported():
    model = oracle(beta=6.0)  # a new one has the same weights
    report = check_attention(model, rows_of(model), **{**QUICK, "networks": 2})
    assert report.verdict == "not supported"
    assert report.evidence.random_maps == pytest.approx(1.0)


def test_the_order_of_the_oracle_is_the_best_of_all():
    """On a linear model nothing moves the forecast further, after one removal, than the largest contribution.

    Removal by the mean, that is, which is what occlusion ranks by; a donor's values decide how far his removal moves.
    """
    model = oracle(beta=6.0)
    table = rows_of(model)
    first = []
    for method in ({"method": "occlusion"}, {}):
        curves = check_attention(model, table, **method, **QUICK).curves.set_index(["replace", "order"])["effect"]
        first.append({how: curves[how, "attention"].iloc[1] for how in ("mean", "donor")})
    assert first[0]["mean"] >= first[1]["mean"] - 1e-6
    assert first[0]["donor"] > 0.9 * first[1]["donor"]


def test_seeds_that_agree_and_seeds_that_do_not():
    model = oracle(beta=6.0)
    table = rows_of(model)
    agree = check_attention(model, table, others=[oracle(beta=4.0)], **QUICK)
    assert agree.evidence.seeds > 0.95
    assert agree.verdict == "supported"
    differ = check_attention(model, table, others=[oracle(beta=6.0, lag=10)], **QUICK)
    assert differ.evidence.seeds < 0.7
    assert differ.verdict == "partly"
    assert "disagree" in differ.reasons[-1]
    with pytest.raises(ConfigError, match="another context or horizon"):
        check_attention(model, table, others=[oracle(context=14)], **QUICK)


def test_the_report_is_five_lines_and_plain_data():
    import json

    model = oracle(beta=6.0)
    report = check_attention(model, rows_of(model), **QUICK)
    lines = str(report).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("supported: attention of Oracle, 48 windows.")
    assert "limit 2%" in lines[1]
    assert list(report.table.columns) == ["check", "value", "low", "high", "threshold", "passed"]
    assert list(report.curves.columns) == ["replace", "order", "removed", "effect", "low", "high", "path"]
    assert set(report.curves["order"]) == {"attention", "random", "recency", "profile"}
    assert (report.curves["path"] >= report.curves["effect"] - 1e-5).all()
    json.dumps(report.to_dict())
    again = check_attention(model, rows_of(model), **QUICK)
    assert str(again) == str(report)  # nothing is left to chance


def test_what_cannot_be_checked_is_refused(tmp_path):
    import pandas as pd

    model = oracle()
    table = rows_of(model)
    with pytest.raises(ConfigError, match="at least 2 windows"):
        check_attention(model, table, windows=1)
    with pytest.raises(ConfigError, match=r"replace is a list"):
        check_attention(model, table, replace="mean")
    with pytest.raises(ConfigError, match="Unknown replacement 'zero'"):
        check_attention(model, table, replace=["zero"], networks=0)
    frame = pd.DataFrame({"ds": range(80), "a": np.arange(80.0), "b": np.arange(80.0)[::-1]})
    wide = tsattn.Forecaster(
        "itransformer", horizon=2, context=8, id=None, target=["a", "b"],
        options={"width": 8, "heads": 1, "hidden": 8, "layers": 1}, training={"epochs": 1, "verbose": False},
    ).fit(frame)  # fmt: skip
    with pytest.raises(ConfigError, match="variables, not over time"):
        check_attention(wide, frame, windows=8)
    assert check_attention(wide, frame, windows=8, method="occlusion", networks=1).method == "occlusion"


# --------------------------------------------------------------------------------------------------- rules


def evidence(**changes: object) -> Evidence:
    """Everything in order, unless changed."""
    good = Interval(0.5, 0.4, 0.6)
    gains = {"random": good, "recency": good, "profile": Interval(0.0, -0.1, 0.1)}
    scores = {"attention": 2.0, "random": 1.0, "recency": 1.0, "profile": 2.0}
    base = Evidence(good, good, 0.1, None, 0.3, {"mean": gains, "donor": gains}, {"mean": scores, "donor": scores})
    return replace(base, **changes)


def with_gain(name: str, gain: Interval) -> Evidence:
    base = evidence()
    return replace(base, deletion={**base.deletion, "donor": {**base.deletion["donor"], name: gain}})


BELOW, AROUND, NOTHING = Interval(-0.3, -0.4, -0.2), Interval(0.05, -0.1, 0.2), Interval(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("found", "verdict", "word"),
    [
        (evidence(), "supported", "2.0x as far"),
        (evidence(skill=Interval(0.0, -0.01, 0.01)), "not supported", "nothing to explain"),
        (evidence(skill=AROUND), "inconclusive", "windows would settle"),
        (evidence(use=Interval(0.005, -0.01, 0.015)), "not used", "does without it"),
        (evidence(use=AROUND), "inconclusive", "use of the attention"),
        (evidence(random_maps=0.85), "not supported", "random weights"),
        (evidence(random_maps=None), "supported", "2.0x"),
        (with_gain("random", BELOW), "not supported", "donor"),
        (with_gain("random", AROUND), "inconclusive", "against random"),
        (with_gain("recency", BELOW), "partly", "newest steps"),
        (with_gain("recency", AROUND), "partly", "newest steps"),
        (with_gain("recency", Interval(0.05, 0.04, 0.06)), "partly", "newest steps"),  # surely, but by a hair
        (with_gain("profile", BELOW), "partly", "lag profile"),
        (with_gain("profile", Interval(-0.02, -0.03, -0.01)), "supported", "2.0x as far"),  # by a hair is not worse
        (evidence(seeds=0.5), "partly", "disagree"),
        (evidence(seeds=0.9), "supported", "2.0x"),
        (evidence(static=0.01), "supported", "a lag profile"),
        # no skill comes before everything else, no use before the map
        (
            evidence(skill=Interval(0.0, -0.01, 0.01), use=Interval(0.0, 0.0, 0.0)),
            "not supported",
            "nothing to explain",
        ),
        (evidence(use=Interval(0.0, 0.0, 0.0), random_maps=0.95), "not used", "does without it"),
    ],
)
def test_rules_of_the_verdict(found, verdict, word):
    answer, reasons = decide(found, Thresholds(), 100)
    assert answer == verdict
    assert word in " ".join(reasons)


def test_interval_hand_numbers():
    values = np.array([1.0, 2, 3, 4])
    found = interval(values, np.arange(4))
    assert found.value == 2.5
    assert found.high - found.value == pytest.approx(3.182446 * np.std(values, ddof=1) / 2, rel=1e-6)
    twice = interval(np.repeat(values, 2), np.repeat(np.arange(4), 2))  # the same information
    assert twice == pytest.approx(found)
    assert interval(values, np.zeros(4)) == Interval(2.5, -np.inf, np.inf)
    assert interval(np.array([np.nan, 1.0, 3.0]), np.arange(3)).value == 2.0
    assert np.isnan(interval(np.array([np.nan]), np.zeros(1)).value)
    assert needed(Interval(1.0, -1.0, 3.0), 50) == 200


def test_stretch_scores_hand_numbers():
    blocks = Axis("patch", (-1, 2), (2, 4))
    np.testing.assert_allclose(stretch_scores(np.array([[1.0, -2.0, 3.0, 4.0]]), blocks), [[3.0, 7.0]])


# --------------------------------------------------------------------------------------------------- diagnosis


def made(weights: np.ndarray, **options: object) -> AttentionMap:
    panel: Panel = panel_of({"a": list(range(100))}, list(range(100)))
    keys = [(0, 20 + 10 * w) for w in range(len(weights))]
    windows = windows_of(panel, keys, weights[:, None, None], horizon=weights.shape[1], key=time_axis(weights.shape[2]))
    return AttentionMap(panel, windows, **options)


def names(findings: tuple) -> set[str]:
    return {finding.name for finding in findings}


def test_diagnose_puts_the_right_label_on_made_rows():
    even = np.full((4, 3, 10), 0.1)
    assert names(diagnose(made(even))) == {"uniform", "collapsed", "static"}
    one = np.zeros((4, 3, 10))
    for window in range(4):
        for row in range(3):
            one[window, row, (3 * window + row) % 10] = 1.0
    assert names(diagnose(made(one))) == {"saturated"}
    rng = np.random.default_rng(0)
    free = rng.dirichlet(np.full(10, 0.3), size=(4, 3))
    assert names(diagnose(made(free))) == set()
    same_rows = np.repeat(free[:, :1], 3, axis=1)
    assert names(diagnose(made(same_rows))) == {"collapsed"}
    same_windows = np.repeat(free[:1], 4, axis=0)
    assert names(diagnose(made(same_windows))) == {"static"}


def test_findings_print_a_line_for_each_kind():
    two = np.stack([np.full((4, 3, 10), 0.1)] * 2, axis=1)  # two uniform heads
    text = str(diagnose(made(np.full((4, 3, 10), 0.1))))
    lines = text.splitlines()
    assert [line.split()[0] for line in lines] == ["uniform", "collapsed", "static"]
    assert lines[0].startswith("uniform (attention, head 0; 1.00, limit 0.9): Nearly every row spreads evenly")
    assert "sparsemax" in lines[0]
    both = replace(made(two[:, 0]).windows.attention[0], weights=two[:, None])
    heads = made(two[:, 0])
    heads = replace(heads, windows=replace(heads.windows, attention=(both,)))
    assert str(diagnose(heads)).startswith("uniform (attention, heads 0, 1; 1.00, limit 0.9)")
    rng = np.random.default_rng(0)
    assert str(diagnose(made(rng.dirichlet(np.full(10, 0.3), size=(4, 3))))).startswith("No finding")


@pytest.mark.parametrize(("brings", "name"), [(0.05, "sink"), (0.9, "broadcast")])
def test_a_sink_brings_in_little_and_a_summary_much(brings, name):
    rng = np.random.default_rng(0)
    rest = rng.dirichlet(np.full(9, 0.5), size=(4, 3))
    weights = np.concatenate([np.full((4, 3, 1), 0.6), 0.4 * rest], axis=2)
    norms = np.concatenate([np.full((4, 3, 1), brings), (1 - brings) * rest], axis=2)
    (found,) = diagnose(made(weights), value_norm=made(norms))
    assert (found.name, found.where) == (name, "attention, head 0, age 9")
    assert found.remedy in str(found)
    assert diagnose(made(weights)) == ()  # the weights alone cannot tell


def test_diagnose_refuses_signed_maps():
    with pytest.raises(ConfigError, match="signed"):
        diagnose(made(np.ones((1, 1, 3)), signed=True))


# --------------------------------------------------------------------------------------------------- trained models

FAST = {"learning_rate": 3e-3, "epochs": 40, "verbose": False}
SMALL = {"patch": 6, "horizon_patch": 6, "dropout": 0.1}
PLANTED = {
    "null": ({}, "lucid", {"patch": 12}, {"verbose": False}, {"not supported"}),
    "seasonal_copy": ({}, "lucid", {"patch": 12}, {"verbose": False}, {"supported"}),
    "additive_events": ({}, "lucid", SMALL, FAST, {"supported"}),
    "regime_lag": ({"series": 4_000}, "lucid", SMALL, FAST, {"supported"}),
    "needle": ({"series": 4_000}, "lucid", SMALL, FAST, {"supported"}),
    "shortcut": ({}, Shortcut, {"patch": 12}, {"verbose": False}, {"not used"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", PLANTED)
def test_the_verdict_is_right_on_planted_data(name, seed):
    sizes, model, options, training, verdicts = PLANTED[name]
    data = planted.PLANTED[name](seed=seed, **sizes)
    report = check_attention(data.fit(model, options=options, training=training, seed=seed), data.held_out())
    if name not in ("null",) and report.evidence.skill.high < 0.5:
        pytest.skip(f"not learnt: {report.evidence.skill}")
    assert report.verdict in verdicts, str(report)


@pytest.mark.slow
def test_a_right_map_that_is_not_used_is_called_so():
    """The attention of a lucid that found the lag, put where the forecast goes past it."""
    data = planted.shortcut()
    honest = data.fit("lucid", options={"patch": 12}, training={"verbose": False})
    model = data.fit(Shortcut, options={"patch": 12}, training={"epochs": 1, "learning_rate": 1e-12, "verbose": False})
    model.network_.load_state_dict({**honest.network_.state_dict(), "gate": model.network_.gate.detach()})
    held = data.held_out()
    both = [m.backtest(held, windows=20, refit="never", attention=True).attention for m in (honest, model)]
    np.testing.assert_allclose(both[0].to_numpy(), both[1].to_numpy(), atol=1e-6)
    lags = both[1].by_lag()
    assert 25 <= lags.loc[lags["weight"].idxmax(), "lag"] <= 47  # the patch that holds lag 36
    assert check_attention(honest, held).verdict == "supported"
    assert check_attention(model, held).verdict == "not used"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_noise_is_hardly_ever_supported():
    """A hundred short fits on white noise: at most five may be called supported, and none is expected."""
    found = []
    for seed in range(100):
        data = planted.null(series=4, length=400, seed=seed)
        model = data.fit("lucid", options={"patch": 12}, training={"epochs": 2, "verbose": False}, seed=seed)
        found.append(check_attention(model, data.held_out(), windows=32, draws=5, networks=1).verdict)
    assert found.count("supported") + found.count("partly") <= 5
