"""The gradient of each sample by itself, on both sides: samples that a port treats otherwise are named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks

COUNT, CLASSES = 6, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((COUNT, 5, 4)).astype(np.float32)
LABEL = np.array([0, 1, 0, 1, 0, 2])
LENGTH = np.array([5, 4, 3, 5, 2, 4])
WEIGHT = np.array([1, 2, 1, 3, 1, 2], np.float32)
BATCH = {"x": X, "length": LENGTH, "label": LABEL, "weight": WEIGHT}


def original() -> align.Training:
    import torch
    from torch import nn

    class Net(nn.Module):
        """The mean of the steps within the length, a normalisation, and a head."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.fc = nn.Linear(4, 8), nn.Linear(8, CLASSES)
            self.norm = nn.BatchNorm1d(8)
            self.drop = nn.Dropout(0.5)

        def forward(self, x: Any, length: Any) -> Any:
            mask = (torch.arange(x.shape[1]) < length[:, None]).to(x.dtype)[..., None]
            hidden = (torch.relu(self.stem(x)) * mask).sum(1) / mask.sum(1)
            return self.fc(self.drop(self.norm(hidden)))

    torch.manual_seed(0)
    model = Net()
    with torch.no_grad():
        model.norm.running_mean.uniform_(-0.1, 0.1)
        model.norm.running_var.uniform_(0.5, 1.5)

    def loss(outputs: Any, label: Any, weight: Any) -> Any:
        apart = nn.functional.cross_entropy(outputs, label, reduction="none")
        return (apart * weight).sum() / weight.sum()

    return align.Training(model, loss, torch.optim.SGD(model.parameters(), 0.1))


def port(
    *,
    labels: Callable[[Any], Any] = lambda label: label,
    weights: Callable[[Any], Any] = lambda weight: weight,
    longest: int = 99,
) -> align.Training:
    import mindspore
    from mindspore import nn, ops

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.fc = nn.Dense(4, 8), nn.Dense(8, CLASSES)
            self.norm = nn.BatchNorm1d(8)
            self.drop = nn.Dropout(p=0.5)

        def construct(self, x: Any, length: Any) -> Any:
            length = ops.minimum(length, mindspore.Tensor(longest, length.dtype))
            mask = (ops.arange(x.shape[1]) < length.expand_dims(1)).astype(x.dtype).expand_dims(2)
            hidden = (ops.relu(self.stem(x)) * mask).sum(1) / mask.sum(1)
            return self.fc(self.drop(self.norm(hidden)))

    def loss(outputs: Any, label: Any, weight: Any) -> Any:
        apart = ops.cross_entropy(outputs, labels(label), reduction="none")
        return (apart * weights(weight)).sum() / weights(weight).sum()

    model = Net()
    return align.Training(model, loss, nn.SGD(model.trainable_params(), 0.1))


def differing(result: align.SampleComparison) -> list[int]:
    return [one.sample for one in result.samples if one.outcome == "not aligned"]


def test_a_right_port_agrees_in_each_sample_and_says_what_is_frozen() -> None:
    result = align.compare_samples(original(), port(), batch=BATCH)
    assert (result.verdict.outcome, differing(result)) == (Outcome.ALIGNED, [])
    assert result.factor == pytest.approx(1, abs=1e-4)
    assert [one.compared for one in result.samples] == [6] * COUNT
    shares = [one.reference_share for one in result.samples]
    assert shares == pytest.approx([*(WEIGHT / WEIGHT.sum())], rel=1e-3)
    assert result.verdict.caveats == ("1 BatchNorm layer at running statistics", "1 dropout layer switched off")


def test_samples_that_are_learned_leave_rounding_and_are_no_alarm() -> None:
    import torch

    reference = original()
    with torch.no_grad():
        reference.model.fc.weight.mul_(300)
    result = align.compare_samples(reference, port(), batch=BATCH)
    assert (result.verdict.outcome, differing(result)) == (Outcome.ALIGNED, [])
    assert None in [one.reference_share for one in result.samples]  # beside the others they count for nothing


def test_a_label_that_is_shifted_for_one_sample_is_named_with_the_parameter() -> None:
    result = align.compare_samples(original(), port(labels=lambda label: label.clip(0, 1)), batch=BATCH)
    assert (result.verdict.outcome, differing(result)) == (Outcome.NOT_ALIGNED, [5])
    worst = result.samples[5]
    assert result.verdict.reason == f"sample 5 of 6 differs, most in {worst.candidate}"
    assert worst.factor > 100
    assert worst.differing == worst.compared == 6


