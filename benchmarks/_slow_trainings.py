"""Trainings that are slow for a known reason, and healthy ones: each leaves the files that a user would have of it.

What torch and MindSpore can write on a processor is written by them. Tables of Ascend's and NVIDIA's tools are made
here, field by field as the tools name them: `kernel_details.csv` and `step_trace_time.csv` after the viewers in
mindspore.profiler.analysis.viewer (2.10), `op_summary` after msprof's own tests of its header, `op_statistic` likewise,
`cuda_gpu_kern_sum` after Nsight Systems' user guide.
"""

from __future__ import annotations

import io
import json
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

STEPS = 10
KERNEL_COLUMNS = (
    "Step ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    "Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Context ID"
)
SUMMARY_COLUMNS = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),Task Duration(us),"
    "Task Wait Time(us),Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
    "Output Data Types,Output Formats"
)
STEP_COLUMNS = (
    "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)
STATISTIC_COLUMNS = "OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)"
NSYS_COLUMNS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name"


@dataclass(frozen=True)
class Case:
    """A training: what makes its files in a folder, and the rule that must come first; "" for a healthy one."""

    name: str
    make: Callable[[Path], None]
    first: str = ""
    framework: str = ""


# torch on the processor, profiled by itself.


def torch_profile(
    folder: Path, batches: Any, model: Any, *, step: Any = None, stack: bool = False, **more: Any
) -> None:
    """Train some steps under torch's profiler; leaves trace.json, and table.txt where a table is asked for."""
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule

    optimizer = more.get("optimizer") or torch.optim.SGD(model.parameters(), lr=1e-3)
    step = step or (lambda x, y: torch.nn.functional.cross_entropy(model(x), y))
    for x, y in batches:
        _train(step, optimizer, x, y)
        break  # the first step is not profiled, as one is told to
    plan = None if more.get("table") else schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=stack, schedule=plan) as profiler:
        for x, y in batches:
            _train(step, optimizer, x, y)
            profiler.step()
    if more.get("table"):
        (folder / "table.txt").write_text(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=-1))
    else:
        profiler.export_chrome_trace(str(folder / "trace.json"))


def _train(step: Any, optimizer: Any, x: Any, y: Any) -> None:
    optimizer.zero_grad()
    step(x, y).backward()
    optimizer.step()


