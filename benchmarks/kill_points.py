"""Kill a training at many random moments, let it go on, and compare its end with a run that was never stopped.

    python benchmarks/kill_points.py --points 100    # Linux and macOS; prints one line per ten points

Every point is a training of its own: a process starts it, gets SIGKILL at a random moment (while a checkpoint is being
written, too: one is written before every step), and another process resumes it to its end. The weights must be the same
to the last bit. Exits with 1 when one is not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from common import heading, make_table, quiet

import tsattn

TRAINING = {"epochs": 4, "batch_size": 64, "verbose": False, "accelerator": "cpu", "checkpoint_steps": 1}


def train(folder: Path, resume: bool) -> None:
    """One fit, from its beginning or from where it was killed."""
    model = tsattn.Forecaster("lucid", horizon=6, context=24, training=TRAINING)
    model.fit(make_table(4, 400)[["unique_id", "ds", "y"]], checkpoints=folder / "checkpoints", resume=resume)
    model.save(folder / "model")


def in_a_process(folder: Path, resume: bool) -> int:
    """Start a training in a process of its own; its number."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        train(folder, resume)
        status = 0
    except BaseException:  # noqa: BLE001 - the child must not go on with the parent's work
        traceback.print_exc()
    finally:
        os._exit(status)


def digest(folder: Path) -> str:
    """Of the weights."""
    return hashlib.sha256((folder / "model" / "weights.safetensors").read_bytes()).hexdigest()


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    quiet()
    print(heading())
    moments = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        started = time.monotonic()
        if os.waitpid(in_a_process(whole, resume=False), 0)[1] != 0:
            return 1
        length, expected = time.monotonic() - started, digest(whole)
        same = kills = 0
        while kills < asked.points:
            folder = Path(place) / "run"
            child = in_a_process(folder, resume=False)
            time.sleep(moments.uniform(0.1 * length, 0.95 * length))
            os.kill(child, signal.SIGKILL)
            if os.WIFSIGNALED(os.waitpid(child, 0)[1]):  # else it had ended: no kill, and no point
                kills += 1
                kept = len(list((folder / "checkpoints").glob("step-*.json")))
                if os.waitpid(in_a_process(folder, resume=True), 0)[1] == 0:
                    same += digest(folder) == expected
                else:
                    print(f"kill {kills}: the resumed training failed ({kept} checkpoints)")
                if kills % 10 == 0:
                    print(f"{kills} kills, {same} ends the same to the last bit", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if same == asked.points else 1


if __name__ == "__main__":
    sys.exit(main())
