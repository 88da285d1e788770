"""Nested batches, losses over several outputs and targets, and arrays that names or positions hand out: both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import InputsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.frameworks

FRAMEWORKS = ("torch", "mindspore")
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((6, 4)).astype(np.float32)
Y, Z = np.arange(6) % 3, RANDOM.standard_normal((6, 2)).astype(np.float32)
WEIGHT = RANDOM.random(6).astype(np.float32)


def detection() -> dict[str, Any]:
    """Two images of other sizes, with two boxes and with one."""
    images = [RANDOM.standard_normal((count, 4)).astype(np.float32) for count in (5, 3)]
    boxes = [RANDOM.standard_normal((count, 2)).astype(np.float32) for count in (2, 1)]
    labels = [np.array([0, 2]), np.array([1])]
    targets = [{"boxes": box, "labels": label, "size": "small"} for box, label in zip(boxes, labels, strict=True)]
    return {"images": images, "targets": targets}


DETECTION = detection()


class Maths:
    """What the models and losses below need, of one framework."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        if framework == "torch":
            import torch

            self.entropy, self.wide = torch.nn.functional.cross_entropy, torch.int64
        else:
            import mindspore

            self.entropy, self.wide = mindspore.ops.cross_entropy, mindspore.int32

    def side(self, forward: Callable[..., Any], loss: Any, step: Any = None, *, seed: int = 0) -> align.Training:
        """A model of two layers, `stem` and `head`, that calls `forward(self, ...)`."""
        if self.framework == "torch":
            import torch

            class Net(torch.nn.Module):
                def __init__(self) -> None:
                    super().__init__()
                    self.stem, self.head = torch.nn.Linear(4, 3), torch.nn.Linear(4, 2)

            Net.forward = forward
            torch.manual_seed(seed)
            model = Net()
            return align.Training(model, loss, torch.optim.SGD(model.parameters(), 0.1), step and step(model))
        from mindspore import nn

        class Cell(nn.Cell):
            def __init__(self) -> None:
                super().__init__()
                self.stem, self.head = nn.Dense(4, 3), nn.Dense(4, 2)

        Cell.construct = forward
        cell = Cell()
        return align.Training(cell, loss, nn.SGD(cell.trainable_params(), 0.1), step and step(cell))


def squared(outputs: Any, values: Any) -> Any:
    return ((outputs - values) ** 2).mean()


def both(self: Any, x: Any) -> Any:
    return self.stem(x), self.head(x)


def named(self: Any, x: Any) -> Any:
    return {"boxes": self.head(x), "logits": self.stem(x)}


def detected(self: Any, images: Any) -> Any:
    return [{"logits": self.stem(one), "boxes": self.head(one)} for one in images]


def detection_loss(maths: Maths) -> Any:
    def loss(outputs: Any, targets: Any) -> Any:
        total = 0.0
        for one, target in zip(outputs, targets, strict=True):
            count = target["labels"].shape[0]
            assert (target["labels"].dtype, target["size"]) == (maths.wide, "small")
            total = total + maths.entropy(one["logits"][:count], target["labels"])
            total = total + squared(one["boxes"][:count], target["boxes"])
        return total

    return loss


def checked(framework: str, forward: Any, loss: Callable[[Maths], Any], batch: dict[str, Any]) -> Any:
    maths = Maths(framework)
    result = align.check_parameters(maths.side(forward, loss(maths)), batch=batch)
    assert all(one.state == "trained" for one in result.sides[0].parameters)
    return {one.code: one.message for one in result.findings}, result.sides[0].loss


