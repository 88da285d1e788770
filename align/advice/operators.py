"""Evidence from what operators took, row by row, whatever profiler counted them.

Rows are those of one file: a name with its calls, its own time, the types and shapes of its inputs as far as they are
told. What they are compared with is the time of the whole file.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.advice.evidence import Evidence, StepPart, share_of
from align.advice.thresholds import MATRIX_UNIT, SMALL_KERNEL, SMALL_SIDE
from align.rules.advice_rules import kind_of_operator
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from align.advice.evidence import PartKind


LOADER = re.compile(r"enumerate\(DataLoader\)#_(SingleP|MultiP)")
DECODING = re.compile(
    r"decode|imread|imdecode|PIL/Image\.py\(\d+\): (load|open)|librosa|soundfile|decord", re.IGNORECASE
)
READS = re.compile(r"^aten::(item|is_nonzero)$|Tensor\.(item|asnumpy)$")
PRINTS = re.compile(r"built-in (function|method) print\b")
OPTIMIZER_STEP = re.compile(r"^Optimizer\.(step|zero_grad)#")
BACKWARD_NODE = re.compile(r"^autograd::engine::evaluate_function: |Backward\d*$")
NODE = re.compile(r"^autograd::engine::evaluate_function: ")
OPERATOR_NAME = re.compile(
    r"^(aten::|autograd::engine::evaluate_function: )|Backward\d*$|Grad$|-op\d+$|_backward$|V\d$"
)
DOUBLE = re.compile(r"^(double|(DT_)?DOUBLE|float64|c10::complex<double>)$", re.IGNORECASE)
DOUBLE_KERNEL = re.compile(r"\bdgemm|_dgemm|<double|double>|\bdouble\b|f64")
FLOAT = re.compile(r"^(float|(DT_)?FLOAT|float32)$", re.IGNORECASE)
FLOAT_KERNEL = re.compile(r"sgemm|s1688gemm|_f32f32_|scudnn")
PAGEABLE = re.compile(r"Memcpy HtoD \(Pageable")
ALLOCATION = re.compile(r"^cuda(Malloc|Free|MallocAsync)$|^cudaHostAlloc$")
OF_CELL = re.compile(r"^(Default|Gradients|Expand)/")
OF_OPTIMIZER = re.compile(r"^Default/optimizer-")
PROCESSOR_CORES = ("AI_CPU", "AICPU")
PRODUCTS = ("matrix product", "convolution")


def operator_name(name: str) -> str:
    """The name of an operator without the path of the cell that it is in.

    >>> operator_name("Default/network/0-Dense/MatMul-op0")
    'MatMul-op0'
    """
    return name.rpartition("/")[2] if OF_CELL.match(name) else name


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """What a profiler counts of one operator: `seconds` of its own, `whole` with what it calls.

    `within` is what it was called for ("data", "optimizer", "cast", "contiguous" or ""). `device` tells one that runs
    on an accelerator, `core` on what; `layer` is where in the model, `dynamic` that its shapes are found as it runs.
    """

    name: str
    calls: int
    seconds: float
    whole: float
    place: str
    within: str = ""
    backward: bool = False
    types: tuple[str, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    device: bool = False
    core: str = ""
    layer: str = ""
    dynamic: bool = False

    @property
    def kind(self) -> str:
        """What it computes: of an operator of a graph, its name behind the path of its cell tells it."""
        return "optimizer" if OF_OPTIMIZER.search(self.name) else kind_of_operator(operator_name(self.name))


@dataclass(frozen=True, slots=True)
class Profile:
    """The rows of a file, the seconds that it covers, how many steps these are, and on what it ran."""

    rows: Sequence[OperatorRow]
    total: float
    steps: int | None
    framework: str
    device: str

    @property
    def counted(self) -> int:
        """The steps, one where they are not known."""
        return self.steps or 1

    def evidence(self, kind: str, rows: Sequence[OperatorRow], seen: str, **values: float | str) -> Evidence:
        """Evidence of what rows cost together: that of their own, and where the dearest of them stands."""
        seconds = sum(row.seconds for row in rows)
        dearest = max(rows, key=lambda row: row.seconds)
        values |= {"device": self.device}
        return Evidence(kind, seconds, share_of(seconds, self.total), dearest.place, seen, _subject(dearest), values)  # type: ignore[arg-type]


def _subject(row: OperatorRow) -> str:
    """The name of an operator with its layer: of the path of a cell its last parts, which tell it apart."""
    if OF_CELL.match(row.name):
        return "/".join(row.name.split("/")[-2:])
    return f"{row.layer}: {row.name}" if row.layer else row.name


def operator_evidence(profile: Profile) -> Iterator[Evidence]:
    """All that the rows of a profile show."""
    yield from _loader(profile)
    yield from _reads(profile)
    yield from _doubles(profile)
    yield from _moved(profile)
    yield from _optimizer(profile)
    yield from _backward(profile)
    yield from _products(profile)
    yield from _on_device(profile)


def _loader(profile: Profile) -> Iterator[Evidence]:
    loaders = [row for row in profile.rows if LOADER.search(row.name)]
    if not loaders:
        return
    seconds = sum(row.whole for row in loaders)
    share = share_of(seconds, profile.total)
    workers = float(all("MultiP" in row.name for row in loaders))
    seen = sentence("advice_seen.loader", seconds=seconds, step=seconds / profile.counted)
    values: dict[str, float | str] = {"workers": workers, "source": "profile"}
    yield Evidence("data wait", seconds, share, loaders[0].place, seen, values=values)
    decoding = [row for row in profile.rows if row.within == "data" and DECODING.search(row.name)]
    if decoding and not workers:
        dearest = max(decoding, key=lambda row: row.whole)
        seen = sentence("advice_seen.decoding", seconds=dearest.whole, calls=dearest.calls)
        share = share_of(dearest.whole, profile.total)
        yield Evidence("decoding", dearest.whole, share, dearest.place, seen, dearest.name)


def _reads(profile: Profile) -> Iterator[Evidence]:
    """Reads of single values, and prints, both in the loop: not those of the data, nor of an optimizer."""
    for kind, pattern in (("host reads", READS), ("prints", PRINTS)):
        rows = [row for row in profile.rows if not row.within and pattern.search(row.name)]
        if rows:
            seconds, calls = sum(row.whole for row in rows), sum(row.calls for row in rows)
            seen = sentence("advice_seen.reads", calls=calls, step=calls / profile.counted, seconds=seconds)
            values: dict[str, float | str] = {"a_step": calls / profile.counted, "device": profile.device}
            dearest = max(rows, key=lambda row: row.whole)
            share = share_of(seconds, profile.total)
            yield Evidence(kind, seconds, share, dearest.place, seen, _subject(dearest), values)  # type: ignore[arg-type]


def _doubles(profile: Profile) -> Iterator[Evidence]:
    rows = [row for row in profile.rows if row.within != "data" and _is_double(row)]
    if rows:
        dearest = max(rows, key=lambda row: row.seconds)
        told = sentence("advice_seen.float64", seconds=sum(row.seconds for row in rows), name=_subject(dearest))
        yield profile.evidence("float64", rows, told)


def _is_double(row: OperatorRow) -> bool:
    """Tell whether a tensor of it is float64; a number that Python gives is no tensor and has no shape."""
    if row.device and not row.types:
        return DOUBLE_KERNEL.search(row.name) is not None
    return any(DOUBLE.match(name) and shape for name, shape in zip(row.types, row.shapes, strict=False))


MOVED: dict[str, Callable[[OperatorRow], bool]] = {
    "casts": lambda row: row.kind == "cast" or row.within == "cast",
    "layout changes": lambda row: row.kind == "layout change",
    "copies": lambda row: row.kind == "copy" and row.within != "cast" and not row.name.startswith("Mem"),
    "pageable copies": lambda row: PAGEABLE.search(row.name) is not None,
    "device allocations": lambda row: ALLOCATION.search(row.name) is not None,
}


def _moved(profile: Profile) -> Iterator[Evidence]:
    """What computes nothing: casts, other layouts, copies, copies from memory that is not pinned, allocations."""
    outside = [row for row in profile.rows if row.within not in ("data", "optimizer")]
    for kind, is_of in MOVED.items():
        rows = [row for row in outside if is_of(row) and row.seconds > 0]
        if rows:
            calls = sum(row.calls for row in rows)
            told = sentence("advice_seen.moved", calls=calls, seconds=sum(row.seconds for row in rows))
            yield profile.evidence(kind, rows, told, a_step=calls / profile.counted)


def _optimizer(profile: Profile) -> Iterator[Evidence]:
    """An optimizer that updates parameters one by one."""
    steps = [row for row in profile.rows if OPTIMIZER_STEP.search(row.name)]
    inside = [row for row in profile.rows if row.within == "optimizer" and row.kind != "shape"]
    if not steps or not inside:
        return
    seconds, calls = sum(row.whole for row in steps), sum(row.calls for row in inside)
    told = sentence("advice_seen.optimizer", calls=calls / profile.counted, seconds=seconds)
    values: dict[str, float | str] = {"a_step": calls / profile.counted, "device": profile.device}
    share, dearest = share_of(seconds, profile.total), max(steps, key=lambda row: row.whole)
    yield Evidence("optimizer", seconds, share, dearest.place, told, dearest.name, values)


def _backward(profile: Profile) -> Iterator[Evidence]:
    """One operator whose way back takes far longer than its way forward."""
    forward: dict[str, float] = defaultdict(float)
    back: dict[str, list[OperatorRow]] = defaultdict(list)
    nodes = any(NODE.search(row.name) for row in profile.rows)
    for row in profile.rows:
        if row.backward and (not nodes or NODE.search(row.name)):
            back[_plain_name(row.name)].append(row)
        elif not row.backward and not row.within:
            forward[_plain_name(row.name)] += row.whole
    for name, rows in back.items():
        seconds = sum(row.whole for row in rows)
        if forward.get(name, 0.0) <= 0:
            continue
        ratio, dearest = seconds / forward[name], max(rows, key=lambda row: row.whole)
        told = sentence("advice_seen.backward", seconds=seconds, ratio=ratio, name=_subject(dearest))
        share = share_of(seconds, profile.total)
        yield Evidence("backward", seconds, share, dearest.place, told, _subject(dearest), {"ratio": ratio})


def _plain_name(name: str) -> str:
    """An operator's name without what tells its way back.

    >>> {_plain_name(one) for one in ("aten::index", "autograd::engine::evaluate_function: IndexBackward0")}
    {'index'}
    """
    before, plain = "", name.rpartition("/")[2]
    while before != plain:
        before, plain = plain, OPERATOR_NAME.sub("", plain)
    return plain.replace("_", "").lower()


def _products(profile: Profile) -> Iterator[Evidence]:
    """Matrix products on an accelerator: in float32, or with sides that leave a rest."""
    products = [row for row in profile.rows if row.device and row.kind in PRODUCTS]
    whole = sum(row.seconds for row in products)
    full = [row for row in products if _is_float32(row)]
    if full:
        part = sum(row.seconds for row in full) / whole if whole else 0.0
        seen = sentence("advice_seen.float32", seconds=sum(row.seconds for row in full), part=part)
        yield profile.evidence("float32 matrix products", full, seen, part=part)
    rest = [row for row in products if row.kind == "matrix product" and _has_rest(row)]
    if rest:
        dearest = max(rest, key=lambda row: row.seconds)
        shape = " x ".join(map(str, next(shape for shape in dearest.shapes if _leaves_rest(shape))))
        seen = sentence(
            "advice_seen.unaligned", seconds=sum(row.seconds for row in rest), shape=shape, unit=MATRIX_UNIT
        )
        yield profile.evidence("unaligned shapes", rest, seen)


def _is_float32(row: OperatorRow) -> bool:
    if row.types:
        return any(FLOAT.match(name) for name in row.types[:2])
    return FLOAT_KERNEL.search(row.name) is not None


def _has_rest(row: OperatorRow) -> bool:
    return any(_leaves_rest(shape) for shape in row.shapes[:2])


def _leaves_rest(shape: tuple[int, ...]) -> bool:
    """Tell whether a matrix has a large side that is no multiple of what a matrix unit takes."""
    return any(side >= SMALL_SIDE and side % MATRIX_UNIT for side in shape[-2:]) and len(shape) > 1


def _on_device(profile: Profile) -> Iterator[Evidence]:
    rows = [row for row in profile.rows if row.device and row.kind != "communication"]
    small = [row for row in rows if row.calls and row.seconds / row.calls < SMALL_KERNEL]
    if small and rows:
        calls = sum(row.calls for row in small)
        part = calls / max(sum(row.calls for row in rows), 1)
        seen = sentence("advice_seen.small_kernels", calls=calls / profile.counted, part=part)
        yield profile.evidence("small kernels", small, seen, part=part, a_step=calls / profile.counted)
    slow = [row for row in rows if row.core.replace(" ", "_").upper() in PROCESSOR_CORES]
    if slow:
        seen = sentence("advice_seen.processor", calls=sum(row.calls for row in slow), name=slow[0].name)
        yield profile.evidence("slow processor operators", slow, seen)
    dynamic = [row for row in rows if row.dynamic]
    if dynamic:
        part = sum(row.calls for row in dynamic) / max(sum(row.calls for row in rows), 1)
        seen = sentence("advice_seen.dynamic", calls=sum(row.calls for row in dynamic), part=part)
        yield profile.evidence("dynamic operators", dynamic, seen, part=part)


def exposed_communication(exposed: float, whole: float, calls: float, total: float, place: str) -> Evidence:
    """Communication that nothing hides, with how many collectives a step has."""
    told = sentence("advice_seen.communication", seconds=exposed, whole=whole, calls=calls)
    values: dict[str, float | str] = {"a_step": calls, "hidden": 1.0 - exposed / whole if whole else 1.0}
    return Evidence("exposed communication", exposed, share_of(exposed, total), place, told, values=values)


# The parts of a step, for two profiles to be held against each other.


def step_parts(profile: Profile, *, wall: float | None) -> tuple[StepPart, ...]:
    """What each kind of operator takes of a step; what is left of the `wall` time of a step is the host's.

    Where a profile has rows of a device, these count, and what the host did meanwhile does not.
    """
    has_device = any(row.device for row in profile.rows)
    counted = [row for row in profile.rows if row.device == has_device and row.seconds > 0]
    parts: dict[tuple[PartKind, str], list[OperatorRow]] = defaultdict(list)
    for row in counted:
        parts[_part_of(row)].append(row)
    split = [
        StepPart(kind, operator, sum(row.seconds for row in rows) / profile.counted, _dearest(rows))
        for (kind, operator), rows in parts.items()
    ]
    if wall is not None:
        split.append(StepPart("host", "", wall - sum(part.seconds for part in split)))
    return tuple(sorted(split, key=lambda part: -part.seconds))


def _part_of(row: OperatorRow) -> tuple[PartKind, str]:
    if row.within == "data" or LOADER.search(row.name):
        return "data", ""
    if row.within == "optimizer" or OPTIMIZER_STEP.search(row.name) or row.kind == "optimizer":
        return "optimizer", ""
    if row.kind == "communication":
        return "communication", ""
    return "backward" if row.backward else "forward", row.kind


def _dearest(rows: Sequence[OperatorRow]) -> str:
    return _subject(max(rows, key=lambda row: row.seconds))
