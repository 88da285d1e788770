"""Traces in Chrome's format: of torch's profiler, of MindSpore's, of torch_npu's."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from align.advice.evidence import (
    MICRO,
    Evidence,
    ProfilePlugin,
    ProfileSource,
    SpeedEvidence,
    StepSeries,
    share_of,
    step_evidence,
)
from align.advice.operators import PRODUCTS, Profile, exposed_communication, operator_evidence, step_parts
from align.advice.thresholds import FEWEST_SLOW, SHAPES_CHANGE
from align.advice.timeline import (
    DATA,
    NUMBERED,
    covered,
    open_timeline,
    operator_rows,
    place_of,
    read_events,
    reading_loops,
    step_signatures,
    steps_of,
)
from align.rules.advice_rules import kind_of_operator
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.advice.timeline import Timeline
    from align.core.parameters import Array
    from align.rules.advice_rules import EvidenceKind


EVENT = re.compile(rb'"ph"\s*:\s*"[XMBEsfbei]"')
BEGINS = re.compile(rb"^\s*(\{|\[\s*(\{|\]))")
COMPILING = re.compile(r"_compile\.compile_inner|compile_fx|\(dynamo_timed\)$|^CompileTime|^CompiledFunction: compile")
PER_STEP = re.compile(r"compile_inner")


class ChromeTraces(ProfilePlugin):
    """Traces of torch, torch_npu and MindSpore, packed or not, of any size."""

    name = "trace"
    summary = "a trace in Chrome's format (JSON, also .gz) of torch's, torch_npu's or MindSpore's profiler"

    def recognizes(self, source: ProfileSource) -> bool:
        """A JSON document with events of such a trace at its beginning."""
        return bool(BEGINS.match(source.head)) and (b'"traceEvents"' in source.head or bool(EVENT.search(source.head)))

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read all events; None for a trace without operators."""
        line = open_timeline(read_events(source))
        used = line.of_role("ok")
        if not used.any():
            return None
        profile = _profile(line, source, used)
        steps = _step_series(line, source)
        evidence = (*operator_evidence(profile), *_times(line, profile, source), *_compiled(line, profile, source))
        if steps is not None:
            evidence += (*step_evidence(steps),)
        wall = profile.total / profile.counted
        parts = step_parts(profile, wall=wall)
        return SpeedEvidence(
            source.shown, self.name, profile.framework, profile.device, profile.steps, wall, profile.total, parts,
            _with_loops(evidence, line, profile),
        )  # fmt: skip


def _profile(line: Timeline, source: ProfileSource, used: Array) -> Profile:
    total = float(line.end[used].max() - line.start[used].min()) * MICRO
    steps, _ = steps_of(line)
    torch = any(key.name.startswith("aten::") for key in line.events.keys)
    names = {*line.events.processes.values()}
    kernels = line.of_role("k").any()
    device = "ascend" if "Ascend Hardware" in names else "cuda" if kernels else "cpu"
    rows = [*operator_rows(line, source.shown)]
    return Profile(rows, total, steps, "torch" if torch else "mindspore" if "CPU OP" in names else "", device)


def _step_series(line: Timeline, source: ProfileSource) -> StepSeries | None:
    """The steps that a profiler marks, with what each waits for data; None where there are too few."""
    count, which = steps_of(line)
    if count is None or count <= FEWEST_SLOW or not which.any():
        return None
    at = np.flatnonzero(which)
    at = at[np.argsort(line.start[at])]
    starts = line.start[at]
    seconds, at = np.diff(starts) * MICRO, at[:-1]
    waits = np.zeros(len(seconds))
    loading = np.flatnonzero(((line.nesting.bits & DATA) > 0) & (line.nesting.outer < 0) & line.of_role("o"))
    of_step = np.searchsorted(starts, line.start[loading], "right") - 1
    inside = (of_step >= 0) & (of_step < len(seconds))
    np.add.at(waits, of_step[inside], line.duration[loading][inside] * MICRO)
    usable = seconds > 0
    spans = np.full(int(usable.sum()), 1, np.int64)
    rows = at[usable]
    return StepSeries(
        seconds[usable], np.full(len(rows), np.nan) if not len(loading) else waits[usable], spans,
        lambda row: place_of(line, int(rows[row]), source.shown), None, whole=False,
    )  # fmt: skip