def torch_data(samples: int, shape: Sequence[int], *, sleep: float = 0.0, batch: int = 16) -> Any:
    """A loader of random samples in the main process."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Samples(Dataset):
        def __len__(self) -> int:
            return samples

        def __getitem__(self, at: int) -> Any:
            if sleep:
                time.sleep(sleep)
            return torch.full(tuple(shape), at / samples), at % 4

    return DataLoader(Samples(), batch_size=batch)


def small_cnn() -> Any:
    """A network whose step takes some milliseconds on a processor."""
    from torch import nn

    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


def wide_mlp(width: int = 1024) -> Any:
    """A network of large matrix products."""
    from torch import nn

    middle = nn.Linear(width, width)
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), middle, nn.ReLU(), nn.Linear(width, 4))


def sleep_in_loader(folder: Path) -> None:
    torch_profile(folder, torch_data(16 * (STEPS + 2), (256,), sleep=0.001), wide_mlp())


def sleep_in_loader_table(folder: Path) -> None:
    torch_profile(folder, torch_data(16 * 6, (256,), sleep=0.001), wide_mlp(), table=True, stack=True)


def items_in_loop(folder: Path) -> None:
    import torch

    model = wide_mlp()

    def step(x: Any, y: Any) -> Any:
        losses = torch.nn.functional.cross_entropy(model(x), y, reduction="none")
        total = 0.0
        for _ in range(200):
            for one in losses.detach():
                total += one.item()
        return losses.mean()

    torch_profile(folder, _batches(8, (256,)), model, step=step)


def _batches(size: int, shape: Sequence[int], count: int = STEPS + 2) -> list[Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(size, *shape, generator=generator), torch.arange(size) % 4) for _ in range(count)]


def float64_layer(folder: Path) -> None:
    import torch
    from torch import nn

    class Port(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(256, 1024), nn.Linear(1024, 1024).double()
            self.last = nn.Linear(1024, 4)

        def forward(self, x: Any) -> Any:
            return self.last(torch.relu(self.second(torch.relu(self.first(x)).double())).float())

    torch_profile(folder, _batches(64, (256,)), Port())


def decoding_in_main_process(folder: Path) -> None:
    import torch
    from torch.utils.data import DataLoader, Dataset

    packed = _picture()

    class Pictures(Dataset):
        def __len__(self) -> int:
            return 8 * (STEPS + 2)

        def __getitem__(self, at: int) -> Any:
            return torch.from_numpy(decode_picture(packed)).float()[:16, :16].permute(2, 0, 1) / 255, at % 4

    torch_profile(folder, DataLoader(Pictures(), batch_size=8), small_cnn(), stack=True)


def _picture() -> bytes:
    import numpy as np
    from PIL import Image

    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (160, 160, 3), np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG")
    return stream.getvalue()


def decode_picture(packed: bytes) -> Any:
    """Unpack a JPEG."""
    import numpy as np
    from PIL import Image

    return np.array(Image.open(io.BytesIO(packed)).convert("RGB"))


def optimizer_one_by_one(folder: Path) -> None:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(8, 8), *(nn.Linear(8, 8) for _ in range(60)), nn.Linear(8, 4))
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    torch_profile(folder, _batches(4, (8,)), model, optimizer=optimizer)


def slow_backward(folder: Path) -> None:
    import torch
    from torch import nn

    class Port(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.last = nn.Embedding(100_000, 32), nn.Linear(32, 4)

        def forward(self, x: Any) -> Any:
            return self.last(self.table((x * 99_999).long()).mean(1))

    model = Port()
    torch_profile(folder, _batches(64, (8,)), model, optimizer=torch.optim.SGD(model.last.parameters(), lr=1e-3))


def healthy_cnn(folder: Path) -> None:
    torch_profile(folder, torch_data(16 * (STEPS + 2), (3, 32, 32)), small_cnn())


def healthy_mlp(folder: Path) -> None:
    torch_profile(folder, torch_data(64 * (STEPS + 2), (256,), batch=64), wide_mlp(3072))


def healthy_table(folder: Path) -> None:
    torch_profile(folder, torch_data(64 * 6, (256,), batch=64), wide_mlp(3072), table=True)


def healthy_transformer(folder: Path) -> None:
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    body, head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 4)
    model = nn.ModuleList([body, head])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(head(body(x).mean(1)), y)

    torch_profile(folder, _batches(16, (32, 64)), model, step=step, optimizer=optimizer)


# Logs that a loop prints, and records of align.watch.


def printed_log(folder: Path, *, sleep: float, work: float = 0.004) -> None:
    """A loop that prints what it waits for, and what a step takes."""
    lines, last = [], time.perf_counter()
    for step in range(1, 41):
        time.sleep(sleep)
        got = time.perf_counter()
        time.sleep(work)
        now = time.perf_counter()
        lines.append(f"step {step} loss {2 / step:.4f} time_s {now - last:.5f} data_time_s {got - last:.5f}")
        last = now
    (folder / "train.log").write_text("\n".join(lines) + "\n")


def sleep_in_loop_log(folder: Path) -> None:
    printed_log(folder, sleep=0.008)


def healthy_log(folder: Path) -> None:
    printed_log(folder, sleep=0.0)


def watched(folder: Path, *, sleep: float = 0.0, leak: int = 0, steps: int = 40) -> None:
    """A torch training under align.watch."""
    import torch

    import align

    model, kept = wide_mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = _batches(32, (256,), steps)
    with align.watch(model, optimizer, folder / "record") as watch:
        for x, y in batches:
            if sleep:
                time.sleep(sleep)
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if leak:
                kept.append(b"x" * leak)
            watch.step(loss)


def write_log(folder: Path, times: Sequence[float], *, head: str = "", waits: Any = None) -> None:
    """A log with these times of steps."""
    rows = []
    for at, seconds in enumerate(times):
        wait = f" data_time_s {waits[at]:.4f}" if waits is not None else ""
        rows.append(f"step {at + 1} loss {2 / (at + 1):.4f} time_s {seconds:.4f}{wait}")
    (folder / "train.log").write_text(head + "\n".join(rows) + "\n")


def _noisy(count: int, usual: float = 0.2, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [usual * (1 + 0.04 * draw.random()) for _ in range(count)]


def growing_log(folder: Path) -> None:
    write_log(folder, [one * (1 + at / 60) for at, one in enumerate(_noisy(120))], head="import torch\n")


def workers_each_epoch(folder: Path) -> None:
    rows = []
    for at, usual in enumerate(_noisy(96)):
        wait = 1.5 if at % 12 == 0 else 0.001
        place = f"[{at // 12 + 1}][{at % 12 + 1:2}/12]"
        rows.append(
            f"2026/11/20 08:34:15 - mmengine - INFO - Epoch(train) {place}  lr: 1.0000e-02  eta: 0:00:00  "
            f"time: {usual + wait:.4f}  data_time: {wait:.4f}  loss: {2 / (at + 1):.4f}"
        )
    (folder / "train.log").write_text("\n".join(rows) + "\n")


def workers_in_turns(folder: Path) -> None:
    times = [one + (0.6 if at % 4 == 3 else 0) for at, one in enumerate(_noisy(80))]
    write_log(folder, times, waits=[0.6 if at % 4 == 3 else 0.001 for at in range(80)])


def recompiling_log(folder: Path) -> None:
    draw = random.Random(1)
    slow = set(draw.sample(range(1, 100), 12))
    write_log(folder, [one + (4.0 if at in slow or at == 0 else 0) for at, one in enumerate(_noisy(100))])


def healthy_long_log(folder: Path) -> None:
    times = _noisy(300)
    times[0] += 3.0
    write_log(folder, times, waits=[0.002] * 300)


# MindSpore on the processor.


def mindspore_profile(folder: Path, sizes: Sequence[int], mode: str = "graph", width: int = 64) -> None:
    """Train steps with batches of these sizes under MindSpore's profiler; the first step is not profiled."""
    import mindspore
    import numpy as np
    from mindspore import nn

    graph = mode == "graph"
    mindspore.set_context(mode=mindspore.GRAPH_MODE if graph else mindspore.PYNATIVE_MODE)
    network = nn.SequentialCell(nn.Dense(width, width), nn.ReLU(), nn.Dense(width, 4))

    def feed(size: int) -> Any:
        return mindspore.Tensor(np.ones((size, width), np.float32))

    network(feed(sizes[0])).asnumpy()
    plan = mindspore.profiler.schedule(wait=0, warmup=0, active=len(sizes), repeat=1)
    handler = mindspore.profiler.tensorboard_trace_handler(str(folder / "profile"))
    activities = [mindspore.profiler.ProfilerActivity.CPU]
    profiler = mindspore.profiler.profile(activities=activities, schedule=plan, on_trace_ready=handler)
    with profiler:
        for size in sizes:
            network(feed(size)).asnumpy()
            profiler.step()
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)


