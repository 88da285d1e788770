"""What one training step does to each parameter, in both frameworks: every reason planted, and clean twins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.errors import CannotRunError, InputsError, SideError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

FRAMEWORKS = ("torch", "mindspore")
NONE = {"torch": "no gradient", "mindspore": "zero gradient"}


def batch() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {"x": generator.standard_normal((8, 4)).astype(np.float32), "label": np.arange(8) % 2}


def torch_net(*, faulty: bool) -> Any:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)
            self.scale = nn.Parameter(torch.ones(6))
            if faulty:
                self.idle, self.aside, self.cut = nn.Linear(2, 2), nn.Linear(6, 2), nn.Linear(4, 6)
                self.fixed = nn.Linear(6, 6).requires_grad_(requires_grad=False)

        def forward(self, x: Any) -> Any:
            hidden = self.norm(self.a(x)) * self.scale
            if faulty:
                self.aside(hidden)
                hidden = self.fixed(hidden + torch.from_numpy(self.cut(x).detach().numpy()))
            return self.b(hidden)

    torch.manual_seed(0)
    return Net()


def mindspore_net(*, faulty: bool) -> Any:
    import mindspore
    from mindspore import nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.norm, self.b = nn.Dense(4, 6), nn.BatchNorm1d(6), nn.Dense(6, 2)
            self.scale = mindspore.Parameter(mindspore.ops.ones(6), name="scale")
            if faulty:
                self.idle, self.aside, self.cut = nn.Dense(2, 2), nn.Dense(6, 2), nn.Dense(4, 6)
                self.fixed = nn.Dense(6, 6)
                for one in self.fixed.get_parameters():
                    one.requires_grad = False

        def construct(self, x: Any) -> Any:
            hidden = self.norm(self.a(x)) * self.scale
            if faulty:
                self.aside(hidden)
                hidden = self.fixed(hidden + mindspore.Tensor(self.cut(x).asnumpy()))
            return self.b(hidden)

    mindspore.set_seed(0)
    return Net()


def training(framework: str, *, faulty: bool = False, rate: float = 0.01, decay: float = 0.0) -> align.Training:
    """A net with cross-entropy and SGD; a `faulty` one has parameters that the step does not train."""
    if framework == "torch":
        import torch

        model = torch_net(faulty=faulty)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, weight_decay=decay)
        return align.Training(model, torch.nn.CrossEntropyLoss(), optimizer)
    from mindspore import nn

    model = mindspore_net(faulty=faulty)
    return align.Training(model, nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), rate, weight_decay=decay))


def states(result: Any) -> dict[str, tuple[str, str]]:
    return {one.name: (one.state, one.reason) for one in result.sides[0].parameters}


def values(given: align.Training) -> dict[str, bytes]:
    if hasattr(given.model, "state_dict"):
        return {name: one.numpy().tobytes() for name, one in given.model.state_dict().items()}
    tensors = (*given.model.get_parameters(), *given.optimizer.get_parameters())
    return {one.name: one.asnumpy().tobytes() for one in tensors}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_parameter_that_is_not_trained_has_its_reason(framework: str) -> None:
    given = training(framework, faulty=True)
    before = values(given)
    result = align.check_parameters(given, batch=batch())
    found = states(result)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert {name: found[f"{name}.weight"][0] for name in ("idle", "aside", "cut", "fixed")} == {
        "idle": NONE[framework], "aside": NONE[framework], "cut": NONE[framework], "fixed": "frozen",
    }  # fmt: skip
    assert "never called" in found["idle.weight"][1]
    assert "is called, but the result is not used" in found["aside.weight"][1]
    assert "cut" in found["cut.weight"][1]
    assert {found[name][0] for name in ("a.weight", "b.weight", "b.bias", "scale")} == {"trained"}
    assert sum(one.moved > 0.0 for one in result.sides[0].buffers) >= 2
    assert values(given) == before


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_clean_side_is_trained_whole(framework: str) -> None:
    """The bias in front of the normalisation has no influence, and is nobody's fault, moved by rounding or not."""
    result = align.check_parameters(training(framework), batch=batch())
    found = states(result)
    assert found.pop("a.bias")[0] in ("without influence", "trained")
    assert {state for state, _ in found.values()} == {"trained"}
    assert result.verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_dropout_does_not_stand_for_an_influence(framework: str) -> None:
    """Each try draws the same masks: a loss that changes, changes because of the parameter."""

    def dropping(plain: Any, layers: Any) -> Any:
        plain.b, plain.spare = layers
        return plain

    if framework == "torch":
        from torch import nn, optim

        model = dropping(torch_net(faulty=False), (nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 2)), nn.Linear(2, 2)))
        given = align.Training(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))
    else:
        from mindspore import nn

        layers = nn.SequentialCell(nn.Dropout(p=0.5), nn.Dense(6, 2)), nn.Dense(2, 2)
        model = dropping(mindspore_net(faulty=False), layers)
        given = align.Training(model, nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), 0.1))
    found = states(align.check_parameters(given, batch=batch()))
    assert found["spare.weight"] == (NONE[framework], "its module is never called")


