"""Run folders as the commands write them, made from the values of `align.core` and no model at all."""

from __future__ import annotations

import base64
import json
import math
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING

import numpy as np

from align.advice.advise import AdviceResult, AdvisedSide, GapPart, ReadProfile, SpeedGap
from align.advice.evidence import StepPart
from align.batch.job import Job, PlacedTask, Task, TaskOutcome
from align.batch.run_batch import judge_batch
from align.convert.convert_checkpoint import ConversionRecord, ConvertedTensor
from align.convert.pair_checkpoints import CheckpointDiff, TensorDifference, TensorRelation
from align.core.name_map import Ambiguity, Dropped, NameMap, Pairing, Unmatched
from align.core.parameters import ParameterSummary
from align.core.traces import Limit, Measurement, smallest_factor
from align.core.transforms import Reshape
from align.core.verdicts import Coverage, Finding, Outcome, Verdict
from align.curves.loss_log import (
    Criterion,
    Curve,
    CurveComparison,
    CurveEvent,
    CurvePoints,
    DriftTest,
    OtherMetric,
    SideSpeed,
    SpeedComparison,
)
from align.data.resized_pictures import DataComparison, DataSide, FieldComparison, SampleOrder, ShownSample, TokenPair
from align.forward.forward_result import (
    Culprit,
    ForwardComparison,
    IsolatedComparison,
    IsolatedOutcome,
    LayerComparison,
)
from align.forward.judge_formulas import FormulaComparison, compare_with_formulas
from align.loops.compare_watched import Departure, WatchComparison, WatchedHeat, WatchedSeries
from align.measure.fused_formulas import attention
from align.memory.measure_memory import Growth, GrowthSeries, MemoryResult, SideMemory
from align.memory.read_trace import Checkpointing, LayerMemory, PhaseMemory
from align.names.map_result import MapResult
from align.runs.run_folder import RunFolder
from align.tokens.compare_tokens import TokenComparison, compare_tokens
from align.traces.module_calls import UnpairedLayer

if TYPE_CHECKING:
    from align.batch.job import BatchResult

TRAININGS = run_path(str(Path(__file__).with_name("sample_trainings.py")))
sample_step, clean_step = TRAININGS["sample_step"], TRAININGS["clean_step"]
FIRST_DIVERGENT = "resnet.encoder.stages.0.layers.0.shortcut.convolution"
SHAPE = (2, 64, 56, 56)
ELEMENTS = math.prod(SHAPE)


def write_sample_run(path: Path, kinds: tuple[str, ...] = ("map", "convert", "forward", "step", "loss")) -> Path:
    """A whole run that ends "not aligned" at `FIRST_DIVERGENT`, or only some of its rungs."""
    folder = RunFolder.create(path)
    checkpoint = path / "resnet50.pth"
    checkpoint.write_bytes(b"weights")
    results = {"map": sample_map, "convert": sample_conversion, "forward": faulty_forward, "loss": sample_losses}
    results |= {"diff": sample_diff, "data": sample_data, "formula": sample_formula, **TRAININGS["SAMPLES"]}
    for kind in kinds:
        folder.write(results[kind](), {"reference": checkpoint, "candidate": "ports.resnet:build"})
    return path


