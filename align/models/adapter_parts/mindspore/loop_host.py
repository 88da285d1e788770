"""MindSpore's part of dumping out of a loop: ranks, the callback of `Model.train`, cells computed again."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.errors import CannotRunError, UserCodeError
from align.models.adapter_parts.mindspore.arrays import fill, launched, to_array, to_tensor
from align.models.adapter_parts.mindspore.copies import copied_cell, place_network
from align.models.adapter_parts.mindspore.state import random_numbers_kept
from align.models.nested_values import with_leaves
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array


class MindSporeLoopHost:
    """See LoopHost."""

    def rank(self) -> tuple[int, int]:
        """By the communication group, else by what msrun says."""
        from mindspore import communication

        with suppress(RuntimeError, ValueError):  # of a process that has no group
            return communication.get_rank(), communication.get_group_size()
        return int(os.environ.get("RANK_ID", "0")), int(os.environ.get("RANK_SIZE", "1"))

    def refuse_unseen(self) -> None:
        """Graph mode runs no hook."""
        import mindspore

        if mindspore.get_context("mode") == mindspore.GRAPH_MODE and os.environ.get("MS_JIT") != "0":
            raise CannotRunError.of("mindspore_model.loop_in_graph_mode")

    def step_callback(
        self, ended: Callable[[Any], None], closed: Callable[[], None], begun: Callable[[Any], None] = lambda _: None
    ) -> Any:
        """That of `Model.train`: in sink mode it is called once for all steps that are sunk together."""
        from mindspore.train import Callback

        class StepCallback(Callback):  # type: ignore[misc]
            def on_train_begin(self, run_context: Any) -> None:
                begun(run_context.original_args().get("train_dataset"))

            def on_train_step_end(self, run_context: Any) -> None:
                ended(run_context.original_args().net_outputs)

            def on_train_end(self, _run_context: Any) -> None:
                closed()

        return StepCallback()

    def random_state(self) -> bytes:
        """That of MindSpore's generator; operators with seeds of their own are not seen."""
        import mindspore

        return b"".join(to_array(one).tobytes() for one in _parts(mindspore.get_rng_state()))

    def own_values(self, module: Any) -> dict[str, Array]:
        """By their places in the cell: names may be given twice."""
        return {name: to_array(one).copy() for name, one in _tensors(module).items()}

    def recomputed(self, module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
        """On a copy without hooks; many kernels of the processor have no float64: see LoopHost."""
        failed = partial(UserCodeError, say("loop_dump_reason.in_float64"))
        return run_user_code(partial(_recomputed, module, values, given), failed)


def _parts(state: Any) -> tuple[Any, ...]:
    return tuple(state) if isinstance(state, (tuple, list)) else (state,)


def _tensors(cell: Any) -> dict[str, Any]:
    return {**dict(cell.parameters_and_names()), **dict(cell.named_buffers())}


def _recomputed(module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
    tensor_type = launched().Tensor
    with random_numbers_kept():
        wide = copied_cell(module)
        place_network(wide, None, "float64")
        for name, one in _tensors(wide).items():
            if name in values:
                fill(one, values[name])
        args, kwargs = with_leaves(given, _wide_tensor)
        output = wide.construct(*args, **kwargs)
        return with_leaves(output, lambda _, leaf: to_array(leaf) if isinstance(leaf, tensor_type) else leaf)


def _wide_tensor(_name: str, leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    tensor = to_tensor(leaf)
    return tensor.astype(launched().float64) if tensor.is_floating_point() else tensor
