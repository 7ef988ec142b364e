"""The summary of a study as one HTML page, pictures included: nothing is loaded from anywhere."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from tsattn.tuning.result import TuneResult

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .2rem .6rem; text-align: right; }
tr:nth-child(even) { background: #f4f4f4; } pre { background: #f4f4f4; padding: .8rem; } img { max-width: 100%; }
"""
_BEST = 10  # rows in the table of the best trials


def summary_page(result: TuneResult) -> str:
    """History, importances, parallel coordinates, reports, best trials, baselines and the winner's config."""
    study = result.study
    parts = [
        f"<h1>{html.escape(study.study_name)}</h1>",
        f"<p>{html.escape(_facts(result))}</p>",
        "<h2>Winner</h2>",
        f"<pre>{html.escape(yaml.safe_dump(result.best_config, sort_keys=False))}</pre>",
        "<h2>Best trials</h2>",
        _table(_best_rows(result)),
        "<h2>Baselines on the same folds</h2>",
        _table(result.baseline_frame()),
    ]
    several = len(result.plan.objectives) > 1
    pictures: list[tuple[str, Callable[[], Figure]]] = [("Pareto front", result.plot_pareto)] if several else []
    if not several:
        pictures += [
            ("Optimisation history", result.plot_history),
            ("Importance of the parameters", result.plot_importances),
            ("Parallel coordinates", result.plot_parallel),
            ("Reports of every trial", result.plot_intermediate),
        ]
    for title, draw in pictures:
        parts.append(f"<h2>{title}</h2>{_picture(draw)}")
    title = html.escape(study.study_name)
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style>{''.join(parts)}\n"


def _facts(result: TuneResult) -> str:
    states = result.trials_frame()["state"].value_counts()
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    plan = result.plan
    return (
        f"Trials: {counts}. A trial is scored by its mean {plan.metric} over {plan.folds} rolling validation folds and "
        f"{plan.seeds} seed{'s' if plan.seeds > 1 else ''}; the test part was not read."
    )


def _best_rows(result: TuneResult) -> pd.DataFrame:
    frame = result.trials_frame()
    done = frame[frame["state"] == "complete"].drop(columns=["state", "reason"])
    return done.sort_values(done.columns[1]).head(_BEST).dropna(axis=1, how="all")


def _table(frame: pd.DataFrame) -> str:
    return frame.to_html(index=False, border=0, float_format=lambda value: f"{value:.4g}", na_rep="")


def _picture(draw: Callable[[], Figure]) -> str:
    """The picture, or why there is none: importances need two complete trials that differ."""
    import matplotlib.pyplot as plt

    try:
        figure = draw()
    except (ValueError, RuntimeError) as error:
        plt.close("all")
        return f"<p>Not drawn: {html.escape(str(error))}</p>"
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    plt.close(figure)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
