"""Each flow of a loss scale, sound and with planted faults: what is skipped is told apart from what is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.errors import UsageError
from align.report.show_result import print_result
from align.runs.run_folder import as_document

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((16, 8)).astype(np.float32)
Y = GENERATOR.integers(0, 3, 16)


def torch_model(kind: str = "sound") -> Any:
    """`half` computes a layer in float16; `root` has a gradient of infinity; `loses` returns infinities."""
    import torch
    from torch import nn

    class Half(nn.Linear):
        def forward(self, x: Any) -> Any:
            weight = self.weight.half()
            return (x.half() @ weight.T + self.bias.half()).float()

    class Root(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + (x * 0).abs().sqrt()

    class Loses(nn.Module):
        def forward(self, x: Any) -> Any:
            return x / (x * 0)

    torch.manual_seed(0)
    middle = {"sound": nn.ReLU, "root": Root, "loses": Loses}.get(kind, nn.ReLU)()
    last = Half(16, 3) if kind == "half" else nn.Linear(16, 3)
    return nn.Sequential(nn.Linear(8, 16), middle, last)


def train_torch(kind: str, scale: float | None, steps: int = 12) -> Any:
    import torch

    model = torch_model(kind)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=2000)
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    with align.watch_loss_scale(model, scaler) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            if scaler is None:
                (loss * 2.0**30 if kind == "half" else loss).backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            watch.step(loss)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return watch.result()


@pytest.mark.frameworks
def test_a_scale_of_torch_that_comes_down_is_no_divergence() -> None:
    sound = train_torch("half", 2.0**10)
    assert (sound.trouble, sound.overflows, sound.skipped, sound.place) == ("none", 0, 0, None)
    falls = train_torch("half", 2.0**28)
    assert falls.trouble == "settling"
    assert 0 < falls.skipped == falls.overflows < 12
    assert falls.steps[-1].scale < 2.0**28
    assert falls.place.layer is None
    assert {*falls.place.parameters} in ({"2.weight"}, {"2.bias"}, {"2.weight", "2.bias"})
    assert "not a divergence" in falls.says


@pytest.mark.frameworks
def test_an_overflow_that_stays_is_named_with_its_layer_and_apart_from_a_lost_loss() -> None:
    high = train_torch("half", 2.0**60, steps=8)
    assert (high.trouble, high.skipped) == ("persistent", 8)
    assert high.place.iteration == 7
    assert "keep that layer in float32" in high.says
    floor = train_torch("root", 4.0)
    assert floor.trouble == "persistent"
    assert "itself is not finite" in floor.says
    assert (floor.place.layer, floor.place.before) == ("0", "1")
    lost = train_torch("loses", 4.0)
    assert (lost.trouble, lost.place.layer, lost.place.direction) == ("diverged", "1", "forward")
    assert "no loss scale helps" in lost.says


@pytest.mark.frameworks
def test_without_a_scaler_what_overflows_goes_into_the_weights() -> None:
    sound = train_torch("sound", None)
    assert (sound.trouble, sound.flow) == ("none", "unscaled")
    applied = train_torch("half", None, steps=3)
    assert applied.trouble == "applied"
    assert applied.steps[0].overflow
    assert applied.steps[0].updated


@pytest.mark.frameworks
def test_a_loss_in_half_precision_is_named_and_one_in_float32_is_not() -> None:
    import torch

    for half in (True, False):
        model = torch_model()
        model, x = (model.half(), torch.from_numpy(X).half()) if half else (model, torch.from_numpy(X))
        with align.watch_loss_scale(model) as watch:
            watch.step(torch.nn.functional.cross_entropy(model(x), torch.from_numpy(Y)))
        assert [one.code for one in watch.result().findings] == (["loss-in-half"] if half else [])


@pytest.mark.frameworks
def test_what_is_no_scaler_is_refused() -> None:
    with pytest.raises(UsageError, match="an object of type int is no loss scale of torch"):
        align.watch_loss_scale(torch_model(), 3)


def network(*, half: bool, own_loss: bool = False) -> Any:
    import mindspore
    from mindspore import nn

    class WithLoss(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.loss = nn.Dense(8, 3), nn.CrossEntropyLoss()

        def construct(self, x: Any, y: Any) -> Any:
            return self.loss(self.net(x), y)

    class Body(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act, self.last = nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 3)
            if half:
                self.first.to_float(mindspore.float16)

        def construct(self, x: Any) -> Any:
            return self.last(self.act(self.first(x)).astype(mindspore.float32))

    mindspore.set_seed(0)
    return WithLoss() if own_loss else Body()


def data(steps: int) -> Any:
    from mindspore import dataset

    columns = np.tile(X, (steps, 1)), np.tile(Y.astype(np.int32), steps)
    return dataset.NumpySlicesDataset(columns, ["x", "y"], shuffle=False).batch(len(X))


def train_fixed(scale: float, *, own: float | None = None, half: bool = True) -> Any:
    """`Model.train` with a fixed scale that drops nothing; the optimizer divides by `own`."""
    from mindspore import nn
    from mindspore.amp import FixedLossScaleManager
    from mindspore.train import Model

    net, manager = network(half=half), FixedLossScaleManager(scale, drop_overflow_update=False)
    optimizer = nn.SGD(net.trainable_params(), 0.05, loss_scale=scale if own is None else own)
    model = Model(net, nn.CrossEntropyLoss(), optimizer, loss_scale_manager=manager)
    watch = align.watch_loss_scale(net, manager)
    model.train(1, data(4), callbacks=[watch.callback()], dataset_sink_mode=False)
    return watch.result()


@pytest.mark.frameworks
def test_a_fixed_scale_that_drops_nothing_lets_an_overflow_into_the_weights() -> None:
    sound = train_fixed(1024.0)
    assert (sound.trouble, sound.findings, len(sound.steps)) == ("none", (), 4)
    assert all(one.updated for one in sound.steps)
    other = train_fixed(1024.0, own=1.0, half=False)
    assert [one.code for one in other.findings] == ["optimizer-loss-scale"]
    assert "optimizer(loss_scale=1024)" in other.findings[0].message
    applied = train_fixed(2.0**30)
    assert applied.trouble == "applied"
    assert applied.steps[0].overflow
    assert "drop_overflow_update=True" in applied.says
    assert applied.place.iteration == 0


@pytest.mark.frameworks
def test_the_cell_with_a_loss_scale_runs_on_the_processor_and_its_scale_comes_down() -> None:
    import mindspore
    from mindspore import nn
    from mindspore.amp import DynamicLossScaleManager

    for scale, trouble in ((1024, "none"), (2**28, "settling"), (2**60, "persistent")):
        net = network(half=True)
        manager = DynamicLossScaleManager(scale, 2, 1000)
        with_loss = nn.WithLossCell(net, nn.CrossEntropyLoss())
        optimizer = nn.SGD(net.trainable_params(), 0.05)
        cell = nn.TrainOneStepWithLossScaleCell(with_loss, optimizer, manager.get_update_cell()).set_train()
        with align.watch_loss_scale(net, cell) as watch:
            for _ in range(16 if trouble == "settling" else 6):
                watch.step(cell(mindspore.Tensor(X), mindspore.Tensor(Y.astype(np.int32))))
        found = watch.result()
        assert found.trouble == trouble, found.says
        assert (found.overflows == found.skipped) == (trouble != "applied")
        assert found.faked == "ascend_910b_target, enable_allfinite"
        assert not cell.ascend_910b_target


@pytest.mark.frameworks
def test_a_functional_training_that_asks_all_finite_is_followed() -> None:
    import mindspore
    from mindspore import amp, nn

    x, y = mindspore.Tensor(X), mindspore.Tensor(Y.astype(np.int32))
    for scale, trouble in ((1024, "none"), (2**28, "settling")):
        net, scaler = network(half=True), amp.DynamicLossScaler(scale, 2, 1000)
        optimizer, loss = nn.SGD(net.trainable_params(), 0.05), nn.CrossEntropyLoss()
        step = mindspore.value_and_grad(
            lambda net=net, loss=loss, scaler=scaler: scaler.scale(loss(net(x), y)), None, net.trainable_params()
        )
        with align.watch_loss_scale(net, scaler) as watch:
            for _ in range(14):
                scaled, gradients = step()
                gradients = scaler.unscale(gradients)
                finite = amp.all_finite(gradients)
                if finite:
                    optimizer(gradients)
                scaler.adjust(finite)
                watch.step(scaled)
        assert watch.result().trouble == trouble, watch.result().says


@pytest.mark.frameworks
def test_a_loss_that_model_is_given_no_function_for_is_computed_in_float16() -> None:
    from mindspore import nn
    from mindspore.amp import FixedLossScaleManager
    from mindspore.train import Model

    for level, rules in (("O3", ["loss-in-half"]), ("O0", [])):
        net, manager = network(half=False, own_loss=True), FixedLossScaleManager(8.0, drop_overflow_update=False)
        optimizer = nn.SGD(net.trainable_params(), 0.05, loss_scale=8.0)
        model = Model(net, optimizer=optimizer, amp_level=level, loss_scale_manager=manager)
        watch = align.watch_loss_scale(net, manager)
        model.train(1, data(2), callbacks=[watch.callback()], dataset_sink_mode=False)
        found = watch.result()
        assert [one.code for one in found.findings] == rules
        assert all("Give loss_fn to Model" in one.message for one in found.findings)


@pytest.mark.frameworks
def test_what_was_watched_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(as_document(train_torch("half", 2.0**60, steps=6), {}))
    printed = capsys.readouterr().out
    assert "persistent" not in printed
    assert "the last 6 iterations overflowed and were skipped" in printed
