"""The deletion curves of a report, read back."""

from __future__ import annotations

from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tsattn.errors import ConfigError
from tsattn.inspection.pictures.trust import plot_trust
from tsattn.inspection.report import TrustReport

WORDS = {
    "attention": "what the map ranks first",
    "random": "random (band: 95 %)",
    "recency": "newest first",
    "profile": "the mean map's order",
}


def report(*replacements: str, verdict: str = "partly") -> TrustReport:
    """A report whose curves are straight lines, attention the steepest."""
    rows = [
        (how, order, share, slope * share, slope * share - 0.1, slope * share + 0.1, slope * share)
        for how in replacements
        for order, slope in (("attention", 4.0), ("random", 1.0), ("recency", 3.0), ("profile", 2.0))
        for share in (0.0, 0.25, 0.5)
    ]
    columns = ["replace", "order", "removed", "effect", "low", "high", "path"]
    nothing = SimpleNamespace()
    return TrustReport(
        verdict, ("One reason.", "Another one."), "toy", "attention", 32, (), pd.DataFrame(rows, columns=columns), (),
        thresholds=nothing, evidence=nothing,
    )  # fmt: skip


def lines_of(ax: Axes) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_ydata()) for line in ax.lines}


def test_one_panel_per_replacement_with_the_verdict_above():
    figure = report("mean", "donor").plot()
    assert isinstance(figure, Figure)
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "replaced by the mean of the window",
        "replaced by another window of the same season",
    ]
    assert figure.get_suptitle() == "partly: attention of toy, 32 windows"
    assert figure.get_supxlabel().replace("\n", " ").startswith("One reason. Another one; bands: 95 %")
    for ax in figure.axes:
        lines = lines_of(ax)
        for order, slope in (("attention", 4.0), ("random", 1.0), ("recency", 3.0), ("profile", 2.0)):
            np.testing.assert_allclose(lines[WORDS[order]], [0, slope * 0.25, slope * 0.5])
        bands = [c for c in ax.collections if isinstance(c, PolyCollection)]
        assert sorted(float(band.get_paths()[0].vertices[:, 1].max()) for band in bands) == [0.6, 2.1]
        assert ax.get_ylim()[0] == 0
        assert ax.get_ylim()[1] > 2.1  # no band is cut off
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == list(WORDS.values())
    assert len({str(line.get_linestyle()) + str(line._dash_pattern) for line in figure.axes[0].lines}) == 4
    figure.savefig(BytesIO(), format="png")


def test_one_replacement_is_axes():
    ax = report("mean", "donor").plot(replace="donor")
    assert isinstance(ax, Axes)
    assert ax.get_title(loc="left").startswith("partly: ")
    mine = Figure().subplots()
    assert plot_trust(report("mean"), ax=mine) is mine
    mine.figure.savefig(BytesIO(), format="png")
    with pytest.raises(ConfigError, match="Did you mean 'mean'"):
        report("mean").plot(replace="means")


def test_a_report_without_curves_has_no_picture():
    with pytest.raises(ConfigError, match=r"no deletion curves.*'not used'"):
        report(verdict="not used").plot()
