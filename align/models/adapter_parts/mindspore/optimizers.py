"""Optimizers of MindSpore: the settings that are in force for each parameter, and its learning rate step by step.

`mindspore.nn` keeps settings parameter by parameter, the decay of weights times the loss scale; without groups it
decays no parameter that has `beta` or `gamma` in its name. Those that are treated alike are put into one group here.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.align_sequences import grouped
from align.core.protocols import (
    LayerSettings,
    LearningRates,
    ParameterGroup,
    group_paths,
    plain_settings,
    weights_as_setting,
)
from align.core.thresholds import FLOAT32_ROUNDING
from align.errors import CannotRunError, UserCodeError
from align.models.adapter_parts.mindspore.layers import to_array
from align.models.adapter_parts.step_calls import largest_step, scheduled_rates
from align.models.live_calls import living_objects
from align.models.user_code import run_user_code
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from align.core.parameters import Array
    from align.core.protocols import Model, Setting


OWN_STATE = ("group_", "decay_flags", "dynamic_", "is_group", "param_length", "need_scale", "optim_filter")
HORIZONS = ("total_steps", "total_step", "max_steps")  # as users call the length of their schedules
COMPUTED = sentence("optimizer_note.computed", name="weight_decay")
CENTRALISED = sentence("optimizer_note.no_rule", setting="grad_centralization=True")
PLATEAU = "ReduceLROnPlateau"


class MindSporeOptimizers:
    """The part of the adapter that reads optimizers; see OptimizerReader."""

    def is_optimizer(self, model: Model) -> bool:
        """Tell whether it is an optimizer of mindspore.nn, mint or experimental."""
        mindspore = sys.modules.get("mindspore")
        if mindspore is None:
            return False
        return isinstance(model, (mindspore.nn.Optimizer, mindspore.experimental.optim.Optimizer))

    def optimizer_of(self, scheduler: object) -> Model | None:
        """Return the optimizer whose rates a scheduler changes, None for what is no scheduler."""
        if not any(cls.__module__ == "mindspore.experimental.optim.lr_scheduler" for cls in type(scheduler).__mro__):
            return None
        return getattr(scheduler, "optimizer", None)

    @contextmanager
    def keep_alive(self) -> Iterator[list[object]]:
        """Keep all cells that are made meanwhile, which the maker may not keep."""
        kept: list[object] = []
        mindspore = sys.modules.get("mindspore")
        if mindspore is None:
            yield kept
            return
        initialise = mindspore.nn.Cell.__init__

        def noted(cell: Any, *args: Any, **kwargs: Any) -> None:
            kept.append(cell)
            initialise(cell, *args, **kwargs)

        mindspore.nn.Cell.__init__ = noted
        try:
            yield kept
        finally:
            mindspore.nn.Cell.__init__ = initialise

    def model_of(self, optimizer: Model, kept: Sequence[Any]) -> Model | None:
        """Return the largest cell that holds all parameters of an optimizer, and no optimizer."""
        import mindspore

        wanted = {id(one) for one in _parameters(optimizer)}
        return self._largest(kept, wanted) or self._largest(living_objects(mindspore.nn.Cell), wanted)

    def schedulers_of(self, optimizer: Model, kept: Sequence[object]) -> list[Any]:  # noqa: ARG002 - those are no cells
        """Return the living schedulers of an optimizer, which those of `mindspore.nn` do not have."""
        return living_schedulers(optimizer)

    def _largest(self, cells: Sequence[Any], wanted: set[int]) -> Model | None:
        found = [one for one in cells if wanted <= {id(parameter) for parameter in one.get_parameters()}]
        found = [one for one in found if not any(map(self.is_optimizer, _cells(one)))]
        return max(found, key=lambda one: sum(1 for _ in _cells(one)), default=None)

    def read_moments(self, optimizer: Model, model: Model) -> Iterator[tuple[str, str, Array]]:
        """Read the state of an optimizer; see MomentReader. A moment is called `moment1.` and as its parameter."""
        own = {one.name: one for one in model.get_parameters()}
        for state in optimizer.get_parameters():
            moment, parameter = _parameter_behind(state.name, own)
            if parameter and state is not own.get(state.name) and state.shape == own[parameter].shape:
                yield parameter, moment, to_array(state)

    def read_groups(
        self,
        optimizer: Model,
        model: Model | None,  # noqa: ARG002 - parameters have names of their own
        schedulers: Sequence[Any],
        steps: int,
    ) -> list[ParameterGroup]:
        """Read the groups of an optimizer; see OptimizerReader."""
        listed = isinstance(getattr(optimizer, "param_groups", None), list)
        groups = _listed_groups(optimizer, schedulers, steps) if listed else _gathered_groups(optimizer, steps)
        classes = public_classes(type(optimizer))
        return [replace(one, settings=replace(one.settings, classes=classes)) for one in groups]


def _parameter_behind(name: str, own: Collection[str]) -> tuple[str, str]:
    """Split the name of a state before the longest name of a parameter that it ends with; "" for none."""
    places = [place for place, letter in enumerate(name) if letter == "."]
    found = ((name[:place], name[place + 1 :]) for place in places if name[place + 1 :] in own)
    return next(found, (name, ""))


def _parameters(optimizer: Any) -> list[Any]:
    groups = getattr(optimizer, "param_groups", None)
    if isinstance(groups, list):
        return [one for group in groups for one in group["params"]]
    return list(optimizer.parameters)


def _cells(cell: Any) -> Iterator[Any]:
    return (inner for _, inner in cell.cells_and_names())


def _group(path: str, values: dict[str, Setting], own: Sequence[Any], rates: LearningRates) -> ParameterGroup:
    trained = [one for one in own if one.requires_grad]
    return ParameterGroup(LayerSettings(path, (), values), tuple(one.name for one in trained), len(trained), rates)


# Groups that the optimizer lists, as torch does.


def _listed_groups(optimizer: Any, schedulers: Sequence[Any], steps: int) -> list[ParameterGroup]:
    rates = _stepped(optimizer, schedulers, steps)
    paths = group_paths(len(rates))
    groups = []
    for path, group, own in zip(paths, optimizer.param_groups, rates, strict=True):
        values = plain_settings({key: plain_value(value) for key, value in group.items()})
        groups.append(_group(path, _with_rate(values, "lr", own), group["params"], own))
    return groups


def _with_rate(values: dict[str, Setting], name: str, rates: LearningRates) -> dict[str, Setting]:
    rest = {key: value for key, value in values.items() if key != name}
    return rest if rates.scheduled else {**rest, name: rates.at(0)}


def _stepped(optimizer: Any, schedulers: Sequence[Any], steps: int) -> list[LearningRates]:
    """The rates under schedulers of `experimental.optim`, which are put back behind the last step."""
    groups = optimizer.param_groups
    if not schedulers:
        return [LearningRates((_float32_number(group["lr"]),)) for group in groups]
    if any(PLATEAU in type(one).__name__ for one in schedulers):
        return [LearningRates(problem=sentence("optimizer_note.follows_metric", name=PLATEAU)) for _ in groups]
    with schedules_put_back(optimizer, schedulers):
        return scheduled_rates(schedulers, lambda: _rates_by_step(groups, schedulers, steps))


def _rates_by_step(groups: Sequence[Any], schedulers: Sequence[Any], steps: int) -> list[list[float]]:
    values: list[list[float]] = [[] for _ in groups]
    for _ in range(steps):
        for own, group in zip(values, groups, strict=True):
            own.append(_float32_number(group["lr"]))
        for one in schedulers:
            one.step()
    return values


def living_schedulers(optimizer: Any) -> list[Any]:
    """The living schedulers of an optimizer of `experimental.optim`, whose first rate the first of them notes there."""
    import mindspore

    if not any("initial_lr" in group for group in getattr(optimizer, "param_groups", ())):
        return []
    living = living_objects(mindspore.experimental.optim.lr_scheduler.LRScheduler)
    return [one for one in living if getattr(one, "optimizer", None) is optimizer]


def step_schedulers(schedulers: Sequence[Any]) -> None:
    """Step schedulers of `experimental.optim` once, but for what follows a metric."""
    for one in schedulers:
        if type(one).__name__ != PLATEAU:
            one.step()


@contextmanager
def schedules_put_back(optimizer: Any, schedulers: Sequence[Any]) -> Iterator[None]:
    """Put rates and schedulers back at the end."""
    import mindspore

    rates = [
        value
        for scheduler in schedulers
        for value in vars(scheduler).values()
        if isinstance(value, mindspore.Parameter)
    ]
    tensors = {id(tensor): tensor for tensor in (*optimizer.lrs, *rates)}.values()
    before = [(tensor, tensor.asnumpy().copy()) for tensor in tensors]
    attributes = [(scheduler, dict(vars(scheduler))) for scheduler in schedulers]
    try:
        yield
    finally:
        for scheduler, values in attributes:
            vars(scheduler).update(values)
        for tensor, value in before:
            tensor.set_data(mindspore.Tensor(value))


def rates_of(optimizer: Any) -> list[Any]:
    """Return the tensors that hold the learning rates of an optimizer.

    Raises CannotRunError where a cell computes them from the step.
    """
    import mindspore

    groups = getattr(optimizer, "param_groups", None)
    if isinstance(groups, list):
        return [group["lr"] for group in groups]
    sources = _rate_sources(optimizer)
    held = [getattr(one, "learning_rate", None) if isinstance(one, mindspore.nn.Cell) else one for one in sources]
    if any(not isinstance(one, mindspore.Tensor) for one in held):
        raise CannotRunError.of("optimizer_fault.computed_rate")
    return list({id(one): one for one in held}.values())


def rates_at_step(optimizer: Any) -> dict[int, float]:
    """The rate of the next update by a parameter's place; those that are not told are left out.

    A schedule is called with the step that the optimizer counts, which calling the optimizer's own `get_lr` would move.
    """
    import mindspore

    groups = getattr(optimizer, "param_groups", None)
    if isinstance(groups, list):
        rates = [_float32_number(group["lr"]) for group in groups for _ in group["params"]]
        return dict(enumerate(rates))
    step = getattr(optimizer, "global_step", None)
    known: dict[int, float | None] = {}
    for source in _rate_sources(optimizer):
        if id(source) in known:
            continue
        kept = getattr(source, "learning_rate", None)
        if not isinstance(source, mindspore.nn.Cell):
            known[id(source)] = _float32_number(source)
        elif isinstance(kept, mindspore.Tensor) and kept.ndim and step is not None:
            known[id(source)] = float(kept.asnumpy()[min(int(step), kept.shape[0] - 1)])
        elif isinstance(kept, mindspore.Tensor) and not kept.ndim:
            known[id(source)] = _float32_number(kept)
        else:
            known[id(source)] = None if step is None else float(source(step).asnumpy().reshape(-1)[0])
    rates_by_place = {place: known[id(source)] for place, source in enumerate(_rate_sources(optimizer))}
    return {place: rate for place, rate in rates_by_place.items() if rate is not None}


# Settings that the optimizer keeps parameter by parameter.


def _gathered_groups(optimizer: Any, steps: int) -> list[ParameterGroup]:
    kept = {**plain_settings(getattr(optimizer, "init_args", {})), **cell_settings(optimizer)}
    values = {name: value for name, value in kept.items() if not name.startswith(OWN_STATE)}
    sources = _rate_sources(optimizer)
    known = {id(source): _rates(source, steps) for source in sources}
    treated = zip(_decays(optimizer), _centralised(optimizer), map(id, sources), strict=True)
    alike = grouped(zip(treated, optimizer.parameters, strict=True))
    groups = []
    for path, ((decay, central, source), members) in zip(_paths(optimizer, len(alike)), alike.items(), strict=True):
        settings = _with_rate({**values, "grad_centralization": central}, "learning_rate", known[source])
        settings = {name: value for name, value in settings.items() if name != "weight_decay"}
        if decay is not None:
            settings["weight_decay"] = decay
        problems = [text for text, holds in ((COMPUTED, decay is None), (CENTRALISED, central)) if holds]
        groups.append(replace(_group(path, settings, members, known[source]), problems=tuple(problems)))
    return groups


def _paths(optimizer: Any, count: int) -> Sequence[str]:
    """Names of groups; without groups of the user's, a second one is what has `beta` or `gamma` in its name."""
    return group_paths(count) if optimizer.is_group or count == 1 else _unasked_paths(optimizer)


