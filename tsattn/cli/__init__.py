"""The command line: ``tsattn COMMAND``. One function per command; its signature and docstring make its flags and help.

Exit status: 0 done, 2 wrong usage or wrong data (one message, no traceback), 1 a fault of ours, 130 interrupted (after
saving what there is), 143 stopped by SIGTERM (after writing a checkpoint).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """Where a command lives; nothing is imported until it is called."""

    module: str
    function: str
    summary: str


COMMANDS = {
    "demo": Command("tsattn.cli.demo", "demo", "fit, forecast, score and plot the shipped weather data"),
    "fit": Command("tsattn.cli.commands", "fit", "train a model on a table and save it"),
    "predict": Command("tsattn.cli.commands", "predict", "forecast with a saved model"),
    "attention": Command("tsattn.cli.commands", "attention", "write a page on what the forecasts read"),
    "backtest": Command("tsattn.cli.commands", "backtest", "score a model on rolling origins, beside the baselines"),
    "tune": Command("tsattn.cli.tune", "tune", "search for good settings, with Optuna"),
    "benchmark": Command("tsattn.evaluation.benchmark", "benchmark", "score a model under a published protocol"),
    "datasets": Command("tsattn.cli.commands", "datasets", "list the data sets known by name"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``tsattn ARGV`` and return the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        from tsattn import __version__

        print(__version__)
        return 0
    return _run(arguments[0], arguments[1:])


def _run(name: str, arguments: list[str]) -> int:
    from tsattn.errors import TsattnError, unknown_name

    try:
        if name not in COMMANDS:
            raise unknown_name("command", name, COMMANDS)
        from tsattn.cli.parser import call

        call(name, COMMANDS[name], arguments)
    except TsattnError as error:
        print(f"tsattn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tsattn: interrupted", file=sys.stderr)
        return 130
    return 0


def _help() -> str:
    rows = "\n".join(f"  {name:<10} {command.summary}" for name, command in COMMANDS.items())
    return (
        "usage: tsattn COMMAND [options]\n\n"
        "Time-series forecasting with attention you can see.\n\n"
        f"commands:\n{rows}\n\n"
        "tsattn COMMAND --help lists the options of a command; every option is also a key of its --config YAML,\n"
        "and --print_config prints one that runs as it is."
    )
