r"""The user's own limits of loss curves, and expressions for the lines of logs, as the project file writes them.

An example:

    [loss]
    pattern = 'step (?P<step>\d+) .*loss (?P<loss>\S+)'
    candidate_pattern = '...'            # where one side's log is another; `reference_pattern` too

    [loss.presets.strict]
    first_abs = 1e-4                     # of abs and rel the looser one holds; one may be left out
    drift = true                         # a drift fails, however small

    [loss.presets.strict.metrics.grad_norm]
    mean_rel = 0.02
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from align.curves.metric_names import same_metric
from align.curves.presets import GUIDE, PRESETS, CurveLimits, Preset
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        yield "[loss] and [loss.presets] must be tables"
        return
    known = ("presets", *PATTERN_KEYS)
    yield from (f"[loss] unknown key {key!r}; known: {', '.join(known)}" for key in loss if key not in known)
    for name, table in loss.get("presets", {}).items():
        where = f"[loss.presets.{name}]"
        if name in PRESETS:
            yield f"{where} is the name of a known preset; give it another one"
        metrics = table.get("metrics", {}) if isinstance(table, dict) else {}
        if not isinstance(metrics, dict):
            yield f"[loss.presets.{name}.metrics] must be a table of tables"
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
        yield f"{where} must be a table"
        return
    for key, value in table.items():
        if key not in known:
            yield f"{where} unknown key {key!r}; known: {', '.join(sorted(known))}"
        elif key != "metrics" and not _fits(key, value):
            yield f"{where} {key} cannot be {value!r}"
    if not any(key.startswith(("mean_", "every_")) for key in table):
        yield f"{where} needs a bound of the mean (mean_abs, mean_rel) or of every point (every_abs, every_rel)"


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
            yield f"[loss] {key} must be text, not {loss[key]!r}"