def several(maths: Maths) -> Any:
    return lambda logits, boxes, y, corners: maths.entropy(logits, y) + squared(boxes, corners)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_detection_batch_goes_through_as_it_is(framework: str) -> None:
    found, _ = checked(framework, detected, detection_loss, DETECTION)
    assert found == {}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nested_labels_beyond_the_classes_are_told_by_their_place(framework: str) -> None:
    maths = Maths(framework)
    moved = [{**one, "labels": one["labels"] + 1} for one in DETECTION["targets"]]
    with pytest.raises(InputsError) as raised:
        align.check_parameters(maths.side(detected, detection_loss(maths)), batch={**DETECTION, "targets": moved})
    assert raised.value.message == "targets.0.labels holds 1 to 3, and the outputs have 3 classes: 0 to 2"


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("forward", [both, named])
def test_a_loss_may_take_several_outputs_and_several_targets(framework: str, forward: Any) -> None:
    found, whole = checked(framework, forward, several, {"x": X, "y": Y, "corners": Z})
    assert found == {"outputs-one-by-one": "the loss gets 2 outputs of the model one by one, as logits, boxes"}
    other, moved = checked(framework, forward, several, {"x": X, "classes": Y, "spots": Z})
    assert other["targets-by-position"].startswith("classes as y, spots as corners are passed to the loss")
    assert set(other) == {"outputs-one-by-one", "targets-by-position"}
    assert whole is not None
    assert moved is not None


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_names_of_the_loss_decide_whatever_the_order(framework: str) -> None:
    def weighted(maths: Maths) -> Any:
        def loss(outputs: Any, label: Any, weight: Any = None, *, scale: Any) -> Any:
            return (maths.entropy(outputs[0], label, reduction="none") * weight).mean() * scale + outputs[1].mean()

        return loss

    orders = [("x", "label", "weight", "scale"), ("scale", "weight", "label", "x"), ("label", "x", "scale", "weight")]
    values = {"x": X, "label": Y, "weight": WEIGHT, "scale": 2.0}
    for order in orders:
        found, _ = checked(framework, both, weighted, {name: values[name] for name in order})
        assert found == {}
    found, _ = checked(framework, both, weighted, {"scale": 2.0, "label": Y, "image": X, "weight": WEIGHT})
    assert [*found] == ["inputs-by-position"]
    assert "input image as x is passed" in found["inputs-by-position"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_array_that_model_and_loss_both_need_goes_to_both(framework: str) -> None:
    def masked(self: Any, x: Any, lengths: Any) -> Any:
        assert lengths.shape == (6,)
        return self.stem(x), self.head(x)

    def loss(_: Maths) -> Any:
        return lambda outputs, lengths: (outputs[0].mean(-1) * lengths).sum() + outputs[1].sum()

    found, _ = checked(framework, masked, loss, {"x": X, "lengths": [3, 1, 2, 2, 3, 1]})
    assert found == {
        "array-for-both": "lengths is passed to the model and to the loss, which both have a parameter of that name"
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_one_array_that_is_left_goes_where_one_is_lacking(framework: str) -> None:
    def two(self: Any, x: Any, mask: Any) -> Any:
        return self.stem(x * mask), self.head(x)

    def loss(maths: Maths) -> Any:
        return lambda outputs, y: maths.entropy(outputs[0], y) + outputs[1].mean()

    found, _ = checked(framework, two, loss, {"x": X, "msk": np.abs(X), "y": Y})
    assert [*found] == ["inputs-by-position"]
    assert "msk as mask" in found["inputs-by-position"]


@pytest.mark.parametrize(
    ("forward", "loss", "batch", "told"),
    [
        (
            both,
            lambda pred, target, weight: pred,
            {"x": X, "y": Y},
            "its loss takes 2 beside the outputs, and would get y",
        ),
        (both, lambda pred, label: pred, {"x": X}, "no labels for the loss"),
        (both, lambda outputs, y: outputs, {"x": X, "y": Y, "other": Z}, "its loss takes 1 beside the outputs"),
        (
            both,
            lambda a, b, c, y: a,
            {"x": X, "y": Y},
            "a, b, c from the model's outputs, but the model returns 2 outputs",
        ),
        (named, lambda a, b, y: a, {"x": X, "y": Y}, "returns a dict of boxes, logits"),
    ],
)
def test_what_neither_names_nor_positions_decide_is_refused(
    forward: Any, loss: Any, batch: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputsError) as raised:
        align.check_parameters(Maths("torch").side(forward, loss), batch=batch)
    assert told in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_step_of_the_users_own_gets_nested_tensors_of_its_framework(framework: str) -> None:
    maths = Maths(framework)
    loss = detection_loss(maths)

    def step(model: Any) -> Any:
        return lambda batch: loss(model(batch["images"]), batch["targets"])

    assert align.check_parameters(maths.side(detected, None, step), batch=DETECTION).sides[0].loss is not None


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_step_of_the_users_own_may_take_its_labels_from_what_the_model_is_given(framework: str) -> None:
    """As language models do: torch's losses take no int32."""
    maths = Maths(framework)

    def forward(self: Any, kind: Any) -> Any:
        return self.stem.weight[kind]

    def step(model: Any) -> Any:
        return lambda batch: maths.entropy(model(batch["kind"]), batch["kind"])

    given = {"kind": np.array([0, 2, 1], np.int32)}
    assert align.check_parameters(maths.side(forward, None, step), batch=given).sides[0].loss is not None


def test_a_detection_batch_is_compared_captured_and_read_back(tmp_path: Path) -> None:
    sides = []
    for framework in FRAMEWORKS:
        maths = Maths(framework)
        sides.append(maths.side(detected, detection_loss(maths)))
    reference, port = sides
    result = align.compare_training_step(reference, port, batch=DETECTION, steps=2)
    assert result.verdict.exit_code == 0
    assert result.losses[0].reference == pytest.approx(result.losses[0].candidate, rel=1e-5)
    align.capture_training_step(reference, tmp_path / "steps", batch=DETECTION, steps=2)
    assert align.compare_training_step(tmp_path / "steps", port).verdict.exit_code == 0


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_model_with_its_own_loss_gets_what_is_left_for_what_it_lacks(framework: str) -> None:
    maths = Maths(framework)

    def whole(self: Any, data: Any, label: Any, mode: str) -> Any:
        assert mode == "loss"
        return (
            maths.entropy(self.stem(data), label.astype("int32") if framework == "mindspore" else label)
            + self.head(data).mean()
        )

    found, _ = checked(framework, whole, lambda _: None, {"image": X, "label": Y, "mode": "loss"})
    assert "image as data" in found["inputs-by-position"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_batch_may_be_one_argument_of_model_and_loss(framework: str) -> None:
    def whole(self: Any, batch: Any) -> Any:
        return self.stem(batch["x"]), self.head(batch["x"])

    def loss(maths: Maths) -> Any:
        return lambda outputs, batch: {"loss": several(maths)(*outputs, batch["y"], batch["corners"]), "other": 0}

    found, _ = checked(framework, whole, loss, {"batch": {"x": X, "y": Y, "corners": Z}})
    assert [*found] == ["array-for-both"]


def test_several_outputs_of_both_sides_are_compared() -> None:
    reference, port = (Maths(one).side(both, several(Maths(one))) for one in FRAMEWORKS)
    result = align.compare_training_step(reference, port, batch={"x": X, "y": Y, "corners": Z}, steps=1)
    assert result.verdict.exit_code == 0
    assert [one.code for one in result.findings].count("outputs-one-by-one") == 2
