"""What a loss does not depend on: an unused output, dead code, a layer that is never called, a factor of 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align

pytestmark = pytest.mark.frameworks

FRAMEWORKS = ("torch", "mindspore")
X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
BATCH = {"x": X, "label": np.arange(8) % 3}
DEAD = "its module is called, but the result is not used: neither the loss nor an output of the model"
LAYERS = {"body": (4, 6), "head": (6, 3), "aux": (6, 2), "dead": (6, 6), "gate": (6, 6), "off": (6, 6), "idle": (2, 2)}


def returned(form: str, outputs: Any, aux: Any) -> Any:
    """Main outputs and those that no loss uses, as models return them."""
    forms = {"tuple": (outputs, aux), "dict": {"logits": outputs, "aux": aux}, "nested": (outputs, [aux, {"b": aux}])}
    return forms[form]


def computed(net: Any, x: Any, relu: Any) -> tuple[Any, Any]:
    hidden = relu(net.body(x))
    net.dead(relu(net.dead(hidden)))
    hidden = hidden + 0.0 * net.gate(hidden) + relu(net.off(hidden) - 100.0)
    return net.head(hidden), net.aux(hidden)


def side(framework: str, form: str) -> align.Training:
    if framework == "torch":
        import torch

        class Net(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for name, sizes in LAYERS.items():
                    setattr(self, name, torch.nn.Linear(*sizes))
                self.lone = torch.nn.Parameter(torch.ones(3))

            def forward(self, x: Any) -> Any:
                return returned(form, *computed(self, x, torch.relu))

        torch.manual_seed(0)
        model = Net()
        entropy, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1)
    else:
        import mindspore
        from mindspore import nn, ops

        class Cell(nn.Cell):
            def __init__(self) -> None:
                super().__init__()
                for name, sizes in LAYERS.items():
                    setattr(self, name, nn.Dense(*sizes))
                self.lone = mindspore.Parameter(ops.ones(3), name="lone")

            def construct(self, x: Any) -> Any:
                return returned(form, *computed(self, x, ops.relu))

        mindspore.set_seed(0)
        model = Cell()
        entropy, optimizer = nn.CrossEntropyLoss(), nn.SGD(model.trainable_params(), 0.1)

    def loss(outputs: Any, label: Any) -> Any:
        return entropy(outputs["logits"] if form == "dict" else outputs[0], label)

    return align.Training(model, loss, optimizer)


def reasons(given: align.Training) -> dict[str, str]:
    return {one.name: one.reason for one in align.check_parameters(given, batch=BATCH).sides[0].parameters}


@pytest.mark.parametrize(("form", "name"), [("tuple", "[1]"), ("dict", "aux"), ("nested", "[1][0], [1][1].b")])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_unused_output_dead_code_and_a_layer_that_is_not_called_are_told_apart(
    framework: str, form: str, name: str
) -> None:
    found = reasons(side(framework, form))
    for parameter in ("weight", "bias"):
        assert f"the loss does not use the model's output {name}, and" in found[f"aux.{parameter}"]
        assert found[f"dead.{parameter}"].startswith(DEAD)
        assert found[f"idle.{parameter}"] == "its module is never called"
        for hidden in ("gate", "off"):
            assert "has no effect there: a factor of 0, a mask, or a ReLU" in found[f"{hidden}.{parameter}"]
        assert not found[f"head.{parameter}"]
    assert found["lone"].startswith("no code uses it")


def test_a_part_of_an_output_and_an_output_past_the_hooks_are_told() -> None:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.past = (torch.nn.Linear(4, 3) for _ in range(3))

        def forward(self, x: Any) -> Any:
            return torch.cat((self.used(x), self.unused(x), self.past.forward(x)), -1)

    model, entropy = Net(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    found = reasons(align.Training(model, lambda outputs, label: entropy(outputs[:, :3], label), optimizer))
    assert "the part of the model's output" in found["unused.weight"]
    assert "the part of the model's output" in found["past.bias"]


def test_what_a_step_calls_past_the_model_is_no_part_of_the_loss() -> None:
    """Its outputs are seen of a call of the model alone; and a check of the user's that takes no NaN ends nothing."""
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.aside = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    model, entropy = Net(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(batch: Any) -> Any:
        optimizer.zero_grad()
        assert torch.isfinite(model.aside(batch["x"])).all()
        loss = entropy(model.used(batch["x"]), batch["label"])
        loss.backward()
        optimizer.step()
        return loss

    found = reasons(align.Training(model, None, optimizer, step))
    assert found["aside.weight"] == found["aside.bias"] == "the loss does not use what it computes"
