"""MindSpore's functions: those that a network runs outside MindSpore's own cells, and single ones run on arrays.

The former are seen through its dispatch mode (PYNATIVE), which is experimental and shows operators (`AddExt`), not the
functions that ran them: one function may be several. It does not show what an index takes of a tensor (`x[:, ::2]`),
which is seen by itself, nor older operators as `OneHot`, nor what joins a list of tensors, which gets a tuple. Of the
latter some kernels are off by far more than rounding: on the CPU, MindSpore 2.10's tanh is off by up to 1e-4 (where |x|
reaches 5), its exp by 25 units in the last place.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

from align.core.traces import OperatorSink
from align.errors import CannotRunError
from align.models.adapter_parts.mindspore.state import to_array, to_tensor
from align.models.live_calls import LiveOperatorCall, called_by_user, leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.core.traces import CaptureSink
    from align.models.record_calls import CallRecorder

NAMES = ("erf", "exp", "log", "sigmoid", "tanh")


def captured_operators(model: Model, recorder: CallRecorder) -> AbstractContextManager[Any]:
    """Hand what operators return to the recorder, if its sink wants functional calls."""
    if not recorder.functions:
        return nullcontext()
    import mindspore

    try:
        from mindspore.utils.ms_dispatch import MsDispatchMode
    except ImportError as error:
        raise CannotRunError.of("mindspore_model.no_functions", version=mindspore.__version__) from error

    own = {path for path, cell in model.cells_and_names() if type(cell).__module__.startswith("mindspore.")}

    def recorded(
        name: str, again: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
    ) -> Any:
        if recorder.running is None or recorder.running in own:
            return output
        if not any(isinstance(leaf, mindspore.Tensor) for _, leaf in leaves(output)):
            return output
        return recorder.function(name, again, args, kwargs, output)

    dispatched = count()

    class Operators(MsDispatchMode):  # type: ignore[misc]
        def __ms_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
            next(dispatched)
            output = func(*args, **(kwargs or {}))
            if not called_by_user():
                return output
            own = operators_arguments(args)
            again = func if own is args else lambda *given, **named: func(*args[:2], given, **named)
            return recorded(func.name, again, own, kwargs or {}, output)

    return _with_others(Operators(), recorded, dispatched)


def shows_operators() -> bool:
    """Tell whether this version of MindSpore has a dispatch mode."""
    return find_spec("mindspore.utils.ms_dispatch") is not None


@contextmanager
def shown_operators(sink: CaptureSink) -> Iterator[None]:
    """Show the sink every operator that MindSpore dispatches (PYNATIVE), if it wants to see them."""
    if not isinstance(sink, OperatorSink):
        yield
        return
    import mindspore
    from mindspore.utils.ms_dispatch import MsDispatchMode

    make = sink.operator

    def as_array(value: Any) -> Array | None:
        return to_array(value) if isinstance(value, mindspore.Tensor) else None

    def from_array(value: Array, like: Any) -> Any:
        return to_tensor(value).astype(like.dtype)

    class Operators(MsDispatchMode):  # type: ignore[misc]
        def __ms_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
            own, place = operators_arguments(args), None
            if own is not args:  # (primitive, name, arguments)
                place = args[:2]
            function = func if place is None else lambda *given: func(*place, given)
            return make(LiveOperatorCall(func.name, function, (own, kwargs or {}), (as_array, from_array)))

    with Operators():
        yield


@contextmanager
def _with_others(
    operators: AbstractContextManager[Any], recorded: Callable[..., Any], dispatched: count[int]
) -> Iterator[None]:
    """Record what an index takes of a tensor too, as `getitem`, and operators that are not `dispatched` (`OneHot`)."""
    import mindspore
    from mindspore.ops.primitive import Primitive

    taken, run = mindspore.Tensor.__getitem__, Primitive.__call__

    def getitem(self: Any, index: Any) -> Any:
        output = taken(self, index)
        return recorded("getitem", taken, (self, index), {}, output) if called_by_user() else output

    def passed_on_to_framework(self: Any, *args: Any) -> Any:
        before = next(dispatched)
        output = run(self, *args)
        if next(dispatched) > before + 1 or not called_by_user():
            return output
        return recorded(self.name, partial(run, self), args, {}, output)

    mindspore.Tensor.__getitem__, Primitive.__call__ = getitem, passed_on_to_framework
    try:
        with _joined_as_tuples(), operators:
            yield
    finally:
        mindspore.Tensor.__getitem__, Primitive.__call__ = taken, run


@contextmanager
def _joined_as_tuples() -> Iterator[None]:
    """Let MindSpore's functions that join tensors be given tuples: with a list their operator is not dispatched."""
    import mindspore

    makers = mindspore.ops.auto_generate
    primitive = type(getattr(makers.gen_ops_def, "concat_impl", None))
    places = ((primitive, "__call__"), (mindspore.ops.Concat, "__call__"), (makers, "cat"))
    known = [(holder, name, vars(holder)[name]) for holder, name in places if name in vars(holder)]

    def joining(function: Callable[..., Any]) -> Callable[..., Any]:
        def passed_on_to_framework(*args: Any, **kwargs: Any) -> Any:
            return function(*[tuple(one) if isinstance(one, list) else one for one in args], **kwargs)

        return passed_on_to_framework

    for holder, name, function in known:
        setattr(holder, name, joining(function))
    try:
        yield
    finally:
        for holder, name, function in known:
            setattr(holder, name, function)


def operators_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of an operator: those of older primitives come as (primitive, name, arguments)."""
    return args[2] if len(args) == 3 and isinstance(args[1], str) and isinstance(args[2], tuple) else args


def elementwise_functions() -> Mapping[str, Callable[[Array], Array]]:
    """Its own functions by name."""
    return {name: partial(_apply, name) for name in NAMES}


def _apply(name: str, values: Array) -> Array:
    """Run one; what is not float32 or float16 is computed in float32, as most kernels do."""
    import mindspore
    import numpy as np

    own = values if values.dtype.name in ("float16", "float32", "float64") else values.astype(np.float32)
    answer: Array = getattr(mindspore.ops, name)(mindspore.Tensor(own)).asnumpy()
    return answer.astype(values.dtype)
