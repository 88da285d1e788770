"""Why two sides give other log-probabilities to the same tokens, told by what is measured in this run.

Each trial states a law that a cause obeys (a shift, a straight line, a mass that sums to one, a place where it begins)
and measures what the law leaves of the difference. A cause is confirmed where that is rounding, or where the place
itself was measured; what a law of single tokens cannot prove is a suspicion. `distribution` of a live side proves more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import spearmanr

from align.tokens.thresholds import (
    AGREEING_FACTOR,
    EVIDENCE_ROWS,
    EXPLAINED_SHARE,
    FEW_TOKENS,
    FULL_MASS,
    LARGEST_SHIFT,
    LEAST_IN_BUCKET,
    LEAST_LISTS,
    LEAST_TOP_POSITIONS,
    LENGTH_CORRELATION,
    MASS_SHARE,
    ONE_CAUSE_SHARE,
    PENALISED_SHARE,
    SAME_ONSET,
    SAME_TEMPERATURE,
    SUSPECTED_SHARE,
    TEMPERATURES,
    UNBIASED,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import Array
    from align.tokens.pair_lists import ListPairing
    from align.tokens.read_tokens import TokenLists

Distribution = Callable[["Array"], "tuple[Array, Array]"]
Facts = dict[str, float | int | str]
BASES = {"2": np.log(2.0), "10": np.log(10.0)}
HALF_PRECISIONS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclass(frozen=True, slots=True)
class TokenCause:
    """A cause by its id; `confirmed` if a measurement of this run shows it, else suspected; `facts` are its figures."""

    id: str
    confirmed: bool
    message: str
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class ComparedTokens:
    """The tokens that both sides give a log-probability to, one after another, all (tokens,).

    `reference` and `candidate` are the log-probabilities, `places` the indices into the columns of both sides, `lists`
    the number of the pair, `positions` the place in the list, `prompts` the length of its prompt (-1 unknown).
    `one_sided` counts tokens behind the prompt that one side alone gives a value to, though both could.
    `distribution` is that of the live side, `LiveScores.distribution`.
    """

    sides: tuple[TokenLists, TokenLists]
    reference: Array
    candidate: Array
    places: tuple[Array, Array]
    lists: Array
    positions: Array
    prompts: Array
    tokens: Array
    one_sided: int
    live: str = ""
    distribution: Distribution | None = None

    @classmethod
    def of(
        cls,
        sides: tuple[TokenLists, TokenLists],
        pairing: ListPairing,
        live: str = "",
        distribution: Distribution | None = None,
    ) -> ComparedTokens:
        """Line the tokens of paired lists up."""
        reference, candidate = sides
        counts = pairing.counts
        lists = np.repeat(np.arange(len(counts)), counts)
        positions = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        first = reference.starts[pairing.reference][lists] + positions
        second = candidate.starts[pairing.candidate][lists] + positions
        missing = np.isnan(reference.logprobs[first]), np.isnan(candidate.logprobs[second])
        prompts = np.maximum(reference.prompts[pairing.reference], candidate.prompts[pairing.candidate])[lists]
        one_sided = int(((missing[0] != missing[1]) & (positions > 0) & (positions >= prompts)).sum())
        kept = ~(missing[0] | missing[1])
        first, second, lists, positions = first[kept], second[kept], lists[kept], positions[kept]
        prompts = prompts[kept]
        values = reference.logprobs[first], candidate.logprobs[second]
        tokens = reference.tokens[first]
        return cls(sides, *values, (first, second), lists, positions, prompts, tokens, one_sided, live, distribution)

    @cached_property
    def differences(self) -> Array:
        """Candidate less reference; 0 where both are minus infinity, infinite where one of them is."""
        with np.errstate(invalid="ignore"):
            return np.where(self.reference == self.candidate, 0.0, self.candidate - self.reference)

    @cached_property
    def finite(self) -> Array:
        """Where both are finite."""
        return np.isfinite(self.differences)

    @cached_property
    def sizes(self) -> Array:
        """Absolute differences, NaN where they are infinite."""
        return np.where(self.finite, np.abs(self.differences), np.nan)

    def mean(self, where: Array) -> float:
        """The mean absolute difference of some tokens; NaN of none."""
        chosen = self.sizes[where & self.finite]
        return float(chosen.mean()) if chosen.size else float("nan")


def explain_differences(compared: ComparedTokens, limit: float) -> tuple[TokenCause, ...]:
    """Return what explains a difference above `limit`: the first cause that is confirmed, else what is suspected."""
    suspected = []
    for trial in _TRIALS:
        for cause in trial(compared, limit):
            if cause.confirmed:
                return (cause,)
            suspected.append(cause)
    return tuple(suspected[:2])


def unlike_causes(pairing: ListPairing) -> Iterator[TokenCause]:
    """Causes that lie in the tokens themselves: one of each kind of lists that differ, the most frequent first."""
    kinds = Counter(one.kind for one in pairing.unlike)
    for kind, count in kinds.most_common():
        first = next(one for one in pairing.unlike if one.kind == kind)
        facts: Facts = {"lists": count, "list": first.reference, "head": first.head, "tail": first.tail}
        shown = {"count": count, "list": first.reference, "first": str([*first.extra_reference])}
        shown["second"] = str([*first.extra_candidate])
        if kind == "template":
            message = sentence("tokens_cause.template", **shown)
        elif kind == "padding":
            message = sentence("tokens_cause.padding", **shown)
        elif kind == "tokens":
            message = sentence("tokens_cause.tokens", **shown, position=first.head)
        else:
            ends = {"first": first.lengths[0], "second": first.lengths[1]}
            message = sentence("tokens_cause.truncated", count=count, list=first.reference, **ends)
        yield TokenCause(f"other-{kind}" if kind != "truncated" else kind, True, message, facts)


def _scaled(compared: ComparedTokens, _: float) -> Iterator[TokenCause]:
    """Logarithms to another base: one factor for all."""
    first, second = _finite_pairs(compared)
    if not (first**2).sum():
        return
    factor = float((first * second).sum() / (first**2).sum())
    left = float(np.abs(second - factor * first).mean())
    if left > EXPLAINED_SHARE * _mean(compared) or abs(factor - 1.0) <= SAME_TEMPERATURE:
        return
    base = next((name for name, value in BASES.items() if abs(factor * value - 1.0) <= SAME_TEMPERATURE), "")
    facts: Facts = {"factor": factor, "left": left}
    if base:
        yield TokenCause("log-base", True, sentence("tokens_cause.log_base", base=base, factor=factor), facts)
    else:
        yield TokenCause("scaled", True, sentence("tokens_cause.scaled", factor=factor), facts)


def _shifted(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """The candidate's value of a token is the reference's of a neighbour."""
    bad = np.flatnonzero(compared.finite & (compared.sizes > limit))
    best = None
    for shift in (step for size in range(1, LARGEST_SHIFT + 1) for step in (size, -size)):
        inside = bad[(bad + shift >= 0) & (bad + shift < len(compared.lists))]
        inside = inside[compared.lists[inside] == compared.lists[inside + shift]]
        if len(inside) < LEAST_IN_BUCKET:
            continue
        with np.errstate(invalid="ignore"):
            left = float(np.nanmean(np.abs(compared.candidate[inside] - compared.reference[inside + shift])))
        share = left / float(compared.sizes[inside].mean())
        if best is None or share < best[0]:
            best = share, shift
    if best is not None and best[0] < EXPLAINED_SHARE:
        facts: Facts = {"shift": best[1], "left": best[0]}
        key = "tokens_cause.shift_later" if best[1] > 0 else "tokens_cause.shift_earlier"
        message = sentence(key, count=abs(best[1]), share=100 * (1 - best[0]))
        yield TokenCause("shift", True, message, facts)


def _renormalised(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """Top-k or top-p before the log-probability: mass that sums to one, and minus infinity for what is left out."""
    for side, other, sign in ((1, 0, 1.0), (0, 1, -1.0)):
        name = ("reference", "candidate")[side]
        cause = _by_mass(compared, side, other, name) or _by_ranks(compared, side, other, name)
        if cause is not None:
            yield cause
            return
        grown = sign * compared.differences[compared.finite] > -limit
        masked = ~compared.finite & (sign * compared.differences < 0)
        if masked.any() and grown.mean() > ONE_CAUSE_SHARE and sign * _bias(compared) > limit:
            count = int(masked.sum())
            yield TokenCause("top-k", False, sentence("tokens_cause.masked", side=name, count=count), {"masked": count})


def _by_mass(compared: ComparedTokens, side: int, other: int, name: str) -> TokenCause | None:
    full, part = (compared.sides[number] for number in (side, other))
    rows = [_row_of(compared, number) for number in (side, other)]
    known, first, second = np.intersect1d(rows[0], rows[1], assume_unique=True, return_indices=True)
    if len(known) < LEAST_TOP_POSITIONS:
        return None
    whole, less = full.mass[first] >= FULL_MASS, part.mass[second] < FULL_MASS
    if not less.any() or (whole & less).sum() < MASS_SHARE * less.sum() or less.mean() < 1 - MASS_SHARE:
        return None
    kept = np.isfinite(full.top_logprobs[first]).sum(1)
    facts: Facts = {"positions": len(known), "mass": float(part.mass[second].mean()), "listed": int(kept.max())}
    message = sentence("tokens_cause.mass", side=name, count=len(known), mass=float(part.mass[second].mean()))
    return TokenCause("top-k", True, message, facts)


def _row_of(compared: ComparedTokens, side: int) -> Array:
    """The compared token of each place whose most likely tokens a side has, -1 - place for those not compared."""
    lists = compared.sides[side]
    row = np.full(len(lists.tokens), -1, np.int64)
    row[compared.places[side]] = np.arange(len(compared.places[side]))
    found = row[lists.top_places]
    return np.where(found < 0, -1 - (2 * lists.top_places + side), found)


def _by_ranks(compared: ComparedTokens, side: int, other: int, name: str) -> TokenCause | None:
    """All tokens beyond one rank are masked, and none before it."""
    ranks = compared.sides[other].ranks[compared.places[other]]
    masked = np.isneginf((compared.reference, compared.candidate)[side]) & (ranks > 0)
    kept = compared.finite & (ranks > 0)
    if not masked.any() or not kept.any() or ranks[masked].min() <= ranks[kept].max():
        return None
    largest = int(ranks[kept].max())
    facts: Facts = {"largest_kept": largest, "smallest_masked": int(ranks[masked].min()), "masked": int(masked.sum())}
    return TokenCause("top-k", True, sentence("tokens_cause.ranks", side=name, **_two(facts)), facts)


def _two(facts: Facts) -> Facts:
    return {name: facts[name] for name in ("largest_kept", "smallest_masked")}


def _temperature(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """Logits divided by a number: ratios of two tokens at one position are powers of each other."""
    fit = _ratio_slope(compared)
    if fit is not None:
        slope, left = fit
        if left < EXPLAINED_SHARE and abs(slope - 1) > SAME_TEMPERATURE:
            temperature = 1 / slope
            message = sentence("tokens_cause.temperature", value=temperature)
            yield TokenCause("temperature", True, message, {"temperature": temperature, "left": left})
        return
    first, second = _finite_pairs(compared)
    if len(first) < LEAST_IN_BUCKET or np.ptp(first) == 0.0 or _mean(compared) <= limit:
        return
    slope, offset = np.polyfit(first, second, 1)
    left = float(np.abs(second - slope * first - offset).mean()) / _mean(compared)
    if left < SUSPECTED_SHARE and abs(slope - 1) > SAME_TEMPERATURE and TEMPERATURES[0] < 1 / slope < TEMPERATURES[1]:
        facts: Facts = {"temperature": float(1 / slope), "left": left}
        message = sentence("tokens_cause.like_temperature", value=float(1 / slope), share=100 * (1 - left))
        yield TokenCause("temperature", False, message, facts)


def _ratio_slope(compared: ComparedTokens) -> tuple[float, float] | None:
    """The factor between log ratios of the same two tokens on both sides, and the share of difference it leaves."""
    rows = [_row_of(compared, side) for side in (0, 1)]
    _, first, second = np.intersect1d(rows[0], rows[1], assume_unique=True, return_indices=True)
    ratios = []
    for row, other_row in zip(first[:EVIDENCE_ROWS].tolist(), second[:EVIDENCE_ROWS].tolist(), strict=True):
        names = [compared.sides[side].top_tokens[row] for side, row in ((0, row), (1, other_row))]
        _, left, right = np.intersect1d(names[0], names[1], return_indices=True)
        values = [
            compared.sides[0].top_logprobs[row][left],
            compared.sides[1].top_logprobs[other_row][right],
        ]
        kept = np.isfinite(values[0]) & np.isfinite(values[1])
        if kept.sum() > 1:
            ratios.append([value[kept][1:] - value[kept][0] for value in values])
    if len(ratios) < LEAST_TOP_POSITIONS:
        return None
    x, y = (np.concatenate([pair[side] for pair in ratios]) for side in (0, 1))
    slope = float((x * y).sum() / (x * x).sum())
    before = float(np.abs(y - x).mean())
    return slope, float(np.abs(y - slope * x).mean()) / before if before else 1.0


def _by_distribution(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """With the whole distribution of a live side: a temperature, or a number of most likely tokens."""
    if compared.distribution is None:
        return
    live, other = (compared.reference, compared.candidate)[:: 1 if compared.live == "reference" else -1]
    chosen, from_live = compared.distribution(compared.places[0 if compared.live == "reference" else 1])
    target, tokens = other[chosen], compared.tokens[chosen]
    finite = np.isfinite(target)
    before = float(np.abs(target - live[chosen])[finite].mean()) if finite.any() else 0.0
    if finite.sum() < LEAST_TOP_POSITIONS or before <= limit:
        return

    def left_at(inverse: float) -> float:
        scaled = from_live[finite] * inverse
        values = scaled[np.arange(len(scaled)), tokens[finite]] - np.logaddexp.reduce(scaled, axis=1)
        return float(np.abs(values - target[finite]).mean())

    best = minimize_scalar(left_at, bounds=(1 / TEMPERATURES[1], 1 / TEMPERATURES[0]), method="bounded")
    if best.fun < EXPLAINED_SHARE * before and abs(best.x - 1) > SAME_TEMPERATURE:
        temperature = float(1 / best.x)
        facts: Facts = {"temperature": temperature, "left": float(best.fun) / before}
        yield TokenCause("temperature", True, sentence("tokens_cause.live_temperature", value=temperature), facts)
    yield from _kept_tokens(from_live, tokens, target, before)


def _kept_tokens(from_live: Array, tokens: Array, target: Array, before: float) -> Iterator[TokenCause]:
    """The number of most likely tokens over which the live distribution, renormalised, is the other side's."""
    rows = np.arange(len(tokens))
    ranks = (from_live > from_live[rows, tokens][:, None]).sum(1) + 1
    finite = np.isfinite(target)
    mass = np.cumsum(np.exp(-np.sort(-from_live, axis=1)), axis=1)
    values = from_live[rows, tokens][:, None] - np.log(mass)
    left = np.abs(values[finite] - target[finite][:, None]).mean(0)
    count = int(left.argmin()) + 1
    if left[count - 1] < EXPLAINED_SHARE * before and count < from_live.shape[1] and (ranks[finite] <= count).all():
        facts: Facts = {"k": count, "left": float(left[count - 1]) / before}
        yield TokenCause("top-k", True, sentence("tokens_cause.top_k", count=count), facts)


