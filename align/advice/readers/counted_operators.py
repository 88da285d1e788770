"""Tables of operators that a profiler counted: torch's printed ones, MindSpore's of the processor, nsys' exports."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from align.advice.evidence import (
    MICRO,
    MILLI,
    NANO,
    ProfilePlugin,
    ProfileSource,
    SpeedEvidence,
    header_of,
    number,
    table_rows,
)
from align.advice.operators import BACKWARD_NODE, OPTIMIZER_STEP, OperatorRow, Profile, operator_evidence, step_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RULE = re.compile(r"^-{4,}(\s+-{4,})+\s*$")
TIME = re.compile(r"(-?[\d.]+)\s*(s|ms|us|ns)$")
TOTAL = re.compile(r"^Self (CPU|CUDA|NPU|XPU) time total: *(\S+)", re.MULTILINE)
UNITS = {"s": 1.0, "ms": MILLI, "us": MICRO, "ns": NANO}
DETAIL = ("op_type", "full_op_name", "op_occurrences", "op_total_time(ms)")
TYPES = ("op_type", "type_occurrences", "total_compute_time", "avg_time(ms)")
NSYS = {
    "Instances": ("Time (%)", "Total Time (ns)", "Instances", "Name"),
    "Num Calls": ("Time (%)", "Total Time (ns)", "Num Calls", "Name"),
    "Count": ("Time (%)", "Total Time (ns)", "Count", "Operation"),
}


class TorchTables(ProfilePlugin):
    """What `key_averages().table()` prints, alone or in the middle of a log."""

    name = "torch table"
    summary = "what key_averages().table() of torch's profiler prints"

    def recognizes(self, source: ProfileSource) -> bool:
        """A header with these columns between two rules."""
        return b"Self CPU %" in source.head and b"# of Calls" in source.head

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read the first table of a text."""
        with source.opened() as stream:
            text = source.read(stream).decode("utf-8", "replace")
        rows, device = _torch_rows(source, text.splitlines())
        if not rows:
            return None
        totals = {name: _seconds(time) for name, time in TOTAL.findall(text)}
        steps = sum(row.calls for row in rows if OPTIMIZER_STEP.match(row.name) and ".step#" in row.name) or None
        total = max([*totals.values(), max(row.whole for row in rows)])
        profile = Profile(rows, total, steps, "torch", device)
        parts = step_parts(profile, wall=total / profile.counted)
        wall = total / profile.counted
        return SpeedEvidence(
            source.shown, self.name, "torch", device, steps, wall, total, parts, (*operator_evidence(profile),)
        )


def _torch_rows(source: ProfileSource, lines: Sequence[str]) -> tuple[list[OperatorRow], str]:
    rules = [at for at, line in enumerate(lines) if RULE.match(line)]
    if len(rules) < 2:
        return [], ""
    spans = [match.span() for match in re.finditer(r"-{4,}", lines[rules[0]])]
    names = _cells(lines[rules[0] + 1], spans)
    device = next((name for name in ("CUDA", "NPU", "XPU") if f"Self {name}" in names), "")
    end = rules[2] if len(rules) > 2 else len(lines)
    table = []
    for at in range(rules[1] + 1, end):
        cells = dict(zip(names, _cells(lines[at], spans), strict=False))
        if cells.get("# of Calls", "").isdigit():
            table.append(_torch_row(cells, device, source.place(at + 1)))
    return table, {"CUDA": "cuda", "NPU": "ascend"}.get(device, device.lower() or "cpu")


