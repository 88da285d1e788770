"""Settings of an optimizer or a loss that were chosen and that no rule compares: no verdict may pass over them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from align.core.layer_settings import plain_settings
from align.rules.setting_forms import equal_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from align.core.layer_settings import LayerSettings, Setting
    from align.rules.pitfalls import Pitfall

# How a step is computed, not what it computes; the parameters and their rates, which are compared apart; and whether
# labels are numbers of classes, which shows by itself.
IMPLEMENTATION = {
    "foreach", "fused", "capturable", "differentiable", "use_locking", "use_offload", "use_lazy", "size_average",
    "reduce", "sparse", "lr", "learning_rate", "params",
}  # fmt: skip


def uncovered_settings(
    makers: tuple[type, type], sides: tuple[LayerSettings, LayerSettings], rules: Sequence[Pitfall]
) -> list[str]:
    """Name the arguments of either constructor that are not at their default and that no rule of both classes reads."""
    both = [[rule.form_of(side.classes) for side in sides] for rule in rules]
    found: list[str] = []
    for number, (maker, side) in enumerate(zip(makers, sides, strict=True)):
        known = {
            name.partition(".")[0]
            for forms in both
            if all(forms) and (form := forms[number])
            for name in (*form.attributes, form.argument if form.attributes else "", *_beside(form.means))
        }
        chosen = _chosen(maker, side.values)
        found += [f"{name}={value!r} of {_name(side)}" for name, value in chosen if name not in known]
    return found


def _beside(means: str) -> Iterator[str]:
    yield from ("reduce", "average", "reduction") if means == "reduction" else ()


def _chosen(maker: type, values: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """Arguments that a live object keeps and that are not as the constructor has them without."""
    parameters = inspect.signature(_constructor(maker)).parameters.values()
    given = {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}
    for name, default in sorted(plain_settings(given).items()):
        if name in values and name not in IMPLEMENTATION and not equal_settings(_tidy(values[name]), _tidy(default)):
            yield name, values[name]


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
    return side.classes[0].rpartition(".")[2] if side.classes else "an unknown class"
