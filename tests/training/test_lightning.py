"""The pieces in the hands of Lightning users: their own Trainer, LightningCLI, loggers, checkpoints."""

from __future__ import annotations

import warnings

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger

import tsattn
from tests.conftest import QUICK, make_waves
from tsattn.errors import ConfigError
from tsattn.training.run import quiet_lightning

pytestmark = pytest.mark.filterwarnings("ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning")


def pieces(seed=0, **settings):
    data = tsattn.ForecastDataModule(make_waves(), horizon=6, context=48, seed=seed)
    torch.manual_seed(seed)
    return tsattn.ForecastModule(tsattn.build("lucid", data.spec), **settings), data


def trainer(**settings):
    plain = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return pl.Trainer(**{**plain, "enable_checkpointing": False, **settings})


def test_own_trainer_with_checkpoint_and_ckpt_path(tmp_path):
    with quiet_lightning():
        module, data = pieces()
        keep = ModelCheckpoint(tmp_path, monitor="val_loss", save_last=True)
        trainer(max_epochs=2, enable_checkpointing=True, callbacks=[keep], logger=CSVLogger(tmp_path)).fit(module, data)
        assert {"train_loss", "val_loss", "val_mae"} <= set(module.trainer.callback_metrics)
        assert keep.best_model_score is not None
        again, data = pieces(seed=1)
        longer = trainer(max_epochs=3)
        longer.fit(again, data, ckpt_path=str(tmp_path / "last.ckpt"))
        assert longer.current_epoch == 3
        checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
        assert checkpoint["epoch"] in (0, 1)


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "bf16-mixed"])
def test_own_trainer_with_a_precision(precision):
    """Lightning sets the fields of a copy of the batch where it converts it."""
    with quiet_lightning():
        module, data = pieces()
        fitted = trainer(max_epochs=1, precision=precision, limit_train_batches=3)
        fitted.fit(module, data)
        assert torch.isfinite(fitted.callback_metrics["val_loss"])


class Progress(pl.Callback):
    """Notes what the network is told at each batch; stops after ``batches``."""

    def __init__(self, batches: int) -> None:
        self.batches, self.found = batches, []

    def on_train_batch_end(self, trainer, module, *_):
        self.found.append(module.network.progress)
        trainer.should_stop = len(self.found) == self.batches


def test_the_network_is_told_how_far_the_training_is(tmp_path):
    """In optimizer steps of the whole run, on from where a checkpoint stopped; 0 where a run has no planned end."""
    with quiet_lightning():
        module, data = pieces()
        first, second, endless = Progress(8), Progress(8), Progress(6)
        trainer(max_steps=4, limit_train_batches=4, accumulate_grad_batches=2, callbacks=[first]).fit(module, data)
        module.trainer.save_checkpoint(tmp_path / "half.ckpt")
        again, data = pieces()
        longer = trainer(max_steps=8, limit_train_batches=4, accumulate_grad_batches=2, callbacks=[second])
        longer.fit(again, data, ckpt_path=str(tmp_path / "half.ckpt"))
        other, data = pieces(schedule="constant")
        trainer(max_epochs=-1, limit_train_batches=4, callbacks=[endless]).fit(other, data)
    assert first.found == [0.0, 0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75]
    assert second.found == [0.5, 0.5, 0.625, 0.625, 0.75, 0.75, 0.875, 0.875]
    assert endless.found == [0.0] * 6


class Rates(pl.Callback):
    """Notes the learning rate of each epoch; stops after ``epochs``."""

    def __init__(self, epochs: int) -> None:
        self.epochs, self.found = epochs, []

    def on_train_epoch_start(self, trainer, module):
        self.found.append(trainer.optimizers[0].param_groups[0]["lr"])
        trainer.should_stop = len(self.found) == self.epochs


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "decay", "decay": 0.5, "hold": 2}, [0.01, 0.01, 0.005, 0.0025, 0.00125]),
        ({"schedule": "decay"}, [0.01, 0.01, 0.01, 0.01, 0.009]),
        ({"schedule": "constant"}, [0.01] * 5),
    ],
)
def test_rates_of_a_run_without_a_planned_end(settings, expected):
    rates = Rates(5)
    with quiet_lightning():
        module, data = pieces(learning_rate=0.01, **settings)
        trainer(max_epochs=-1, limit_train_batches=1, limit_val_batches=0, callbacks=[rates]).fit(module, data)
    assert rates.found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "cosine"}, r"Unknown training\.schedule 'cosine'\. Known: constant, decay, one_cycle"),
        ({"schedule": None}, r"Unknown training\.schedule None"),
        ({"learning_rate": 0}, r"training\.learning_rate must be above 0"),
        ({"learning_rate": "1e-3"}, r"training\.learning_rate must be a finite number, found '1e-3'"),
        ({"weight_decay": -1.0}, r"training\.weight_decay must not be negative"),
        ({"schedule": "decay", "decay": 2.0}, r"training\.decay must be at most 1"),
        ({"loss": "rmse"}, r"Unknown training\.loss 'rmse'"),
    ],
)
def test_settings_that_cannot_train_are_refused_by_name(settings, message):
    for network in ("lucid", pieces()[0].network):
        with pytest.raises(ConfigError, match=message):
            tsattn.ForecastModule(network, **settings)


