"""A side built from several seeds, and of each paired parameter as many elements as a test needs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from align.errors import CannotRunError, UserCodeError
from align.models.open_side import build_side
from align.models.user_code import load_function, run_user_code
from align.traces.compare_weights import paired_values
from align.training.make_deterministic import make_deterministic
from align.training.thresholds import BUILT_ELEMENTS, FEWEST_SEEDS, INITIAL_FEWEST_ELEMENTS, INITIAL_SAMPLES, MOST_SEEDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import Pairing
    from align.core.parameters import ParameterSet
    from align.models.open_side import Side


class Builder:
    """Builds a side from one seed after the other, counted from the first."""

    def __init__(self, given: str | Callable[[], Any], first_seed: int) -> None:
        self.label = given if isinstance(given, str) else getattr(given, "__name__", type(given).__name__)
        failed = partial(UserCodeError, f"building {self.label}")
        self._make = load_function(given) if isinstance(given, str) else partial(run_user_code, given, failed)
        self._first_seed = first_seed
        self._side = self._built(0)
        self._values: dict[str, Array] | None = self._side.reader.read_values(self._side.model)

    def read_parameters(self) -> ParameterSet:
        """Names, shapes and modules of the side."""
        return self._side.reader.read_parameters(self._side.model, self.label)

    def build(self, number: int) -> dict[str, Array]:
        """The values of a build; raises CannotRunError for a function that returns one model each time."""
        if number == 0 and self._values is not None:
            values, self._values = self._values, None
            return values
        side = self._built(number)
        if side.model is self._side.model:
            raise CannotRunError.of("training_error.one_model", side=self.label)
        return side.reader.read_values(side.model)

    def _built(self, number: int) -> Side:
        """A build from its seed; a framework that the first one imports had none, so that it is built again."""
        seed = self._first_seed + number
        settings = make_deterministic(seed).settings
        side = build_side(self._make())
        return side if make_deterministic(seed).settings == settings else build_side(self._make())


@dataclass(slots=True)
class DrawnParameter:
    """What was drawn for one parameter of one side: some elements of each build, always at the same places.

    `whole` is the first build's value, `checksums` are of the whole of each, `low` and `high` the extremes of all.
    """

    whole: Array
    samples: list[Array] = field(default_factory=list)
    checksums: set[int] = field(default_factory=set)
    low: float = np.inf
    high: float = -np.inf

    def add(self, value: Array, places: Array | None) -> None:
        """Add a build."""
        flat = np.ascontiguousarray(value).reshape(-1)
        self.checksums.add(zlib.crc32(flat.view(np.uint8).data) if flat.size else 0)
        wide = (flat if places is None else flat[places]).astype(np.float64)
        self.samples.append(wide)
        if flat.size:
            self.low = min(self.low, float(flat.min()))
            self.high = max(self.high, float(flat.max()))

    @property
    def random(self) -> bool:
        """Tell whether another seed gives other values."""
        return len(self.checksums) > 1

    @property
    def table(self) -> Array:
        """All samples, one row a build."""
        return np.stack(self.samples)[:, : max(INITIAL_SAMPLES // len(self.samples), 1)]


class PairedDraws:
    """What both sides drew for each pair of a name map, the reference's values as the map makes them."""

    def __init__(self, pairings: Sequence[Pairing]) -> None:
        self._pairings = pairings
        self._places: list[Array | None] = []
        self.pairs: list[tuple[Pairing, DrawnParameter, DrawnParameter]] = []

    def add(self, ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
        """Add a build of each side."""
        for number, pairing in enumerate(self._pairings):
            meant, held, _ = paired_values(pairing, ours, theirs)
            if len(self.pairs) == number:
                self.pairs.append((pairing, DrawnParameter(meant.copy()), DrawnParameter(held.copy())))
                self._places.append(_places(held.size) if meant.size == held.size else None)
            places = self._places[number]
            for drawn, value in zip(self.pairs[number][1:], (meant, held), strict=True):
                drawn.add(value, places)

    def seeds_needed(self) -> int:
        """How many builds give the smallest random parameter enough elements, as far as that is cheap."""
        both = [one for _, *drawn in self.pairs for one in drawn if one.random and one.whole.size]
        smallest = min((one.whole.size for one in both), default=INITIAL_FEWEST_ELEMENTS)
        elements = sum(ours.whole.size for _, ours, _ in self.pairs)
        cheap = int(BUILT_ELEMENTS // max(elements, 1))
        return max(FEWEST_SEEDS, min(ceil(INITIAL_FEWEST_ELEMENTS / smallest), MOST_SEEDS, cheap))


def _places(size: int) -> Array | None:
    """Which elements are looked at in each build, None for all."""
    most = INITIAL_SAMPLES // FEWEST_SEEDS
    return np.sort(np.random.default_rng(0).choice(size, most, replace=False)) if size > most else None


def require_reaction(label: str, drawn: Sequence[DrawnParameter]) -> None:
    """Raise CannotRunError for a side that holds one set of values whatever the seed, unless all are constants."""
    if any(one.random for one in drawn) or all(one.low == one.high for one in drawn):
        return
    raise CannotRunError.of("training_error.same_for_every_seed", side=label, count=len(drawn))
