"""Activation checkpointing of torch passed by: layers that run again on the way back, to save memory."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from align.models.recompute_layers import note_recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What `torch.utils.checkpoint.checkpoint` calls, and finds in its module at each call.
REENTRANT, NOT_REENTRANT = "CheckpointFunction", "_checkpoint_without_reentrant_generator"


@contextmanager
def recompute_passed_by() -> Iterator[None]:
    """Let `torch.utils.checkpoint` call what it is given, and keep what the way back needs.

    Each layer then runs once, so that its tensors and the gradients of these are seen as of any other.
    """
    from torch.utils import checkpoint

    names = vars(checkpoint)
    with ExitStack() as stack:
        for name, plain in ((REENTRANT, _Once), (NOT_REENTRANT, _once)):
            if name in names:  # torch keeps them to itself, and may rename them
                stack.callback(names.__setitem__, name, names[name])
                names[name] = plain
        yield


class _Once:
    """Takes the place of the autograd function."""

    @staticmethod
    def apply(function: Callable[..., Any], _keeps_random_state: bool, *args: Any) -> Any:
        """Call the function."""
        note_recompute()
        return function(*args)


def _once(*_args: Any, **_settings: Any) -> Iterator[None]:
    """Take the place of the generator that prepares a call, and ends it."""
    note_recompute()
    yield
