"""What torch wraps around a model that is trained: `DataParallel`, DistributedDataParallel, `torch.compile`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.protocols import Model

COMPILED = "_orig_mod"  # what `torch.compile` calls the model in its module; to import its class takes seconds


def inner_model(model: Model) -> Model:
    """The model in all wrappers around it, whose `forward` names its inputs."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        children = dict(model.named_children())
        if isinstance(model, (DataParallel, DistributedDataParallel)):
            model = model.module
        elif children.keys() == {COMPILED}:
            model = children[COMPILED]
        else:
            return model


@contextmanager
def run_undistributed(model: Model) -> Iterator[None]:
    """Let wrappers call what they hold, where no gradient of another process is to be awaited.

    DistributedDataParallel counts the gradients that come back, and refuses the next step where one did not come, or
    where one comes another way; copies of a model on several devices have no hooks of their own.
    """
    held = [one for one in model.modules() if _is_alone(one)]
    for wrapper in held:
        vars(wrapper)["forward"] = _Inner(wrapper)
    try:
        yield
    finally:
        for wrapper in held:
            vars(wrapper).pop("forward", None)


class _Inner:
    """Calls the module that a wrapper holds."""

    def __init__(self, wrapper: Any) -> None:
        self._wrapper = wrapper

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wrapper.module(*args, **kwargs)


def _is_alone(module: Any) -> bool:
    """Tell whether it is a wrapper that no other process waits for, and that casts nothing."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    if not isinstance(module, DistributedDataParallel):
        return isinstance(module, DataParallel)
    return module.process_group.size() == 1 and module.mixed_precision is None
