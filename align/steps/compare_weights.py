"""Do both sides hold the same values in their paired parameters? If not, no forward comparison can come out clean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.core.findings import Finding
from align.steps.measure import measure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.names import NameMap


def compare_weights(source: Mapping[str, Array], target: Mapping[str, Array], name_map: NameMap) -> tuple[Finding, ...]:
    """Return one finding for each paired parameter whose values differ in any bit that counts.

    Values are compared in the target's dtype, so that a port in float16 differs only where its rounding does.
    """
    findings = []
    for pairing in name_map.pairings:
        meant = pairing.transform.apply(source[pairing.source])
        held = target[pairing.target]
        if meant.shape != held.shape:
            message = f"shape {list(meant.shape)} against {list(held.shape)}"
        elif np.array_equal(meant.astype(held.dtype), held, equal_nan=held.dtype.kind in "fc"):
            continue
        else:
            message = f"values differ by up to {measure(meant, held).max_abs:.3g}"
        subject = f"{pairing.source} -> {pairing.target}"
        findings.append(Finding("weights-differ", "error", subject, message))
    return tuple(findings)
