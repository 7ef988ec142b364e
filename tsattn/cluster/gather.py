"""The reports of all parts together: what failed, what was skipped, what was warned of, and what adds up."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsattn.cluster.worker import Report, Sums
from tsattn.data.build import refuse_coarser
from tsattn.data.schema import Schema
from tsattn.errors import ClusterError, TsattnError, warn

if TYPE_CHECKING:
    from tsattn.evaluation.metrics import By
    from tsattn.inspection.summary import AttentionSummary

_DETAILS = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d[\d.,:e+-]*")  # names and numbers, which differ from part to part


class Reports:
    """Reports as they come in. Memory grows with the number of series, not with that of windows."""

    def __init__(self) -> None:
        """Nothing has come in yet."""
        self.reports: list[Report] = []
        self.summary: AttentionSummary | None = None

    def add(self, report: Report) -> None:
        """Take a report in; raises the error that a worker met, on which part of the table it did."""
        if report.error is not None:
            raise _of_part(report.error, report.rows)
        if report.summary is not None:
            if self.summary is None:
                self.summary = report.summary
            else:
                self.summary.merge(report.summary)
        self.reports.append(replace(report, summary=None))

    @property
    def series(self) -> int:
        """Number of series, those skipped included."""
        return sum(len(_ids(report)) + len(report.skipped) for report in self.reports)

    @property
    def files(self) -> list[str]:
        """Names of the files that were written."""
        return sorted(report.file for report in self.reports if report.file is not None)

    @property
    def skipped(self) -> dict[Any, str]:
        """Ids that were skipped with the reason, in order."""
        found: dict[Any, str] = {}
        for report in self.reports:
            found |= report.skipped
        return {id: found[id] for id in sorted(found)}

    def check(self, rows: int, schema: Schema) -> None:
        """What all parts must agree on: nothing lost, nothing twice, and a frequency that is not coarser.

        Raises ClusterError or DataError.
        """
        seen = sum(report.rows for report in self.reports)
        ids = [*self.ids().to_pylist(), *(id for report in self.reports for id in report.skipped)]
        twice = len(ids) - len(set(ids))
        if seen != rows or twice:
            raise ClusterError(
                f"The cluster handed out {seen} of {rows} rows, and {twice} of {len(ids)} series to more than one "
                f"worker: nothing is written. Are all machines on the same versions of ray, pyarrow and polars?"
            )
        refuse_coarser([gaps for report in self.reports for gaps in report.spacing], schema)

    def ids(self) -> pa.Array:
        """Ids in the files, in the order of the reports."""
        return pa.concat_arrays([_ids(report) for report in self.reports])

    def warn(self) -> None:
        """Each kind of warning once, in the words of the first part that gave it."""
        kinds: dict[str, list[str]] = defaultdict(list)
        for report in self.reports:
            for message in report.warnings:
                kinds[_DETAILS.sub("#", message)].append(message)
        for messages in kinds.values():
            more = f" (Numbers are of one part of the table; {len(messages)} of {len(self.reports)} parts say so.)"
            warn(messages[0] + (more if len(self.reports) > 1 else ""))

    def mention_unscored(self) -> None:
        """A warning for each target none of whose steps could be scored: its scores are NaN."""
        sums, _ = self.sums(None)
        for target in dict.fromkeys(name for name, _ in sums):
            if not any(found["mae"][1] for (name, _), found in sums.items() if name == target):
                warn(f"The scores of {target!r} are NaN: no step of any window could be scored. Choose other origins.")

    def sums(self, by: By) -> tuple[Sums, pa.Array]:
        """Sums of the scores of all series, and their ids; added in the order of the ids, whatever the parts were."""
        parts = [report.sums["step" if by == "step" else "series"] for report in self.reports if report.sums]
        ids = self.ids()
        order = pc.sort_indices(ids).to_numpy()
        together: Sums = {}
        for key, first in parts[0].items():
            names = {name: [part[key][name] for part in parts] for name in first}
            if by == "step":
                together[key] = {name: np.sum(found, axis=0) for name, found in names.items()}
                continue
            rows = {name: np.concatenate(found, axis=1)[:, order] for name, found in names.items()}
            together[key] = rows if by == "series" else {name: found.sum(axis=1) for name, found in rows.items()}
        return together, ids.take(pa.array(order))


def _ids(report: Report) -> pa.Array:
    assert report.ids is not None
    return report.ids


def _of_part(error: TsattnError, rows: int) -> TsattnError:
    if not isinstance(error, ValueError):  # of the run, not of the data
        return error
    return type(error)(f"{error} (Numbers and rows are those of one part of the table, which has {rows} rows.)")
