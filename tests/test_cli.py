"""The command line: statuses, messages, and configs that run as they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
import yaml

from tests.conftest import make_waves
from tsattn.cli import COMMANDS, main
from tsattn.resources import resource_path

CONFIGS = sorted(p for p in resource_path("configs").glob("*.yaml") if not p.name.startswith("search_"))


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "waves.csv"
    make_waves().to_csv(path, index=False)
    return str(path)


def quick(table, out):
    return ["--data", table, "--model", "nlinear", "--horizon", "6", "--context", "48", "--out", str(out),
            "--training.epochs", "1", "--training.verbose", "false"]  # fmt: skip


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)
    assert main([]) == 2


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_each_command(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert f"usage: tsattn {name}" in capsys.readouterr().out


def test_a_table_on_disk(table, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TSATTN_CACHE", str(tmp_path / "cache"))
    parquet = tmp_path / "waves.parquet"
    pd.read_csv(table, parse_dates=["ds"]).to_parquet(parquet, index=False)
    for name, more in (("memory", []), ("disk", ["--on_disk", "true"])):
        run, out = tmp_path / name, tmp_path / f"{name}.csv"
        assert main(["fit", *quick(str(parquet), run), *more]) == 0
        assert main(["predict", "--model", str(run), "--data", str(parquet), "--out", str(out), *more]) == 0
        scores = ["backtest", "--model", str(run), "--data", str(parquet), "--windows", "2", "--refit", "never"]
        assert main([*scores, "--out", str(tmp_path / f"{name}-scores.csv"), *more]) == 0
    for file in ("{}.csv", "{}-scores.csv"):
        assert (tmp_path / file.format("memory")).read_bytes() == (tmp_path / file.format("disk")).read_bytes()
    assert len(list((tmp_path / "cache" / "panels").glob("*/panel.json"))) == 2  # to train on, and to forecast
    assert main(["predict", "--model", str(run), "--data", table, "--on_disk", "true", "--out", str(out)]) == 2
    assert "Only Parquet can be read piece by piece" in capsys.readouterr().err


def test_fit_predict_backtest(table, tmp_path, capsys):
    assert main(["fit", *quick(table, tmp_path / "run")]) == 0
    out = tmp_path / "f.parquet"
    picture = tmp_path / "f.png"
    assert main(["predict", "--model", str(tmp_path / "run"), "--out", str(out), "--plot", str(picture)]) == 0
    assert len(pd.read_parquet(out)) == 18
    assert picture.read_bytes()[:4] == b"\x89PNG"
    again = tmp_path / "g.csv"
    assert main(["predict", "--model", str(tmp_path / "run"), "--data", table, "--out", str(again)]) == 0
    assert pd.read_csv(again)["forecast"].to_numpy() == pytest.approx(
        pd.read_parquet(out)["forecast"].to_numpy(), rel=1e-6
    )
    capsys.readouterr()
    assert main(["backtest", *quick(table, tmp_path / "b.csv"), "--windows", "2"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("nlinear", "naive", "seasonal_naive", "mase"))
    assert len(pd.read_csv(tmp_path / "b.csv")) == 36


def test_print_config_runs_as_it_is(table, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", *quick(table, tmp_path / "run"), "--print_config"])
    assert stop.value.code == 0
    config = tmp_path / "config.yaml"
    config.write_text(capsys.readouterr().out)
    assert yaml.safe_load(config.read_text())["training"]["epochs"] == 1
    assert main(["fit", "--config", str(config)]) == 0
    assert (tmp_path / "run" / "model.json").exists()


def test_flags_override_yaml_and_both_spellings_work(table, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("model: naive\nhorizon: 3\ncontext: 48\ntraining:\n  verbose: false\n")
    flags = ["--data", table, "--out", str(tmp_path / "run"), "--horizon=4", "--val-size", "30"]
    assert main(["fit", "--config", str(config), *flags]) == 0
    assert yaml.safe_load((tmp_path / "run" / "model.json").read_text())["spec"]["horizon"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fitt"], "Unknown command 'fitt'. Did you mean 'fit'?"),
        (["predict", "--model", "nowhere"], "No saved model at nowhere"),
        (["datasets", "etth9"], "Unknown data set 'etth9'"),
        (
            ["fit", "--data", "gone.csv", "--horizon", "1", "--context", "1", "--out", "x"],
            "No such file or folder: gone.csv",
        ),
        (["predict", "--model", "m", "--out", "f.xlsx"], "the ending must be .csv or .parquet"),
    ],
)
def test_wrong_usage_is_one_message_and_status_2(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("flag", ["--horizo", "--training.epoch"])
def test_unknown_flag_is_refused(flag, table, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["fit", *quick(table, tmp_path / "run"), flag, "3"])
    assert stop.value.code == 2
    assert not (tmp_path / "run").exists()


def test_a_fault_of_ours_is_status_1(monkeypatch):
    monkeypatch.setattr("tsattn.cli.commands.datasets", lambda name=None: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # the interpreter prints the traceback and exits with 1
        main(["datasets"])


@pytest.mark.slow
@pytest.mark.timeout(240)  # a whole epoch of real data, on a machine that may be busy
@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_every_config_runs(config, tmp_path):
    shorter = ["--training.epochs", "1", "--training.verbose", "false"]
    assert main(["fit", "--config", str(config), "--out", str(tmp_path / "run"), *shorter]) == 0


def test_datasets_lists_and_shows(capsys):
    assert main(["datasets"]) == 0
    assert "nyc_weather" in capsys.readouterr().out
    assert main(["datasets", "etth1"]) == 0
    assert "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066" in capsys.readouterr().out


@pytest.mark.slow
def test_ctrl_c_saves_and_exits_130(tmp_path):
    make_waves(steps=3000).to_csv(tmp_path / "t.csv", index=False)
    command = [sys.executable, "-m", "tsattn", "fit", "--data", "t.csv", "--model", "lucid", "--horizon", "24",
               "--context", "96", "--out", "run", "--training.epochs", "500",
               "--training.patience", "null"]  # fmt: skip
    root = Path(__file__).parents[1]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    )
    line = process.stderr.readline()
    assert "windows" in line
    time.sleep(25)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert "interrupted; best weights so far saved to run" in error
    assert (tmp_path / "run" / "model.json").exists()


@pytest.mark.slow
def test_demo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--epochs", "2"]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("lucid", "naive", "seasonal_naive", "forecast.png"))
    forecast = pd.read_csv("tsattn_demo/forecast.csv")
    assert forecast.groupby("station").size().to_dict() == {"EWR": 24, "JFK": 24, "LGA": 24}
    assert forecast["forecast"].between(-20, 80).all()
    assert len(pd.read_csv("tsattn_demo/backtest.csv")) == 3 * 20 * 24
    assert (tmp_path / "tsattn_demo" / "forecast.png").stat().st_size > 20_000


def test_a_switch_needs_no_value():
    from tsattn.cli.commands import attention
    from tsattn.cli.parser import _switched

    assert _switched(["--refit", "--check", "false", "--series", "3", "--refit"], attention) == [
        "--refit", "true", "--check", "false", "--series", "3", "--refit", "true",
    ]  # fmt: skip
    assert _switched([], attention) == []


@pytest.mark.parametrize(
    ("text", "words"), [(b"seed: \xff", "no UTF-8 text"), (b"training: {clip: %s}" % (b"9" * 400), "too large")]
)
def test_a_config_that_no_parser_can_read_is_one_message(text, words, tmp_path, capsys):
    (tmp_path / "run.yaml").write_bytes(text)
    assert main(["fit", "--config", str(tmp_path / "run.yaml")]) == 2
    assert words in capsys.readouterr().err
