"""What is no weight in a checkpoint: by name and by evidence."""

from __future__ import annotations

import numpy as np
import pytest

from align.checkpoints.names_in_file import COUNTER, STATE, training_state
from align.core.parameters import StoredTensor
from align.rules.training_rules import training_state_rules

WEIGHTS = {"conv.weight": (4, 3, 3, 3), "bn.gamma": (4,), "bn.moving_mean": (4,)}
NUMBERS = {"global_step": (1,), "learning_rate": (), "momentum": ()}


def under(prefix, shapes=WEIGHTS):
    return {f"{prefix}{name}": shape for name, shape in shapes.items()}


def state(shapes, framework="mindspore", integers=("global_step", "epoch_num", "step_num", "n_averaged", "steps")):
    def tensor(name, shape):
        dtype = "int32" if name.rpartition(".")[2] in integers else "float32"
        return StoredTensor(name, shape, dtype, lambda: np.zeros(shape, dtype))

    return training_state({n: tensor(n, shape) for n, shape in shapes.items()}, training_state_rules(), framework)


@pytest.mark.parametrize("head", ["", "net.", "net.optimizer."])
def test_state_and_the_numbers_beside_it_are_found(head) -> None:
    shapes = under(head, WEIGHTS | under("moments.") | NUMBERS)
    assert state(shapes) == dict.fromkeys(under(head, under("moments.") | NUMBERS), STATE)


def test_the_parameters_may_stand_outside_the_optimizer() -> None:
    beside = under("opt.", under("moments.") | NUMBERS)
    assert state(WEIGHTS | beside | {"scale_sense": ()}) == dict.fromkeys([*beside, "scale_sense"], STATE)


def test_a_single_state_needs_a_number_beside_it() -> None:
    shapes = {"weight": (4, 3), "moments.weight": (4, 3)}
    assert state(shapes) == {}
    assert list(state(shapes | {"global_step": (1,)})) == ["moments.weight", "global_step"]


@pytest.mark.parametrize(
    "own",
    [
        {"momentum": ()},
        {"moments": (4,)},
        {"moments.weight": (4,), "moments.bias": (4,)},
        {"fc.momentum": (), "fc.learning_rate": ()},
        {"momentum": (), "learning_rate": ()},
        {"linear.weight": (4, 3), "linear.bias": (4,)},
        {"prev.conv.weight": (4, 3, 3, 3), "prev.bn.gamma": (4,)},
        under("moments.", WEIGHTS | {"own": (4,)}),
        under("moments.", {"conv.weight": (4, 3), "bn.gamma": (5,)}),
    ],
)
def test_a_models_own_parameters_of_such_names_stay(own) -> None:
    assert state(WEIGHTS | own) == {}


def test_a_number_that_is_trained_itself_is_a_weight() -> None:
    weights = WEIGHTS | {"momentum": ()}
    found = state(weights | under("moment1.", weights) | under("moment2.", weights) | {"global_step": (1,)})
    assert "momentum" not in found
    assert len(found) == 2 * len(weights) + 1


def test_several_numbers_need_no_state_if_one_counts() -> None:
    assert list(state(WEIGHTS | {"epoch_num": (), "scale_sense": ()})) == ["epoch_num", "scale_sense"]
    assert state(WEIGHTS | {"scale_sense": ()}) == {}


@pytest.mark.parametrize("name", ["global_step", "epoch_num", "step_num", "epoch"])
def test_a_lone_count_is_an_integer_in_front_of_all_modules(name) -> None:
    for shape in ((), (1,)):
        assert state(WEIGHTS | {name: shape}, integers=(name,)) == {name: STATE}
        assert state(under("net.") | {name: shape}, integers=(name,)) == {name: STATE}
    for own in ({name: (3,)}, {f"net.{name}": ()}, {f"{name}.weight": ()}):
        assert state(WEIGHTS | own, integers=(name, "weight")) == {}
    assert state(WEIGHTS | {name: ()}, integers=()) == {}
    assert state(WEIGHTS | {name: ()}, "torch", integers=(name,)) == {}


