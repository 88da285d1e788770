"""Copies of a torch model that borrow its large parameters, each cast where a function is given it.

A float64 copy of a large model takes twice its memory, and gradients of all parameters take it again. A lent parameter
has the shape and dtype of the copy's and no memory: a function is given the original's, cast for as long as it runs.
What is written into becomes the copy's own first. Of a pass back each gradient is handed on once it is whole, and what
that pass needs of the way there is written to disk beyond a budget.
"""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.torch.state import to_array, to_tensor
from align.models.inputs import SpilledArrays
from align.models.thresholds import MOST_SAVED_BYTES, SMALLEST_LENT_BYTES, SMALLEST_SPILLED_BYTES
from align.models.user_code import checksum, sample
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from align.core.parameters import Array
    from align.core.protocols import Model

_DTYPES = {"double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16"}  # by methods that cast
_TENSORS = frozenset({"data", "T", "mT", "H", "mH", "real", "imag"})  # attributes that hold values
_FORMS = (
    "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "element_size", "is_floating_point",
    "is_complex", "is_signed", "is_inference", "get_device", "requires_grad_", "__len__", "__hash__",
)  # fmt: skip


def copy_lent(model: Model, width: str | None = None) -> Model:
    """Copy a model but for its large parameters, in another precision (a method's name, `double`) if it is given.

    Raises what the model raises when it is copied or cast.
    """
    import torch

    dtype = None if width is None else getattr(torch, _DTYPES[width])
    lent = {id(one): _lent_class()(one, dtype or one.dtype) for one in model.parameters() if _is_lendable(one)}
    copied = copy.deepcopy(model, lent)
    return copied if width is None else getattr(copied, width)()


def is_lent(tensor: Any) -> bool:
    """Tell whether a parameter is another model's."""
    return type(tensor) is _lent_class()


def _is_lendable(parameter: Any) -> bool:
    import torch

    plain = type(parameter) is torch.nn.Parameter and parameter.layout == torch.strided and not parameter.is_meta
    return plain and parameter.is_floating_point() and parameter.nbytes >= SMALLEST_LENT_BYTES


@cache
def _lent_class() -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    class Lent(torch.Tensor):  # type: ignore[misc]
        """A parameter without memory: the `original`'s values, or its `own` once they are written into."""

        _is_param = is_lent = True

        @staticmethod
        def __new__(cls, original: Any, dtype: Any) -> Any:
            form = {"strides": original.stride(), "dtype": dtype, "device": original.device}
            made = torch.Tensor._make_wrapper_subclass(cls, original.shape, **form)  # noqa: SLF001 - torch's way
            made.original, made.wanted, made.own, made.way_back = original.detach(), dtype, None, None
            return made

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func in _forms() or func.__name__ == "_has_compatible_shallow_copy_type":
                with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001 - torch's way
                    return func(*args, **kwargs)
            answer = _as_it_is(func.__name__, args) or _looked_up(func, args, kwargs)
            return answer[0] if answer else _called(func, args, kwargs)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*tree_map_only(cls, _given, args), **tree_map_only(cls, _given, kwargs or {}))

    return Lent


@cache
def _forms() -> frozenset[Any]:
    """What torch asks of a tensor beside its values."""
    import torch

    base = vars(torch._C.TensorBase)  # noqa: SLF001 - where torch defines what tensors have
    attributes = {one.__get__ for name, one in base.items() if hasattr(one, "__set__") and name not in _TENSORS}
    return frozenset(attributes | {getattr(torch.Tensor, name) for name in _FORMS})


def _as_it_is(name: str, args: Any) -> tuple[Any] | None:
    """The lent parameter that a method which casts or sets would leave as it is."""
    import torch

    if name in _DTYPES and args[0].wanted == getattr(torch, _DTYPES[name]):
        return (args[0],)
    return (None,) if name == "__set__" and args[0] is args[-1] else None


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    """What a function returns that is given the values of lent parameters."""
    from torch.utils._pytree import tree_map_only

    give, streams = _owned if _may_write(func, kwargs) else _given, []

    def replaced(lent: Any) -> Any:
        streams.append(lent.way_back)
        return give(lent)

    args, kwargs = tree_map_only(_lent_class(), replaced, (args, kwargs))
    try:
        return func(*args, **kwargs)
    finally:
        for stream in filter(None, streams):
            stream.lending.clear()


def _given(lent: Any) -> Any:
    if lent.own is not None:
        return lent.own
    return lent.original.to(lent.wanted) if lent.way_back is None else lent.way_back.given(lent)


def _owned(lent: Any) -> Any:
    lent.own = lent.original.to(lent.wanted, copy=True) if lent.own is None else lent.own
    return lent.own


