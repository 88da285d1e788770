"""Masks: what stands at padded positions is nobody's result, and nothing else is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_nets import ALIGNED, WRONG, compared, inputs, net, same

pytestmark = pytest.mark.frameworks


def padded_net(pad: Any, factor: float = 1.0, name: str = "attention_mask", after: Any = same) -> Any:
    """A net whose outputs at padded positions `pad` changes: of (tensor, net); those elsewhere are scaled."""
    import torch

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Any, **masks: Any) -> Any:
            inner = self.inner(x)
            padding = (masks[name] == 0)[..., None]
            return after(self, torch.where(padding, pad(inner), inner * factor))

    return Masked()


def left_half(*padded: int, name: str = "attention_mask", seed: int = 0) -> dict[str, Any]:
    mask = np.ones((4, 6), np.int64)
    for sample in padded:
        mask[sample, 3:] = 0
    return inputs(seed) | {name: mask}


class TestPadding:
    def test_what_differs_there_only_is_aligned_and_said(self) -> None:
        plain, other = padded_net(lambda y: y), padded_net(lambda y: 2 * y)
        ones = compared(plain, other, left_half())
        assert ones.verdict.outcome is ALIGNED
        assert any(one.startswith("attention_mask is 1 throughout") for one in ones.verdict.caveats)
        padded = compared(plain, other, left_half(0))
        assert padded.verdict.outcome is ALIGNED
        assert any("padding" in one for one in padded.verdict.caveats)
        assert compared(plain, padded_net(lambda y: 2 * y, 1.01), left_half(0)).verdict.outcome is WRONG

    def test_each_batch_has_its_own(self) -> None:
        plain, other = padded_net(lambda y: y), padded_net(lambda y: 2 * y)
        two = [left_half(0), left_half(1, 2, seed=1)]
        assert compared(plain, other, two).verdict.outcome is ALIGNED
        wrong = compared(plain, padded_net(lambda y: 2 * y, 1.01), two)
        assert [one.facts.get("batch") for one in wrong.culprits] == ["1 of 2"]

    def test_a_value_that_the_reference_puts_there_counts(self) -> None:
        def zero(y: Any) -> Any:
            return y * 0

        assert compared(padded_net(zero), padded_net(zero), left_half(0)).verdict.outcome is ALIGNED
        assert compared(padded_net(zero), padded_net(lambda y: y), left_half(0)).verdict.outcome is WRONG

    @pytest.mark.parametrize("name", ["key_padding_mask", "bool_masked_pos", "prompt_mask"])
    def test_a_mask_that_may_mean_it_the_other_way_round_leaves_nothing_out(self, name: str) -> None:
        plain, other = padded_net(lambda y: y, name=name), padded_net(lambda y: 2 * y, name=name)
        assert compared(plain, padded_net(lambda y: y, name=name), left_half(0, name=name)).verdict.outcome is ALIGNED
        assert compared(plain, other, left_half(0, name=name)).verdict.outcome is WRONG

    def test_an_axis_of_the_same_length_is_no_axis_of_positions(self) -> None:
        def classes(model: Any, y: Any) -> Any:
            return y[:, 0, :6]

        def turned(model: Any, y: Any) -> Any:
            y = classes(model, y).clone()
            y[:, 4:] *= -1
            return y

        plain = padded_net(lambda y: y, after=classes)
        assert compared(plain, padded_net(lambda y: y, after=classes), left_half(0)).verdict.outcome is ALIGNED
        assert compared(plain, padded_net(lambda y: y, after=turned), left_half(0)).verdict.outcome is WRONG

    @pytest.mark.parametrize("form", ["rows of all samples", "positions first"])
    def test_other_layouts_inside_have_it_too(self, form: str) -> None:
        import torch

        class Net(torch.nn.Module):
            def __init__(self, pad: float, factor: float = 1.0) -> None:
                super().__init__()
                torch.manual_seed(0)
                self.a, self.b, self.pad = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), pad
                self.factor = factor

            def forward(self, x: Any, attention_mask: Any) -> Any:
                rows = attention_mask.reshape(-1, 1) if form[0] == "r" else attention_mask.T[..., None]
                h = torch.relu(self.a(x))
                h = h.reshape(-1, 16) if form[0] == "r" else h.transpose(0, 1)
                return self.b(torch.where(rows > 0, h * self.factor, h * self.pad))

        assert compared(Net(1.0), Net(2.0), left_half(0)).verdict.outcome is ALIGNED
        assert compared(Net(1.0), Net(2.0, 1.01), left_half(0)).verdict.outcome is WRONG


def test_nan_at_padding_and_outputs_that_hardly_move_are_said() -> None:
    import torch

    def made(factor: float) -> Any:
        def far(model: Any, y: Any) -> Any:
            return y * factor + 1000.0

        return padded_net(lambda y: torch.full_like(y, torch.nan), after=far)

    said = compared(made(0.01), made(0.01), left_half(0), power=True).verdict
    assert said.outcome is ALIGNED
    assert "24 of 192 output elements are NaN or Inf on both sides" in said.caveats
    assert any(one.startswith("other inputs change the outputs by only") for one in said.caveats)
    said = compared(made(100.0), made(100.0), left_half(), power=True).verdict
    assert not any("NaN" in one or one.startswith("other inputs") for one in said.caveats)


@pytest.mark.parametrize("used", [True, False])
def test_a_mask_that_does_not_arrive_is_named_where_it_is_given(used: bool) -> None:
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x: Any, bias: Any) -> Any:
            weights = torch.softmax(self.q(x) @ x.transpose(1, 2) + bias[:, 0], -1)
            return self.out(weights @ x)

    class Masked(torch.nn.Module):
        def __init__(self, used: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.attention, self.used = Attention(), used

        def forward(self, x: Any, attention_mask: Any) -> Any:
            bias = (1.0 - attention_mask[:, None, None].to(x.dtype)) * torch.finfo(x.dtype).min
            return self.attention(x, bias * self.used)

    mask = np.ones((4, 6), np.int64)
    mask[0, 3:] = 0
    result = compared(Masked(used=True), Masked(used), inputs() | {"attention_mask": mask})
    assert result.verdict.outcome is (ALIGNED if used else WRONG)
    assert [(one.candidate, one.part) for one in result.culprits] == ([] if used else [("attention", "inputs")])
