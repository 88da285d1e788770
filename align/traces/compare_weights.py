"""Do both sides hold the same values in their paired parameters? If not, no forward comparison can come out clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.message_words import first_few
from align.core.piece_transforms import apart_from_whole
from align.core.verdicts import Finding
from align.errors import CannotRunError
from align.measure.measure_arrays import measure
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, Pairing

MOST_MISSING = 5


def compare_weights(source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap) -> tuple[Finding, ...]:
    """Return one finding for each paired parameter whose values differ in any bit that counts.

    Values are compared in the target's dtype, so that a port in float16 differs only where its rounding does. Raises
    CannotRunError if a side lacks a parameter of the map.
    """
    missing = [p.source for p in name_map.pairings if p.source not in source or p.target not in target]
    if missing:
        listed = first_few(missing, MOST_MISSING)
        raise CannotRunError(f"the models lack parameters of the name map: {listed}", "make the map again: align map")
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