def changing_shapes(folder: Path) -> None:
    mindspore_profile(folder, [4, 5, 6, 7])


def healthy_graph(folder: Path) -> None:
    mindspore_profile(folder, [4096] * 6, width=256)


def pynative_steps(folder: Path) -> None:
    mindspore_profile(folder, [2] * 6, "pynative")


def one_worker_decode(folder: Path) -> None:
    """A dataset whose decoding has one worker, sampled as MindSpore's profiler does."""
    import mindspore._c_dataengine as engine
    import mindspore.dataset as ds
    import numpy as np
    from mindspore.dataset import vision

    packed = np.frombuffer(_picture(), np.uint8)
    manager = engine.GlobalContext.profiling_manager()
    before = ds.config.get_monitor_sampling_interval()
    ds.config.set_monitor_sampling_interval(20)
    manager.init()
    manager.start()
    data = ds.GeneratorDataset(lambda: ((packed,) for _ in range(240)), ["x"], shuffle=False)
    data = data.map(vision.Decode(), ["x"], num_parallel_workers=1).batch(8)
    for _ in data.create_dict_iterator(num_epochs=1, output_numpy=True):
        pass
    manager.stop()
    manager.save(str(folder))
    ds.config.set_monitor_sampling_interval(before)


# Tables of Ascend's and NVIDIA's tools, field by field.


