"""A fitted forecaster on disk: weights as safetensors, everything else as JSON. Nothing in it is ever executed.

    model.json             format, versions, parameters, schema, scaling, summary, and a checksum of all this
    weights.safetensors    the network
    history.safetensors    the last ``context`` steps of the training series (optional)

Each file is written under a temporary name and moved into place, the JSON last, so a folder with a JSON is complete.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import tsattn
from tsattn.data.datamodule import input_spec
from tsattn.data.panel import Panel
from tsattn.data.schema import Schema
from tsattn.data.statistics import Scaling
from tsattn.errors import ArtifactError, ConfigError
from tsattn.models import MODELS, InputSpec, Network, build
from tsattn.training.run import TrainSummary
from tsattn.typed import typed
from tsattn.writing import write_whole

if TYPE_CHECKING:
    from tsattn.forecaster import Forecaster

FORMAT = 2  # 2: a checksum over the JSON; ids keep the type of dates
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
        "ids": None if panel is None else ids_to_json(panel.ids),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
    }
    content = json.loads(json.dumps(content, allow_nan=False, default=_plain))
    description = json.dumps({**content, "checksum": _checksum(content)}, indent=2).encode()
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.json").unlink(missing_ok=True)  # no old description beside new weights, should this be cut short
    for name, data in files.items():
        write_whole(path / name, data)
    if panel is None:
        (path / "history.safetensors").unlink(missing_ok=True)  # of a model saved here before
    write_whole(path / "model.json", description)
    return path


def load(path: Path, *, model: type[Network] | None) -> Forecaster:
    """Read the folder ``path``. Raises ArtifactError when it is missing, damaged, edited, or of a newer format."""
    from tsattn.forecaster import Forecaster

    content = _read_json(path)
    try:
        forecaster = Forecaster(_model(content, model), **content["parameters"])
        forecaster._check()
        spec = typed(InputSpec, content["spec"], "spec")
        forecaster.schema_ = Schema.from_dict(content["schema"])
        forecaster.scaling_ = Scaling.from_dict(content["scaling"])
        _check_sizes(spec, forecaster.schema_, forecaster.scaling_)
        forecaster.summary_ = typed(TrainSummary, content["summary"], "summary")
        forecaster.trained_until_ = typed(int, content["trained_until"], "trained_until")
        network = build(forecaster.model, spec, **(forecaster.options or {}))
        _load_weights(network, _read_arrays(path, "weights.safetensors", content))
        forecaster.network_ = network.eval()
        forecaster.parameters_ = forecaster._plain_parameters()
        forecaster.history_ = _history(path, content, forecaster.schema_)
    except ArtifactError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise ArtifactError(
            f"{path / 'model.json'} cannot be used by tsattn {tsattn.__version__} (it was written by "
            f"{content.get('tsattn')}): {type(error).__name__}: {error} Save the model again."
        ) from None
    return forecaster


def _check_sizes(spec: InputSpec, schema: Schema, scaling: Scaling) -> None:
    """Raises ValueError when the parts of the description are not of one model."""
    wanted = replace(input_spec(schema, spec.horizon, spec.context, spec.quantiles), season=spec.season)
    if spec != wanted:
        raise ValueError(f"the columns of the schema make {wanted}, found {spec}.")
    sizes = (spec.past + spec.known,) * 2 + (spec.static,) * 2
    found = tuple(len(getattr(scaling, name)) for name in scaling.__dataclass_fields__)
    if found != sizes:
        raise ValueError(f"scaling must hold {sizes} numbers, found {found}.")


def _parameters(forecaster: Forecaster) -> dict[str, Any]:
    """The constructor's arguments as plain data, the model aside."""
    parameters = {k: v for k, v in forecaster.parameters_.items() if k != "model"}
    parameters["training"] = asdict(parameters["training"])
    if parameters["freq"] is not None:
        parameters["freq"] = forecaster.schema_.freq.alias  # of whatever was given: an offset, a timedelta
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
        version = typed(int, content["format"], "format")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(f"{file} is damaged ({type(error).__name__}: {error}). Save the model again.") from None
    if version > FORMAT:
        raise ArtifactError(
            f"{file} has format {version} (written by tsattn {content.get('tsattn')}); this is tsattn "
            f"{tsattn.__version__}, which reads up to format {FORMAT}. Upgrade tsattn."
        )
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content) and not (version == 1 and checksum is None):  # format 1 had none
        raise ArtifactError(
            f"{file} is damaged or was edited: its checksum is not that of its content. Copy the folder again, or save "
            f"the model again; parameters are changed by Forecaster.set_params and fit."
        )
    return content


def _checksum(content: dict[str, Any]) -> str:
    """sha256 of the content, whatever its layout and the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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
    ids = ids_from_json(content["ids"])
    if len(ids) != len(arrays["start"]):
        raise ValueError(f"there are {len(ids)} ids for {len(arrays['start'])} series.")
    return Panel(**{n: arrays[n] for n in _ARRAYS}, ids=ids, schema=schema)


def ids_to_json(ids: pa.Array) -> dict[str, Any]:
    """The type and the values: stamps, dates and times as the integers they are stored as, decimals as text."""
    kind = ids.type
    if pa.types.is_decimal(kind):
        values = [str(value) for value in ids.to_pylist()]
    elif pa.types.is_temporal(kind):
        values = ids.view(f"int{kind.bit_width}").to_pylist()
    else:
        values = ids.to_pylist()
    return {"type": str(kind), "values": values}


def ids_from_json(data: dict[str, Any]) -> pa.Array:
    """Inverse of ``ids_to_json``; raises TypeError, ValueError or an Arrow error for what is none."""
    name, values = data["type"], data["values"]
    if decimals := re.fullmatch(r"(decimal\d+)\((\d+), (-?\d+)\)", name):
        kind = getattr(pa, decimals[1])(int(decimals[2]), int(decimals[3]))
        return pa.array([Decimal(value) for value in values], type=kind)
    zoned = re.fullmatch(r"timestamp\[(\w+), tz=(.+)\]", name)
    kind = pa.timestamp(*zoned.groups()) if zoned else pa.type_for_alias(name)
    if pa.types.is_temporal(kind):
        return pa.array(values, type=f"int{kind.bit_width}").view(kind)
    return pa.array(values, type=kind)
