"""Whether a port draws its initial values as the original does: distributions of paired parameters, over seeds.

Values cannot be compared, since two frameworks draw other numbers from one seed. Both sides are built several times,
and the elements of each pair of parameters are held against each other as two samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from align.core.dtypes import EPSILON
from align.core.progress import silent
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import NothingInCommonError, UsageError
from align.traces.pair_traces import choose_map, open_names
from align.training.initial.draw_values import Builder, PairedDraws, require_reaction
from align.training.initial.name_distribution import (
    fixed_places,
    is_orthogonal,
    name_distribution,
    sizes_of,
    write_initializer,
)
from align.training.initial_values_result import InitialParameter, InitialValues
from align.training.thresholds import (
    EXACT_TEST_ELEMENTS,
    FALSE_ALARM_CHANCE,
    FEWEST_SEEDS,
    FIXED_BY_CHANCE_SHARE,
    INITIAL_SAMPLES,
    MOST_SEEDS,
    OWN_VALUES_SHARE,
    ROUNDING_UNITS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from align.core.name_map import NameMap, Pairing
    from align.core.parameters import ParameterSet
    from align.core.progress import Progress
    from align.training.initial.draw_values import DrawnParameter

    Factory = str | Callable[[], Any]
    Drawn = tuple[Pairing, DrawnParameter, DrawnParameter]
    from align.core.dtypes import Array
    from align.training.initial.draw_values import DrawnParameter
    from align.training.initial_values_result import InitialOutcome

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
    sides = [{one.name for one in chosen.unmatched if one.side == side} for side in ("source", "target")]
    for group in chosen.ambiguous:
        sides[0].update(group.sources)
        sides[1].update(group.targets)
    coverage = Coverage("parameters", len(rows), len(chosen.dropped), len(sides[0]), len(sides[1]))
    left = len(sides[0]) + len(sides[1])
    caveats = (sentence("initial_verdict.open", count=left),)
    unlike = [one for one in rows if one.outcome != "same"]
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
    one, other = ours.astype(np.float64), theirs.astype(np.float64)
    largest = np.abs(one).max(initial=0.0)
    unlike = ~(np.abs(other - one) <= SAME_VALUES * largest) & ~(np.isnan(one) & np.isnan(other))
    if not unlike.any():
        return Judged("same", one.size)
    note = sentence("initial_note.elements", unlike=int(np.count_nonzero(unlike)), count=one.size)
    return Judged("values differ", one.size, note=note)


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
    one, other = ours.ravel(), theirs.ravel()
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return Judged("values differ", one.size, note=sentence("initial_note.not_finite"))
    test = stats.ks_2samp(one, other, method="auto" if one.size <= EXACT_TEST_ELEMENTS else "asymp")
    return Judged("same", one.size, float(test.statistic), float(test.pvalue))


def _first_places(table: Array) -> Array | None:
    """Where each value of a build stands first, if many are copies of others in every build; else None."""
    found = [np.unique(row, return_index=True)[1] for row in table]
    if any(places.size > OWN_VALUES_SHARE * table.shape[1] for places in found):
        return None
    return np.sort(found[0])
