"""A trace as a timeline: what each operator takes by itself, for what it was called, and when nothing runs.

Events of a thread nest, so that one pass with a stack over the sorted events finds what lies in what. Frames of Python
and modules are no operators; they name the line and the layer of what runs in them.
"""

from __future__ import annotations

import ast
import codecs
import json
import re
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.advice.evidence import MICRO
from align.advice.operators import BACKWARD_NODE, DECODING, LOADER, OPTIMIZER_STEP, PRINTS, READS, OperatorRow
from align.advice.thresholds import LONGEST_EVENT, LONGEST_GAP, MOST_KEYS, READ_AT_ONCE
from align.rules.advice_rules import kind_of_operator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.advice.evidence import ProfileSource
    from align.core.parameters import Array

DATA, OPTIMIZER, BACKWARD, CAST, CONTIGUOUS = 1, 2, 4, 8, 16  # format: bits of what an event lies in
FRAME = re.compile(r"^(?P<file>[^<(]+\.py)\((?P<line>\d+)\): ")
LIBRARY = re.compile(
    r"(^|/)(torch|mindspore|numpy|runpy|threading|contextlib)(/|\.py)|<frozen|site-packages/(torch|numpy)/"
)
MODULE = re.compile(r"^nn\.Module: (?P<name>.+)")
STEP = re.compile(r"^ProfilerStep\s?#?\d*")
CASTS = re.compile(r"^aten::_to_copy$|^(aten::)?npu_dtype_cast")
COPYING = re.compile(r"^aten::(contiguous|clone|reshape)$")
NUMBERED = re.compile(r"(?P<base>.+)-op(?P<number>\d+)$")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
OPERATORS = ("cpu_op", "user_annotation", "cpu_instant_event")
RUNTIME = ("cuda_runtime", "cuda_driver", "Runtime")
HARDWARE = {"CPU OP": "o", "Ascend Hardware": "k"}
WAITING = re.compile(r"^(EVENT|NOTIFY|MEM)_(WAIT|RECORD)|^Notify_(Wait|Record)|^PROFILING_|^PROFILER_", re.IGNORECASE)


@dataclass(slots=True)
class Nesting:
    """What one pass found, arrays of shape (events,): own microseconds, bits, frame and module (-1 for none), outer."""

    own: Array
    bits: Array
    frame: Array
    module: Array
    outer: Array


@dataclass(slots=True)
class Timeline:
    """Events in order with their nesting; `roles` tells by key whether it is an operator ("o"), a kernel ("k") ..."""

    events: TraceEvents
    start: Array
    duration: Array
    track: Array
    key: Array
    roles: list[str]
    nesting: Nesting = field(init=False)

    @property
    def end(self) -> Array:
        """When each event ends."""
        ends: Array = self.start + self.duration
        return ends

    def of_role(self, roles: str) -> Array:
        """Which events have one of these roles."""
        wanted = np.array([role in roles for role in self.roles], bool)
        return wanted[self.key] if len(self.key) else np.zeros(0, bool)

    def named(self, pattern: re.Pattern[str], role: str = "o") -> Array:
        """Which events of a role have such a name."""
        keys = zip(self.events.keys, self.roles, strict=True)
        wanted = np.array([one == role and bool(pattern.search(key.name)) for key, one in keys], bool)
        return wanted[self.key] if len(self.key) else np.zeros(0, bool)


def open_timeline(events: TraceEvents) -> Timeline:
    """Order the events and see what lies in what."""
    start, duration, track, key = events.columns()
    roles = [_role(one, events.process(one)) for one in events.keys]
    line = Timeline(events, start, duration, track, key, roles)
    line.nesting = _nested(line)
    return line


def _role(key: EventKey, process: str) -> str:
    """What an event is: o operator, k kernel, r runtime, p frame of Python, m module, s step, - nothing.

    Traces of MindSpore and of Ascend's tools have no categories: the process that an event stands under tells it.
    """
    if key.category in ON_DEVICE:
        return "k"
    if process in HARDWARE:
        return "-" if WAITING.match(key.name) else HARDWARE[process]
    if key.category in RUNTIME:
        return "r"
    if key.category == "python_function":
        return "m" if MODULE.match(key.name) else "p"
    if key.category in OPERATORS:
        return "s" if STEP.match(key.name) else "o"
    return "-"


