"""Views of an attention map: by age, by lag, by calendar; the top steps, the entropy, the distance of two maps.

Each goes over the windows in chunks, so it needs little more memory than its result. Legend as in
``tsattn.inspection.maps``; ``w`` windows of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tsattn.errors import ConfigError, unknown_name
from tsattn.inspection.support import even_spread

if TYPE_CHECKING:
    import pandas as pd

    from tsattn.inspection.maps import AttentionMap

# our names of the parts, and those of pandas
CALENDAR_PARTS = {
    **{name: name for name in ("minute", "hour", "day", "month", "quarter", "week")},
    "dayofweek": "day_of_week",
    "dayofyear": "day_of_year",
}


def profile(attention: AttentionMap, target: int | str, layer: int | str | None) -> np.ndarray:
    """See ``AttentionMap.profile``."""
    total = np.zeros((len(attention.steps), attention.length))
    count = np.zeros(attention.length)
    for _, weights, read in attention.chunks(target, layer, mean=True):
        total += weights[:, 0].sum(axis=0, dtype=np.float64)
        count += read.sum(axis=0)
    return total / np.maximum(count, 1)


def lag_sums(rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Sums along the diagonals of equal lag: ``[w, H', L]`` and ``steps [H']`` (from 0) ``-> [w, lags]``.

    Column ``k`` is the lag ``k + 1``, in steps from the past step to the forecast step.
    """
    length = rows.shape[2]
    sums = np.zeros((len(rows), length + int(steps.max())))
    for row, step in enumerate(steps):
        sums[:, step : step + length] += rows[:, row, ::-1]
    return sums


def by_lag(attention: AttentionMap, target: int | str, layer: int | str | None) -> pd.DataFrame:
    """See ``AttentionMap.by_lag``."""

    key = attention.record(layer).key
    sums, evens, pairs = [], 0.0, 0.0
    means = []
    for _, weights, read in attention.chunks(target, layer, mean=True):
        every = np.broadcast_to(read[:, None], (len(read), len(attention.steps), attention.length))
        count = lag_sums(every, attention.steps)
        summed = lag_sums(weights[:, 0], attention.steps)
        even = np.broadcast_to(even_spread(key, read)[:, None], every.shape)
        evens = evens + lag_sums(even, attention.steps).sum(axis=0)
        pairs = pairs + count.sum(axis=0)
        sums.append(summed.sum(axis=0))
        means.append(np.divide(summed, count, out=np.full_like(summed, np.nan), where=count > 0))
    return lag_table(np.sum(sums, axis=0), evens, pairs, np.concatenate(means))


def lag_table(sums: np.ndarray, evens: Any, pairs: Any, means: np.ndarray) -> pd.DataFrame:
    """The lag profile from sums over pairs ``[lags]`` and the mean of each window ``[W, lags]`` (for the quartiles)."""
    import pandas as pd

    there = np.asarray(pairs) > 0
    low, high = np.nanquantile(means[:, there], (0.25, 0.75), axis=0)
    return pd.DataFrame(
        {
            "lag": np.flatnonzero(there) + 1,
            "weight": sums[there] / pairs[there],
            "low": low,
            "high": high,
            "even": evens[there] / pairs[there],
            "pairs": pairs[there].astype(np.int64),
        }
    )


def by_calendar(
    attention: AttentionMap, rows: str, cols: str, target: int | str, layer: int | str | None
) -> pd.DataFrame:
    """See ``AttentionMap.by_calendar``."""
    grid = CalendarGrid(attention, rows, cols)
    for windows, weights, read in attention.chunks(target, layer, mean=True):
        grid.add(attention, windows, weights[:, 0], read)
    return grid.table()


