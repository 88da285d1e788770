"""Operators that a MindSpore network runs outside MindSpore's own cells, seen through its dispatch mode (PYNATIVE).

The mode is experimental and shows operators (`AddExt`), not the functions that ran them: one function may be several.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from align.errors import CannotRunError
from align.models.live.call_sites import called_by_user
from align.models.nested_values import leaves

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from align.core.protocols import Model
    from align.models.record_calls import CallRecorder


def captured_operators(model: Model, recorder: CallRecorder) -> AbstractContextManager[Any]:
    """Hand what operators return to the recorder, if its sink wants functional calls."""
    if not recorder.functions:
        return nullcontext()
    import mindspore

    try:
        from mindspore.utils.ms_dispatch import MsDispatchMode
    except ImportError as error:
        reason = f"MindSpore {mindspore.__version__} cannot show functional calls: it has no dispatch mode"
        raise CannotRunError(reason, "leave --functions out, or install MindSpore 2.10 or newer") from error

    own = {path for path, cell in model.cells_and_names() if type(cell).__module__.startswith("mindspore.")}

    class Operators(MsDispatchMode):  # type: ignore[misc]
        def __ms_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            if recorder.running is None or recorder.running in own or not called_by_user():
                return output
            if not any(isinstance(leaf, mindspore.Tensor) for _, leaf in leaves(output)):
                return output
            return recorder.function(func.name, _given(args), kwargs or {}, output)

    return Operators()


def _given(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of an operator: those of older primitives come as (primitive, name, arguments)."""
    return args[2] if len(args) == 3 and isinstance(args[1], str) and isinstance(args[2], tuple) else args