def test_a_mask_that_is_wrong_for_the_longest_samples_names_them() -> None:
    result = align.compare_samples(original(), port(longest=4), batch=BATCH)
    assert differing(result) == [0, 3]
    assert result.verdict.reason.startswith("samples 0, 3 of 6 differ, most in ")


def test_a_weight_that_the_loss_leaves_out_shows_in_how_much_the_sample_counts() -> None:
    """By itself the sample is the same: its weight is divided by itself."""
    result = align.compare_samples(original(), port(weights=lambda weight: weight.clip(0, 2)), batch=BATCH)
    assert differing(result) == [3]
    assert result.samples[3].differing == 0
    assert result.samples[3].candidate_share == pytest.approx(2 / 9, rel=1e-3)
    assert result.verdict.reason.endswith("how much each counts in the gradient of the batch")


def test_where_all_samples_differ_it_is_no_matter_of_single_ones() -> None:
    result = align.compare_samples(original(), port(labels=lambda label: (label + 1) % CLASSES), batch=BATCH)
    assert differing(result) == [*range(COUNT)]
    assert "no matter of single samples" in result.verdict.reason
    alone = {name: one[5:] for name, one in BATCH.items()}
    result = align.compare_samples(original(), port(labels=lambda label: label * 0), batch=alone)
    assert result.verdict.reason.startswith("the only sample differs")


def test_a_batch_of_one_sample_and_chosen_parameters_agree() -> None:
    one = {name: values[:1] for name, values in BATCH.items()}
    result = align.compare_samples(original(), port(), batch=one, parameters=["fc.*"])
    assert (result.verdict.outcome, [row.compared for row in result.samples]) == (Outcome.ALIGNED, [2])


def test_samples_that_meet_in_the_loss_of_one_side_are_told() -> None:
    import torch
    from torch import nn

    def side(*, meet: bool) -> align.Training:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3))

        def loss(outputs: Any) -> Any:
            alone = (outputs**2).mean()
            return alone + (outputs - outputs.mean(0)).abs().sum() if meet else alone

        return align.Training(model, loss)

    result = align.compare_samples(side(meet=False), side(meet=True), batch={"input": X[:, 0]})
    assert "no sum of theirs" in result.verdict.reason
    assert [one.code for one in result.findings if one.severity == "warning"] == ["samples-mixed"]
    result = align.compare_samples(side(meet=True), side(meet=True), batch={"input": X[:, 0]})
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.verdict.caveats == ("how much each sample counts in the batch is not compared",)


SIDES = """
import numpy as np
import torch
from torch import nn


def original(clip=3):
    torch.manual_seed(0)
    model = nn.Linear(4, 3)

    def loss(outputs, label):
        return nn.functional.cross_entropy(outputs, label.clip(0, clip))

    return model, loss, torch.optim.SGD(model.parameters(), 0.1)


def port():
    return original(1)


def batch():
    return {"input": np.random.default_rng(0).standard_normal((4, 4)).astype("float32"), "label": np.arange(4) % 3}


def without_axis():
    return {"input": batch()["input"], "label": np.array([1, 2, 0])}


def one_vector():
    return {"input": np.ones(4, "float32"), "label": np.array(1)}
"""


def test_the_command_names_the_sample_and_refuses_what_has_no_samples(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sides.py").write_text(SIDES)
    command = ["step", "sides.py:original", "sides.py:port", "--samples", "--batch"]
    assert main([*command, "sides.py:batch", "--run", "run"]) == 1
    said = capsys.readouterr().out
    assert "NOT ALIGNED: sample 2 of 4 differs, most in " in said
    assert "3 samples that agree are not listed (--all)" in said
    assert json.loads((tmp_path / "run" / "samples.json").read_text())["samples"][2]["outcome"] == "not aligned"
    faults = {
        "the batch has no axis of samples: input (4, 4), label (3,)": [*command, "sides.py:without_axis"],
        "cannot take one sample alone": [*command, "sides.py:one_vector"],
        "no parameter is called head.*": [*command, "sides.py:batch", "--parameters", "head.*"],
        "--steps cannot be given with --samples": [*command, "sides.py:batch", "--steps", "2"],
    }
    for message, faulty in faults.items():
        assert main(faulty) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert message in said
        assert "Traceback" not in said


def test_what_is_for_live_sides_is_refused_for_folders(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match="holds captured steps"):
        align.compare_samples(str(tmp_path), original(), batch=BATCH)
    with pytest.raises(CannotRunError, match="no axis of samples"):
        align.compare_samples(original(), original(), batch=BATCH | {"label": np.zeros(2, int), "weight": np.ones(2)})
