"""The fixed inputs that both sides get: from a file, from a function, or made from a seed."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.dtypes import numpy_dtype
from align.core.files import atomic_writer
from align.errors import InputsError
from align.workflows.open_checkpoint import open_checkpoint
from align.workflows.sides import load_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array

_SPEC = re.compile(r"(?P<name>\w+)=(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\](?:<(?P<below>\d+))?")
_DEFAULT_BELOW = 2
SPEC_HELP = "NAME=DTYPE[SHAPE], for integers NAME=DTYPE[SHAPE]<BOUND, for example x=float32[2,3,224,224]"


def read_inputs(source: Path | str | Mapping[str, Array]) -> dict[str, Array]:
    """Return inputs by name, in the order in which the model takes them.

    `source` is a mapping, a file of named arrays (`.npz`, `.safetensors`) or `module:function` that returns a
    mapping. Raises InputsError for anything else.
    """
    if isinstance(source, Path) or (isinstance(source, str) and ":" not in source):
        return {name: tensor.load() for name, tensor in open_checkpoint(Path(source)).tensors.items()}
    made: Any = load_function(source)() if isinstance(source, str) else source
    if not isinstance(made, dict) and not hasattr(made, "items"):
        raise InputsError(f"{source} returned a {type(made).__name__}", "return a dict of input name -> numpy array")
    inputs = {str(name): np.asarray(value) for name, value in made.items()}
    strange = [name for name, value in inputs.items() if value.dtype.kind not in "fiubcV"]
    if strange or not inputs:
        what = f"inputs {strange} are no numeric arrays" if strange else "there are no inputs"
        raise InputsError(what, "give a dict of input name -> numpy array")
    return inputs


def make_inputs(specs: Sequence[str], seed: int) -> dict[str, Array]:
    """Draw inputs from a seed: floats standard normal, integers uniform in [0, bound), bools fair.

    Raises InputsError listing every specification that cannot be read.
    """
    generator = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    faults = []
    for spec in specs:
        if match := _SPEC.fullmatch(spec.strip()):
            try:
                inputs[match["name"]] = _draw(match, generator)
            except TypeError as error:
                faults.append(f"{spec}: {error}")
        else:
            faults.append(spec)
    if faults:
        raise InputsError(f"cannot read the input {'; '.join(faults)}", f"write {SPEC_HELP}")
    return inputs


def save_inputs(path: Path, inputs: Mapping[str, Array]) -> None:
    """Write inputs as `.npz`, whole or not at all."""
    with atomic_writer(path) as stream:
        np.savez(stream, **{name: np.asarray(value) for name, value in inputs.items()})


def describe_inputs(inputs: Mapping[str, Array]) -> dict[str, dict[str, object]]:
    """Shape, dtype and SHA-256 of the bytes of each input."""
    return {
        name: {
            "shape": list(value.shape),
            "dtype": value.dtype.name,
            "sha256": hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest(),
        }
        for name, value in inputs.items()
    }


def _draw(match: re.Match[str], generator: np.random.Generator) -> Array:
    shape = tuple(int(n) for n in match["shape"].replace(" ", "").split(",") if n)
    dtype = numpy_dtype(match["dtype"])
    if dtype.kind in "iub":
        return generator.integers(0, int(match["below"] or _DEFAULT_BELOW), shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)
