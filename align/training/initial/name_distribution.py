"""What a parameter's initial values look like: which family, how wide, what the width follows from, what draws such."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from align.rules.training_rules import initial_value_rules
from align.training.initial_values_result import Distribution
from align.training.thresholds import (
    BOUND_ERRORS,
    CUT_WIDTH,
    FAMILY_DISTANCE,
    FAMILY_FEWEST_ELEMENTS,
    FIXED_BY_CHANCE_SHARE,
    NORMAL_CUT,
    ORTHOGONAL_ROWS,
    ORTHOGONAL_SHARE,
    SCALE_ERRORS,
)

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.parameters import Parameter, ParameterSet
    from align.rules.training_rules import Fan
    from align.training.initial.draw_values import DrawnParameter
    from align.training.initial_values_result import Family


# First digits of numbers that are written as a scale.
USUAL = "125"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the scale of a weight may follow from."""

    fans: dict[Fan, int]
    shape: tuple[int, ...]


def sizes_of(parameter: Parameter, sets: ParameterSet) -> Sizes:
    """The fans of a weight, or for a vector those of the weight of its layer."""
    beside = [one for one in sets.parameters if one.module == parameter.module and len(one.shape) > 1]
    weight = parameter if len(parameter.shape) > 1 else max(beside, key=lambda one: one.count, default=None)
    fans: dict[Fan, int] = {}
    if weight is not None:
        field = int(np.prod(weight.shape[2:], dtype=np.int64))
        fans = {"in": weight.shape[1] * field, "out": weight.shape[0] * field}
        fans["sum"] = fans["in"] + fans["out"]
    hidden = [one.shape[-1] for one in beside if one.attribute.startswith("weight_hh")]
    return Sizes(fans | ({"hidden": hidden[0]} if hidden else {}), parameter.shape)


def name_distribution(drawn: DrawnParameter, sizes: Sizes) -> Distribution:
    """Name what was drawn for a parameter."""
    values = drawn.table
    if not np.isfinite(values).all():
        return Distribution("not finite", np.nan, np.nan, None)
    mean, std = float(values.mean()), float(values.std())
    if drawn.low == drawn.high:
        return Distribution("constant", mean, 0.0, drawn.low)
    if not drawn.random:
        return Distribution("fixed", mean, std, None)
    if (gain := _orthogonal_gain(drawn.whole)) is not None:
        return Distribution("orthogonal", mean, std, gain)
    held = fixed_places(values)
    share = float(held.mean()) if held.mean() > FIXED_BY_CHANCE_SHARE else 0.0
    return replace(_fitted(values[:, ~held].ravel(), sizes), held=share)


def write_initializer(wanted: Distribution, sizes: Sizes, target: Parameter, own: Sizes, framework: str | None) -> str:
    """The line that draws a parameter as `wanted`, which was seen in a weight of `sizes`; "" if there is none.

    A scheme is written only where the target's sizes give the same scale, and not for a vector, of which frameworks
    take no sizes.
    """
    if framework not in ("torch", "mindspore") or wanted.scale is None:
        return ""
    rules = initial_value_rules()
    facts = {
        "tensor": target.attribute,
        "shape": str(tuple(target.shape)),
        "scale": f"{wanted.scale:.4g}",
        "twice": f"{NORMAL_CUT * wanted.scale:.4g}",
    }
    scheme = next((one for one in rules.schemes if one.id == wanted.scheme), None)
    text = getattr(scheme, framework) if scheme is not None and len(target.shape) > 1 else ""
    if text and sizes.fans == own.fans:
        return str(text).format(**facts)
    family = rules.families.get(wanted.family)
    return str(getattr(family, framework)).format(**facts) if family is not None else ""


def fixed_places(values: Array) -> Array:
    """The places that hold one value in all builds, which are the rows; as bools."""
    return np.asarray((values == values[0]).all(axis=0))


def is_orthogonal(value: Array) -> bool:
    """Tell whether the rows of a matrix, or its columns if these are fewer, are orthogonal and of one length."""
    return _orthogonal_gain(value) is not None


def _orthogonal_gain(value: Array) -> float | None:
    if value.ndim < 2:
        return None
    matrix = value.reshape(value.shape[0], -1).astype(np.float64)
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    if len(matrix) < 2:
        return None
    rows = matrix[:ORTHOGONAL_ROWS]
    products = rows @ rows.T
    squares = np.diag(products)
    unlike = np.abs(products - np.diag(squares)).max() + np.ptp(squares)
    return float(sqrt(squares.mean())) if unlike <= ORTHOGONAL_SHARE * squares.mean() else None


def _fitted(values: Array, sizes: Sizes) -> Distribution:
    """The family that is nearest to what was drawn, if it is near."""
    size, mean, std = values.size, float(values.mean()), float(values.std())
    if size < FAMILY_FEWEST_ELEMENTS:
        return Distribution("other", mean, std, None)
    bound = float(np.abs(values).max()) * (size + 1) / size
    cut = std / CUT_WIDTH
    ordered = np.sort(values)
    with np.errstate(all="ignore"):  # widths of 0
        shapes: dict[Family, tuple[float, Array, float]] = {
            "uniform": (bound, (ordered + bound) / (2 * bound), BOUND_ERRORS / size + 1e-5),
            "normal": (std, ndtr((ordered - mean) / std), SCALE_ERRORS / sqrt(2 * size)),
            "truncated normal": (cut, _cut_normal((ordered - mean) / cut), SCALE_ERRORS / sqrt(2 * size)),
        }
    distances = {name: _distance(one[1]) for name, one in shapes.items()}
    family = min(distances, key=lambda name: distances[name])
    if distances[family] > FAMILY_DISTANCE / sqrt(size):
        return Distribution("other", mean, std, None)
    scale, _, tolerance = shapes[family]
    return Distribution(family, mean, std, *_reason(family, scale, tolerance, sizes))


def _cut_normal(values: Array) -> Array:
    """The distribution function of a standard normal that is cut at NORMAL_CUT."""
    return np.asarray(
        (ndtr(np.clip(values, -NORMAL_CUT, NORMAL_CUT)) - ndtr(-NORMAL_CUT)) / (ndtr(NORMAL_CUT) - ndtr(-NORMAL_CUT))
    )


def _distance(expected: Array) -> float:
    """The largest distance of the distribution function of sorted values from the `expected` one at each of them."""
    steps = np.arange(expected.size + 1) / expected.size
    return float(max((steps[1:] - expected).max(), (expected - steps[:-1]).max()))


def _reason(family: str, scale: float, tolerance: float, sizes: Sizes) -> tuple[float, str, str]:
    """The scale with what it follows from: the nearest scheme within the error of the measurement, else a number.

    A number of the kind that people write (0.02) takes the place of a scheme that is further off.
    """
    found = []
    for scheme in initial_value_rules().schemes:
        meant = scheme.scale(sizes.fans) if scheme.family == family else None
        if meant is not None and abs(scale / meant - 1.0) <= tolerance:
            found.append((round(abs(scale / meant - 1.0), 4), meant, scheme))
    plain = float(f"{scale:.1g}")
    nearest = min(found, key=lambda one: one[0], default=None)
    usual = f"{plain:e}"[0] in USUAL
    if nearest is not None and (not usual or nearest[0] <= abs(scale / plain - 1.0)):
        return nearest[1], nearest[2].id, nearest[2].formula
    return (plain if abs(scale / plain - 1.0) <= tolerance else float(f"{scale:.3g}")), "", ""