class _Alike:
    """Sums over windows of one kind."""

    def __init__(
        self, target: np.ndarray, source: np.ndarray, tokens: np.ndarray, expand: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        self.target, self.source, self.tokens, self.expand, self.windows = target, source, tokens, expand, 0

    def add(self, tokens: np.ndarray) -> None:
        self.tokens += tokens
        self.windows += 1


_CODES = 367  # more than any part of the calendar has values


class CalendarGrid:
    """Sums of weights by two parts of the calendar, over any number of windows."""

    def __init__(self, attention: AttentionMap, rows: str, cols: str) -> None:
        """Raises ConfigError for integer time and for an unknown part."""
        if attention.panel.schema.integer_time:
            raise ConfigError("by_calendar needs stamps; the time of this table is an integer. by_lag needs none.")
        for name in (rows, cols):
            if name.removeprefix("target.") not in CALENDAR_PARTS:
                raise unknown_name("part of the calendar", name, CALENDAR_PARTS)
        if rows == cols:
            raise ConfigError(f"rows and cols are both {rows!r}: choose two different parts of the calendar.")
        self.names = (rows, cols)
        self.sums, self.pairs = np.zeros((_CODES, _CODES)), np.zeros((_CODES, _CODES))
        self._alike: dict[bytes, _Alike] = {}

    def add(self, attention: AttentionMap, windows: slice, weights: np.ndarray, read: np.ndarray) -> None:
        """The windows of a chunk: ``weights [w, H', L]``, ``read [w, L]``."""
        first, second = (self._codes(attention, windows, name) for name in self.names)
        shape = weights.shape
        place = np.broadcast_to(first * _CODES + second, shape).ravel()
        there = np.broadcast_to(read[:, None], shape).ravel()
        self._put(place[there], weights.ravel()[there], 1)

    def add_sums(self, codes: tuple[np.ndarray, np.ndarray], sums: np.ndarray, pairs: int) -> None:
        """Weights of past steps, summed over ``pairs`` forecast steps each: ``codes`` and ``sums [w, L]``."""
        self._put((codes[0] * _CODES + codes[1]).ravel(), sums.ravel(), pairs)

    def add_alike(
        self, codes: tuple[np.ndarray, np.ndarray], tokens: np.ndarray, expand: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        """Windows with the same codes are summed before they become steps.

        ``codes``: of the forecast steps ``[w, H]`` and of the past steps ``[w, L]``; ``tokens [w, J, I]``, which
        ``expand`` takes to ``[H, L]``. An hourly table has as many kinds of windows as a day has hours.
        """
        target, source = codes
        for row in range(len(tokens)):
            key = target[row].tobytes() + source[row].tobytes()
            if key not in self._alike:
                self._alike[key] = _Alike(target[row], source[row], np.zeros(tokens.shape[1:]), expand)
            self._alike[key].add(tokens[row])

    def merge(self, other: CalendarGrid, expand: Callable[[np.ndarray], np.ndarray]) -> None:
        """Add the sums of other windows of the same model; ``expand`` as in ``add_alike``."""
        self.sums += other.sums
        self.pairs += other.pairs
        for key, alike in other._alike.items():
            if key not in self._alike:
                self._alike[key] = _Alike(alike.target, alike.source, np.zeros_like(alike.tokens), expand)
            self._alike[key].tokens += alike.tokens
            self._alike[key].windows += alike.windows

    def _put(self, place: np.ndarray, weights: np.ndarray, pairs: int) -> None:
        cells = _CODES * _CODES
        self.pairs += pairs * np.bincount(place, minlength=cells).reshape(_CODES, _CODES)
        self.sums += np.bincount(place, weights, minlength=cells).reshape(_CODES, _CODES)

    def table(self) -> pd.DataFrame:
        """Tidy: one row per cell that has pairs."""
        import pandas as pd

        for alike in self._alike.values():
            place = (alike.target[:, None] * _CODES + alike.source).ravel()
            self._put(place, alike.expand(alike.tokens).ravel(), 0)
            self.pairs += alike.windows * np.bincount(place, minlength=_CODES**2).reshape(_CODES, _CODES)
        self._alike = {}
        first, second = np.nonzero(self.pairs)
        pairs = self.pairs[first, second]
        values = {self.names[0]: first, self.names[1]: second, "weight": self.sums[first, second] / pairs}
        return pd.DataFrame({**values, "pairs": pairs.astype(np.int64)})

    def _codes(self, attention: AttentionMap, windows: slice, name: str) -> np.ndarray:
        """The part of the calendar of each pair, broadcastable to ``[w, H', L]``."""
        of_target = name.startswith("target.")
        times = attention.all_target_times(windows) if of_target else attention.all_source_times(windows)
        codes = calendar_part(times, name.removeprefix("target."), attention.panel.schema)
        return codes[:, :, None] if of_target else codes[:, None]


def calendar_part(times: np.ndarray, name: str, schema: Any) -> np.ndarray:
    """A part of the calendar of internal times, in the zone of the data, in the shape of ``times``."""
    from tsattn.forecast import time_index

    stamps = time_index(times.ravel(), schema)
    codes = stamps.isocalendar()["week"] if name == "week" else getattr(stamps, CALENDAR_PARTS[name])
    return np.asarray(codes, dtype=np.int64).reshape(times.shape)


def top(attention: AttentionMap, n: int, by: str, target: int | str, layer: int | str | None) -> pd.DataFrame:
    """See ``AttentionMap.top``."""
    import pandas as pd

    from tsattn.forecast import time_index

    if by not in ("window", "horizon"):
        raise unknown_name("by", by, ("window", "horizon"))
    if n < 1:
        raise ConfigError(f"top needs n of at least 1, found {n}.")
    schema, position = attention.panel.schema, attention.target_position(target)
    parts = []
    for windows, weights, read in attention.chunks(position, layer, mean=True):
        rows = weights[:, 0]  # [w, H', L]
        rows = rows.mean(axis=1, keepdims=True) if by == "window" else rows
        order = np.argsort(-np.abs(rows), axis=2, kind="stable")[:, :, :n]  # [w, R, n]
        found = np.take_along_axis(rows, order, axis=2)
        place, row, rank = np.nonzero(np.take_along_axis(np.broadcast_to(read[:, None], rows.shape), order, axis=2))
        step = order[place, row, rank]
        table = _keys(attention, windows, place)
        if by == "horizon":
            table["horizon"] = attention.steps[row] + 1
            table["target_time"] = time_index(attention.all_target_times(windows)[place, row], schema)
        table["rank"] = rank + 1
        table["source_time"] = time_index(attention.all_source_times(windows)[place, step], schema)
        table["age"] = attention.length - 1 - step
        if by == "horizon":
            table["lag"] = table["age"] + table["horizon"]
        table["value"] = attention._values(windows, position)[place, step]
        table["weight"] = found[place, row, rank]
        parts.append(pd.DataFrame(table))
    return pd.concat(parts, ignore_index=True)


def _keys(attention: AttentionMap, windows: slice, place: np.ndarray) -> dict[str, Any]:
    """Id (where the table has one) and origin of windows ``place`` of a chunk."""
    from tsattn.forecast import id_column, time_index

    panel = attention.panel
    series, origin = attention.windows.series[windows][place], attention.windows.origin[windows][place]
    table: dict[str, Any] = {}
    if panel.schema.roles.id is not None:
        table[panel.schema.roles.id] = id_column(panel, series)
    table["origin"] = time_index(panel.times(series, origin - 1), panel.schema)
    return table


def entropy(attention: AttentionMap, normalize: bool, target: int | str, layer: int | str | None) -> np.ndarray:
    """See ``AttentionMap.entropy``."""
    parts = []
    for _, weights, read in attention.chunks(target, layer):
        found = row_entropy(np.abs(weights))
        if normalize:
            largest = np.log(np.maximum(read.sum(axis=1), 2))[:, None, None]
            found = found / largest
        parts.append(found)
    return np.concatenate(parts)


def row_entropy(weights: np.ndarray) -> np.ndarray:
    """Entropy in nats of each row of sizes ``[..., L] -> [...]``, scaled to sum 1; NaN for a row of zeros."""
    total = weights.sum(axis=-1, keepdims=True, dtype=np.float64)
    share = np.divide(weights, total, out=np.zeros(weights.shape), where=total > 0)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.where(total[..., 0] > 0, -(share * logs).sum(axis=-1), np.nan)


def variables(attention: AttentionMap, target: int | str, layer: int | str | None) -> pd.DataFrame:
    """See ``AttentionMap.variables``."""
    import pandas as pd

    records = attention.windows.attention
    if layer is None:
        found = [record for record in records if record.key.kind == "variable"]
        if not found:
            raise ConfigError(
                f"No layer of {attention.model or 'this model'} has variables as keys: {', '.join(attention.layers)}."
            )
        record = found[-1]
    else:
        record = records[attention.layer_position(layer)]
        if record.key.kind != "variable":
            raise ConfigError(f"The keys of layer {record.layer!r} are {record.key.kind}, not variables.")
    of = 0 if record.weights.shape[1] < attention._targets else attention.target_position(target)
    mean = record.weights[:, of].mean(axis=(0, 1), dtype=np.float64)
    names = variable_names(attention.panel.schema, target)
    columns = [names.get(name, name) for name in record.key.names]
    rows: Any = [names.get(name, name) for name in record.query.names]
    if not rows:
        step = np.asarray(record.query.start)
        rows = pd.Index(step + 1, name="horizon") if record.query.kind == "horizon" else pd.Index(step, name="step")
    return pd.DataFrame(mean, index=rows, columns=columns)


def variable_names(schema: Any, target: int | str = 0) -> dict[str, str]:
    """From the names of tokens ("past 1") to those of the columns of the table."""
    roles = schema.roles
    names = {f"target {i}": name for i, name in enumerate(roles.target)}
    names["target"] = target if isinstance(target, str) else roles.target[target]
    for role in ("past", "known", "static"):
        numeric, codes = schema.numeric(role), schema.categorical(role)
        names.update({f"{role} {i}": name for i, name in enumerate([*numeric, *codes])})
    return names


def compare(first: AttentionMap, second: AttentionMap, target: int | str, layer: int | str | None) -> pd.DataFrame:
    """See ``AttentionMap.compare``."""
    import pandas as pd

    check_comparable(first, second)
    position = first.target_position(target)
    parts = []
    for windows, mine, _ in first.chunks(position, layer):
        theirs = second.sel(window=range(len(second))[windows]).to_numpy(
            position, layer if _has(second, layer) else None
        )
        mine, theirs = mine.mean(axis=1), theirs.mean(axis=1)  # [w, H', L]
        place, row = (part.ravel() for part in np.indices(mine.shape[:2]))
        table = _keys(first, windows, place)
        table["horizon"] = first.steps[row] + 1
        table["total_variation"] = (0.5 * np.abs(as_shares(mine) - as_shares(theirs)).sum(axis=2)).ravel()
        table["spearman"] = spearman(mine, theirs).ravel()
        parts.append(pd.DataFrame(table))
    return pd.concat(parts, ignore_index=True)


def check_comparable(first: AttentionMap, second: AttentionMap) -> None:
    """Raises ConfigError unless the two maps have the same windows, past steps and forecast steps."""

    def origins(attention: AttentionMap) -> list[tuple[Any, int]]:
        windows, panel = attention.windows, attention.panel
        times = panel.times(windows.series, windows.origin)
        return [(panel.ids[int(s)].as_py(), int(t)) for s, t in zip(windows.series, times, strict=True)]

    reasons = {
        f"{first.length} and {second.length} past steps": first.length != second.length,
        f"the forecast steps {_range(first)} and {_range(second)}": not np.array_equal(first.steps, second.steps),
        f"{len(first)} and {len(second)} windows": len(first) != len(second),
    }
    for reason, differs in reasons.items():
        if differs:
            raise ConfigError(
                f"These maps cannot be compared: they have {reason}. Use models of one context and horizon."
            )
    if origins(first) != origins(second):
        raise ConfigError("These maps cannot be compared: their windows are of other series or origins. Use one table.")


def _range(attention: AttentionMap) -> str:
    steps = attention.steps + 1
    return f"{steps[0]} to {steps[-1]}" if len(steps) > 1 else str(steps[0])


def _has(attention: AttentionMap, layer: int | str | None) -> bool:
    """Whether another model has a layer of this name or number, with a map."""
    if isinstance(layer, str):
        return layer in attention.layers
    return layer is not None and -len(attention.layers) <= layer < len(attention.layers)


def as_shares(rows: np.ndarray) -> np.ndarray:
    """Sizes of each row, scaled to sum 1."""
    sizes = np.abs(rows).astype(np.float64)
    return sizes / np.maximum(sizes.sum(axis=-1, keepdims=True), np.finfo(np.float64).tiny)


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Rank correlation along the last axis, ties sharing their mean rank; NaN where a row is constant.

    ``[..., L]`` twice ``-> [...]``. Spearman, 1904.
    """
    from scipy.stats import rankdata

    one, two = (rankdata(part, axis=-1) for part in (first, second))
    one, two = (part - part.mean(axis=-1, keepdims=True) for part in (one, two))
    size = np.sqrt((one**2).sum(axis=-1) * (two**2).sum(axis=-1))
    return np.divide((one * two).sum(axis=-1), size, out=np.full(size.shape, np.nan), where=size > 0)
