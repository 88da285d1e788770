"""Advice on a slow training: what its files show, held against the rules of `mappings/advice/`, the dearest first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from align.advice.evidence import Evidence, ProfileSource, StepPart, profile_readers, share_of
from align.advice.thresholds import (
    COVERED,
    FEWEST_SLOW,
    GAP_EXPLAINED,
    MOST_FILES,
    SHOWN_PLACES,
    SLOWER_PORT,
    STRAGGLER,
)
from align.core.atomic_files import existing_file
from align.core.verdicts import Coverage, Outcome, ShownResult, Verdict
from align.errors import UnreadableProfileError
from align.loops.watched_folder import HEAD
from align.rules.advice_rules import AdviceLevel, AdviceTopic, advice_rules
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.advice.evidence import PartKind, SpeedEvidence, StepPart
    from align.rules.advice_rules import AdviceRule
    from align.words.catalogue import Sentence

LEVELS: tuple[AdviceLevel, ...] = ("error", "warning", "note")
Files: TypeAlias = "Path | str | Sequence[Path | str]"


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to change: what is slow, what shows it and where, what to write, what it brings, how to check it.

    `seconds` and `share` are what it costs of the time that the file at `place` covers, `saved` the share that the
    change may bring; None where the file does not tell. `places` show the same. `change` is a line to paste.
    """

    rule: str
    topic: AdviceTopic
    level: AdviceLevel
    title: str
    seconds: float | None
    share: float | None
    saved: float | None
    told: str
    subject: str
    place: str
    places: tuple[str, ...]
    change: str
    brings: str
    check: str
    source: str


@dataclass(frozen=True, slots=True)
class ReadProfile:
    """A file that was understood, as what, and over how many steps and seconds it goes."""

    file: str
    form: str
    steps: int | None
    seconds: float | None


@dataclass(frozen=True, slots=True)
class AdvisedSide:
    """One training: its files, and a usual step in seconds with its parts, from the file that splits it most finely."""

    label: str
    framework: str
    device: str
    files: tuple[ReadProfile, ...]
    step: float | None
    parts: tuple[StepPart, ...]


@dataclass(frozen=True, slots=True)
class AdviceResult(ShownResult):
    """Advice on a training, the dearest first, and with a reference why its step is slower.

    `ratio` of the steps (candidate / reference) is held to `at_most`; `unread` are files that say nothing.
    """

    result_kind = "advise"
    candidate: AdvisedSide
    reference: AdvisedSide | None
    advice: tuple[Advice, ...]
    gap: SpeedGap | None
    ratio: float | None
    at_most: float
    unread: tuple[str, ...]
    notes: tuple[str, ...]
    rules: int
    verdict: Verdict


def advise(files: Files, *, baseline: Files = (), at_most: float = SLOWER_PORT) -> AdviceResult:
    r"""Say why a training is slow, or why it ran out of memory: from logs, profiles, or folders of these.

    `baseline` has the files of the reference; a step may take `at_most` times as long as its. Raises MissingFileError,
    and UnreadableProfileError for a damaged profile, or where none of the files says anything.

    >>> import pathlib, tempfile
    >>> log = pathlib.Path(tempfile.mkdtemp()) / "train.log"
    >>> lines = (f"step {at} loss {2 / at:.4f} time_s 0.2 data_time_s 0.15\n" for at in range(1, 40))
    >>> _ = log.write_text("".join(lines))
    >>> [(one.rule, one.level, round(one.share, 2)) for one in advise(log).advice]
    [('training-waits-for-data', 'warning', 0.75)]
    """
    profiles, unread = _read(files)
    before, unread_before = _read(baseline) if _listed(baseline) else ([], [])
    gap = explain_gap(before, profiles) if before else None
    candidate = _side(files, profiles)
    reference = _side(baseline, before) if before else None
    ratio = gap.candidate / gap.reference if gap and gap.reference else None
    advice = tuple(_advice(profiles))
    unread += unread_before
    notes = (*_notes(before, gap),)
    verdict = _verdict(advice, candidate, (ratio, at_most), gap, len(unread))
    rules = len(advice_rules())
    return AdviceResult(candidate, reference, advice, gap, ratio, at_most, tuple(unread), notes, rules, verdict)


