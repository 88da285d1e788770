"""What a step takes of memory, held against counters that know nothing of the tool, and against counts by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import AlignError, CannotRunError

pytestmark = pytest.mark.frameworks
FLOAT = 4


def cnn() -> Any:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.1),
        nn.Flatten(),
        nn.Linear(2048, 10),
        nn.Softmax(-1),
    )


def transformer() -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(64, 4, 256, batch_first=True)
    return nn.Sequential(nn.Linear(16, 64), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))


CASES = {"cnn": (cnn, (8, 3, 32, 32), (8, 10)), "transformer": (transformer, (4, 64, 16), (4, 64, 64))}


def training(model: Any, optimizer: str = "AdamW", **settings: Any) -> Any:
    import torch

    return model, torch.nn.MSELoss(), getattr(torch.optim, optimizer)(model.parameters(), lr=0.01, **settings)


def batch(inputs: tuple[int, ...], targets: tuple[int, ...]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {"input": generator.standard_normal(inputs).astype(np.float32), "target": np.zeros(targets, np.float32)}


def measured(given: tuple[Any, ...], of_batch: dict[str, Any], **options: Any) -> Any:
    return align.measure_memory(align.Training(*given), batch=of_batch, **options)


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_that_of_the_allocator(name: str, peak_by_allocator: Any) -> None:
    import torch

    make, *shapes = CASES[name]
    model, loss, optimizer = given = training(make())
    side = measured(given, batch(*shapes)).sides[0]
    x, y = (torch.from_numpy(one) for one in batch(*shapes).values())

    def step() -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    model.train()
    step()
    optimizer.zero_grad()
    there = [*model.parameters(), *model.buffers(), x, y]
    there += [value for state in optimizer.state.values() for value in state.values()]
    counted = sum(one.untyped_storage().nbytes() for one in there) + peak_by_allocator(step)
    assert side.how == "measured"
    assert side.peak == pytest.approx(counted, rel=0.03)


@pytest.mark.parametrize("name", CASES)
def test_each_layer_keeps_what_the_graph_behind_it_holds(name: str, kept: Any) -> None:
    import torch

    make, *shapes = CASES[name]
    model, _, _ = given = training(make())
    side = measured(given, batch(*shapes)).sides[0]
    x = torch.from_numpy(batch(*shapes)["input"])
    left_out = [*model.parameters(), *model.buffers(), x]
    before = 0
    for path, _ in model.named_children():
        held = kept(model[: int(path) + 1](x), left_out)
        own = sum(row.activations for row in side.layers if row.path == path or row.path.startswith(f"{path}."))
        assert own == pytest.approx(held - before, rel=0.1, abs=0.002 * side.peak), path
        before = held


@pytest.mark.parametrize(
    ("optimizer", "settings", "copies"),
    [("SGD", {}, 0), ("SGD", {"momentum": 0.9}, 1), ("Adam", {}, 2), ("AdamW", {}, 2)],
)
def test_the_state_of_an_optimizer_is_counted(optimizer: str, settings: dict[str, Any], copies: int) -> None:
    from torch import nn

    side = measured(training(nn.Linear(32, 16), optimizer, **settings), batch((4, 32), (4, 16))).sides[0]
    row = next(one for one in side.layers if one.path == "")
    weights = FLOAT * (32 * 16 + 16)
    assert (row.weights, row.gradients) == (weights, weights)
    assert row.state == pytest.approx(copies * weights, abs=4 * FLOAT)


def test_a_module_that_is_called_twice_and_a_tied_weight_count_once(kept: Any) -> None:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 64, bias=False)
            self.second = nn.Linear(64, 64, bias=False)
            self.second.weight = self.first.weight

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.first(self.first(x)))
            return self.second(y.view(8, 2, 32).transpose(1, 2).transpose(1, 2).reshape(8, 64))

    model = Net()
    side = measured(training(model, "SGD"), batch((8, 64), (8, 64))).sides[0]
    assert sum(row.weights for row in side.layers) == FLOAT * 64 * 64
    assert sum(row.gradients for row in side.layers) == FLOAT * 64 * 64
    x, y = (torch.from_numpy(one) for one in batch((8, 64), (8, 64)).values())
    loss = torch.nn.functional.mse_loss(model(x), y)
    held = kept(loss, [model.first.weight, x, y]) + loss.untyped_storage().nbytes()
    assert sum(row.activations for row in side.layers) == pytest.approx(held, abs=64)


def test_autocast_keeps_halves(kept: Any) -> None:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return self.body(x).float()

    model = Net()
    side = measured(training(model), batch((512, 64), (512, 64))).sides[0]
    x = torch.from_numpy(batch((512, 64), (512, 64))["input"])
    assert sum(row.activations for row in side.layers if row.path) == pytest.approx(
        kept(model(x), [*model.parameters(), x]), rel=0.1
    )


def test_checkpointing_brings_what_was_foretold_and_the_largest_batch_is_the_largest() -> None:
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self, again: bool) -> None:
            super().__init__()
            self.again = again
            self.blocks = nn.ModuleList(
                nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64)) for _ in range(6)
            )

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = x + (checkpoint(block, x, use_reentrant=False) if self.again else block(x))
            return x

    limit = 15_000_000
    of_batch = batch((1024, 64), (1024, 64))
    side = measured(training(Net(False)), of_batch, fits=limit).sides[0]
    way = next(one for one in side.checkpointings if one.path == "blocks.#")
    assert way.count == 6
    really = measured(training(Net(True)), of_batch).sides[0]
    assert way.peak == pytest.approx(really.peak, rel=0.1)
    assert side.peak > 1.5 * really.peak
    size = side.fits.size
    assert size < side.fits.checkpointed_size
    for more, fits in ((-8, True), (8, False)):
        peak = measured(training(Net(False)), batch((size + more, 64), (size + more, 64))).sides[0].peak
        assert (peak <= limit) is fits
    assert torch.is_grad_enabled()


def test_a_model_on_the_meta_device_takes_what_it_would_take() -> None:
    import torch
    from torch import nn

    def model() -> Any:
        return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8))

    real = measured(training(model()), batch((32, 64), (32, 8)))
    with torch.device("meta"):
        by_shapes = measured(training(model()), batch((32, 64), (32, 8)))
    assert by_shapes.sides[0].how == "estimated"
    assert [one.code for one in by_shapes.findings] == ["by-shapes"]
    for mine, theirs in zip(real.sides[0].layers[1:], by_shapes.sides[0].layers[1:], strict=True):  # but for the loss
        assert (mine.path, mine.weights, mine.gradients, mine.activations) == (
            theirs.path,
            theirs.weights,
            theirs.gradients,
            theirs.activations,
        )


def port(width: int) -> Any:
    from mindspore import nn

    return nn.SequentialCell(nn.Dense(64, width), nn.ReLU(), nn.Dropout(p=0.1), nn.Dense(width, 8))


def test_a_port_is_estimated_from_what_its_operators_keep() -> None:
    from mindspore import nn

    net = port(256)
    given = net, nn.MSELoss(), nn.Adam(net.trainable_params())
    result = measured(given, batch((32, 64), (32, 8)))
    side = result.sides[0]
    weights = FLOAT * (64 * 256 + 256 + 256 * 8 + 8)
    assert (side.how, side.framework) == ("estimated", "mindspore")
    assert [one.code for one in result.findings if one.code == "estimated"] == ["estimated"]
    assert sum(row.weights for row in side.layers) == weights
    assert sum(row.state for row in side.layers) == pytest.approx(2 * weights, abs=64)
    rows = {row.path: row for row in side.layers}
    assert rows["1"].activations == FLOAT * 32 * 256  # what ReLU returned
    assert rows["2"].activations == FLOAT * 32 * 256  # the mask
    assert rows["3"].activations == FLOAT * 32 * 256  # what it was given
    assert "0" not in rows or rows["0"].activations == 0  # the batch, which is none of its own


def test_a_layer_of_the_port_that_keeps_more_is_named() -> None:
    import torch
    from torch import nn

    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Linear(64, 256), nn.Linear(256, 8)

        def forward(self, x: Any) -> Any:
            return self.head(torch.relu(self.stem(x)))

    class Saves(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x.exp().log().exp().log())

    other = Wasteful()
    other.head = Saves(256, 8)
    result = align.measure_memory(
        align.Training(*training(Wasteful())), align.Training(*training(other)), batch=batch((512, 64), (512, 8))
    )
    assert [one.subject for one in result.findings if one.code == "keeps-more"] == ["head"]
    assert result.verdict.outcome is Outcome.ALIGNED


def test_a_step_that_fails_and_a_batch_that_does_not_fit_end_in_one_message() -> None:
    from torch import nn

    with pytest.raises(AlignError):
        measured(training(nn.Linear(4, 2)), batch((8, 5), (8, 2)))

    def loss(output: Any, target: Any) -> Any:
        raise MemoryError

    model, _, optimizer = training(nn.Linear(4, 2))
    with pytest.raises(CannotRunError, match="there is no memory left"):
        measured((model, loss, optimizer), batch((8, 4), (8, 2)))


def test_a_batch_of_one_that_norms_refuse_is_doubled_and_no_size_at_all_is_said() -> None:
    from torch import nn

    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    scaling = measured(training(model), batch((2, 4), (2, 2))).sides[0].batch
    assert (scaling.size, scaling.other_size) == (2, 4)

    class Fixed(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x.view(8, 4))

    result = measured(training(Fixed(4, 2)), batch((8, 4), (8, 2)))
    assert result.sides[0].batch is None
    assert [one.code for one in result.findings if one.code == "one-batch-size"]
