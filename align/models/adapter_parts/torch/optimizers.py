"""Optimizers of torch: their groups by name, and the learning rates that a scheduler gives them step by step.

A factory may hand out the optimizer alone, whose parameters have no names: the model that holds them is kept alive
while the factory runs, and found among all living objects.
"""

from __future__ import annotations

import copy
import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from align.core.protocols import (
    LayerSettings,
    LearningRates,
    ParameterGroup,
    group_paths,
    plain_settings,
    weights_as_setting,
)
from align.errors import UserCodeError
from align.models.adapter_parts.step_calls import largest_step, scheduler_end, scheduler_parts
from align.models.adapter_parts.torch.state import to_array
from align.models.live_calls import living_objects
from align.models.user_code import run_user_code
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from align.core.dtypes import Array
    from align.core.protocols import Model, Setting


CYCLED = ("momentum", "betas", "weight_decay")


class TorchOptimizers:
    """The part of the adapter that reads optimizers; see OptimizerReader."""

    def is_optimizer(self, model: Model) -> bool:
        """Tell whether it is a torch.optim.Optimizer."""
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(model, torch.optim.Optimizer)

    def optimizer_of(self, scheduler: object) -> Model | None:
        """Return the optimizer whose rates a scheduler changes, None for what is no scheduler."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
            return None
        return getattr(scheduler, "optimizer", None)

    @contextmanager
    def keep_alive(self) -> Iterator[list[object]]:
        """Keep all modules and schedulers that are made meanwhile, which the maker may not keep."""
        kept: list[object] = []
        if "torch" not in sys.modules:
            yield kept
            return
        from torch.nn.modules import module
        from torch.optim.lr_scheduler import LRScheduler

        initial_step = LRScheduler._initial_step  # noqa: SLF001 - called once by each scheduler, when it is made

        def noted(scheduler: Any) -> None:
            kept.append(scheduler)
            initial_step(scheduler)

        LRScheduler._initial_step = noted  # noqa: SLF001
        handle = module.register_module_parameter_registration_hook(lambda owner, *_: kept.append(owner))
        inner = module.register_module_module_registration_hook(lambda owner, *_: kept.append(owner))
        try:
            yield kept
        finally:
            handle.remove()
            inner.remove()
            LRScheduler._initial_step = initial_step  # noqa: SLF001

    def model_of(self, optimizer: Model, kept: Sequence[object]) -> Model | None:
        """Return the largest module that holds all parameters of an optimizer, None if there is none."""
        import torch

        wanted = {id(one) for group in optimizer.param_groups for one in group["params"]}
        return _largest(_distinct(kept), wanted) or _largest(living_objects(torch.nn.Module), wanted)

    def schedulers_of(self, optimizer: Model, kept: Sequence[object]) -> list[Any]:
        """Return the living schedulers of an optimizer, without those that others hold."""
        return _outermost(schedulers_of(optimizer, kept))

    def read_moments(self, optimizer: Model, model: Model) -> Iterator[tuple[str, str, Array]]:
        """Read the state of an optimizer; see MomentReader."""
        import torch

        names = _names(optimizer, model)
        for one in (one for group in optimizer.param_groups for one in group["params"] if id(one) in names):
            for moment, value in optimizer.state.get(one, {}).items():
                if moment != "step" and torch.is_tensor(value) and value.shape == one.shape:
                    yield names[id(one)], moment, to_array(value)

    def read_groups(
        self, optimizer: Model, model: Model | None, schedulers: Sequence[object], steps: int
    ) -> list[ParameterGroup]:
        """Read the groups of an optimizer; see OptimizerReader."""
        names = _names(optimizer, model)
        rates, changed = _sampled(optimizer, _outermost(schedulers), steps)
        settings = group_settings(optimizer)
        groups = []
        for own, group, rate in zip(settings, optimizer.param_groups, rates, strict=True):
            trained = [one for one in group["params"] if one.requires_grad]
            named = tuple(names[id(one)] for one in trained) if all(id(one) in names for one in trained) else None
            problems = tuple(sentence("optimizer_note.changed", name=name) for name in sorted(changed))
            groups.append(ParameterGroup(_without(own, changed), named, len(trained), rate, problems))
        return groups


def schedulers_of(optimizer: Model, kept: Sequence[object] = ()) -> list[Any]:
    """Return all living schedulers of an optimizer, those too that others hold."""
    from torch.optim.lr_scheduler import LRScheduler

    def own(objects: Iterable[object]) -> list[Any]:
        return [one for one in objects if isinstance(one, LRScheduler) and one.optimizer is optimizer]

    scheduled = any("initial_lr" in group for group in optimizer.param_groups)
    return own(_distinct(kept)) or (own(living_objects(LRScheduler)) if scheduled else [])


def step_schedulers(schedulers: Sequence[Any]) -> None:
    """Step schedulers once, but those that others hold, and what follows a metric."""
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    for one in _outermost(schedulers):
        if not isinstance(one, ReduceLROnPlateau):
            one.step()


def set_rates_zero(optimizer: Model) -> None:
    """Set the learning rates of all groups to 0, in the form in which each is held."""
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * 0


def _distinct(objects: Sequence[object]) -> list[Any]:
    return list({id(one): one for one in objects}.values())


def _largest(objects: Sequence[Any], wanted: set[int]) -> Model | None:
    """The module of most modules that holds all parameters; what was not initialised has none yet."""
    modules = [one for one in objects if "_parameters" in vars(one)]
    found = [one for one in modules if wanted <= set(map(id, one.parameters()))]
    return max(found, key=lambda one: sum(1 for _ in one.modules()), default=None)


def _names(optimizer: Model, model: Model | None) -> dict[int, str]:
    """The names of parameters by identity: in the model, or else as they were given to the optimizer."""
    if model is not None:
        return {id(one): name for name, one in reversed(list(model.named_parameters(remove_duplicate=False)))}
    groups = [group for group in optimizer.param_groups if "param_names" in group]
    return {id(one): name for group in groups for name, one in zip(group["param_names"], group["params"], strict=True)}


def _without(settings: LayerSettings, names: set[str]) -> LayerSettings:
    values = {name: value for name, value in settings.values.items() if name not in names}
    return LayerSettings(settings.path, settings.classes, values)


def _outermost(schedulers: Sequence[Any]) -> list[Any]:
    """Those that no other holds, as SequentialLR holds its parts."""
    held = {id(one) for each in schedulers for one in scheduler_parts(each)}
    return [one for one in schedulers if id(one) not in held]


def _sampled(optimizer: Any, schedulers: Sequence[Any], steps: int) -> tuple[list[LearningRates], set[str]]:
    """The rates of each group, step by step, on a copy; and which other settings the schedulers change."""
    groups = optimizer.param_groups
    if problem := _problem(optimizer, schedulers):
        return [LearningRates(problem=problem) for _ in groups], set()
    if not schedulers:
        return [LearningRates((float(group["lr"]),)) for group in groups], set()
    known = max(map(scheduler_end, schedulers), default=0) or None
    kinds = sorted({type(one).__name__ for one in schedulers})
    by = " and ".join(kinds)
    length = min([steps, *(scheduler_end(one) for one in schedulers if _stops(one))])
    values, changed = run_user_code(
        lambda: _stepped(_copies(optimizer, schedulers), length),
        lambda error: UserCodeError(say("model_error.stepping", schedulers=kinds), error),
    )
    reach = largest_step(schedulers)
    return [LearningRates(tuple(own), known, by=by, reach=reach) for own in values], changed


def _stops(scheduler: Any) -> bool:
    """Tell whether a scheduler, or the last of its parts, cannot be stepped behind its end."""
    parts = scheduler_parts(scheduler)
    return _stops(parts[-1]) if parts else type(scheduler).__name__ == "OneCycleLR"


def _problem(optimizer: Any, schedulers: Sequence[Any]) -> str:
    from torch.optim.lr_scheduler import ReduceLROnPlateau

    if any(isinstance(one, ReduceLROnPlateau) for one in schedulers):
        return sentence("optimizer_note.follows_metric", name="ReduceLROnPlateau")
    if not schedulers and any("initial_lr" in group for group in optimizer.param_groups):
        return sentence("optimizer_note.scheduler_not_given")
    return ""


def _copies(optimizer: Any, schedulers: Sequence[Any]) -> list[Any]:
    """Copies of the schedulers, with an optimizer of their own that shares parameters and state."""
    shared = [one for group in optimizer.param_groups for one in group["params"]]
    memo: dict[int, object] = {id(one): one for one in (*shared, optimizer.state)}
    return [copy.deepcopy(one, memo) for one in schedulers]


def _stepped(schedulers: Sequence[Any], steps: int) -> tuple[list[list[float]], set[str]]:
    groups = schedulers[0].optimizer.param_groups
    first = [{name: group.get(name) for name in CYCLED} for group in groups]
    values: list[list[float]] = [[] for _ in groups]
    changed: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no step of the optimizer stands between those of its schedulers
        for step in range(steps):
            for own, group, start in zip(values, groups, first, strict=True):
                own.append(float(group["lr"]))
                changed |= {name for name in CYCLED if group.get(name) != start[name]}
            if step + 1 < steps:
                for one in schedulers:
                    one.step()
    return values, changed


# Settings of live torch modules and optimizers.


def module_settings(module: Model) -> dict[str, Setting]:
    """Settings of one module; a registered parameter is True if it is there and None if it is not."""
    parameters = vars(module).get("_parameters", {})
    present = {name: None if value is None else True for name, value in parameters.items()}
    return plain_settings({**vars(module), **present, **_weights(module)})


def public_classes(cls: type) -> tuple[str, ...]:
    """Names of the class and its bases below torch.nn.Module, as `torch.nn.X` where that is the class."""
    from torch import nn

    bases = [base for base in cls.__mro__ if issubclass(base, nn.Module) and base is not nn.Module]
    return tuple(
        f"torch.nn.{base.__name__}"
        if getattr(nn, base.__name__, None) is base
        else f"{base.__module__}.{base.__qualname__}"
        for base in bases
    )


def group_settings(optimizer: Model) -> list[LayerSettings]:
    """Settings of each group of parameters of an optimizer."""
    classes = tuple(_optimizer_name(cls) for cls in type(optimizer).__mro__ if _is_optimizer(cls))
    groups = [{key: _number(value) for key, value in group.items()} for group in optimizer.param_groups]
    paths = group_paths(len(groups))
    return [LayerSettings(path, classes, plain_settings(group)) for path, group in zip(paths, groups, strict=True)]


def _weights(module: Model) -> dict[str, Setting]:
    from torch.nn.modules.loss import _Loss

    buffers = vars(module).get("_buffers", {}) if isinstance(module, _Loss) else {}
    values = {name: None if value is None else to_array(value) for name, value in buffers.items()}
    return {name: weights_as_setting(value) for name, value in values.items()}


def _is_optimizer(cls: type) -> bool:
    import torch

    return issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer


def _optimizer_name(cls: type) -> str:
    import torch

    public = getattr(torch.optim, cls.__name__, None) is cls
    return f"torch.optim.{cls.__name__}" if public else f"{cls.__module__}.{cls.__qualname__}"


def _number(value: Any) -> object:
    """A learning rate may be a tensor of one number."""
    import torch

    return value.item() if torch.is_tensor(value) and value.numel() == 1 else value
