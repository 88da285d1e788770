"""Wrong settings of real ports are found without a run, at their layer; clean ports give no finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.core.verdicts import Outcome
from align.lint.lint_models import lint_models

if TYPE_CHECKING:
    from align.lint.compare_settings import LintResult

pytestmark = pytest.mark.frameworks


def graver(result: LintResult) -> list[tuple[str, str, str]]:
    return [(one.rule, one.reference, one.candidate) for one in result.findings if one.severity != "note"]


@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("padding", [("conv-padding", "stem.0", "first")]),
        ("conv stride", [("conv-stride", "stem.0", "first")]),
        ("batch norm eps", [("batch-norm-epsilon", "stem.1", "first_norm")]),
        ("pool pad mode", [("max-pool-padding", "pool", "shrink")]),
        ("max for average", [("other-kind", "average", "gather")]),
    ],
)
def test_a_wrong_setting_of_a_convolutional_net_is_found_at_its_layer(
    pairs: Any, defect: str, found: list[tuple[str, str, str]]
) -> None:
    result = lint_models(pairs.TorchConvNet(), pairs.PortConvNet(defect=defect))
    assert graver(result) == found
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.parametrize(
    ("defect", "rule", "reference", "candidate"),
    [
        ("layer norm eps", "layer-norm-epsilon", "layers.1.ln1", "stack.1.before"),
        ("gelu", "gelu-approximation", "layers.1.gelu", "stack.1.act"),
    ],
)
def test_a_wrong_setting_of_a_transformer_is_found_at_its_layer(
    pairs: Any, defect: str, rule: str, reference: str, candidate: str
) -> None:
    """Names leave open which norm is which; a map tells."""
    original = pairs.TorchEncoder()
    name_map = pairs.make_alike(original, pairs.PortEncoder(), pairs.tokens())
    result = lint_models(original, pairs.PortEncoder(defect=defect), name_map=name_map)
    assert graver(result) == [(rule, reference, candidate)]


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [("TorchConvNet", "PortConvNet"), ("TorchEncoder", "PortEncoder"), ("TorchReader", "PortReader")],
)
def test_a_clean_port_gives_no_finding(pairs: Any, reference: str, candidate: str) -> None:
    result = lint_models(getattr(pairs, reference)(), getattr(pairs, candidate)())
    assert graver(result) == []
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.verdict.coverage.compared > 5


def test_the_published_port_of_a_resnet_has_one_wrong_setting(resnet: Any) -> None:
    result = lint_models(resnet.torch_model(), resnet.mindspore_model())
    assert graver(result) == [("max-pool-padding", "resnet.embedder.pooler", "max_pool")]
    assert result.findings[0].change == 'nn.MaxPool2d(..., pad_mode="pad", padding=1)'


def test_one_activation_that_a_port_uses_for_several_is_found_all_the_same(pairs: Any) -> None:
    torch, cell = pairs.nn, pairs.mnn
    reference = torch.Sequential(
        torch.Linear(3, 4), torch.LeakyReLU(), torch.Linear(4, 5), torch.LeakyReLU(), torch.Linear(5, 6)
    )
    candidate = cell.SequentialCell(cell.Dense(3, 4), cell.LeakyReLU(), cell.Dense(4, 5), cell.Dense(5, 6))
    assert [rule for rule, _, _ in graver(lint_models(reference, candidate))] == ["leaky-relu-slope"]


def test_a_port_that_pads_in_a_layer_before_is_clean(pairs: Any) -> None:
    torch, cell = pairs.nn, pairs.mnn
    reference = torch.Sequential(torch.Conv2d(3, 4, 3), torch.MaxPool2d(3, 2, padding=1))
    padded = cell.SequentialCell(cell.Pad(((0, 0), (0, 0), (1, 1), (1, 1))), cell.MaxPool2d(3, 2))
    candidate = cell.SequentialCell(cell.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True), padded)
    result = lint_models(reference, candidate)
    assert graver(result) == []
    assert [finding.rule for finding in result.findings] == ["max-pool-padding"]


def test_the_settings_of_two_losses_are_compared(pairs: Any) -> None:
    result = lint_models(pairs.nn.SmoothL1Loss(), pairs.mnn.SmoothL1Loss())
    assert graver(result) == [("loss-reduction", "", "")]


def test_the_settings_of_two_optimizers_are_compared_group_by_group(pairs: Any) -> None:
    weights = [pairs.torch.nn.Parameter(pairs.torch.ones(2)) for _ in range(2)]
    groups = [{"params": weights[:1]}, {"params": weights[1:], "weight_decay": 0.5}]
    own = [pairs.mindspore.Parameter(pairs.mindspore.Tensor([1.0]), name=name) for name in "ab"]
    mint = pairs.mindspore.mint.optim.AdamW([{"params": own[:1]}, {"params": own[1:], "weight_decay": 0.1}])
    result = lint_models(pairs.torch.optim.AdamW(groups), mint)
    assert graver(result) == [("optimizer-weight-decay", "group 1", "group 1")]
    plain = lint_models(pairs.torch.optim.AdamW(groups), pairs.mnn.AdamWeightDecay(own))
    assert {rule for rule, _, _ in graver(plain)} == {
        "optimizer-weight-decay", "adam-epsilon", "adam-bias-correction",
    }  # fmt: skip
