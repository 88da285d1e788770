"""A folder of cases: each a PyTorch model, a MindSpore port of it, inputs, and the true map of their parameters.

A case is a module with torch_model(), mindspore_model(), inputs() and EXPECTED (source name -> target name, list of
names, or None) with EXPECTED.transforms and EXPECTED.ms_only; it may have repair(net, model), DIVERGES, prepare(model)
and a way of its own to call its models. `common.py` beside it gives both sides values and is never imported from
anywhere else. A case runs in a process of its own: frameworks leave a mess, and a crash is a result too.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from align.core.name_map import Dropped, NameMap, Pairing
from align.core.piece_transforms import Part, Reorder, Slice
from align.core.transforms import IDENTITY, Permute, Reshape, Transform, chained

NO_CASES = {"common", "verify"}
Shapes = Mapping[str, tuple[int, ...]]


def _flattened(returned: Any) -> list[Any]:
    flattened: list[Any] = sys.modules["common"].flatten(returned)
    return flattened


@dataclass(frozen=True)
class Case:
    """Both models of one case, the port as published and filled with the true values.

    `more` are further batches. `dtype` is the precision of both sides, `visible` tells that outputs do not count where
    a mask among the inputs is 0. `flatten` lists the arrays of what either side returns.
    """

    name: str
    module: Any
    model: Any
    net: Any
    name_map: NameMap
    inputs: dict[str, np.ndarray]
    parameters: dict[str, Any]
    more: tuple[dict[str, np.ndarray], ...] = ()
    dtype: str = "float32"
    visible: bool = False
    flatten: Callable[[Any], list[Any]] = _flattened

    @property
    def batches(self) -> tuple[dict[str, np.ndarray], ...]:
        """All that the models are run on, one after the other."""
        return (self.inputs, *self.more)

    @property
    def diverges(self) -> str:
        """What the case says is wrong with the port as published, "" if nothing is."""
        return getattr(self.module, "DIVERGES", "")

    def repair(self) -> None:
        """Mend the port, where the case knows how."""
        if hasattr(self.module, "repair"):
            self.module.repair(self.net, self.model)

    def restore_names(self) -> None:
        """Give the port's parameters the names that they had before any run: a slice of a CellList renames them."""
        for name, parameter in self.parameters.items():
            parameter.name = name

    def run_port(self) -> list[np.ndarray]:
        """Outputs of the port as float64, those of all batches in one list."""
        return [value for batch in self.batches for value in self.run_port_on(batch)]

    def run_port_on(self, batch: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Outputs of the port for one batch as float64."""
        import mindspore

        given = {name: mindspore.Tensor(value) for name, value in batch.items()}
        if self.dtype != "float32":
            narrow = getattr(mindspore, self.dtype)
            given = {
                n: value.astype(narrow) if value.dtype == mindspore.float32 else value for n, value in given.items()
            }
        return self._outputs(self.net, given, batch)

    def run_original(self, *, wide: bool = False) -> list[np.ndarray]:
        """Outputs of the PyTorch model as float64; `wide` computes them in the next finer precision."""
        return [value for batch in self.batches for value in self._original_on(batch, wide=wide)]

    def _original_on(self, batch: dict[str, np.ndarray], *, wide: bool) -> list[np.ndarray]:
        import torch

        from align.models.adapter_parts.torch.layers import widened_model

        dtype = getattr(torch, {"float32": "float64"}.get(self.dtype, "float32") if wide else self.dtype)
        width = {torch.float64: "double", torch.float32: "float"}[dtype] if wide else ""
        model = widened_model(self.model, width) if wide else self.model  # code may make tensors of its own
        given = {name: torch.from_numpy(value) for name, value in batch.items()}
        given = {name: value.to(dtype) if value.is_floating_point() else value for name, value in given.items()}
        with torch.no_grad():
            return self._outputs(model, given, batch)

    def _outputs(self, model: Any, given: dict[str, Any], batch: dict[str, np.ndarray]) -> list[np.ndarray]:
        named = getattr(self.module, "KWARGS", False)
        returned = model(**given) if named else model(*given.values())
        values = [np.asarray(value, np.float64) for value in self.flatten(returned)]
        return [_shown(value, batch) for value in values] if self.visible else values


def _shown(value: np.ndarray, batch: dict[str, np.ndarray]) -> np.ndarray:
    """The positions of an output that no mask of its batch hides."""
    for name, mask in batch.items():
        if "mask" in name and mask.ndim == 2 and value.shape[:2] == mask.shape:
            return value[mask != 0]
    return value


def case_names(folder: Path, chosen: Sequence[str]) -> list[str]:
    """The chosen cases, or all of a folder."""
    written = [path.parent.name for path in folder.glob("*/port.py")]
    return list(chosen) or sorted([*written, *(p.stem for p in folder.glob("*.py") if p.stem not in NO_CASES)])


def load_case(folder: Path, name: str) -> Any:
    """Import the module of a case."""
    if str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    return importlib.import_module(name)


def open_case(folder: Path, name: str, alter: Callable[[Any], None] = lambda _module: None) -> Case:
    """Build both models of a case and give them distinct values that keep a signal alive.

    `alter` may change the module before: its inputs, and how its models are called.
    """
    import torch

    module = load_case(folder, name)
    alter(module)
    common: Any = importlib.import_module("common")
    torch.manual_seed(0)
    model = common.calibrate(module, common.randomize(module.torch_model().float()).eval())
    net = module.mindspore_model()
    net.set_train(False)
    state = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    parameters = common.parameters(net)
    object.__setattr__(net, "cases_parameters", parameters)
    shapes: tuple[Shapes, Shapes] = (
        {name: tuple(value.shape) for name, value in state.items()},
        {name: tuple(value.shape) for name, value in parameters.items()},
    )
    true = module.EXPECTED.compute(*shapes)
    arrays, faults = common.convert(true, state, shapes[1])
    if faults:
        sys.exit(f"{name}: its map does not fit: {faults[0]}")
    common.load(parameters, arrays)
    getattr(module, "prepare", lambda _model: None)(model)
    if hasattr(module, "torch_forward") or hasattr(module, "mindspore_forward"):
        call_as_told(module, (model, net))
    return Case(name, module, model, net, true_map(true, shapes), module.inputs(), parameters)


def call_as_told(module: Any, models: Sequence[Any]) -> None:
    """Let models that are called in a way of their own be called with the inputs alone; the names stay."""
    for model, name, own in zip(models, ("forward", "construct"), ("torch_forward", "mindspore_forward"), strict=True):
        kind = type(model)
        call = getattr(module, own, lambda m, x: m(**x) if getattr(module, "KWARGS", False) else m(*x.values()))
        model.__class__ = type(kind.__name__, (kind,), {name: _calling(module, call, getattr(kind, name))})


def _calling(module: Any, call: Any, written: Any) -> Any:
    """A method that makes the case's own call, within which the model runs as it was written."""

    def method(self: Any, *given: Any, **named: Any) -> Any:
        return call(_AsWritten(self, written), dict(zip(module.inputs(), given, strict=False)) | named)

    return method


class _AsWritten:
    """A model whose call runs its own code, past the hooks of the call that is on its way."""

    def __init__(self, model: Any, written: Any) -> None:
        self._model = model
        self._written = written

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._written(self._model, *given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def targets(true: Any, source: str) -> list[str]:
    """The true targets of a source."""
    to = true.get(source)
    return [] if to is None else [to] if isinstance(to, str) else list(to)


def true_map(true: Any, shapes: tuple[Shapes, Shapes]) -> NameMap:
    """The true map as the tool's; of a tied tensor the first name alone."""
    pairings, dropped, made = [], [], set()
    for source, shape in shapes[0].items():
        goals = targets(true, source)
        step = true.transforms.get(source, {"op": "identity"})
        if not goals:
            dropped.append(Dropped(source, "source", "the port has no counterpart"))
        for place, target in enumerate(goals):
            if target not in made or step["op"] == "part":
                transform = _transform(step, (place, len(goals)), shape, shapes[1][target])
                pairings.append(Pairing(source, target, "user", 1.0, transform))
            made.add(target)
    dropped += [Dropped(name, "target", reason) for name, reason in true.ms_only.items() if name not in made]
    return NameMap("torch", "mindspore", tuple(pairings), tuple(dropped), frameworks=("torch", "mindspore"))


def _transform(step: Any, place: tuple[int, int], shape: tuple[int, ...], wanted: tuple[int, ...]) -> Transform:
    """A case's transform as the tool's; `place` is the number of the target among so many."""
    axis, perm = step.get("axis", 0), (Permute(tuple(step["perm"])),) if "perm" in step else ()
    if step["op"] == "chunk":
        size = shape[axis] // place[1]
        return chained(Slice(axis, place[0] * size, (place[0] + 1) * size, shape), *perm)
    if step["op"] == "part":
        size = wanted[axis] // step["of"]
        return Part(axis, step["index"] * size, (step["index"] + 1) * size, wanted)
    if step["op"] == "reorder":
        return Reorder(axis, tuple(step["blocks"]))
    plain: dict[str, Transform] = {"identity": IDENTITY, "reshape": Reshape(wanted, shape)}
    return plain.get(step["op"]) or perm[0]


def in_process(script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What another process of a script leaves for one case; it gets `--result FILE`, and prints its progress."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, "-W", "ignore", script, *arguments, "--result", str(result)]
        ran = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
        failed = f"exit {ran.returncode}: {ran.stderr.strip().rpartition(chr(10))[2]}"
        if not result.exists():
            return {"failed": failed}
        found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return found if ran.returncode == 0 else {**found, "failed": failed}