def sample_map() -> MapResult:
    """267 pairs, 53 counters left out."""
    layers = [f"resnet.encoder.stages.{s}.layers.{b}.layer.{k}" for s in range(4) for b in range(6) for k in range(3)]
    pairings = [Pairing("classifier.1.weight", "classifier.weight", "structure", 0.97)]
    for index, layer in enumerate(layers[:53]):
        target = f"layer{index // 18 + 1}.{index // 3 % 6}"
        pairings.append(
            Pairing(f"{layer}.convolution.weight", f"{target}.conv{index % 3 + 1}.weight", "structure", 1.0)
        )
        for source, name in zip(("weight", "bias", "running_mean", "running_var"), BN_NAMES, strict=True):
            pairings.append(
                Pairing(f"{layer}.normalization.{source}", f"{target}.bn{index % 3 + 1}.{name}", "rule", 1.0)
            )
    dropped = [
        Dropped(f"{layer}.normalization.num_batches_tracked", "source", "MindSpore's BatchNorm does not count batches")
        for layer in layers[:53]
    ]
    name_map = NameMap("zoo.resnet:build", "ports.resnet:build", tuple(pairings), tuple(dropped))
    verdict = Verdict(
        Outcome.ALIGNED, "all 320 source and 267 target tensors are decided", Coverage("tensors", 266, 53)
    )
    return MapResult(
        name_map, _summary("zoo.resnet:build", "torch", 320), _summary("ports.resnet:build", "mindspore", 267), verdict
    )


BN_NAMES = ("gamma", "beta", "moving_mean", "moving_variance")


def open_map() -> MapResult:
    """A map with everything that can be open."""
    name_map = NameMap(
        "a",
        "b",
        (Pairing("conv.weight", "conv.weight", "name", 1.0, Reshape((8, 3, 1, 3))),),
        (),
        (Ambiguity(("blocks.0.fc1.weight", "blocks.0.fc2.weight"), ("l0.a.weight", "l0.b.weight"), "equal shapes"),),
        (Unmatched("head.weight", "source", "no tensor of shape (10, 64)", ("heads.weight", "head2.weight")),),
        ("rename encoder.* to enc.*",),
    )
    verdict = Verdict(Outcome.NOT_COMPARED, "3 names are open", Coverage("tensors", 1, 0, 3, 2))
    return MapResult(name_map, _summary("a", "torch", 4), _summary("b", None, 3), verdict)


def _summary(label: str, framework: str | None, tensors: int) -> ParameterSummary:
    dtypes = {"float32": 267} | ({"int64": tensors - 267} if tensors > 267 else {})
    return ParameterSummary(label, framework, tensors, 25_557_032, 25_557_032, tensors - 161, (), dtypes)


def sample_conversion(*, verified: bool = True) -> ConversionRecord:
    """267 tensors, three of them reshaped."""
    tensors = [
        ConvertedTensor(
            f"layer.{i}.weight",
            f"cell.{i}.weight",
            (64, 64, 3, 3),
            "float32",
            {"op": "identity"},
            "ab" * 32,
            (64, 64, 3, 3),
            "float32",
        )
        for i in range(264)
    ]
    tensors += [
        ConvertedTensor(
            f"c1d.{i}.weight",
            f"c1d.{i}.weight",
            (8, 3, 1, 3),
            "float32",
            {"op": "reshape", "shape": [8, 3, 1, 3]},
            "cd" * 32,
            (8, 3, 3),
            "float32",
        )
        for i in range(3)
    ]
    dropped = {f"bn{i}.num_batches_tracked": "MindSpore's BatchNorm does not count batches" for i in range(53)}
    outcome = Outcome.ALIGNED if verified else Outcome.NOT_COMPARED
    return ConversionRecord(
        source="resnet50.pth",
        destination="resnet50.ckpt",
        files=("resnet50.ckpt",),
        source_format="pth",
        destination_format="ckpt",
        key="",
        names="the file alone",
        framework="mindspore",
        content_hash="xxh3:" + "12" * 16 if verified else None,
        tensors=tuple(tensors),
        dropped=dropped,
        dropped_values={},
        ties=(("decoder.weight", "embedding.weight"),),
        warnings=("epoch: an entry that is no tensor was left out",),
        verified=verified,
        versions={"mindalign": "0.1.0", "numpy": "1.26.4"},
        verdict=Verdict(outcome, "267 tensors written", Coverage("tensors", 267, 53)),
    )


