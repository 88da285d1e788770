"""The log-probabilities of two sides for the same tokens: paired, measured, judged, and explained.

Lists are paired by their tokens, never by similarity of values. Where the tokens of two lists differ, only their common
head is compared: behind it, both sides answer other questions. A verdict rests on named criteria, each with its limit;
causes are told by what is measured in the same run. KL estimates are k1 and k3 of J. Schulman, "Approximating KL
divergence" (2020), for tokens that the reference gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import SIDES
from align.core.protocols import silent
from align.core.verdicts import Coverage, Finding, Outcome, ShownResult, Verdict
from align.errors import UsageError
from align.tokens.examine_texts import GarbledText, find_garbled
from align.tokens.explain_differences import (
    ComparedTokens,
    Facts,
    TokenCause,
    explain_differences,
    length_correlation,
    list_means,
    seen_before,
    unlike_causes,
)
from align.tokens.pair_lists import ListPairing, UnlikeLists, pair_lists
from align.tokens.read_tokens import TokenLists, is_file, read_tokens
from align.tokens.score_model import LiveScores, TokenRepeats, repeats_in
from align.tokens.thresholds import (
    BUCKET_EDGES,
    CUT_SHARE,
    GREAT_DIFFERENCE,
    GREAT_SHARES,
    K3_LIMITS,
    LARGEST_DIFFERENCE,
    LEAST_IN_BUCKET,
    LEAST_LISTS,
    LEAST_PEARSON,
    LEAST_SPREAD,
    LISTS_SHOWN,
    LOCAL_FACTOR,
    MEAN_LIMITS,
    MOST_ONE_SIDED,
    PERPLEXITY_LIMITS,
    SLIGHT_DIFFERENCE,
    SLIGHT_SHARES,
    UNLIKELY_TOKENS,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.parameters import Array
    from align.core.protocols import Model, Progress
    from align.models.open_side import Side, SideRequest

UNJUDGED = "unlikely"  # tokens: rounding moves those most


def compare_tokens(
    reference: Path | str | Model | Side | SideRequest,
    candidate: Path | str | Model | Side | SideRequest | None = None,
    *,
    inputs: Path | str | None = None,
    dtype: str = "bfloat16",
    progress: Progress = silent,
) -> TokenComparison:
    """Compare what two engines give to the same token lists; of one side alone, tell whether its text is garbled.

    A side is a file (see docs/tokens.md), or a live model, which is given the lists of the other side, or those of
    `inputs` where both are models. `dtype` is the precision in which both compute, whose limits apply. Raises
    InputsError for files that cannot be read or have no list in common, UsageError for a dtype without limits.

    >>> import json, pathlib
    >>> for name, last in (("a.jsonl", -0.5), ("b.jsonl", -0.51)):
    ...     row = {"tokens": [5, 6, 7], "logprobs": [None, -1.25, last]}
    ...     _ = pathlib.Path(name).write_text(json.dumps(row))
    >>> result = compare_tokens("a.jsonl", "b.jsonl")
    >>> result.verdict.outcome.value, round(result.figures.mean, 4)
    ('aligned', 0.005)
    """
    if dtype not in MEAN_LIMITS:
        raise UsageError.of("tokens_error.no_dtype", dtype=dtype, known=[*MEAN_LIMITS])
    progress("tokens", 0, 3)
    sides, live, repeats = _open_sides(reference, candidate, inputs)
    progress("tokens", 1, 3)
    garbled = tuple(fault for side in sides for fault in find_garbled(side))
    if len(sides) == 1:
        return _single(sides[0], garbled, repeats, dtype)
    pairing = pair_lists(*sides)
    both = sides[0], sides[1]
    scores = (live.name, live.distribution) if live else ("", None)
    compared = ComparedTokens.of(both, pairing, *scores)
    progress("tokens", 2, 3)
    result = _judged(both, pairing, compared, dtype, (garbled, repeats))
    progress("tokens", 3, 3)
    return result


def _open_sides(
    reference: object, candidate: object, inputs: Path | str | None
) -> tuple[list[TokenLists], LiveScores | None, tuple[TokenRepeats, ...]]:
    """Read the files, then have models score their lists; the last model, and what was scored more than once."""
    given = dict(zip(SIDES, [reference] if candidate is None else [reference, candidate], strict=False))
    files = {name: read_tokens(source, name) for name, source in given.items() if is_file(source)}
    lists = next(iter(files.values()), None) if inputs is None else read_tokens(inputs)
    live: dict[str, LiveScores] = {}
    for name, source in given.items():
        if name not in files and lists is None:
            raise UsageError.of("tokens_error.no_lists")
        if name not in files and lists is not None:
            live[name] = LiveScores(source, lists, name)
    sides = [files[name] if name in files else live[name].lists for name in given]
    repeats = [one for name in given for one in (live[name].repeats if name in live else repeats_in(files[name], name))]
    return sides, next(reversed(live.values()), None), tuple(repeats)


def _single(
    side: TokenLists, garbled: tuple[GarbledText, ...], repeats: tuple[TokenRepeats, ...], dtype: str
) -> TokenComparison:
    """What is said of one side: garbled texts, and lists that were scored otherwise the second time."""
    criteria = tuple(_of_repeats(repeats, dtype))
    coverage = Coverage(sentence("tokens_unit.lists"), side.count)
    if garbled:
        reason = sentence("tokens_verdict.garbled", count=len({one.list for one in garbled}), of=side.count)
        verdict = Verdict(Outcome.NOT_ALIGNED, reason, coverage)
    elif any(not criterion.passed for criterion in criteria):
        verdict = Verdict(Outcome.NOT_ALIGNED, _batch_cause(repeats).message, coverage)
    else:
        verdict = Verdict(Outcome.ALIGNED, sentence("tokens_verdict.not_garbled"), coverage)
    return TokenComparison(
        reference=side.label,
        candidate=None,
        forms=(side.form,),
        dtype=dtype,
        lists=(side.count, 0, 0),
        figures=None,
        criteria=criteria,
        positions=(),
        groups=(),
        departs=None,
        worst=(),
        unlike=(),
        causes=(_batch_cause(repeats),) if any(not criterion.passed for criterion in criteria) else (),
        repeats=repeats,
        garbled=garbled,
        findings=tuple(_endings([side])),
        verdict=verdict,
    )


def _judged(
    sides: tuple[TokenLists, TokenLists],
    pairing: ListPairing,
    compared: ComparedTokens,
    dtype: str,
    seen: tuple[tuple[GarbledText, ...], tuple[TokenRepeats, ...]],
) -> TokenComparison:
    garbled, repeats = seen
    figures = _figures(compared) if len(compared.lists) else None
    positions, groups = tuple(_by_position(compared)), tuple(_by_group(compared))
    criteria = tuple(_criteria(figures, (positions, groups), compared, dtype)) if figures else ()
    failed = [criterion for criterion in criteria if not criterion.passed]
    invariant = [*_of_repeats(repeats, dtype)]
    causes = [*unlike_causes(pairing)]
    if any(not criterion.passed for criterion in invariant):
        causes.append(_batch_cause(repeats))
    if failed:
        causes += explain_differences(compared, MEAN_LIMITS[dtype])
    return TokenComparison(
        reference=sides[0].label,
        candidate=sides[1].label,
        forms=(sides[0].form, sides[1].form),
        dtype=dtype,
        lists=(len(pairing.reference), *pairing.unmatched),
        figures=figures,
        criteria=(*criteria, *invariant),
        positions=positions,
        groups=groups,
        departs=_departs(compared, pairing, positions, dtype),
        worst=tuple(_worst(compared, pairing)),
        unlike=pairing.unlike[:LISTS_SHOWN],
        causes=tuple(causes),
        repeats=repeats,
        garbled=garbled,
        findings=tuple(_findings(sides, compared, garbled)),
        verdict=_verdict(
            pairing,
            compared,
            (*criteria, *invariant),
            causes,
            _garbled_anew(garbled, pairing, sides),
        ),
    )


def _garbled_anew(
    garbled: Sequence[GarbledText], pairing: ListPairing, sides: tuple[TokenLists, TokenLists]
) -> list[GarbledText]:
    """Texts of the candidate with a fault that those of the reference do not have."""
    reference, candidate = ([text for text in garbled if text.side == side.label] for side in sides)
    known = {(text.list, text.fault) for text in reference}
    partners = dict(zip(pairing.candidate.tolist(), pairing.reference.tolist(), strict=True))
    return [text for text in candidate if (partners.get(text.list), text.fault) not in known]


def _verdict(
    pairing: ListPairing,
    compared: ComparedTokens,
    criteria: Sequence[TokenCriterion],
    causes: Sequence[TokenCause],
    garbled: Sequence[GarbledText],
) -> Verdict:
    first, second = pairing.unmatched
    coverage = Coverage(
        sentence("tokens_unit.tokens_in_lists", lists=len(pairing.reference)),
        len(compared.lists),
        compared.one_sided,
        first,
        second,
    )
    failed = [criterion for criterion in criteria if not criterion.passed]
    if causes:
        return Verdict(Outcome.NOT_ALIGNED, causes[0].message, coverage)
    if failed:
        facts = {"name": failed[0].name, "value": failed[0].value, "limit": failed[0].limit}
        return Verdict(Outcome.NOT_ALIGNED, sentence("tokens_verdict.beyond", **facts), coverage)
    if garbled:
        facts = {"count": len({text.list for text in garbled}), "of": compared.sides[1].count}
        return Verdict(Outcome.NOT_ALIGNED, sentence("tokens_verdict.garbled", **facts), coverage)
    if not len(compared.lists) or compared.one_sided > MOST_ONE_SIDED * len(compared.lists):
        facts = {"count": compared.one_sided, "compared": len(compared.lists)}
        text = (
            sentence("tokens_verdict.one_sided", **facts) if facts["compared"] else sentence("tokens_verdict.no_values")
        )
        return Verdict(Outcome.NOT_COMPARED, text, coverage)
    if first or second:
        return Verdict(Outcome.NOT_ALIGNED, sentence("tokens_verdict.unmatched", first=first, second=second), coverage)
    return Verdict(Outcome.ALIGNED, sentence("tokens_verdict.agree"), coverage)


def _figures(compared: ComparedTokens) -> TokenFigures:
    finite = compared.finite
    values, sizes = compared.differences[finite], compared.sizes[finite]
    first, second = compared.reference[finite], compared.candidate[finite]
    usable = np.isfinite(first)
    count = len(compared.lists)
    bounded = np.minimum(values, LARGEST_DIFFERENCE)
    spread = min(float(np.std(first[usable])), float(np.std(second[usable]))) if usable.any() else 0.0
    pearson = float(np.corrcoef(first[usable], second[usable])[0, 1]) if spread > LEAST_SPREAD else None
    signed = float(values.mean()) if len(values) else 0.0
    return TokenFigures(
        tokens=count,
        masked=int((~finite).sum()),
        mean=float(sizes.mean()) if len(sizes) else float("nan"),
        largest=float(sizes.max()) if len(sizes) else float("nan"),
        signed=signed,
        equal=float((values == 0).sum() / count),
        slight=float((np.abs(compared.differences) > SLIGHT_DIFFERENCE).mean()),
        great=float((np.abs(compared.differences) > GREAT_DIFFERENCE).mean()),
        k1=-signed,
        k3=float((np.expm1(bounded) - bounded).mean()) if len(values) else float("nan"),
        pearson=pearson,
        perplexity=float(np.exp(np.clip(-signed, -LARGEST_DIFFERENCE, LARGEST_DIFFERENCE))),
        ranks_equal=_equal_ranks(compared),
        length_effect=_finite(length_correlation(compared)),
    )


def _equal_ranks(compared: ComparedTokens) -> float | None:
    first, second = (side.ranks[places] for side, places in zip(compared.sides, compared.places, strict=True))
    known = (first > 0) & (second > 0)
    return float((first[known] == second[known]).mean()) if known.any() else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _by_position(compared: ComparedTokens) -> Iterator[TokenPart]:
    place = np.searchsorted(BUCKET_EDGES, compared.positions, "right")
    for number in np.unique(place).tolist():
        end = BUCKET_EDGES[number] - 1 if number < len(BUCKET_EDGES) else int(compared.positions.max())
        yield _part(f"{BUCKET_EDGES[number - 1]}-{end}", compared, place == number)


def _by_group(compared: ComparedTokens) -> Iterator[TokenPart]:
    known = compared.prompts >= 0
    last = np.append(np.diff(compared.lists) > 0, True) if len(compared.lists) else np.zeros(0, bool)
    special = [*compared.sides[0].special, *compared.sides[1].special]
    groups = {
        "prompt": known & (compared.positions < compared.prompts),
        "response": known & (compared.positions >= compared.prompts),
        "last of a list": last,
        "special": np.isin(compared.tokens, special),
        "seen before": seen_before(compared) if len(compared.lists) else last,
        "unlikely": compared.reference < UNLIKELY_TOKENS,
    }
    yield from (_part(name, compared, where) for name, where in groups.items() if where.any())


def _part(name: str, compared: ComparedTokens, where: Array) -> TokenPart:
    values = compared.differences[where & compared.finite]
    mean, signed = (float(part.mean()) if len(values) else None for part in (np.abs(values), values))
    largest = float(np.abs(values).max()) if len(values) else None
    beyond = float((np.abs(compared.differences[where]) > SLIGHT_DIFFERENCE).mean())
    return TokenPart(name, int(where.sum()), mean, largest, signed, beyond)


def _criteria(
    figures: TokenFigures, parts: tuple[Sequence[TokenPart], Sequence[TokenPart]], compared: ComparedTokens, dtype: str
) -> Iterator[TokenCriterion]:
    mean = MEAN_LIMITS[dtype]
    yield _at_most("mean difference", figures.mean, mean)
    yield _at_most("k3", figures.k3, K3_LIMITS[dtype])
    yield _at_most("share over 0.1", figures.slight, SLIGHT_SHARES[dtype])
    yield _at_most("share over 1.0", figures.great, GREAT_SHARES[dtype])
    yield _at_most("perplexity", abs(figures.perplexity - 1), PERPLEXITY_LIMITS[dtype])
    yield _at_most("masked", figures.masked, 0)
    if figures.pearson is not None:
        yield TokenCriterion("pearson", figures.pearson, LEAST_PEARSON, figures.pearson >= LEAST_PEARSON)
    positions, groups = (
        [
            part.mean
            for part in chosen
            if part.tokens >= LEAST_IN_BUCKET and part.mean is not None and part.name != UNJUDGED
        ]
        for chosen in parts
    )
    means, _ = list_means(compared)
    for name, values in (
        ("worst range", positions),
        ("worst kind", groups),
        ("worst list", means[np.isfinite(means)].tolist()),
    ):
        if values:
            yield _at_most(name, max(values), LOCAL_FACTOR * mean)


def _at_most(name: str, value: float, limit: float) -> TokenCriterion:
    return TokenCriterion(name, value, limit, value <= limit)


def _of_repeats(repeats: Sequence[TokenRepeats], dtype: str) -> Iterator[TokenCriterion]:
    if repeats:
        yield _at_most("repeats", max(one.mean for one in repeats), MEAN_LIMITS[dtype])


def _batch_cause(repeats: Sequence[TokenRepeats]) -> TokenCause:
    worst = max(repeats, key=lambda one: one.mean)
    facts: Facts = {"mean": worst.mean, "largest": worst.largest, "equal": worst.equal}
    message = sentence("tokens_cause.batch", side=worst.side, how=worst.how, mean=worst.mean)
    return TokenCause("batch", True, message, facts)


def _departs(
    compared: ComparedTokens, pairing: ListPairing, positions: Sequence[TokenPart], dtype: str
) -> Departure | None:
    """The first token that departs greatly, and the first range of positions from which on all means are too large."""
    limit = MEAN_LIMITS[dtype]
    far = np.flatnonzero(np.abs(compared.differences) > max(SLIGHT_DIFFERENCE, LOCAL_FACTOR * limit))
    if not len(far):
        return None
    beyond = [part.mean is None or part.mean > limit for part in positions]
    start = next((place for place in range(len(beyond)) if all(beyond[place:])), None)
    first = int(far[0])
    return Departure(
        list=int(pairing.reference[compared.lists[first]]),
        position=int(compared.positions[first]),
        token=int(compared.tokens[first]),
        earliest=int(compared.positions[far].min()),
        positions=None if start is None else positions[start].name,
    )


def _worst(compared: ComparedTokens, pairing: ListPairing) -> Iterator[WorstToken]:
    sizes = np.abs(compared.differences)
    count = min(LISTS_SHOWN, len(sizes))
    chosen = np.argpartition(-sizes, count - 1)[:count] if count else np.zeros(0, np.int64)
    for place in sorted(chosen.tolist(), key=lambda index: (-sizes[index], index)):
        if sizes[place] > 0:
            yield WorstToken(
                list=int(pairing.reference[compared.lists[place]]),
                position=int(compared.positions[place]),
                token=int(compared.tokens[place]),
                reference=float(compared.reference[place]),
                candidate=float(compared.candidate[place]),
            )


def _findings(
    sides: Sequence[TokenLists], compared: ComparedTokens, garbled: Sequence[GarbledText]
) -> Iterator[Finding]:
    for side in sides:
        count = len({one.list for one in garbled if one.side == side.label})
        if count:
            message = sentence("tokens_finding.garbled", count=count, of=side.count)
            yield Finding("garbled", "warning", side.label, message)
    if len(compared.tokens) and (compared.tokens < 0).any():
        yield Finding("texts-for-ids", "note", sides[1].label, sentence("tokens_finding.texts_for_ids"))
    if len(compared.lists) and len(compared.lists) < LEAST_IN_BUCKET:
        yield Finding("few-tokens", "note", sides[0].label, sentence("tokens_finding.few", count=len(compared.lists)))
    yield from _endings(sides)


def _endings(sides: Sequence[TokenLists]) -> Iterator[Finding]:
    """Warn of a side of which nearly no text came to an end."""
    for side in sides:
        known = [ending for ending in side.endings if ending]
        cut = sum(ending in ("length", "truncated", "max_tokens") for ending in known)
        if len(known) >= LEAST_LISTS and cut >= CUT_SHARE * len(known):
            message = sentence("tokens_finding.never_ends", count=cut, of=len(known))
            yield Finding("never-ends", "warning", side.label, message)


# What the comparison came to.


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """All compared tokens in figures, of differences candidate less reference.

    `masked` are minus infinity on one side, and are in the shares alone. `slight` and `great` are shares over 0.1 and
    1.0, `k1` and `k3` KL estimates, `perplexity` the candidate's over the reference's, `equal` the share of equal
    values, `ranks_equal` that of equal ranks, `length_effect` the rank correlation of a list's length and its mean.
    """

    tokens: int
    masked: int
    mean: float
    largest: float
    signed: float
    equal: float
    slight: float
    great: float
    k1: float
    k3: float
    pearson: float | None
    perplexity: float
    ranks_equal: float | None
    length_effect: float | None


@dataclass(frozen=True, slots=True)
class TokenCriterion:
    """A criterion: what it is called, its value, the limit, and whether it is met. Only `pearson` is a least value."""

    name: str
    value: float
    limit: float
    passed: bool


@dataclass(frozen=True, slots=True)
class TokenPart:
    """The tokens of a range of positions, or of a group: mean, largest and signed mean difference, share over 0.1."""

    name: str
    tokens: int
    mean: float | None
    largest: float | None
    signed: float | None
    slight: float


@dataclass(frozen=True, slots=True)
class Departure:
    """The first token that departs, in the order of lists; the earliest position of any that does.

    `positions` is the range from which on every range has a mean above the limit, None if the last is below.
    """

    list: int
    position: int
    token: int
    earliest: int
    positions: str | None


@dataclass(frozen=True, slots=True)
class WorstToken:
    """A token with a large difference: the reference's list, its position, and both log-probabilities."""

    list: int
    position: int
    token: int
    reference: float
    candidate: float


@dataclass(frozen=True, slots=True)
class TokenComparison(ShownResult):
    """What two sides give to the same tokens, or what one side says alone (`candidate` and `figures` are None then).

    `lists` are those in pairs, and those of each side without a counterpart.
    """

    result_kind = "tokens"
    reference: str
    candidate: str | None
    forms: tuple[str, ...]
    dtype: str
    lists: tuple[int, int, int]
    figures: TokenFigures | None
    criteria: tuple[TokenCriterion, ...]
    positions: tuple[TokenPart, ...]
    groups: tuple[TokenPart, ...]
    departs: Departure | None
    worst: tuple[WorstToken, ...]
    unlike: tuple[UnlikeLists, ...]
    causes: tuple[TokenCause, ...]
    repeats: tuple[TokenRepeats, ...]
    garbled: tuple[GarbledText, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