def _listed(files: Files) -> list[Path]:
    return [Path(files)] if isinstance(files, (str, Path)) else [Path(path) for path in files]


def _side(files: Files, profiles: Sequence[SpeedEvidence]) -> AdvisedSide:
    """A side as it is shown."""
    best = finest(profiles)
    timed = best or next((one for one in profiles if one.step is not None), None)
    frameworks = [one.framework for one in profiles if one.framework]
    devices = [one.device for one in profiles if one.device]
    read = tuple(ReadProfile(one.file, one.format, one.steps, one.total) for one in profiles)
    label = ", ".join(map(str, _listed(files)))
    parts = best.parts if best is not None else ()
    step = sum(part.seconds for part in parts) if parts else timed.step if timed else None
    return AdvisedSide(label, (frameworks or [""])[0], (devices or [""])[0], read, step, parts)


# The files of a side.


def _read(files: Files) -> tuple[list[SpeedEvidence], list[str]]:
    """Read all files of a side; those that say nothing are listed. Raises UnreadableProfileError if that is all."""
    profiles: list[SpeedEvidence] = []
    unread: list[str] = []
    paths = [path for file in _listed(files) for path in _files_of(file)]
    for path in paths:
        source = ProfileSource(path)
        read = _read_file(source, alone=len(paths) == 1)
        if read is None:
            unread.append(str(path))
        else:
            profiles.append(read)
    if not profiles:
        names = ", ".join(map(str, _listed(files)))
        raise UnreadableProfileError(names, say("profile_fault.nothing", count=len(unread), names=unread))
    return _with_slow_ranks(profiles), unread


def _read_file(source: ProfileSource, *, alone: bool) -> SpeedEvidence | None:
    """What the first reader that knows a file says of it; in a folder, a damaged file is one that says nothing."""
    reader = next((one for one in profile_readers() if one.recognizes(source)), None)
    if reader is None:
        return None
    try:
        return reader.read(source)
    except UnreadableProfileError:
        if alone:
            raise
        return None


def _files_of(path: Path) -> Iterator[Path]:
    """A file, a record of a training, or the files of a folder and of those in it; raises MissingFileError."""
    if not path.is_dir():
        yield existing_file(path, "profile")
        return
    records = sorted(head.parent for head in path.rglob(HEAD))
    yield from records
    files = sorted(one for one in path.rglob("*") if one.is_file() and not one.name.startswith("."))
    inside = [one for one in files if not any(record in one.parents for record in records)]
    if not inside and not records:
        raise UnreadableProfileError(str(path), say("profile_fault.empty"))
    if len(inside) > MOST_FILES:
        fault = say("profile_fault.too_many", most=MOST_FILES)
        raise UnreadableProfileError(str(path), fault, say("profile_fault.too_many_hint"))
    yield from inside


def _with_slow_ranks(profiles: Sequence[SpeedEvidence]) -> list[SpeedEvidence]:
    """Of files of several ranks of one form, the one that computes longest is told that the others wait for it."""
    by_form: dict[str, list[int]] = defaultdict(list)
    for at, one in enumerate(profiles):
        if one.computing is not None:
            by_form[one.format].append(at)
    advice = list(profiles)
    for ranks in by_form.values():
        computing = [profiles[at].computing or 0.0 for at in ranks]
        usual, worst = float(np.median(computing)), int(np.argmax(computing))
        if len(ranks) < FEWEST_SLOW or usual <= 0 or computing[worst] < STRAGGLER * usual:
            continue
        slow, cost = profiles[ranks[worst]], computing[worst] - usual
        told = sentence("advice_seen.straggler", slow=computing[worst], usual=usual, count=len(ranks))
        share, seconds = share_of(cost, slow.step), cost * (slow.steps or 1)
        evidence = Evidence("waiting for a rank", seconds, share, slow.file, told, slow.file)
        advice[ranks[worst]] = replace(slow, evidence=(*slow.evidence, evidence))
    return advice