def test_two_sides_that_train_the_same_agree_and_a_cut_on_one_side_is_named() -> None:
    both = align.check_parameters(training("torch", faulty=True), training("mindspore", faulty=True), batch=batch())
    assert (both.verdict.outcome, both.unlike) == (Outcome.ALIGNED, ())
    port = training("mindspore")
    port.model.b.weight.requires_grad = False
    result = align.check_parameters(training("torch"), port, batch=batch())
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    (pair,) = result.unlike
    assert (pair.candidate, pair.reference_state, pair.candidate_state) == ("b.weight", "trained", "frozen")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_weight_decay_moves_what_has_no_gradient(framework: str) -> None:
    """MindSpore's optimizers decay what is never called; torch's leave alone what has no gradient."""
    found = states(align.check_parameters(training(framework, faulty=True, decay=0.1), batch=batch()))
    expected = "no gradient" if framework == "torch" else "moved without a gradient"
    assert found["idle.weight"][0] == expected


def torch_step(how: str) -> align.Training:
    import torch

    given = training("torch")
    model, optimizer, loss = given.model, given.optimizer, given.loss
    own = [*model.parameters()]
    others = [one for one in own if one is not model.b.weight]
    if how == "no optimizer":
        return align.Training(model, loss)
    if how == "left out":
        return align.Training(model, loss, torch.optim.SGD(others, lr=0.01))
    if how == "rate 0":
        groups = [
            {"params": [model.b.weight], "lr": 0.0},
            {"params": others},
        ]
        return align.Training(model, loss, torch.optim.SGD(groups, lr=0.01))
    if how == "below":
        return align.Training(model, loss, torch.optim.SGD(own, lr=1e-12))

    def never_updates(given: Any) -> Any:
        value = loss(model(given["x"]), given["label"])
        value.backward()
        return value

    return align.Training(model, loss, optimizer, never_updates)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("no optimizer", "no optimizer is given"),
        ("left out", "in no group"),
        ("rate 0", "rate of its group is 0"),
        ("below", "less than half a unit"),
        ("step", "never called an optimizer"),
    ],
)
def test_a_parameter_with_a_gradient_that_stays_has_its_reason(how: str, told: str) -> None:
    state, reason = states(align.check_parameters(torch_step(how), batch=batch()))["b.weight"]
    assert state == "did not move"
    assert told in reason


def test_an_optimizer_that_changes_nothing_at_all_is_told() -> None:
    """mint.optim in eager PYNATIVE on a CPU."""
    import mindspore

    given = training("mindspore")
    optimizer = mindspore.mint.optim.SGD(given.model.trainable_params(), lr=0.1)
    found = states(align.check_parameters(align.Training(given.model, given.loss, optimizer), batch=batch()))
    assert found["b.weight"][0] == "did not move"
    assert "changed nothing at all" in found["b.weight"][1]


def test_a_gradient_that_float16_does_not_hold_is_told_from_a_cut_one() -> None:
    import torch

    def half(factor: float) -> align.Training:
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)).half()
        return align.Training(
            model, lambda out, _: (out.float() * factor).mean(), torch.optim.SGD(model.parameters(), lr=1.0)
        )

    lost = states(align.check_parameters(half(1e-7), batch=batch()))["0.weight"]
    assert lost[0] == "zero gradient"
    assert "too small for its precision" in lost[1]
    assert states(align.check_parameters(half(1.0), batch=batch()))["0.weight"][0] == "trained"


