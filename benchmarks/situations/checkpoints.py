"""Checkpoint files as trainings leave them: quantized, placeholders, ranks, averaged copies, conversions, older names.

A faulty one is refused, or told of, where its tensors are no weights by themselves; its clean twin looks alike and is
whole.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import ml_dtypes
import numpy as np
import torch

import align
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor, dtype_name

from ._situation import ALIGNED, REFUSED, WRONG

if TYPE_CHECKING:
    from collections.abc import Callable

    Arrays = dict[str, np.ndarray[Any, Any]]
    Said = tuple[Any, list[str]]

F8, HALF = ml_dtypes.float8_e4m3fn, np.float16


@dataclass(frozen=True, slots=True)
class Files:
    """What is done in a folder with files made there; all else is as in `Situation`."""

    name: str
    twin: Literal["clean", "faulty"]
    run: Callable[[Path], Said]
    expected: tuple[str, ...]
    caveat: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    def compare(self) -> tuple[str, str, str]:
        """Return the outcome, the reason, and all that is said."""
        with tempfile.TemporaryDirectory() as folder:
            verdict, said = self.run(Path(folder))
        return verdict.outcome.value, verdict.reason, "\n".join([verdict.reason, *map(str, said)])


def ones(*shape: int, dtype: Any = np.float32) -> Any:
    """Ones of a shape."""
    return np.ones(shape, dtype)


def drawn(*shape: int, seed: int = 0) -> Any:
    """Standard normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def write(path: Path, arrays: Arrays) -> Path:
    """Write a checkpoint of the format that the suffix says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = [
        StoredTensor(name, value.shape, dtype_name(value.dtype), lambda value=value: value)  # type: ignore[misc]
        for name, value in arrays.items()
    ]
    plugin = next(one for one in checkpoint_formats().values() if path.suffix in one.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": "ms" if path.suffix == ".ckpt" else "pt"})
    return path


def convert(files: dict[str, Arrays], suffix: str = ".ckpt", **options: Any) -> Callable[[Path], Said]:
    """Convert the first of these files."""

    def run(folder: Path) -> Said:
        paths = [write(folder / name, arrays) for name, arrays in files.items()]
        record = align.convert_checkpoint(paths[0], folder / f"out{suffix}", **options)
        return record.verdict, [*record.warnings]

    return run


def convert_saved(tree: Any, name: str = "model.pt", **options: Any) -> Callable[[Path], Said]:
    """Convert what torch saves."""

    def run(folder: Path) -> Said:
        torch.save(tree, folder / name)
        record = align.convert_checkpoint(folder / name, folder / "out.ckpt", **options)
        return record.verdict, [*record.warnings]

    return run


def diff(first: tuple[str, Arrays], second: tuple[str, Arrays]) -> Callable[[Path], Said]:
    """Compare two files."""

    def run(folder: Path) -> Said:
        found = align.diff_checkpoints(write(folder / first[0], first[1]), write(folder / second[0], second[1]))
        differing = [one.candidate for one in found.tensors if one.outcome != "equal"]
        return found.verdict, [*found.warnings, *differing, *found.dropped.values()]

    return run


def diff_of_conversion(changed: str = "") -> Callable[[Path], Said]:
    """Compare a file with its conversion, of which one tensor may have been changed before."""

    def run(folder: Path) -> Said:
        source = write(folder / "a.pth", {**MODEL, changed: MODEL[changed] + 1} if changed else MODEL)
        align.convert_checkpoint(source, folder / "a.ckpt", layers=("emb=embedding",))
        found = align.diff_checkpoints(write(source, MODEL), folder / "a.ckpt")
        return found.verdict, [one.candidate for one in found.tensors if one.outcome != "equal"]

    return run


def forward_with_old_names(factor: float = 1.0) -> Callable[[Path], Said]:
    """Fill a model with the new weight norm from a file with the old one's names; compare with the same net."""

    def run(folder: Path) -> Said:
        def net() -> Any:
            layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 4))
            return torch.nn.Sequential(layer, torch.nn.BatchNorm1d(4)).eval()

        torch.manual_seed(0)
        model, state = net(), {}
        for name, tensor in model.state_dict().items():
            old = name.replace("parametrizations.weight.original0", "weight_g")
            state[old.replace("parametrizations.weight.original1", "weight_v")] = tensor.clone()
        del state["1.num_batches_tracked"]
        state["0.weight_g"] *= factor
        torch.save(state, folder / "old.pth")
        found = align.compare_forward(align.open_side(net(), folder / "old.pth"), model, inputs={"x": drawn(5, 6)})
        return found.verdict, [one.message for one in found.findings]

    return run


