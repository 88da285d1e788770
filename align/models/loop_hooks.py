"""Hooks on all modules of a model in a loop that is not ours, forward and backward; all are taken off again."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from align.models.live.call_sites import user_line
from align.models.loop_watcher import LoopCall
from align.models.nested_values import leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from align.models.loop_watcher import LoopForms, LoopSink


def line_of_user(home: str) -> str:
    """`file:line` of the user's code that is running, files in the folder `home` from there; "" if none is."""
    return user_line(home)


class LoopHooks:
    """Counts the calls of modules within a step, and tells a sink of them; `step` is set by whoever counts steps.

    Calls that raise and are caught by the user's model are forgotten when the module around them returns.
    """

    def __init__(self, sink: LoopSink, forms: LoopForms, *, backward: bool = True) -> None:
        self.step = 0
        self.running: list[tuple[LoopCall, Any]] = []
        self._sink, self._forms, self._backward = sink, forms, backward
        self._calls: Counter[str] = Counter()

    def begin(self, step: int) -> None:
        """A step begins: calls are counted anew."""
        self.step = step
        self._calls.clear()

    @contextmanager
    def on_modules(self, modules: Iterable[tuple[str, Any]]) -> Iterator[None]:
        """See all calls of these modules, given by path."""
        with ExitStack() as stack:
            for path, module in modules:
                before = module.register_forward_pre_hook(partial(self._before, path), with_kwargs=True)
                stack.callback(before.remove)
                stack.callback(self._forms.on_return(module, partial(self._after, path)))
            yield

    def _before(self, path: str, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        call = LoopCall(path, self._calls[path], type(module).__name__, len(self.running))
        self._calls[path] += 1
        self.running.append((call, module))
        self._sink.entered(call, module, args, kwargs)

    def _after(self, _path: str, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        if not any(one is module for _, one in self.running):  # hooks were put on while it ran
            return
        call, found = self.running.pop()
        while found is not module:
            call, found = self.running.pop()
        self._sink.returned(call, module, args, kwargs, output)
        for name, leaf in leaves(output) if self._backward else ():
            if self._forms.differentiable(leaf):
                self._forms.on_gradient(leaf, partial(self._sink.arrived, call, name))
