"""Layers of a torch model that compute in another precision or elsewhere while the model trains.

Parameters are cast where the layer runs, so that gradients come back to the model's own; a copy would keep them.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from align.models.adapter_parts.torch.copies import checked_device, moved
from align.models.nested_values import leaves, with_leaves
from align.models.record_calls import answered, twin_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.protocols import Model


class TorchSubstituter:
    """The part of the adapter that lets others answer for layers; see LayerSubstituter."""

    def recast_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Call the layer on cast tensors; see LayerSubstituter."""
        import torch

        there = None if device is None else checked_device(device)
        return _Recast(self.bare_layer(model, path), there, None if dtype is None else getattr(torch, dtype))

    def bare_layer(self, model: Model, path: str) -> Model:
        """A shallow copy, whose tables of tensors and modules are the layer's; see LayerSubstituter."""
        layer = model.get_submodule(path)
        bare = copy.copy(layer)
        object.__setattr__(bare, "__class__", twin_class(layer))
        vars(bare).pop("forward", None)
        vars(bare).update(_forward_hooks={}, _forward_pre_hooks={})
        vars(bare).update(_forward_hooks_with_kwargs={}, _forward_pre_hooks_with_kwargs={})
        return bare

    @contextmanager
    def substituted(self, model: Model, stand_ins: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
        """Put them in the place of `forward`; see LayerSubstituter."""
        with ExitStack() as stack:
            for path, stand_in in stand_ins.items():
                stack.enter_context(answered(model.get_submodule(path), "forward", stand_in))
            yield


class _Recast:
    """Computes as a layer does, on its tensors cast and moved at each call."""

    def __init__(self, layer: Model, device: Any, dtype: Any) -> None:
        self._layer, self._device, self._dtype = layer, device, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        layer = self._layer
        given = [leaf for _, leaf in leaves((args, kwargs)) if torch.is_tensor(leaf) and leaf.is_floating_point()]
        like = next(iter(given), next(iter(layer.parameters()), None))
        buffers = dict(layer.named_buffers())
        own = {name: self._there(one) for name, one in dict(layer.named_parameters()).items()}
        cast = {name: self._there(one.detach().clone()) for name, one in buffers.items()}
        args, kwargs = with_leaves((args, kwargs), lambda _, leaf: self._there(leaf))
        output = torch.func.functional_call(layer, {**own, **cast}, args, kwargs)
        with torch.no_grad():
            for name, one in buffers.items():
                one.copy_(cast[name])
        if like is None:
            return output
        return with_leaves(output, lambda _, leaf: moved(leaf, like.device, like.dtype))

    def _there(self, leaf: Any) -> Any:
        return moved(leaf, self._device, self._dtype)