def _nested(line: Timeline) -> Nesting:
    """Walk over all events once, with the events around each on a stack."""
    count = len(line.start)
    self_time, bits = line.duration.copy(), [0] * count
    frames, modules, outer = [-1] * count, [-1] * count, [-1] * count
    flags = [_flags(key, role) for key, role in zip(line.events.keys, line.roles, strict=True)]
    users = [role == "p" and _is_users(key.name) for key, role in zip(line.events.keys, line.roles, strict=True)]
    ends, keys, tracks = line.end.tolist(), line.key.tolist(), line.track.tolist()
    starts, taken = line.start.tolist(), self_time.tolist()
    stack: list[int] = []
    operators: list[int] = []
    track = None
    for index, key in enumerate(keys):
        if tracks[index] != track:
            track, stack, operators = tracks[index], [], []
        while stack and ends[stack[-1]] <= starts[index]:
            done = stack.pop()
            if operators and operators[-1] == done:
                operators.pop()
        role = line.roles[key]
        if stack:
            above = stack[-1]
            bits[index] = flags[key] | bits[above]
            frames[index], modules[index] = frames[above], modules[above]
        else:
            bits[index] = flags[key]
        if users[key]:
            frames[index] = key
        elif role == "m":
            modules[index] = key
        stack.append(index)
        if role == "o":
            if operators:
                outer[index] = operators[-1]
                taken[operators[-1]] -= taken_of(line, index)
            operators.append(index)
    return Nesting(np.array(taken), np.array(bits), np.array(frames), np.array(modules), np.array(outer))


def taken_of(line: Timeline, index: int) -> float:
    """The time of an event, in microseconds."""
    return float(line.duration[index])


def _flags(key: EventKey, role: str) -> int:
    """What lies in such an event."""
    if role != "o":
        return 0
    marks = DATA if LOADER.search(key.name) else 0
    marks |= OPTIMIZER if OPTIMIZER_STEP.search(key.name) else 0
    marks |= BACKWARD if BACKWARD_NODE.search(key.name) or key.name.startswith("Gradients/") else 0
    marks |= CAST if CASTS.search(key.name) else 0
    return marks | (CONTIGUOUS if COPYING.search(key.name) else 0)


def _is_users(name: str) -> bool:
    """Tell whether a frame is of the user's own code."""
    return FRAME.match(name) is not None and LIBRARY.search(name) is None


# The rows of a timeline: events of one name, shapes and purpose together.

PURPOSES = ((DATA, "data"), (OPTIMIZER, "optimizer"), (CAST, "cast"), (CONTIGUOUS, "contiguous"))


def operator_rows(line: Timeline, file: str) -> Iterator[OperatorRow]:
    """Return the operators and kernels of a timeline, and of Python what is asked for by name."""
    wanted = [
        role in "okr" or (role == "p" and _is_asked(key.name))
        for key, role in zip(line.events.keys, line.roles, strict=True)
    ]
    which = np.flatnonzero(np.array(wanted, bool)[line.key]) if len(line.key) else np.zeros(0, np.int64)
    nest = line.nesting
    groups = np.stack([line.key[which], nest.bits[which]]) if len(which) else np.zeros((2, 0), np.int64)
    (pairs, first, inverse, counts) = np.unique(
        groups, axis=1, return_index=True, return_inverse=True, return_counts=True
    )
    inverse = inverse.reshape(-1)
    # An operator in one of its own name (a recursion) counts once.
    outer = nest.outer[which]
    again = (outer >= 0) & (line.key[np.maximum(outer, 0)] == line.key[which])
    self_time = np.bincount(inverse, nest.own[which], len(counts)) * MICRO
    whole = np.bincount(inverse, np.where(again, 0.0, line.duration[which]), len(counts)) * MICRO
    for at in range(len(counts)):
        key = line.events.keys[pairs[0, at]]
        yield _row(line, key, int(which[first[at]]), (int(counts[at]), self_time[at], whole[at]), file)


def _is_asked(name: str) -> bool:
    return bool(DECODING.search(name) or PRINTS.search(name))