def _unasked_paths(optimizer: Any) -> Sequence[str]:
    names = ("", sentence("optimizer_note.beta_and_gamma"))
    return names if optimizer.decay_flags[0] else tuple(reversed(names))


def _decays(optimizer: Any) -> list[float | None]:
    """The decay of each parameter, None where a cell computes it step by step."""
    count = len(optimizer.parameters)
    given = optimizer.weight_decay if optimizer.is_group else [optimizer.weight_decay] * count
    scale = float(optimizer.loss_scale)
    pairs = zip(given, optimizer.decay_flags, strict=True)
    return [_decay(one, scale) if flag else 0.0 for one, flag in pairs]


def _decay(value: Any, scale: float) -> float | None:
    import mindspore

    return None if isinstance(value, mindspore.nn.Cell) else _digits(_float32_number(value) / scale)


def _rate_sources(optimizer: Any) -> list[Any]:
    """What gives each parameter its rate: a parameter of one number, or a cell that is called with the step."""
    count = len(optimizer.parameters)
    return list(optimizer.learning_rate) if optimizer.is_group_lr else [optimizer.learning_rate] * count


def _centralised(optimizer: Any) -> list[bool]:
    flags = getattr(optimizer, "grad_centralization_flags", None)
    return list(flags) if flags else [False] * len(optimizer.parameters)


