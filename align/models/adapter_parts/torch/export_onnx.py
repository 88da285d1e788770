"""A torch model written as an ONNX file by one of torch's exporters; where that fails, the layer that is the reason."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from align.core.registry import INSTALL_HINT
from align.errors import FrameworkMissingError, UserCodeError
from align.models.thresholds import LARGEST_ONE_FILE_BYTES, MOST_LAYERS_EXPORTED_ALONE
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.protocols import Model

NEEDS = {"torchscript": "onnx", "dynamo": "onnxscript"}
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def export_onnx(
    model: Model, arguments: Arguments, names: Sequence[str], path: Path, options: Mapping[str, Any]
) -> None:
    """Write a model in evaluation mode, called on these arguments, whose names the graph's inputs get.

    `options` are the `exporter` and the `opset`, None for the exporter's own. Raises FrameworkMissingError for a
    package that the exporter needs, and UserCodeError, which names the first layer that fails alone.
    """
    package = NEEDS[options["exporter"]]
    if importlib.util.find_spec(package) is None:
        raise FrameworkMissingError(package, INSTALL_HINT[package])

    def failed(error: BaseException) -> UserCodeError:
        found = UserCodeError(say("onnx_model.export", exporter=options["exporter"]), error)
        if layer := _layer_that_fails(model, arguments, options):
            found.hint = say("onnx_model.export_layer", layer=layer, hint=found.hint)
        return found

    run_user_code(lambda: _export(model, arguments, names, path, options), failed)


def _export(model: Model, arguments: Arguments, names: Sequence[str], path: Path, options: Mapping[str, Any]) -> None:
    import torch

    args, kwargs = arguments
    dynamo = options["exporter"] == "dynamo"
    size = sum(one.numel() * one.element_size() for one in model.state_dict().values() if torch.is_tensor(one))
    more = {"external_data": size > LARGEST_ONE_FILE_BYTES, "verbose": False} if dynamo else {}
    if options["opset"] is not None:
        more["opset_version"] = options["opset"]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, args, str(path), kwargs=kwargs, dynamo=dynamo, input_names=[*names], **more)


def _layer_that_fails(model: Model, arguments: Arguments, options: Mapping[str, Any]) -> str:
    """The first layer without inner ones that cannot be exported by itself, one of each class; "" if there is none."""
    calls = _calls_of_layers(model, arguments)[:MOST_LAYERS_EXPORTED_ALONE]
    with TemporaryDirectory(prefix="align-") as folder:
        alone = Path(folder) / "layer.onnx"
        fails = ((path, one) for path, one, given in calls if not _is_exported(one, given, alone, options))
        return next((f"{path} ({type(one).__name__})" for path, one in fails), "")


def _is_exported(layer: Model, given: Arguments, path: Path, options: Mapping[str, Any]) -> bool:
    try:
        run_user_code(lambda: _export(layer, given, (), path, options), lambda error: UserCodeError("", error))
    except UserCodeError:
        return False
    return True


def _calls_of_layers(model: Model, arguments: Arguments) -> list[tuple[str, Any, Arguments]]:
    """What the first layer of each class was given in a run."""
    found: dict[type, tuple[str, Any, Arguments]] = {}

    def note(path: str) -> Any:
        def hook(layer: Any, args: Any, kwargs: Any) -> None:
            found.setdefault(type(layer), (path, layer, (args, kwargs)))

        return hook

    layers = [(path, one) for path, one in model.named_modules() if path and not any(one.children())]
    handles = [one.register_forward_pre_hook(note(path), with_kwargs=True) for path, one in layers]
    try:
        run_user_code(lambda: model(*arguments[0], **arguments[1]), lambda error: UserCodeError("", error))
    except UserCodeError:
        return []
    finally:
        for handle in handles:
            handle.remove()
    return [*found.values()]
