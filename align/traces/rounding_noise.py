"""The reference's own rounding noise, measured while it runs a second time in float64, and kept beside its trace.

Nothing of the second run is kept but the noise, so that two traces are judged where no model can be run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from align.core.atomic_files import write_text
from align.core.documents import read_json
from align.core.dtypes import dtype_name, rounded_as
from align.core.json_data import to_json_data
from align.core.measurements import Measurement
from align.errors import RunFolderError
from align.measure.judge_tensors import measure_parts
from align.traces.stored import forms
from align.traces.stored.manifest import NOISE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.traces import Capture, Trace


class NoiseSink:
    """An InputSink that measures each capture of a run in another dtype against the ordinary run's trace.

    `noise` maps the capture's key to the ordinary run's deviation from float64 (or that of a run in a coarser `dtype`
    from the ordinary one), in the layer's units; so it does those of parts that are judged apart. Layers that did not
    run in this dtype (the model casts inside) have none: a deviation of zero would be a limit of zero.
    """

    def __init__(self, ordinary: Trace, dtype: str = "float64") -> None:
        self._ordinary, self._dtype = ordinary, dtype
        self._captures = {capture.key: capture for capture in ordinary.captures}
        self._inputs = {(one.module, one.call, one.output): one for one in ordinary.inputs}
        self.noise: dict[str, Measurement] = {}

    def enter(self, module: str, call: int, inputs: Mapping[str, Array]) -> None:
        """Measure what a call is given: an activation inside a layer shows by that what the layer computes."""
        for name, value in inputs.items():
            same = self._inputs.get((module, call, name))
            if same is not None:
                self.noise |= noise_of(same, self._ordinary.value(same), value, self._dtype)

    def add(self, capture: Capture, value: Array) -> None:
        """Measure one capture."""
        same = self._captures.get(capture.key)
        if same is not None and same.shape == capture.shape:
            self.noise |= noise_of(same, self._ordinary.value(same), value, self._dtype)


def noise_of(same: Capture, ordinary: Array, value: Array, dtype: str) -> dict[str, Measurement]:
    """What a tensor moves by in a run in this dtype ("": its own); nothing if it did not run so."""
    own = rounded_as(same.dtype)
    if ordinary.shape != value.shape or not own or rounded_as(dtype_name(value.dtype)) != (dtype or own):
        return {}
    return measure_parts(same.key, _within(value, ordinary), ordinary)


def _within(value: Array, ordinary: Array) -> Array:
    """The values with what is beyond the range of the ordinary dtype at its end: `finfo(x.dtype).min` moves with it."""
    largest = float(ml_dtypes.finfo(ordinary.dtype).max)  # type: ignore[no-untyped-call]
    ends = [way.reduce(value, axis=None, initial=0.0) for way in (np.fmin, np.fmax)] if value.dtype.kind == "f" else []
    if ends and -largest <= ends[0] and ends[1] <= largest:
        return value  # the usual, without a copy
    beyond = np.abs(value) > largest
    beyond &= np.isfinite(value)
    return np.where(beyond, np.copysign(largest, value), value) if beyond.any() else value


NOISE_SCHEMA = "mindalign.noise/1"


def write_noise(folder: Path, noise: Mapping[str, Measurement] | None, missing: str = "") -> None:
    """Write the measurement of each capture by its key; `missing` says why there is none."""
    document = {
        "schema": NOISE_SCHEMA,
        "missing": missing,
        "noise": to_json_data(None if noise is None else dict(noise)),
    }
    write_text(folder / NOISE, json.dumps(document) + "\n")


def read_noise(folder: Path) -> tuple[dict[str, Measurement] | None, str]:
    """Return the measurements, or None and the reason; raises RunFolderError for another schema or damage."""
    path = folder / NOISE
    if not path.is_file():
        return None, sentence("noise_note.not_measured")
    try:
        document = forms.NOISE.require(read_json(path))
        if document["schema"] != NOISE_SCHEMA:
            schemas = {"schema": document["schema"], "expected": NOISE_SCHEMA}
            raise RunFolderError.of("traces_error.other_schema", path=path, **schemas)
        if document["noise"] is None:
            return None, str(document["missing"])
        return {key: _measurement(table) for key, table in document["noise"].items()}, ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunFolderError.of("traces_error.damaged", path=path, reason=error) from error


def _measurement(table: dict[str, Any]) -> Measurement:
    figures: dict[str, Any] = {name: float(one) if isinstance(one, str) else one for name, one in table.items()}
    return Measurement(**{**figures, "worst": tuple(table["worst"]), "decades": tuple(table["decades"])})