def _rates(source: Any, steps: int) -> LearningRates:
    import mindspore

    if not isinstance(source, mindspore.nn.Cell):
        return LearningRates((_float32_number(source),))
    kept = getattr(source, "learning_rate", None)
    if isinstance(kept, mindspore.Tensor):  # what MindSpore wraps a list of rates, or a single one, into
        listed = kept.asnumpy().reshape(-1)
        values = tuple(map(_digits, listed[:steps]))
        if kept.ndim == 0:
            return LearningRates(values)
        return LearningRates(values, len(listed), by=sentence("optimizer_note.list_of_rates"))
    by = type(source).__name__
    values = run_user_code(
        lambda: _called(source, steps), lambda error: UserCodeError(say("model_error.calling", schedule=by), error)
    )
    return LearningRates(values, _end(source), by=by, reach=largest_step(_cells(source)))


def _end(schedule: Any) -> int | None:
    """The number of steps that a schedule is made for, None where it has no end."""
    found = [getattr(cell, name, None) for cell in _cells(schedule) for name in _lengths(cell)]
    return max((one for one in found if isinstance(one, int) and one > 0), default=None)


def _lengths(schedule: Any) -> tuple[str, ...]:
    """The attributes that hold a length: `decay_steps` is one of those that come to an end, else it is a period."""
    from mindspore import nn

    cycles = getattr(schedule, "update_decay_steps", False)
    ends = isinstance(schedule, (nn.CosineDecayLR, nn.PolynomialDecayLR)) and not cycles
    return (*HORIZONS, "decay_steps") if ends else HORIZONS


