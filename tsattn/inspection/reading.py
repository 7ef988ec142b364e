"""Attributions read off from one forward pass: weights with what they bring in, exact splits, rollout.

Legend as in ``tsattn.inspection.attribute``; ``V`` width of a value, ``W`` (of a token) width after the projection.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tsattn.attention.intervention import Call
from tsattn.attention.multihead import MultiHeadAttention
from tsattn.errors import ConfigError
from tsattn.inference import Record, WindowForecasts, forecast_windows
from tsattn.inspection.options import Attribution, Options
from tsattn.inspection.probe import Probe, horizon_steps, is_selection
from tsattn.inspection.support import has_map
from tsattn.models.base import Axis


def windows_with(probe: Probe, *, contributions: bool = True) -> WindowForecasts:
    """The windows of a probe with their maps."""
    return forecast_windows(
        probe.network,
        probe.source,
        probe.windows.series,
        probe.windows.origin,
        attention=True,
        contributions=contributions,
        device=probe.device,
    )


def contribution(probe: Probe, options: Options) -> Attribution:
    """What each past step (lucid) or patch (patchtst's last layer) added to the forecast, exact."""
    windows, spec = windows_with(probe), probe.network.spec
    query = horizon_steps(spec.horizon)
    if windows.contributions is not None:
        steps = tuple(range(spec.context + 1))
        parts, notes = _split(probe, windows.contributions, options.variable)
        return Attribution(parts[:, :, None], query, Axis("time", steps[:-1], steps[1:]), "contribution", notes=notes)
    if windows.tokens is not None:
        if options.variable is not None:
            raise ConfigError(f"The contributions of {probe.model} are those of the target alone; leave variable out.")
        return Attribution(windows.tokens.tokens[:, :, None], query, windows.tokens.key, "last layer")
    raise ConfigError(
        f"{probe.model} has no exact split: what it reads passes through layers that are not linear. Ask lucid, or "
        f"take method='knockout' (through the attention) or 'integrated_gradients' (whole network)."
    )


def _split(probe: Probe, parts: dict[str, np.ndarray], variable: str | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """What each step added, ``[W, C, H, L]``: of all columns, or of one."""
    schema = probe.panel.schema
    past = [*schema.numeric("past"), *schema.categorical("past")]
    if variable is None:
        return parts["history"] + parts["past"].sum(axis=-1), ()
    if variable in schema.roles.target:
        return parts["history"], (f"history of the target alone ({variable})",)
    if variable not in past:
        raise ConfigError(
            f"No column {variable!r} whose past is read. There are {', '.join([*schema.roles.target, *past])}."
        )
    return parts["past"][..., past.index(variable)], (variable,)


def value_norm(probe: Probe, options: Options) -> Attribution:
    """Each weight times the length of what it brings in, as shares of a row.

    Kobayashi et al., EMNLP 2020: ``|| sum_n A[n, j, i] v[n, i] W_out[n] ||`` for heads joined by a projection. Where
    the network reads values without one (seq2seq), the length of ``A v``; lucid's is the size of what a patch adds to
    a forecast step, from its exact split.
    """
    windows = windows_with(probe)
    if windows.contributions is not None:
        parts, _ = _split(probe, windows.contributions, None)
        key = windows.attention[0].key
        return _row_shares(np.abs(_by_token(parts, key)), horizon_steps(probe.network.spec.horizon), key, "attention")
    layers = probe.layers()
    chosen = layers.chosen(options.layer)[-1]
    example = layers.records[chosen]
    parts_of = []
    for _, batch in probe.batches():
        with torch.inference_mode(), _Projections(probe.network) as projections:
            lengths = _Lengths(projections, {c for c in range(layers.calls) if layers.of(c) == chosen})
            probe.run(batch, lengths)
        shape = (len(batch), example.weights.shape[1], 1, -1, example.weights.shape[4])
        joined = [part.reshape(shape) for part in lengths.found]  # one for each call: a row, or all of them
        parts_of.append(torch.cat(joined, dim=3).float().cpu().numpy())
    return _row_shares(np.concatenate(parts_of), example.query, example.key, example.layer)


def _row_shares(sizes: np.ndarray, query: Axis, key: Axis, layer: str) -> Attribution:
    total = sizes.sum(axis=-1, keepdims=True)
    shares = np.divide(sizes, total, out=np.zeros_like(sizes), where=total > 0)
    return Attribution(shares, query, key, layer, signed=False, unit="share")


def _by_token(parts: np.ndarray, key: Axis) -> np.ndarray:
    """``[W, C, H, L] -> [W, C, 1, H, I]``: sums over the steps of each token."""
    length = parts.shape[-1]
    sums = [parts[..., max(s, 0) : min(e, length)].sum(axis=-1) for s, e in zip(key.start, key.end, strict=True)]
    return np.stack(sums, axis=-1)[:, :, None]


class _Projections:
    """The output projections of the multi-head layers, in the order in which a forward pass uses them."""

    def __init__(self, network: torch.nn.Module) -> None:
        self._layers = [module for module in network.modules() if isinstance(module, MultiHeadAttention)]
        self.used: list[MultiHeadAttention] = []

    def __enter__(self) -> _Projections:
        self._hooks = [m.register_forward_pre_hook(lambda module, _: self.used.append(module)) for m in self._layers]
        # with_scores is no forward pass: its layer is found by its place
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def of(self, call: int) -> MultiHeadAttention | None:
        """The layer whose weights are being formed in kernel call ``call``."""
        if self.used:
            return self.used[-1]
        return self._layers[call] if call < len(self._layers) else None


class _Lengths:
    """Leaves the weights as they are, and keeps the length of what each brings in, ``[..., J, I]``."""

    def __init__(self, projections: _Projections, calls: set[int]) -> None:
        self._projections, self._calls = projections, calls
        self.found: list[Tensor] = []

    def __call__(self, call: Call) -> Tensor:
        if call.number in self._calls:
            if call.value is None:
                raise ConfigError("The values of this attention are not known: its network reads by itself.")
            layer = self._projections.of(call.number)
            weights, value = call.weights, call.value.to(call.weights.dtype)
            self.found.append(_plain(weights, value) if layer is None else _projected(weights, value, layer))
        return call.weights


def _plain(weights: Tensor, value: Tensor) -> Tensor:
    """``|A v|`` of an attention without heads: ``[..., J, I]``, ``[..., I, V]``."""
    return weights * value.norm(dim=-1).unsqueeze(-2)


def _projected(weights: Tensor, value: Tensor, layer: MultiHeadAttention) -> Tensor:
    """``|| sum_n A[n] v[n] W_out[n] ||``: weights ``[..., N, J, I]``, values ``[..., N or 1, I, D] -> [..., J, I]``."""
    matrix = layer.out.weight.to(value.dtype)  # [W, N * D] or [W, D] for shared values
    if layer.shared_values:
        return weights.mean(dim=-3) * (value.squeeze(-3) @ matrix.T).norm(dim=-1).unsqueeze(-2)
    per_head = matrix.unflatten(1, (layer.heads, layer.head_width))  # [W, N, D]
    brought = torch.einsum("...nid,wnd->...niw", value, per_head)  # [..., N, I, W]
    between = torch.einsum("...niw,...miw->...inm", brought, brought)  # [..., I, N, N]: no [J, I, W] is formed
    squared = torch.einsum("...nji,...inm,...mji->...ji", weights, between, weights)
    return squared.clamp(min=0).sqrt()


def rollout(probe: Probe, options: Options) -> Attribution:
    """Attention through the layers of the encoder, each half itself and half what it read.

    Abnar and Zuidema, ACL 2020: ``R = prod_l (A_l + 1) / 2`` over the encoder's layers (means over heads), and the map
    of the forecast steps times ``R``. For patchtst the forecast steps' rows are the sizes of what the last layer read;
    over variables (itransformer) the rows are the targets. Without an encoder that attends it is the map itself.
    """
    parts, axes = [], None
    for rows, _ in probe.batches(copies=8):
        windows = windows_with(probe.take(np.arange(len(probe))[rows]))
        records = [r for r in windows.attention if not is_selection(r)]
        if not records:
            probe.layers()  # raises with the reason
        first, encoder = _start(windows, records)
        rolled = first.weights
        for record in reversed(encoder):
            own = record.weights.mean(axis=2, keepdims=True)
            rolled = 0.5 * rolled + 0.5 * (rolled @ own)
        parts.append(rolled)
        axes = (first.query, first.key, len(encoder))
    assert axes is not None
    notes = (f"through {axes[2]} encoder layers",)
    return Attribution(np.concatenate(parts), axes[0], axes[1], "rollout", signed=False, unit="share", notes=notes)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Where the rollout starts: ``weights [W, C, 1, J, I]``."""

    weights: np.ndarray
    query: Axis
    key: Axis


def _start(windows: WindowForecasts, records: list[Record]) -> tuple[_Rows, list[Record]]:
    """The rows that ask last, and the layers below them, first one first."""
    mapped = [record for record in records if has_map(record)]
    if mapped:
        last = mapped[-1]
        rows = _Rows(last.weights.mean(axis=2, keepdims=True), last.query, last.key)
    elif windows.tokens is not None:
        sizes = np.abs(windows.tokens.tokens)[:, :, None]
        rows = _Rows(sizes / np.maximum(sizes.sum(axis=-1, keepdims=True), 1e-30), _steps(windows), windows.tokens.key)
    else:
        last = records[-1]
        size = len(last.key)
        eye = np.broadcast_to(np.eye(size, dtype=np.float32), (len(windows.series), 1, 1, size, size))
        rows = _Rows(eye, last.key, last.key)
    return rows, [r for r in records if r.query == r.key == rows.key]


def _steps(windows: WindowForecasts) -> Axis:
    return horizon_steps(windows.point.shape[1])
