"""What the user allows single layers: limits of their own, and deviations that are accepted for a reason."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from typing import TYPE_CHECKING

from align.core.measurements import Limit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@dataclass(frozen=True, slots=True)
class LayerLimit:
    """Limit of the layers of which a path fits the glob `layers`: a multiple, or absolute bounds in their own units.

    `factor` multiplies the limit that was measured; without it `max_abs` and `rmse` bound the largest and the
    root-mean-square difference, which is never above the largest.
    """

    layers: str
    factor: float | None = None
    max_abs: float = inf
    rmse: float = inf

    def in_place_of(self, limit: Limit) -> Limit:
        """The limit in force where `limit` was measured."""
        if self.factor is not None:
            return Limit(self.factor * limit.max_abs, self.factor * limit.rmse, "user")
        return Limit(self.max_abs, min(self.rmse, self.max_abs), "user")


@dataclass(frozen=True, slots=True)
class AcceptedDeviation:
    """Layers, by a glob that fits a path, that may deviate without limit, and why."""

    layers: str
    reason: str


@dataclass(frozen=True, slots=True)
class Allowances:
    """All that the user allows. Globs are matched against the reference's and the candidate's path; the first wins.

    `coarsest` is the coarsest dtype that the candidate may compute in, "" for any.
    """

    limits: tuple[LayerLimit, ...] = ()
    accepted: tuple[AcceptedDeviation, ...] = ()
    coarsest: str = ""

    def limit(self, limit: Limit, *paths: str) -> Limit:
        """The limit in force for a layer of these paths, for which `limit` was measured."""
        own = next((one for one in self.limits if matches_glob(one.layers, *paths)), None)
        return limit if own is None else own.in_place_of(limit)

    def unused(self, paths: Collection[str]) -> Iterator[str]:
        """Globs that fit none of the paths."""
        globs = [one.layers for one in self.limits] + [one.layers for one in self.accepted]
        yield from (glob for glob in globs if not matches_glob(glob, *paths))


NO_ALLOWANCES = Allowances()


def matches_glob(glob: str, *paths: str) -> bool:
    """Tell whether a glob fits one of the paths; "" is that of the model itself."""
    return any(fnmatchcase(path, glob) for path in paths)