def _called(schedule: Any, steps: int) -> tuple[float, ...]:
    """Call a schedule on all steps at once, or one by one where that gives something else."""
    import mindspore

    def one(step: int) -> float:
        return _float32_number(schedule(mindspore.Tensor([step], mindspore.int32)))

    try:
        at_once = schedule(mindspore.Tensor(np.arange(steps), mindspore.int32)).asnumpy().reshape(-1)
    except (RuntimeError, TypeError, ValueError):
        at_once = np.zeros(0)
    few = sorted({0, 1, steps // 2, steps - 1} & set(range(steps)))
    alone = [one(step) for step in few] if at_once.shape == (steps,) else []
    if alone and np.allclose(alone, at_once[few], rtol=FLOAT32_ROUNDING, atol=0):
        return tuple(map(_digits, at_once))
    return tuple(map(one, range(steps)))


def _float32_number(value: Any) -> float:
    """A number in the digits of float32, in which MindSpore keeps them."""
    return _digits(value.asnumpy().reshape(-1)[0] if hasattr(value, "asnumpy") else value)


def _digits(value: Any) -> float:
    return float(f"{float(value):.7g}")


# Settings of live MindSpore cells and optimizers.
#
# Some cells keep a setting only in an operator that they built from it, which is where it counts: changing the cell's
# attribute later would do nothing.


def cell_settings(cell: Model) -> dict[str, Setting]:
    """Settings of a cell: its attributes and its operators'; a parameter is True, a tensor of one number that."""
    import mindspore

    settings: dict[str, object] = {}
    for name, value in vars(cell).items():
        if isinstance(value, mindspore.ops.Primitive):
            settings |= {f"{name}.{key}": item for key, item in plain_settings(vars(value)).items()}
        elif _is_loss(cell) and isinstance(value, mindspore.Tensor) and value.ndim:
            settings[name] = weights_as_setting(value.float().asnumpy())
        else:
            settings[name] = plain_value(value)
    own = cell.parameters_and_names(expand=False)
    return plain_settings({**settings, **{name.rpartition(".")[2]: plain_value(value) for name, value in own}})


def _is_loss(cell: Model) -> bool:
    import mindspore

    mint = sys.modules["mindspore.mint.nn"]
    return isinstance(cell, mindspore.nn.LossBase) or (
        type(cell).__name__.endswith("Loss") and getattr(mint, type(cell).__name__, None) is type(cell)
    )


def public_classes(cls: type) -> tuple[str, ...]:
    """Names of the class and its bases below nn.Cell, as users write them."""
    import mindspore

    public = _public_names()
    bases = [base for base in cls.__mro__ if issubclass(base, mindspore.nn.Cell) and base is not mindspore.nn.Cell]
    return tuple(public.get(base, f"{base.__module__}.{base.__qualname__}") for base in bases)


def plain_value(value: Any) -> object:
    """Return an attribute as a plain value: a tensor of one number that, another True, an initializer as code."""
    import mindspore

    if isinstance(value, mindspore.common.initializer.Initializer):
        return _initializer(value)
    if not isinstance(value, mindspore.Tensor):
        return value
    single = value.size == 1 and (value.ndim == 0 or not isinstance(value, mindspore.Parameter))
    return _plain_number(value.asnumpy().reshape(())[()]) if single and value.dtype != mindspore.bfloat16 else True


def _plain_number(value: Any) -> object:
    """A number of an array in the digits of its own precision: 1e-5 of float32, not 9.99999974e-06."""
    return float(str(value)) if value.dtype.kind == "f" else value.item()


def _initializer(value: Any) -> str:
    """Write an initializer as code would: `Normal(sigma=0.01, mean=0)`."""
    settings = plain_settings(vars(value)).items()
    written = (f"{name}={item:g}" if isinstance(item, float) else f"{name}={item}" for name, item in settings)
    return f"{type(value).__name__}({', '.join(written)})"


@cache
def _public_names() -> dict[type, str]:
    import mindspore

    names: dict[type, str] = {}
    spaces = {
        "nn": mindspore.nn, "mint.nn": mindspore.mint.nn, "mint.optim": mindspore.mint.optim,
        "experimental.optim": mindspore.experimental.optim,
    }  # fmt: skip
    for prefix, space in ((f"mindspore.{name}", space) for name, space in spaces.items()):
        for name in sorted(vars(space)):
            value = getattr(space, name)
            if isinstance(value, type) and issubclass(value, mindspore.nn.Cell):
                names.setdefault(value, f"{prefix}.{name}")
    return names
