"""The search space: what it accepts, what it refuses by name, what it samples."""

from __future__ import annotations

import re

import optuna
import pytest
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from tests.tuning.small import forecaster
from tsattn.errors import ConfigError
from tsattn.models import MODELS, build
from tsattn.models.base import InputSpec
from tsattn.resources import resource_path
from tsattn.tuning.space import Space, apply

SEARCH = sorted(resource_path("configs").glob("search_*.yaml"))
TRAINABLE = sorted(name for name, network in MODELS.items() if network.trainable)

BRANCHES = """
model: {choices: [lucid, seq2seq, nlinear]}
context: {low: 24, high: 96, step: 24}
training.learning_rate: {low: 1e-4, high: 1.0e-2, log: true}
lucid.options.dropout: {low: 0, high: 1}
lucid.options.heads: {low: 1, high: 8, log: true}
lucid.options.summary: {choices: [true, false]}
lucid.options.horizon_patch: {choices: [null, 6]}
seq2seq.options.attention: {choices: [additive, scaled_dot, none]}
seq2seq.options.width: 8
"""


def space_of(text, **changes):
    return Space.of(yaml.safe_load(text), forecaster(**changes))


def found(space):
    return {d.key: d.distribution for d in space.dimensions}


def test_distributions_of_every_kind():
    kinds = found(space_of(BRANCHES))
    assert kinds["context"] == IntDistribution(24, 96, step=24)
    assert kinds["training.learning_rate"] == FloatDistribution(1e-4, 1e-2, log=True)  # 1e-4 is text in YAML
    assert kinds["lucid.options.dropout"] == FloatDistribution(0.0, 1.0)  # the option is a share, not a count
    assert kinds["lucid.options.heads"] == IntDistribution(1, 8, log=True)
    assert kinds["lucid.options.summary"] == CategoricalDistribution([True, False])
    assert kinds["lucid.options.horizon_patch"] == CategoricalDistribution([None, 6])
    assert kinds["seq2seq.options.width"] is None


def test_a_branch_is_sampled_only_with_its_model():
    space = space_of(BRANCHES, model="lucid")
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = set()
    for _ in range(30):
        trial = study.ask()
        values = space.sample(trial)
        seen.add(values["model"])
        keys = {"model", "context", "training.learning_rate"}
        if values["model"] == "lucid":
            keys |= {f"lucid.options.{o}" for o in ("dropout", "heads", "summary", "horizon_patch")}
        if values["model"] == "seq2seq":
            keys |= {"seq2seq.options.attention"}
            assert values["options.width"] == 8
        assert set(trial.params) == keys
        assert values["context"] in (24, 48, 72, 96)
        assert 1e-4 <= values["training.learning_rate"] <= 1e-2
    assert seen == {"lucid", "seq2seq", "nlinear"}


def test_apply_leaves_the_fixed_parameters_alone():
    fixed = {"model": "lucid", "context": 24, "horizon": 6, "options": {"patch": 6}, "training": {"epochs": 2}}
    changed = apply({"context": 48, "options.heads": 2, "training.clip": 0.5}, fixed)
    assert changed == {
        "model": "lucid", "context": 48, "horizon": 6,
        "options": {"patch": 6, "heads": 2}, "training": {"epochs": 2, "clip": 0.5},
    }  # fmt: skip
    assert fixed["options"] == {"patch": 6}
    assert fixed["training"] == {"epochs": 2}


