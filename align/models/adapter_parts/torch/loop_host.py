"""torch's part of dumping out of a loop: ranks, the callback of Hugging Face's Trainer, layers computed again."""

from __future__ import annotations

import copy
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.errors import CannotRunError, UserCodeError
from align.models.adapter_parts.torch.arrays import to_array, to_tensor
from align.models.nested_values import with_leaves
from align.models.user_code import run_user_code
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.core.dtypes import Array


class TorchLoopHost:
    """See LoopHost."""

    def rank(self) -> tuple[int, int]:
        """By the process group, else by what torchrun says."""
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))

    def refuse_unseen(self) -> None:
        """Nothing: hooks are always called."""

    def step_callback(
        self, ended: Callable[[Any], None], closed: Callable[[], None], begun: Callable[[Any], None] = lambda _: None
    ) -> Any:
        """That of transformers' Trainer, whose step is one of the optimizer."""
        try:
            from transformers import TrainerCallback
        except ImportError as error:
            raise CannotRunError.of("torch_model.no_transformers") from error

        class StepCallback(TrainerCallback):  # type: ignore[misc]
            def on_train_begin(self, *_: Any, **named: Any) -> None:
                begun(named.get("train_dataloader"))

            def on_step_end(self, *_: Any, **__: Any) -> None:
                ended(None)

            def on_train_end(self, *_: Any, **__: Any) -> None:
                closed()

        return StepCallback()

    def random_state(self) -> bytes:
        """That of the processor, and of the current CUDA device."""
        import torch

        states = [torch.get_rng_state()]
        states += [torch.cuda.get_rng_state()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
        return b"".join(one.numpy().tobytes() for one in states)

    def own_values(self, module: Any) -> dict[str, Array]:
        """By their names in the module."""
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return {name: to_array(one).copy() for name, one in own.items()}

    def recomputed(self, module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
        """On a deep copy without hooks; see LoopHost."""
        failed = partial(UserCodeError, say("loop_dump_reason.in_float64"))
        return run_user_code(partial(_recomputed, module, values, given), failed)


def _recomputed(module: Any, values: Mapping[str, Array], given: tuple[Any, Any]) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        wide = copy.deepcopy(module).cpu().double()
        for name, one in (*wide.named_parameters(), *wide.named_buffers()):
            if name in values:
                one.copy_(to_tensor(values[name]))
        args, kwargs = with_leaves(given, _wide_tensor)
        return with_leaves(wide(*args, **kwargs), lambda _, leaf: to_array(leaf) if torch.is_tensor(leaf) else leaf)


def _wide_tensor(_name: str, leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    tensor = to_tensor(leaf)
    return tensor.double() if tensor.is_floating_point() else tensor
