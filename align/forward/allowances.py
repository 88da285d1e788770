"""What the user allows single layers, and how it is read: own limits, and deviations accepted for a reason."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import inf
from typing import TYPE_CHECKING, Any

from align.core.measurements import Limit
from align.errors import UsageError
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

BOUNDS = {"max_abs", "rmse"}


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


def read_allowances(document: dict[str, Any]) -> Allowances:
    """Return the tables `limits` and `accepted` of a document without faults."""
    limits = tuple(
        LayerLimit(glob, **value) if isinstance(value, dict) else LayerLimit(glob, factor=float(value))
        for glob, value in document.get("limits", {}).items()
    )
    return Allowances(limits, tuple(AcceptedDeviation(one["layer"], one["reason"]) for one in _accepted(document)))


def allowance_faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield all that is wrong with the tables."""
    limits = document.get("limits", {})
    if not isinstance(limits, dict):
        yield say("allowance_fault.no_table")
    else:
        for glob, value in limits.items():
            yield from (say("allowance_fault.limit", layers=glob, fault=fault) for fault in _limit_faults(value))
    for number, table in enumerate(_accepted(document), 1):
        if not isinstance(table, dict) or set(table) != {"layer", "reason"}:
            yield say("allowance_fault.accepted", number=number)
            continue
        if not isinstance(table["layer"], str):
            yield say("allowance_fault.layer", number=number, layer=repr(table["layer"]))
        if not isinstance(table["reason"], str) or not table["reason"].strip():
            yield say("allowance_fault.reason", number=number, reason=repr(table["reason"]))


def read_limits(texts: Sequence[str]) -> tuple[LayerLimit, ...]:
    """Read `GLOB=VALUE`, a multiple of the measured limit each; raises UsageError listing those that are none."""
    if wrong := [repr(text) for text in texts if not _is_bound(_multiple(text))]:
        raise UsageError.of("forward_error.no_limit", texts=wrong)
    return tuple(LayerLimit(text.rpartition("=")[0], factor=_multiple(text)) for text in texts)


def _multiple(text: str) -> float | None:
    _, separator, value = text.rpartition("=")
    try:
        return float(value) if separator else None
    except ValueError:
        return None


def _limit_faults(value: object) -> Iterator[str]:
    if not isinstance(value, dict):
        if not _is_bound(value):
            yield say("allowance_fault.multiple", value=repr(value))
    elif not value or set(value) - BOUNDS:
        yield say("allowance_fault.keys", keys=[*value] or ["nothing"])
    else:
        wrong = {key: repr(one) for key, one in value.items() if not _is_bound(one)}
        yield from (say("allowance_fault.bound", name=key, value=one) for key, one in wrong.items())


def _is_bound(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 < value < inf


def _accepted(document: dict[str, Any]) -> list[Any]:
    tables = document.get("accepted", [])
    return tables if isinstance(tables, list) else [tables]
