"""Every written format, dtype and kind of tensor, loaded by the framework that the file is for, bit for bit.

The source is a file of `torch.save`, so that views of any stride and tied weights are real ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.core.load_code import checkpoint_formats

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.frameworks

DTYPES = [
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16",
    "uint8", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
    "float8_e8m0fnu",
]  # fmt: skip
FLOAT8 = {"float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}
COMPLEX = {"complex64", "complex128"}


def torch_state_dict(dtype: str) -> dict[str, Any]:
    import torch

    base = torch.arange(24).reshape(2, 3, 4).to(getattr(torch, dtype))
    tied = base.flatten()[:4].clone()
    return {
        "plain.weight": base,
        "scalar": base[0, 1, 2].clone(),
        "one": base[0, 1, 2:3].clone(),
        "empty": base[:0].clone(),
        "nothing": torch.zeros(0, dtype=base.dtype),
        "transposed": base.permute(2, 0, 1),
        "every other": base[:, ::2, 1:],
        "expanded": base[:1].expand(3, 3, 4),
        "overlapping": base.flatten().as_strided((5, 4), (3, 1), 2),
        "tail of a storage": base.flatten()[7:],
        "embedding.weight": tied,
        "head.weight": tied,
        "层.权重/é😀": base[1].clone(),
    }


def bits(tensor: Any) -> bytes:
    """The value's bytes in C order, whatever the dtype."""
    import torch

    flat = tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def by_torch(path: Path, **options: Any) -> dict[str, tuple[tuple[int, ...], str, bytes]]:
    import torch

    return described_torch(torch.load(path, weights_only=True, **options))


def by_torch_mapped(path: Path) -> dict[str, tuple[tuple[int, ...], str, bytes]]:
    return by_torch(path, mmap=True)


def by_safetensors(path: Path) -> dict[str, tuple[tuple[int, ...], str, bytes]]:
    from safetensors.torch import load_file

    return described_torch(load_file(path))


def described_torch(values: dict[str, Any]) -> dict[str, tuple[tuple[int, ...], str, bytes]]:
    return {n: (tuple(v.shape), str(v.dtype).removeprefix("torch."), bits(v)) for n, v in values.items()}


def by_mindspore(path: Path) -> dict[str, tuple[tuple[int, ...], str, bytes]]:
    import mindspore

    form = "safetensors" if path.suffix == ".safetensors" else "ckpt"
    values = mindspore.load_checkpoint(str(path), format=form)
    return {
        n: (tuple(p.shape), str(p.dtype).lower().replace("bool_", "bool"), p.asnumpy().tobytes())
        for n, p in values.items()
    }


def by_numpy(path: Path) -> dict[str, tuple[tuple[int, ...], str, bytes]]:
    import numpy as np

    with np.load(path, allow_pickle=False) as values:
        return {name: (values[name].shape, values[name].dtype.name, values[name].tobytes()) for name in values.files}


@dataclass(frozen=True)
class Judge:
    """Who loads the file, and what the file cannot hold."""

    plugin: str
    suffix: str
    flavour: str
    load: Callable[[Path], dict[str, tuple[tuple[int, ...], str, bytes]]]
    no_dtypes: frozenset[str] = frozenset()
    no_empty: bool = False


JUDGES = {
    "torch": Judge("torch", ".pth", "pt", by_torch),
    "torch, memory-mapped": Judge("torch", ".pt", "pt", by_torch_mapped),
    "safetensors": Judge("safetensors", ".safetensors", "pt", by_safetensors, frozenset({"complex128"})),
    "mindspore": Judge("ckpt", ".ckpt", "ms", by_mindspore, frozenset(COMPLEX | FLOAT8), no_empty=True),
    "mindspore from safetensors": Judge("safetensors", ".safetensors", "ms", by_mindspore, frozenset(COMPLEX | FLOAT8)),
    "numpy": Judge("npz", ".npz", "pt", by_numpy, frozenset(FLOAT8 | {"bfloat16"})),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_what_is_written_loads_bit_for_bit_and_the_rest_is_refused_by_name(tmp_path, judge: Judge, dtype: str) -> None:
    import torch

    values = torch_state_dict(dtype)
    torch.save(values, tmp_path / "source.pth")
    tensors = list(open_checkpoint(tmp_path / "source.pth").tensors.values())
    plugin, metadata = checkpoint_formats()[judge.plugin], {"format": judge.flavour}
    refused = {line.partition(": ")[0] for line in plugin.problems(tensors, metadata)}
    if dtype in judge.no_dtypes:
        assert refused == set(values)
        return
    assert refused == ({"empty", "nothing"} if judge.no_empty else set())
    path = tmp_path / f"written{judge.suffix}"
    with path.open("wb") as stream:
        plugin.write(stream, [tensor for tensor in tensors if tensor.name not in refused], metadata)
    found = judge.load(path)
    assert found == {name: value for name, value in described_torch(values).items() if name not in refused}


@pytest.mark.parametrize("kind", ["ckpt", "safetensors"])
def test_a_real_net_takes_the_file_in_a_strict_load(tmp_path, kind: str) -> None:
    import mindspore
    import numpy as np

    net = mindspore.nn.SequentialCell(
        mindspore.nn.Conv2d(3, 4, 3, has_bias=True), mindspore.nn.BatchNorm2d(4), mindspore.nn.Dense(4, 2)
    )
    random = np.random.default_rng(0)
    values = {p.name: random.standard_normal(p.shape).astype(np.float32) for p in net.get_parameters()}
    np.savez(tmp_path / "source.npz", **values)
    path = tmp_path / f"net.{kind}"
    with path.open("wb") as stream:
        tensors = list(open_checkpoint(tmp_path / "source.npz").tensors.values())
        checkpoint_formats()[kind].write(stream, tensors, {"format": "ms"})
    loaded = mindspore.load_checkpoint(str(path), format=kind)
    assert mindspore.load_param_into_net(net, loaded, strict_load=True) == ([], [])
    assert {p.name: p.asnumpy().tobytes() for p in net.get_parameters()} == {
        name: value.tobytes() for name, value in values.items()
    }
