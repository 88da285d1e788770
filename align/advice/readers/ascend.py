"""Tables of Ascend's profilers: MindSpore's and torch_npu's ASCEND_PROFILER_OUTPUT, and msprof's exports.

Fields are those that the tools write themselves (`kernel_details.csv` renames the ones of msprof's `op_summary`).
Times are in microseconds.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from align.advice.evidence import (
    MICRO,
    Evidence,
    ProfilePlugin,
    ProfileSource,
    SpeedEvidence,
    StepPart,
    StepSeries,
    first_of,
    header_of,
    number,
    share_of,
    step_evidence,
    table_rows,
)
from align.advice.operators import OperatorRow, Profile, exposed_communication, operator_evidence, step_parts
from align.advice.timeline import covered
from align.rules.advice_rules import kind_of_operator
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import Array

STEP_COLUMNS = ("Computing", "Communication(Not Overlapped)", "Communication", "Free")
NAME, TYPE, CORE = ("Name", "Op Name"), ("Type", "OP Type"), ("Accelerator Core", "Task Type")
TYPES_HEADER = re.compile("Input Data Types")
START, DURATION = ("Start Time(us)", "Task Start Time(us)"), ("Duration(us)", "Task Duration(us)")
SIDES = re.compile(r"\d+")


class StepTraceTime(ProfilePlugin):
    """How long each step computes, communicates and does nothing."""

    name = "step trace"
    summary = "step_trace_time.csv of Ascend's profilers: computing, communication and idle time of each step"

    def recognizes(self, source: ProfileSource) -> bool:
        """A table with these columns."""
        return header_of(source, STEP_COLUMNS) is not None

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read all steps; a table without a step number holds the whole profile as one."""
        rows = [(line, {name: number(cell) * MICRO for name, cell in row.items() if name not in ("Step", "Device_id")})
                for line, row in table_rows(source, STEP_COLUMNS)]  # fmt: skip
        if not rows:
            return None
        columns = {name: np.array([row.get(name, 0.0) for _, row in rows]) for name in (*STEP_COLUMNS, "Bubble")}
        computing, exposed, _, free = (columns[name] for name in STEP_COLUMNS)
        seconds = computing + exposed + free
        lines = [line for line, _ in rows]
        total = float(seconds.sum())
        spans = np.full(len(rows), 1, np.int64)
        series = StepSeries(
            seconds, np.full(len(rows), np.nan), spans, lambda row: source.place(lines[row]), None, whole=False
        )
        evidence = (*_step_parts(source, columns, lines, total), *step_evidence(series))
        means = (("whole", computing), ("communication", exposed), ("host", free))
        parts = tuple(StepPart(kind, "", float(column.mean())) for kind, column in means)  # type: ignore[arg-type]
        return SpeedEvidence(
            source.shown, self.name, "", "ascend", len(rows), series.step, total, parts, evidence,
            float(computing.mean()), float(exposed.mean()),
        )  # fmt: skip


def _step_parts(source: ProfileSource, columns: dict[str, Array], lines: list[int], total: float) -> Iterator[Evidence]:
    free, exposed, bubble = columns["Free"], columns["Communication(Not Overlapped)"], columns["Bubble"]

    def place(column: Array) -> str:
        return source.place(lines[int(np.argmax(column))])

    if (idle := float(free.sum())) > 0:
        seen = sentence("advice_seen.idle", seconds=idle)
        values: dict[str, float | str] = {"device": "ascend", "mode": "", "framework": ""}
        yield Evidence("device idle", idle, share_of(idle, total), place(free), seen, values=values)
    if (open_time := float(exposed.sum() - bubble.sum())) > 0:
        whole = float(columns["Communication"].sum())
        seen = sentence("advice_seen.exposed", seconds=open_time, whole=whole)
        values = {"hidden": 1.0 - open_time / whole if whole else 1.0}
        yield Evidence(
            "exposed communication", open_time, share_of(open_time, total), place(exposed), seen, values=values
        )
    if (stood := float(bubble.sum())) > 0:
        seen = sentence("advice_seen.bubble", seconds=stood)
        yield Evidence("bubble", stood, share_of(stood, total), place(bubble), seen)


@dataclass(slots=True)
class _Kernels:
    """Kernels of one type, shapes and core: how many, how long, and the line of the longest."""

    calls: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    line: int = 0


@dataclass(slots=True)
class _Read:
    """A table of kernels as it is read: groups by what they share, and the times of communication and of all."""

    groups: dict[tuple[str, ...], _Kernels] = field(default_factory=lambda: defaultdict(_Kernels))
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    talks: list[bool] = field(default_factory=list)
    steps: set[str] = field(default_factory=set)
    first_talk: int = 0


