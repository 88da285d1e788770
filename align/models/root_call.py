"""What is called in the place of a model: itself, or, where its own hooks do not tell of it, a call that is noted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from align.models.live.call_sites import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from align.models.record_calls import CallRecorder


def root_call(
    model: Any, recorder: CallRecorder, stand_ins: Mapping[str, Any] | None, *, compiled: bool = False
) -> Callable[..., Any]:
    """Return the model, or a function that notes its call if it is `compiled`, or if its class defines `__call__`.

    Such a class may pass by the hooks of its framework. The root must have no hooks then.
    """
    if not compiled and _is_frameworks(type(model).__call__):
        return model  # type: ignore[no-any-return]
    return partial(_noted, type(model).__name__, recorder, (stand_ins or {}).get("", model))


def _is_frameworks(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] in FRAMEWORKS


def _noted(name: str, recorder: CallRecorder, answers: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Let a sink see what a model is given, and what it, or its stand-in, returns."""
    given, named = recorder.begin("", args, kwargs, name) or (args, kwargs)
    recorder.end("", name, answers(*given, **named))
