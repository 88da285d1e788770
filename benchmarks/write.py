"""Every written format against `cp` + fsync of the same bytes, then loaded by its framework and compared byte for byte.

One tensor of random bytes per size (over 512 MiB: slices in a .ckpt; over 4 GB: the zip64 fields), and 50,000 small
ones. Writing is measured in this process, the median of runs taken in turn. The files are made on the fly and removed;
loading takes up to three times the size in memory. Run: python benchmarks/write.py --gb 0.6 2.2 4.4 --runs 3
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from align.checkpoints.extents import mapped
from align.core.load_code import checkpoint_formats
from align.core.parameters import Extent, StoredTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BLOCK = 64 << 20
SMALL, COUNT = 1024, 50_000  # bytes and number of the small tensors


def main() -> None:
    """For each size, and for many small tensors, write all formats in turn, load each and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--gb", type=float, nargs="+", default=[0.6, 2.2, 4.4], help="sizes of the one tensor in GB")
    options.add_argument("--runs", type=int, default=3)
    chosen = options.parse_args()
    for gb in chosen.gb:
        size = int(gb * 1e9) // 8 * 8
        compare(f"one tensor of {gb} GB", size, size, chosen.runs)
    compare(f"{COUNT} tensors of {SMALL} bytes", SMALL * COUNT, SMALL, chosen.runs)


def compare(title: str, total: int, each: int, runs: int) -> None:
    """Write `total` random bytes as tensors of `each` bytes in every format and print seconds, ratio and verdict."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        source = Path(folder, "source")
        with source.open("wb") as stream:
            for start in range(0, total, BLOCK):
                stream.write(np.random.default_rng(start).bytes(min(BLOCK, total - start)))
        tensors = [stored(source, number, each) for number in range(total // each)]
        sides: dict[str, Callable[[Path], object]] = {"cp": lambda path: shutil.copyfile(source, path)}
        sides |= {name: writer(tensors, *about[:2]) for name, about in JUDGES.items()}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        verdicts: dict[str, str] = {}
        for turn in range(runs):
            for name, write in sides.items():
                path = Path(folder, name)
                seconds[name].append(timed(write, path))
                if turn == 0 and name in JUDGES:
                    verdicts[name] = "equal" if holds(JUDGES[name][2](path), tensors) else "NOT EQUAL"
                path.unlink()
    print(f"{title}, median of {runs}\n{'':22}{'write + fsync s':>16}{'x cp':>8}  loaded")
    base = statistics.median(seconds["cp"])
    for name, rows in seconds.items():
        middle = statistics.median(rows)
        print(f"{name:22}{middle:16.2f}{middle / base:8.2f}  {verdicts.get(name, '')}")


def stored(source: Path, number: int, size: int) -> StoredTensor:
    """Bytes of the source as float32: any bits, NaN among them."""
    extent, shape = Extent(source, number * size, size), (size // 4,)
    return StoredTensor(f"layers.{number}.weight", shape, "float32", mapped(extent, shape, "float32"), extent)


def writer(tensors: list[StoredTensor], plugin: str, flavour: str) -> Callable[[Path], object]:
    """Return a function that writes the tensors to a path."""

    def write(path: Path) -> None:
        with path.open("wb") as stream:
            checkpoint_formats()[plugin].write(stream, tensors, {"format": flavour})

    return write


def timed(write: Callable[[Path], object], path: Path) -> float:
    """Seconds to write and to flush to disk."""
    os.sync()
    started = time.perf_counter()
    write(path)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
    return time.perf_counter() - started


def holds(found: Mapping[str, Any], tensors: list[StoredTensor]) -> bool:
    """Whether exactly these tensors were loaded, with every bit."""
    return set(found) == {tensor.name for tensor in tensors} and all(
        np.array_equal(np.asarray(found[tensor.name]).view(np.uint32), tensor.load().view(np.uint32))
        for tensor in tensors
    )


def by_mindspore(path: Path) -> dict[str, Any]:
    """`mindspore.load_checkpoint`, which refuses what is larger than the memory that holds nothing, not even cache."""
    import mindspore

    mindspore.train.serialization._get_available_memory = lambda: None  # noqa: SLF001
    kind = path.suffix.removeprefix(".")
    return {name: value.asnumpy() for name, value in mindspore.load_checkpoint(str(path), format=kind).items()}


def by_torch(path: Path) -> dict[str, Any]:
    """`torch.load` without pickled code, memory-mapped."""
    import torch

    return {name: value.numpy() for name, value in torch.load(path, weights_only=True, mmap=True).items()}


def by_safetensors(path: Path) -> dict[str, Any]:
    """The safetensors library."""
    from safetensors.numpy import load_file

    return dict(load_file(path))


def by_numpy(path: Path) -> Mapping[str, Any]:
    """`numpy.load`; an array is read when it is asked for."""
    archive: Mapping[str, Any] = np.load(path, allow_pickle=False)
    return archive


JUDGES: dict[str, tuple[str, str, Callable[[Path], Mapping[str, Any]]]] = {
    "mindspore.ckpt": ("ckpt", "ms", by_mindspore),
    "mindspore.safetensors": ("safetensors", "ms", by_mindspore),
    "torch.pth": ("torch", "pt", by_torch),
    "torch.safetensors": ("safetensors", "pt", by_safetensors),
    "numpy.npz": ("npz", "pt", by_numpy),
}

if __name__ == "__main__":
    main()
