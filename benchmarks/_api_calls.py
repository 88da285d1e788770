"""Calls of torch's classes, functions and methods, run in torch and in MindSpore on equal numbers.

An example is an expression in which `F` stands for the class, function or method. Its arguments are made by the names
below, in the order in which they stand: equal calls get equal numbers in both frameworks. A leading `~` says that the
numbers are random: only shapes and kinds are compared.

    x(2, 3), y(2, 3)  normal numbers       p(2, 3)  between 0.1 and 0.9     sign(4)     -1 or 1
    i(5, 2, 3)        whole, below 5       i1(5, 2) whole, 1 to 4           b(2, 3)     true or false
    full(5, 2)        two times 5          arange_(3)  0 to 2               sorted_(5)  rising      spd(3)  a covariance
    array(2, 3)       a NumPy array        filled(layer)  the layer with numbers as its parameters
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, Any]
RTOL, ATOL = 1e-4, 2e-5  # float32 kernels of both frameworks differ by less
NO_KERNEL = re.compile(
    r"unregistered|kernelmod|nsupported op|elect \w* ?kernel|not supported? (?:on|in|for) (?:the )?\w*CPU"
    r"|CPU[^.]{0,40}not support|only support\w* (?:on |in |for )?(?:the )?Ascend|Not found (?:kernel|op)|has no CPU"
    r"|not supported on this device|Not implement exception|support Ascend only",
    re.IGNORECASE,
)
RANDOM = "~"


@dataclass(frozen=True)
class Answer:
    """What a call gave: its leaves as arrays and words, or the error that it raised."""

    leaves: tuple[Any, ...] = ()
    error: str = ""

    @property
    def without_kernel(self) -> bool:
        """Tell whether the error says that the device lacks a kernel."""
        return NO_KERNEL.search(self.error) is not None


def called(framework: str, function: Callable[..., Any], example: str) -> Answer:
    """Run one example; whatever it raises is an answer too."""
    names = {**_makers(framework), "F": _runnable(framework, function)}
    try:
        return Answer(tuple(_leaves(eval(example.lstrip(RANDOM), names))))
    except Exception as error:  # noqa: BLE001 - any failure of a call is its answer
        return Answer(error=f"{type(error).__name__}: {error}")


def answer_of(value: Any) -> Answer:
    """What a call returned, as an answer."""
    return Answer(tuple(_leaves(value)))


def differences(example: str, reference: Answer, other: Answer) -> str:
    """What is unlike in two answers, "" for nothing; of random numbers, shapes and kinds are compared."""
    if len(reference.leaves) != len(other.leaves):
        return f"{len(reference.leaves)} values against {len(other.leaves)}"
    for ours, theirs in zip(reference.leaves, other.leaves, strict=True):
        if found := _unlike(ours, theirs, random=example.startswith(RANDOM)):
            return found
    return ""


def _unlike(ours: Any, theirs: Any, *, random: bool) -> str:
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray):
        alike = type(ours) is type(theirs) and ours == theirs
        return "" if alike else f"{ours!r} against {theirs!r}"
    if ours.shape != theirs.shape:
        return f"shape {ours.shape} against {theirs.shape}"
    if _kind(ours) != _kind(theirs):
        return f"{ours.dtype} against {theirs.dtype}"
    if random or np.allclose(ours, theirs, rtol=RTOL, atol=ATOL * max(1.0, _largest(ours)), equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"values differ by {np.nanmax(np.abs(ours.astype(np.complex128) - theirs)):.3g}"


def _kind(values: Array) -> str:
    return {"u": "i"}.get(values.dtype.kind, values.dtype.kind)


def _largest(values: Array) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if finite.size and values.dtype.kind in "fc" else 0.0


def find(name: str) -> Any:
    """The class, function or method of a name such as `torch.nn.functional.gelu`; None if there is none."""
    import importlib

    parts = name.split(".")
    found: Any = None
    with suppress(ImportError):
        found = importlib.import_module(parts[0])
    for place, part in enumerate(parts[1:], 2):
        if not hasattr(found, part):
            with suppress(ImportError):
                importlib.import_module(".".join(parts[:place]))
        found = getattr(found, part, None)
    return found


def reader_of(name: str) -> Callable[[Any], Any]:
    """What reads an attribute of a tensor, as a function."""
    return lambda tensor: getattr(tensor, name.rpartition(".")[2])


def _runnable(framework: str, function: Any) -> Any:
    """A class as a function that builds, fills and sets to evaluation; functions as they are."""
    import inspect

    if not inspect.isclass(function):
        return function

    def build(*args: Any, **kwargs: Any) -> Any:
        return fill_layer(framework, function(*args, **kwargs))

    return build


def fill_layer(framework: str, layer: Any) -> Any:
    """Fill a layer with numbers that follow from its torch twin's names, and set it to evaluation mode."""
    if framework == "torch":
        for name, value in layer.state_dict().items():
            if value.is_floating_point():
                import torch

                value.copy_(torch.from_numpy(parameter_values(name, tuple(value.shape))))
        return layer.eval()
    import mindspore

    for path, name, axis, parameter in _torch_names(layer, ""):
        shape = tuple(size for place, size in enumerate(parameter.shape) if place != axis)
        if str(parameter.dtype) in ("Float32", "Float16"):
            values = parameter_values(path + name, shape).reshape(parameter.shape)
            parameter.set_data(mindspore.Tensor(values))
    return layer.set_train(False)