def _one_token(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """Nearly all difference stands at tokens of one id that are few."""
    sizes = np.where(compared.finite, compared.sizes, 100.0)
    sizes = np.where(sizes > limit, sizes, 0.0)
    if not sizes.sum():
        return
    ids, place, counts = np.unique(compared.tokens, return_inverse=True, return_counts=True)
    sums = np.bincount(place, sizes)
    worst = int(sums.argmax())
    if sums[worst] < ONE_CAUSE_SHARE * sums.sum() or counts[worst] > FEW_TOKENS * len(sizes) or len(ids) < 3:
        return
    token, count = int(ids[worst]), int(counts[worst])
    here = compared.tokens == token
    facts: Facts = {"token": token, "count": count, "mean": float(np.nanmean(np.where(here, sizes, np.nan)))}
    last = bool((np.append(np.diff(compared.lists) > 0, True)[here]).mean() > SUSPECTED_SHARE)
    key = "tokens_cause.end_token" if last else "tokens_cause.one_token"
    yield TokenCause("end-token" if last else "one-token", True, sentence(key, token=token, count=count), facts)


def _after_the_prompt(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """The prompt and the first new token agree, what a cache serves does not."""
    known = compared.prompts >= 0
    served = known & (compared.positions > compared.prompts)
    before = known & (compared.positions <= compared.prompts)
    given = known & (compared.positions < compared.prompts)
    if (
        served.sum() < LEAST_IN_BUCKET
        or before.sum() < LEAST_IN_BUCKET
        or not _departs(compared, before, served, limit)
    ):
        return
    after = compared.mean(served)
    place = next(_from_a_position(compared, limit), None)
    if place is not None and float(place.facts["after"]) * SAME_ONSET > after:
        return  # what departs begins later than the response
    facts: Facts = {"before": compared.mean(before), "after": after}
    first = compared.mean(known & (compared.positions == compared.prompts))
    if given.any() and first > SUSPECTED_SHARE * after:
        yield TokenCause("response", True, sentence("tokens_cause.response", **facts), facts)
    else:
        yield TokenCause("cache", True, sentence("tokens_cause.cache", **facts), facts)


def _from_a_position(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """All lists agree up to one position and depart from it on."""
    finite = compared.finite
    counts = np.bincount(compared.positions[finite])
    sums = np.bincount(compared.positions[finite], compared.sizes[finite])
    before, total = np.cumsum(counts) - counts, np.cumsum(sums) - sums
    after = counts.sum() - before
    with np.errstate(divide="ignore", invalid="ignore"):
        first, second = total / before, (sums.sum() - total) / after
        fits = (before >= LEAST_IN_BUCKET) & (after >= LEAST_IN_BUCKET) & (second > limit)
        fits &= first < AGREEING_FACTOR * second
    if not fits.any():
        return
    place = int(np.where(fits, second - first, -np.inf).argmax())
    place = min(place, _first_departing(compared, place, limit))
    facts: Facts = {"position": place, "before": float(first[place]), "after": float(second[place])}
    yield TokenCause("position", True, sentence("tokens_cause.position", **facts), facts)


def _first_departing(compared: ComparedTokens, place: int, limit: float) -> int:
    """The first position near `place` from which on positions have a mean above the limit."""
    while place > 0 and compared.mean(compared.positions == place - 1) > limit:
        place -= 1
    return place


def _some_lists(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """Some lists depart and the others agree; which, by their length if that decides."""
    means, lengths = list_means(compared)
    usable = np.isfinite(means)
    if usable.sum() < LEAST_LISTS:
        return
    means, lengths = means[usable], lengths[usable]
    bad = means > limit
    agree = float(means[~bad].mean()) if (~bad).any() else float("inf")
    if not bad.any() or agree > AGREEING_FACTOR * float(means[bad].mean()):
        return
    facts: Facts = {"lists": int(bad.sum()), "of": len(bad), "mean": float(means[bad].mean())}
    if lengths[bad].max() < lengths[~bad].min():
        facts["length"] = int(lengths[bad].max())
        yield TokenCause("short-lists", True, sentence("tokens_cause.short_lists", **facts), facts)
    elif lengths[bad].min() > lengths[~bad].max():
        facts["length"] = int(lengths[bad].min())
        yield TokenCause("long-lists", True, sentence("tokens_cause.long_lists", **facts), facts)
    else:
        yield TokenCause("some-lists", True, sentence("tokens_cause.some_lists", **facts), facts)


def list_means(compared: ComparedTokens) -> tuple[Array, Array]:
    """The mean absolute difference of each list (NaN of too few tokens), and its compared length."""
    count = int(compared.lists.max()) + 1 if len(compared.lists) else 0
    lengths = np.bincount(compared.lists[compared.finite], minlength=count)
    sums = np.bincount(compared.lists[compared.finite], compared.sizes[compared.finite], minlength=count)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lengths >= LEAST_IN_BUCKET, sums / lengths, np.nan), lengths


def length_correlation(compared: ComparedTokens) -> float:
    """The rank correlation of a list's length and its mean difference; NaN of few lists, or of lists of one length."""
    means, lengths = list_means(compared)
    usable = np.isfinite(means)
    if usable.sum() < LEAST_LISTS or np.ptp(lengths[usable]) == 0 or np.ptp(means[usable]) == 0.0:
        return float("nan")
    return float(spearmanr(lengths[usable], means[usable]).statistic)


def _penalty(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """Tokens that stand earlier in their list are less likely, the others are not."""
    seen = seen_before(compared)
    if min(seen.sum(), (~seen).sum()) < LEAST_IN_BUCKET:
        return
    values = np.where(compared.finite, compared.differences, np.nan)
    again, anew = float(np.nanmean(values[seen])), float(np.nanmean(values[~seen]))
    lower = float((values[seen] < 0).mean())
    if again < -limit and lower > PENALISED_SHARE and anew >= 0.0 and (values[~seen] > -limit).mean() > ONE_CAUSE_SHARE:
        facts: Facts = {"seen": again, "new": anew}
        yield TokenCause("penalty", True, sentence("tokens_cause.penalty", share=100 * lower, **facts), facts)


def seen_before(compared: ComparedTokens) -> Array:
    """Tokens that were compared earlier in the same list."""
    order = np.lexsort((compared.positions, compared.tokens, compared.lists))
    lists, tokens = compared.lists[order], compared.tokens[order]
    seen = np.zeros(len(order), bool)
    seen[order[1:]] = (lists[1:] == lists[:-1]) & (tokens[1:] == tokens[:-1])
    return seen


def _rounded(compared: ComparedTokens, _: float) -> Iterator[TokenCause]:
    """The values of one side are those of the other, cast to half precision."""
    first, second = _finite_pairs(compared)
    for name, dtype in HALF_PRECISIONS.items():
        for side, values, rounded in (("candidate", first, second), ("reference", second, first)):
            left = float(np.abs(values.astype(dtype).astype(np.float64) - rounded).mean())
            if left < EXPLAINED_SHARE * _mean(compared):
                yield TokenCause(
                    "rounded", True, sentence("tokens_cause.rounded", side=side, dtype=name), {"left": left}
                )
                return


def _noise(compared: ComparedTokens, limit: float) -> Iterator[TokenCause]:
    """Differences without a sign, at all positions, of values that go together: precision."""
    first, second = _finite_pairs(compared)
    mean = _mean(compared)
    if len(first) < LEAST_IN_BUCKET or mean <= limit or np.std(first) == 0 or np.std(second) == 0:
        return
    together = float(np.corrcoef(first, second)[0, 1])
    bias = abs(_bias(compared)) / mean
    if bias < UNBIASED and together > 1 - EXPLAINED_SHARE:
        facts: Facts = {"mean": mean, "pearson": together, "bias": bias}
        yield TokenCause("precision", False, sentence("tokens_cause.precision", mean=mean, pearson=together), facts)


def _length(compared: ComparedTokens, _: float) -> Iterator[TokenCause]:
    correlation = length_correlation(compared)
    if abs(correlation) > LENGTH_CORRELATION:
        key = "tokens_cause.longer" if correlation > 0 else "tokens_cause.shorter"
        message = sentence(key, correlation=correlation)
        yield TokenCause("length", False, message, {"correlation": correlation})


def _departs(compared: ComparedTokens, before: Array, after: Array, limit: float) -> bool:
    agree, differ = compared.mean(before), compared.mean(after)
    return differ > limit and agree < AGREEING_FACTOR * differ


def _finite_pairs(compared: ComparedTokens) -> tuple[Array, Array]:
    kept = compared.finite & np.isfinite(compared.reference)
    return compared.reference[kept], compared.candidate[kept]


def _mean(compared: ComparedTokens) -> float:
    return compared.mean(np.ones(len(compared.lists), bool))


def _bias(compared: ComparedTokens) -> float:
    return float(compared.differences[compared.finite].mean()) if compared.finite.any() else 0.0


_TRIALS: tuple[Callable[[ComparedTokens, float], Iterator[TokenCause]], ...] = (
    _one_token,
    _by_distribution,
    _scaled,
    _rounded,
    _shifted,
    _renormalised,
    _temperature,
    _penalty,
    _after_the_prompt,
    _some_lists,
    _from_a_position,
    _length,
    _noise,
)
