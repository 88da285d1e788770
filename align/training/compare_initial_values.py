"""Whether a port draws its initial values as the original does: distributions of paired parameters, over seeds.

Values cannot be compared, since two frameworks draw other numbers from one seed. Both sides are built several times,
and the elements of each pair of parameters are held against each other as two samples.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy import stats
from scipy.special import ndtr

from align.core.parameters import EPSILON
from align.core.protocols import silent
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import CannotRunError, NothingInCommonError, UsageError, UserCodeError
from align.models.open_side import build_side
from align.models.user_code import load_function, run_user_code
from align.rules.training_rules import initial_value_rules
from align.traces.open_trace import paired_values
from align.traces.pair_traces import choose_map, open_names
from align.training.check_determinism import make_deterministic
from align.training.thresholds import (
    BOUND_ERRORS,
    BUILT_ELEMENTS,
    CUT_WIDTH,
    EXACT_TEST_ELEMENTS,
    FALSE_ALARM_CHANCE,
    FAMILY_DISTANCE,
    FAMILY_FEWEST_ELEMENTS,
    FEWEST_SEEDS,
    FIXED_BY_CHANCE_SHARE,
    INITIAL_FEWEST_ELEMENTS,
    INITIAL_SAMPLES,
    MOST_SEEDS,
    NORMAL_CUT,
    ORTHOGONAL_ROWS,
    ORTHOGONAL_SHARE,
    OWN_VALUES_SHARE,
    ROUNDING_UNITS,
    SCALE_ERRORS,
)
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import Array, Parameter, ParameterSet, Shape
    from align.core.protocols import Progress
    from align.core.verdicts import Finding
    from align.models.open_side import Side
    from align.rules.training_rules import Fan

    Factory = str | Callable[[], Any]
    Drawn: TypeAlias = "tuple[Pairing, DrawnParameter, DrawnParameter]"


# Values that do not depend on the seed may come out of another computation: a table of sines.
SAME_VALUES = ROUNDING_UNITS * EPSILON["float32"]


def compare_initial_values(
    reference: Factory,
    candidate: Factory,
    *,
    name_map: NameMap | Path | str | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
    progress: Progress = silent,
) -> InitialValues:
    """Build both sides from several seeds, and compare how paired parameters are drawn.

    A side is `module:function` that builds a model, or the function; it is called once a seed, after
    `align.make_deterministic(seed)`, which holds for the rest of the process. The candidate gets other seeds than the
    reference, counted from `first_seed` too. `seeds` is how many, at least 3; by default as many as the smallest
    parameter needs. Values that no seed changes are compared exactly, all others by a two-sample Kolmogorov-Smirnov
    test of up to 20,000 elements. Raises UsageError for fewer seeds, CannotRunError for a side whose values are the
    same for every seed, NothingInCommonError where no parameter is paired, and what opening a side raises.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def linear(spread):
    ...     weight = np.random.normal(0, spread, (20, 50)).astype(np.float32)
    ...     layer = ArrayLayer("fc", "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": weight})
    ...     return ArrayModel((layer,))
    >>> result = compare_initial_values(lambda: linear(0.02), lambda: linear(0.1))
    >>> one = result.parameters[0]
    >>> one.outcome, one.reference_values.scale, one.candidate_values.scale
    ('distributions differ', 0.02, 0.1)
    """
    if seeds is not None and seeds < FEWEST_SEEDS:
        raise UsageError.of("training_error.few_seeds", seeds=seeds, fewest=FEWEST_SEEDS)
    builders = Builder(reference, first_seed), Builder(candidate, first_seed + max(seeds or 0, MOST_SEEDS))
    sets = builders[0].read_parameters(), builders[1].read_parameters()
    chosen = choose_map(name_map, sets)
    if not chosen.pairings:
        raise NothingInCommonError(sets[0].label, sets[1].label, "parameter")
    draws = PairedDraws(chosen.pairings)
    count, done = seeds or FEWEST_SEEDS, 0
    while done < count:
        progress("seeds", done, count)
        draws.add(builders[0].build(done), builders[1].build(done))
        done += 1
        count = seeds or (draws.seeds_needed() if done == FEWEST_SEEDS else count)
    progress("seeds", count, count)
    require_reaction(sets[0].label, [ours for _, ours, _ in draws.pairs])
    require_reaction(sets[1].label, [theirs for *_, theirs in draws.pairs])
    return _judged(draws.pairs, chosen, sets, count)


def _judged(
    pairs: Sequence[Drawn], chosen: NameMap, sets: tuple[ParameterSet, ParameterSet], seeds: int
) -> InitialValues:
    rows = [_row(pair, sets) for pair in pairs]
    tests = sum(one.p_value is not None for one in rows)
    level = FALSE_ALARM_CHANCE / max(tests, 1)
    parameters = tuple(sorted((_decided(one, level) for one in rows), key=_by_outcome))
    return InitialValues(
        sets[0].label,
        sets[1].label,
        seeds,
        INITIAL_SAMPLES,
        FALSE_ALARM_CHANCE,
        level,
        tests,
        parameters,
        tuple(open_names(chosen)),
        _verdict(parameters, chosen),
    )


def _row(pair: Drawn, sets: tuple[ParameterSet, ParameterSet]) -> InitialParameter:
    """A pair with its figures; what draws as the reference does is written where the two turn out to differ."""
    pairing, ours, theirs = pair
    source, target = sets[0].by_name[pairing.source], sets[1].by_name[pairing.target]
    sizes = sizes_of(source, sets[0]), sizes_of(target, sets[1])
    judged = judge_pair(ours, theirs)
    named = name_distribution(ours, sizes[0]), name_distribution(theirs, sizes[1])
    write = write_initializer(named[0], sizes[0], target, sizes[1], sets[1].framework)
    return InitialParameter(
        source.name,
        target.name,
        target.shape,
        judged.outcome,
        judged.samples,
        judged.statistic,
        judged.p_value,
        *named,
        write,
        judged.note,
    )


def _decided(row: InitialParameter, level: float) -> InitialParameter:
    if row.p_value is not None and row.p_value < level:
        return replace(row, outcome="distributions differ")
    return replace(row, write="") if row.outcome == "same" else row


def _by_outcome(row: InitialParameter) -> tuple[bool, float]:
    """Sorts those that differ first, by how far the distributions are apart; those without a test before them."""
    return row.outcome == "same", -(1.0 if row.statistic is None else row.statistic)


def _verdict(rows: Sequence[InitialParameter], chosen: NameMap) -> Verdict:
    sides = [
        {parameter.name for parameter in chosen.unmatched if parameter.side == side} for side in ("source", "target")
    ]
    for group in chosen.ambiguous:
        sides[0].update(group.sources)
        sides[1].update(group.targets)
    coverage = Coverage("parameters", len(rows), len(chosen.dropped), len(sides[0]), len(sides[1]))
    left = len(sides[0]) + len(sides[1])
    caveats = (sentence("initial_verdict.open", count=left),)
    unlike = [row for row in rows if row.outcome != "same"]
    if not unlike:
        reason = sentence("initial_verdict.alike", count=len(rows))
        return Verdict(Outcome.ALIGNED, reason, coverage, caveats if left else ())
    first = unlike[0]
    names = {"reference": first.reference, "candidate": first.candidate, "families": _families(first)}
    reason = sentence("initial_verdict.unlike", unlike=len(unlike), count=len(rows), **names)
    return Verdict(Outcome.NOT_ALIGNED, reason, coverage, caveats if left else ())


def _families(row: InitialParameter) -> list[str]:
    sides = row.reference_values, row.candidate_values
    return [f"{one.family} {one.scale:.3g}" if one.scale is not None else one.family for one in sides]


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of a pair; the figures of the test are None where none was made."""

    outcome: InitialOutcome
    samples: int = 0
    statistic: float | None = None
    p_value: float | None = None
    note: str = ""


