"""What is refused before Ray is started, and in one sentence; most of it needs no Ray at all."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pyarrow as pa
import pytest

from tsattn.cli import main
from tsattn.cluster.gather import Reports
from tsattn.cluster.reading import open_source
from tsattn.cluster.worker import TRIES, Job, Report, _count_try, done, unpacked
from tsattn.data.files import parquet_pieces, read_file, read_piece
from tsattn.errors import ClusterError, ConfigError, DataError, TsattnWarning

from .conftest import by_id, make_table, spread


@pytest.fixture(autouse=True)
def _without_starting(monkeypatch):
    """Whatever is refused here is refused before Ray, whose import takes seconds."""
    monkeypatch.setattr("tsattn.cluster.run.import_ray", lambda: None)


def test_without_ray_there_is_one_message(forecaster, table, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r'pip install "tsattn\[ray\]"'):
        forecaster.predict(spread(table, tmp_path / "in"), known=table, engine="ray", out=tmp_path / "out")
    forecaster.save(tmp_path / "model")
    model = ["--model", str(tmp_path / "model")]
    assert (
        main(["predict", *model, "--data", str(tmp_path / "in"), "--engine", "ray", "--out", str(tmp_path / "o")]) == 2
    )


def test_importing_the_package_imports_neither_ray_nor_torch():
    code = "import sys, tsattn.cluster, tsattn.cluster.reading; print({'ray', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_words_that_cannot_be(forecaster, table, tmp_path):
    source, out = spread(table, tmp_path / "in"), tmp_path / "out"
    backtest = {"windows": 1, "engine": "ray", "out": out}
    for message, call in {
        "Unknown engine 'rya'. Did you mean 'ray'": lambda: forecaster.predict(source, engine="rya", out=out),
        "out= goes with engine='ray'": lambda: forecaster.predict(source, out=out),
        "workers= goes with engine='ray'": lambda: forecaster.backtest(source, windows=1, workers=2),
        "pass out=FOLDER": lambda: forecaster.predict(source, engine="ray"),
        "found 's3://a/b'": lambda: forecaster.predict(source, engine="ray", out="s3://a/b"),
        "workers must be a whole number": lambda: forecaster.predict(source, engine="ray", out=out, workers=0),
        "keeps no maps": lambda: forecaster.predict(source, engine="ray", out=out, attention=True),
        "refit must be False or 'never', found True": lambda: forecaster.backtest(source, **backtest, refit=True),
        "attention must be False or 'summary'": lambda: forecaster.backtest(source, **backtest, attention=True),
        "found DataFrame": lambda: forecaster.predict(table, engine="ray", out=out),
        "reads the known columns 'price', 'weather'": lambda: forecaster.predict(source, engine="ray", out=out),
    }.items():
        with pytest.raises((ConfigError, DataError)) as error:
            call()
        assert message in str(error.value)
    assert not out.exists()


def test_results_of_two_runs_are_not_mixed(forecaster, table, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-x.parquet").touch()
    with pytest.raises(ConfigError, match="already holds 1 files: results of two runs are not mixed"):
        forecaster.predict(spread(table, tmp_path / "in"), engine="ray", out=tmp_path / "out")
    with pytest.raises(ConfigError, match="is a file"):
        forecaster.predict(tmp_path / "in", engine="ray", out=tmp_path / "in" / "0.parquet")


def test_the_command_line_says_what_goes_with_an_engine(forecaster, tmp_path, capsys):
    forecaster.save(tmp_path / "model")
    start = ["--model", str(tmp_path / "model"), "--data", "x", "--engine", "ray"]
    for arguments, message in [
        (["predict", *start], "'forecast.csv' looks like a file: pass --out FOLDER"),
        (["predict", *start, "--out", "o", "--plot", "p.png"], "leave out --plot"),
        (["backtest", *start, "--windows", "2"], "pass --out FOLDER"),
        (["backtest", *start, "--windows", "2", "--refit", "true"], "--refit of a saved model must be false or never"),
    ]:
        assert main(arguments) == 2
        assert message in capsys.readouterr().err


def test_a_saved_model_is_scored_without_an_engine_too(forecaster, table, tmp_path, capsys):
    forecaster.save(tmp_path / "model")
    table.to_parquet(tmp_path / "table.parquet")
    start = ["backtest", f"--model={tmp_path / 'model'}", "--data", str(tmp_path / "table.parquet"), "--windows", "2"]
    with pytest.warns(TsattnWarning, match="2 of 21 series have no window"):
        assert main([*start, "--refit", "never", "--by", "step", "--out", str(tmp_path / "b.csv")]) == 0
    assert "in sample" in capsys.readouterr().err
    assert len(pd.read_csv(tmp_path / "b.csv")) == 19 * 2 * 6


def test_folder_names_are_read_as_one_process_reads_them(forecaster, table, tmp_path):
    for name, frame in {"text": table, "numbers": table.assign(shop=table["shop"].astype(int))}.items():
        folder = by_id(frame, tmp_path / name)
        columns = list(forecaster.schema_.roles.columns())
        pieces, schema = parquet_pieces(folder, columns)
        parts = pa.concat_tables([read_piece(piece, schema) for piece in pieces])
        assert parts.equals(read_file(folder, columns))
    source = open_source(folder, forecaster.schema_)
    assert source.rows == len(table)


def test_parts_say_together_what_the_whole_table_says(forecaster, tmp_path):
    """Coarser rows in one part are a gap; in all parts they are another frequency."""
    table = make_table(6).query("shop not in ('003', '004')")
    (tmp_path / "o").mkdir()
    files = {}
    forecaster.save(tmp_path / "m", history=False)
    for file in (tmp_path / "m").iterdir():
        files[file.name] = file.read_bytes()
    job = Job(
        files, None, str(tmp_path / "o"), backtest={"windows": 1, "step": None, "refit": "never", "attention": False}
    )
    model = job.load()
    parts = [table[table["shop"] == "000"].iloc[::2], table[table["shop"] != "000"]]
    reports = Reports()
    for part in parts:
        packed = done(model, job, pa.Table.from_pandas(part)).packed()
        reports.add(unpacked(packed["report"][0].as_py()))
    reports.check(sum(map(len, parts)), model.schema_)
    alone = Reports()
    alone.add(reports.reports[0])
    with pytest.raises(DataError, match=r"no two rows of this table .* the closest are 2"):
        alone.check(len(parts[0]), model.schema_)
    with pytest.raises(ClusterError, match=rf"handed out {len(parts[0])} of 7 rows"):
        alone.check(7, model.schema_)
    alone.add(reports.reports[0])
    with pytest.raises(ClusterError, match="1 of 2 series to more than one worker"):
        alone.check(2 * len(parts[0]), model.schema_)


def test_a_part_is_tried_three_times(tmp_path):
    for number in range(TRIES):
        assert len(_count_try(tmp_path / "tries", "a")) == number + 1
    assert len(_count_try(tmp_path / "tries", "b")) == 1
    with pytest.raises(ClusterError, match="killed 3 times"):
        _count_try(tmp_path / "tries", "a")


def test_a_kind_of_warning_is_said_once():
    reports = Reports()
    ids = pa.array(["a"])
    for number, message in enumerate(["3 of 'a' at 2024-01-01", "4 of 'b' at 2024-02-01", "another"]):
        reports.add(Report(str(number), 1, ids=ids, warnings=[message]))
    with pytest.warns(TsattnWarning) as caught:
        reports.warn()
    assert [str(w.message).split(" (")[0] for w in caught] == ["3 of 'a' at 2024-01-01", "another"]
    assert "2 of 3 parts say so" in str(caught[0].message)
