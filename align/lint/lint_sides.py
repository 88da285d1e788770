"""A side of a lint: a model, an optimizer with its schedulers, a loss, or several of them at once."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from align.core.protocols import OptimizerReader, SettingsReader
from align.core.registry import check_packages, file_models, model_readers
from align.errors import CannotRunError, SideError
from align.models.open_side import Side, build_side
from align.models.user_code import find_function, load_function
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.layer_settings import LayerSettings
    from align.core.protocols import Model


@dataclass(frozen=True, slots=True)
class OptimizerSide:
    """A live optimizer, the living model that holds its parameters, and the schedulers that change its rates."""

    optimizer: Model
    reader: OptimizerReader
    model: Side | None = None
    schedulers: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class LintSide:
    """What a side gave: any of these parts, and the function that made them, if one did."""

    label: str
    model: Side | None = None
    optimizer: OptimizerSide | None = None
    loss: Side | None = None
    factory: object = None

    @property
    def parts(self) -> dict[str, object]:
        """The parts that are there, by what they are called."""
        own = {"a model": self.model, "an optimizer": self.optimizer, "a loss": self.loss}
        return {name: part for name, part in own.items() if part is not None}


def open_lint_side(side: str | Model | Side) -> LintSide:
    """Build (or take) what is compared; of several things in a tuple, list or mapping those that are known.

    Models that the function makes are kept until the one that an optimizer's parameters belong to is found. Raises
    SideError if nothing of it is known, and what `build_side` raises.
    """
    if not isinstance(side, str):
        return _sorted_out(type(side).__name__ if not isinstance(side, Side) else side.label, side, {})
    if file_models(side) is not None:
        raise CannotRunError.of("lint_usage.no_layers", name=side)
    function = load_function(side)
    opened = _called(side, function)
    fresh = opened.optimizer is not None and opened.optimizer.model is None
    return _called(side, function) if fresh else opened  # the framework may have been imported by the call


def settings_reader(side: Side) -> SettingsReader:
    """The adapter as a reader of settings; raises CannotRunError if its framework has none."""
    if isinstance(side.reader, SettingsReader):
        return side.reader
    raise CannotRunError.of("lint_usage.no_settings", name=side.reader.name)


def is_loss(classes: Sequence[str]) -> bool:
    """Tell by the names of a class and its bases whether it is a loss."""
    names = [name.rpartition(".")[2].lower() for name in classes]
    return any(name.endswith(("loss", "lossbase", "withlogits")) for name in names)


def root_settings(side: Side) -> LayerSettings:
    """The settings of the module itself."""
    return settings_reader(side).read_settings(side.model)[0]


def _called(label: str, function: Callable[[], Any]) -> LintSide:
    with ExitStack() as stack:
        kept = {reader.name: stack.enter_context(reader.keep_alive()) for reader in _readers()}
        return replace(_sorted_out(label, function(), kept), factory=find_function(label))


def _readers() -> list[OptimizerReader]:
    return [reader for reader in model_readers().values() if isinstance(reader, OptimizerReader)]


def _sorted_out(label: str, made: Any, kept: Mapping[str, list[object]]) -> LintSide:
    several = isinstance(made, (tuple, list, dict))
    items = list(made.values()) if isinstance(made, dict) else list(made) if several else [made]
    modules, optimizer = _Modules(label), None
    for item in items:
        found = _optimizer(item)
        if found is None:
            modules.add(item, several=several)
        else:
            optimizer = optimizer or found
    own = None if optimizer is None else _opened(optimizer, modules.model, items, kept)
    side = LintSide(label, modules.model, own, modules.loss)
    if not side.parts:
        raise SideError(label, say("lint_usage.nothing_known"))
    return side


def _opened(
    found: tuple[Model, OptimizerReader], model: Side | None, items: list[Any], kept: Mapping[str, list[object]]
) -> OptimizerSide:
    """An optimizer with its schedulers, and the model that is given or else the one that its parameters belong to."""
    own, reader = found
    check_packages(reader)
    made = kept.get(reader.name, [])
    schedulers = [item for item in items if reader.optimizer_of(item) is own] or reader.schedulers_of(own, made)
    live = model.model if model else reader.model_of(own, made)
    return OptimizerSide(own, reader, None if live is None else build_side(live), tuple(schedulers))


def _optimizer(item: Any) -> tuple[Model, OptimizerReader] | None:
    """The optimizer that something is, that a scheduler belongs to, or that a cell of a whole training step holds."""
    held = getattr(item, "optimizer", None)
    for reader in _readers():
        for one in (item, held):
            if one is not None and reader.is_optimizer(one):
                return one, reader
        if (own := reader.optimizer_of(item)) is not None:
            return own, reader
    return None


@dataclass(slots=True)
class _Modules:
    """The model and the loss among what a side gave."""

    label: str
    model: Side | None = None
    loss: Side | None = None
    _known: list[Any] = field(default_factory=list)

    def add(self, item: Any, *, several: bool) -> None:
        """Take a module; alone, anything else is an error."""
        owned = any(reader.owns(item) for reader in model_readers().values())
        if several and not owned:
            return
        opened = build_side(item) if isinstance(item, Side) or owned else build_side(_refused(self.label, item))
        side = opened if isinstance(item, Side) else Side(self.label, opened.model, opened.reader)
        if isinstance(side.reader, SettingsReader) and is_loss(root_settings(side).classes):
            self.loss = self.loss or side
        elif self.model is None:
            self.model = side
        else:
            self._add_beside(self.model, side)

    def _add_beside(self, model: Side, other: Side) -> None:
        """Of two modules the one without parameters is a loss, whatever users call it."""
        if _is_bare(model) and not _is_bare(other):
            self.model, self.loss = other, self.loss or model
        elif _is_bare(other) and not _is_bare(model):
            self.loss = self.loss or other


def _is_bare(side: Side) -> bool:
    return not side.reader.read_parameters(side.model, side.label).parameters


def _refused(label: str, item: Any) -> Any:
    expected = " or ".join(reader.summary for reader in model_readers().values())
    raise SideError(label, say("lint_usage.other_value", kind=type(item).__name__, expected=expected))