def judge_pair(ours: DrawnParameter, theirs: DrawnParameter) -> Judged:
    """Compare a pair; `same` still hangs on the p-value, where there is one."""
    if ours.whole.shape != theirs.whole.shape:
        shapes = {"reference": str(list(ours.whole.shape)), "candidate": str(list(theirs.whole.shape))}
        return Judged("shapes differ", note=sentence("initial_note.shapes", **shapes))
    if ours.random != theirs.random:
        return Judged("random on one side")
    if not ours.random:
        return _compare_fixed(ours.whole, theirs.whole)
    if is_orthogonal(ours.whole) != is_orthogonal(theirs.whole):
        return Judged("structures differ", note=sentence("initial_note.orthogonal"))
    return _compare_random(ours.table, theirs.table)


def _compare_fixed(ours: Array, theirs: Array) -> Judged:
    reference, candidate = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.abs(reference).max(initial=0.0)
    unlike = ~(np.abs(candidate - reference) <= SAME_VALUES * largest) & ~(np.isnan(reference) & np.isnan(candidate))
    if not unlike.any():
        return Judged("same", reference.size)
    note = sentence("initial_note.elements", unlike=int(np.count_nonzero(unlike)), count=reference.size)
    return Judged("values differ", reference.size, note=note)


def _compare_random(ours: Array, theirs: Array) -> Judged:
    """Places that hold one value in all builds must be the same on both sides; the others are pooled and tested."""
    fixed, others = fixed_places(ours), fixed_places(theirs)
    unlike = (fixed != others) | (fixed & others & (ours[0] != theirs[0]))
    if unlike.mean() > FIXED_BY_CHANCE_SHARE:
        note = sentence("initial_note.fixed", unlike=int(np.count_nonzero(unlike)), count=unlike.size)
        return Judged("structures differ", note=note)
    free = ~(fixed | others)
    ours, theirs = ours[:, free], theirs[:, free]
    first = [_first_places(side) for side in (ours, theirs)]
    if (first[0] is None) != (first[1] is None):
        return Judged("structures differ", note=sentence("initial_note.repeated"))
    if first[0] is not None:  # copies of one value would count several times
        ours, theirs = ours[:, first[0]], theirs[:, first[0]]
    reference, candidate = ours.ravel(), theirs.ravel()
    if not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        return Judged("values differ", reference.size, note=sentence("initial_note.not_finite"))
    test = stats.ks_2samp(reference, candidate, method="auto" if reference.size <= EXACT_TEST_ELEMENTS else "asymp")
    return Judged("same", reference.size, float(test.statistic), float(test.pvalue))