def own_steps() -> dict[str, Callable[[], align.Training]]:
    def accumulating() -> align.Training:
        given = training("torch")

        def step(one: Any) -> Any:
            given.optimizer.zero_grad()
            for half in (slice(0, 4), slice(4, 8)):
                value = given.loss(given.model(one["x"][half]), one["label"][half]) / 2
                value.backward()
            given.optimizer.step()
            given.optimizer.zero_grad()
            return value

        return align.Training(given.model, given.loss, given.optimizer, step)

    def one_step_cell() -> align.Training:
        from mindspore import nn

        given = training("mindspore")
        cell = nn.TrainOneStepCell(nn.WithLossCell(given.model, given.loss), given.optimizer)
        return align.Training(
            given.model, given.loss, given.optimizer, lambda one: cell(one["x"], one["label"].astype("int32"))
        )

    def its_own_loss() -> align.Training:
        import torch

        class WithLoss(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net, self.loss = torch_net(faulty=False), torch.nn.CrossEntropyLoss()

            def forward(self, x: Any, label: Any) -> Any:
                return self.loss(self.net(x), label)

        model = WithLoss()
        return align.Training(model, optimizer=torch.optim.Adam(model.parameters()))

    def wrapped() -> align.Training:
        import torch

        given = training("torch")
        return align.Training(torch.nn.DataParallel(given.model), given.loss, given.optimizer)

    return {one.__name__: one for one in (accumulating, one_step_cell, its_own_loss, wrapped)}


@pytest.mark.parametrize("how", sorted(own_steps()))
def test_steps_of_the_users_own_and_wrapped_models_are_seen(how: str) -> None:
    result = align.check_parameters(own_steps()[how](), batch=batch())
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.sides[0].loss is not None
    assert result.sides[0].updates == 1


def test_a_parameter_in_two_optimizers_is_a_finding() -> None:
    import torch

    given = training("torch")
    again = torch.optim.SGD([given.model.b.weight], lr=0.01)
    result = align.check_parameters(align.Training(given.model, given.loss, [given.optimizer, again]), batch=batch())
    assert [one.code for one in result.findings] == ["parameter-in-two-groups"]
    assert align.check_parameters(given, batch=batch()).findings == ()


def test_numbers_of_distributed_data_parallel_are_named() -> None:
    given = training("torch", faulty=True)
    names = [name for name, one in given.model.named_parameters() if one.requires_grad]
    result = align.check_parameters(given, batch=batch(), ddp_indices=[2, 9])
    assert [one.name for one in result.asked] == [names[2], names[9]]
    with pytest.raises(UsageError, match="no parameter 99"):
        align.check_parameters(given, batch=batch(), ddp_indices=[99])


def test_what_cannot_be_checked_ends_in_one_message() -> None:
    import torch

    given = training("torch")
    for one in given.model.parameters():
        one.requires_grad = False
    with pytest.raises(CannotRunError, match="no trainable parameter"):
        align.check_parameters(given, batch=batch())
    given = training("torch")
    unreduced = align.Training(given.model, torch.nn.CrossEntropyLoss(reduction="none"), given.optimizer)
    with pytest.raises(CannotRunError, match="no single number") as raised:
        align.check_parameters(unreduced, batch=batch())
    assert "reduction" in raised.value.hint
    with pytest.raises(InputsError, match="no labels for the loss"):
        align.check_parameters(given, batch={"x": batch()["x"]})
    with pytest.raises(SideError, match="its optimizer is of type Linear"):
        align.check_parameters(align.Training(given.model, given.loss, torch.nn.Linear(1, 1)), batch=batch())


@pytest.mark.parametrize("form", ["alone", "first", "named", "attribute"])
def test_a_model_may_return_its_own_loss(form: str) -> None:
    import types

    import torch

    class WithLoss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch_net(faulty=False)

        def forward(self, x: Any, label: Any) -> Any:
            logits = self.net(x)
            loss = torch.nn.functional.cross_entropy(logits, label)
            forms = {"alone": loss, "first": (loss, logits), "named": {"loss": loss, "logits": logits}}
            return forms.get(form, types.SimpleNamespace(loss=loss, logits=logits))

    model = WithLoss()
    given = align.Training(model, None, torch.optim.SGD(model.parameters(), 0.1))
    result = align.check_parameters(given, batch=batch())
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.sides[0].loss is not None


def test_a_model_that_returns_no_loss_is_told() -> None:
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch_net(faulty=False)

        def forward(self, x: Any) -> Any:
            return {"logits": self.net(x), "loss": None}

    model = Logits()
    with pytest.raises(CannotRunError, match="returns no loss"):
        align.check_parameters(
            align.Training(model, None, torch.optim.SGD(model.parameters(), 0.1)), batch={"x": batch()["x"]}
        )
