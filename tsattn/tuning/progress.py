"""How a study stands, on stderr: one moving line in a terminal, one line per trial in a log."""

from __future__ import annotations

import sys
import time

from tsattn.tuning.ledger import Ledger


class Progress:
    """Call it after each trial, or from time to time; prints only when something has changed."""

    def __init__(self, ledger: Ledger, total: int, verbose: bool) -> None:
        """Say what was there before."""
        self.ledger, self.total, self.verbose = ledger, total, verbose
        self._started = time.monotonic()
        self._last = ""
        done = ledger.counts().done
        self._moving = verbose and sys.stderr.isatty()
        if verbose and done:
            print(
                f"study {ledger.study.study_name!r}: {done} trials done, {max(total - done, 0)} to do", file=sys.stderr
            )

    def __call__(self) -> None:
        """Print the line."""
        if not self.verbose:
            return
        line = self.line()
        if line == self._last:
            return
        self._last = line
        seconds = int(time.monotonic() - self._started)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        end = "" if self._moving else "\n"
        print(f"\r\033[K{line}, {clock}" if self._moving else f"{line}, {clock}", end=end, file=sys.stderr, flush=True)

    def line(self) -> str:
        """``12/50 trials, 3 pruned, 1 failed, best mae 4.12 (trial 7)``."""
        counts = self.ledger.counts()
        parts = [f"{counts.done}/{self.total} trials"]
        parts += [f"{n} {name}" for name, n in (("pruned", counts.pruned), ("failed", counts.failed)) if n]
        if counts.complete:
            parts.append(self._best())
        return ", ".join(parts)

    def _best(self) -> str:
        study = self.ledger.study
        names = study.metric_names or ["error"]
        if len(names) > 1:
            return f"{len(study.best_trials)} on the Pareto front"
        best = study.best_trial
        return f"best {names[0]} {best.value:.4g} (trial {best.number})"

    def close(self) -> None:
        """End the moving line."""
        if self._moving and self._last:
            print(file=sys.stderr)
