"""ONNX models, run by onnxruntime; what they hold is read without any package."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from align.core.parameters import Module, Parameter, ParameterSet, check_state_dict
from align.models.adapter_parts.numpy_values import NumpyValues
from align.models.adapter_parts.onnx.onnx_model import OnnxModel, followed, open_onnx
from align.models.adapter_parts.onnx.run_graph import environment
from align.models.record_calls import bound_batches, run_on_batches
from align.models.restore_state import array_memory, fixed_seed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from align.core.dtypes import Array
    from align.core.parameters import Origin, TensorMemory
    from align.core.protocols import Inputs, Model
    from align.core.traces import CaptureSink


class OnnxFramework(NumpyValues):
    """Adapter of OnnxModel."""

    name = "onnx"
    summary = "ONNX models (.onnx files, or functions that return the path of one)"
    requires: tuple[str, ...] = ("onnxruntime",)
    suffixes = (".onnx",)

    def opened(self, path: Path) -> Model:
        """Open a file; see FileModels."""
        return open_onnx(path)

    def owns(self, model: Model) -> bool:
        """Tell whether the model is an OnnxModel."""
        return isinstance(model, OnnxModel)

    def read_parameters(self, model: Model, label: str) -> ParameterSet:
        """Read names, shapes and modules as the exported model had them."""
        return model_parameters(model, label)

    def read_values(self, model: Model) -> dict[str, Array]:
        """Return all parameters in torch's layout, read-only where they lie in the file: nothing ever changes it."""
        values: dict[str, Array] = model.values()
        return values

    def followed(self, model: Model, origin: Origin) -> Model:
        """Find again what the export folded or left out; see OriginFollower."""
        return followed(model, origin)

    def load_values(self, model: Model, values: Mapping[str, Array]) -> None:
        """Let runs have these values; raises InputsError listing names and shapes that differ."""
        own = self.read_parameters(model, "").parameters
        check_state_dict({one.name: one.shape for one in own}, values, "ONNX model")
        model.load(values)

    def tensor_memory(self, model: Model) -> dict[str, TensorMemory]:
        """Find the values that do not lie in the file; see ModelCopier."""
        return {f"{node}:{name}": array_memory(value) for (node, name), value in model.changed.items()}

    def copied(self, model: Model) -> Model:
        """Copy what was changed; see ModelCopier."""
        return model.copied()

    def environment(self) -> dict[str, str]:
        """The version of onnxruntime, and how it is run."""
        return environment()

    def run(
        self, model: Model, inputs: Inputs, sink: CaptureSink, stand_ins: Mapping[str, Model] | None = None
    ) -> None:
        """Run the graph node by node; see ModelRunner. Raises InputsError for inputs that the graph does not take."""
        recorder = self.recorder(sink)
        answers = dict(stand_ins or {})

        def call(*args: Any, **kwargs: Any) -> None:
            changed = recorder.begin("", args, kwargs, "OnnxModel")
            given, named = changed or (args, kwargs)
            whole = answers.pop("", None)
            output = (
                whole(*given, **named) if whole else model.run(*given, **named, recorder=recorder, stand_ins=answers)
            )
            recorder.end("", "OnnxModel", output)

        batches = [
            one._replace(args=tuple(model.fitted(dict(zip(model.inputs, one.args, strict=False))).values()))
            if one.args
            else one._replace(kwargs=model.fitted(one.kwargs))
            for one in bound_batches(model.forward, inputs, lambda value: value)
        ]
        with fixed_seed():
            run_on_batches(call, batches, recorder, self.name)

    def widened(self, model: Model) -> Model | None:  # noqa: ARG002
        """Return None: onnxruntime has kernels for float64 for few operators only."""
        return None


def model_parameters(model: OnnxModel, label: str) -> ParameterSet:
    """The parameters of a model, those of folded norms too, and its modules in the order in which they run."""
    folded = {norm.bias_name for norm in model.folded if norm.bias is None}
    found = [
        Parameter(
            one.name,
            one.transform.output_shape(tensor.shape),
            tensor.dtype,
            one.module,
            one.attribute,
            buffer=one.buffer,
        )
        for one in model.parameters
        if one.name not in folded
        for tensor in [model.tensors[one.initializer]]
    ]
    found += [
        Parameter(
            f"{norm.path}.{name}", value.shape, value.dtype.name, norm.path, name, buffer=name.startswith("running")
        )
        for norm in model.folded
        for name, value in norm.norm.items()
    ]
    found += [
        Parameter(name, shape, "float32", name.removesuffix(".bias"), "bias") for name, shape in model.zeros.items()
    ]
    found = [replace(one, tied_to=model.ties.get(one.name)) for one in found]
    own: dict[str, list[str]] = {path: [] for path in ("", *model.classes)}
    for one in found:
        own.setdefault(one.module, []).append(one.name)
    modules = [_module(model, path, names) for path, names in own.items()]
    return ParameterSet(label, "onnx", tuple(found), tuple(modules))


def _module(model: OnnxModel, path: str, names: list[str]) -> Module:
    norms = {norm.path: norm.weight_name.rpartition(".")[0] for norm in model.folded}
    name = (
        ("torch.nn.BatchNorm2d" if path in norms else "")
        or model.classes.get(path, "")
        or ("" if path else f"{OnnxModel.__module__}.OnnxModel")
    )
    return Module(path, (name,) if name else (), tuple(names), merged_into=norms.get(path, ""))


PLUGIN = OnnxFramework()
