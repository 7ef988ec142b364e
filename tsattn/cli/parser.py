"""Flags and YAML keys from signatures and dataclasses (jsonargparse), so they cannot drift from the code."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from tsattn.cli import Command
from tsattn.errors import ConfigError

SAVED = {"backtest": "backtest_saved"}  # what a command calls where --model is the folder of a saved model
POSITIONAL = {"benchmark": "dataset", "datasets": "name"}  # the option that may come first, without its flag


def call(name: str, command: Command, arguments: list[str]) -> None:
    """Parse ``arguments`` for a command and call its function. Wrong usage exits with status 2."""
    module = importlib.import_module(command.module)
    function = getattr(module, command.function)
    if name in SAVED and _names_saved_model(arguments):
        function = getattr(module, SAVED[name])
    parser = make_parser(name, function)
    if name in POSITIONAL and arguments and not arguments[0].startswith("-"):
        arguments = [f"--{POSITIONAL[name]}", *arguments]
    try:
        config = parser.parse_args(_switched([_underscored(argument) for argument in arguments], function))
    except UnicodeDecodeError as error:
        raise ConfigError(f"The config is no UTF-8 text (byte {error.start + 1}): save it as UTF-8.") from None
    except (OverflowError, RecursionError) as error:
        raise ConfigError(f"An option holds a number that is too large, or lists within lists: {error}.") from None
    function(**_values(function, config))


def make_parser(name: str, function: Callable[..., None]) -> ArgumentParser:
    """The parser of one command; a parameter called ``forecaster`` becomes the flags of ``Forecaster``."""
    summary = (inspect.getdoc(function) or "").split("\n\n")[0]
    parser = ArgumentParser(prog=f"tsattn {name}", description=summary, exit_on_error=True, allow_abbrev=False)
    parser.add_argument("--config", action="config", help="YAML file with any of the options below")
    takes_forecaster = "forecaster" in inspect.signature(function).parameters
    if takes_forecaster:
        _add_forecaster(parser)
    parser.add_function_arguments(function, skip={"forecaster"}, as_group=False)
    return parser


def _add_forecaster(parser: ArgumentParser) -> None:
    from tsattn.forecaster import Forecaster
    from tsattn.training.config import TrainConfig

    parser.add_argument("--model", type=str, default="lucid", help="name of the model")
    parser.add_class_arguments(Forecaster, skip={"model", "training"}, as_group=False)
    parser.add_class_arguments(TrainConfig, "training")


def _values(function: Callable[..., None], config: Namespace) -> dict[str, Any]:
    """The arguments of ``function`` out of a parsed config, the forecaster built."""
    names = list(inspect.signature(function).parameters)
    values = {name: _plain(config[name]) for name in names if name != "forecaster" and name in config}
    if "forecaster" in names:
        from tsattn.forecaster import Forecaster

        fields = list(inspect.signature(Forecaster.__init__).parameters)[1:]
        values["forecaster"] = Forecaster(**{field: _plain(config[field]) for field in fields})
    return values


def _names_saved_model(arguments: list[str]) -> bool:
    """Whether ``--model`` is a folder with a saved model, or nothing but that makes sense: an engine is asked for."""
    pairs = [argument.partition("=") for argument in arguments]
    flags = [flag for flag, _, _ in pairs]
    values = [value or following for (_, _, value), following in zip(pairs, [*flags[1:], ""], strict=True)]
    folders = [value for flag, value in zip(flags, values, strict=True) if flag == "--model"]
    return "--engine" in flags or any((Path(folder) / "model.json").exists() for folder in folders)


def _underscored(argument: str) -> str:
    """``--data-dir=x`` -> ``--data_dir=x``: both spellings of a flag are fine, YAML keys have underscores."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return "--" + flag[2:].replace("-", "_") + equals + value


def _switched(arguments: list[str], function: Callable[..., None]) -> list[str]:
    """``--resume`` alone -> ``--resume true``, for every option of ``function`` that is true or false."""
    switches = {
        f"--{name}" for name, p in inspect.signature(function).parameters.items() if isinstance(p.default, bool)
    }
    found: list[str] = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=False):
        found.append(argument)
        if argument in switches and following.startswith("--"):
            found.append("true")
    return found


def _plain(value: Any) -> Any:
    return value.as_dict() if isinstance(value, Namespace) else value