def test_validate_and_predict_hooks():
    with quiet_lightning():
        module, data = pieces()
        runner = trainer(max_epochs=1)
        runner.fit(module, data)
        result = runner.validate(module, data, verbose=False)[0]
        assert result["val_loss"] == pytest.approx(float(runner.callback_metrics["val_loss"]))
        parts = runner.predict(module, data.val_dataloader())
    assert len(parts[0]["series"]) == len(parts[0]["origin"]) == len(parts[0]["point"]) == 75


def test_val_mae_is_in_data_units():
    """U03: the scaled loss and the error in target units are both logged, and named."""
    with quiet_lightning():
        module, data = pieces()
        runner = trainer(max_epochs=1)
        runner.fit(module, data)
    module.eval()
    errors, count = 0.0, 0
    for batch in data.val_dataloader():
        with torch.no_grad():
            point = module(batch).point
        errors += float(((point - batch.future).abs() * batch.future_observed).sum())
        count += int(batch.future_observed.sum())
    assert float(runner.callback_metrics["val_mae"]) == pytest.approx(errors / count, rel=1e-4)


def test_network_never_sees_the_future_outside_training():
    module, data = pieces()
    module.eval()
    batch = next(iter(data.val_dataloader()))
    poisoned = torch.full_like(batch.future, torch.nan)
    clean = module(batch).point
    object.__setattr__(batch, "future", poisoned)
    assert torch.equal(module(batch).point, clean)


def test_lightning_cli(tmp_path):
    from pytorch_lightning.cli import LightningCLI

    table = tmp_path / "t.csv"
    make_waves().to_csv(table, index=False)

    arguments = ["fit", "--model.network=lucid", "--model.options.patch=12", f"--data.table={table}",
                 "--data.horizon=6", "--data.context=48", "--trainer.max_epochs=1", "--trainer.logger=false",
                 "--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false",
                 "--trainer.enable_checkpointing=false", "--trainer.accelerator=cpu"]  # fmt: skip
    with quiet_lightning():
        cli = LightningCLI(tsattn.ForecastModule, tsattn.ForecastDataModule, args=arguments, save_config_callback=None)
    assert cli.model.network.size == 12
    assert cli.trainer.current_epoch == 1


def test_logger_by_name_and_by_object(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = make_waves()
    tsattn.Forecaster("nlinear", horizon=6, context=48, training={**QUICK, "logger": CSVLogger("logs")}).fit(table)
    assert list(tmp_path.glob("logs/**/metrics.csv"))
    tsattn.Forecaster("nlinear", horizon=6, context=48, training={**QUICK, "logger": "csv"}).fit(table)
    text = next(tmp_path.glob("runs/**/metrics.csv")).read_text()
    assert "train_loss" in text
    assert "val_mae" in text
    with pytest.raises(ConfigError, match="not one of csv, tensorboard, mlflow"):
        tsattn.Forecaster("nlinear", horizon=6, context=48, training={**QUICK, "logger": "wandb"}).fit(table)


def test_the_other_package_name_is_refused_naming_both_imports():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = pytest.importorskip("lightning.pytorch")
    from lightning.pytorch.loggers import CSVLogger as OtherLogger

    with pytest.raises(TypeError, match=r"'pytorch_lightning'.*'lightning.pytorch'"):
        tsattn.Forecaster("nlinear", horizon=6, context=48, training={**QUICK, "logger": OtherLogger("x")}).fit(
            make_waves()
        )
    module, data = pieces()
    strange = other.Trainer(logger=False, enable_progress_bar=False, enable_checkpointing=False, max_epochs=1)
    with pytest.raises(TypeError, match=r"'pytorch_lightning', this Trainer comes from 'lightning.pytorch'"):
        strange.fit(module, data)
    with pytest.raises(TypeError, match=r"'pytorch_lightning', this Trainer comes from 'lightning.pytorch'"):
        strange.fit(other.LightningModule(), datamodule=data)
    assert isinstance(module, pl.LightningModule)
    assert not isinstance(module, dict)