def _with_loops(evidence: tuple[Evidence, ...], line: Timeline, profile: Profile) -> tuple[Evidence, ...]:
    """Add the turns of a loop that reads values one by one to what these reads cost."""
    turns = reading_loops(line)

    def with_turns(item: Evidence) -> Evidence:
        if item.kind != "host reads" or item.seconds is None:
            return item
        seconds = item.seconds + turns
        return replace(item, seconds=seconds, share=share_of(seconds, profile.total))

    return tuple(map(with_turns, evidence))


def _times(line: Timeline, profile: Profile, source: ProfileSource) -> Iterator[Evidence]:
    """When nothing runs: neither an operator, nor a kernel where there is a device."""
    kernels, operators = line.of_role("k"), line.of_role("o")
    used = kernels if kernels.any() else operators
    busy = covered(line.start[used], line.end[used]) * MICRO
    idle = max(profile.total - busy, 0.0)
    last = place_of(line, int(np.flatnonzero(used)[0]), source.shown)
    share = share_of(idle, profile.total)
    values: dict[str, float | str] = {"device": profile.device, "framework": profile.framework}
    values["mode"] = _mode(line, profile)
    if not kernels.any():
        seen = sentence("advice_seen.host", seconds=idle)
        yield Evidence("host time", idle, share, last, seen, values=values)
        return
    loading = ((line.nesting.bits & DATA) > 0) & (line.nesting.outer < 0) & operators
    waiting = covered(line.start[loading], line.end[loading]) * MICRO
    rest = max(idle - waiting, 0.0)
    seen = sentence("advice_seen.idle", seconds=rest)
    yield Evidence("device idle", rest, share_of(rest, profile.total), last, seen, values=values)
    yield from _communication(line, profile, source, kernels)


def _mode(line: Timeline, profile: Profile) -> str:
    """Graph mode names operators by the cells that they are in; PyNative mode does not."""
    if profile.framework != "mindspore":
        return ""
    keys = [key.name for key, role in zip(line.events.keys, line.roles, strict=True) if role == "o"]
    deep = sum(name.count("/") >= 2 for name in keys)
    return "graph" if deep > len(keys) / 2 else "pynative"


def _communication(line: Timeline, profile: Profile, source: ProfileSource, kernels: Array) -> Iterator[Evidence]:
    """Collectives during which nothing else runs on the device."""
    of_kind = np.array([kind_of_operator(key.name) == "communication" for key in line.events.keys], bool)[line.key]
    talking, computing = kernels & of_kind, kernels & ~of_kind
    if not talking.any():
        return
    both = covered(line.start[kernels], line.end[kernels])
    exposed = max(both - covered(line.start[computing], line.end[computing]), 0.0) * MICRO
    calls = int(talking.sum()) / profile.counted
    whole = covered(line.start[talking], line.end[talking]) * MICRO
    yield exposed_communication(
        exposed, whole, calls, profile.total, place_of(line, int(np.flatnonzero(talking)[0]), source.shown)
    )


def _compiled(line: Timeline, profile: Profile, source: ProfileSource) -> Iterator[Evidence]:
    """What is compiled, and shapes that change from step to step."""
    compiling = line.named(COMPILING)
    if compiling.any():
        seconds = covered(line.start[compiling], line.end[compiling]) * MICRO
        count = int(line.named(PER_STEP).sum())
        at = int(np.flatnonzero(compiling)[0])
        told = sentence("advice_seen.compiled", seconds=seconds, count=count)
        share, values = share_of(seconds, profile.total), {"count": float(count)}
        yield Evidence("compiled again", seconds, share, place_of(line, at, source.shown), told, values=values)
    if profile.framework == "mindspore":
        yield from _new_graphs(line, profile, source)
        return
    _, steps = steps_of(line)
    shapes = Counter(step_signatures(line, steps, PRODUCTS)) if steps.any() else Counter[int]()
    if len(shapes) >= SHAPES_CHANGE:
        yield from _first_uses(line, profile, source, len(shapes))