def test_torch_has_no_optimizer_state_among_its_weights() -> None:
    assert state(WEIGHTS | under("moments.") | NUMBERS, "torch") == {}


@pytest.mark.parametrize("name", ["n_averaged", "steps"])
def test_a_count_of_averaged_models_is_found_beside_a_wrapped_model_only(name) -> None:
    assert state(under("module.") | {name: ()}, "torch") == {name: COUNTER}
    for shapes in (under("net.") | {name: ()}, under("module.") | {name: (1,)}, {name: ()}):
        assert state(shapes, "torch") == {}
    assert state(under("module.") | {name: ()}, "torch", integers=()) == {}


OPTIMIZERS = [
    *(f"nn.{name}(p, 0.1)" for name in ("SGD", "Adam", "LazyAdam", "AdamWeightDecay", "RMSProp", "Adagrad", "Lamb")),
    *(f"nn.{name}(p, 0.1)" for name in ("Adadelta", "AdaMax", "ASGD", "Rprop", "FTRL", "ProximalAdagrad")),
    "nn.Momentum(p, 0.1, 0.9)", "nn.Momentum(p, [0.1, 0.2], 0.9)", "nn.Momentum(p, nn.CosineDecayLR(0.0, 0.1, 9), 0.9)",
    "nn.Momentum([{'params': p[:2], 'lr': 0.1}, {'params': p[2:], 'lr': 0.2}], 0.1, 0.9)",
    "nn.LARS(nn.Momentum(p, 0.1, 0.9))", "nn.Adam(p, use_amsgrad=True)", "nn.RMSProp(p, centered=True)",
    "nn.AdaFactor(p, learning_rate=None)",
]  # fmt: skip
EXPERIMENTAL = [
    f"experimental.optim.{name}(p, lr=0.1)"
    for name in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "Adagrad", "Adadelta", "ASGD")
]


def saved(tmp_path, optimizer, scaled=False):
    """Names in the file that MindSpore saves of a training cell, and those of the net."""
    import mindspore
    from mindspore import nn

    from align.checkpoints.open_checkpoint import open_checkpoint

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.fc = nn.Conv2d(3, 4, 3, has_bias=True), nn.BatchNorm2d(4), nn.Dense(4, 2)

    class Training(nn.Cell):
        def __init__(self, net, optimizer):
            super().__init__(auto_prefix=False)
            self.net, self.optimizer = net, optimizer

    net = Net()
    names = {parameter.name for parameter in net.get_parameters()}
    made = eval(optimizer, {**vars(mindspore), "p": net.trainable_params()})
    training = Training(net, made)
    if scaled:
        loss = nn.WithLossCell(net, nn.MSELoss())
        training = nn.TrainOneStepWithLossScaleCell(loss, made, nn.DynamicLossScaleUpdateCell(1024, 2, 100))
    mindspore.save_checkpoint(training, str(tmp_path / "m.ckpt"))
    return open_checkpoint(tmp_path / "m.ckpt").tensors, names


@pytest.mark.frameworks
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, *EXPERIMENTAL])
def test_what_each_optimizer_of_mindspore_saves_is_told_from_the_weights(tmp_path, optimizer) -> None:
    tensors, names = saved(tmp_path, optimizer)
    found = training_state(tensors, training_state_rules(), "mindspore")
    assert found
    assert set(tensors) - set(found) == names


@pytest.mark.frameworks
def test_a_scaled_loss_leaves_only_its_numbers(tmp_path) -> None:
    tensors, names = saved(tmp_path, "nn.Adam(p)", scaled=True)
    assert set(tensors) - set(training_state(tensors, training_state_rules(), "mindspore")) == names
    assert {"scale_sense", "current_iterator_step", "last_overflow_iterator_step"} < set(tensors)