def sample_diff() -> CheckpointDiff:
    """Everything that two checkpoints can differ by: 40 drifted layers, one with NaN, shapes, dtypes, names."""
    drifted = [
        (f"encoder.stages.{i // 10}.layers.{i % 10}.attention.output.dense.weight", 1e-7 * 1.3**i) for i in range(40)
    ]
    tensors = [_difference(name, layer(0, name, name, relative).measurement) for name, relative in drifted]
    tensors.append(_difference("head.norm.weight", layer(0, "", "", math.nan).measurement))
    tensors.append(_difference("embed.weight", None, outcome="shapes differ", candidate_shape=(30528, 768)))
    tensors.append(
        _difference("pos", layer(0, "", "", 0.0).measurement, outcome="dtypes differ", candidate_dtype="float16")
    )
    scaled = TensorRelation("scaled", "the candidate is 8 times the reference", {"op": "scale", "factor": 8.0}, 2.0)
    tensors.append(_difference("out.weight", layer(0, "", "", 1e-4).measurement, relations=(scaled,)))
    tensors.append(_difference("sign", layer(0, "", "", 0.0).measurement, outcome="equal"))
    tensors.append(_difference("frozen", layer(0, "", "", 0.0).measurement, outcome="equal", identical=True))
    return CheckpointDiff(
        reference="before.pth",
        candidate="after.ckpt",
        reference_format="torch",
        candidate_format="mindspore",
        tensors=tuple(tensors),
        missing={f"pooler.{i}.bias": "float32 (768,)" for i in range(3)},
        extra={"step": "int64 ()"},
        dropped={"bn.num_batches_tracked": "MindSpore's BatchNorm does not count batches"},
        warnings=("before.pth: optimizer (dict of 2 entries) holds 80 tensors: NOT COMPARED",),
        verdict=Verdict(Outcome.NOT_ALIGNED, "44 of 46 tensors differ", Coverage("tensors", 46, 1, 3, 1)),
        unchanged=("frozen",),
        map_lines=('"out.weight" = { to = "out.weight", op = "scale", factor = 8.0 }',),
    )


def _difference(name: str, measurement: Measurement | None, **changes: object) -> TensorDifference:
    fields: dict[str, object] = {
        "reference": name,
        "candidate": name,
        "reference_shape": SHAPE,
        "candidate_shape": SHAPE,
        "reference_dtype": "float32",
        "candidate_dtype": "float32",
        "outcome": "values differ",
        "identical": False,
        "measurement": measurement,
    }
    return TensorDifference(**{**fields, **changes})  # type: ignore[arg-type]


