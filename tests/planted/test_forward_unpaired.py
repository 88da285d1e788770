"""A layer of the port that has no counterpart is named where it is at fault, and only there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.core.name_map import Dropped, NameMap, Pairing
from align.core.piece_transforms import Slice
from align.core.transforms import IDENTITY, Reshape, Transform
from align.core.verdicts import Outcome
from align.forward.compare_forward import compare_forward

if TYPE_CHECKING:
    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks

IMAGES, ROWS = (4, 3, 9, 9), (3, 12, 8)
NORM = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}
FUSED = (8, 16, 24)


def unit(name: str) -> dict[str, str]:
    told = {f"join.{name}.conv.weight": f"both.{name}.conv.weight"}
    return told | {f"join.{name}.norm.{mine}": f"both.{name}.norm.{theirs}" for mine, theirs in NORM.items()}


def layers(**names: str) -> dict[str, str]:
    return {f"{mine}.{one}": f"{theirs}.{one}" for mine, theirs in names.items() for one in ("weight", "bias")}


CASES = {
    "Functions": (IMAGES, layers(stem="start", head="out") | unit("one") | unit("two")),
    "Gated": (IMAGES, layers(stem="start", down="reduce", up="expand", last="end")),
    "FusedHeads": (ROWS, layers(stem="start", proj="out")),
}


def pairings(name: str, reference: Any) -> list[Pairing]:
    """All of a clean port; 1x1 kernels are read as matrices, the fused projection in thirds."""
    shapes = {key: tuple(value.shape) for key, value in reference.state_dict().items()}
    found = []
    for source, target in CASES[name][1].items():
        square = shapes[source][2:] == (1, 1)
        step: Transform = Reshape(shapes[source][:2], shapes[source]) if square else IDENTITY
        found.append(Pairing(source, target, "user", 1.0, step))
    for place, piece in enumerate("qkv" if name == "FusedHeads" else ""):
        for one in ("weight", "bias"):
            cut = Slice(0, 8 * place, 8 * place + 8, shapes[f"qkv.{one}"])
            found.append(Pairing(f"qkv.{one}", f"{piece}.{one}", "user", 1.0, cut))
    return found


def compared(pairs: Any, unpaired: Any, name: str, defect: str = "") -> ForwardComparison:
    reference, port = getattr(unpaired, f"Torch{name}")(), getattr(unpaired, f"Port{name}")(defect)
    pairs.randomize(reference, seed=0)
    reference.eval()
    held = set(port.parameters_dict())
    known = pairings(name, reference)
    left_out = {one.source for one in known} - {one.source for one in known if one.target in held}
    counters = [key for key in reference.state_dict() if key.endswith("num_batches_tracked")]
    dropped = [Dropped(key, "source", "the port has none") for key in [*sorted(left_out), *counters]]
    name_map = NameMap("torch", "port", tuple(one for one in known if one.target in held), tuple(dropped))
    pairs.transfer(reference, port, name_map)
    inputs = {"x": np.random.default_rng(0).standard_normal(CASES[name][0]).astype(np.float32)}
    return compare_forward(reference, port, inputs=inputs, name_map=name_map, power=False)


@pytest.mark.parametrize("name", sorted(CASES))
def test_layers_without_counterpart_are_not_named_in_a_clean_port(pairs: Any, unpaired: Any, name: str) -> None:
    result = compared(pairs, unpaired, name)
    assert (result.verdict.outcome, result.culprits) == (Outcome.ALIGNED, ())


@pytest.mark.parametrize(
    ("name", "defect", "layer", "cause", "sureness", "change"),
    [
        ("Functions", "activation", "both.two.act", "activation-differs", "suspected", ""),
        (
            "Functions",
            "pooling",
            "both.pool",
            "other-kind",
            "confirmed",
            "mindspore.nn.MaxPool2d(kernel_size=3, pad_mode='pad', padding=1, stride=1)",
        ),
        ("FusedHeads", "unused bias", "q", "linear-bias", "confirmed", "nn.Dense(..., has_bias=True)"),
        ("FusedHeads", "no bias", "q", "linear-bias", "confirmed", "nn.Dense(..., has_bias=True)"),
    ],
)
def test_a_layer_without_counterpart_is_named_by_the_trial_or_the_data_that_tell_it(
    pairs: Any, unpaired: Any, name: str, defect: str, layer: str, cause: str, sureness: str, change: str
) -> None:
    (culprit,) = compared(pairs, unpaired, name, defect).culprits
    assert (culprit.candidate, culprit.part, culprit.cause) == (layer, "layer", cause)
    assert (culprit.sureness, culprit.change) == (sureness, change)
    assert culprit.facts["shows_at"]


@pytest.mark.parametrize("defect", ["unused bias", "no bias"])
def test_a_dense_layer_in_the_place_of_a_convolution_is_tried_with_its_own_settings(
    pairs: Any, unpaired: Any, defect: str
) -> None:
    (culprit,) = compared(pairs, unpaired, "Gated", defect).culprits
    assert (culprit.reference, culprit.candidate, culprit.part) == ("up", "expand", "layer")
    assert (culprit.cause, culprit.sureness, culprit.change) == ("linear-bias", "confirmed", "has_bias=True")


def test_an_innocent_activation_is_not_named_after_an_addend_that_is_missing(pairs: Any, unpaired: Any) -> None:
    (culprit,) = compared(pairs, unpaired, "Functions", "residual dropped").culprits
    assert (culprit.candidate, culprit.part) == ("both", "code")


@pytest.mark.parametrize(("slope", "outcome"), [(0.2, Outcome.ALIGNED), (0.01, Outcome.NOT_ALIGNED)])
def test_one_activation_that_is_used_at_several_places_is_named_with_both_slopes(
    slope: float, outcome: Outcome
) -> None:
    import torch
    from torch import nn
    from torch.nn import functional

    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x: Any) -> Any:
            x = functional.leaky_relu(self.one(x), 0.2)
            return self.three(functional.leaky_relu(self.two(x), 0.2))

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            leak = nn.LeakyReLU(slope)
            self.body = nn.Sequential(nn.Linear(6, 8), leak, nn.Linear(8, 8), leak, nn.Linear(8, 4))

        def forward(self, x: Any) -> Any:
            return self.body(x)

    torch.manual_seed(0)
    reference, port = Functional(), Shared()
    port.load_state_dict(dict(zip(port.state_dict(), reference.state_dict().values(), strict=True)))
    inputs = {"x": np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)}
    result = compare_forward(reference, port, inputs=inputs)
    assert result.verdict.outcome is outcome
    for culprit in result.culprits:
        assert (culprit.candidate, culprit.cause, culprit.sureness) == ("body.1", "activation-differs", "suspected")
        assert culprit.facts["reference"] == "leaky-relu 0.2"
        assert culprit.facts["candidate"] == "leaky-relu 0.01"
    assert bool(result.culprits) == (slope != 0.2)
