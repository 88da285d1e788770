"""Settings that no rule of a class compares: of an optimizer or a loss, which no verdict may pass over, or of layers.

Of norms and activations that users wrote no rule knows the classes, but what they call epsilon is one.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

from align.core.layer_settings import plain_settings
from align.models.function_source import FRAMEWORKS
from align.rules.pitfalls import Examples, Pitfall, pitfalls
from align.rules.setting_forms import Form, equal_settings
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.layer_settings import LayerSettings, Setting
    from align.lint.compare_settings import LayerPair

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
    found: list[str] = []
    for number, (maker, side) in enumerate(zip(makers, sides, strict=True)):
        chosen = _chosen(_framework_class(maker), side.values, sides[1 - number].values)
        own = [f"{name}={value!r}" for name, value in chosen if name not in known[number]]
        found += [sentence("lint_note.argument_of_class", argument=one, class_name=_name(side)) for one in own]
    unlike = () if makers[0] is makers[1] else makers  # the methods of one class are equal
    methods = [f"{cls.__name__}.{name}" for maker in unlike for cls, name in _replaced(maker)]
    return found + [sentence("lint_note.method", name=name) for name in methods]


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


def _is_other(own: object, inherited: object) -> bool:
    """Tell a function of the user's: torch puts its own step, wrapped for a profiler, into classes that inherit it."""
    if not callable(own) or not callable(inherited):
        return False
    written = inspect.unwrap(own)
    return isinstance(written, FunctionType) and written is not inspect.unwrap(inherited)


NAMES = ("eps", "epsilon", "variance_epsilon", "norm_eps")
FORMS = {"torch.nn.RMSNorm": Form(("torch.nn.RMSNorm",), "eps", lacking=1.1920929e-07)}  # of float32, if not given
KNOWN = "epsilon"  # how rules call the setting


def written_epsilons(pairs: Sequence[LayerPair]) -> list[Pitfall]:
    """A rule for each pair of classes, one of them written by users, that both keep an epsilon and hold no layers."""
    around = {side.path.rpartition(".")[0] for pair in pairs for side in (pair.reference, pair.candidate)}
    found: dict[tuple[str, ...], Pitfall] = {}
    for pair in pairs:
        forms = _form(pair.reference), _form(pair.candidate)
        inner = {pair.reference.path, pair.candidate.path}.isdisjoint(around)
        if forms[0] and forms[1] and inner and not _is_known(pair):
            found.setdefault((*forms[0].classes, "", *forms[1].classes), _rule((forms[0], forms[1])))
    return list(found.values())


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
