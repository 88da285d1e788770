"""Optimizers, learning rates and losses that differ are found without a run; their right twins give no finding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from align.core.verdicts import Outcome
from align.lint.lint_models import lint_models

if TYPE_CHECKING:
    from align.lint.compare_settings import LintResult

pytestmark = pytest.mark.frameworks

SIDES = Path(__file__).with_name("training_sides.py")
PLACES = [
    ("optimizer-weight-decay", "adamw", "adamw_of_one_group"),
    ("optimizer-weight-decay", "sgd_groups", "momentum_swapped"),
    ("optimizer-weight-decay", "sgd_decayed", "momentum_decayed"),
    ("optimizer-loss-scale", "sgd", "momentum_scaled"),
    ("optimizer-learning-rate", "sgd", "momentum_grouped_rates"),
    ("learning-rate-schedule", "sgd", "momentum_listed"),
    ("learning-rate-schedule", "cosine", "momentum"),
    ("learning-rate-schedule", "cosine_alone", "momentum"),
    ("learning-rate-schedule", "warm_cosine", "momentum_cosine"),
    ("optimizer-parameters", "sgd", "momentum_of_the_head"),
    ("optimizer-method", "sgd", "adam"),
    ("cross-entropy-smoothing", "smoothed", "softmax_port"),
    ("cross-entropy-ignored-index", "smoothed", "softmax_port"),
    ("loss-class-weights", "weighted", "softmax_port"),
    ("loss-function", "plain", "squared_port"),
    ("loss-reduction", "kl", "kl_summed_port"),
    ("bce-positive-weight", "positive", "logits_port"),
    ("adagrad-start", "adagrad", "adagrad_default"),
    ("rmsprop-centered", "rms", "rms_uncentered"),
    ("sgd-momentum", "sgd", "momentum_preset_wrong"),
]


@pytest.fixture(autouse=True)
def _no_stray_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])


def lint(reference: str, candidate: str, steps: int | None = None) -> LintResult:
    return lint_models(f"{SIDES}:{reference}", f"{SIDES}:{candidate}", steps=steps)


@pytest.mark.parametrize(("rule", "reference", "candidate"), PLACES)
def test_what_differs_in_training_is_found(rule: str, reference: str, candidate: str) -> None:
    result = lint(reference, candidate)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert rule in {finding.rule for finding in result.findings if finding.severity == "error"}


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("adamw", "adamw_port"),
        ("sgd_groups", "momentum_groups"),
        ("sgd_groups", "momentum_groups_in_order"),
        ("sgd_decayed", "momentum_decayed_in_a_group"),
        ("sgd", "momentum"),
        ("torch_grouped_rates", "momentum_grouped_rates"),
        ("cosine", "momentum_listed"),
        ("cosine", "momentum_cosine"),
        ("cosine_alone", "momentum_cosine"),
        ("warm_cosine", "momentum_warm"),
        ("momentum", "momentum"),
        ("sgd", "step_of_training"),
        ("torch_adam", "adam"),
        ("smoothed", "smoothed_port"),
        ("weighted", "weighted_port"),
        ("plain", "softmax_port"),
        ("kl", "kl_port"),
        ("positive", "positive_port"),
        ("plain_named", "softmax_port"),
        ("adagrad", "adagrad_port"),
        ("rms", "rms_port"),
        ("sgd", "momentum_preset"),
        ("sgd_preset", "momentum"),
        ("sgd_clipped", "sgd_clipped"),
    ],
)
def test_what_trains_alike_gives_no_finding(reference: str, candidate: str) -> None:
    result = lint(reference, candidate)
    assert (result.findings, result.not_compared) == ((), ())
    assert result.verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize(
    ("reference", "candidate", "named"),
    [
        ("plateau", "momentum", "ReduceLROnPlateau"),
        ("sign", "momentum", "Sign"),
        ("sgd", "momentum_clipped", "Clipped.construct"),
        ("sgd_clipped", "momentum", "ClippedTorch.step"),
        ("plain_weighted", "softmax_port", "Weighted.forward"),
        ("torch_adam", "adam_preset", "use_nesterov=True"),
        ("torch_adam", "adam_looking_ahead", "use_nesterov=True"),
        ("sgd", "momentum_centralised", "grad_centralization"),
        ("sgd", "momentum_decay_by_step", "weight_decay"),
        ("focal", "softmax_port", "FocalLoss"),
        ("unnamed_loss", "unnamed_loss_port", "Focal"),
        ("trained_with_focal", "trained_with_focal_port", "Focal"),
    ],
)
def test_what_no_rule_knows_could_not_be_compared(reference: str, candidate: str, named: str) -> None:
    result = lint(reference, candidate)
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert any(named in problem for problem in result.not_compared)


def test_without_groups_mindspore_decays_no_gamma_and_beta() -> None:
    """What the finding about such a port rests on."""
    import mindspore
    from mindspore import nn, ops

    def moved(groups: bool) -> list[bool]:
        net = nn.SequentialCell(nn.Dense(2, 3), nn.LayerNorm((3,)))
        own = net.trainable_params()
        optimizer = nn.Momentum([{"params": own}] if groups else own, 0.1, 0.9, weight_decay=0.5, loss_scale=8.0)
        before = [one.asnumpy().copy() for one in own]
        optimizer(tuple(ops.zeros(one.shape, mindspore.float32) for one in own))
        return [bool((one.asnumpy() != value).any()) for one, value in zip(own, before, strict=True)]

    weight, _, gamma, _ = moved(groups=False)
    assert (weight, gamma) == (True, False)
    weight, _, gamma, _ = moved(groups=True)
    assert (weight, gamma) == (True, True)
    (finding,) = lint("sgd_decayed", "momentum_decayed").findings
    assert (finding.candidate, finding.parameters) == ("beta and gamma", 2)


def test_a_finding_tells_how_many_parameters_it_is_about_once_for_each_pair_of_groups() -> None:
    (finding,) = lint("adamw", "adamw_of_one_group").findings
    assert (finding.reference, finding.candidate, finding.part) == ("group 1", "", "optimizer")
    assert (finding.parameters, finding.example) == (4, "fc.bias")
    assert finding.change == 'a group {"params": [...], "weight_decay": 0.0} with fc.bias, ...'


def test_the_first_step_at_which_rates_differ_is_told() -> None:
    (finding,) = lint("sgd", "momentum_listed").findings
    assert "at step 1, constant" in finding.reference_setting
    assert "at step 1 by a list of rates" in finding.candidate_setting
    assert "at 59 of 60 steps" in finding.effect


def test_a_rate_a_step_against_one_an_epoch_is_a_note() -> None:
    result = lint("cosine_of_epochs", "momentum_listed_by_epoch")
    assert [(one.rule, one.severity) for one in result.findings] == [("learning-rate-schedule", "note")]
    assert "stepped every 10 steps" in result.findings[0].effect


def test_over_how_many_steps_rates_were_compared_is_a_caveat_unless_it_is_all() -> None:
    assert lint("stepped", "momentum").verdict.caveats == ("learning rates after step 1,000",)
    assert lint("stepped", "momentum", steps=300).verdict.outcome is Outcome.ALIGNED
    assert lint("stepped", "momentum", steps=300).verdict.caveats == ("learning rates after step 300",)
    assert lint("cosine", "momentum_cosine").verdict.caveats == ()


def test_a_momentum_that_a_scheduler_cycles_is_not_passed_over() -> None:
    assert any("momentum" in problem for problem in lint("one_cycle", "momentum").not_compared)


def test_without_models_a_setting_that_no_group_of_the_other_side_has_is_an_error() -> None:
    import mindspore
    import torch

    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    own = [mindspore.Parameter(mindspore.Tensor([1.0]), name=name) for name in "ab"]

    def outcome(mine: tuple[float, float], theirs: tuple[float, float]) -> LintResult:
        pairs = zip(weights, mine, strict=True), zip(own, theirs, strict=True)
        left, right = ([{"params": [one], "weight_decay": decay} for one, decay in side] for side in pairs)
        return lint_models(torch.optim.AdamW(left, lr=1e-3), mindspore.mint.optim.AdamW(right, lr=1e-3))

    assert [one.rule for one in outcome((0.1, 0.0), (0.1, 0.1)).findings] == ["optimizer-weight-decay"]
    told = outcome((0.1, 0.0), (0.0, 0.1))
    assert told.verdict.outcome is Outcome.NOT_COMPARED
    assert "weight_decay" in told.not_compared[0]
    assert outcome((0.1, 0.1), (0.1, 0.1)).verdict.outcome is Outcome.ALIGNED


def test_reading_the_rates_leaves_optimizer_and_scheduler_as_they_were() -> None:
    from torch import nn, optim

    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
    before = optimizer.param_groups[0]["lr"], dict(scheduler.state_dict())
    other = optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    assert lint_models((model, optimizer, scheduler), (nn.Linear(2, 2), other)).findings
    assert (optimizer.param_groups[0]["lr"], dict(scheduler.state_dict())) == before


def test_a_model_of_one_layer_that_no_rule_knows_hides_nothing_of_its_optimizer() -> None:
    import torch

    def side() -> tuple[object, object]:
        net = torch.nn.Module()
        net.scale = torch.nn.Parameter(torch.ones(3))
        return net, torch.optim.Adam(net.parameters(), lr=0.1)

    assert lint_models(side(), side()).verdict.outcome is Outcome.ALIGNED