class KernelDetails(ProfilePlugin):
    """Each kernel with its shapes, types and core."""

    name = "kernels"
    summary = "kernel_details.csv of Ascend's profilers, and op_summary_*.csv of msprof: each kernel with its shapes"

    def recognizes(self, source: ProfileSource) -> bool:
        """A table that has a name, a type and a duration of each kernel, by either tool's names."""
        pairs = (("Name", "Type", "Duration(us)"), ("Op Name", "OP Type", "Task Duration(us)"))
        return any(header_of(source, names) is not None for names in pairs)

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read all kernels, group by group."""
        needed = ["Name", "Type"] if header_of(source, ["Name", "Type", "Duration(us)"]) is not None else ["Op Name"]
        kernels = _Read()
        for line, row in table_rows(source, needed):
            _take_kernel(kernels, line, row)
        if not kernels.groups:
            return None
        rows = [_kernel_row(source, key, group) for key, group in kernels.groups.items()]
        starts, ends, talks = np.array(kernels.starts), np.array(kernels.ends), np.array(kernels.talks, bool)
        timed = bool((starts > 0).any())
        total = float(ends.max() - starts.min()) if timed else sum(row.seconds for row in rows)
        steps = len(kernels.steps - {""}) or None
        profile = Profile(rows, total, steps, "", "ascend")
        evidence = (*operator_evidence(profile), *_hidden(source, kernels, (starts, ends, talks), profile))
        wall = total / profile.counted
        parts = step_parts(profile, wall=wall if timed else None)
        return SpeedEvidence(
            source.shown, self.name, "", "ascend", steps, wall, total, parts, evidence,
            covered(starts[~talks], ends[~talks]) / profile.counted if timed else None,
        )  # fmt: skip


def _take_kernel(kernels: _Read, line: int, row: dict[str, str]) -> None:
    name, kind = first_of(row, NAME), first_of(row, TYPE)
    seconds, start = number(first_of(row, DURATION)) * MICRO, number(first_of(row, START)) * MICRO
    talks = kind_of_operator(kind) == "communication" or kind_of_operator(name) == "communication"
    shown = name if kind in ("", "N/A") else kind
    backward = "Gradients/" in name
    key = (
        shown, first_of(row, CORE), row.get("Input Shapes", ""), row.get(TYPES_HEADER.pattern, ""),
        row.get("OP State", "").lower(), "b" if backward else "",
    )  # fmt: skip
    group = kernels.groups[key]
    group.calls += 1
    group.seconds += seconds
    if seconds > group.longest or not group.line:
        group.longest, group.line = seconds, line
    kernels.starts.append(start)
    kernels.ends.append(start + seconds)
    kernels.talks.append(talks)
    kernels.steps.add(row.get("Step Id", row.get("Step ID", "")))
    kernels.first_talk = kernels.first_talk or (line if talks else 0)


def _kernel_row(source: ProfileSource, key: tuple[str, ...], group: _Kernels) -> OperatorRow:
    name, core, shapes, types, state, backward = key
    sides = tuple(tuple(map(int, SIDES.findall(one))) for one in shapes.strip('"').split(";")) if shapes else ()
    return OperatorRow(
        name, group.calls, group.seconds, group.seconds, source.place(group.line), backward=bool(backward),
        types=tuple(one.strip() for one in types.split(";")) if types and types != "N/A" else (), shapes=sides,
        device=True, core=core, dynamic=state == "dynamic",
    )  # fmt: skip


def _hidden(
    source: ProfileSource, kernels: _Read, times: tuple[Array, Array, Array], profile: Profile
) -> Iterator[Evidence]:
    """Communication that no computing hides, and what is left of the time."""
    starts, ends, talks = times
    if not (starts > 0).any():
        return
    busy, computing = covered(starts, ends), covered(starts[~talks], ends[~talks])
    idle = max(profile.total - busy, 0.0)
    first = source.place(min(group.line for group in kernels.groups.values()))
    if idle > 0:
        told = sentence("advice_seen.idle", seconds=idle)
        values: dict[str, float | str] = {"device": "ascend", "mode": "", "framework": ""}
        yield Evidence("device idle", idle, share_of(idle, profile.total), first, told, values=values)
    if talks.any():
        exposed, whole = busy - computing, covered(starts[talks], ends[talks])
        calls = int(talks.sum()) / profile.counted
        yield exposed_communication(exposed, whole, calls, profile.total, source.place(kernels.first_talk))


class OperatorStatistic(ProfilePlugin):
    """Operators by type and core, without their shapes."""

    name = "operator statistic"
    summary = "op_statistic.csv of Ascend's profilers and of msprof: operators by type and core"

    def recognizes(self, source: ProfileSource) -> bool:
        """A table with these columns."""
        return header_of(source, ("OP Type", "Core Type", "Count", "Total Time(us)")) is not None

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read all types."""
        rows = []
        for line, row in table_rows(source, ("OP Type", "Core Type", "Count", "Total Time(us)")):
            seconds = number(row["Total Time(us)"]) * MICRO
            place, calls = source.place(line), int(number(row["Count"]))
            rows.append(OperatorRow(row["OP Type"], calls, seconds, seconds, place, device=True, core=row["Core Type"]))
        if not rows:
            return None
        total = sum(row.seconds for row in rows)
        profile = Profile(rows, total, None, "", "ascend")
        parts = step_parts(profile, wall=None)
        evidence = (*operator_evidence(profile),)
        return SpeedEvidence(source.shown, self.name, "", "ascend", None, total, total, parts, evidence)


PLUGINS = (StepTraceTime(), KernelDetails(), OperatorStatistic())
