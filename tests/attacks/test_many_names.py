"""Two files of very many names are mapped in work that grows with their number alone, whether or not the names fold."""

from __future__ import annotations

import random
import string
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.names.map_parameters import map_parameters
from align.report.show_result import result_blocks
from align.runs.run_folder import as_document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("guarded")
NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
Rows = list[tuple[str, str, tuple[int, ...]]]  # the names in both files, and the shape


def blocks() -> Iterator[str]:
    """Paths of a mixture of experts: eight in each block."""
    number = 0
    while True:
        yield from (f"model.layers.{number}.mlp.experts.{expert}" for expert in range(8))
        number += 1


def words() -> Iterator[str]:
    """Paths of which no two differ in a number alone."""
    draw = random.Random(0)
    while True:
        yield ".".join("".join(draw.choices(string.ascii_lowercase, k=7)) for _ in range(3))


def rows(paths: Iterator[str], count: int) -> Rows:
    """A linear layer and a batch norm at each path, so many tensors at most."""
    found: Rows = []
    while len(found) + 6 <= count:
        path = next(paths)
        found += [
            (f"{path}.proj.weight", f"{path}.proj.weight", (4, 3)),
            (f"{path}.proj.bias", f"{path}.proj.bias", (4,)),
        ]
        found += [(f"{path}.bn.{name}", f"{path}.bn.{port}", (4,)) for name, port in NORM.items()]
    return found


def written(folder: Path, found: Rows) -> tuple[Path, Path]:
    """Both files of the rows, with equal values."""
    paths = folder / "m.safetensors", folder / "m.ckpt"
    for side, path in enumerate(paths):
        draw = np.random.default_rng(0)
        values = [(row[side], draw.standard_normal(row[2], np.float32)) for row in found]
        tensors = [StoredTensor(name, one.shape, "float32", partial(np.asarray, one)) for name, one in values]
        plugin = next(one for one in checkpoint_formats().values() if path.suffix in one.suffixes)
        with path.open("wb") as stream:
            plugin.write(stream, tensors, {})
    return paths


@pytest.mark.parametrize("paths", [blocks, words])
def test_a_map_of_twice_as_many_names_takes_twice_the_work(
    paths: Callable[[], Iterator[str]], tmp_path: Path, growth: Callable[[Callable[[int], object], int], float]
) -> None:
    files = {}
    for count in (600, 1200):
        (tmp_path / str(count)).mkdir()
        files[count] = written(tmp_path / str(count), rows(paths(), count))

    def map_and_show(count: int) -> None:
        result = map_parameters(*files[count])
        assert len(result.name_map.pairings) == count
        assert result.verdict.outcome.value == "aligned"
        assert result_blocks(as_document(result, {}))

    assert growth(map_and_show, 600) < 2.3
