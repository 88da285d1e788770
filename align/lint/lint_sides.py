"""A side of a lint: a model, an optimizer with its schedulers, a loss, or several of them at once."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.core.load_code import check_packages, file_models, model_readers
from align.core.protocols import OptimizerReader, SettingsReader, plain_settings
from align.errors import CannotRunError, SideError
from align.lint.compare_settings import ComparedPart, LayerPair, SettingFinding, compare_settings
from align.models.live_calls import FRAMEWORKS
from align.models.open_side import Side, build_side
from align.models.user_code import find_function, load_function
from align.rules.pitfalls import Examples, Form, Pitfall, equal_settings, pitfalls
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.protocols import LayerSettings, Model, Setting


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
        recognised = _optimizer(item)
        if recognised is None:
            modules.add(item, several=several)
        else:
            optimizer = optimizer or recognised
    optimizer_side = None if optimizer is None else _opened(optimizer, modules.model, items, kept)
    side = LintSide(label, modules.model, optimizer_side, modules.loss)
    if not side.parts:
        raise SideError(label, say("lint_usage.nothing_known"))
    return side


def _opened(
    recognised: tuple[Model, OptimizerReader], model: Side | None, items: list[Any], kept: Mapping[str, list[object]]
) -> OptimizerSide:
    """An optimizer with its schedulers, and the model that is given or else the one that its parameters belong to."""
    optimizer, reader = recognised
    check_packages(reader)
    objects = kept.get(reader.name, [])
    schedulers = [item for item in items if reader.optimizer_of(item) is optimizer] or reader.schedulers_of(
        optimizer, objects
    )
    live = model.model if model else reader.model_of(optimizer, objects)
    return OptimizerSide(optimizer, reader, None if live is None else build_side(live), tuple(schedulers))


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
        """Take the one of two modules that has no parameters for a loss, whatever users call it."""
        bare, other_bare = (
            not side.reader.read_parameters(side.model, side.label).parameters for side in (model, other)
        )
        if bare and not other_bare:
            self.model, self.loss = other, self.loss or model
        elif other_bare and not bare:
            self.loss = self.loss or other


def _refused(label: str, item: Any) -> Any:
    expected = " or ".join(reader.summary for reader in model_readers().values())
    raise SideError(label, say("lint_usage.other_value", kind=type(item).__name__, expected=expected))


# Two losses compared: what they compute, every setting of theirs that a rule knows, and which it does not.

TOPIC, REDUCTION = "losses", "loss-reduction"
FAMILIES = ("torch.nn.", "mindspore.nn.", "mindspore.mint.nn.")
SAME_FUNCTION = {
    "SoftmaxCrossEntropyWithLogits": "CrossEntropyLoss",
    "MAELoss": "L1Loss",
    "MultilabelMarginLoss": "MultiLabelMarginLoss",
}


def compare_losses(sides: tuple[Side, Side], rules: Sequence[Pitfall]) -> ComparedPart:
    """Compare two losses; what no rule compares, and a loss that no rule knows, could not be compared."""
    settings = root_settings(sides[0]), root_settings(sides[1])
    compared = compare_loss_settings(settings, rules)
    if not _same_function(settings):
        return compared
    loss_rules = [rule for rule in rules if rule.topic == TOPIC]
    missed = uncovered_settings((type(sides[0].model), type(sides[1].model)), settings, loss_rules)
    problems = (sentence("lint_note.not_covered", what=one) for one in (*missed, *_reductions(settings, loss_rules)))
    return replace(compared, not_compared=(*compared.not_compared, *problems))


def compare_loss_settings(settings: tuple[LayerSettings, LayerSettings], rules: Sequence[Pitfall]) -> ComparedPart:
    """Compare what is known of two losses that need not be there: what they compute, and the settings of rules."""
    functions = _function(settings[0]), _function(settings[1])
    unknown = [one.classes[0] for one, name in zip(settings, functions, strict=True) if not name]
    if unknown:
        names = dict.fromkeys(unknown)
        return ComparedPart(not_compared=tuple(sentence("lint_note.unknown_class", name=name) for name in names))
    if not _same_function(settings):
        return ComparedPart((_other_function(settings, functions),), 1, 1)
    compared = compare_settings([LayerPair(*settings)], [rule for rule in rules if rule.topic == TOPIC])
    findings = tuple(replace(finding, part="loss") for finding in compared.findings)
    return ComparedPart(findings, 1, compared.compared, compared.unread, not_compared=tuple(compared.missing))


def _same_function(settings: tuple[LayerSettings, LayerSettings]) -> bool:
    return "" != _function(settings[0]) == _function(settings[1])


def _reductions(settings: tuple[LayerSettings, LayerSettings], rules: Sequence[Pitfall]) -> list[str]:
    """The reduction of losses that no rule reads it of: that it is at its default does not tell that it is equal."""
    known = next((rule for rule in rules if rule.id == REDUCTION), None)
    unread = [one for one in settings if known is None or known.form_of(one.classes) is None]
    return [sentence("lint_note.reduction", name=one.classes[0]) for one in unread]


def _function(loss: LayerSettings) -> str:
    """What a class of a framework, or one derived from it, computes; "" for one that users wrote."""
    names = [name.rpartition(".")[2] for name in loss.classes if name.startswith(FAMILIES) and name.count(".") < 4]
    name = next((name for name in names if not name.endswith("LossBase")), "")
    return SAME_FUNCTION.get(name, name)


def _other_function(settings: tuple[LayerSettings, LayerSettings], functions: tuple[str, str]) -> SettingFinding:
    names = [one.classes[0].rpartition(".")[2] for one in settings]
    return SettingFinding(
        rule="loss-function",
        severity="error",
        reference="",
        candidate="",
        reference_class=names[0],
        candidate_class=names[1],
        setting=sentence("lint_setting.kind_of_loss"),
        reference_setting=names[0],
        candidate_setting=names[1],
        effect=sentence("lint_effect.other_loss"),
        change=f"nn.{functions[0]}(...)",
        part="loss",
    )


# Settings that no rule of a class compares: of an optimizer or a loss, which no verdict may pass over, or of layers.
#
# Of norms and activations that users wrote no rule knows the classes, but what they call epsilon is one.

# How a step is computed, not what it computes; the parameters and their rates, which are compared apart; and whether
# labels are numbers of classes, which shows by itself.
IMPLEMENTATION = {
    "foreach", "fused", "capturable", "differentiable", "use_locking", "use_offload", "use_lazy", "size_average",
    "reduce", "sparse", "lr", "learning_rate", "params",
}  # fmt: skip
HARMLESS = {  # what builds, shows, saves or moves, and so leaves the computation as it is
    "__init__", "__init_subclass__", "__new__", "__repr__", "__str__", "__getstate__", "__setstate__", "__setattr__",
    "__getattr__", "__deepcopy__", "__reduce__", "extra_repr", "state_dict", "load_state_dict", "add_param_group",
    "set_train", "train", "eval", "to",
}  # fmt: skip


def uncovered_settings(
    makers: tuple[type, type], sides: tuple[LayerSettings, LayerSettings], rules: Sequence[Pitfall]
) -> list[str]:
    """Name what no rule of both classes reads: arguments of either constructor, and methods that users wrote.

    Of arguments those that are not at their default, and those that both sides have, with unlike values.
    """
    known = known_arguments(rules, (sides[0].classes, sides[1].classes))
    uncovered: list[str] = []
    for number, (maker, side) in enumerate(zip(makers, sides, strict=True)):
        chosen = _chosen(_framework_class(maker), side.values, sides[1 - number].values)
        own = [f"{name}={value!r}" for name, value in chosen if name not in known[number]]
        uncovered += [sentence("lint_note.argument_of_class", argument=one, class_name=_name(side)) for one in own]
    unlike = () if makers[0] is makers[1] else makers  # the methods of one class are equal
    methods = [f"{cls.__name__}.{name}" for maker in unlike for cls, name in _replaced(maker)]
    return uncovered + [sentence("lint_note.method", name=name) for name in methods]


def known_arguments(rules: Sequence[Pitfall], sides: tuple[Sequence[str], Sequence[str]]) -> list[set[str]]:
    """The arguments of either side's class that rules compare, by the names of the classes and their bases."""
    both = [forms for rule in rules if all(forms := [rule.form_of(classes) for classes in sides])]
    return [{name for forms in both if (form := forms[number]) for name in _arguments(form)} for number in (0, 1)]