def layer(order: int, reference: str, candidate: str, relative: float, **changes: object) -> LayerComparison:
    """One compared layer with a relative L2 difference of `relative`; NaN stands for NaN on the candidate's side."""
    broken = math.isnan(relative)
    rms = 0.8
    rmse = 0.0 if broken else relative * rms
    limit = Limit(rms * 4e-5, rms * 3e-6 * (1 + order / 20), "noise")
    measurement = Measurement(
        count=ELEMENTS,
        max_abs=8 * rmse,
        max_rel=40 * rmse,
        mean_abs=0.6 * rmse,
        rmse=rmse,
        relative_l2=None if broken else relative,
        cosine=1.0 - relative**2 / 2 if not broken else None,
        reference_max=4.0,
        reference_rms=rms,
        nan_reference=0,
        nan_candidate=12 if broken else 0,
        inf_reference=0,
        inf_candidate=0,
        non_finite_mismatch=12 if broken else 0,
        mismatched=12 if broken else (ELEMENTS // 7 if rmse > limit.rmse else 0),
        worst=(1, 17, 0, 55),
        decades=_decades(rmse),
    )
    factor = smallest_factor(measurement, limit)
    fields: dict[str, object] = {
        "order": order,
        "reference": reference,
        "candidate": candidate,
        "reference_class": "ResNetConvLayer",
        "candidate_class": "Conv2d",
        "call": 0,
        "output": "",
        "reference_shape": SHAPE,
        "candidate_shape": SHAPE,
        "reference_dtype": "float32",
        "candidate_dtype": "float32",
        "outcome": "aligned" if factor <= 1 else "not aligned",
        "measurement": measurement,
        "limit": limit,
        "factor": factor,
    }
    return LayerComparison(**{**fields, **changes})  # type: ignore[arg-type]


def _decades(rmse: float) -> tuple[int, ...]:
    counts = [0] * 20
    if rmse > 0.0:
        centre = min(max(math.log10(rmse) + 16, 0), 19)
        for k in range(20):
            reached = k - 16 <= math.log10(8 * rmse)
            counts[k] = int(ELEMENTS * 0.5 * math.exp(-((k + 0.9 - centre) ** 2) / 1.2)) if reached else 0
    return tuple(counts)


def sample_forward(*, diverges: bool = True) -> ForwardComparison:
    """120 layers of a residual network; the 16th differs, and all after it."""
    names = [("resnet.embedder.embedder.convolution", "conv1"), ("resnet.embedder.pooler", "max_pool")]
    for stage, block, part in ((s, b, p) for s in range(4) for b in range(6) for p in range(5)):
        inner = f"resnet.encoder.stages.{stage}.layers.{block}"
        names.append((f"{inner}.layer.{part}.convolution", f"layer{stage + 1}.{block}.conv{part + 1}"))
    names.insert(15, (FIRST_DIVERGENT, "layer1.0.down_sample.0"))
    noise = random.Random(3)
    layers = []
    for order, (reference, candidate) in enumerate(names[:120]):
        relative = 3e-7 * (1 + order / 6) * noise.uniform(0.6, 1.4)
        if diverges and order >= 15:
            relative = 0.021 * (1 + (order - 15) / 60) * noise.uniform(0.7, 1.3)
        layers.append(layer(order, reference, candidate, 0.0 if order == 0 else relative))
    outcome = Outcome.NOT_ALIGNED if diverges else Outcome.ALIGNED
    unpaired = [
        UnpairedLayer(
            "reference", f"resnet.encoder.stages.{s}.layers.{b}.activation", "ReLU", c, "ports use a function here"
        )
        for s in range(4)
        for b in range(6)
        for c in range(2)
    ]
    return ForwardComparison(
        reference="zoo.resnet:build",
        candidate="ports.resnet:build",
        layers=tuple(layers),
        first_divergent=15 if diverges else None,
        last_aligned=14 if diverges else None,
        unpaired=tuple(unpaired),
        findings=(Finding("stride-differs", "warning", FIRST_DIVERGENT, "the stride sits elsewhere", {"stride": 2}),),
        inputs={"pixel_values": {"shape": [2, 3, 224, 224], "dtype": "float32", "sha256": "ef" * 32}},
        environment={
            "reference": {"torch": "2.13.0", "device": "cpu"},
            "candidate": {"mindspore": "2.10.0", "device": "cpu"},
        },
        verdict=Verdict(
            outcome, "105 of 120 layers differ" if diverges else "120 layers agree", Coverage("layers", 120, 0, 48, 0)
        ),
    )


def faulty_forward() -> ForwardComparison:
    """The 16th layer is at fault by a setting, and the code in front of the 61st."""
    forward = sample_forward()
    layers = [
        replace(one, isolated=alone(one, 0.021 if place in (15, 60) else 1e-7), amplification=1.02)
        for place, one in enumerate(forward.layers)
    ]
    culprits = (
        culprit(
            layers[15],
            4540.0,
            cause="max-pool-padding",
            sureness="confirmed",
            facts={"reference": "padding=1", "candidate": 'pad_mode="same"', "calls": 2},
            change='nn.MaxPool2d(..., pad_mode="pad", padding=1)',
            line="resnet.py:214",
        ),
        culprit(layers[60], math.inf, part="inputs"),
    )
    return replace(forward, layers=tuple(layers), culprits=culprits)


def alone(one: LayerComparison, relative: float) -> IsolatedComparison:
    """A layer that is off by `relative` when all before it is right."""
    judged = layer(one.order, "", "", relative)
    outcome: IsolatedOutcome = "aligned" if (judged.factor or 0.0) <= 1 else "not aligned"
    return IsolatedComparison(outcome, judged.measurement, judged.limit, judged.factor, 0.0)


def culprit(one: LayerComparison, factor: float, **known: object) -> Culprit:
    """A compared layer that is at fault itself, for an unknown cause unless `known`."""
    place = (one.reference, one.candidate, one.reference_class, one.candidate_class, one.call)
    return Culprit(*place, **{"part": "layer", "factor": factor, **known})  # type: ignore[arg-type]


def broken_forward() -> ForwardComparison:
    """NaN in the first divergent layer, a shape that cannot be compared after it."""
    unlike = {"outcome": "not comparable", "measurement": None, "limit": None, "factor": None, "note": "shapes differ"}
    layers = (
        layer(0, "stem", "stem", 1e-7),
        layer(1, "norm", "norm", math.nan),
        layer(2, "", "", 1e-7, candidate_shape=(2, 64, 55, 55), **unlike),
    )
    verdict = Verdict(Outcome.NOT_ALIGNED, "norm differs", Coverage("layers", 2, 0, 0, 0))
    return ForwardComparison("a", "b", layers, 1, 0, (), (), {}, {}, verdict)


def token_rows() -> tuple[TokenPair, ...]:
    """A token more, an equal one, some left out, and another one in its place, whose words are hostile."""
    return (
        TokenPair((None, 0), (None, 1), ("", "[CLS]")),
        TokenPair((0, 1), (7, 7), (" ", " ")),
        TokenPair((13, 14), (8, 9), ("<script>document.title = 'x'</script>", "\x1b[31m\u4f60"), skipped=12),
        TokenPair((None, None), (None, None), skipped=4),
    )


def sample_tokens() -> TokenComparison:
    """Two engines that part at the end of a list of 200 tokens."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("a.jsonl", "b.jsonl")]
        for path, last in zip(files, (-1.25, -2.5), strict=True):
            row = {"tokens": [*range(200)], "logprobs": [None, *[-1.25] * 150, *[last] * 49]}
            path.write_text(json.dumps(row), encoding="utf-8")
        return compare_tokens(*files)


def sample_formula() -> FormulaComparison:
    """An attention that was called without a scale, and an operator that no formula is known of."""
    query, key, value = np.random.default_rng(0).normal(size=(3, 1, 2, 8, 16)).astype(np.float32)
    table = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [*query.shape]}
    (out,) = attention(query.astype(float), key.astype(float), value.astype(float), scale=0.25)
    names = dict(zip(("q", "k", "v", "out"), (query, key, value, out.astype(np.float32)), strict=True))
    tensors = {name: {**table, "data_name": f"{name}.npy"} for name in names}
    layout = {"type": "str", "value": "BNSD"}
    call = {
        "input_args": [*[tensors[name] for name in "qkv"], {"type": "int", "value": 2}, layout],
        "input_kwargs": {},
        "output": [tensors["out"]],
    }
    data = {"NPU.npu_fusion_attention.0.forward": call, "NPU.npu_of_tomorrow.0.forward": call}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "dump_tensor_data").mkdir()
        for name, array in names.items():
            np.save(Path(folder, "dump_tensor_data", f"{name}.npy"), array)
        document = {"task": "tensor", "level": "L1", "framework": "pytorch", "data": data}
        Path(folder, "dump.json").write_text(json.dumps(document), encoding="utf-8")
        return compare_with_formulas(folder)


def sample_data() -> DataComparison:
    """One picture of each side, the channels of the candidate's in the other order; and two rows of tokens."""
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    parts = (pixels, pixels[..., ::-1], abs(pixels - pixels[..., ::-1].astype(int)).astype(np.uint8))
    pictures = (base64.b64encode(part.tobytes()).decode("ascii") for part in parts)
    sides = (DataSide(label, "DataLoader", 1, 1, 1, (1, 1), True, "same") for label in ("a.py:data", "b.py:data"))
    return DataComparison(
        *sides,
        by_name=True,
        fields=(FieldComparison("image", "image", ("uint8", "uint8"), ("4, 4, 3", "4, 4, 3"), 1, 1),),
        order=SampleOrder("same", "place", 1, 0, 0, (0, 0)),
        causes=(),
        samples=(
            ShownSample("image", (0, 0), (4, 4), *pictures, "0 to 47", "0 to 47"),
            ShownSample("ids", (3, 5), (0, 0), "7, 8", "1, 7, 9", "", "7 .. 8", "1 .. 9", tokens=token_rows()),
        ),
        findings=(),
        verdict=Verdict(Outcome.NOT_ALIGNED, "1 of 1 samples differs", Coverage("samples", 1)),
    )


def sample_watch() -> WatchComparison:
    """Two records of six steps, of which one layer's update departs at the third."""
    update = Departure(2, "update", "fc.weight", "fc.weight", "fc", "sudden", (0.01, 0.1), 10.0, 0.01)
    output = Departure(3, "output", "fc", "fc", "fc", "lasting", (1.0, math.nan), None, 0.03)
    steps = (0, 1, 2, 3, 4, 5)
    loss = WatchedSeries("", "loss", steps, (2.0, 1.5, 1.2, 1.0, 0.9, 0.8), (2.0, 1.5, 1.2, 1.3, 1.4, math.nan))
    moved = WatchedSeries("fc.weight", "update", steps, (0.01,) * 6, (0.01, 0.01, 0.1, 0.1, 0.1, 0.1))
    heat = WatchedHeat(("conv", "fc"), steps, ((0.0, 1e-6, 1e-6, 0.2, 0.3, 0.3), (0.0, 1e-6, 0.9, 0.9, 0.9, 0.9)))
    return WatchComparison(
        reference="runs/torch",
        candidate="runs/port",
        frameworks=("torch", "mindspore"),
        steps=steps,
        layers=2,
        parameters=4,
        departures=(update, output),
        departed=2,
        rounding=(),
        level="a figure departs",
        says="fc.weight departs first",
        next_steps=("align step REFERENCE CANDIDATE --batch FILE",),
        series=(loss, moved),
        heat=heat,
        findings=(),
        verdict=Verdict(Outcome.NOT_ALIGNED, "fc.weight departs first", Coverage("tensors", 6)),
    )


def sample_memory() -> MemoryResult:
    """A side whose step takes 9 MB at most, and whose memory grows by 1 MB a step."""
    phases = (
        PhaseMemory("forward", 7_000_000, 2_000_000, 0, 1_000_000, 3_000_000, 900_000, 100_000),
        PhaseMemory("backward", 9_000_000, 2_000_000, 2_000_000, 1_000_000, 3_000_000, 900_000, 100_000),
        PhaseMemory("optimizer", 6_000_000, 2_000_000, 2_000_000, 1_000_000, 0, 900_000, 100_000),
    )
    layers = (LayerMemory("stem", "Conv2d", 2_000_000, 2_000_000, 1_000_000, 3_000_000, 900_000),)
    side = SideMemory(
        *("sides.py:training", "torch", "cpu", "measured", True, 9_000_000, None, None),
        *(phases, layers, (Checkpointing("stem", "Conv2d", 1, 3_000_000, 6_000_000),), None, None),
    )
    values = tuple(1e6 * step for step in range(12))
    series = GrowthSeries("host", values, 1e6, 1e6, 1e6, grows=True)
    growth = Growth(side.label, tuple(range(12)), (series,), (), grows=True, reason="it grows")
    return MemoryResult((side,), (growth,), (), Verdict(Outcome.NOT_ALIGNED, "it grows", Coverage("phases", 3)))


def sample_advise() -> AdviceResult:
    """A port of which a step waits for data for a third of its time."""
    waits, computes = StepPart("data", "", 0.15), StepPart("forward", "", 0.2)
    sides = [
        AdvisedSide(label, "", "", (ReadProfile(label, "log", 40, 10.0),), sum(p.seconds for p in parts), parts)
        for label, parts in (("torch.log", (computes,)), ("port.log", (waits, computes)))
    ]
    gap = SpeedGap(0.2, 0.35, (GapPart("data", "", 0.0, 0.15, 1.0, ""),), 1.0)
    verdict = Verdict(Outcome.NOT_ALIGNED, "a step takes 1.75 times as long", Coverage("files", 2))
    return AdviceResult(sides[1], sides[0], (), gap, 1.75, 1.2, (), (), 58, verdict)


def sample_batch() -> BatchResult:
    """Four ranks and two steps, of which one rank departs at the second."""
    placed, outcomes = [], {}
    for step, rank in ((step, rank) for step in range(2) for rank in range(4)):
        name, outcome = f"s{step}r{rank}", "not aligned" if (step, rank) == (1, 2) else "aligned"
        rows = [["embed", "aligned", 0.1], ["head", outcome, 9.0]]
        figures = {"outcome": outcome, "reason": "", "compared": 2, "rows": rows, "prints": []}
        placed.append(PlacedTask(Task(name, "forward", ("a", "b"), {}), rank, step))
        outcomes[name] = TaskOutcome(name, "done", 1, 0.1, None, figures, "", "")
    return judge_batch(Job("job", tuple(placed)), outcomes)


def sample_losses(*, diverges: bool = True) -> CurveComparison:
    """Sixty steps that part at step 21."""
    noise = random.Random(5)
    steps = np.arange(1, 61)
    jitter = np.array([[noise.uniform(-0.05, 0.05), noise.uniform(-0.004, 0.004)] for _ in steps])
    reference = 7.0 * np.exp(-steps / 40) + jitter[:, 0]
    difference = jitter[:, 1] + (0.012 * np.maximum(steps - 20, 0) if diverges else 0.0)
    limit = np.maximum(0.005, 0.005 * reference)
    within = np.abs(difference) <= limit
    points = CurvePoints(60, steps, reference, reference + difference, difference, limit, within)
    first = None if within.all() else int(steps[~within][0])
    curves = [
        Curve(label, "loss", steps, values, np.full(60, resolution), notes=(note,))
        for values, label, resolution, note in (
            (points.reference, "torch.jsonl", 0.0, "steps counted from 0: moved by 1"),
            (points.candidate, "mindspore.log", 1e-4, "steps in the epoch: 15 an epoch"),
        )
    ]
    return CurveComparison(
        metric="loss",
        preset="guide",
        reference=curves[0],
        candidate=curves[1],
        points=points,
        criteria=(
            Criterion("first step", 0.003, 0.005, True, "published migration guide"),
            Criterion("mean difference", 0.24 if diverges else 0.002, 0.01, not diverges, "published migration guide"),
        ),
        first_divergent_step=first,
        events=(CurveEvent("change point", first), CurveEvent("spike", 40, "candidate", 3.1)) if first else (),
        drift=(DriftTest("sign test", 31.0, 1e-6, 0.005, diverges, 0.48, "independent blocks"),),
        others=(OtherMetric("lr", 60, 60, None, 0.0, None), OtherMetric("grad_norm", 60, 41, 21, 0.7, 60)),
        speed=SpeedComparison(
            SideSpeed(0.1, 0.12, 0.2, 1, 0.05, 6.0),
            SideSpeed(0.3, 0.4, 31.0, 1, 0.6, 49.0),
            3.0,
            "data",
            ("in seconds",),
        ),
        trouble="optimizer" if first else "",
        next_command="align step zoo.resnet:build ports.resnet:build" if first else "",
        verdict=Verdict(Outcome.NOT_ALIGNED if first else Outcome.ALIGNED, "the curves part", Coverage("steps", 60)),
    )
