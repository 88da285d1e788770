"""Parameters that one side alone trains are told by the map and by lint; equal freezing is not."""

from __future__ import annotations

from typing import Any

import pytest

from align.core.verdicts import Outcome
from align.lint.lint_models import lint_models
from align.names.map_parameters import map_parameters
from align.report.blocks import Lines
from align.report.kinds.advice import lint_blocks
from align.runs.run_folder import as_document

pytestmark = pytest.mark.frameworks


def torch_model(*, frozen: int = 0) -> Any:
    from torch import nn

    layers = [nn.Linear(size, size + 1) for size in range(3, 9)]
    model = nn.Sequential(*layers, nn.BatchNorm1d(9))
    for layer in layers[:frozen]:
        layer.requires_grad_(False)
    return model


def port(*, frozen: int = 0) -> Any:
    from mindspore import nn

    layers = [nn.Dense(size, size + 1) for size in range(3, 9)]
    for layer in layers[:frozen]:
        for parameter in layer.get_parameters():
            parameter.requires_grad = False
    return nn.SequentialCell(*layers, nn.BatchNorm1d(9))


@pytest.mark.parametrize(("mine", "theirs"), [(0, 0), (2, 2)])
def test_what_both_sides_freeze_is_not_told(mine: int, theirs: int) -> None:
    """Statistics are parameters that are not trained in MindSpore, and buffers in torch."""
    sides = torch_model(frozen=mine), port(frozen=theirs)
    assert map_parameters(*sides).warnings == ()
    result = lint_models(*sides)
    assert (result.findings, result.verdict.outcome) == ((), Outcome.ALIGNED)


def test_what_the_reference_alone_freezes_is_told_with_counts_and_the_line_to_write() -> None:
    sides = torch_model(frozen=2), port()
    (warning,) = map_parameters(*sides).warnings
    assert "4 parameters frozen in Sequential alone (trainable 10 against 14)" in warning
    assert "requires_grad = False for {0…1}.weight (2), {0…1}.bias (2)" in warning
    result = lint_models(*sides)
    (finding,) = result.findings
    assert (finding.rule, finding.severity, finding.parameters) == ("frozen-on-one-side", "error", 4)
    assert (finding.reference_setting, finding.candidate_setting) == ("trainable 10", "trainable 14")
    assert finding.change == "requires_grad = False for {0…1}.weight (2), {0…1}.bias (2)"
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


def test_what_the_port_alone_freezes_is_told_too() -> None:
    (finding,) = lint_models(torch_model(), port(frozen=1)).findings
    assert (finding.reference_setting, finding.candidate_setting) == ("trainable 14", "trainable 12")
    assert finding.change == "requires_grad = True for 0.weight, 0.bias"


def test_what_each_side_freezes_alone_is_told_with_its_own_count() -> None:
    candidate = port()
    candidate[2].bias.requires_grad = False
    result = lint_models(torch_model(frozen=2), candidate)
    assert [one.parameters for one in result.findings] == [4, 1]
    document = as_document(result, {}, hashed=False)
    told = " ".join(" ".join(block.lines) for block in lint_blocks(document) if isinstance(block, Lines))
    assert "4 parameters frozen in the reference alone" in told
    assert "1 parameter frozen in the candidate alone" in told


def test_a_buffer_that_the_port_trains_is_frozen_in_the_reference() -> None:
    import torch

    model = torch.nn.Module()
    model.fc = torch.nn.Linear(2, 3)
    model.register_buffer("table", torch.ones(5))
    other = torch.nn.Module()
    other.fc, other.table = torch.nn.Linear(2, 3), torch.nn.Parameter(torch.ones(5))
    (finding,) = [one for one in lint_models(model, other).findings if one.rule == "frozen-on-one-side"]
    assert finding.example == "table"


def test_a_file_that_cannot_tell_gives_no_warning(tmp_path: Any) -> None:
    import torch

    torch.save(torch_model().state_dict(), tmp_path / "net.pth")
    assert map_parameters(tmp_path / "net.pth", port(frozen=2)).warnings == ()
