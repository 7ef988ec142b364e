"""Make tests/models/fixtures/*.npz: what published implementations forecast, with their weights under our names.

    python -m venv parity && parity/bin/pip install torch==2.13.0 neuralforecast==3.3.0
    parity/bin/python scripts/make_parity_fixtures.py

neuralforecast holds the authors' code of PatchTST and iTransformer. Each model is built at toy size, every parameter
gets noise (so that nothing that starts at zero is left out), and runs in float64 in eval mode. A fixture holds the
windows, the forecast, the attention weights of each layer, the weights, and as JSON our options and the versions.

The published normalisation adds 1e-5 to the variance of a window and ours adds nothing. The windows have a variance
of about 1e4, so that this is 1e-9 of it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import neuralforecast
import numpy as np
import torch
from neuralforecast.models import iTransformer
from neuralforecast.models.patchtst import PatchTST_backbone
from torch import Tensor, nn

WINDOWS, TARGETS, CONTEXT, HORIZON = 3, 2, 22, 5
SIZES = {"width": 8, "heads": 2, "hidden": 12, "layers": 3}
LINEAR = ("weight", "bias")


def noisy(module: nn.Module) -> nn.Module:
    """Noise on every trained parameter and on the statistics of batch normalisations; float64, eval mode."""
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn(parameter.shape)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean = 0.3 * torch.randn(part.num_features)
            part.running_var = 0.5 + torch.rand(part.num_features)
    return module.double().eval()


def windows() -> Tensor:
    """``[B, L, C]``: waves and noise at a high level; exact in float32."""
    step = torch.arange(CONTEXT)[None, :, None]
    phase = 6.0 * torch.rand(WINDOWS, 1, TARGETS)
    values = 500.0 + 120.0 * torch.sin(0.7 * step + phase) + 40.0 * torch.randn(WINDOWS, CONTEXT, TARGETS)
    return values.float().double()


def renamed(state: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    """Weights under our names: ``names`` maps ours to theirs, of layers without ``.weight`` and ``.bias``."""
    return {f"{ours}.{part}": state[f"{theirs}.{part}"] for ours, theirs in names.items() for part in LINEAR}


def patchtst(*, affine: bool, individual: bool, residual_scores: bool) -> dict[str, Any]:
    """PatchTST: P = 6, S = 3, batch normalisation after each sum, as published; the end padded by 3 steps."""
    model = noisy(
        PatchTST_backbone(
            c_in=TARGETS,
            c_out=1,
            input_size=CONTEXT,
            h=HORIZON,
            patch_len=6,
            stride=3,
            n_layers=SIZES["layers"],
            hidden_size=SIZES["width"],
            n_heads=SIZES["heads"],
            linear_hidden_size=SIZES["hidden"],
            res_attention=residual_scores,
            padding_patch="end",
            individual=individual,
            affine=affine,
        )
    )
    maps: list[Tensor] = []
    for layer in model.backbone.encoder.layers:
        if residual_scores:  # the other branch forms no weights
            layer.self_attn.sdp_attn.register_forward_hook(lambda _, __, result: maps.append(result[1]))
    past = windows()
    with torch.no_grad():
        point = model(past.transpose(1, 2)).transpose(1, 2)
    extra = {"patch": 6, "stride": 3, "affine": affine, "individual": individual, "residual_scores": residual_scores}
    attention = torch.stack(maps).unflatten(1, (WINDOWS, TARGETS)) if maps else torch.zeros(0)
    return fixture(past, point, attention, dict(patchtst_weights(model)), SIZES | extra)


def patchtst_weights(model: PatchTST_backbone) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each of our parameters and buffers."""
    state = model.state_dict()
    yield from renamed(state, {"embed": "backbone.W_P"}).items()
    yield "position.weight", state["backbone.W_pos"]
    for number in range(SIZES["layers"]):
        ours, theirs = f"blocks.{number}", f"backbone.encoder.layers.{number}"
        names = {
            f"{ours}.attention.query": f"{theirs}.self_attn.W_Q",
            f"{ours}.attention.key": f"{theirs}.self_attn.W_K",
            f"{ours}.attention.value": f"{theirs}.self_attn.W_V",
            f"{ours}.attention.out": f"{theirs}.self_attn.to_out.0",
            f"{ours}.feedforward.0": f"{theirs}.ff.0",
            f"{ours}.feedforward.3": f"{theirs}.ff.3",
            f"{ours}.norm1.norm": f"{theirs}.norm_attn.1",
            f"{ours}.norm2.norm": f"{theirs}.norm_ffn.1",
        }
        yield from renamed(state, names).items()
        for norm, other in (("norm1", "norm_attn"), ("norm2", "norm_ffn")):
            for part in ("running_mean", "running_var", "num_batches_tracked"):
                yield f"{ours}.{norm}.norm.{part}", state[f"{theirs}.{other}.1.{part}"]
    heads = [f"head.linears.{c}" for c in range(TARGETS)] if model.individual else ["head.linear"]
    weight = torch.stack([state[f"{head}.weight"] for head in heads])  # [C or 1, H, W * I]: theirs flattens W first
    yield "head.weight", weight.unflatten(2, (SIZES["width"], -1)).transpose(2, 3).flatten(2)
    yield "head.bias", torch.stack([state[f"{head}.bias"] for head in heads])
    if model.revin_layer.affine:
        yield "affine.gain", state["revin_layer.affine_weight"]
        yield "affine.shift", state["revin_layer.affine_bias"]