def _first_places(table: Array) -> Array | None:
    """Where each value of a build stands first, if many are copies of others in every build; else None."""
    found = [np.unique(row, return_index=True)[1] for row in table]
    if any(places.size > OWN_VALUES_SHARE * table.shape[1] for places in found):
        return None
    return np.sort(found[0])


# The initial values of two sides, compared as distributions.

InitialOutcome = Literal[
    "same", "distributions differ", "values differ", "random on one side", "structures differ", "shapes differ"
]
Family = Literal["constant", "fixed", "uniform", "normal", "truncated normal", "orthogonal", "other", "not finite"]


@dataclass(frozen=True, slots=True)
class Distribution:
    """What the initial values of a parameter look like on one side.

    `fixed` are values that are the same for every seed and not all equal. `scale` is the constant, the bound of a
    uniform distribution, the standard deviation of a normal one (before the cut of a truncated one, at two of them),
    the gain of orthogonal rows, None for other families. `mean` and `std` are of what was drawn. `scheme` says what the
    scale follows from, "" if it is a number of its own, and `formula` how. `held` is the share of the elements that
    hold one value whatever the seed, as the row of a padding index; the family is that of the others.
    """

    family: Family
    mean: float
    std: float
    scale: float | None
    scheme: str = ""
    formula: str = ""
    held: float = 0.0


