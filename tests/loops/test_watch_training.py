"""Whole trainings recorded in real loops of both frameworks: rows, segments, sessions, and what kills leave."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.errors import (
    CannotRunError,
    DestinationError,
    FolderInUseError,
    RunFolderError,
    UnreadableModelError,
    UsageError,
)
from align.loops.watched_folder import WatchedTraining

pytestmark = pytest.mark.frameworks


def small_model() -> Any:
    from torch import manual_seed, nn

    manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3))


def train(folder: Path, steps: int = 4, model: Any = None, **options: Any) -> Any:
    """Record SGD over made batches, and return the model."""
    import torch

    model = small_model() if model is None else model
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    data = torch.Generator().manual_seed(1)
    with align.watch(model, optimizer, folder, **options) as watch:
        for _ in range(steps):
            x, y = torch.randn(6, 4, generator=data), torch.arange(6) % 3
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            watch.step(loss, (x, y))
    return model


def test_a_row_has_the_figures_that_the_tensors_have(tmp_path: Path) -> None:
    import torch

    model = small_model()
    before = model[0].weight.detach().clone()
    train(tmp_path, 1, model)
    record = WatchedTraining(tmp_path)
    table = record.table("parameters", ("weight", "gradient", "update", "zeros", "rate"))
    row = {figure: float(table.at("0.weight", figure)[0]) for figure in table.figures}
    moved = float(torch.linalg.vector_norm(model[0].weight.detach() - before))
    assert row["weight"] == pytest.approx(float(torch.linalg.vector_norm(before)), rel=1e-6)
    assert row["update"] == pytest.approx(moved, rel=1e-5)
    assert row["gradient"] == pytest.approx(10 * moved, rel=1e-5)
    assert (row["zeros"], row["rate"]) == (0.0, pytest.approx(0.1))
    assert "1.running_mean" in table.names
    layers = record.table("layers", ("rms", "mean", "largest", "zeros", "gradient"))
    assert layers.names == ("0", "1", "2", "3", "")
    assert layers.at("1", "rms")[0] == pytest.approx(1.0, abs=0.01)  # of a BatchNorm
    assert float(layers.at("", "gradient")[0]) > 0
    steps = record.step_figures(("loss", "passes", "updates", "gradient", "labels"))
    assert (steps["passes"][0], steps["updates"][0]) == (1, 1)
    assert steps["labels"][0] == sum((place + 1) * (place % 3) for place in range(6))
    squares = sum(float(table.at(name, "gradient")[0]) ** 2 for name, _ in model.named_parameters())
    assert steps["gradient"][0] == pytest.approx(squares**0.5, rel=1e-5)


def test_a_record_is_resumed_only_if_that_is_asked_for_and_its_last_steps_taken_again_count(tmp_path: Path) -> None:
    train(tmp_path, 5)
    with pytest.raises(DestinationError, match="holds a record already"):
        train(tmp_path)
    train(tmp_path, 3, resume=5)
    assert WatchedTraining(tmp_path).steps.tolist() == [*range(8)]
    train(tmp_path, 2, resume=6)
    record = WatchedTraining(tmp_path)
    assert record.head.starts == (0, 5, 6)
    assert record.steps.tolist() == [*range(8)]
    assert np.isfinite(record.table("parameters", ("weight",)).figures["weight"]).all()


def test_only_one_training_writes_into_a_folder(tmp_path: Path) -> None:
    model = small_model()
    with align.watch(model, None, tmp_path), pytest.raises(FolderInUseError):
        align.watch(model, None, tmp_path, resume=0)


def test_of_every_so_many_steps_one_is_recorded(tmp_path: Path) -> None:
    train(tmp_path, 7, every=3)
    assert WatchedTraining(tmp_path).steps.tolist() == [0, 3, 6]


def test_large_tensors_have_all_figures_in_the_first_step_and_update_of_each_part(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 20_000)  # a weight of 80,000 elements and a bias of 20,000
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    moved = {}
    with align.watch(model, optimizer, tmp_path, full=5) as watch:
        for step in range(12):
            model(torch.ones(4, 4) + step).pow(2).mean().backward()
            before = model.weight.detach().clone()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
            moved[step] = float(torch.linalg.vector_norm(model.weight.detach() - before))
            watch.step()
    record = WatchedTraining(tmp_path)
    figures = ("weight", "gradient", "update", "mean", "largest", "zeros")
    table = record.table("parameters", figures)
    known = {figure: np.flatnonzero(~np.isnan(table.at("weight", figure))).tolist() for figure in figures}
    assert known["gradient"] == [*range(12)]
    assert known["update"] == [1, 5, 11]  # the first updates of steps 0 to 4, 5 to 9, and from 10 on
    assert known["weight"] == known["mean"] == [0, 1, 5, 10, 11]
    assert table.at("weight", "update")[[1, 5, 11]].tolist() == pytest.approx([moved[1], moved[5], moved[11]], rel=1e-4)
    assert np.flatnonzero(table.at("bias", "update") > 0).tolist() == [1, 3, 5, 7, 9, 11]
    steps = record.step_figures(("full_layers", "full_parameters"))
    assert np.flatnonzero(steps["full_layers"] > 0).tolist() == [0, 5, 10]
    assert np.flatnonzero(steps["full_parameters"] > 0).tolist() == [1, 5, 11]
    layer = record.table("layers", ("rms", "largest", "gradient"))
    assert np.flatnonzero(np.isfinite(layer.at("", "rms"))).tolist() == [0, 2, 4, 5, 6, 8, 10]
    assert np.flatnonzero(np.isfinite(layer.at("", "gradient"))).tolist() == [0, 5, 10]


def test_layers_are_chosen_by_globs_and_a_glob_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "some", 1, layers="[13]")
    assert WatchedTraining(tmp_path / "some").table("layers", ("rms",)).names == ("1", "3", "")
    with pytest.raises(UsageError, match="decoder"):
        train(tmp_path / "none", layers=["decoder.*"])
    with pytest.raises(UsageError, match="0 is no number of steps"):
        train(tmp_path / "none", every=0)


def test_accumulated_and_skipped_steps_are_told_by_their_updates(tmp_path: Path) -> None:
    import torch

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    x, y = torch.ones(6, 4), torch.arange(6) % 3
    with align.watch(model, optimizer, tmp_path, scaler=scaler) as watch:
        for _ in range(12):
            loss = torch.nn.functional.cross_entropy(model(x), y) * 64
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            watch.step(loss, x)
            optimizer.zero_grad()
    figures = WatchedTraining(tmp_path).step_figures(("updates", "scale"))
    assert figures["updates"][0] == 0
    assert figures["updates"].sum() == 12 - list(figures["updates"]).index(1)
    assert (figures["scale"][0], figures["scale"][1]) == (2.0**127, 2.0**126)


def test_parameters_that_are_unfrozen_added_or_shared_are_told_from_then_on(tmp_path: Path) -> None:
    import torch

    model = small_model()
    model[0].weight.requires_grad_(False)
    model.tied = torch.nn.Linear(4, 8)
    model.tied.weight = model[0].weight
    model = torch.nn.ModuleDict({"a": model})
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    x = torch.ones(6, 4)
    with align.watch(model, optimizer, tmp_path) as watch:
        for step in range(4):
            if step == 2:
                model["a"][0].weight.requires_grad_(True)
                optimizer.add_param_group({"params": [model["a"][0].weight]})
                model["late"] = torch.nn.Linear(3, 3)
                optimizer.add_param_group({"params": [*model["late"].parameters()]})
            output = model["a"][3](model["a"][2](model["a"][0](x)))
            loss = (model["late"](output) if step >= 2 else output).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.step(loss, x)
    table = WatchedTraining(tmp_path).table("parameters", ("weight", "update"))
    assert "a.tied.weight" not in table.names
    assert np.isnan(table.at("a.0.weight", "update")).tolist() == [True, True, False, False]
    assert np.isnan(table.at("late.weight", "weight")).tolist() == [True, True, False, False]


def test_norms_of_large_tensors_stand_in_one_step_of_two_wherever_a_training_goes_on(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Linear(4, 20_000)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for first, steps in ((None, 7), (5, 4)):
        with align.watch(model, optimizer, tmp_path, resume=first) as watch:
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.ones(4, 4)).pow(2).mean().backward()
                optimizer.step()
                watch.step()
    record = WatchedTraining(tmp_path)
    gradients, outputs = record.table("parameters", ("gradient",)), record.table("layers", ("rms", "nonfinite"))
    assert np.flatnonzero(~np.isnan(gradients.at("weight", "gradient"))).tolist() == [0, 2, 4, 5, 6, 8]
    for figure in ("rms", "nonfinite"):
        assert np.isnan(outputs.at("", figure)).tolist() == np.isnan(gradients.at("weight", "gradient")).tolist()
    assert not np.isnan(gradients.at("bias", "gradient")).any()
    assert np.isnan(record.step_figures(("gradient",))["gradient"]).sum() == 3


def test_a_killed_training_loses_the_steps_since_its_last_segment_and_nothing_else(tmp_path: Path) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import align.loops.record_training as module; module.SEGMENT_STEPS = 10
import os, signal, align
from test_watch_training import small_model
import torch
model = small_model(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
watch = align.watch(model, optimizer, {str(tmp_path / "record")!r})
for step in range(27):
    model(torch.ones(6, 4)).sum().backward(); optimizer.step(); watch.step()
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=600)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert WatchedTraining(tmp_path / "record").steps.tolist() == [*range(20)]
    train(tmp_path / "record", 2, resume=20)
    assert WatchedTraining(tmp_path / "record").steps.tolist() == [*range(22)]


def test_the_trainer_of_transformers_is_recorded_by_its_callback(tmp_path: Path) -> None:
    import torch
    from transformers import Trainer, TrainingArguments

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)

        def forward(self, x: Any, labels: Any) -> Any:
            output = self.fc(x)
            return {"loss": torch.nn.functional.cross_entropy(output, labels), "logits": output}

    model, rows = Net(), [{"x": torch.rand(4), "labels": row % 2} for row in range(8)]
    watch = align.watch(model, None, tmp_path / "record")
    arguments = TrainingArguments(
        str(tmp_path / "out"), per_device_train_batch_size=2, max_steps=4, report_to=[], use_cpu=True, disable_tqdm=True
    )
    Trainer(model, arguments, train_dataset=rows, callbacks=[watch.callback()]).train()
    figures = WatchedTraining(tmp_path / "record").step_figures(("loss", "updates", "labels", "samples"))
    assert figures["updates"].tolist() == [1, 1, 1, 1]
    assert all(np.isfinite(values).all() for values in figures.values())


@pytest.mark.filterwarnings("ignore")  # of Lightning, about workers and loggers
def test_lightning_is_recorded_by_its_callback(tmp_path: Path) -> None:
    import lightning
    import torch

    class Net(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)

        def training_step(self, batch: Any, _index: int) -> Any:
            return torch.nn.functional.cross_entropy(self.fc(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Net()
    data = torch.utils.data.TensorDataset(torch.rand(8, 4), torch.arange(8) % 2)
    watch = align.watch(model, None, tmp_path / "record")
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[watch.callback("lightning")], default_root_dir=tmp_path, **quiet
    )
    trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=2))
    figures = WatchedTraining(tmp_path / "record").step_figures(("loss", "updates"))
    assert figures["updates"].tolist() == [1, 1, 1, 1]
    assert np.isfinite(figures["loss"]).all()


def mindspore_model() -> Any:
    from mindspore import nn

    return nn.SequentialCell(nn.Dense(4, 8), nn.BatchNorm1d(8), nn.GELU(approximate=False), nn.Dense(8, 3))


def test_a_functional_loop_of_mindspore_is_recorded(tmp_path: Path) -> None:
    import mindspore
    from mindspore import nn

    model = mindspore_model()
    model.set_train()
    optimizer = nn.AdamWeightDecay(model.trainable_params(), nn.CosineDecayLR(1e-4, 1e-2, 10))
    loss_function = nn.CrossEntropyLoss()
    gradients_of = mindspore.value_and_grad(lambda x, y: loss_function(model(x), y), None, optimizer.parameters)
    x, y = np.ones((6, 4), np.float32), np.arange(6, dtype=np.int32) % 3
    before = model[0].weight.asnumpy().copy()
    with align.watch(model, optimizer, tmp_path) as watch:
        for _ in range(3):
            loss, gradients = gradients_of(mindspore.Tensor(x), mindspore.Tensor(y))
            optimizer(gradients)
            watch.step(loss, (x, y))
    record = WatchedTraining(tmp_path)
    table = record.table("parameters", ("weight", "gradient", "update", "rate"))
    assert table.at("0.weight", "weight")[0] == pytest.approx(float(np.linalg.norm(before)), rel=1e-6)
    assert (table.at("0.weight", "update") > 0).all()
    assert table.at("0.weight", "rate").tolist() == pytest.approx([1e-2, 0.00975776, 0.00905463], rel=1e-4)
    assert "1.moving_mean" in table.names
    assert (record.table("layers", ("gradient",)).at("3", "gradient") > 0).all()


def test_model_train_is_recorded_by_its_callback(tmp_path: Path) -> None:
    from mindspore import dataset, nn
    from mindspore.train import Model

    model = mindspore_model()
    optimizer = nn.Momentum(model.trainable_params(), 0.1, 0.9)
    data = np.ones((8, 4), np.float32), np.arange(8, dtype=np.int32) % 3
    batches = dataset.NumpySlicesDataset(data, shuffle=False).batch(2)
    watch = align.watch(model, optimizer, tmp_path)
    Model(model, nn.CrossEntropyLoss(), optimizer).train(
        1, batches, callbacks=[watch.callback()], dataset_sink_mode=False
    )
    figures = WatchedTraining(tmp_path).step_figures(("loss", "updates", "samples", "labels"))
    assert figures["updates"].tolist() == [1, 1, 1, 1]
    assert np.isfinite(figures["loss"]).all()
    assert figures["labels"].tolist() == [2, 2, 5, 2]  # of 0 1, 2 0, 1 2, 0 1: the second one counts twice


def test_bad_places_and_models_end_in_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "full" / "rank_0").mkdir(parents=True)
    (tmp_path / "full" / "rank_0" / "notes.txt").write_text("mine")
    with pytest.raises(DestinationError, match=r"notes\.txt"):
        align.watch(small_model(), None, tmp_path / "full")
    with pytest.raises(RunFolderError, match="no record of a training"):
        align.show_watched(tmp_path / "nowhere")
    with pytest.raises(CannotRunError):
        align.watch(lambda x: x, None, tmp_path / "record")
    train(tmp_path / "record", 2)
    segment = next((tmp_path / "record").rglob("parameters-*"))
    segment.write_bytes(segment.read_bytes()[:-9])
    assert main(["watch", "show", str(tmp_path / "record")]) == 2
    assert "is damaged" in capsys.readouterr().err
    (tmp_path / "record" / "rank_0" / "watch.json").write_text("[1")
    assert main(["watch", "show", str(tmp_path / "record")]) == 2
    with pytest.raises(RunFolderError, match="no whole segment"), align.watch(small_model(), None, tmp_path / "empty"):
        align.show_watched(tmp_path / "empty")


def test_a_record_is_shown_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "record", 12)
    assert main(["watch", "show", str(tmp_path / "record"), "--tensorboard", str(tmp_path / "events")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "12 steps from 0 to 11" in out
    assert "Without an update 0" in out
    log = align.compare_losses(tmp_path / "events", tmp_path / "events", metric="step/loss")
    assert (log.verdict.outcome.value, log.points.count) == ("aligned", 12)


@pytest.mark.filterwarnings("ignore")  # of torch's own compiler
def test_loops_of_many_kinds_are_recorded_without_being_disturbed(tmp_path: Path) -> None:
    import torch

    table = torch.nn.Embedding(10, 4, sparse=True)
    sparse = torch.optim.SGD(table.parameters(), lr=0.1)
    with align.watch(table, sparse, tmp_path / "sparse") as watch:
        for _ in range(2):
            table(torch.tensor([1, 2])).sum().backward()
            sparse.step()
            watch.step(batch={"words": np.array(["a"]), "tokens": torch.tensor([1, 2]), "wave": np.ones(2, complex)})
    table_of = WatchedTraining(tmp_path / "sparse").table("parameters", ("update",))
    assert (table_of.figures["update"] > 0).all()

    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def failing() -> Any:
        raise RuntimeError

    with align.watch(torch.compile(model), optimizer, tmp_path / "raised") as watch:
        for step in range(3):
            model(torch.ones(6, 4)).sum().backward()
            if step == 1:
                with pytest.raises(RuntimeError):
                    optimizer.step(failing)
            optimizer.step()
            watch.step()
    figures = WatchedTraining(tmp_path / "raised").step_figures(("updates", "passes"))
    assert figures["updates"].tolist() == [1, 2, 1]
    assert figures["passes"].tolist() == [1, 1, 1]


def test_a_record_that_fails_leaves_no_hook_and_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch.optim import optimizer as optimizers

    before = len(optimizers._global_optimizer_pre_hooks)
    with pytest.raises(UnreadableModelError):
        align.watch(torch.nn.LazyLinear(3), None, tmp_path / "record")
    watch = align.watch(small_model(), None, tmp_path / "record")
    with pytest.warns(RuntimeWarning, match="was not called in the first step"):
        watch.step()

    def full(*_: Any) -> None:
        raise DestinationError("full", "")

    monkeypatch.setattr("align.loops.record_training.write_segment", full)
    with pytest.raises(DestinationError):
        watch.close()
    assert len(optimizers._global_optimizer_pre_hooks) == before
    assert not [*tmp_path.rglob("*.lock")]


def test_other_optimizers_of_mindspore_are_seen_and_watches_end_in_any_order(tmp_path: Path) -> None:
    import mindspore
    from mindspore import nn
    from mindspore.experimental import optim

    model = mindspore_model()
    model.set_train()
    optimizer = optim.SGD(model.trainable_params(), 0.1)
    gradients_of = mindspore.value_and_grad(lambda x: model(x).sum(), None, optimizer.parameters)
    first = align.watch(model, optimizer, tmp_path / "first")
    second = align.watch(model, optimizer, tmp_path / "second")
    for _ in range(2):
        loss, gradients = gradients_of(mindspore.Tensor(np.ones((6, 4), np.float32)))
        optimizer(gradients)
        first.step(loss)
        second.step(loss)
    first.close()
    second.close()
    for folder in ("first", "second"):
        record = WatchedTraining(tmp_path / folder)
        assert record.step_figures(("updates",))["updates"].tolist() == [1, 1]
        assert (record.table("parameters", ("update",)).at("3.weight", "update") > 0).all()
    assert nn.Dense(2, 2)(mindspore.Tensor(np.ones((1, 2), np.float32))).shape == (1, 2)