def _arguments(form: Form) -> Iterator[str]:
    if form.attributes:
        yield from (name.partition(".")[0] for name in (*form.attributes, form.argument.replace("[", ".")))
    yield from ("reduce", "average", "reduction") if form.means == "reduction" else ()


def _chosen(maker: type, values: Mapping[str, Setting], others: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """Arguments that a live object keeps and that are not as the constructor, or the other side, has them."""
    for name, default in default_arguments(maker).items():
        if name not in values:
            continue
        alike = default, others.get(name, default)
        if not all(equal_settings(_tidy(values[name]), _tidy(one)) for one in alike):
            yield name, values[name]


def default_arguments(maker: type) -> dict[str, Setting]:
    """The arguments of a constructor that may be left out, with what they are then, by name."""
    parameters = inspect.signature(_constructor(maker)).parameters.values()
    given = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
    return {name: value for name, value in sorted(plain_settings(given).items()) if name not in IMPLEMENTATION}


def _constructor(maker: type) -> Callable[..., Any]:
    """The constructor as it was written: MindSpore's decorators do not say what they wrap."""
    function: Any = inspect.unwrap(maker.__init__)  # type: ignore[misc]
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    found: Callable[..., Any] = next((one for one in cells if getattr(one, "__name__", "") == "__init__"), function)
    return found


def _tidy(value: Setting) -> Setting:
    """0 and False are one default, and no tensor stands for none."""
    return float(value) if isinstance(value, bool) else value


def _name(side: LayerSettings) -> str:
    return side.classes[0].rpartition(".")[2] if side.classes else sentence("lint_place.unknown_class")


def _framework_class(maker: type) -> type:
    """The first class among a class and its bases that is a framework's; the class itself if none is."""
    return next((cls for cls in maker.__mro__ if cls.__module__.partition(".")[0] in FRAMEWORKS), maker)


def _replaced(maker: type) -> Iterator[tuple[type, str]]:
    """Classes of users and the methods of a framework's class that they override."""
    base = _framework_class(maker)
    for cls in maker.__mro__[: maker.__mro__.index(base)]:
        for name, value in vars(cls).items():
            if name not in HARMLESS and _is_other(value, getattr(base, name, None)):
                yield cls, name


def _is_other(method: object, inherited: object) -> bool:
    """Tell a function of the user's: torch puts its own step, wrapped for a profiler, into classes that inherit it."""
    if not callable(method) or not callable(inherited):
        return False
    written = inspect.unwrap(method)
    return isinstance(written, FunctionType) and written is not inspect.unwrap(inherited)


NAMES = ("eps", "epsilon", "variance_epsilon", "norm_eps")
FORMS = {"torch.nn.RMSNorm": Form(("torch.nn.RMSNorm",), "eps", lacking=1.1920929e-07)}  # of float32, if not given
KNOWN = "epsilon"  # how rules call the setting


def written_epsilons(pairs: Sequence[LayerPair]) -> list[Pitfall]:
    """A rule for each pair of classes, one of them written by users, that both keep an epsilon and hold no layers."""
    around = {side.path.rpartition(".")[0] for pair in pairs for side in (pair.reference, pair.candidate)}
    rules: dict[tuple[str, ...], Pitfall] = {}
    for pair in pairs:
        forms = _form(pair.reference), _form(pair.candidate)
        inner = {pair.reference.path, pair.candidate.path}.isdisjoint(around)
        if forms[0] and forms[1] and inner and not _is_known(pair):
            rules.setdefault((*forms[0].classes, "", *forms[1].classes), _rule((forms[0], forms[1])))
    return list(rules.values())


def _rule(forms: tuple[Form, Form]) -> Pitfall:
    return Pitfall(
        id="written-epsilon",
        topic="norms",
        setting=KNOWN,
        severity="error",
        effect=sentence("lint_effect.small_values"),
        forms=forms,
        examples=Examples((), ()),
        idle={},
    )


def _form(layer: LayerSettings) -> Form | None:
    """Where a layer keeps its epsilon: as its rule says, or under one of the usual names."""
    rule = next((rule for rule in _rules() if rule.form_of(layer.classes)), None)
    form = rule.form_of(layer.classes) if rule else FORMS.get(layer.classes[0] if layer.classes else "")
    if form is not None:
        return replace(form, classes=tuple(name for name in layer.classes if name in form.classes))
    name = next((name for name in NAMES if _is_number(layer.values.get(name))), None)
    return Form(classes=layer.classes[:1], reads=name) if name and layer.classes else None


def _is_known(pair: LayerPair) -> bool:
    return any(rule.form_of(pair.reference.classes) and rule.form_of(pair.candidate.classes) for rule in _rules())


def _rules() -> list[Pitfall]:
    return [rule for rule in pitfalls() if rule.setting == KNOWN and rule.topic == "norms"]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
