"""One framework's part of a loop that is watched: passes recorded by hooks, and read where an optimizer is called."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from align.models.loop_hooks import LoopHooks, line_of_user
from align.models.nested_values import leaves
from align.watch.find_event import backward_origin, forward_origin, loss_scale_of
from align.watch.judge_update import Handed, gradients_origin, update_origin
from align.watch.operator_names import VIEWS, plain_name
from align.watch.recorded_pass import Record, RecordedPass
from align.watch.thresholds import SKIPPED_IN_A_ROW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.models.loop_watcher import LoopCall, LoopWatcher
    from align.watch.find_event import Origin
    from align.watch.running_figures import RunningFigures


class Judge(Protocol):
    """Decides what is made of a pass that was read."""

    figures: RunningFigures

    def found(self, framework: WatchedFramework, origin: Origin) -> None:
        """Something is not finite."""

    def passed(self, framework: WatchedFramework) -> None:
        """A step is over, and its tensors are finite; called once a step, before its update."""


class WatchedFramework:
    """Sees all calls of one framework (LoopSink, OperatorSink), and counts steps: a step ends after its update.

    A pass that ends in infinities and without an update is one that a loss scaler skipped: a step too. One without an
    update that is finite belongs to the step of the next update (gradients are accumulated).
    """

    def __init__(self, watcher: LoopWatcher, judge: Judge) -> None:
        self.watcher, self.forms = watcher, watcher.loop_forms
        self.step, self.skipped, self.tensors = 0, 0, 0
        self.seen = RecordedPass(self.forms)
        self.stopped = False
        self.names: dict[int, str] = {}
        self.label = watcher.name
        self.loss_scale = 1.0
        self._judge, self._home = judge, f"{Path.cwd()}/"
        self._hooks = LoopHooks(self, self.forms, backward=False)
        self._known: dict[int, Any] = {}
        self._whole: set[int] = set()
        self._trained: set[int] = set()
        self._seen_back: set[int] = set()
        self._skipped_with: tuple[RecordedPass, Origin] | None = None
        self._updated = self._read = self._judged = False
        self._in_a_row = 0
        self._stack = ExitStack()

    def begin(self, model: Any | None) -> None:
        """Put the hooks on; of `model` at once, of others when they are called."""
        self._stack.enter_context(self.watcher.outermost_calls(self._outermost))
        self._stack.enter_context(self.watcher.optimizer_calls(self._before_update, self._after_update))
        self._stack.enter_context(self.watcher.operators(self))
        if model is not None:
            self._hook(model)

    def end(self) -> None:
        """Take all hooks off, and read what is left."""
        self._stack.close()
        if not self.stopped:
            self._end_of_loop()

    @property
    def running(self) -> bool:
        """Tell whether anything of it was seen."""
        return bool(self._known)

    # What hooks tell.

    def entered(self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """See LoopSink."""
        if call.depth == 0 and not self.stopped and not self._back:
            given = [(name, one) for name, one in leaves({**dict(enumerate(args)), **kwargs})]
            self.seen.add_batch((self._input_name(module, name), one) for name, one in given if self._floating(one))

    def returned(
        self, call: LoopCall, module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> None:
        """See LoopSink."""
        if self.stopped or self._back or not self._watches(module):
            return
        outputs = [one for _, one in leaves(output) if self._floating(one)]
        if outputs:
            line = line_of_user(self._home)
            record = Record(call.path, call.number, call.class_name, is_module=True, module=module, line=line)
            record.own_way_back = self.forms.own_way_back(module)
            self.seen.add(record, [one for _, one in leaves(args)], dict(leaves(dict(kwargs))), outputs)

    def arrived(self, call: LoopCall, name: str, gradient: Any) -> None:
        """Nothing: places of the pass see gradients themselves."""

    def computed(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """See OperatorSink."""
        self._add_operator(name, args, kwargs, output)

    def applied(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any) -> None:
        """See OperatorSink."""
        self._add_operator(name, args, kwargs, output, own_way_back=True)

    def _add_operator(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any, *, own_way_back: bool = False
    ) -> None:
        if self.stopped or self._back or not (self._hooks.running or self.seen.records):
            return
        call, module = self._hooks.running[-1] if self._hooks.running else (None, None)
        if module is not None and (id(module) in self._whole or not self._watches(module)):
            return
        outputs = [one for _, one in leaves(output) if self._floating(one) and not self.forms.is_parameter(one)]
        if outputs:
            line = "" if plain_name(name) in VIEWS else line_of_user(self._home)
            path, number = (call.path, call.number) if call is not None else ("", 0)
            record = Record(path, number, name, is_module=False, module=module, line=line)
            record.own_way_back = own_way_back
            self.seen.add(record, [one for _, one in leaves(args)], dict(leaves(dict(kwargs))), outputs)

    # Steps.

    @property
    def _back(self) -> bool:
        """Tell whether the pass is on its way back: what is computed then is no call of the user's."""
        return bool(self.seen.arrivals)

    def _outermost(self, module: Any) -> None:
        if self.stopped or self.forms.going_back():  # then it computes its layers again
            return
        if id(module) not in self._known:
            self._hook(module)
        if self._back:
            self._end_of_pass()
        if module.training:
            self._trained.add(id(module))

    def _hook(self, model: Any) -> None:
        """Put hooks on all modules of a model that have none."""
        first = not self._known
        self.label = type(model).__name__ if first else self.label
        label = "" if first else type(model).__name__
        found = [(path, one) for path, one in self.watcher.loop_modules(model) if id(one) not in self._known]
        for _, one in found:
            self._known[id(one)] = one
            if self.forms.is_whole(one):
                self._whole.add(id(one))
        named = [(inside(label, path), one) for path, one in found]
        self._stack.enter_context(self._hooks.on_modules(named))
        named = self.watcher.loop_parameters(model)
        self.names |= {id(one): name for name, one in named}
        for name, one in named:
            if id(one) not in self._seen_back:
                self._seen_back.add(id(one))
                ended = self.forms.on_parameter(one, partial(self._parameter_gradient, one, name))
                if ended is not None:
                    self._stack.callback(ended)

    def _parameter_gradient(self, parameter: Any, name: str, gradient: Any) -> None:
        if self.stopped or not self.seen.records:
            return
        if self._skipped_with is not None and self.forms.begins_anew(parameter):
            self._skipped_with = None
        self.seen.parameter_arrived(parameter, name, gradient)

    def _watches(self, module: Any) -> bool:
        """Tell whether it trains: no model in evaluation that was in training before."""
        evaluates = not module.training and id(module) in self._trained
        return not evaluates and self.forms.recording()

    def _before_update(self, optimizer: Any, gradients: Any) -> None:
        """Read the pass, and what the optimizer is given."""
        if self.stopped or not self.seen.records:
            return
        self._read_pass()
        if origin := forward_origin(self.seen):
            self._judge.found(self, origin)
            return
        held = zip(self.watcher.held_by(optimizer), gradients, strict=False)
        handed = [Handed(self._name(one), one, value) for one, value in held]
        if origin := gradients_origin(handed, self.seen, self._known_paths()):
            self._judge.found(self, self._of_pass_before() or origin if origin.direction == "step" else origin)
        elif not self._judged:
            self._judged = True
            self._judge.passed(self)

    def _of_pass_before(self) -> Origin | None:
        """Where a pass before this one went wrong to which gradients were added; that pass is the one shown then."""
        if self._skipped_with is None:
            return None
        self.seen, origin = self._skipped_with
        self.step, self.skipped = self.step - 1, self.skipped - 1
        return origin

    def _after_update(self, optimizer: Any) -> None:
        """Look at the parameters that it moved."""
        if self.stopped:
            return
        self._updated, self._skipped_with = True, None
        held = [(self._name(one), one) for one in self.watcher.held_by(optimizer)]
        if origin := update_origin(self.watcher.optimizer_state(optimizer), held, self.forms):
            self._judge.found(self, origin)

    def _end_of_pass(self) -> None:
        """A new pass begins: count the last one, if it was a step."""
        skipped = self._is_skipped()
        if self.stopped:
            return
        if self._updated or skipped:
            self._in_a_row = self._in_a_row + 1 if skipped else 0
            self.skipped += skipped
            self.step += 1
            self._updated = self._judged = False
            self._hooks.begin(self.step)
        self.seen, self._read = RecordedPass(self.forms), False

    def _is_skipped(self) -> bool:
        """Read a pass that no optimizer has ended; many that end in infinities are no search for a loss scale."""
        if self._updated:
            return False
        self._read_pass()
        if origin := forward_origin(self.seen):
            self._judge.found(self, origin)
            return False
        origin = backward_origin(self.seen)
        if origin is not None:
            self._skipped_with = self.seen, origin
        if origin is not None and self._in_a_row + 1 >= SKIPPED_IN_A_ROW:
            self._judge.found(self, origin)
        return origin is not None

    def _end_of_loop(self) -> None:
        if not self.seen.records or self._updated:
            self.step += self._updated
            return
        self._read_pass()
        origin = forward_origin(self.seen, ended=True) or backward_origin(self.seen)
        skipped = origin is not None and origin.direction == "backward" and self.loss_scale > 1
        if origin is not None and not skipped:
            self._judge.found(self, origin)
        self.skipped += skipped
        self.step += bool(self.seen.arrivals)

    def _read_pass(self) -> None:
        if not self._read:
            self._read = True
            self.seen.read()
            self.tensors = max(self.tensors, len(self.seen.records) + len(self.seen.arrivals))
            self.loss_scale = loss_scale_of(self.seen)

    def _floating(self, value: Any) -> bool:
        return self.forms.is_floating(value)

    def _name(self, parameter: Any) -> str:
        return self.names.get(id(parameter), str(getattr(parameter, "name", None) or ""))

    def _known_paths(self) -> dict[str, Any]:
        return {name: name.rpartition(".")[0] for name in self.names.values()}

    def _input_name(self, module: Any, name: str) -> str:
        """The name by which the module takes what was given by position."""
        import inspect

        function = getattr(module, "forward", None) or getattr(module, "construct", None)
        try:
            taken = [*inspect.signature(function).parameters] if function else []
        except (TypeError, ValueError):
            taken = []
        first, _, rest = name.partition(".")
        known = taken[int(first)] if first.isdecimal() and int(first) < len(taken) else first
        return f"{known}.{rest}".rstrip(".")


def inside(label: str, path: str) -> str:
    """A path in what is called `label`."""
    return f"{label}.{path}".strip(".") if label else path