# Evidence held against the rules.


def _advice(found: Sequence[SpeedEvidence]) -> list[Advice]:
    """All rules that hold, the dearest first; what a narrower rule says too is left out."""
    hits: dict[str, list[tuple[AdviceRule, Evidence, SpeedEvidence]]] = defaultdict(list)
    for file in found:
        for evidence in file.evidence:
            for rule in _rules_for(evidence, file):
                hits[rule.id].append((rule, evidence, file))
    advice = {name: _one_advice(rows) for name, rows in hits.items()}
    covered = {
        name
        for rows in hits.values()
        for name in rows[0][0].covers
        if name in advice and _weight(advice[rows[0][0].id]) >= COVERED * _weight(advice[name])
    }
    left = [file for name, file in advice.items() if name not in covered]
    return sorted(left, key=lambda file: (LEVELS.index(file.level), -_weight(file), file.rule))


def _rules_for(evidence: Evidence, file: SpeedEvidence) -> Iterator[AdviceRule]:
    values: dict[str, float | str | None] = {"framework": file.framework, "device": file.device}
    values |= {**evidence.values, "share": evidence.share, "seconds": evidence.seconds}
    for rule in advice_rules():
        named = evidence.values.get("rule") == rule.id if evidence.kind == "message" else True
        if rule.evidence == evidence.kind and named and rule.holds(values):
            yield rule


def _one_advice(rows: Sequence[tuple[AdviceRule, Evidence, SpeedEvidence]]) -> Advice:
    rule, evidence, file = max(rows, key=lambda row: row[1].share or 0.0)
    others = dict.fromkeys(one.place for _, one, _ in rows if one is not evidence)
    change = rule.line(file.framework)
    saved = None if evidence.share is None else evidence.share * rule.saves
    return Advice(
        rule.id, rule.topic, rule.level_of(evidence.share), rule.title, evidence.seconds, evidence.share, saved,
        evidence.told, evidence.subject, evidence.place, tuple(others)[:SHOWN_PLACES], change, rule.brings, rule.check,
        rule.source,
    )  # fmt: skip


def _weight(advice: Advice) -> float:
    """What an advice is ordered by; one whose cost no file tells stands in the middle."""
    return 0.5 if advice.share is None else advice.share


def _notes(before: Sequence[SpeedEvidence], gap: SpeedGap | None) -> Iterator[str]:
    if before and gap is None:
        yield sentence("advice_note.no_gap")
    elif gap is not None and gap.explained < GAP_EXPLAINED:
        yield sentence("advice_note.unexplained", part=1.0 - gap.explained)


def _verdict(
    advice: Sequence[Advice], side: AdvisedSide, bound: tuple[float | None, float], gap: SpeedGap | None, unread: int
) -> Verdict:
    coverage = Coverage("files", len(side.files), unread)
    advised = [one for one in advice if one.level != "note"]
    ratio, at_most = bound
    caveats = (sentence("advice_verdict.unread", count=unread),) if unread else ()
    if ratio is not None and gap is not None and ratio > at_most:
        facts = {"ratio": ratio, "at_most": at_most, "part": gap.explained}
        reason = sentence("advice_verdict.slower", **facts, count=len(advised))
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage, caveats)
    if advised:
        reason = _first_reason(advised)
        return Verdict(Outcome.NOT_ALIGNED, reason, coverage, caveats)
    if side.step is None and not advice:
        return Verdict(Outcome.NOT_COMPARED, sentence("advice_verdict.no_times"), coverage, caveats)
    return Verdict(Outcome.ALIGNED, sentence("advice_verdict.nothing", count=len(advice)), coverage, caveats)


