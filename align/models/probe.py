"""`align.probe`: a value anywhere in the code of a model, compared like a layer's output.

Outside of a run that records it costs one look-up and gives the value back.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

CLASS_NAME = "probe"
_PREFIX = "probe:"


class Recorder(Protocol):
    """Takes probed values."""

    def probe(self, path: str, value: Any) -> Any:
        """Note a value; return it, or what is to stand in its place."""


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


def probe(name: str, x: T) -> T:
    """Have `x`, a tensor or a structure of tensors, compared with the other side's probe of this name; return it.

    Use what is returned (`x = align.probe("scores", x)`): when layers are compared alone, it is the reference's value.
    A name that is met several times counts its calls.

    >>> probe("scores", 3)
    3
    """
    recorder = _recorder.get()
    return x if recorder is None else recorder.probe(f"{_PREFIX}{name}", x)


def is_probe(path: str) -> bool:
    """Tell whether this is the path of a probe, and not of a module."""
    return path.startswith(_PREFIX)


def probe_name(path: str) -> str:
    """The name that the user gave the probe at this path."""
    return path.removeprefix(_PREFIX)


@contextmanager
def probed_by(recorder: Recorder) -> Iterator[None]:
    """Hand what is probed meanwhile to the recorder."""
    token = _recorder.set(recorder)
    try:
        yield
    finally:
        _recorder.reset(token)
