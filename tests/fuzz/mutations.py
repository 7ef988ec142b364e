"""Ways to damage a file, and what each kind of file is read with.

    python -m tests.fuzz.mutations --inputs 10000    # the whole campaign; exits with 1 on an unclear failure

A mutated input must give a result or one ``TsattnError``: no other exception, no hang, no crash, no code that runs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

import tsattn
from tests.conftest import make_waves
from tsattn.cli import main as command
from tsattn.data.build import build_panel
from tsattn.data.ondisk import open_panel
from tsattn.data.split import chronological
from tsattn.errors import DataError, TsattnError
from tsattn.training.checkpoint import _read
from tsattn.tuning.run import as_forecaster

SECONDS = 20  # for one input: more is a hang
QUICK = {"epochs": 1, "verbose": False, "accelerator": "cpu"}
WORDS = [
    b"NaN", b"-1", b"1e999", b"null", b"[]", b"{}", b'"../../x"', b"9" * 400, b"true", b"\x00", b"\xff\xfe", b"0",
    b"!!python/object/apply:os.system ['touch pwned']", b"[" * 3000, b"&a [*a]", b"\r\n", b",", b'"', b"'", b"1e-320",
]  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One damaged copy: bits, cuts, repeats, swaps, and words that parsers stumble over."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        size = len(changed)
        at, length = rng.randrange(size + 1), rng.choice([1, 2, 8, 64, 1000])
        kind = rng.randrange(8)
        if kind == 0 and size:
            changed[rng.randrange(size)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del changed[at:]
        elif kind == 2:
            del changed[at : at + length]
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        elif kind == 4:
            other = rng.randrange(size + 1)
            changed[at : at + length], changed[other : other + length] = (
                changed[other : other + length],
                changed[at : at + length],
            )
        elif kind == 5:
            changed[at:at] = rng.choice(WORDS)
        elif kind == 6:
            word = rng.choice(WORDS)
            changed[at : at + len(word)] = word
        elif size >= 8:
            start = rng.randrange(min(size, 64) - 7)  # lengths of headers stand at the beginning
            changed[start : start + 8] = rng.choice([2**63 - 1, 2**40, 0, 10**9]).to_bytes(8, "little")
    return bytes(changed)


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """Valid JSON with one value replaced: past the parser, into what reads the values."""
    content = json.loads(data)
    odd = [
        None,
        -1,
        0,
        1e308,
        "x",
        "../../etc/passwd",
        [],
        {},
        [[1]],
        True,
        10**30,
        {"a": {"b": []}},
        "\u0000",
        [None] * 9,
    ]
    places: list[tuple[object, object]] = []

    def visit(node: object) -> None:
        pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in list(pairs):
            places.append((node, key))
            visit(value)

    visit(content)
    node, key = rng.choice(places)
    node[key] = rng.choice(odd)  # type: ignore[index]
    return json.dumps(content).encode()


class Target:
    """A kind of input: whole files, the one that is damaged, and how it is read."""

    def __init__(self, files: dict[str, bytes], damaged: str, read: Callable[[Path], object], *, as_json: bool = False):
        """``read(folder)`` reads the files in a folder of their own."""
        self.files, self.damaged, self.read, self.as_json = files, damaged, read, as_json

    def one(self, folder: Path, rng: random.Random) -> str:
        """Damage, read, and say how it ended."""
        for name, data in self.files.items():
            if name == self.damaged:
                data = mutate_json(data, rng) if self.as_json and rng.random() < 0.7 else mutate(data, rng)
            (folder / name).write_bytes(data)
        try:
            with _limited(), warnings.catch_warnings(), _quiet():
                warnings.simplefilter("ignore")
                self.read(folder)
        except TsattnError as error:
            return "error" if str(error) else "an error without words"
        except SystemExit as stop:
            return "error" if stop.code in (0, 2) else f"status {stop.code}"
        except BaseException as error:  # noqa: BLE001 - this is what is looked for
            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {str(error)[:200]} ({Path(where.filename).name}:{where.lineno})"
        return "result"


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """A hang becomes an exception."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def targets(folder: Path) -> dict[str, Target]:
    """Every kind of file a user may be given by somebody else."""
    table = make_waves(steps=80)
    model = tsattn.Forecaster(
        "nlinear", horizon=4, context=12, training={**QUICK, "checkpoint_steps": 1}, output="point"
    )
    panel = build_panel(table, model._roles())
    model._fit_panel(panel, chronological(panel, 12, 4, None), checkpoints=folder / "c")
    kept = sorted((folder / "c").glob("step-*"))[-2:]
    checkpoint = {path.name: path.read_bytes() for path in kept}
    saved = model.save(folder / "m")
    whole = {path.name: path.read_bytes() for path in saved.iterdir()}
    lucid = tsattn.Forecaster("lucid", horizon=4, context=12, options={"patch": 4}, training=QUICK).fit(table)
    attention = lucid.predict(attention=True).attention
    maps = {name: attention.save(folder / name).read_bytes() for name in ("map.npz", "map.parquet")}
    config = yaml.safe_dump(
        {
            "data": "none_such.csv", "out": "out", "model": "lucid", "horizon": 4, "context": 12, "id": "unique_id",
            "options": {"patch": 4}, "training": {"epochs": 1, "learning_rate": 0.01}, "seed": 3, "target": ["y"],
        }
    ).encode()  # fmt: skip
    table.to_csv(folder / "t.csv", index=False)
    table.to_parquet(folder / "t.parquet", index=False)
    tables = {name: (folder / name).read_bytes() for name in ("t.csv", "t.parquet")}

    def load(place: Path) -> object:
        return tsattn.Forecaster.load(place).predict()

    def described(place: Path) -> object:
        return _read(next(place.glob("step-*.json")))

    build_panel(tsattn.OnDisk(folder / "t.parquet", folder / "panels"), model._roles())
    kept_panel = next((folder / "panels").glob("*/panel.json")).parent
    panel_files = {path.name: path.read_bytes() for path in kept_panel.iterdir()}

    def on_disk(place: Path) -> object:
        return build_panel(tsattn.OnDisk(place / "t.parquet", place / "panels"), model._roles()).checksum()

    def opened(place: Path) -> None:
        found = open_panel(place)
        if found is None:
            raise DataError("not whole: it would be made again")
        assert found.checksum() == panel.checksum()  # what was built

    def panel_of(name: str) -> Callable[[Path], object]:
        return lambda place: build_panel(str(place / name), model._roles())

    return {
        "model.json": Target(whole, "model.json", load, as_json=True),
        "weights": Target(whole, "weights.safetensors", load),
        "history": Target(whole, "history.safetensors", load),
        "checkpoint": Target(checkpoint, kept[0].name, described),
        "its description": Target(checkpoint, kept[1].name, described, as_json=True),
        "map.npz": Target(
            {"map.npz": maps["map.npz"]}, "map.npz", lambda p: tsattn.AttentionMap.load(p / "map.npz").to_frame()
        ),
        "map.parquet": Target(
            {"map.parquet": maps["map.parquet"]},
            "map.parquet",
            lambda p: tsattn.AttentionMap.load(p / "map.parquet").to_frame(),
        ),
        "config": Target({"run.yaml": config}, "run.yaml", lambda p: command(["fit", "--config", str(p / "run.yaml")])),
        "config of a study": Target({"run.yaml": config}, "run.yaml", lambda p: as_forecaster(p / "run.yaml")._check()),
        "csv": Target({"t.csv": tables["t.csv"]}, "t.csv", panel_of("t.csv")),
        "parquet": Target({"t.parquet": tables["t.parquet"]}, "t.parquet", panel_of("t.parquet")),
        "parquet on disk": Target({"t.parquet": tables["t.parquet"]}, "t.parquet", on_disk),
        "panel.json": Target(panel_files, "panel.json", opened, as_json=True),
    }


