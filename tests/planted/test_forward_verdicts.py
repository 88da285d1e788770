"""Verdicts to be trusted: in each class a fault that noise, precision or another fault could hide; its clean twin."""

from __future__ import annotations

import copy
import secrets
from typing import Any

import numpy as np
import pytest
from small_nets import ALIGNED, WRONG, compared, inputs, net

from align.errors import CannotRunError
from align.forward.forward_result import Allowances

pytestmark = pytest.mark.frameworks


def relu_times(factor: float) -> Any:
    import torch

    return lambda _, h: torch.relu(h) * factor


def quick(_: Any, h: Any) -> Any:
    import torch

    return h * torch.sigmoid(1.702 * h)


def gelu(_: Any, h: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(h)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("own", [True, False])
def test_half_precision_is_judged_by_its_own_noise(dtype: str, *, own: bool) -> None:
    """Both sides in half, or the port alone: an activation scaled by a few units shows."""
    import torch

    half = getattr(torch, dtype)
    reference = net().to(half) if own else net()
    factor = 1.014 if dtype == "float16" else 1.06
    wrong = compared(reference, net(between=relu_times(factor)).to(half))
    assert (wrong.verdict.outcome, [one.candidate for one in wrong.culprits]) == (WRONG, ["b"])
    clean = compared(reference, net().to(half))
    assert clean.verdict.outcome is ALIGNED
    assert any(dtype in caveat for caveat in clean.verdict.caveats)


def test_another_activation_shows_in_half_precision() -> None:
    import torch

    def made(between: Any) -> Any:
        return net(between=between).to(torch.bfloat16)

    assert compared(made(gelu), made(quick)).verdict.outcome is WRONG
    assert compared(made(gelu), made(gelu)).verdict.outcome is ALIGNED


def test_a_cast_to_float32_behind_half_layers_is_no_float32_result() -> None:
    import torch

    def einsum(model: Any, h: Any) -> Any:
        return torch.einsum("...i,oi->...o", torch.relu(h), model.b.weight)

    def lifted(model: Any, value: Any) -> Any:
        return value.float()

    reference = net(last=lifted).to(torch.bfloat16)
    for port in (net(last=lifted).to(torch.bfloat16), copy.deepcopy(net(last=lifted).to(torch.bfloat16)).float()):
        assert compared(reference, port).verdict.outcome is ALIGNED
    wrong = net(last=lambda m, v: (v * 1.1).float()).to(torch.bfloat16)
    assert compared(reference, wrong).verdict.outcome is WRONG


def test_one_half_layer_in_front_is_no_excuse_for_those_behind_it() -> None:
    """The half layers are what the user asked for; 1.2 % behind them is not."""

    def early(factor: float) -> Any:
        def first(model: Any, x: Any) -> Any:
            model.a.half(), model.n.half()
            return x.half()

        return net(first=first, between=lambda m, h: relu_times(factor)(m, h.float()))

    wrong = compared(net(), early(1.012))
    assert (wrong.verdict.outcome, [one.candidate for one in wrong.culprits]) == (WRONG, ["b"])
    assert compared(net(), early(1.0)).verdict.outcome is ALIGNED


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("both", [False, True], ids=["the port's", "both sides'"])
def test_float32_layers_that_no_rounding_reaches_are_judged_as_such(dtype: str, *, both: bool) -> None:
    """The first layer is in half; what is 0.1 % off stands behind a layer in float32, or is the model's own."""

    def early(factor: float, half: str = dtype, behind: float = 1.0) -> Any:
        def first(model: Any, x: Any) -> Any:
            model.a.to(getattr(torch, half))
            return x.to(getattr(torch, half))

        model = net(first=first, between=relu_times(factor), last=lambda _, v: v * behind)
        model.n.register_forward_pre_hook(lambda _, given: (given[0].float(),))
        return model

    import torch

    reference = early(1.0, dtype if both else "float32")
    for wrong, place in ((early(1.001), "b"), (early(1.0, behind=1.001), "")):
        found = compared(reference, wrong)
        assert (found.verdict.outcome, [one.candidate for one in found.culprits]) == (WRONG, [place])
    assert compared(reference, early(1.0)).verdict.outcome is ALIGNED


def test_a_required_dtype_makes_a_coarser_port_a_fault() -> None:
    clean = compared(net(), net().half())
    assert clean.verdict.outcome is ALIGNED
    assert "where the reference computes in float32" in " ".join(clean.verdict.caveats)
    required = compared(net(), net().half(), allowances=Allowances(coarsest="float32"))
    assert required.verdict.outcome is WRONG
    assert "precision-too-coarse" in {one.code for one in required.findings}
    same_dtype = compared(net(), net(), allowances=Allowances(coarsest="float32"))
    assert same_dtype.verdict.outcome is ALIGNED


def aside(narrow: bool) -> Any:
    """A model with a module of its own beside the others, which returns half precision that hardly counts."""
    from torch import nn

    class Half(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.half() if narrow else x * 1.0

    def first(model: Any, x: Any) -> Any:
        return x + 1e-6 * model.half_of(x[:, :1]).float()

    model = net(first=first)
    model.half_of = Half()
    return model


@pytest.mark.parametrize("narrow", [True, False])
def test_a_required_dtype_holds_for_modules_without_a_counterpart_too(narrow: bool) -> None:
    plain = net(first=lambda _, x: x + 1e-6 * x[:, :1])
    found = compared(plain, aside(narrow), allowances=Allowances(coarsest="float32"))
    assert "half_of" in {one.module for one in found.unpaired}
    assert found.verdict.outcome is (WRONG if narrow else ALIGNED)
    assert [one.subject for one in found.findings if one.code == "precision-too-coarse"] == ["half_of"] * narrow


UNSEEDED = np.random.default_rng()
GENERATORS: dict[str, Any] = {
    "secrets": lambda: [secrets.randbelow(1000) / 1e6 for _ in range(8)],
    "numpy": lambda: UNSEEDED.standard_normal(8) * 1e-3,
}


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("factor", [1.0, 1.003])
def test_a_reference_with_random_numbers_of_its_own_is_refused_at_its_layer(name: str, factor: float) -> None:
    import torch

    noisy = net(first=lambda _, x: x + torch.tensor(np.asarray(GENERATORS[name](), np.float32)))
    with pytest.raises(CannotRunError, match="layer 'a'"):
        compared(noisy, net(first=lambda _, x: x * factor))


@pytest.mark.parametrize("kept_in", ["an attribute", "an object"])
def test_what_is_kept_where_no_run_puts_it_back_is_not_called_randomness(kept_in: str) -> None:
    """Each call adds something of all calls before: in attributes it is put back, in an object of its own it is not."""
    import torch

    class Memory:
        total = 0.0

    def remembers() -> Any:
        memory = Memory()

        def first(model: Any, x: Any) -> Any:
            kept = model if kept_in == "an attribute" else memory
            kept.total = getattr(kept, "total", 0.0) + 0.1
            return x + kept.total

        model = net(first=first)
        model.total = 0.0
        return model

    if kept_in == "an attribute":
        assert compared(remembers(), remembers()).verdict.outcome is ALIGNED
    else:
        with pytest.raises(CannotRunError, match=r"does not return the same twice.*layer 'a'.*from run to run"):
            compared(remembers(), remembers())
    drops = net(first=lambda _, x: torch.nn.functional.dropout(x, 0.5))
    with pytest.raises(CannotRunError, match="from another seed layer 'a'"):
        compared(drops, net())


def test_numbers_that_agree_once_by_luck_are_not_said_to_follow_the_seed() -> None:
    """Numbers of its own are the same in the first run and in the first one from its seed."""
    calls = iter([0.0, 0.1, 0.0, 0.1])
    lucky = net(first=lambda _, x: x + next(calls))
    with pytest.raises(CannotRunError, match=r"(?s)does not return the same twice.*layer 'a'.*Hint: .*-inf"):
        compared(lucky, net())


def test_a_branch_on_the_dtype_is_no_noise() -> None:
    import torch

    def branch(_: Any, x: Any) -> Any:
        return x if x.dtype == torch.float32 else x * 1.01

    wrong = compared(net(first=branch), net(first=lambda _, x: x * 1.003))
    assert wrong.verdict.outcome is WRONG
    assert [one.subject for one in wrong.findings if one.code == "noise-not-rounding"] == ["a"]
    clean = compared(net(first=branch), net())
    assert clean.verdict.outcome is ALIGNED


def logistic(steps: int, rate: float) -> Any:
    import torch

    def last(_: Any, value: Any) -> Any:
        value = torch.sigmoid(value)
        for _ in range(steps):
            value = rate * value * (1 - value)
        return value

    return last


@pytest.mark.parametrize("factor", [1.0, 1.02])
def test_a_branch_on_a_coarser_dtype_is_no_noise_of_a_port_in_it(factor: float) -> None:
    """The reference, in float32, would compute something else in float16, in which its port runs."""
    import torch

    def branch(_: Any, h: Any) -> Any:
        return torch.relu(h) * (1.02 if h.dtype == torch.float16 else 1.0)

    result = compared(net(between=branch), net(between=relu_times(factor)).half())
    assert result.verdict.outcome is (ALIGNED if factor == 1.0 else WRONG)
    (told,) = [one for one in result.findings if one.code == "noise-not-rounding"]
    assert (told.subject, told.message[:24]) == ("b", "computing in float16 cha")


def test_amplified_rounding_is_noise_and_the_verdict_says_how_little_it_rests_on() -> None:
    """Rounding at random moves a chaotic model as much as float64 does; the port takes its steps in another order."""
    import torch

    def other_order(_: Any, value: Any) -> Any:
        value = torch.sigmoid(value)
        for _ in range(20):
            value = (3.9 * value) - 3.9 * value * value
        return value

    clean = compared(net(last=logistic(20, 3.9)), net(last=other_order))
    assert clean.verdict.outcome is ALIGNED
    assert not [one for one in clean.findings if one.code == "noise-not-rounding"]
    assert any("amplified" in one for one in clean.verdict.caveats)
    assert compared(net(last=logistic(20, 3.9)), net(last=logistic(21, 3.9))).verdict.outcome is WRONG


def angles(wide: bool, factor: float) -> Any:
    """A table of sines of large angles, which the code builds in float32, or in float64 and then casts."""
    import torch

    def first(_: Any, x: Any) -> Any:
        dtype = torch.float64 if wide else torch.float32
        steps = torch.arange(900, 906).to(dtype)[:, None]
        rates = factor * torch.pow(torch.tensor(1.3, dtype=dtype), -torch.arange(8).to(dtype))
        return x + torch.sin(steps * rates).to(x.dtype)

    return first


def test_tables_in_explicit_float32_have_the_noise_of_their_angles() -> None:
    clean = compared(net(first=angles(wide=False, factor=1.0)), net(first=angles(wide=True, factor=1.0)))
    assert clean.verdict.outcome is ALIGNED
    (told,) = [one.message for one in clean.findings if one.code == "table-of-own-dtype"]
    assert "test_forward_verdicts.py:" in told
    assert not [one for one in compared(net(), net()).findings if one.code == "table-of-own-dtype"]
    wrong = net(first=angles(wide=True, factor=1.001))
    assert compared(net(first=angles(wide=False, factor=1.0)), wrong).verdict.outcome is WRONG


def test_a_batch_of_one_and_shared_nan_are_said() -> None:
    import torch

    def hollow(_: Any, value: Any) -> Any:
        value = value.clone()
        value.view(-1)[1:] = float("nan")
        return value

    caveats = compared(net(last=hollow), net(last=hollow)).verdict.caveats
    assert "191 of 192 output elements are NaN or Inf on both sides" in caveats
    single = compared(net(), net(), {"x": inputs()["x"][:1]}).verdict.caveats
    assert any(one.startswith("the batch holds 1 sample") for one in single)
    plain = compared(net(), net()).verdict.caveats
    assert [one for one in plain if not one.startswith("judged in float32")] == []
    assert torch.is_tensor(net().a.weight)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_port_that_takes_one_sample_after_the_other_is_compared_by_its_output(factor: float) -> None:
    import torch

    class Samples(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.n, self.b = net().children()

        def forward(self, x: Any) -> Any:
            return torch.cat([self.b(torch.relu(self.n(self.a(one[None])))) * factor for one in x])

    result = compared(net(), Samples())
    assert result.verdict.outcome is (ALIGNED if factor == 1.0 else WRONG)
    assert [one.candidate for one in result.culprits] == ([] if factor == 1.0 else [""])


def test_a_difference_of_no_part_says_what_was_looked_for_and_what_to_run_next() -> None:
    """Each of sixty layers is off by what rounding may do, all to one side."""
    import torch
    from torch import nn

    class Scaled(nn.Linear):
        factor = 1.0

        def forward(self, x: Any) -> Any:
            return super().forward(x) * self.factor

    def chain(factor: float) -> Any:
        torch.manual_seed(0)
        layers = [Scaled(16, 16) for _ in range(60)]
        for layer in layers:
            layer.factor = factor
            nn.init.orthogonal_(layer.weight)
        return nn.Sequential(*layers)

    given = {"x": np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)}
    result = compared(chain(1.0), chain(1 + 1e-6), given)
    assert result.verdict.outcome is WRONG
    assert result.culprits == ()
    (told,) = [one.message for one in result.findings if one.code == "no-part-at-fault"]
    assert "Alone on the reference's values, 61 layer outputs" in told
    assert "`align.bisect_port(reference, candidate, inputs=...)` with the same models" in told
    assert "align bisect" not in told  # there is nothing that a command could open
    clean = compared(chain(1.0), chain(1.0), given)
    assert (clean.verdict.outcome, clean.findings) == (ALIGNED, ())


class TestBesideAnotherFault:
    """A layer that pads by itself what the reference's code pads in front of it, behind another fault."""

    @staticmethod
    def pair(fault: str) -> tuple[Any, Any]:
        import torch
        from torch import nn

        class Down(nn.Module):
            def __init__(self, *, outside: bool, even: bool) -> None:
                super().__init__()
                self.outside, self.even = outside, even
                self.conv = nn.Conv2d(8, 8, 3, stride=2, padding=0 if outside or not even else 1)

            def forward(self, x: Any) -> Any:
                return self.conv(torch.nn.functional.pad(x, (0, 1, 0, 1)) if self.outside else x)

        class Model(nn.Module):
            def __init__(self, *, port: bool) -> None:
                super().__init__()
                self.shift = 0.1 if port and "shift" in fault else 0.0
                self.stem, self.head = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 1)
                self.down = Down(outside=not (port and "pad" in fault), even=True)

            def forward(self, x: Any) -> Any:
                return self.head(torch.relu(self.down(torch.relu(self.stem(x) + self.shift))))

        made = []
        for port in (False, True):
            torch.manual_seed(0)
            made.append(Model(port=port))
        return made[0], made[1]

    @pytest.mark.parametrize(
        ("fault", "named"),
        [("", []), ("pad", ["down.conv"]), ("shift", ["down"]), ("pad shift", ["down.conv", "down"])],
    )
    def test_each_is_named(self, fault: str, named: list[str]) -> None:
        images = {"x": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}
        result = compared(*self.pair(fault), images)
        assert result.verdict.outcome is (WRONG if fault else ALIGNED)
        assert sorted(one.candidate for one in result.culprits) == sorted(named)


def test_a_drift_is_at_fault_where_it_begins() -> None:
    """A scale of 1.0004 on one of sixty branches stays below the limit at its place, and crosses it behind."""
    import torch
    from torch import nn

    class Deep(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.layers, self.factor = nn.ModuleList(nn.Linear(8, 8) for _ in range(60)), factor

        def forward(self, x: Any) -> Any:
            for number, layer in enumerate(self.layers):
                x = x + 0.05 * torch.tanh(layer(x)) * (self.factor if number == 20 else 1.0)
            return x

    def made(factor: float) -> Any:
        torch.manual_seed(0)
        return Deep(factor)

    given = {"x": np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)}
    found = compared(made(1.0), made(1.0004), given).culprits
    assert [(one.candidate, one.facts.get("shows_at")) for one in found] == [("layers.21", "layers.22")]
    assert compared(made(1.0), made(1.0), given).verdict.outcome is ALIGNED
    assert [one.candidate for one in compared(made(1.0), made(1.01), given).culprits] == ["layers.21"]
