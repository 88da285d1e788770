"""What training moved on two sides: each way to differ is planted and named, and clean twins are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.name_map import Dropped, NameMap, Pairing
from align.core.transforms import Permute
from align.core.verdicts import Outcome
from align.errors import MapError, MissingFileError, UsageError
from align.measure.thresholds import SHARED_BLOCK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Values = dict[str, np.ndarray[Any, Any]]


def drawn(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


BEFORE = {"body.weight": drawn(8, 6), "head.weight": drawn(4, 8, seed=1), "head.bias": drawn(32, seed=2)}
STEP = {name: drawn(*value.shape, seed=9 + place, scale=1e-2) for place, (name, value) in enumerate(BEFORE.items())}


def stepped(change: Callable[[str, Any, Any], Any] | None = None, before: Values = BEFORE) -> Values:
    """The values after a step; `change(name, values, update)` returns another update."""
    updates = {name: STEP[name] if change is None else change(name, before[name], STEP[name]) for name in before}
    return {name: (before[name] - updates[name]).astype(before[name].dtype) for name in before}


def updates_of(folder: Path, *four: Values, **options: Any) -> Any:
    paths = [folder / f"{name}.npz" for name in ("a0", "a1", "b0", "b1")]
    for path, values in zip(paths, four, strict=True):
        np.savez(path, **values)
    return align.diff_updates((paths[0], paths[1]), (paths[2], paths[3]), **options)


def planted(folder: Path, change: Callable[[str, Any, Any], Any]) -> Any:
    result = updates_of(folder, BEFORE, stepped(), BEFORE, stepped(change))
    return result, {one.reference: one for one in result.tensors}


def test_equal_updates_are_alike_and_rounding_of_the_values_is_none(tmp_path: Path) -> None:
    """Updates of which a unit of the values is a hundredth, rounded another way on each side."""
    large = {name: value + np.float32(1e4) for name, value in BEFORE.items()}
    other = {name: np.nextafter(value, np.inf, dtype=np.float32) for name, value in stepped(before=large).items()}
    result = updates_of(tmp_path, large, stepped(before=large), large, other)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert {one.outcome for one in result.tensors} == {"same"}
    assert all(one.relative > 0.05 and one.rounding > one.relative for one in result.tensors)


def test_the_same_difference_of_smaller_values_is_one(tmp_path: Path) -> None:
    result, found = planted(tmp_path, lambda name, _, update: update + drawn(*update.shape, seed=5, scale=1e-2))
    assert {one.outcome for one in found.values()} == {"updates differ"}
    assert [one.relative for one in result.tensors] == sorted((one.relative for one in result.tensors), reverse=True)


def test_one_factor_over_all_is_named_as_that(tmp_path: Path) -> None:
    result, found = planted(tmp_path, lambda name, _, update: update * np.float32(1.02))
    assert {one.outcome for one in found.values()} == {"one factor apart"}
    assert result.factor == pytest.approx(1.02, rel=1e-4)
    assert "1.02 times the reference's" in result.verdict.reason
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


def test_a_factor_of_all_is_named_beside_what_is_too_small_to_tell(tmp_path: Path) -> None:
    """A number alone may be off by as much from rounding: it does not speak against the others."""
    before = {**BEFORE, "scale": np.float32([1.0])}
    after = {**stepped(), "scale": np.float32([0.99])}
    twin = {**stepped(lambda name, _, update: update * np.float32(1.01)), "scale": np.float32([0.9899])}
    result = updates_of(tmp_path, before, after, before, twin)
    assert result.factor == pytest.approx(1.01, rel=1e-3)
    assert {one.reference: one.outcome for one in result.tensors}["scale"] == "same"


def test_a_factor_of_some_is_no_factor_of_all(tmp_path: Path) -> None:
    result, found = planted(tmp_path, lambda name, _, update: update * np.float32(-1 if "bias" in name else 1))
    assert result.factor is None
    assert found["head.bias"].factor == pytest.approx(-1)
    assert (found["head.bias"].outcome, found["head.weight"].outcome) == ("one factor apart", "same")
    assert result.tensors[0].reference == "head.bias"


def test_what_moves_on_one_side_only_is_named(tmp_path: Path) -> None:
    _, found = planted(tmp_path, lambda name, _, update: update * np.float32("head" not in name))
    assert found["head.weight"].outcome == found["head.bias"].outcome == "reference only"
    back = updates_of(tmp_path, BEFORE, stepped(lambda name, _, update: 0 * update), BEFORE, stepped())
    assert {one.outcome for one in back.tensors} == {"candidate only"}
    assert back.verdict.outcome is Outcome.NOT_ALIGNED


def test_a_decay_far_below_the_tolerance_is_found(tmp_path: Path) -> None:
    _, found = planted(tmp_path, lambda name, values, update: update + np.float32(2e-5) * values)
    assert {one.outcome for one in found.values()} == {"decay differs"}
    assert [one.decay for one in found.values()] == pytest.approx([2e-5] * 3, rel=0.02)
    assert all(one.relative < 0.01 for one in found.values())


def test_what_neither_side_moves_is_alike_and_nothing_at_all_is_not_compared(tmp_path: Path) -> None:
    half = updates_of(tmp_path, *[{**values, "still": np.ones(3)} for values in (BEFORE, stepped())] * 2)
    assert half.verdict.outcome is Outcome.ALIGNED
    assert half.tensors[-1].outcome == "neither moved"
    assert updates_of(tmp_path, *[BEFORE] * 4).verdict.outcome is Outcome.NOT_COMPARED


def test_not_finite_counters_and_half_precision(tmp_path: Path) -> None:
    before = {"w": drawn(40).astype(np.float16), "count": np.array(5), "bad": np.ones(3, np.float32)}
    step = {"w": before["w"] - drawn(40, seed=1, scale=3e-3).astype(np.float16), "count": np.array(6)}
    result = updates_of(
        tmp_path, before, {**step, "bad": np.zeros(3, np.float32)}, before, {
            "w": np.nextafter(step["w"], np.float16(np.inf)), "count": np.array(7), "bad": np.full(3, np.nan, "f4"),
        },
    )  # fmt: skip
    found = {one.reference: one for one in result.tensors}
    assert found["w"].outcome == "same"
    assert (found["count"].outcome, found["count"].factor) == ("one factor apart", 2.0)
    assert found["bad"].outcome == "not finite"
    assert "3 elements" in found["bad"].note


def test_transforms_of_the_map_are_applied_and_dropped_names_left_out(tmp_path: Path) -> None:
    size = SHARED_BLOCK // 100 + 7  # more than one block
    before, after = drawn(100, size), drawn(100, size, seed=1, scale=1e-2)
    ours = {"w": before, "count": np.array(1)}, {"w": before - after, "count": np.array(2)}
    theirs = {"weight": before.T}, {"weight": (before - after).T}
    pairing = Pairing("w", "weight", "user", 1.0, Permute((1, 0)))
    dropped = (Dropped("count", "source", "only torch counts"),)
    result = updates_of(tmp_path, *ours, *theirs, name_map=NameMap("a", "b", (pairing,), dropped))
    assert (result.verdict.outcome, result.dropped) == (Outcome.ALIGNED, {"count": "only torch counts"})
    result = updates_of(tmp_path, *ours, {"weight": before.T * 1}, {"weight": (before + after).T}, name_map=NameMap(
        "a", "b", (pairing,), dropped
    ))  # fmt: skip
    assert result.factor == pytest.approx(-1, rel=1e-3)


def test_another_start_is_warned_of(tmp_path: Path) -> None:
    moved = {name: value + np.float32(0.1) for name, value in BEFORE.items()}
    result = updates_of(tmp_path, BEFORE, stepped(), moved, stepped(before=moved))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert "3 tensors had other values before the step" in result.warnings[0]


@pytest.mark.parametrize(
    ("four", "told"),
    [
        ((BEFORE, {"body.weight": BEFORE["body.weight"]}, BEFORE, BEFORE), "head.weight, head.bias are missing aft"),
        ((BEFORE, BEFORE, {"body.weight": BEFORE["body.weight"]}, BEFORE), "are missing before"),
        ((BEFORE, {**BEFORE, "head.bias": np.ones(3)}, BEFORE, BEFORE), "other shapes in head.bias"),
        ((BEFORE, BEFORE, {"x": np.ones(3)}, {"x": np.ones(3)}), "4 names of"),
    ],
)
def test_files_that_do_not_go_together_are_refused(four: Any, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        updates_of(tmp_path, *four)
    assert told in str(caught.value)
    assert ("--map" in caught.value.hint) == ("names of" in told)


def test_a_missing_file_and_a_map_that_leads_nowhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        align.diff_updates((tmp_path / "gone.npz", tmp_path / "gone.npz"), (tmp_path / "a", tmp_path / "b"))
    with pytest.raises(MapError):
        updates_of(tmp_path, *[BEFORE] * 4, name_map=NameMap("a", "b", (Pairing("x", "y", "user", 1.0),)))


def train(
    folder: Path, optimizer: str, *, rate: float = 0.1, decay: float = 0.0, skip: str = "", steps: int = 1
) -> Any:
    """A torch net and its MindSpore port take the same steps; `rate`, `decay` and `skip` are the port's alone."""
    import mindspore
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = torch.nn.Conv1d(3, 16, 3, padding=1), torch.nn.BatchNorm1d(16)
            self.head = torch.nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            return self.head(torch.relu(self.norm(self.conv(x)[:, :, 0])))

    class Port(mindspore.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv = mindspore.nn.Conv1d(3, 16, 3, pad_mode="pad", padding=1, has_bias=True)
            self.norm, self.head = mindspore.nn.BatchNorm1d(16), mindspore.nn.Dense(16, 4)

        def construct(self, x: Any) -> Any:
            return self.head(mindspore.ops.relu(self.norm(self.conv(x)[:, :, 0])))

    torch.manual_seed(0)
    net, port = Net(), Port()
    torch.save(net.state_dict(), folder / "a0.pth")
    name_map = align.map_parameters(net, port).name_map
    align.convert_checkpoint(folder / "a0.pth", folder / "b0.ckpt", name_map=name_map, overwrite=True)
    mindspore.load_param_into_net(port, mindspore.load_checkpoint(str(folder / "b0.ckpt")))
    trained = [one for one in port.trainable_params() if not skip or skip not in one.name]
    kinds: Any = {
        "sgd": (torch.optim.SGD, mindspore.nn.SGD),
        "adam": (torch.optim.Adam, mindspore.nn.Adam),
    }
    ours = kinds[optimizer][0](net.parameters(), 0.1)
    theirs = kinds[optimizer][1](trained, rate, weight_decay=decay)
    cell = mindspore.nn.TrainOneStepCell(mindspore.nn.WithLossCell(port, mindspore.nn.CrossEntropyLoss()), theirs)
    port.set_train()
    x, label = drawn(16, 3, 6, seed=3), np.arange(16) % 4
    for _ in range(steps):
        ours.zero_grad()
        torch.nn.functional.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(label)).backward()
        ours.step()
        cell(mindspore.Tensor(x), mindspore.Tensor(label.astype(np.int32)))
    torch.save(net.state_dict(), folder / "a1.pth")
    mindspore.save_checkpoint(port, str(folder / "b1.ckpt"))
    files = [folder / name for name in ("a0.pth", "a1.pth", "b0.ckpt", "b1.ckpt")]
    result = align.diff_updates((files[0], files[1]), (files[2], files[3]), name_map=name_map)
    return result, {one.candidate: one for one in result.tensors}


