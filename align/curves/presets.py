"""What two curves of a metric may differ by, as named presets with their source.

Published limits were made for losses of about 1 to 10: an absolute limit that is a good part of the loss itself would
pass anything, so it is held to a tenth of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isfinite, isinf
from typing import TYPE_CHECKING, Any

from align.curves.judging_thresholds import SHARE_OF_LOSS
from align.curves.loss_log import is_loss, same_metric
from align.errors import UsageError
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NOT_ASKED = inf


@dataclass(frozen=True, slots=True)
class CurveLimits:
    """Bounds on the first difference, on the mean and on every single one; each passes below its absolute or relative.

    `source` is a text of the user's, or the key of one of `SOURCES`, which `limits_for` puts in its place.
    A bound of 0 leaves only the other one, both 0 ask for equality, both infinite for nothing. `points` is how many
    common points the source asks for before the mean means much. `drift`: a drift fails, however small it is.
    """

    source: str
    first_abs: float = NOT_ASKED
    first_rel: float = NOT_ASKED
    mean_abs: float = NOT_ASKED
    mean_rel: float = NOT_ASKED
    every_abs: float = NOT_ASKED
    every_rel: float = NOT_ASKED
    points: int = 1
    drift: bool = False

    def asks(self, what: str) -> bool:
        """Tell whether there are bounds for "first", "mean" or "every"."""
        return not (isinf(getattr(self, f"{what}_abs")) and isinf(getattr(self, f"{what}_rel")))

    def of_each(self) -> tuple[float, float]:
        """Return the absolute and the relative bound that a single point is shown against."""
        return (self.every_abs, self.every_rel) if self.asks("every") else (self.mean_abs, self.mean_rel)


SOURCES = {
    "limits_source.own_default", "limits_source.mindformers", "limits_source.printed_digits", "limits_source.openrlhf",
    "limits_source.megatron", "limits_source.reprod_log",
}  # fmt: skip
OTHER = CurveLimits("limits_source.own_default", first_abs=0.0, first_rel=0.01, mean_abs=0.0, mean_rel=0.01)
_MINDFORMERS = "limits_source.mindformers"
GRADIENT_NORM = CurveLimits(_MINDFORMERS, first_abs=0.0, first_rel=0.1, mean_abs=0.0, mean_rel=0.1, points=1000)


@dataclass(frozen=True, slots=True)
class Preset:
    """Limits under a name: those of a loss, of metrics by the name under which they are compared, of all others."""

    name: str
    loss: CurveLimits
    metrics: Mapping[str, CurveLimits] = field(default_factory=lambda: {"grad_norm": GRADIENT_NORM})
    other: CurveLimits = OTHER


GUIDE = Preset(
    "guide",
    CurveLimits(_MINDFORMERS, first_abs=0.005, first_rel=0.005, mean_abs=0.01, mean_rel=0.01, points=1000),
)
_EXACT = CurveLimits("limits_source.printed_digits", first_abs=0.0, first_rel=0.0, every_abs=0.0, every_rel=0.0)
PRESETS: Mapping[str, Preset] = {
    one.name: one
    for one in (
        GUIDE,
        Preset("exact", _EXACT, metrics={}, other=_EXACT),
        # Its formula takes the mean of absolute differences and calls it 2 %.
        Preset("openrlhf", CurveLimits("limits_source.openrlhf", mean_abs=0.02, mean_rel=0.0)),
        Preset("megatron", CurveLimits("limits_source.megatron", every_abs=0.0, every_rel=0.05)),
        Preset("reprod_log", CurveLimits("limits_source.reprod_log", every_abs=1e-6, every_rel=0.0)),
    )
}


def find_preset(name: str, own: Mapping[str, Preset] | None = None) -> Preset:
    """Return a preset by its name, one of the user's `own` or a known one; raises UsageError."""
    known = {**PRESETS, **(own or {})}
    if name not in known:
        raise UsageError.of("log_usage.preset", name=name, known=sorted(known))
    return known[name]


def limits_for(metric: str, loss_scale: float, preset: Preset = GUIDE) -> CurveLimits:
    """Return the limits for a metric whose reference is `loss_scale` large on average (in the metric's unit)."""
    named = preset.metrics.get(same_metric(metric))
    if named is not None:
        return _worded(named)
    return _held(_worded(preset.loss), SHARE_OF_LOSS * loss_scale) if is_loss(metric) else _worded(preset.other)


def _worded(limits: CurveLimits) -> CurveLimits:
    return replace(limits, source=sentence(limits.source)) if limits.source in SOURCES else limits


