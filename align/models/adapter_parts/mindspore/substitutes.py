"""Cells of a MindSpore network that compute in another precision while the network trains (PYNATIVE).

While a cell runs, its parameters give way to cast ones, so that gradients come back to the network's own.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from align.errors import CannotRunError
from align.models.nested_values import leaves, with_leaves
from align.models.record_calls import answered, twin_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from align.core.protocols import Model


class MindSporeSubstituter:
    """The part of the adapter that lets others answer for cells; see LayerSubstituter."""

    def recast_layer(self, model: Model, path: str, device: str | None, dtype: str | None) -> Callable[..., Any]:
        """Call the cell on cast tensors; see LayerSubstituter."""
        import mindspore

        if device is not None:
            raise CannotRunError.of("mindspore_model.lone_layer_elsewhere")
        return _Recast(self.bare_layer(model, path), getattr(mindspore, str(dtype)))

    def bare_layer(self, model: Model, path: str) -> Model:
        """A twin whose tables are the cell's, but for what answers in its place; see LayerSubstituter.

        A shallow copy of a cell would be the same object under another name: both have one table of attributes.
        """
        cell = _cell(model, path)
        twin: Any = twin_class(cell)
        bare = twin.__new__(twin)
        object.__setattr__(bare, "__dict__", {name: one for name, one in vars(cell).items() if name != "construct"})
        return bare

    @contextmanager
    def substituted(self, model: Model, stand_ins: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
        """Put them in the place of `construct`; see LayerSubstituter."""
        with ExitStack() as stack:
            for path, stand_in in stand_ins.items():
                stack.enter_context(answered(_cell(model, path), "construct", stand_in))
            yield


def _cell(model: Model, path: str) -> Model:
    return dict(model.cells_and_names())[path]


class _Recast:
    """Computes as a cell does, on its parameters cast at each call."""

    def __init__(self, cell: Any, dtype: Any) -> None:
        self._cell, self._dtype = cell, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        found = [leaf for _, leaf in leaves((args, kwargs)) if _is_floating(leaf)]
        like = next(iter(found), next((one for one in self._cell.get_parameters() if one.is_floating_point()), None))
        args, kwargs = with_leaves((args, kwargs), lambda _, leaf: self._cast(leaf, self._dtype))
        with self._cast_parameters():
            output = self._cell.construct(*args, **kwargs)
        if like is None:
            return output
        return with_leaves(output, lambda _, leaf: self._cast(leaf, like.dtype))

    @contextmanager
    def _cast_parameters(self) -> Iterator[None]:
        """Statistics stay as they are: the kernel that normalises writes into them."""
        cells = [cell for _, cell in self._cell.cells_and_names()]
        tables = [cell._params for cell in cells]  # noqa: SLF001 - MindSpore lets nothing else take a parameter's place
        kept = [(table, name, one) for table in tables for name, one in table.items() if _is_trained(one)]
        for table, name, one in kept:
            table[name] = one.astype(self._dtype)
        try:
            yield
        finally:
            for table, name, one in kept:
                table[name] = one

    @staticmethod
    def _cast(leaf: Any, dtype: Any) -> Any:
        return leaf.astype(dtype) if _is_floating(leaf) else leaf


def _is_floating(leaf: Any) -> bool:
    import mindspore

    return isinstance(leaf, mindspore.Tensor) and bool(leaf.is_floating_point())


def _is_trained(one: Any) -> bool:
    return _is_floating(one) and bool(one.requires_grad)