@pytest.mark.frameworks
@pytest.mark.parametrize(("optimizer", "steps"), [("sgd", 1), ("adam", 1), ("adam", 3)])
def test_a_net_and_its_port_that_train_alike_are_aligned(optimizer: str, steps: int, tmp_path: Path) -> None:
    """The bias in front of the normalisation has a gradient of rounding, of which Adam makes whole steps."""
    result, found = train(tmp_path, optimizer, steps=steps)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert found["head.weight"].outcome == "same"
    assert found["conv.bias"].outcome == ("same" if optimizer == "sgd" else "without influence")


@pytest.mark.frameworks
def test_what_a_ports_optimizer_does_otherwise_is_named(tmp_path: Path) -> None:
    result, found = train(tmp_path, "sgd", rate=0.101)
    assert {found[name].outcome for name in ("conv.weight", "head.weight", "head.bias")} == {"one factor apart"}
    assert found["norm.moving_mean"].outcome == "same"
    assert found["head.weight"].factor == pytest.approx(1.01, rel=1e-3)
    result, found = train(tmp_path, "sgd", decay=1e-3)
    assert (found["conv.weight"].outcome, found["head.weight"].outcome) == ("decay differs", "decay differs")
    assert found["head.weight"].decay == pytest.approx(1e-4, rel=0.05)
    result, found = train(tmp_path, "adam", skip="head")
    assert (found["conv.weight"].outcome, found["head.weight"].outcome) == ("same", "reference only")
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