LAYER: Arrays = {"fc.weight": drawn(4, 4), "fc.bias": drawn(4)}
MODEL: Arrays = {
    "emb.weight": drawn(9, 4),
    "bn.weight": drawn(4, seed=1),
    "bn.bias": drawn(4, seed=2),
    "bn.running_mean": drawn(4, seed=3),
    "bn.running_var": abs(drawn(4, seed=4)),
    **LAYER,
}
TWINS: Arrays = {f"ema_{name.replace('.', '_')}": value * 2 for name, value in LAYER.items()}
FP8: Arrays = {"fc.weight": ones(4, 4, dtype=F8), "fc.weight_scale_inv": ones(2, 2) / 448}
INT8: Arrays = {"fc.weight": ones(4, 4, dtype=np.int8), "fc.SCB": ones(4)}
GPTQ: Arrays = {
    "fc.qweight": ones(1, 4, dtype=np.int32),
    "fc.qzeros": ones(1, 1, dtype=np.int32),
    "fc.scales": ones(1, 4),
}
MASK: Arrays = {**LAYER, "attn.bias": ones(1, 1, 4, 4, dtype=np.uint8), "attn.scale": ones(1)}
CODES: Arrays = {**LAYER, "vq.codes": ones(4, dtype=np.int64), "out.scales": ones(4)}
EMPTY: Arrays = {**LAYER, "q.weight": ones(0, dtype=HALF), "k.weight": ones(0, dtype=HALF)}
ONE = torch.ones(1).half()
PLACEHOLDERS = {f"l.{n}.weight": ONE for n in range(3)}
SHAPES = [{f"l.{n}.weight": torch.Size((8, 8)) for n in range(3)}]
OTHER: Arrays = {"fc.weight": drawn(4, 4, seed=7), "fc.bias": drawn(4)}
PARALLEL = Namespace(tensor_model_parallel_size=2, pipeline_model_parallel_size=1)
SINGLE = Namespace(tensor_model_parallel_size=1, pipeline_model_parallel_size=1)
WEIGHTS = {"fc.weight": torch.ones(4, 4)}
COUNTED: Arrays = {**LAYER, "global_step": np.array([7], np.int32)}
RIGHT, REFUSE, FAULT = (ALIGNED,), (REFUSED,), (WRONG,)
QUANTIZED, HOLDS_NONE, RANK = ("quantized",), ("does not hold the weights",), ("one rank of",)

SITUATIONS = [
    Files("scaled float8, cast", "faulty", convert({"a.safetensors": FP8}, dtype="bf16"), REFUSE, named=QUANTIZED),
    Files(
        "float8 without scales, cast",
        "clean",
        convert({"a.safetensors": {"fc.weight": ones(4, 4, dtype=F8), "fc.bias": ones(4)}}, dtype="bf16"),
        RIGHT,
    ),
    Files(
        "int8 with a scale for each row",
        "faulty",
        convert({"a.safetensors": INT8}, layers=("fc=linear",)),
        REFUSE,
        named=QUANTIZED,
    ),
    Files("a mask of bytes beside a scale", "clean", convert({"a.safetensors": MASK}), RIGHT),
    Files("four bits in whole numbers", "faulty", convert({"a.safetensors": GPTQ}), REFUSE, named=QUANTIZED),
    Files("codes beside scales of another layer", "clean", convert({"a.safetensors": CODES}), RIGHT),
    Files(
        "empty placeholders", "faulty", convert({"a.safetensors": EMPTY}), REFUSE, named=(*HOLDS_NONE, "zero_to_fp32")
    ),
    Files(
        "an empty buffer",
        "clean",
        convert({"a.npz": {**LAYER, "cache": ones(0)}}, suffix=".npz", target="torch"),
        RIGHT,
    ),
    Files(
        "placeholders of one element",
        "faulty",
        convert_saved({"module": PLACEHOLDERS, "param_shapes": SHAPES}),
        REFUSE,
        named=HOLDS_NONE,
    ),
    Files(
        "a slope of one element",
        "clean",
        convert({"a.pth": {**LAYER, "act.weight": ones(1)}}, layers=("act=prelu",)),
        RIGHT,
    ),
    Files("a rank by its arguments", "faulty", convert_saved({"model": WEIGHTS, "args": PARALLEL}), REFUSE, named=RANK),
    Files(
        "arguments of one rank",
        "clean",
        convert_saved({"model": WEIGHTS, "args": SINGLE}, layers=("fc=linear",)),
        RIGHT,
    ),
    Files(
        "parts beside each other",
        "faulty",
        convert({"consolidated.00.pth": LAYER, "consolidated.01.pth": OTHER}),
        REFUSE,
        named=RANK,
    ),
    Files("one part alone", "clean", convert({"consolidated.00.pth": LAYER}), RIGHT),
    Files(
        "ranks with other values",
        "faulty",
        convert({"rank_0/n.ckpt": LAYER, "rank_1/n.ckpt": OTHER}, suffix=".pth"),
        REFUSE,
        named=RANK,
    ),
    Files(
        "ranks with equal values",
        "clean",
        convert({"rank_0/n.ckpt": LAYER, "rank_1/n.ckpt": LAYER}, suffix=".pth"),
        RIGHT,
    ),
    Files(
        "averaged copies",
        "faulty",
        convert({"a.pth": {**LAYER, **TWINS}}),
        RIGHT,
        caveat=("averaged copies .* NOT CONVERTED",),
    ),
    Files(
        "nothing but averages",
        "clean",
        convert({"a.pth": {f"ema.{name}": value for name, value in LAYER.items()}}),
        RIGHT,
    ),
    Files("a conversion of a changed file", "faulty", diff_of_conversion("bn.weight"), FAULT, named=(r"bn\.gamma",)),
    Files("a file and its conversion", "clean", diff_of_conversion(), RIGHT),
    Files(
        "a lone count and other weights",
        "faulty",
        diff(("a.ckpt", OTHER), ("b.ckpt", COUNTED)),
        FAULT,
        named=(r"fc\.weight",),
    ),
    Files("a lone count", "clean", diff(("a.ckpt", LAYER), ("b.ckpt", COUNTED)), RIGHT),
    Files("other values under older names", "faulty", forward_with_old_names(1.3), FAULT),
    Files("older names", "clean", forward_with_old_names(), RIGHT),
]
