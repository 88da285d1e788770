"""Do both sides hold the same values in their paired parameters? If not, no forward comparison can come out clean.

Where they are unrelated, the port was never given its weights: one finding then stands for all. For as long as a run
takes, the candidate can hold the reference's weights.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from align.core.name_map import NameMap
from align.core.piece_transforms import apart_from_whole
from align.core.verdicts import Finding
from align.errors import CannotRunError, NothingInCommonError
from align.measure.measure_arrays import measure
from align.names.map_file import read_map
from align.names.map_parameters import match_sides, settle_by_order
from align.names.user_rules import NameRules, check_shapes
from align.traces.thresholds import (
    LEAST_UNRELATED_ELEMENTS,
    LEAST_UNRELATED_PARAMETERS,
    MOST_LISTED_PARAMETERS,
    MOST_UNRELATED_CORRELATION,
    SAME_SUMS_TOLERANCE,
)
from align.words.catalogue import sentence
from align.words.message_words import first_few

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Pairing
    from align.models.open_side import Side

CODE = "weights-never-given"


def compare_weights(source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap) -> tuple[Finding, ...]:
    """Return one finding for each paired parameter whose values differ in any bit that counts.

    Values are compared in the target's dtype, so that a port in float16 differs only where its rounding does. Raises
    CannotRunError if a side lacks a parameter of the map.
    """
    missing = [p.source for p in name_map.pairings if p.source not in source or p.target not in target]
    if missing:
        raise CannotRunError.of("traces_error.map_of_others", names=first_few(missing, MOST_LISTED_PARAMETERS))
    findings = []
    for pairing in name_map.pairings:
        meant, held, _ = paired_values(pairing, source, target)
        if difference := _difference(meant, held):
            subject = f"{pairing.source} -> {pairing.target}"
            findings.append(Finding("weights-differ", "error", subject, difference))
    return tuple(findings)


def expected_weights(source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap) -> dict[str, Array]:
    """Return what the target should hold where it holds something else of the same shape, whole tensors by name."""
    found: dict[str, Array] = {}
    for pairing in name_map.pairings:
        meant, held, region = paired_values(pairing, source, target)
        if meant.shape == held.shape and _difference(meant, held):
            whole = found.setdefault(pairing.target, np.array(target[pairing.target]))
            whole[region] = meant
    return found


def paired_values(
    pairing: Pairing, source: Mapping[str, Array], target: Mapping[str, Array]
) -> tuple[Array, Array, tuple[slice, ...]]:
    """What a pairing means to be in the target, what is there, and which region of the target's tensor that is."""
    change, part = apart_from_whole(pairing.transform)
    meant, held = change.apply(source[pairing.source]), target[pairing.target]
    if part and part.shape == held.shape:
        return meant, held[part.region], part.region
    return meant, held, ()


def _difference(meant: Array, held: Array) -> str:
    if meant.shape != held.shape:
        return sentence("trace_finding.weights_shape", reference=list(meant.shape), candidate=list(held.shape))
    rounded = meant.astype(held.dtype, copy=False)
    if np.array_equal(rounded, held):  # far quicker than the figures, and nearly always true
        return ""
    measurement = measure(rounded, held)
    if not measurement.mismatched:  # NaN in the same places
        return ""
    return sentence(
        "trace_finding.weights_differ",
        count=measurement.mismatched,
        total=measurement.count,
        difference=measurement.max_abs,
        non_finite=measurement.non_finite_mismatch,
    )


def weights_never_given(
    findings: Sequence[Finding],
    values: tuple[Mapping[str, Array], Mapping[str, Array]],
    name_map: NameMap,
    *,
    buffers: Collection[str] = (),
    filled: tuple[bool, bool] = (False, False),
) -> Finding | None:
    """One finding in the place of those of `compare_weights`, if all learned parameters differ and none are related.

    `values` are those of both sides, `buffers` names of the candidate that a model computes for itself. `filled` says
    which side's values came from a checkpoint. Parameters of one value throughout, as a fresh norm has them, may agree.
    """
    differing = {finding.subject for finding in findings}
    learned = [
        one for one in name_map.pairings if one.target not in buffers and not _is_constant(values[0][one.source])
    ]
    if len(learned) < LEAST_UNRELATED_PARAMETERS or any(
        f"{one.source} -> {one.target}" not in differing for one in learned
    ):
        return None
    pairs = (paired_values(one, *values)[:2] for one in learned)
    if not _are_unrelated(pairs):
        return None
    message = sentence(_key(filled), count=len(findings), total=len(name_map.pairings))
    facts: dict[str, float | int | str] = {"differ": len(findings), "parameters": len(name_map.pairings)}
    label = name_map.source if filled == (False, True) else name_map.target
    return Finding(CODE, "error", label, message, facts)


