"""Open layers of two models that hold one checkpoint: equal values settle them, and no run is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from align.names.by_value.trial_groups import components

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Pairing
    from align.names.by_value.trial_groups import Alternative, TrialGroup

Values = tuple["Mapping[str, Array]", "Mapping[str, Array]"]


def settle_by_equality(groups: Sequence[TrialGroup], values: Values) -> list[Pairing]:
    """Pairings of layers that alone hold the same values, taken out of their groups.

    A tensor of one value throughout, as fresh norms and biases have it, shows nothing.
    """
    settled: list[Pairing] = []
    for group in groups:
        equal = {
            (s, t): [form for form in group.forms(s, t) if _equal(form, values)]
            for s in group.sources
            for t in group.targets
        }
        edges = {s: {t for t in group.targets if equal[s, t]} for s in group.sources}
        for sources, targets in components(edges):
            forms = equal[sources[0], targets[0]]
            if len(sources) == len(targets) == len(forms) == 1:
                settled += forms[0]
                group.close(forms[0])
    return settled


def _equal(form: Alternative, values: Values) -> bool:
    pairs = [(pairing.transform.apply(values[0][pairing.source]), values[1][pairing.target]) for pairing in form]
    return any((mine != mine.reshape(-1)[0]).any() for mine, _ in pairs if mine.size) and all(
        mine.shape == theirs.shape and np.array_equal(mine, theirs) for mine, theirs in pairs
    )
