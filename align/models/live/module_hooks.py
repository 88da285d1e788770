"""Hooks on modules of either framework, by path, which are taken off again."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


@contextmanager
def hooked(modules: Iterable[tuple[str, Any]], before: Callable[..., Any], after: Callable[..., Any]) -> Iterator[None]:
    """Call `before` and `after` with the path, then what forward hooks with keywords get, at all calls of modules."""
    with ExitStack() as stack:
        for path, module in modules:
            stack.callback(module.register_forward_pre_hook(partial(before, path), with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(partial(after, path), with_kwargs=True).remove)
        yield
