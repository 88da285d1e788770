"""ONNX models, run by onnxruntime; what they hold is read without any package."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from align.core.parameters import Module, Parameter, ParameterSet, check_state_dict
from align.models.adapter_parts.onnx import onnx_model, run_graph
from align.models.adapter_parts.onnx.onnx_model import OnnxModel, open_onnx
from align.models.record_calls import NumpyValues, bound_batches, noted_call, run_on_batches
from align.models.user_code import array_memory, fixed_seed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from align.core.parameters import Array, TensorMemory
    from align.core.protocols import Inputs, Model
    from align.core.traces import CaptureSink


class OnnxFramework(NumpyValues):
    """Adapter of OnnxModel."""

    name = "onnx"
    summary = "ONNX models (.onnx files, or functions that return the path of one)"
    requires: tuple[str, ...] = ("onnxruntime",)
    suffixes = (".onnx",)
    # What one function does as a whole: the protocols say of each name what it is.
    opened = staticmethod(open_onnx)
    followed = staticmethod(onnx_model.followed)
    environment = staticmethod(run_graph.environment)

    def owns(self, model: Model) -> bool:
        """Tell whether the model is an OnnxModel."""
        return isinstance(model, OnnxModel)

    def read_parameters(self, model: Model, label: str) -> ParameterSet:
        """Read names and shapes as the exported model had them, and modules in the order in which they run."""
        parameters = [replace(parameter, tied_to=model.ties.get(parameter.name)) for parameter in _parameters(model)]
        own: dict[str, list[str]] = {path: [] for path in ("", *model.classes)}
        for parameter in parameters:
            own.setdefault(parameter.module, []).append(parameter.name)
        modules = [_module(model, path, names) for path, names in own.items()]
        return ParameterSet(label, self.name, tuple(parameters), tuple(modules))

    def read_values(self, model: Model) -> dict[str, Array]:
        """Return all parameters in torch's layout, read-only where they lie in the file: nothing ever changes it."""
        values: dict[str, Array] = model.values()
        return values

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

    def run(
        self, model: Model, inputs: Inputs, sink: CaptureSink, stand_ins: Mapping[str, Model] | None = None
    ) -> None:
        """Run the graph node by node; see ModelRunner. Raises InputsError for inputs that the graph does not take."""
        recorder = self.recorder(sink)
        answers = dict(stand_ins or {})
        answer = answers.pop("", None) or partial(model.run, recorder=recorder, stand_ins=answers)
        batches = [
            one._replace(args=tuple(model.fitted(dict(zip(model.inputs, one.args, strict=False))).values()))
            if one.args
            else one._replace(kwargs=model.fitted(one.kwargs))
            for one in bound_batches(model.forward, inputs, lambda value: value)
        ]
        with fixed_seed():
            run_on_batches(partial(noted_call, "OnnxModel", recorder, answer), batches, recorder, self.name)

    def widened(self, model: Model) -> Model | None:  # noqa: ARG002
        """Return None: onnxruntime has kernels for float64 for few operators only."""
        return None


def _parameters(model: OnnxModel) -> Iterator[Parameter]:
    """The parameters of a model, those of folded norms too."""
    folded = {norm.bias_name for norm in model.folded if norm.bias is None}
    for parameter in model.parameters:
        if parameter.name not in folded:
            tensor = model.tensors[parameter.initializer]
            shape = parameter.transform.output_shape(tensor.shape)
            yield Parameter(
                parameter.name, shape, tensor.dtype, parameter.module, parameter.attribute, buffer=parameter.buffer
            )
    for norm in model.folded:
        for name, value in norm.norm.items():
            whole_name, buffer = f"{norm.path}.{name}", name.startswith("running")
            yield Parameter(whole_name, value.shape, value.dtype.name, norm.path, name, buffer=buffer)
    for name, shape in model.zeros.items():
        yield Parameter(name, shape, "float32", name.removesuffix(".bias"), "bias")


def _module(model: OnnxModel, path: str, names: list[str]) -> Module:
    norms = {norm.path: norm.weight_name.rpartition(".")[0] for norm in model.folded}
    name = (
        ("torch.nn.BatchNorm2d" if path in norms else "")
        or model.classes.get(path, "")
        or ("" if path else f"{OnnxModel.__module__}.OnnxModel")
    )
    return Module(path, (name,) if name else (), tuple(names), merged_into=norms.get(path, ""))


PLUGIN = OnnxFramework()
