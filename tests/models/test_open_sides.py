"""Two sides that are one object, or share tensors: told apart before anything is filled, or refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import align
from align import SideRequest
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import SharedModelError
from align.models.open_side import changed_tensors, open_side, open_sides, shared_tensors
from align.models.thresholds import CHECKSUM_ELEMENTS
from align.models.user_code import array_memory

pytestmark = pytest.mark.frameworks

TORCH = """
from functools import lru_cache

import torch
from torch import nn


def fresh():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))


model = fresh()
cached = lru_cache(fresh)
flat = nn.Parameter(torch.randn(2, 8, 8))


class Port(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Half(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.weight = nn.Parameter(flat[number].detach())

    def forward(self, x):
        return x @ self.weight.T


def wraps():
    return Port(*cached())


def wraps_and_scales():
    port = wraps()
    port.layers[2].weight.data.mul_(1.5)
    return port


def in_a_closure():
    port, original = wraps(), cached()
    port.forward = lambda x: original(x)
    return port


def uncopied():
    port = wraps()
    port.generator = (number for number in range(3))
    return port


def first_half():
    return Half(0)


def second_half():
    return Half(1)
"""

MINDSPORE = """
from functools import lru_cache

import mindspore
from mindspore import Parameter, Tensor, nn


def fresh():
    mindspore.set_seed(0)
    return nn.SequentialCell(nn.Dense(8, 8), nn.GELU(False), nn.Dense(8, 4))


model = fresh()
cached = lru_cache(fresh)


class Port(nn.Cell):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.CellList([*layers])

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def wraps():
    return Port(*cached())


def wraps_and_scales():
    port = wraps()
    port.layers[2].weight.set_data(port.layers[2].weight * 1.5)
    return port
"""

MIXED = """
import torch
from mindspore import Tensor, nn

weight = torch.randn(4, 4)


class Original(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, x):
        return x @ self.weight


class Port(nn.Cell):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", Tensor.from_numpy(weight.numpy()))

    def construct(self, x):
        return x @ self.weight
"""
SOURCES = {"torch": TORCH, "mindspore": MINDSPORE}
X = {"x": np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)}


@pytest.fixture(params=SOURCES)
def nets(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return _written(tmp_path, monkeypatch, SOURCES[request.param])


@pytest.fixture
def torch_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return _written(tmp_path, monkeypatch, TORCH)


def _written(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(folder)
    (folder / "nets.py").write_text(source, encoding="utf-8")
    np.savez("x.npz", **X)  # type: ignore[arg-type]
    return "nets.py"


def checkpoints(nets: str, factor: float) -> tuple[Path, Path]:
    """Two checkpoints of the model, of which the second has a scaled last layer."""
    side = open_side(f"{nets}:fresh")
    values = side.reader.read_values(side.model)
    np.savez("one.npz", **values)
    np.savez("two.npz", **{name: value * (factor if name == "2.weight" else 1) for name, value in values.items()})
    return Path("one.npz"), Path("two.npz")


def values(side: Any) -> list[bytes]:
    return [value.tobytes() for value in side.reader.read_values(side.model).values()]


@pytest.mark.parametrize("function", ["model", "cached", "fresh"])
@pytest.mark.parametrize(("factor", "outcome"), [(1.5, Outcome.NOT_ALIGNED), (1.0, Outcome.ALIGNED)])
def test_two_checkpoints_of_one_object_are_two_models(
    nets: str, function: str, factor: float, outcome: Outcome
) -> None:
    one, two = (SideRequest(f"{nets}:{function}", path) for path in checkpoints(nets, factor))
    result = align.compare_forward(one, two, inputs=X, power=False)
    assert result.verdict.outcome is outcome
    copied = [finding.message for finding in result.findings if finding.code == "side-copied"]
    assert bool(copied) == (function != "fresh")
    assert all("it was one object with" in message for message in copied)


@pytest.mark.parametrize("order", [(0, None), (None, 0), (0, 1)])
def test_each_side_keeps_what_it_was_filled_with(nets: str, order: tuple[int | None, int | None]) -> None:
    paths = checkpoints(nets, 2.0)
    own = values(open_side(f"{nets}:cached"))
    told = [values(open_side(f"{nets}:fresh", path)) for path in paths]
    requests = [SideRequest(f"{nets}:cached", None if one is None else paths[one]) for one in order]
    sides = open_sides(*requests)
    assert [values(side) for side in sides] == [own if one is None else told[one] for one in order]


def test_one_object_is_refused_where_nothing_makes_the_sides_differ(nets: str) -> None:
    path, other = checkpoints(nets, 1.0)
    for asked in ({}, {"checkpoint": path}, {"dtype": "float16"}):
        with pytest.raises(SharedModelError, match="are one object: a comparison of a model with itself tells nothing"):
            open_sides(SideRequest(f"{nets}:cached", **asked), SideRequest(f"{nets}:cached", **asked))
    with pytest.raises(SharedModelError, match="one object"):
        open_sides(SideRequest(f"{nets}:cached", path), SideRequest(f"{nets}:cached", path.resolve()))
    with pytest.raises(SharedModelError, match="in the chosen dtype"):
        open_sides(f"{nets}:cached", SideRequest(f"{nets}:cached", dtype="float32"))
    first, second = open_sides(SideRequest(f"{nets}:cached", path), SideRequest(f"{nets}:cached", other))
    assert (first.copied, second.copied != "") == ("", True)


COMMANDS = {
    "forward": ["--inputs", "x.npz"],
    "bisect": ["--inputs", "x.npz"],
    "repro": ["--inputs", "x.npz", "--out", "layer"],
    "generate": ["--inputs", "x.npz"],
    "validate": ["--data", "nets.py:model"],
    "lint": [],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_one_object(command: str, torch_nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([command, f"{torch_nets}:cached", f"{torch_nets}:model", *COMMANDS[command]])
    assert "are one object" not in capsys.readouterr().err
    assert main([command, f"{torch_nets}:cached", f"{torch_nets}:cached", *COMMANDS[command]]) == 2
    assert "nets.py:cached and nets.py:cached are one object" in capsys.readouterr().err


def test_the_names_of_one_object_are_mapped_and_a_trial_copies_it(torch_nets: str) -> None:
    one = f"{torch_nets}:cached"
    before = values(open_side(one))
    result = align.map_parameters(one, one)
    assert [pair.source for pair in result.name_map.pairings] == [pair.target for pair in result.name_map.pairings]
    assert not result.warnings
    tried = align.map_parameters(one, one, inputs=X, trial=True)
    assert tried.name_map.pairings == result.name_map.pairings
    assert "it was one object with" in tried.warnings[0]
    assert values(open_side(one)) == before
    path, other = checkpoints(torch_nets, 2.0)
    with pytest.raises(SharedModelError):
        align.map_parameters(SideRequest(one, path), SideRequest(one, path))
    assert align.map_parameters(SideRequest(one, path), SideRequest(one, other)).name_map.complete
    assert main(["convert", str(path), "out.npz", "--source-model", one, "--target-model", one]) == 0


@pytest.mark.parametrize("wrapped", ["wraps", "fresh"])
def test_a_port_that_holds_layers_of_the_original_is_copied(nets: str, wrapped: str) -> None:
    own = values(open_side(f"{nets}:cached"))
    port = open_side(f"{nets}:{wrapped}")
    np.savez("port.npz", **{name: value * 2 for name, value in port.reader.read_values(port.model).items()})
    sides = open_sides(f"{nets}:cached", SideRequest(f"{nets}:{wrapped}", Path("port.npz")))
    assert values(sides[0]) == own
    assert values(sides[1]) != own
    assert ("shared 4 tensors" in sides[1].copied) == (wrapped == "wraps")


def test_nothing_leaks_by_a_cast(nets: str) -> None:
    sides = open_sides(f"{nets}:cached", SideRequest(f"{nets}:wraps", dtype="float16"))
    dtypes = [{value.dtype.name for value in side.reader.read_values(side.model).values()} for side in sides]
    assert dtypes == [{"float32"}, {"float16"}]


def test_a_function_that_changes_the_other_sides_model_is_refused(nets: str) -> None:
    with pytest.raises(SharedModelError, match=r"building the second changed 1 tensor \(2\.weight\) of the first"):
        open_sides(f"{nets}:cached", f"{nets}:wraps_and_scales")


def test_slices_of_one_storage_are_shared(torch_nets: str) -> None:
    _, second = open_sides(f"{torch_nets}:first_half", f"{torch_nets}:second_half")
    assert "shared 1 tensor (weight)" in second.copied


def test_memory_is_found_to_be_shared_across_frameworks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = _written(tmp_path, monkeypatch, MIXED)
    assert "shared 1 tensor (weight)" in open_sides(f"{nets}:Original", f"{nets}:Port")[1].copied


@pytest.mark.parametrize(
    ("port", "reason"),
    [("in_a_closure", "Port.forward is a function that keeps an object of type Sequential"), ("uncopied", "generator")],
)
def test_what_cannot_be_copied_is_refused_with_the_reason(torch_nets: str, port: str, reason: str) -> None:
    with pytest.raises(
        SharedModelError, match=f"the second shared .*cannot be copied: TypeError: .*{reason}"
    ) as caught:
        open_sides(f"{torch_nets}:cached", f"{torch_nets}:{port}")
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_sides_that_were_filled_one_after_the_other_are_refused(nets: str) -> None:
    one, two = checkpoints(nets, 2.0)
    cached, wraps = f"{nets}:cached", f"{nets}:wraps"
    for sides in ((cached, one), (cached, two)), ((cached, one), (cached, None)), ((cached, one), (wraps, None)):
        opened = [open_side(*side) for side in sides]
        with pytest.raises(SharedModelError, match="one after the other"):
            align.compare_forward(*opened, inputs=X)
    both = open_side(f"{nets}:fresh", one), open_side(f"{nets}:fresh", two)
    assert align.compare_forward(*both, inputs=X).verdict.outcome is Outcome.NOT_ALIGNED


def test_a_network_compiled_and_as_it_is_are_two_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = _written(tmp_path, monkeypatch, MINDSPORE)
    compiled = SideRequest(f"{nets}:cached", mode="graph")
    first, second = open_sides(f"{nets}:cached", compiled)
    assert (first.compiled, second.compiled) == (False, True)
    assert first.model is not second.model
    with pytest.raises(SharedModelError):
        open_sides(f"{nets}:cached", SideRequest(f"{nets}:cached", mode="pynative"))


def test_memory_that_overlaps_is_shared_whatever_lies_around_it() -> None:
    base, other = np.zeros(1000), np.zeros(1000)
    held = {"a": array_memory(base[:10]), "b": array_memory(other)}
    for array, shared in ((base[500:], True), (other[3:4].reshape(1, 1), True), (base.copy(), False), (base[:0], True)):
        assert bool(shared_tensors(held, {"x": array_memory(array)})) == shared
    assert shared_tensors(held, {}) == shared_tensors({}, held) == []


def test_a_tensor_that_was_filled_scaled_or_cast_has_changed() -> None:
    array = np.random.default_rng(0).standard_normal((3, CHECKSUM_ELEMENTS))
    before = {"w": array_memory(array)}
    assert changed_tensors(before, {"renamed": array_memory(array)}) == []
    assert changed_tensors(before, {"w": array_memory(array * 2)}) == ["w"]
    assert changed_tensors(before, {"w": array_memory(array.astype(np.float32))}) == ["w"]
    assert changed_tensors(before, {}) == ["w"]
