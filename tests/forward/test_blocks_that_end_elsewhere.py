"""Blocks that do more than their counterparts: right ones are not accused, and what is behind them is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome

pytestmark = pytest.mark.frameworks
X = {"x": np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32)}


def port(*, block: Any = None, wrong: int = -1, behind: Any = None, outside: bool = False) -> Any:
    """Three blocks and a head; the activation is `outside` of the blocks, or inside of each of them.

    `block` is what number `wrong` applies instead, `behind` what the model does with its result.
    """
    import torch

    class Block(torch.nn.Module):
        def __init__(self, activation: Any) -> None:
            super().__init__()
            self.fc, self.norm, self.activation = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), activation

        def forward(self, x: Any) -> Any:
            return self.activation(self.norm(self.fc(x)))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inside = (lambda x: x) if outside else torch.relu
            self.blocks = torch.nn.ModuleList(Block(block if i == wrong and block else inside) for i in range(3))
            self.head = torch.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            for i, one in enumerate(self.blocks):
                x = one(x) if not outside else torch.relu(one(x))
                x = behind(x) if i == wrong and behind else x
            return self.head(x)

    torch.manual_seed(0)
    return Net()


def compared(**wrong: Any) -> Any:
    return align.compare_forward(port(outside=True), port(**wrong), inputs=X, power=False)


def test_right_blocks_are_aligned() -> None:
    assert compared().verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize(("wrong", "named"), [(0, "blocks.1"), (1, "blocks.2"), (2, "head")])
def test_what_the_code_does_behind_a_right_block_is_named(wrong: int, named: str) -> None:
    result = compared(wrong=wrong, behind=lambda x: x * 1.1)
    assert [(one.candidate, one.part) for one in result.culprits] == [(named, "inputs")]
    assert result.culprits[0].cause == "scaled"


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_a_block_that_applies_another_function_is_held_against_what_comes_next(wrong: int) -> None:
    import torch

    result = compared(wrong=wrong, block=torch.nn.functional.gelu)
    assert [(one.candidate, one.part) for one in result.culprits] == [(f"blocks.{wrong}", "code")]
    facts = result.culprits[0].facts
    assert "relu" in str(facts["reference"])
    assert "gelu" in str(facts["candidate"])


def pair_with_one_block(*, original_inside: bool, module: str = "") -> tuple[Any, Any]:
    """A block that occurs once, ReLU behind its norm; in the port GELU, at the other place. Layers are by `module`."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self, activation: Any) -> None:
            super().__init__()
            self.fc, self.norm, self.activation = torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), activation

        def forward(self, x: Any) -> Any:
            return self.activation(self.norm(self.fc(x)))

    class Net(torch.nn.Module):
        def __init__(self, activation: Any, *, inside: bool) -> None:
            super().__init__()
            nothing = lambda x: x  # noqa: E731 - a class would be a layer
            self.block = Block(activation if inside else nothing)
            self.behind = nothing if inside else activation
            self.head = torch.nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            return self.head(self.behind(self.block(x)))

    relu = torch.nn.ReLU() if module == "original" else torch.relu
    gelu = torch.nn.GELU() if module == "port" else torch.nn.functional.gelu
    nets = []
    for activation, inside in ((relu, original_inside), (gelu, not original_inside)):
        torch.manual_seed(0)
        nets.append(Net(activation, inside=inside))
    return nets[0], nets[1]


@pytest.mark.parametrize("module", ["", "original", "port"])
@pytest.mark.parametrize("original_inside", [True, False])
def test_another_function_is_named_whichever_side_has_it_in_its_block(original_inside: bool, module: str) -> None:
    original, port = pair_with_one_block(original_inside=original_inside, module=module)
    (culprit,) = align.compare_forward(original, port, inputs=X, power=False).culprits
    assert culprit.cause == "activation-differs"
    assert "relu" in str(culprit.facts["reference"])
    assert "gelu" in str(culprit.facts["candidate"])
    if culprit.sureness == "confirmed":
        assert "relu" in culprit.change
