"""What MindSpore's profiler writes of a dataset pipeline: queues between its operations, and waits of the training.

`pipeline_profiling_*.json` samples how full each operation's queue is, `minddata_pipeline_raw_*.csv` has the same as a
table, `dataset_iterator_profiling_*.txt` (or `device_queue_...`) how long each batch was waited for, in milliseconds.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.advice.evidence import (
    MILLI,
    Evidence,
    ProfilePlugin,
    ProfileSource,
    SpeedEvidence,
    StepPart,
    header_of,
    number,
    share_of,
    table_rows,
)
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RAW = ("op_id", "op_type", "num_workers", "output_queue_average_size", "output_queue_length")
WAITS = re.compile(r"^(dataset_iterator|device_queue)_profiling_\d+\.txt$")
LINE = re.compile(rb"^\d+ \d+ \d+ \d+ \d+\s")
NUMBERS = re.compile(r"\d+")
PIPELINE_WAIT, FIRST_BATCHES = 0, 2  # format: the kind of a record, and the batches that a profile leaves out


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a pipeline: its workers, and how full its queue is on average, from 0 to 1."""

    id: int
    name: str
    workers: int
    fill: float
    children: tuple[int, ...]
    place: str


class Pipelines(ProfilePlugin):
    """The queues of a pipeline: the operation that is too slow has an empty one, and full ones before it."""

    name = "dataset pipeline"
    summary = "pipeline_profiling_*.json and minddata_pipeline_raw_*.csv of MindSpore's profiler: queues of a dataset"

    def recognizes(self, source: ProfileSource) -> bool:
        """By the names of operations and queues at the beginning."""
        is_json = source.head.lstrip()[:1] == b"{" and b'"op_info"' in source.head and b'"output_queue"' in source.head
        return is_json or header_of(source, RAW) is not None

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Find the slowest operation, if the queue of the last one is empty."""
        operations = _from_table(source) if header_of(source, RAW) is not None else _from_json(source)
        if not operations:
            return None
        slow = _bottleneck(operations)
        evidence = (_of_queue(slow, operations),)
        return SpeedEvidence(source.shown, self.name, "mindspore", "", evidence=evidence)


def _from_json(source: ProfileSource) -> dict[int, Operation]:
    try:
        with source.opened() as stream:
            document = json.loads(source.read(stream))
        return {one["op_id"]: _operation(source, one) for one in document["op_info"]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise source.damaged(error) from error


def _operation(source: ProfileSource, entry: dict[str, Any]) -> Operation:
    queue = (entry.get("metrics") or {}).get("output_queue", {})
    sizes, length = queue.get("size") or [0], queue.get("length") or 0
    fill = sum(sizes) / len(sizes) / length if length else 1.0
    at, name = int(entry["op_id"]), str(entry["op_type"]).removesuffix("Op")
    place = sentence("advice_seen.operation", file=source.shown, number=at)
    return Operation(at, name, int(entry["num_workers"]), fill, tuple(entry.get("children", ())), place)


def _from_table(source: ProfileSource) -> dict[int, Operation]:
    operations = {}
    for line, row in table_rows(source, RAW):
        length = number(row["output_queue_length"])
        fill = number(row["output_queue_average_size"]) / length if length else 1.0
        children = tuple(map(int, NUMBERS.findall(row.get("children_id", ""))))
        name, workers = row["op_type"].removesuffix("Op"), int(number(row["num_workers"]))
        at = int(number(row["op_id"]))
        operations[at] = Operation(at, name, workers, fill, children, source.place(line))
    return operations


def _bottleneck(operations: Mapping[int, Operation]) -> Operation:
    """From the last operation back, as long as the queues are as empty; what has full queues before it is slow."""
    slow = operations[min(operations)]
    while feeding := [operations[at] for at in slow.children if at in operations]:
        emptiest = min(feeding, key=lambda one: one.fill)
        if emptiest.fill > max(2 * slow.fill, 0.25):
            break
        slow = emptiest
    return slow


def _of_queue(slow: Operation, operations: Mapping[int, Operation]) -> Evidence:
    last = operations[min(operations)]
    name = f"{slow.name}(id={slow.id})"
    told = sentence("advice_seen.queue", fill=last.fill, name=name, workers=slow.workers)
    values: dict[str, float | str] = {"fill": last.fill, "workers": float(slow.workers), "operation": slow.name}
    return Evidence("empty queue", None, None, slow.place, told, name, values)


class Waits(ProfilePlugin):
    """How long a training waited for each batch of a dataset."""

    name = "dataset waits"
    summary = "dataset_iterator_profiling_*.txt and device_queue_profiling_*.txt of MindSpore's profiler"

    def recognizes(self, source: ProfileSource) -> bool:
        """By its name and five numbers a line."""
        return WAITS.match(source.name) is not None and LINE.match(source.head) is not None

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Add up the waits of all batches but the first."""
        with source.opened() as stream:
            lines = source.read(stream).decode("utf-8", "replace").splitlines()
        records = [[*map(int, text.split()[:5])] for text in lines if len(text.split()) >= 5]
        waits = [(number, one) for number, one in enumerate(records, 1) if one[:2] == [0, PIPELINE_WAIT]]
        later = [(number, one) for number, one in waits if one[2] >= FIRST_BATCHES]
        if len(later) < 2:
            return None
        return _of_waits(source, later, waits[0][1][4])


def _of_waits(source: ProfileSource, waits: Sequence[tuple[int, list[int]]], begun: int) -> SpeedEvidence:
    seconds, total = sum(one[3] for _, one in waits) * MILLI, (waits[-1][1][4] - begun) * MILLI
    worst, _ = max(waits, key=lambda pair: pair[1][3])
    step = seconds / len(waits)
    told = sentence("advice_seen.data_wait", seconds=seconds, step=step)
    values: dict[str, float | str] = {"source": "minddata"}
    found = Evidence("data wait", seconds, share_of(seconds, total), source.place(worst), told, values=values)
    parts = StepPart("data", "", step), StepPart("whole", "", max(total / len(waits) - step, 0.0))
    return SpeedEvidence(
        source.shown, Waits.name, "mindspore", "", len(waits), total / len(waits), total, parts, (found,)
    )


PLUGINS = (Pipelines(), Waits())
