"""A fitted forecaster on disk: weights as safetensors, everything else as JSON. Nothing in it is ever executed.

    model.json             format, versions, parameters, schema, scaling, summary
    weights.safetensors    the network
    history.safetensors    the last ``context`` steps of the training series (optional)

Each file is written under a temporary name and moved into place, the JSON last, so a folder with a JSON is complete.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import tsattn
from tsattn.data.panel import Panel
from tsattn.data.schema import Schema
from tsattn.data.windows import Scaling
from tsattn.errors import ArtifactError, ConfigError
from tsattn.models import MODELS, InputSpec, Network, build
from tsattn.training.config import TrainConfig
from tsattn.training.run import TrainSummary

if TYPE_CHECKING:
    from tsattn.forecaster import Forecaster

FORMAT = 1
_ARRAYS = ("values", "codes", "static_values", "static_codes", "indptr", "start")


def save(forecaster: Forecaster, path: Path, *, history: bool) -> Path:
    """Write ``forecaster`` to the folder ``path``; returns the folder."""
    if path.exists() and not path.is_dir():
        raise ArtifactError(f"{path} is a file; a model is saved to a folder.")
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in forecaster.network_.state_dict().items()}
    files = {"weights.safetensors": save_arrays({k: np.ascontiguousarray(v) for k, v in weights.items()})}
    panel = forecaster.history_ if history else None
    if panel is not None:
        files["history.safetensors"] = save_arrays({n: np.ascontiguousarray(getattr(panel, n)) for n in _ARRAYS})
    content = {
        "format": FORMAT,
        "tsattn": tsattn.__version__,
        "model": forecaster._model_name(),
        "custom_model": not isinstance(forecaster.model, str),
        "parameters": _parameters(forecaster),
        "spec": asdict(forecaster.network_.spec),
        "schema": forecaster.schema_.to_dict(),
        "scaling": forecaster.scaling_.to_dict(),
        "summary": forecaster.summary_.to_dict(),
        "trained_until": forecaster.trained_until_,
        "ids": None if panel is None else _ids_to_json(panel.ids),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    description = json.dumps(content, indent=2, allow_nan=False, default=_plain).encode()
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.json").unlink(missing_ok=True)  # no old description beside new weights, should this be cut short
    for name, data in files.items():
        _write(path / name, data)
    if panel is None:
        (path / "history.safetensors").unlink(missing_ok=True)  # of a model saved here before
    _write(path / "model.json", description)
    return path


def load(path: Path, *, model: type[Network] | None) -> Forecaster:
    """Read the folder ``path``. Raises ArtifactError when it is missing, damaged, or of a newer format."""
    from tsattn.forecaster import Forecaster

    content = _read_json(path)
    try:
        parameters = dict(content["parameters"])
        parameters["model"] = _model(content, model)
        forecaster = Forecaster(**parameters)
        sizes: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content["spec"].items()}
        spec = InputSpec(**sizes)
        forecaster.schema_ = Schema.from_dict(content["schema"])
        forecaster.scaling_ = Scaling.from_dict(content["scaling"])
        forecaster.summary_ = TrainSummary(**content["summary"])
        forecaster.trained_until_ = int(content["trained_until"])
        network = build(forecaster.model, spec, **(forecaster.options or {}))
        _load_weights(network, _read_arrays(path, "weights.safetensors", content))
        forecaster.network_ = network.eval()
        forecaster.history_ = _history(path, content, forecaster.schema_)
    except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:
        if isinstance(error, (ArtifactError, ConfigError)):
            raise
        raise ArtifactError(
            f"{path / 'model.json'} is damaged ({type(error).__name__}: {error}). Save the model again."
        ) from None
    return forecaster


def _parameters(forecaster: Forecaster) -> dict[str, Any]:
    """The constructor's arguments as plain data, the model aside."""
    parameters = {k: v for k, v in forecaster.get_params(deep=False).items() if k != "model"}
    config = replace(TrainConfig.of(parameters["training"]), logger=None)  # a live object of this machine
    parameters["training"] = asdict(config)
    if parameters["freq"] is not None:
        parameters["freq"] = (
            forecaster.schema_.freq.alias if isinstance(parameters["freq"], str) else parameters["freq"]
        )
    try:
        return json.loads(json.dumps(parameters, default=_plain, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"A parameter of this forecaster is not plain data and cannot be saved: {error}.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if hasattr(value, "freqstr"):  # a pandas offset
        return value.freqstr
    raise TypeError(f"{type(value).__name__} {value!r}")


def _model(content: dict[str, Any], model: type[Network] | None) -> str | type[Network]:
    name = content["model"]
    if not content["custom_model"]:
        if name not in MODELS:
            raise ArtifactError(
                f"The saved model {name!r} is not known to tsattn {tsattn.__version__}. Upgrade tsattn."
            )
        return str(name)
    if model is None or model.__name__ != name:
        raise ArtifactError(
            f"This is a model of your own class {name!r}: pass it as Forecaster.load(path, model={name})."
        )
    return model


def _read_json(path: Path) -> dict[str, Any]:
    file = path / "model.json"
    if not file.is_file():
        raise ArtifactError(f"No saved model at {path}: there is no model.json. Was it saved with Forecaster.save?")
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        version = int(content["format"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{file} is damaged ({type(error).__name__}: {error}). Save the model again.") from None
    if version > FORMAT:
        raise ArtifactError(
            f"{file} has format {version} (written by tsattn {content.get('tsattn')}); this is tsattn "
            f"{tsattn.__version__}, which reads up to format {FORMAT}. Upgrade tsattn."
        )
    return content


def _read_arrays(path: Path, name: str, content: dict[str, Any]) -> dict[str, np.ndarray]:
    """The arrays of a file whose checksum is the one in the JSON."""
    file = path / name
    if not file.is_file():
        raise ArtifactError(f"The saved model at {path} is not complete: {name} is missing. Copy the whole folder.")
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != content["files"][name]:
        raise ArtifactError(f"{file} is damaged: its checksum is not the one in model.json. Copy or save it again.")
    try:
        return load_arrays(data)
    except SafetensorError as error:
        raise ArtifactError(f"{file} is damaged ({error}). Save the model again.") from None


def _load_weights(network: Network, arrays: dict[str, np.ndarray]) -> None:
    try:
        network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    except RuntimeError as error:
        raise ArtifactError(f"The weights do not fit the model described in model.json: {error}") from None


def _history(path: Path, content: dict[str, Any], schema: Schema) -> Panel | None:
    if content["ids"] is None:
        return None
    arrays = _read_arrays(path, "history.safetensors", content)
    return Panel(**{n: arrays[n] for n in _ARRAYS}, ids=_ids_from_json(content["ids"]), schema=schema)


def _ids_to_json(ids: pa.Array) -> dict[str, Any]:
    """Numbers keep their type; anything else (text, dates) is kept as text."""
    kind = ids.type
    if pa.types.is_null(kind):
        return {"type": "null", "values": [None] * len(ids)}
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return {"type": str(kind), "values": ids.to_pylist()}
    return {"type": "string", "values": [str(value) for value in ids.to_pylist()]}


def _ids_from_json(data: dict[str, Any]) -> pa.Array:
    return pa.array(data["values"], type=pa.type_for_alias(data["type"]))


def _write(file: Path, data: bytes) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, file)