def write_kernels(folder: Path, rows: Sequence[Sequence[object]]) -> None:
    """A kernel_details.csv of rows (step, name, type, core, start, duration, shapes, types)."""
    lines = [KERNEL_COLUMNS]
    for step, name, kind, core, start, duration, shapes, types in rows:
        lines.append(
            f'{step},{name},{kind},static,{core},{start},{duration},1.0,20,0,NO,"{shapes}",{types},ND,"",{types},ND,N/A'
        )
    target = folder / "ASCEND_PROFILER_OUTPUT"
    target.mkdir(exist_ok=True)
    (target / "kernel_details.csv").write_text("\n".join(lines) + "\n")


def ascend_step(step: int, begin: float, reduces: Sequence[tuple[float, float]], **more: Any) -> Iterator[list[object]]:
    """The kernels of a step: products and activations, and collectives (start, duration) beside or behind them."""
    kind, shapes = more.get("types", "DT_FLOAT16;DT_FLOAT16"), more.get("shapes", "1024,1024;1024,1024")
    at = begin
    for layer in range(20):
        yield [step, f"MatMul-op{layer}", "MatMulV2", "AI_CORE", at, 180.0, shapes, kind]
        yield [step, f"Relu-op{layer}", "Relu", "AI_VECTOR_CORE", at + 181, 18.0, "1024,1024", kind]
        at += 200
        for name, core, duration in more.get("between", ()):
            yield [step, f"{name}-op{layer}", name, core, at, duration, "1024,1024", kind]
            at += duration + 1
    for number, (start, duration) in enumerate(reduces):
        name = f"hcom_allReduce__371_{number}_1"
        yield [step, name, "hcom_allReduce_", "COMMUNICATION", begin + start, duration, "N/A", "N/A"]


def kernels(folder: Path, reduces: Sequence[tuple[float, float]], **more: Any) -> None:
    length = more.pop("length", 4100.0)
    rows = [row for step in range(STEPS) for row in ascend_step(step, 1e6 + step * length, reduces, **more)]
    write_kernels(folder, rows)


def one_all_reduce(folder: Path) -> None:
    kernels(folder, [(4000.0, 2500.0)], length=6600.0)


def healthy_kernels(folder: Path) -> None:
    kernels(folder, [(1200.0, 500.0), (2000.0, 500.0), (2800.0, 500.0), (3400.0, 500.0)])


def float32_products(folder: Path) -> None:
    kernels(folder, (), types="DT_FLOAT;DT_FLOAT")


def unaligned_products(folder: Path) -> None:
    kernels(folder, (), shapes="1024,1023;1023,50257")


def layout_changes(folder: Path) -> None:
    kernels(folder, (), between=[("TransData", "AI_VECTOR_CORE", 120.0)], length=6600.0)


def many_casts(folder: Path) -> None:
    kernels(folder, (), between=[("Cast", "AI_VECTOR_CORE", 120.0)], length=6600.0)


def on_ai_cpu(folder: Path) -> None:
    kernels(folder, (), between=[("ScatterNdUpdate", "AI_CPU", 400.0)], length=12200.0)