def _row(line: Timeline, key: EventKey, index: int, figures: tuple[int, float, float], file: str) -> OperatorRow:
    bits, device = int(line.nesting.bits[index]), line.roles[int(line.key[index])] == "k"
    within = next((name for bit, name in PURPOSES if bits & bit), "")
    own_bit = _flags(key, "o")
    within = (
        ""
        if own_bit and next((name for bit, name in PURPOSES if own_bit & bit), "") == within == "optimizer"
        else within
    )
    return OperatorRow(
        key.name, figures[0], float(figures[1]), float(figures[2]), place_of(line, index, file), within,
        bool(bits & BACKWARD), _texts(key.types), _shapes(key.shapes), device, layer=layer_of(line, index),
    )  # fmt: skip


def _texts(text: str) -> tuple[str, ...]:
    found = _literal(text)
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _shapes(text: str) -> tuple[tuple[int, ...], ...]:
    found = _literal(text)
    if not isinstance(found, list):
        return ()
    return tuple(tuple(side for side in one if isinstance(side, int)) if isinstance(one, list) else () for one in found)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text) if text else None
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def place_of(line: Timeline, index: int, file: str) -> str:
    """The user's line that an event runs in; without frames the trace and when it begins."""
    frame = int(line.nesting.frame[index])
    if frame >= 0:
        match = FRAME.match(line.events.keys[frame].name)
        if match is not None:
            return f"{match['file']}:{match['line']}"
    return f"{file} (ts {line.start[index]:.3f})"


def layer_of(line: Timeline, index: int) -> str:
    """The module that an event runs in; "" where none is told."""
    module = int(line.nesting.module[index])
    match = MODULE.match(line.events.keys[module].name) if module >= 0 else None
    return match["name"] if match else ""


# Times between events.