def take_values(cell: Any, layer: Any) -> Any:
    """Fill a cell with the values of its torch twin; raises KeyError for a parameter that this lacks."""
    import mindspore

    values = {name: value.detach().numpy() for name, value in layer.state_dict().items()}
    for path, name, _, parameter in _torch_names(cell, ""):
        if path + name in values or str(parameter.dtype) in ("Float32", "Float16"):
            parameter.set_data(mindspore.Tensor(values[path + name].reshape(parameter.shape)).astype(parameter.dtype))
    return cell


def parameter_values(name: str, shape: tuple[int, ...]) -> Array:
    """Numbers of a parameter: those of its name in torch, variances positive."""
    seed = int.from_bytes(name.encode()[-8:], "little") % 2**32
    values = np.random.default_rng([seed, *shape]).uniform(-0.5, 0.5, shape).astype(np.float32)
    return values + np.float32(1.0) if name.endswith("running_var") else values


def _torch_names(layer: Any, prefix: str) -> Iterator[tuple[str, str, int | None, Any]]:
    """Each parameter of a cell: the path and the name that torch gives it, and the axis that torch's lacks."""
    from align.models.adapter_parts.mindspore.optimizers import public_classes
    from align.rules.layer_rules import rule_for

    claim = rule_for(public_classes(type(layer)))
    rule, family = claim or (None, None)
    own, torchs = (rule.families[family], rule.families.get("torch")) if rule and family else (None, None)
    roles = {attribute: role for role, attribute in own.parameters.items()} if own else {}
    covered: set[str] = set()
    for attribute, parameter in _own_parameters(layer):
        role = roles.get(attribute)
        if role is not None and torchs is not None and role in torchs.parameters:
            covered.add(attribute)
            yield prefix, torchs.parameters[role], own.insert_axis.get(role) if own else None, parameter
        elif "." not in attribute:
            yield prefix, attribute, None, parameter
    renamed = {there: name for name, there in own.children.items()} if own else {}
    for name, child in layer.name_cells().items():
        if not any(one.startswith(f"{name}.") for one in covered):
            yield from _torch_names(child, f"{prefix}{renamed.get(name, name)}.")


def _own_parameters(layer: Any) -> Iterator[tuple[str, Any]]:
    """Parameters by their path in the cell, whatever they are called."""
    for path, cell in layer.cells_and_names():
        for attribute, parameter in cell._params.items():  # noqa: SLF001 - names of lone cells are no paths
            if parameter is not None:
                yield f"{path}.{attribute}" if path else attribute, parameter


def _leaves(value: Any) -> Iterator[Any]:
    """Arrays and words of what a call returned, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _leaves(one)
    elif callable(getattr(value, "detach", None)) and hasattr(value, "resolve_conj"):
        yield (
            value.detach().resolve_conj().resolve_neg().cpu().float().numpy() if _is_bfloat16(value) else _plain(value)
        )
    elif hasattr(value, "asnumpy"):
        yield value.asnumpy() if "BFloat16" not in str(value.dtype) else value.float().asnumpy()
    elif isinstance(value, (bool, int, float, complex, np.ndarray, np.generic)):
        yield np.asarray(value)
    else:
        yield _word(value)


def _plain(value: Any) -> Array:
    array: Array = value.detach().resolve_conj().resolve_neg().numpy()
    return array


def _is_bfloat16(value: Any) -> bool:
    return "bfloat16" in str(value.dtype)


def _word(value: Any) -> str:
    """What is no number: a dtype by its short name, anything else by its kind."""
    text = str(value).rpartition(".")[2].lower()
    return text if re.fullmatch(r"(?:b?float|u?int|bool|complex)\d*", text) else type(value).__name__


def _makers(framework: str) -> dict[str, Any]:
    """The names that make arguments, for one call."""
    count = iter(range(1, 1000))

    def numbers(*shape: int) -> np.random.Generator:
        return np.random.default_rng([next(count), *shape])

    tensor = _tensor_maker(framework)

    def normal(*shape: int) -> Any:
        return tensor(numbers(*shape).standard_normal(shape).astype(np.float32))

    def covariance(size: int) -> Any:
        root = numbers(size).standard_normal((size, size))
        return tensor((root @ root.T + np.eye(size)).astype(np.float32))

    return {
        **_dtypes(framework),
        "x": normal,
        "y": normal,
        "p": lambda *shape: tensor(numbers(*shape).uniform(0.1, 0.9, shape).astype(np.float32)),
        "i": lambda below, *shape: tensor(numbers(*shape).integers(0, below, shape)),
        "i1": lambda below, *shape: tensor(numbers(*shape).integers(1, below, shape)),
        "b": lambda *shape: tensor(numbers(*shape).integers(0, 2, shape) > 0),
        "sign": lambda *shape: tensor((numbers(*shape).integers(0, 2, shape) * 2 - 1).astype(np.float32)),
        "full": lambda value, *shape: tensor(np.full(shape, value)),
        "arange_": lambda size: tensor(np.arange(size)),
        "sorted_": lambda size: tensor(np.linspace(-1.0, 1.0, size, dtype=np.float32)),
        "array": lambda *shape: numbers(*shape).standard_normal(shape).astype(np.float32),
        "spd": covariance,
        "filled": lambda layer: fill_layer(framework, layer),
    }


def _tensor_maker(framework: str) -> Callable[[Array], Any]:
    if framework == "torch":
        import torch

        return torch.from_numpy
    import mindspore

    return mindspore.Tensor


def _dtypes(framework: str) -> dict[str, Any]:
    import importlib

    package = importlib.import_module(framework)
    return {name: getattr(package, name) for name in ("float32", "float16", "int64", "int32")} | {framework: package}
