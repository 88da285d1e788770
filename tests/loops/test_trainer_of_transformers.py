"""The Trainer of transformers, run whole: what is not finite in it is named, and its steps are dumped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import align
from align.traces.open_trace import show_trace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.frameworks
STEPS = 4


def trainer(folder: Path, *, faulty: bool, callbacks: tuple[Any, ...] = ()) -> Any:
    """A Trainer of five tiny steps; faulty, the third of them is given a row for which `log` has no answer."""
    from transformers import Trainer, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Linear(4, 4)
            self.head = torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            outputs = self.head(torch.log(x.abs()) + self.scale(x))
            return {"loss": torch.nn.functional.cross_entropy(outputs, labels), "logits": outputs}

    torch.manual_seed(0)
    rows = [{"x": torch.rand(4) + 0.5, "labels": row % 2} for row in range(2 * STEPS)]
    if faulty:
        rows[5] = {"x": torch.zeros(4), "labels": 1}

    class InOrder(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    settings = TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=2, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True, logging_strategy="no", remove_unused_columns=False,
    )  # fmt: skip
    return InOrder(Net(), settings, train_dataset=rows, callbacks=[*callbacks])


@pytest.mark.parametrize("by_callback", [False, True])
def test_the_first_loss_that_is_not_finite_is_named_with_its_step_and_layer(tmp_path: Path, by_callback: bool) -> None:
    watch = align.watch_nonfinite(stop=False)
    if by_callback:
        trainer(tmp_path, faulty=True, callbacks=(watch.callback("torch"),)).train()
    else:
        with watch:
            trainer(tmp_path, faulty=True).train()
    event = watch.result.event
    assert event is not None
    assert (event.step, event.operator, event.samples) == (2, "log", (1,))


def test_a_sound_training_raises_no_alarm(tmp_path: Path) -> None:
    with align.watch_nonfinite() as watch:
        trainer(tmp_path, faulty=False).train()
    assert (watch.result.event, watch.result.steps) == (None, STEPS)


def test_the_callback_of_a_dump_counts_the_steps_of_the_optimizer(tmp_path: Path) -> None:
    run = trainer(tmp_path / "out", faulty=False)
    dump = align.dump(run.model, tmp_path / "dumps", iterations="1,3", tensors=["none"])
    run.add_callback(dump.callback())
    run.train()
    assert [folder.name for folder in dump.folders] == ["step_1", "step_3"]
    shown = [show_trace(folder) for folder in dump.folders]
    assert all(one.complete for one in shown)
    lengths = {name: value for name, value in shown[0].environment.items() if name.startswith("dataset")}
    assert lengths == {"dataset samples": "8", "dataset batches": "4", "dataset batch_size": "2"}