def _first_uses(line: Timeline, profile: Profile, source: ProfileSource, sets: int) -> Iterator[Evidence]:
    """What the first use of each shape of a convolution costs beyond a later one, where shapes change."""
    times: dict[int, list[float]] = defaultdict(list)
    wanted = np.array(
        [kind_of_operator(key.name) == "convolution" and bool(key.shapes) for key in line.events.keys], bool
    )
    which = np.flatnonzero(wanted[line.key] & line.of_role("o"))
    for at in which:
        times[int(line.key[at])].append(float(line.nesting.own[at]) * MICRO)
    usual = float(np.median([one for found in times.values() for one in found[1:]] or [0.0]))
    first = [found[0] for found in times.values()]
    cost = sum(max(one - usual, 0.0) for one in first) if usual else 0.0
    place = place_of(line, int(which[0]), source.shown) if len(which) else source.shown
    told = sentence("advice_seen.shapes", count=sets, seconds=cost)
    ratio = float(np.median(first)) / usual if usual else 0.0
    values: dict[str, float | str] = {"sets": float(sets), "ratio": ratio, "device": profile.device}
    yield Evidence("first use of shapes", cost, share_of(cost, profile.total), place, told, values=values)


# MindSpore numbers the operators of each graph that it compiles; which shapes they have stands beside the trace.


def _new_graphs(line: Timeline, profile: Profile, source: ProfileSource) -> Iterator[Evidence]:
    """Graphs that are compiled while the training runs: for other shapes, or for the same once more."""
    numbers: dict[str, set[str]] = defaultdict(set)
    for key, role in zip(line.events.keys, line.roles, strict=True):
        match = NUMBERED.match(key.name) if role == "o" else None
        if match is not None and "/" in match["base"]:
            numbers[match["base"]].add(match["number"])
    graphs = min(map(len, numbers.values()), default=0)
    if graphs < SHAPES_CHANGE or _mode(line, profile) != "graph":
        return
    operators = line.of_role("o")
    idle = profile.total - covered(line.start[operators], line.end[operators]) * MICRO
    files = sorted((source.path.parent.parent / "FRAMEWORK").glob("cpu_framework_*.txt"))
    sets, row = _shapes_of(files[0], graphs) if files else (0, 1)
    place = f"{files[0]}:{row}" if files else source.shown
    seen = sentence("advice_seen.graphs", count=graphs, shapes=sets, seconds=idle)
    values: dict[str, float | str] = {"graphs": float(graphs), "sets": float(sets)}
    kind: EvidenceKind = "changing shapes" if sets >= SHAPES_CHANGE else "compiled again"
    if kind == "compiled again":
        values["count"] = float(graphs)
    yield Evidence(kind, idle, share_of(idle, profile.total), place, seen, values=values)


def _shapes_of(file: Path, graphs: int) -> tuple[int, int]:
    """With how many shapes operators stand in lines `Sub;Sub-op0;id;input_1:[4, 1];...`, and the line of the last."""
    shapes: dict[str, dict[str, int]] = defaultdict(dict)
    numbers: dict[str, set[str]] = defaultdict(set)
    for number, text in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
        kind, _, rest = text.partition(";")
        node, _, graph = rest.partition(";")
        numbers[kind].add(node)
        shapes[kind].setdefault(graph, number)
    found = [shapes[kind] for kind in shapes if len(numbers[kind]) == graphs]
    changing = [one for one in found if len(one) >= SHAPES_CHANGE]
    fewest = min(changing, key=len, default={})
    return len(fewest), max(fewest.values(), default=1)


PLUGIN = ChromeTraces()