@dataclass(frozen=True, slots=True)
class InitialParameter:
    """A pair of parameters.

    `statistic` is the largest distance of the two distribution functions (Kolmogorov-Smirnov), over `samples` elements
    of each side, and `p_value` how likely such a distance is by chance; None where nothing was tested. `write` is what
    draws as the reference does on the candidate's side, "" where the values agree or nothing does in one call.
    """

    reference: str
    candidate: str
    shape: Shape
    outcome: InitialOutcome
    samples: int
    statistic: float | None
    p_value: float | None
    reference_values: Distribution
    candidate_values: Distribution
    write: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class InitialValues(ShownResult):
    """All pairs, those that differ first; `seeds` is how often each side was built.

    `alpha` is the chance of a false alarm in the whole comparison, `level` that for each of the `tests`.
    """

    result_kind = "initial"
    reference: str
    candidate: str
    seeds: int
    samples: int
    alpha: float
    level: float
    tests: int
    parameters: tuple[InitialParameter, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict


# A side built from several seeds, and of each paired parameter as many elements as a test needs.


class Builder:
    """Builds a side from one seed after the other, counted from the first."""

    def __init__(self, given: str | Callable[[], Any], first_seed: int) -> None:
        self.label = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        failed = partial(UserCodeError, say("model_error.building", side=self.label))
        self._make = load_function(given) if isinstance(given, str) else partial(run_user_code, given, failed)
        self._first_seed = first_seed
        self._side = self._built(0)
        self._values: dict[str, Array] | None = self._side.reader.read_values(self._side.model)

    def read_parameters(self) -> ParameterSet:
        """Names, shapes and modules of the side."""
        return self._side.reader.read_parameters(self._side.model, self.label)

    def build(self, number: int) -> dict[str, Array]:
        """The values of a build; raises CannotRunError for a function that returns one model each time."""
        if number == 0 and self._values is not None:
            values, self._values = self._values, None
            return values
        side = self._built(number)
        if side.model is self._side.model:
            raise CannotRunError.of("training_error.one_model", side=self.label)
        return side.reader.read_values(side.model)

    def _built(self, number: int) -> Side:
        """A build from its seed; a framework that the first one imports had none, so that it is built again."""
        seed = self._first_seed + number
        settings = make_deterministic(seed).settings
        side = build_side(self._make())
        return side if make_deterministic(seed).settings == settings else build_side(self._make())


@dataclass(slots=True)
class DrawnParameter:
    """What was drawn for one parameter of one side: some elements of each build, always at the same places.

    `whole` is the first build's value, `checksums` are of the whole of each, `low` and `high` the extremes of all.
    """

    whole: Array
    samples: list[Array] = field(default_factory=list)
    checksums: set[int] = field(default_factory=set)
    low: float = np.inf
    high: float = -np.inf

    def add(self, value: Array, places: Array | None) -> None:
        """Add a build."""
        flat = np.ascontiguousarray(value).reshape(-1)
        self.checksums.add(zlib.crc32(flat.view(np.uint8).data) if flat.size else 0)
        wide = (flat if places is None else flat[places]).astype(np.float64)
        self.samples.append(wide)
        if flat.size:
            self.low = min(self.low, float(flat.min()))
            self.high = max(self.high, float(flat.max()))

    @property
    def random(self) -> bool:
        """Tell whether another seed gives other values."""
        return len(self.checksums) > 1

    @property
    def table(self) -> Array:
        """All samples, one row a build."""
        return np.stack(self.samples)[:, : max(INITIAL_SAMPLES // len(self.samples), 1)]


class PairedDraws:
    """What both sides drew for each pair of a name map, the reference's values as the map makes them."""

    def __init__(self, pairings: Sequence[Pairing]) -> None:
        self._pairings = pairings
        self._places: list[Array | None] = []
        self.pairs: list[tuple[Pairing, DrawnParameter, DrawnParameter]] = []

    def add(self, ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
        """Add a build of each side."""
        for number, pairing in enumerate(self._pairings):
            reference, candidate, _ = paired_values(pairing, ours, theirs)
            if len(self.pairs) == number:
                self.pairs.append((pairing, DrawnParameter(reference.copy()), DrawnParameter(candidate.copy())))
                self._places.append(_places(candidate.size) if reference.size == candidate.size else None)
            places = self._places[number]
            for drawn, value in zip(self.pairs[number][1:], (reference, candidate), strict=True):
                drawn.add(value, places)

    def seeds_needed(self) -> int:
        """How many builds give the smallest random parameter enough elements, as far as that is cheap."""
        both = [one for _, *drawn in self.pairs for one in drawn if one.random and one.whole.size]
        smallest = min((one.whole.size for one in both), default=INITIAL_FEWEST_ELEMENTS)
        elements = sum(ours.whole.size for _, ours, _ in self.pairs)
        cheap = int(BUILT_ELEMENTS // max(elements, 1))
        return max(FEWEST_SEEDS, min(ceil(INITIAL_FEWEST_ELEMENTS / smallest), MOST_SEEDS, cheap))


def _places(size: int) -> Array | None:
    """Which elements are looked at in each build, None for all."""
    most = INITIAL_SAMPLES // FEWEST_SEEDS
    return np.sort(np.random.default_rng(0).choice(size, most, replace=False)) if size > most else None


def require_reaction(label: str, drawn: Sequence[DrawnParameter]) -> None:
    """Raise CannotRunError for a side that holds one set of values whatever the seed, unless all are constants."""
    if any(one.random for one in drawn) or all(one.low == one.high for one in drawn):
        return
    raise CannotRunError.of("training_error.same_for_every_seed", side=label, count=len(drawn))


# What a parameter's initial values look like: which family, how wide, what the width follows from, what draws such.

# First digits of numbers that are written as a scale.
USUAL = "125"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the scale of a weight may follow from."""

    fans: dict[Fan, int]
    shape: tuple[int, ...]


def sizes_of(parameter: Parameter, sets: ParameterSet) -> Sizes:
    """The fans of a weight, or for a vector those of the weight of its layer."""
    beside = [
        neighbour for neighbour in sets.parameters if neighbour.module == parameter.module and len(neighbour.shape) > 1
    ]
    weight = parameter if len(parameter.shape) > 1 else max(beside, key=lambda one: one.count, default=None)
    fans: dict[Fan, int] = {}
    if weight is not None:
        field = int(np.prod(weight.shape[2:], dtype=np.int64))
        fans = {"in": weight.shape[1] * field, "out": weight.shape[0] * field}
        fans["sum"] = fans["in"] + fans["out"]
    hidden = [neighbour.shape[-1] for neighbour in beside if neighbour.attribute.startswith("weight_hh")]
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


def write_initializer(
    wanted: Distribution, sizes: Sizes, target: Parameter, target_sizes: Sizes, framework: str | None
) -> str:
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
    if text and sizes.fans == target_sizes.fans:
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
    near_schemes = []
    for scheme in initial_value_rules().schemes:
        meant = scheme.scale(sizes.fans) if scheme.family == family else None
        if meant is not None and abs(scale / meant - 1.0) <= tolerance:
            near_schemes.append((round(abs(scale / meant - 1.0), 4), meant, scheme))
    plain = float(f"{scale:.1g}")
    nearest = min(near_schemes, key=lambda scheme: scheme[0], default=None)
    usual = f"{plain:e}"[0] in USUAL
    if nearest is not None and (not usual or nearest[0] <= abs(scale / plain - 1.0)):
        return nearest[1], nearest[2].id, nearest[2].formula
    return (plain if abs(scale / plain - 1.0) <= tolerance else float(f"{scale:.3g}")), "", ""
