"""The causes that are confirmed by trying the change: weights, settings, layers without counterpart.

All layers are tried in one run for each change, since each is seen alone: what answers in the place of a layer is the
layer rebuilt with the changed setting, and weights that differ are the reference's for the time of the trials.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from align.forward.causes.suspects import WEIGHTS, suspects_of
from align.forward.causes.try_changes import Trials, try_around, try_settings, try_unpaired, try_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.forward.causes.compare_live_weights import Weights
    from align.forward.causes.settings_to_try import BothSettings
    from align.forward.causes.suspects import Suspect
    from align.forward.isolation.isolate_layers import Bench, IsolatedLayers
    from align.models.open_side import Side


def explain_culprits(
    reference: Side, bench: Bench, alone: IsolatedLayers, weights: Weights, settings: BothSettings
) -> tuple[Suspect, ...]:
    """Name the causes of faults that a trial confirms; what no trial explains keeps no cause.

    Each step tries only what those before left open. What weights alone explain that were never given is left out.
    """
    trials = Trials(reference, bench, alone, weights, settings)
    suspects = suspects_of(alone.faults)
    with _right_weights(bench.side, weights):
        suspects = _explained(suspects, try_weights(trials, suspects))
        suspects = _explained(suspects, try_settings(trials, _open(suspects)))
        suspects = _explained(suspects, try_around(trials, _open(suspects)))
        suspects = _explained(suspects, try_unpaired(trials, _open(suspects)))
    return tuple(one for one in suspects if not (weights.never_given and one.culprit.cause == WEIGHTS))


def _open(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Those that no step has explained yet."""
    return [one for one in suspects if not one.is_explained]


def _explained(suspects: Sequence[Suspect], found: Iterable[Suspect]) -> tuple[Suspect, ...]:
    """All suspects, with the causes that one step found."""
    explained = {one.key: one for one in found}
    return tuple(explained.get(one.key, one) for one in suspects)


@contextmanager
def _right_weights(side: Side, weights: Weights) -> Iterator[None]:
    """Give the candidate the values that it should hold for a while."""
    if weights.meant:
        _load(side, {**weights.held, **weights.meant})
    try:
        yield
    finally:
        if weights.meant:
            _load(side, weights.held)


def _load(side: Side, values: Mapping[str, Array]) -> None:
    """Fill a model by order: a run may rename its parameters."""
    names = side.reader.read_values(side.model)
    side.reader.load_values(side.model, dict(zip(names, values.values(), strict=True)))
