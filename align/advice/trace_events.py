"""The events of a trace in Chrome's format, read as a stream: a file of 500 MB never stands in memory.

torch, MindSpore, torch_npu and msprof write it, as an object with `traceEvents` or as a list. Each event with a
duration becomes a row of numbers; names, shapes and types are kept once. Durations are in microseconds, as the format
has them, and may stand there as text.
"""

from __future__ import annotations

import codecs
import json
import re
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from align.advice.thresholds import LONGEST_EVENT, MOST_KEYS, READ_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.advice.evidence import ProfileSource
    from align.core.parameters import Array


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
