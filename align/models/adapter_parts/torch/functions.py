"""Functional calls of a torch model (`F.gelu(x)`, `a + b`), seen through torch's function mode.

Those inside torch's own modules are how these do their work; they are not captured.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from align.models.live.call_sites import called_by_user
from align.models.nested_values import leaves

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from align.core.protocols import Model
    from align.models.record_calls import CallRecorder


def captured_functions(model: Model, recorder: CallRecorder) -> AbstractContextManager[Any]:
    """Hand what functional calls return to the recorder, if its sink wants them."""
    if not recorder.functions:
        return nullcontext()
    import torch
    from torch.overrides import TorchFunctionMode

    own = {path for path, module in model.named_modules() if type(module).__module__.startswith("torch.")}

    class Functions(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            output = func(*args, **(kwargs or {}))
            name = func.__name__.removeprefix("__").removesuffix("__")
            if recorder.running is None or recorder.running in own or name in _NO_COMPUTATION:
                return output
            if not any(torch.is_tensor(leaf) for _, leaf in leaves(output)) or not called_by_user():
                return output
            return recorder.function(name, args, kwargs or {}, output)

    return Functions()


# Reading an attribute, and what returns its own argument.
_NO_COMPUTATION = frozenset({"get", "set", "requires_grad_"})