def _may_write(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a function writes into what it is given, or returns something by which that can be done."""
    name = func.__name__
    if name in ("__get__", "__set__"):
        return True
    return (
        (name.endswith("_") and not name.endswith("__")) or name[:3] in ("__i", "__s") or bool(kwargs.get("max_norm"))
    )


def _looked_up(func: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any] | None:
    """Rows of a table, cast once they are looked up; None where the table is the copy's own, or has a way back."""
    if func.__name__ != "embedding" or kwargs.get("max_norm") or not args:
        return None
    table = args[1] if len(args) > 1 else kwargs["weight"]
    if not is_lent(table) or table.own is not None or table.way_back is not None or len(args) > 3:
        return None
    rest = {name: one for name, one in kwargs.items() if name != "weight"}
    return (func(args[0], table.original, *args[2:], **rest).to(table.wanted),)


class GradientStream:
    """A pass back through a lent copy: `take` is given each parameter's gradient by name once nothing is added to it.

    Parameters that are not lent have their gradients as usual. Go there in `with stream.way_there()`, and call `finish`
    after the way back.
    """

    def __init__(self, model: Model, take: Callable[[str, Array], None]) -> None:
        import torch

        self._names = {id(one): name for name, one in model.named_parameters()}
        self._take, self._uses, self._sums = take, Counter[int](), dict[int, Any]()
        self._lent = [one for one in model.parameters() if is_lent(one)]
        self._anchor = torch.zeros((), requires_grad=True)
        self._kept, self._bytes, self._spilled = 0, 0, SpilledArrays()
        self.lending: dict[int, Any] = {}
        for parameter in model.parameters():
            if is_lent(parameter):
                parameter.way_back = self
            elif parameter.is_floating_point() or parameter.is_complex():
                parameter.requires_grad_(True)
                parameter.register_post_accumulate_grad_hook(self._whole)

    def way_there(self) -> AbstractContextManager[object]:
        """Lets what the way back needs be kept here, if anything is lent."""
        import torch

        return torch.autograd.graph.saved_tensors_hooks(self.keep, self.fetch) if self._lent else nullcontext()

    def given(self, lent: Any) -> Any:
        """The values of a lent parameter, from which its gradient comes here."""
        self._uses[id(lent)] += 1
        wide = _way_class().apply(self._anchor, lent)
        self.lending[wide.untyped_storage().data_ptr()] = lent
        return wide

    def receive(self, lent: Any, gradient: Any) -> None:
        """Add a gradient, and hand the sum on if it was the last."""
        known = self._sums.pop(id(lent), None)
        total = gradient if known is None else known + gradient
        self._uses[id(lent)] -= 1
        if self._uses[id(lent)]:
            self._sums[id(lent)] = total
        else:
            self._take(self._names[id(lent)], to_array(total))

    def _whole(self, parameter: Any) -> None:
        self._take(self._names[id(parameter)], to_array(parameter.grad))
        parameter.grad = None

    def finish(self) -> None:
        """Hand on the gradients to which some use of their parameter added nothing."""
        for parameter in self._lent:
            if (total := self._sums.pop(id(parameter), None)) is not None:
                self._take(self._names[id(parameter)], to_array(total))

    def keep(self, tensor: Any) -> Any:
        """What stands for a tensor that the way back needs: a place in a lent one, itself, or its copy on disk."""
        lent = self.lending.get(tensor.untyped_storage().data_ptr()) if self.lending else None
        if lent is not None:
            return lent, tensor.size(), tensor.stride(), tensor.storage_offset()
        self._bytes += tensor.nbytes
        if self._bytes <= MOST_SAVED_BYTES or tensor.nbytes <= SMALLEST_SPILLED_BYTES or tensor.is_sparse:
            return tensor, _sign(tensor)
        self._kept += 1
        self._spilled[str(self._kept)] = to_array(tensor)
        return str(self._kept), tensor.device

    def fetch(self, kept: Any) -> Any:
        """The tensor that `keep` was given; raises RuntimeError, as torch does without hooks, if it was changed."""
        what, *place = kept
        if isinstance(what, str):
            return to_tensor(self._spilled[what]).to(place[0])
        if is_lent(what):
            return what.original.to(what.wanted).as_strided(*place)
        if place != [_sign(what)]:
            raise RuntimeError(say("torch_model.written_into"))
        return what


def _sign(tensor: Any) -> int:
    """A checksum of some elements: torch does not look for changes of what hooks keep."""
    flat = tensor.detach().reshape(-1)
    return 0 if tensor.is_sparse else checksum(to_array(flat[sample(flat.numel())]))


@cache
def _way_class() -> Any:
    import torch

    class Way(torch.autograd.Function):  # type: ignore[misc]
        """Gives the values of a lent parameter, and hands their gradient to its stream."""

        @staticmethod
        def forward(ctx: Any, _anchor: Any, lent: Any) -> Any:
            ctx.lent = lent
            return lent.original.to(lent.wanted).detach()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            ctx.lent.way_back.receive(ctx.lent, gradient)
            return None, None

    return Way