def covered(start: Array, end: Array) -> float:
    """How much of the time at least one of some events takes."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    starts, reached = start[order], np.maximum.accumulate(end[order])
    gaps = starts[1:] - reached[:-1]
    return float(reached[-1] - starts[0] - gaps[gaps > 0].sum())


def steps_of(line: Timeline) -> tuple[int | None, Array]:
    """How many steps a trace has, and which events they are: a profiler's steps, else updates, else the loader's."""
    for pattern, role in ((STEP, "s"), (re.compile(r"^Optimizer\.step#"), "o"), (LOADER, "o")):
        which = line.named(pattern, role)
        if which.any():
            return int(which.sum()), which
    calls: Counter[str] = Counter()
    for key, count in Counter(line.key[line.of_role("o")].tolist()).items():
        calls[NUMBERED.sub(r"\g<base>", line.events.keys[key].name)] += count
    usual = Counter(calls.values()).most_common(1)
    return (usual[0][0] if usual and usual[0][1] > 1 else None), np.zeros(len(line.key), bool)


def reading_loops(line: Timeline) -> float:
    """Seconds between reads of single values that follow each other at once, as in a loop over a tensor."""
    reads = line.named(READS) & ((line.nesting.bits & (DATA | OPTIMIZER)) == 0)
    at = np.flatnonzero(reads)
    if len(at) < 2:
        return 0.0
    gaps = (line.start[at][1:] - line.end[at][:-1])[np.diff(line.track[at]) == 0]
    short = gaps[(gaps > 0) & (gaps < LONGEST_GAP / MICRO)]
    return float(short.sum()) * MICRO


def step_signatures(line: Timeline, steps: Array, kinds: Sequence[str]) -> list[int]:
    """One number a step, the same for steps whose operators of these kinds have the same shapes."""
    bounds = np.sort(line.start[steps])
    wanted = np.array([bool(key.shapes) and kind_of_operator(key.name) in kinds for key in line.events.keys], bool)
    which = np.flatnonzero(wanted[line.key] & line.of_role("o"))
    of_step = np.searchsorted(bounds, line.start[which], "right")
    found: dict[int, set[int]] = {}
    for step, key in zip(of_step.tolist(), line.key[which].tolist(), strict=True):
        found.setdefault(step, set()).add(key)
    return [hash(frozenset(keys)) for _, keys in sorted(found.items())]


# The events of a trace in Chrome's format, read as a stream: a file of 500 MB never stands in memory.

BETWEEN = re.compile(r"[\s,]*")
EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
LIST = re.compile(r"\s*\[")
SHAPED = ("cpu_op", "kernel")
PROCESS = "process "  # the category of events that have none of their own, with the id of their process


class EventKey(NamedTuple):
    """What many events share: a name, a category, and of operators the types and shapes of their inputs as text."""

    name: str
    category: str
    types: str
    shapes: str


@dataclass(slots=True)
class TraceEvents:
    """The events with a duration in the order of the file: microseconds, the track, the key; arrays of shape (n,).

    `processes` are what the file calls them, by the category that events without one are given. `cut` tells a file
    that ends in the middle.
    """

    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    track: array[int] = field(default_factory=lambda: array("l"))
    key: array[int] = field(default_factory=lambda: array("l"))
    keys: list[EventKey] = field(default_factory=list)
    processes: dict[str, str] = field(default_factory=dict)
    cut: bool = False

    def columns(self) -> tuple[Array, Array, Array, Array]:
        """Start, duration, track and key, ordered so that of nested events the outer one comes first."""
        start, duration = np.frombuffer(self.start), np.frombuffer(self.duration)
        track, key = np.array(self.track, np.int64), np.array(self.key, np.int64)
        order = np.lexsort((-duration, start, track))
        return start[order], duration[order], track[order], key[order]

    def process(self, key: EventKey) -> str:
        """What the file calls the process of an event without a category; "" for others."""
        return self.processes.get(key.category, "")


def read_events(source: ProfileSource) -> TraceEvents:
    """Read all events with a duration, and the names of processes; raises UnreadableProfileError."""
    events = TraceEvents()
    keys: dict[EventKey, int] = {}
    tracks: dict[tuple[Any, Any], int] = {}
    for event in _events(source, events):
        phase = event.get("ph")
        if phase == "M":
            _name_process(events, event)
        if phase != "X":
            continue
        try:
            start, duration = float(event["ts"]), float(event.get("dur", 0.0))
        except (KeyError, TypeError, ValueError) as error:
            raise source.damaged(error) from error
        key = _key(event, len(keys) < MOST_KEYS)
        place = event.get("pid"), event.get("tid")
        events.start.append(start)
        events.duration.append(duration)
        events.track.append(tracks.setdefault(place, len(tracks)))
        events.key.append(keys.setdefault(key, len(keys)))
    events.keys = list(keys)
    return events


def _name_process(events: TraceEvents, event: dict[str, Any]) -> None:
    arguments = event.get("args")
    name = arguments.get("name") if isinstance(arguments, dict) else None
    if event.get("name") == "process_name":
        events.processes[f"{PROCESS}{event.get('pid')}"] = str(name)


def _key(event: dict[str, Any], with_shapes: bool) -> EventKey:
    category = str(event.get("cat") or f"{PROCESS}{event.get('pid')}")
    arguments = event.get("args") if with_shapes and category in SHAPED else None
    if not isinstance(arguments, dict):
        return EventKey(str(event.get("name", "")), category, "", "")
    types, shapes = arguments.get("Input type", ""), arguments.get("Input Dims", "")
    return EventKey(str(event.get("name", "")), category, str(types), str(shapes))


def _events(source: ProfileSource, events: TraceEvents) -> Iterator[dict[str, Any]]:
    """The events one by one; what is read of the file is kept until its last event is whole."""
    scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with source.opened() as stream:
        text, position = "", None
        while True:
            more = decoder.decode(source.read(stream, READ_AT_ONCE))
            text = (text if position is None else text[position:]) + more
            position = _beginning(text) if position is None else 0
            while position is not None:
                position = BETWEEN.match(text, position).end()  # type: ignore[union-attr]
                if text[position : position + 1] == "]":
                    return
                try:
                    event, position = scan(text, position)
                except (StopIteration, ValueError):
                    break
                if isinstance(event, dict):
                    yield event
            if len(text) - (position or 0) > LONGEST_EVENT:
                raise source.damaged(f"{len(text):,}")
            if not more:
                if position is None:
                    raise source.damaged("traceEvents")
                events.cut = True
                return


def _beginning(text: str) -> int | None:
    """Where the first event may stand; None as long as that is not read."""
    begun = LIST.match(text) or EVENTS.search(text)
    return begun.end() if begun else None