def write_steps(folder: Path, rank: int, rows: Sequence[Sequence[float]]) -> None:
    """A step_trace_time.csv of rows (computing, not overlapped, overlapped, free, bubble)."""
    lines = [STEP_COLUMNS]
    for step, (computing, exposed, hidden, free, bubble) in enumerate(rows):
        communication, stage = exposed + hidden, computing + exposed + free
        lines.append(
            f"{step},{computing},{exposed},{hidden},{communication},{free},{stage},{bubble},{exposed - bubble},0.000"
        )
    target = folder / f"rank_{rank}_ascend_ms" / "ASCEND_PROFILER_OUTPUT"
    target.mkdir(parents=True)
    (target / "step_trace_time.csv").write_text("\n".join(lines) + "\n")


def slow_rank(folder: Path) -> None:
    for rank in range(4):
        computing = 9000.0 if rank == 2 else 6000.0
        write_steps(folder, rank, [(computing, 3200.0 - (computing - 6000.0), 500.0, 100.0, 0.0)] * STEPS)


def idle_npu(folder: Path) -> None:
    write_steps(folder, 0, [(3000.0, 100.0, 400.0, 5000.0, 0.0)] * STEPS)


def pipeline_bubbles(folder: Path) -> None:
    write_steps(folder, 0, [(6000.0, 3000.0, 500.0, 100.0, 2900.0)] * STEPS)


def healthy_steps(folder: Path) -> None:
    for rank in range(4):
        write_steps(folder, rank, [(9000.0 + 20 * rank, 300.0, 2000.0, 150.0, 0.0)] * STEPS)


def write_nsys(folder: Path, rows: Sequence[tuple[str, int, float]]) -> None:
    """A cuda_gpu_kern_sum of rows (name, instances, microseconds in all)."""
    total = sum(row[2] for row in rows)
    lines = ["Generating SQLite file report.sqlite from report.nsys-rep", NSYS_COLUMNS]
    for name, count, spent in rows:
        each = spent * 1e3 / count
        figures = f"{100 * spent / total:.1f},{spent * 1e3:.0f},{count},{each},{each},{each},{each},0.0"
        lines.append(f'{figures},"{name}"')
    (folder / "report_cuda_gpu_kern_sum.csv").write_text("\n".join(lines) + "\n")


def float32_kernels(folder: Path) -> None:
    write_nsys(folder, [("ampere_sgemm_128x64_nn", 400, 60000.0), ("vectorized_elementwise_kernel<4>", 900, 20000.0)])


def healthy_nsys(folder: Path) -> None:
    rows = [("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_nn", 400, 60000.0), ("layer_norm_kernel", 300, 9000.0)]
    write_nsys(folder, [*rows, ("vectorized_elementwise_kernel<4>", 900, 20000.0)])