def test_start_is_the_forecaster_as_given_where_the_space_holds_it():
    text = """
    model: {choices: [lucid, nlinear]}
    context: {low: 24, high: 96, step: 24}
    training.learning_rate: {low: 1.0e-4, high: 1.0e-3}
    lucid.options.patch: {choices: [6, 12]}
    lucid.options.heads: {choices: [2, 8]}
    lucid.options.dropout: {low: 0.0, high: 0.2}
    """
    base = forecaster("lucid", options={}, training={"learning_rate": 1e-2})
    space = Space.of(yaml.safe_load(text), base)
    # learning rate 0.01, patch 24 and dropout 0.4 are outside; heads 8 is the default of lucid
    assert space.start(base) == {"model": "lucid", "context": 24, "lucid.options.heads": 8}
    assert space.start(forecaster("seq2seq")) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "The space is empty"),
        ("{context: 24}", "Nothing varies"),
        ("{contxt: {low: 1, high: 2}}", "Unknown key of the space for lucid 'contxt'. Did you mean 'context'?"),
        ("{options.hads: {low: 1, high: 2}}", "Did you mean 'options.heads'?"),
        ("{training.learning_rat: {low: 1, high: 2}}", "Did you mean 'training.learning_rate'?"),
        ("{training.verbose: {choices: [true, false]}}", "Unknown key of the space for lucid 'training.verbose'"),
        ("{training.devices: {choices: [1, 2]}}", "Unknown key of the space for lucid 'training.devices'"),
        ("{context: {lo: 1, high: 2}}", "Unknown part of context 'lo'. Did you mean 'low'?"),
        ("{context: {low: 1}}", "context needs choices, or low and high"),
        ("{context: {low: 5, high: 2}}", "low 5 is above high 2"),
        ("{context: {low: 24, high: 90, step: 24}}", "must be a whole number of steps of 24"),
        ("{context: {low: 24, high: 96, step: 0}}", "must be a whole number of steps of 0"),
        ("{context: {low: 0, high: 9, log: true}}", "log needs a low above 0"),
        ("{context: {low: a, high: 9}}", "low must be a finite number, found nan"),
        ("{context: {low: 1, high: 9, log: 1}}", "log must be true or false"),
        ("{context: {choices: []}}", "at least one value"),
        ("{context: {choices: [1, 1]}}", "listed twice"),
        ("{context: {choices: [[1], 2]}}", "a choice is a number, a text"),
        ("{context: {choices: [1, 2], low: 1}}", "choices stand alone; found also low"),
        ("{context: [24, 48]}", "Write {choices: [24, 48]}"),
        ("{model: lucidd, context: {low: 1, high: 2}}", "Did you mean 'lucid'?"),
        ("{model: {choices: lucid}}", "model must be a list of names"),
        ("{tft.options.heads: {choices: [1, 2]}}", "'tft.options.heads' is a branch of tft, which the space cannot"),
        ("{model: {choices: [lucid, tft]}, options.patch: {choices: [1, 2]}}", "for tft 'options.patch'"),
        (
            "{model: {choices: [lucid, tft]}, options.heads: {choices: [1, 2]}, lucid.options.heads: 4}",
            "more than once: options.heads, lucid.options.heads",
        ),
    ],
)
def test_what_is_wrong_is_named(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        space_of(text, model="lucid")


def test_a_fixed_option_must_fit_every_model():
    base = forecaster("lucid", options={"patch": 6})
    with pytest.raises(ConfigError, match=r"tft has no such option. Write it in the space, as lucid\.options\.patch"):
        Space.of({"model": {"choices": ["lucid", "tft"]}}, base)


def test_there_is_a_space_for_every_trainable_model():
    assert [path.stem.removeprefix("search_") for path in SEARCH] == TRAINABLE


@pytest.mark.parametrize("path", SEARCH, ids=lambda path: path.stem)
def test_every_sample_of_the_ready_spaces_builds(path):
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    base = forecaster(config["model"], context=config["context"], options=config.get("options"), horizon=24)
    space = Space.of(config["space"], base)
    assert space.start(base).keys() >= {"context"}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(12):
        values = apply(
            space.sample(study.ask()), {"model": base.model, "context": base.context, "options": base.options}
        )
        build(values["model"], InputSpec(24, values["context"], quantiles=(0.1, 0.5, 0.9)), **values["options"])