def itransformer() -> dict[str, Any]:
    """iTransformer, with one known covariate for each target: theirs share one embedding, ours gets a copy for each."""
    model = noisy(
        iTransformer(
            h=HORIZON,
            input_size=CONTEXT,
            n_series=TARGETS,
            futr_exog_list=["known"],
            hidden_size=SIZES["width"],
            n_heads=SIZES["heads"],
            e_layers=SIZES["layers"],
            d_ff=SIZES["hidden"],
        )
    )
    for layer in model.encoder.attn_layers:
        layer.attention.inner_attention.output_attention = True
    maps: list[Tensor] = []
    model.encoder.register_forward_hook(lambda _, __, result: maps.extend(result[1]))
    past, known = windows(), torch.randn(WINDOWS, CONTEXT + HORIZON, TARGETS).double()
    with torch.no_grad():
        point = model({"insample_y": past, "futr_exog": known[:, None]})
    made = fixture(past, point, torch.stack(maps)[:, :, None], dict(itransformer_weights(model)), SIZES)
    return made | {"known": known.float().numpy()}


def itransformer_weights(model: iTransformer) -> Iterator[tuple[str, Tensor]]:
    """Name and value of each of our parameters."""
    state = {name: value.squeeze(-1) if "conv" in name else value for name, value in model.state_dict().items()}
    names = {"embed": "enc_embedding.value_embedding", "norm": "encoder.norm", "head": "projector"}
    names |= {f"known.embed.{column}": "futr_embedding" for column in range(TARGETS)}
    for number in range(SIZES["layers"]):
        ours, theirs = f"blocks.{number}", f"encoder.attn_layers.{number}"
        names |= {
            f"{ours}.attention.query": f"{theirs}.attention.query_projection",
            f"{ours}.attention.key": f"{theirs}.attention.key_projection",
            f"{ours}.attention.value": f"{theirs}.attention.value_projection",
            f"{ours}.attention.out": f"{theirs}.attention.out_projection",
            f"{ours}.feedforward.0": f"{theirs}.conv1",
            f"{ours}.feedforward.3": f"{theirs}.conv2",
            f"{ours}.norm1": f"{theirs}.norm1",
            f"{ours}.norm2": f"{theirs}.norm2",
        }
    yield from renamed(state, names).items()
    yield "embed_missing.weight", torch.zeros_like(state["enc_embedding.value_embedding.weight"])


def fixture(
    past: Tensor, point: Tensor, attention: Tensor, weights: dict[str, Tensor], options: dict[str, Any]
) -> dict[str, Any]:
    """The arrays of one file; weights and windows in float32, what came out in float64."""
    versions = {"neuralforecast": neuralforecast.__version__, "torch": torch.__version__}
    return {
        "past": past.float().numpy(),
        "point": point.numpy(),
        "attention": attention.numpy(),  # [layer, B, C or 1, N, J, I]
        **{f"weights/{name}": value.float().numpy() for name, value in weights.items()},
        "options": np.array(json.dumps(options)),
        "versions": np.array(json.dumps(versions)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[1] / "tests" / "models" / "fixtures"
    parser.add_argument("--out", type=Path, default=default)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    made = {
        "patchtst": lambda: patchtst(affine=False, individual=False, residual_scores=True),
        "patchtst_affine": lambda: patchtst(affine=True, individual=True, residual_scores=False),
        "itransformer": itransformer,
    }
    for name, make in made.items():
        torch.manual_seed(0)
        path = out / f"{name}.npz"
        np.savez_compressed(path, **make())
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