def write_trace(folder: Path, events: Sequence[dict[str, Any]]) -> None:
    """A trace of torch's profiler with these events."""
    (folder / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": list(events)}))


def _event(name: str, category: str, start: float, duration: float, track: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 1, "tid": track, "ts": start, "dur": duration, "args": more,
    }  # fmt: skip


def one_nccl_group(folder: Path) -> None:
    events = []
    for step in range(STEPS):
        at = step * 10000.0
        events.append(_event(f"ProfilerStep#{step}", "user_annotation", at, 9900.0))
        events += [_event("aten::mm", "cpu_op", at + 10 + 20 * one, 15.0) for one in range(30)]
        events += [_event("ampere_fp16_s16816gemm", "kernel", at + 100 + 200 * one, 195.0, 7) for one in range(30)]
        events.append(_event("ncclDevKernel_AllReduce_Sum_f16", "kernel", at + 6200.0, 3500.0, 8))
    write_trace(folder, events)


def cudnn_trials(folder: Path) -> None:
    events = []
    for step in range(STEPS):
        at = step * 20000.0
        sides = [[16, 3, 200 + 8 * step, 200], [16, 3, 3, 3], []]
        more = {"Input Dims": sides, "Input type": ["c10::Half", "c10::Half", ""]}
        events.append(_event(f"ProfilerStep#{step}", "user_annotation", at, 19900.0))
        events.append(_event("aten::cudnn_convolution", "cpu_op", at + 10, 12000.0, **more))
        events.append(_event("aten::cudnn_convolution", "cpu_op", at + 13000, 100.0, **more))
        events += [_event("cutlass_fprop_f16", "kernel", at + 12100 + 1500 * one, 1490.0, 7) for one in range(5)]
    write_trace(folder, events)


def ascend_trace(folder: Path) -> None:
    """A trace_view.json of Ascend's profilers: a list without categories, whose processes tell what runs.

    Events of CANN bear the names of kernels too, and waits for events are no work.
    """
    processes = {1: "Python", 2: "CANN", 3: "Ascend Hardware", 4: "Overlap Analysis"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in processes.items()
    ]
    for step in range(STEPS):
        at = step * 10000.0
        rows = [(2, "aclnnMatmul", at + 10 + 20 * one, 9000.0 / 30) for one in range(30)]
        rows += [(3, "aclnnMatmul", at + 3000 + 100 * one, 95.0) for one in range(30)]
        rows += [(3, "EVENT_WAIT", at + 6000.0, 3900.0), (4, "Free", at + 6000.0, 3900.0)]
        for pid, name, start, duration in rows:
            events.append(
                {"ph": "X", "name": name, "pid": pid, "tid": 1, "ts": f"{start:.3f}", "dur": duration, "args": {}}
            )
    (folder / "trace_view.json").write_text(json.dumps(events))


def gpu_items(folder: Path) -> None:
    """Reads of single values, each of which waits for the device."""
    events = []
    for step in range(STEPS):
        at = step * 10000.0
        events.append(_event(f"ProfilerStep#{step}", "user_annotation", at, 9900.0))
        for one in range(9):
            begin = at + 20 + 1000 * one
            events.append(_event("aten::mm", "cpu_op", begin, 15.0))
            events.append(_event("aten::item", "cpu_op", begin + 30, 850.0))
            events.append(_event("cudaStreamSynchronize", "cuda_runtime", begin + 40, 830.0))
            events.append(_event("ampere_fp16_s16816gemm", "kernel", begin + 60, 800.0, 7))
    write_trace(folder, events)


# Logs that end with full memory.

MESSAGES = {
    "card-occupied-by-others": "[EXCEPTION] DEVICE(7,python): Malloc device memory failed, size[32212254720], "
    "ret[207001], Device 0 Available HBM size:34359738368 free size:1048576 may be other processes occupying this card",
    "batch-does-not-fit": "RuntimeError: Out of Memory!!! Request memory size: 1073741824B, Memory Statistic: ...",
    "memory-fragmented": "RuntimeError: NPU out of memory. Tried to allocate 3384.00 MiB (NPU 2; 61.22 GiB total "
    "capacity; 43.87 GiB already allocated; 43.87 GiB current active; 1.59 GiB free; 56.60 GiB reserved in total by "
    "PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.",
    "communication-buffers": "Memory not enough: hcom_allReduce needs 2147483648 bytes, free 1048576",
    "memory-of-dynamic-shapes": "Out of Memory!!! Request memory size: 4294967296B for dynamic shape graph 3",
    "host-memory-killed": "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
    "too-many-workers": "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max "
    "number of worker in current system is 2, which is smaller than what this DataLoader is going to create.",
    "function-compiled-again": "[WARNING] ME(7:1,MainProcess): The step has been compiled again. Try to reuse the "
    "function object decorated by @jit to reduce the compile time.",
}


def message(text: str) -> Callable[[Path], None]:
    """A log of a few steps that ends with a message."""

    def make(folder: Path) -> None:
        write_log(folder, _noisy(20))
        log = folder / "train.log"
        log.write_text(log.read_text() + text + "\n")

    return make


def _leaking(folder: Path) -> None:
    watched(folder, leak=4_000_000)


def _watched_sleeping(folder: Path) -> None:
    watched(folder, sleep=0.02)


PLANTED = (
    # The peak of a process's memory grows only as long as no case before took more.
    Case("memory that grows (align.watch)", _leaking, "memory-grows", "torch"),
    Case("sleep in the loader (trace)", sleep_in_loader, "batches-in-main-process", "torch"),
    Case("sleep in the loader (table)", sleep_in_loader_table, "batches-in-main-process", "torch"),
    Case("sleep before each batch (log)", sleep_in_loop_log, "training-waits-for-data"),
    Case("sleep before each batch (align.watch)", _watched_sleeping, "training-waits-for-data", "torch"),
    Case(".item() in a loop", items_in_loop, "values-read-one-by-one", "torch"),
    Case(".item() on a GPU (made trace)", gpu_items, "values-read-one-by-one"),
    Case("a float64 layer", float64_layer, "float64-by-accident", "torch"),
    Case("decoding in the main process", decoding_in_main_process, "decoding-in-main-process", "torch"),
    Case("an optimizer without foreach", optimizer_one_by_one, "optimizer-parameter-by-parameter", "torch"),
    Case("a slow backward of indexing", slow_backward, "slow-backward-of-one-operator", "torch"),
    Case("changing shapes in graph mode", changing_shapes, "recompiled-for-shapes", "mindspore"),
    Case("PyNative mode", pynative_steps, "pynative-mode", "mindspore"),
    Case("decoding by one worker", one_worker_decode, "one-worker-operation", "mindspore"),
    Case("graphs compiled anew (log)", recompiling_log, "steps-slow-as-first"),
    Case("steps that grow (log)", growing_log, "steps-grow-slower"),
    Case("workers started each epoch (log)", workers_each_epoch, "workers-start-each-epoch"),
    Case("workers in turns (log)", workers_in_turns, "workers-take-turns"),
    Case("an all-reduce in one group (Ascend)", one_all_reduce, "all-reduce-in-one-group"),
    Case("an all-reduce in one group (NCCL)", one_nccl_group, "all-reduce-in-one-group"),
    Case("a slow rank", slow_rank, "slow-rank"),
    Case("an NPU that waits", idle_npu, "no-sinking"),
    Case("an NPU that waits (trace)", ascend_trace, "no-sinking"),
    Case("bubbles of a pipeline", pipeline_bubbles, "pipeline-bubble"),
    Case("float32 on an NPU", float32_products, "no-mixed-precision"),
    Case("float32 on a GPU (nsys)", float32_kernels, "no-mixed-precision"),
    Case("sides that leave a rest", unaligned_products, "sides-no-multiple-of-16"),
    Case("TransData", layout_changes, "layout-changes"),
    Case("casts", many_casts, "casts"),
    Case("operators on the AI CPU", on_ai_cpu, "operators-on-ai-cpu"),
    Case("cudnn.benchmark with changing shapes", cudnn_trials, "cudnn-benchmark-with-changing-shapes"),
    *(Case(f"message: {rule}", message(text), rule) for rule, text in MESSAGES.items()),
)
HEALTHY = (
    Case("a CNN (trace)", healthy_cnn, framework="torch"),
    Case("an MLP (trace)", healthy_mlp, framework="torch"),
    Case("an MLP (table)", healthy_table, framework="torch"),
    Case("a Transformer with AdamW (trace)", healthy_transformer, framework="torch"),
    Case("a training under align.watch", watched, framework="torch"),
    Case("a log with waits", healthy_log),
    Case("a long log with a slow start", healthy_long_log),
    Case("a graph of MindSpore", healthy_graph, framework="mindspore"),
    Case("kernels of an NPU", healthy_kernels),
    Case("four ranks", healthy_steps),
    Case("kernels of a GPU (nsys)", healthy_nsys),
)