def _first_reason(advised: Sequence[Advice]) -> Sentence:
    first = advised[0]
    if first.share is None:
        return sentence("advice_verdict.first", count=len(advised), title=first.title)
    return sentence("advice_verdict.dearest", count=len(advised), title=first.title, share=first.share)


# Why a step takes longer than the reference's: part by part, until the parts add up.

# The forms of files by how finely they split a step, the finest first.
FINEST = (
    "trace", "kernels", "torch table", "processor operators", "operator statistic", "nsys table", "step trace",
    "watched training",
)  # fmt: skip
UNSPLIT = ("whole",)


@dataclass(frozen=True, slots=True)
class GapPart:
    """One part of a step on both sides, in seconds; `share` is its part of the gap, `example` the dearest operator."""

    kind: PartKind
    operator: str
    reference: float
    candidate: float
    share: float
    example: str


@dataclass(frozen=True, slots=True)
class SpeedGap:
    """How much longer a step takes, and why: `explained` is the share of it that parts with a name add up to.

    `reference` and `candidate` are the sums of the parts, in seconds; the dearest part comes first.
    """

    reference: float
    candidate: float
    parts: tuple[GapPart, ...]
    explained: float


def finest(found: Sequence[SpeedEvidence]) -> SpeedEvidence | None:
    """Of the files of a side, the one that splits a step most finely; None where none tells its parts."""
    split = [one for one in found if one.parts]
    return min(split, key=lambda one: _rank(one.format), default=None)


def _rank(form: str) -> int:
    return FINEST.index(form) if form in FINEST else len(FINEST)


def explain_gap(reference: Sequence[SpeedEvidence], candidate: Sequence[SpeedEvidence]) -> SpeedGap | None:
    """Hold the parts of both sides against each other; None where a side tells none, or not of which steps."""
    pairs = [
        (left, right)
        for left in reference
        for right in candidate
        if left.parts and right.parts and (left.steps is None) == (right.steps is None)
    ]
    if not pairs:
        return None
    left, right = min(pairs, key=lambda pair: max(_rank(pair[0].format), _rank(pair[1].format)))
    return _gap_of(left.parts, right.parts)


def _gap_of(reference: Sequence[StepPart], candidate: Sequence[StepPart]) -> SpeedGap:
    kinds = [{part.kind for part in side} for side in (reference, candidate)]
    coarse = any("whole" in side for side in kinds)
    both = set.intersection(*kinds) if coarse else set()
    left, right = (_summed(side, coarse, both) for side in (reference, candidate))
    sums = sum(seconds for seconds, _ in left.values()), sum(seconds for seconds, _ in right.values())
    gap = sums[1] - sums[0]
    parts = []
    for key in {**left, **right}:
        before, after = left.get(key, (0.0, "")), right.get(key, (0.0, ""))
        share = (after[0] - before[0]) / gap if gap else 0.0
        parts.append(GapPart(*key, before[0], after[0], share, after[1] or before[1]))
    parts.sort(key=lambda part: -part.share)
    unexplained = sum(part.candidate - part.reference for part in parts if part.kind in UNSPLIT)
    explained = max(1.0 - abs(unexplained / gap), 0.0) if gap else 1.0
    return SpeedGap(sums[0], sums[1], tuple(parts), explained)


def _summed(
    parts: Sequence[StepPart], coarse: bool, both: set[PartKind]
) -> dict[tuple[PartKind, str], tuple[float, str]]:
    """Seconds and example of each part; of a coarse comparison what both sides tell apart, and all else as a whole."""
    seconds: dict[tuple[PartKind, str], float] = defaultdict(float)
    examples: dict[tuple[PartKind, str], StepPart] = {}
    for part in parts:
        kind: PartKind = part.kind if not coarse or part.kind in both else "whole"
        key = kind, "" if coarse else part.operator
        seconds[key] += part.seconds
        if key not in examples or part.seconds > examples[key].seconds:
            examples[key] = part
    return {key: (total, examples[key].example) for key, total in seconds.items()}