def _held(limits: CurveLimits, largest: float) -> CurveLimits:
    first, mean, every = (
        largest if largest < bound < NOT_ASKED else bound
        for bound in (limits.first_abs, limits.mean_abs, limits.every_abs)
    )
    held = replace(limits, first_abs=first, mean_abs=mean, every_abs=every)
    if held == limits:
        return limits
    return replace(held, source=sentence("limits_source.held", source=limits.source, share=SHARE_OF_LOSS))


# The user's own limits of loss curves, and expressions for the lines of logs, as the project file writes them.
#
# An example:

_PARTS = ("first", "mean", "every")
_BOUNDS = {f"{part}_{kind}" for part in _PARTS for kind in ("abs", "rel")}
_KEYS = {*_BOUNDS, "source", "points", "drift"}
PATTERN_KEYS = ("pattern", "reference_pattern", "candidate_pattern")


def read_presets(document: dict[str, Any]) -> dict[str, Preset]:
    """Return the presets of a document without faults, by name."""
    tables = document.get("loss", {}).get("presets", {})
    return {name: _preset(name, table) for name, table in tables.items()}


def preset_faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield all that is wrong with the table `loss`."""
    loss = document.get("loss", {})
    if not isinstance(loss, dict) or not isinstance(loss.get("presets", {}), dict):
        yield say("project_fault.no_tables", place="[loss]", inner="[loss.presets]")
        return
    known = ("presets", *PATTERN_KEYS)
    foreign = (key for key in loss if key not in known)
    yield from (say("project_fault.no_such_key", place="[loss]", name=repr(key), known=[*known]) for key in foreign)
    for name, table in loss.get("presets", {}).items():
        where = f"[loss.presets.{name}]"
        if name in PRESETS:
            yield say("project_fault.known_preset", place=where)
        metrics = table.get("metrics", {}) if isinstance(table, dict) else {}
        if not isinstance(metrics, dict):
            yield say("project_fault.no_table_of_tables", place=f"[loss.presets.{name}.metrics]")
            continue
        yield from _faults(where, table, {*_KEYS, "metrics"})
        for metric, limits in metrics.items():
            yield from _faults(f"[loss.presets.{name}.metrics.{metric}]", limits, _KEYS)


def _preset(name: str, table: dict[str, Any]) -> Preset:
    metrics = {same_metric(metric): _limits(name, limits) for metric, limits in table.get("metrics", {}).items()}
    return Preset(name, _limits(name, table), {**GUIDE.metrics, **metrics})


def _limits(name: str, table: dict[str, Any]) -> CurveLimits:
    """Make the limits; where only one of an absolute and a relative bound is given, the other is none."""
    given = {key: value for key, value in table.items() if key in _KEYS}
    for part in _PARTS:
        if given.keys() & {f"{part}_abs", f"{part}_rel"}:
            given = {f"{part}_abs": 0.0, f"{part}_rel": 0.0, **given}
    return CurveLimits(**{"source": sentence("limits_source.of_project", preset=name), **given})


def _faults(where: str, table: object, known: set[str]) -> Iterator[str]:
    if not isinstance(table, dict):
        yield say("project_fault.no_table", place=where)
        return
    for key, value in table.items():
        if key not in known:
            yield say("project_fault.no_such_key", place=where, name=repr(key), known=sorted(known))
        elif key != "metrics" and not _fits(key, value):
            yield say("project_fault.value", place=f"{where} {key}", value=repr(value))
    if not any(key.startswith(("mean_", "every_")) for key in table):
        yield say("project_fault.no_bound", place=where)


def _fits(key: str, value: object) -> bool:
    if key == "drift":
        return isinstance(value, bool)
    if key == "source":
        return isinstance(value, str) and bool(value.strip())
    if isinstance(value, bool) or not isinstance(value, int if key == "points" else (int, float)):
        return False
    return isfinite(value) and value >= (key == "points")


def read_patterns(document: dict[str, Any]) -> tuple[str, str]:
    """Return the expressions of the reference and the candidate; "" where the project file has none."""
    loss = document.get("loss", {})
    usual = loss.get("pattern", "")
    return loss.get("reference_pattern", usual), loss.get("candidate_pattern", usual)


def pattern_faults(document: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with them as texts; what they find is seen when a log is read."""
    loss = document.get("loss", {})
    for key in PATTERN_KEYS if isinstance(loss, dict) else ():
        if key in loss and (not isinstance(loss[key], str) or not loss[key].strip()):
            form = say("project_form.text")
            yield say("project_fault.form", place=f"[loss] {key}", kind=form, value=repr(loss[key]))