def campaign(inputs: int, seed: int = 0, names: list[str] | None = None) -> dict[str, collections.Counter[str]]:
    """``inputs`` damaged files, shared out among the kinds: how each ended."""
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = targets(Path(place))
        kinds = {name: kinds[name] for name in names or kinds}
        found = {}
        for name, target in kinds.items():
            rng = random.Random(f"{name} {seed}")
            ends: collections.Counter[str] = collections.Counter()
            for _ in range(-(-inputs // len(kinds))):
                folder = Path(place) / "input"
                folder.mkdir()
                with contextlib.chdir(folder) if sys.version_info >= (3, 11) else contextlib.nullcontext():
                    ends[target.one(folder, rng)] += 1
                assert not (folder / "pwned").exists(), "code of a file was run"
                shutil.rmtree(folder)
            found[name] = ends
    return found


def unclear(found: dict[str, collections.Counter[str]]) -> list[str]:
    """Everything that was neither a result nor one clear error."""
    return [
        f"{name}: {count} x {end}"
        for name, e in found.items()
        for end, count in e.items()
        if end not in ("result", "error")
    ]


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    started = time.monotonic()
    found = campaign(asked.inputs, asked.seed, asked.only)
    for name, ends in found.items():
        print(f"{name}: {ends['result']} results, {ends['error']} errors")
    bad = unclear(found)
    print("\n".join(bad) or "no unclear failure")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = sum(ends.total() for ends in found.values())
    print(f"{total} inputs, {time.monotonic() - started:.0f} s, peak {peak:.0f} MB")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
