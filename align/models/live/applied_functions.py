"""Functions of the user's own with a way back of their own, seen where they are applied, in either framework."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def around_apply(base: Any, applied: Callable[[Any, Any, Any, Any], None]) -> Iterator[None]:
    """Tell of each `apply` of the classes of a base: the class, arguments by position and by name, and what came.

    A base that only inherits `apply` gets one for that time, so that an `apply` that was looked up before is seen.
    """
    own = vars(base).get("apply")

    def around(function: Any, *args: Any, **kwargs: Any) -> Any:
        apply = super(base, function).apply if own is None else own.__get__(None, function)
        output = apply(*args, **kwargs)
        applied(function, args, kwargs, output)
        return output

    base.apply = classmethod(around)
    try:
        yield
    finally:
        if own is None:
            del base.apply
        else:
            base.apply = own
