"""Plain data -> values of the annotated types, dataclasses built: for files that a hand may have edited."""

from __future__ import annotations

import contextlib
import types
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def typed(kind: type[T], data: Any, path: str) -> T:
    """``data`` as ``kind``: every value checked, dataclasses built from dicts, lists made tuples.

    Knows int, float, str, bool, None, Literal, unions, ``tuple[x, ...]``, ``dict[str, x]`` and dataclasses of these.
    Raises TypeError: where (below ``path``), what must be there and what was found.
    """
    return _read(kind, data, path)


def _read(hint: Any, value: Any, path: str) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(value, dict):
        return _build(hint, value, path)
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_read(inner[0], item, f"{path}[{place}]") for place, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {_read(inner[0], key, path): _read(inner[1], item, f"{path}.{key}") for key, item in value.items()}
    if origin in (Union, types.UnionType):
        for each in inner:
            with contextlib.suppress(TypeError):
                return _read(each, value, path)
    elif value in inner if origin is Literal else _is_plain(hint, value):
        return value
    raise TypeError(f"{path} must be {getattr(hint, '__name__', hint)}, found {value!r}")


def _build(hint: Any, data: dict[str, Any], path: str) -> Any:
    hints = get_type_hints(hint)
    unknown = [name for name in data if name not in {f.name for f in fields(hint)}]
    if unknown:
        raise TypeError(f"{path} has no field {unknown[0]!r}")
    return hint(**{name: _read(hints[name], value, f"{path}.{name}") for name, value in data.items()})


def _is_plain(hint: Any, value: Any) -> bool:
    """Whether ``value`` is of the type; True is no number, and an integer is a float."""
    if isinstance(value, bool):
        return hint is bool
    number = {int: Integral, float: Real}.get(hint, hint)
    return isinstance(number, type) and isinstance(value, number)
