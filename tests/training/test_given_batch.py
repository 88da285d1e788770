"""A batch goes to model and loss by names: what they do not say is refused, a lone input of another name is noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.errors import InputsError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks

X = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
LABEL = np.arange(6) % 3


def one_input(*, own_loss: bool = False) -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, a: Any, mask: Any = None) -> Any:
            outputs = self.layer(a if mask is None else a * mask)
            return outputs.mean() if own_loss else outputs

    return Net()


def two_inputs() -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def forward(self, a: Any, b: Any) -> Any:
            return self.layer(a - b)

    return Net()


def port_of_two() -> align.Training:
    from mindspore import nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Dense(4, 3)

        def construct(self, q: Any, k: Any) -> Any:
            return self.layer(q - k)

    model = Net()
    return align.Training(model, nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), 0.1))


def side(model: Any, loss: Any = None, step: Any = None) -> align.Training:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return align.Training(model, loss, optimizer, step)


def weighted(outputs: Any, label: Any, weight: Any) -> Any:
    import torch

    return (torch.nn.functional.cross_entropy(outputs, label, reduction="none") * weight).mean()


def classes() -> Any:
    import torch

    return torch.nn.CrossEntropyLoss()


@pytest.mark.parametrize(
    ("inputs", "names", "told"),
    [
        ("a, mask", "x other label", "its loss takes 1 beside the outputs, and would get other, label"),
        ("a, mask", "a msk label", "its loss takes 1 beside the outputs, and would get msk, label"),
        ("a, b", "x y z label", "its loss takes 1 beside the outputs, and would get z, label"),
        ("a, b", "a y label", "nothing bears the name b"),
    ],
)
def test_what_the_names_of_a_batch_do_not_say_is_refused(inputs: str, names: str, told: str) -> None:
    given = side(one_input() if inputs == "a, mask" else two_inputs(), classes())
    batch = {name: LABEL if name == "label" else X for name in names.split()}
    with pytest.raises(InputsError) as error:
        align.check_parameters(given, batch=batch)
    listed = names.replace(" ", ", ")
    assert error.value.message == f"Net: the batch has {listed}, the model takes {inputs}: {told}"
    assert "step(batch)" in error.value.hint


def test_names_that_the_model_has_are_taken_without_a_word() -> None:
    given = side(two_inputs(), classes())
    assert align.check_parameters(given, batch={"b": X, "label": LABEL, "a": X * X}).findings == ()
    with pytest.raises(InputsError, match="no labels for the loss"):
        align.check_parameters(given, batch={"a": X, "b": X})


def test_the_side_whose_names_do_not_fit_is_named_before_any_step() -> None:
    batch = {"a": X, "b": X, "k": X * X, "label": LABEL}
    with pytest.raises(InputsError, match=r"the model takes q, k: nothing bears the name q") as error:
        align.compare_training_step(port_of_two(), side(two_inputs(), classes()), batch=batch)
    assert "step(batch)" in error.value.hint


def test_several_inputs_of_other_names_go_in_their_order_with_a_warning() -> None:
    batch = {"a": X, "b": X * X, "label": LABEL}
    assert align.check_parameters(side(two_inputs(), classes()), batch=batch).findings == ()
    result = align.check_parameters(port_of_two(), batch=batch)
    assert [(one.code, one.severity) for one in result.findings] == [("inputs-by-position", "warning")]
    assert "inputs a as q, b as k are passed" in result.findings[0].message


def test_a_lone_input_of_another_name_is_noted() -> None:
    batch = {"x": X, "label": LABEL}
    for given, own in ((classes(), batch), (weighted, {**batch, "weight": np.ones(6, np.float32)})):
        result = align.check_parameters(side(one_input(), given), batch=own)
        assert [(one.code, one.severity) for one in result.findings] == [("inputs-by-position", "note")]
        assert "input x" in result.findings[0].message
    named = align.check_parameters(side(one_input(), classes()), batch={"a": X, "label": LABEL})
    assert named.findings == ()


def test_without_a_loss_all_names_are_the_models() -> None:
    model = one_input(own_loss=True)
    assert align.check_parameters(side(model), batch={"a": X, "mask": np.ones_like(X)}).findings == ()
    assert align.check_parameters(side(model), batch={"x": X}).findings[0].code == "inputs-by-position"
    with pytest.raises(InputsError, match="nothing takes msk"):
        align.check_parameters(side(model), batch={"a": X, "msk": X})


def test_a_step_of_the_users_own_hands_out_what_it_likes() -> None:
    model, loss = two_inputs(), classes()

    def step(batch: Any) -> Any:
        value = loss(model(batch["first"], batch["second"]), batch["label"])
        value.backward()
        given.optimizer.step()
        return value

    given = side(model, None, step)
    result = align.check_parameters(given, batch={"first": X, "second": X * X, "label": LABEL})
    assert (result.verdict.exit_code, result.findings) == (0, ())


def with_arguments(framework: str) -> align.Training:
    """A model that returns its loss, and takes what is no tensor."""
    if framework == "torch":
        import torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 3)

            def forward(self, x: Any, label: Any, mode: str = "tensor", *, flag: bool = False, **rest: Any) -> Any:
                assert (mode, flag, rest) == ("loss", True, {"scale": 2, "extra": None})
                return torch.nn.functional.cross_entropy(self.layer(x) * rest["scale"], label)

        torch.manual_seed(0)
        return side(Net())
    from mindspore import nn

    class Cell(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.loss = nn.Dense(4, 3), nn.CrossEntropyLoss()

        def construct(self, x: Any, label: Any, mode: str = "tensor", flag: Any = False, **rest: Any) -> Any:
            assert (mode, flag, rest) == ("loss", True, {"scale": 2, "extra": None})
            return self.loss(self.layer(x) * rest["scale"], label.astype("int32"))

    model = Cell()
    return align.Training(model, None, nn.SGD(model.trainable_params(), 0.1))


def test_what_is_no_array_is_given_to_both_sides_as_it_is(tmp_path: Path) -> None:
    batch = {"x": X, "label": LABEL, "mode": "loss", "flag": True, "scale": 2, "extra": None}
    reference, port = with_arguments("torch"), with_arguments("mindspore")
    assert align.check_parameters(reference, port, batch=batch).verdict.exit_code == 0
    align.capture_training_step(reference, tmp_path / "steps", batch=batch, steps=1)
    assert align.compare_training_step(tmp_path / "steps", port).verdict.exit_code == 0


@pytest.mark.parametrize("framework", ["torch", "mindspore"])
def test_a_step_of_the_users_own_gets_what_is_no_array_as_it_is(framework: str) -> None:
    given = with_arguments(framework)

    def step(batch: Any) -> None:
        assert [batch[name] for name in ("mode", "weight", "flag")] == ["loss", 0.5, False]
        assert batch["flag"] is False

    batch = {"x": X, "mode": "loss", "weight": 0.5, "flag": False}
    result = align.check_parameters(align.Training(given.model, None, given.optimizer, step), batch=batch)
    assert result.sides[0].loss is None
