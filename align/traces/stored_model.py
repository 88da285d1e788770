"""What a trace folder keeps of the model: names, module tree and settings as JSON, values as a safetensors checkpoint.

With them two traces are paired, linted and their weights compared where neither framework is installed.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.atomic_files import atomic_writer, write_text
from align.core.checkpoints import StoredTensor
from align.core.documents import DocumentFault, read_json
from align.core.json_data import to_json_data
from align.core.layer_settings import LayerSettings
from align.core.parameters import Module, Parameter, ParameterSet
from align.core.registry import checkpoint_formats
from align.errors import DestinationError, RunFolderError
from align.traces.stored import forms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.layer_settings import Setting

MODEL_SCHEMA = "mindalign.model/1"
MODEL = "model.json"
VALUES = "values.safetensors"
_NON_FINITE = {"NaN", "Infinity", "-Infinity"}


def write_model(folder: Path, parameters: ParameterSet, settings: Sequence[LayerSettings]) -> None:
    """Write the tables of a model, whole or not at all."""
    document = {
        "schema": MODEL_SCHEMA,
        "parameters": to_json_data(parameters),
        "settings": to_json_data(list(settings)),
    }
    write_text(folder / MODEL, json.dumps(document, ensure_ascii=False) + "\n")


def write_values(folder: Path, values: Mapping[str, Array]) -> None:
    """Write the values of all parameters and buffers; raises DestinationError for dtypes that have no form."""
    format_ = checkpoint_formats()["safetensors"]
    tensors = [StoredTensor(name, v.shape, v.dtype.name, partial(np.asarray, v)) for name, v in values.items()]
    if problems := format_.problems(tensors, {}):
        raise DestinationError.of("traces_error.values_not_written", path=folder / VALUES, problems=problems)
    with atomic_writer(folder / VALUES) as stream:
        format_.write(stream, tensors, {})


def read_model(folder: Path) -> tuple[ParameterSet, list[LayerSettings]] | None:
    """Read the tables back, None if the folder has none; raises RunFolderError for another schema or damage."""
    path = folder / MODEL
    if not path.is_file():
        return None
    try:
        document = forms.MODEL.require(read_json(path))
        if document["schema"] != MODEL_SCHEMA:
            schemas = {"schema": document["schema"], "expected": MODEL_SCHEMA}
            raise RunFolderError.of("traces_error.other_schema", path=path, **schemas)
        return _parameters(document["parameters"]), [layer_from(layer) for layer in document["settings"]]
    except (ValueError, KeyError, TypeError) as error:
        reason = str(error) if isinstance(error, DocumentFault) else f"{type(error).__name__}: {error}"
        raise RunFolderError.of("traces_error.damaged", path=path, reason=reason) from error


def _parameters(table: dict[str, Any]) -> ParameterSet:
    own = (Parameter(**{**one, "shape": tuple(one["shape"])}) for one in table["parameters"])
    modules = (
        Module(**{**one, "classes": tuple(one["classes"]), "parameters": tuple(one["parameters"])})
        for one in table["modules"]
    )
    shared = tuple((place, name) for place, name in table["shared"])
    return ParameterSet(table["label"], table["framework"], tuple(own), tuple(modules), table["order"], shared)


def layer_from(table: dict[str, Any]) -> LayerSettings:
    """Settings from their JSON form."""
    values = {name: _setting(value) for name, value in table["values"].items()}
    return LayerSettings(table["path"], tuple(table["classes"]), values)


def _setting(value: Any) -> Setting:
    """A setting as it was before JSON, which has no tuples and no NaN."""
    if isinstance(value, list):
        return tuple(_setting(item) for item in value)
    return float(value) if isinstance(value, str) and value in _NON_FINITE else value