def _key(filled: tuple[bool, bool]) -> str:
    if all(filled):
        return "trace_finding.weights_of_other_training"
    return "trace_finding.reference_never_filled" if filled[1] else "trace_finding.port_never_filled"


def _are_unrelated(pairs: Iterator[tuple[Array, Array]]) -> bool:
    """Tell whether no values are those of the other side in another order, and all correlate as by chance."""
    total, elements = 0.0, 0
    for meant, held in pairs:
        if meant.shape == held.shape:
            own, other = (np.ravel(value).astype(np.float64) for value in (meant.astype(held.dtype), held))
            if _is_permuted(own, other):
                return False
            total, elements = total + abs(_correlation(own, other)) * own.size, elements + own.size
    return elements >= LEAST_UNRELATED_ELEMENTS and total / elements < MOST_UNRELATED_CORRELATION


def _is_constant(value: Array) -> bool:
    return bool((value == value.flat[0]).all()) if value.size else True


def _is_permuted(own: Array, other: Array) -> bool:
    squares = float(own @ own), float(other @ other)
    ends = [(float(value.min()), float(value.max())) for value in (own, other)]
    return ends[0] == ends[1] and not _is_constant(other) and isclose(*squares, rel_tol=SAME_SUMS_TOLERANCE)


def _correlation(own: Array, other: Array) -> float:
    """Pearson's; 0 where a side has one value throughout, or values that are not finite."""
    own, other = own - own.mean(), other - other.mean()
    norm = np.sqrt((own @ own) * (other @ other))
    return float(own @ other / norm) if np.isfinite(norm) and norm > 0 else 0.0


class TransferredWeights:
    """What the candidate would hold with the reference's weights.

    `findings` are the paired parameters whose values differ. `problem` says why values could not be compared, or cannot
    be carried over, "" if they can. Made before the first run, in which a MindSpore cell may rename its parameters.
    `inputs` are those of a run whose order decides what names leave open.
    """

    def __init__(
        self, sides: tuple[Side, Side], name_map: NameMap | Path | str | None, inputs: Mapping[str, Array]
    ) -> None:
        self._candidate = sides[1]
        self._values: dict[str, Array] = {}
        self.findings: tuple[Finding, ...] = ()
        self.problem = ""
        source, target = (side.reader.read_values(side.model) for side in sides)
        try:
            paired = _paired(sides, name_map, inputs)
        except NothingInCommonError as error:
            if name_map is not None:
                raise
            self.problem = error.message
            return
        self.findings = compare_weights(source, target, paired)
        if self.findings:
            self._values = target | expected_weights(source, target, paired)
        left_open = [one.name for one in paired.unmatched]
        left_open += [name for group in paired.ambiguous for name in (*group.sources, *group.targets)]
        if left_open:
            self.problem = sentence("trace_finding.names_open", count=len(left_open), names=left_open)

    def report(self, label: str) -> Iterator[Finding]:
        """Warn of values that differ, and of those that are not known to be the same."""
        if self.findings:
            names = [finding.subject for finding in self.findings]
            message = sentence("trace_finding.other_weights", count=len(names), names=names)
            yield Finding("weights-differ", "warning", label, message)
        if self.problem:
            message = sentence("trace_finding.weights_unknown", problem=self.problem)
            yield Finding("weights-unknown", "warning", label, message)

    @property
    def exchangeable(self) -> bool:
        """Tell whether the candidate has weights of its own, and can take the reference's."""
        return bool(self.findings) and not self.problem

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Fill the candidate with the reference's weights, and give it its own back at the end."""
        reader, model = self._candidate.reader, self._candidate.model
        own = reader.read_values(model)
        reader.load_values(model, dict(zip(own, self._values.values(), strict=True)))
        try:
            yield
        finally:
            reader.load_values(model, own)


def _paired(sides: tuple[Side, Side], given: NameMap | Path | str | None, inputs: Mapping[str, Array]) -> NameMap:
    if isinstance(given, NameMap):
        return given
    source, target = (side.reader.read_parameters(side.model, side.label) for side in sides)
    if given is None:
        matched = match_sides(source, target, NameRules())
        if matched.complete:
            return matched
        return settle_by_order(matched, sides, (source, target), inputs, NameRules())[0]
    name_map = read_map(Path(given), source.names, target.names)
    check_shapes(name_map, source, target)
    return name_map