def _cells(line: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The cells of a line, as wide as the rules above them; the last one may be longer."""
    ends = [end for _, end in spans[:-1]] + [len(line)]
    return [line[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]


def _torch_row(cells: dict[str, str], device: str, place: str) -> OperatorRow:
    self_time, whole = _seconds(cells.get("Self CPU", "")), _seconds(cells.get("CPU total", ""))
    on_device = _seconds(cells.get(f"Self {device}", "")) if device else 0.0
    is_kernel = self_time == 0 and on_device > 0
    name = cells.get("Name", "")
    seconds = on_device if is_kernel else self_time
    return OperatorRow(
        name, int(cells["# of Calls"]), seconds, max(whole, seconds), place,
        backward=bool(BACKWARD_NODE.search(name)), device=is_kernel,
    )  # fmt: skip


def _seconds(text: str) -> float:
    match = TIME.match(text)
    return float(match[1]) * UNITS[match[2]] if match else 0.0


class ProcessorOperators(ProfilePlugin):
    """What MindSpore's profiler counts on the processor: by operator, with its place in the model, or by type."""

    name = "processor operators"
    summary = "cpu_op_detail_info_*.csv and cpu_op_type_info_*.csv of MindSpore's profiler"

    def recognizes(self, source: ProfileSource) -> bool:
        """A table with the columns of either."""
        return any(header_of(source, names) is not None for names in (DETAIL, TYPES))

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read all operators."""
        detail = header_of(source, DETAIL) is not None
        rows = [*(_detail_rows(source) if detail else _type_rows(source))]
        if not rows:
            return None
        usual = Counter(row.calls for row in rows).most_common(1)[0][0]
        total = sum(row.seconds for row in rows)
        profile = Profile(rows, total, usual, "mindspore", "cpu")
        parts, step = step_parts(profile, wall=None), total / usual
        return SpeedEvidence(
            source.shown, self.name, "mindspore", "cpu", usual, step, total, parts, (*operator_evidence(profile),)
        )


def _detail_rows(source: ProfileSource) -> Iterator[OperatorRow]:
    for line, row in table_rows(source, DETAIL):
        seconds, calls = number(row["op_total_time(ms)"]) * MILLI, int(number(row["op_occurrences"]))
        layer, _, _ = row["full_op_name"].rpartition("/")
        backward = row["full_op_name"].startswith("Gradients/")
        if calls:
            place = source.place(line)
            yield OperatorRow(row["op_type"], calls, seconds, seconds, place, backward=backward, layer=layer)


def _type_rows(source: ProfileSource) -> Iterator[OperatorRow]:
    for line, row in table_rows(source, TYPES):
        seconds, calls = number(row["total_compute_time"]) * MILLI, int(number(row["type_occurrences"]))
        if calls:
            backward = row["op_type"].endswith("Grad")
            yield OperatorRow(row["op_type"], calls, seconds, seconds, source.place(line), backward=backward)


class NsysTables(ProfilePlugin):
    """Tables that `nsys stats --format csv` writes: kernels, calls of CUDA's API, copies."""

    name = "nsys table"
    summary = "CSV tables of nsys stats: cuda_gpu_kern_sum, cuda_api_sum, cuda_gpu_mem_time_sum"

    def recognizes(self, source: ProfileSource) -> bool:
        """A table with the columns of one of these reports."""
        return any(header_of(source, names) is not None for names in NSYS.values())

    def read(self, source: ProfileSource) -> SpeedEvidence | None:
        """Read all rows; what an API call waits for is no time of the device."""
        column, names = next((one, names) for one, names in NSYS.items() if header_of(source, names) is not None)
        rows = []
        for line, row in table_rows(source, names):
            seconds, calls = number(row["Total Time (ns)"]) * NANO, int(number(row[column]))
            of_device = column != "Num Calls"
            rows.append(OperatorRow(row[names[-1]], calls, seconds, seconds, source.place(line), device=of_device))
        if not rows:
            return None
        total = sum(row.seconds for row in rows)
        profile = Profile(rows, total, None, "", "cuda")
        parts = step_parts(profile, wall=None) if column == "Instances" else ()
        evidence = (*operator_evidence(profile),)
        return SpeedEvidence(source.shown, self.name, "", "cuda", None, total, total, parts, evidence)


PLUGINS = (TorchTables(), ProcessorOperators(), NsysTables())
