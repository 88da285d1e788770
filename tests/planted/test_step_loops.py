"""Loops as people write them: scales of the loss, parts of a batch, rates set by hand, and no false word on any."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import SideError

if TYPE_CHECKING:
    from align.training.step_result import StepComparison

torch = pytest.importorskip("torch")
mindspore = pytest.importorskip("mindspore")
nn, ops = mindspore.nn, mindspore.ops

BATCH = {
    "x": np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32),
    "label": (np.arange(8) % 3).astype(np.int64),
}
CLASSES = 3
RIGHT: list[tuple[str, str]] = []


class Net(torch.nn.Module):
    def __init__(self, *, logarithms: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.spare, self.last = (
            torch.nn.Linear(6, 12),
            torch.nn.Linear(12, 12),
            torch.nn.Linear(12, CLASSES),
        )
        self.logarithms = logarithms

    def forward(self, x: Any) -> Any:
        y = self.last(torch.tanh(self.first(x)))
        return torch.log_softmax(y, 1) if self.logarithms else y


class Port(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.spare, self.last = nn.Dense(6, 12), nn.Dense(12, 12), nn.Dense(12, CLASSES)

    def construct(self, x: Any) -> Any:
        return self.last(ops.tanh(self.first(x)))


def reference(*, parts: int = 1, clip: float = 0.0, warm: bool = False, decay: float = 0.0) -> align.Training:
    """A loop over parts of a batch, with clipping, and with rates that the loop sets."""
    model, loss = Net(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, betas=(0.9, 0.95), weight_decay=decay)
    done = [0]

    def step(batch: dict[str, Any]) -> Any:
        done[0] += 1
        for group in optimizer.param_groups if warm else ():
            group["lr"] = 0.01 * done[0] / 4
        optimizer.zero_grad()
        total = 0.0
        for x, label in zip(batch["x"].chunk(parts), batch["label"].chunk(parts), strict=True):
            value = loss(model(x), label) / parts
            value.backward()
            total += value.detach()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return total

    return align.Training(model, loss, optimizer, step)


def port(  # noqa: C901 - one loop with all that may be otherwise in it
    fault: str = "", *, parts: int = 1, scale: float = 1.0, clip: float = 0.0, warm: bool = False, decay: float = 0.0
) -> align.Training:
    """The same in MindSpore: the loss is scaled, and gradients are divided by the scale and the number of parts."""
    import mindspore.experimental.optim as optim

    model, weights = Port(), None
    loss = nn.CrossEntropyLoss(reduction="sum" if fault == "summed" else "mean")
    if fault == "frozen":
        for one in model.last.get_parameters():
            one.requires_grad = False
    weights = [one for one in model.trainable_params() if fault != "left out" or not one.name.startswith("last")]
    beta = 0.999 if fault == "beta" else 0.95
    optimizer = optim.AdamW(weights, 0.01, betas=(0.9, beta), weight_decay=decay)
    done, kept = [0], []

    def scaled(x: Any, label: Any) -> Any:
        label = ops.concat((label[-1:], label[:-1])) if fault == "other labels" else label
        return loss(model(x), label) * scale

    grad = mindspore.value_and_grad(scaled, None, mindspore.ParameterTuple(weights))

    def step(batch: dict[str, Any]) -> Any:
        done[0] += 1
        for group in optimizer.param_groups if warm else ():
            ops.assign(group["lr"], mindspore.Tensor(0.01 * done[0] / 4, mindspore.float32))
        if fault != "not cleared":
            kept.clear()
        total = 0.0
        for x, label in zip(ops.chunk(batch["x"], parts), ops.chunk(batch["label"], parts), strict=True):
            value, gradients = grad(x, label)
            total += value / scale / parts
            kept[:] = [one + two for one, two in zip(kept, gradients, strict=True)] if kept else list(gradients)
            if fault == "last part":
                kept[:] = gradients
        given = [one if fault == "scale kept" else one / (scale * parts) for one in kept]
        if fault == "one halved":
            given = [one * (0.5 if own.name == "last.weight" else 1.0) for one, own in zip(given, weights, strict=True)]
        if clip:
            given = ops.clip_by_global_norm(given, clip)
        optimizer(tuple(given))
        return total

    return align.Training(model, loss, optimizer, step)


def compared(mine: align.Training, theirs: align.Training) -> StepComparison:
    return align.compare_training_step(mine, theirs, batch=BATCH)


def told(result: StepComparison) -> list[tuple[str, str]]:
    return [(one.part, one.cause) for one in result.culprits]


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({}, {"scale": 1024.0}),
        ({"parts": 2}, {"parts": 2}),
        ({"parts": 2}, {"scale": 4096.0}),
        ({"clip": 0.1, "parts": 2}, {"clip": 0.1, "parts": 2, "scale": 512.0}),
        ({"warm": True}, {"warm": True, "scale": 100.0}),
    ],
)
def test_loops_that_train_the_same_are_no_fault(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    result = compared(reference(**mine), port(**theirs))
    assert (told(result), result.verdict.exit_code) == (RIGHT, 0)


@pytest.mark.parametrize(
    ("fault", "how", "expected"),
    [
        ("not cleared", {"scale": 1024.0}, ("step", "gradients-not-cleared")),
        ("not cleared", {"parts": 2}, ("step", "gradients-not-cleared")),
        ("not cleared", {"parts": 2, "clip": 0.1, "scale": 64.0}, ("step", "gradients-not-cleared")),
        ("summed", {"scale": 1024.0}, ("loss", "mean-against-sum")),
        ("summed", {}, ("loss", "mean-against-sum")),
        ("other labels", {"scale": 256.0}, ("loss", "labels-shifted")),
        ("one halved", {"scale": 1024.0}, ("step", "gradient-factor")),
        ("last part", {"scale": 1024.0, "parts": 2}, ("step", "last-part-only")),
        ("scale kept", {"scale": 1024.0}, ("step", "loss-scale-kept")),
        ("frozen", {"scale": 128.0}, ("parameters", "frozen-in-candidate")),
        ("left out", {"scale": 128.0}, ("optimizer", "in-no-optimizer")),
        ("beta", {"warm": True}, ("optimizer", "beta2")),
    ],
)
def test_one_fault_is_one_place_with_its_cause_whatever_the_scale(
    fault: str, how: dict[str, Any], expected: tuple[str, str]
) -> None:
    own = {name: value for name, value in how.items() if name != "scale"}
    result = compared(reference(**own), port(fault, **how))
    named = [(one.part, cause) for one in result.culprits for cause in one.cause.split(" + ")]
    assert len(result.culprits) == 1
    assert expected in named
    assert result.verdict.exit_code == 1


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_a_layer_that_is_never_called_and_decays_in_the_port_alone_is_named(scale: float) -> None:
    (culprit,) = compared(reference(decay=0.1), port(scale=scale, decay=0.1)).culprits
    assert (culprit.part, culprit.cause) == ("optimizer", "moved-without-gradient")
    assert sorted(culprit.parameters) == ["spare.bias", "spare.weight"]
    assert culprit.facts == {"only in": "candidate"}


def test_logarithms_of_shares_and_logits_train_the_same_which_is_a_note() -> None:
    model = Net(logarithms=True)
    mine = align.Training(model, torch.nn.NLLLoss(), torch.optim.SGD(model.parameters(), 0.1))
    net = Port()
    theirs = align.Training(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
    result = compared(mine, theirs)
    assert (told(result), result.verdict.exit_code) == (RIGHT, 0)
    assert "computes-otherwise" in [one.code for one in result.findings]


def test_an_optimizer_that_is_called_twice_in_a_step_draws_nothing() -> None:
    model, loss = Net(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    net = Port()
    updates = nn.SGD(net.trainable_params(), 0.1)
    criterion = nn.CrossEntropyLoss()
    grad = mindspore.value_and_grad(lambda x, label: criterion(net(x), label), None, net.trainable_params())

    def once(batch: dict[str, Any]) -> Any:
        optimizer.zero_grad()
        value = loss(model(batch["x"]), batch["label"])
        value.backward()
        optimizer.step()
        return value

    def twice(batch: dict[str, Any]) -> Any:
        for part in (slice(4), slice(4, 8)):
            value, gradients = grad(batch["x"][part], batch["label"][part])
            updates(gradients)
        return value

    result = compared(align.Training(model, loss, optimizer, once), align.Training(net, criterion, updates, twice))
    assert result.verdict.exit_code == 1
    assert "updates-repeated" in [one.code for one in result.findings]


def test_a_number_beside_the_outputs_reaches_the_questions_about_cross_entropy() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.only = torch.nn.Linear(6, CLASSES)

        def forward(self, x: Any) -> Any:
            y = self.only(x)
            return y, (y * y).mean()

    class TwoPort(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.only = nn.Dense(6, CLASSES)

        def construct(self, x: Any) -> Any:
            y = self.only(x)
            return y, (y * y).mean()

    model, net = Two(), TwoPort()
    mine = align.Training(
        model,
        lambda out, label: torch.nn.functional.cross_entropy(out[0], label) + 0.1 * out[1],
        torch.optim.SGD(model.parameters(), 0.1),
    )

    def loss(out: Any, label: Any, *, moved: bool) -> Any:
        label = ops.concat((label[-1:], label[:-1])) if moved else label
        return ops.cross_entropy(out[0], label) + 0.1 * out[1]

    for moved in (False, True):
        theirs = align.Training(net, partial(loss, moved=moved), nn.SGD(net.trainable_params(), 0.1))
        assert told(compared(mine, theirs)) == ([("loss", "labels-shifted")] if moved else RIGHT)


class Normed(torch.nn.Module):
    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm = torch.nn.Linear(6, 12), torch.nn.LayerNorm(12, eps=eps)
        self.last, self.heat = torch.nn.Linear(12, CLASSES), torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Any) -> Any:
        return self.last(self.norm(torch.tanh(self.first(x)))) * self.heat


def loop(fault: str = "", *, parts: int = 1) -> align.Training:
    """A loop of torch with two optimizers; the faults are of the kinds that hide where both sides do the same."""
    model, loss = Normed(1e-3 if fault == "eps" else 1e-5), torch.nn.CrossEntropyLoss()
    body = [own for name, own in model.named_parameters() if not name.startswith("last")]
    optimizers = [torch.optim.SGD(body, 0.1), torch.optim.SGD(model.last.parameters(), 0.1)]

    def step(batch: dict[str, Any]) -> Any:
        for one in optimizers if fault != "not cleared" else ():
            one.zero_grad()
        total = 0.0
        for x, label in zip(batch["x"].chunk(parts), batch["label"].chunk(parts), strict=True):
            value = loss(model(x), label) * (2.0 if fault == "doubled" else 1.0) / parts
            value.backward()
            total += value.detach()
        for own in model.parameters() if fault == "decay" else ():
            own.grad.add_(own.detach(), alpha=1e-3)
        if fault == "heat":
            model.heat.grad.mul_(0.3)
        for one in optimizers[:1] if fault == "forgotten" else optimizers:
            one.step()
        return total

    return align.Training(model, loss, optimizers, step)


@pytest.mark.parametrize(
    ("fault", "parts", "expected"),
    [
        ("", 1, None),
        ("", 2, None),
        ("forgotten", 1, ("step", "no-gradient")),
        ("decay", 1, ("step", "decay-in-gradients")),
        ("eps", 1, ("layer", "layer-norm-epsilon")),
        ("not cleared", 2, ("step", "gradients-not-cleared")),
        ("doubled", 1, ("loss", "gradient-factor")),
        ("heat", 2, ("step", "gradient-factor")),
    ],
)
def test_what_hides_where_both_sides_do_the_same_is_found(
    fault: str, parts: int, expected: tuple[str, str] | None
) -> None:
    mine = loop(parts=parts if fault == "heat" else 1)
    assert told(compared(mine, loop(fault, parts=parts))) == ([expected] if expected else RIGHT)


class Descent:
    """An optimizer of one's own: plain code with momentum, of no framework's class."""

    def __init__(self, parameters: Any, rate: float, momentum: float = 0.9) -> None:
        self.parameters, self.rate, self.momentum = parameters, rate, momentum
        self.kept = [one * 0 for one in parameters]

    def update(self, gradients: Any) -> None:
        self.kept = [self.momentum * one + own for one, own in zip(self.kept, gradients, strict=True)]
        for one, change in zip(self.parameters, self.kept, strict=True):
            one.copy_(one - self.rate * change)


def by_own_code(rate: float, *, counts: bool = True, moves: bool = True, momentum: float = 0.9) -> align.Training:
    net, criterion = Port(), nn.CrossEntropyLoss()
    weights = mindspore.ParameterTuple(net.trainable_params())
    descent = Descent(weights, rate, momentum)
    grad = mindspore.value_and_grad(lambda x, label: criterion(net(x), label), None, weights)

    def step(batch: dict[str, Any]) -> Any:
        value, gradients = grad(batch["x"], batch["label"])
        if moves:
            descent.update(gradients if counts else [one * 0.5 for one in gradients[:1]] + [*gradients[1:]])
        return value

    return align.Training(net, criterion, descent, step)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, []),
        ({"rate": 0.2}, [("optimizer", "learning-rate")]),
        ({"counts": False}, [("optimizer", "learning-rate")]),
        ({"momentum": 0.95}, [("optimizer", "")]),
        ({"moves": False}, [("optimizer", "did-not-move")]),
    ],
)
def test_updates_by_code_of_ones_own_are_compared_by_what_they_change(
    how: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    model, loss = Net(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    mine = align.Training(model, loss, optimizer)
    result = compared(mine, by_own_code(**{"rate": 0.1, **how}))
    assert told(result) == expected
    assert all(one.sureness != "confirmed" for one in result.culprits)
    assert [one.code for one in result.findings if one.code == "own-updates"] == ["own-updates"]


def test_an_optimizer_of_ones_own_without_a_step_is_refused_with_what_to_return() -> None:
    net = Port()
    with pytest.raises(SideError) as error:
        compared(reference(), align.Training(net, nn.CrossEntropyLoss(), Descent(net.trainable_params(), 0.1)))
    assert "step" in (error.value.hint or "")


def test_a_decay_that_mindspore_leaves_out_by_names_says_so() -> None:
    class Scaled(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Dense(6, 12), nn.LayerNorm((12,), epsilon=1e-5)
            self.last = nn.Dense(12, CLASSES)

        def construct(self, x: Any) -> Any:
            return self.last(self.norm(self.first(x)))

    layers = torch.nn.Sequential()
    for name, layer in zip(
        Scaled().name_cells(), (torch.nn.Linear(6, 12), torch.nn.LayerNorm(12), Net().last), strict=True
    ):
        layers.add_module(name, layer)
    net = Scaled()
    mine = align.Training(
        layers, torch.nn.CrossEntropyLoss(), torch.optim.SGD(layers.parameters(), 0.1, weight_decay=0.05)
    )
    theirs = align.Training(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1, weight_decay=0.05))
    (culprit,) = align.compare_training_step(
        mine, theirs, batch={"input": BATCH["x"], "label": BATCH["label"]}
    ).culprits
    assert (culprit.cause, culprit.parameters) == ("weight-decay", ("norm.gamma", "norm.beta"))
    assert "beta or gamma" in culprit.change


@pytest.mark.parametrize(("rate", "expected"), [(0.1, []), (5.0, [("optimizer", "learning-rate")])])
def test_code_of_ones_own_on_both_sides_is_compared_too(rate: float, expected: list[tuple[str, str]]) -> None:
    model, loss = Net(), torch.nn.CrossEntropyLoss()
    kept = [torch.zeros_like(one) for one in model.parameters()]

    def step(batch: dict[str, Any]) -> Any:
        model.zero_grad()
        value = loss(model(batch["x"]), batch["label"])
        value.backward()
        with torch.no_grad():
            for one, velocity in zip(model.parameters(), kept, strict=True):
                if one.grad is not None:
                    velocity.mul_(0.9).add_(one.grad)
                    one.sub_(0.1 * velocity)
        return value

    assert told(compared(align.Training(model, loss, None, step), by_own_code(rate))) == expected


def test_an_optimizer_of_ones_own_beside_one_of_the_framework_is_refused() -> None:
    net = Port()
    weights = net.trainable_params()
    both = [nn.SGD(weights[:2], 0.1), Descent(weights[2:], 0.1)]
    with pytest.raises(SideError):
        compared(reference(), align.Training(net, nn.CrossEntropyLoss(), both, lambda _: None))
