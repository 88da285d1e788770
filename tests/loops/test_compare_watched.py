"""Two records compared: what departs first, when, and that right trainings do not depart."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import align
from align.cli.main import main
from align.errors import NothingInCommonError, RunFolderError, UsageError
from align.loops.compare_watched import Departure, WatchComparison, WatchedHeat, WatchedSeries
from align.loops.watched_folder import WatchedRecord, WatchedTrend

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.frameworks
STEPS = 40
DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "watch.md").read_text(encoding="utf-8")


class Run:
    """A small training of torch, with rounding of its own and one thing that is otherwise."""

    def __init__(self, noise: float = 0.0, dropout: float = 0.0) -> None:
        import torch
        from torch import nn

        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Dropout(dropout),
            nn.Linear(16, 3),
        )  # fmt: skip
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(1 + noise * torch.randn_like(parameter))
        torch.manual_seed(5 if noise else 6)
        self.groups = [{"params": [p for p in self.model.parameters() if p.ndim > 1]}]
        self.groups += [{"params": [p for p in self.model.parameters() if p.ndim == 1], "weight_decay": 0.0}]
        self.settings: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.5}
        self.clip, self.data_seed, self.late_labels, self.late_rate = 0.5, 1, False, 1.0

    def record(self, folder: Path, steps: int = STEPS) -> Path:
        import torch

        optimizer = torch.optim.AdamW(self.groups, **self.settings)
        data = torch.Generator().manual_seed(self.data_seed)
        with align.watch(self.model, optimizer, folder) as watch:
            for step in range(steps):
                x = torch.randn(32, 8, generator=data)
                y = (x[:, 0] * 3).long().clamp(0, 2)
                if self.late_labels and step >= 10:
                    y = (y + 1) % 3
                if step == 20:
                    for group in optimizer.param_groups:
                        group["lr"] *= self.late_rate
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                optimizer.step()
                watch.step(loss, (x, y))
        return folder


def other_rate(run: Run) -> None:
    own = [*run.model[3].parameters()]
    for group in run.groups:
        group["params"] = [p for p in group["params"] if not any(p is one for one in own)]
    run.groups.append({"params": own, "lr": 0.1})


def frozen(run: Run) -> None:
    run.model[3].weight.requires_grad_(False)
    run.groups[0]["params"] = [p for p in run.groups[0]["params"] if p.requires_grad]


def other_momentum(run: Run) -> None:
    run.model[1].momentum = 0.01


def other_values(run: Run) -> None:
    import torch

    torch.nn.init.kaiming_uniform_(run.model[3].weight)


def decay_on_all(run: Run) -> None:
    run.groups[1].pop("weight_decay")


def set_to(name: str, value: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        if name == "eps":
            run.settings["eps"] = value
        else:
            setattr(run, name, value)

    return change


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Run().record(tmp_path_factory.mktemp("reference"))


def compared(reference: Path, tmp_path: Path, change: Callable[[Run], None] | None) -> WatchComparison:
    run = Run(noise=1e-7)
    if change is not None:
        change(run)
    return align.compare_watched(reference, run.record(tmp_path / "port"))


def first(result: WatchComparison) -> Departure:
    assert result.verdict.outcome.value == "not aligned"
    return result.departures[0]


def test_two_right_trainings_do_not_depart(reference: Path, tmp_path: Path) -> None:
    result = compared(reference, tmp_path, None)
    assert result.verdict.outcome.value == "aligned", result.says
    assert result.rounding == ("0.bias",)
    assert result.verdict.coverage.compared == 20 + 1


@pytest.mark.parametrize(
    ("change", "step", "quantity", "name"),
    [
        (other_rate, 0, "rate", "3.weight"),
        (frozen, 0, "gradient", "3.weight"),
        (other_momentum, 0, "buffer", "1.running_mean"),
        (other_values, 0, "weight", "3.weight"),
        (decay_on_all, 0, "update", "1.weight"),
        (set_to("eps", 1e-4), 0, "update", "0.weight"),
        (set_to("clip", 1e9), 0, "gradient", "0.weight"),
        (set_to("data_seed", 2), 0, "data", ""),
        (set_to("late_labels", True), 10, "data", ""),
        (set_to("late_rate", 0.5), 20, "rate", "0.weight"),
    ],
)
def test_what_departs_first_is_named(
    reference: Path, tmp_path: Path, change: Callable[[Run], None], step: int, quantity: str, name: str
) -> None:
    departure = first(compared(reference, tmp_path, change))
    assert (departure.step, departure.quantity, departure.name) == (step, quantity, name)


def test_dropout_that_is_off_is_lasting_and_other_random_numbers_are_none(tmp_path: Path) -> None:
    one = Run(dropout=0.2).record(tmp_path / "one")
    assert align.compare_watched(one, Run(1e-7, 0.2).record(tmp_path / "two")).verdict.outcome.value == "aligned"
    departure = first(align.compare_watched(one, Run(1e-7).record(tmp_path / "off")))
    assert (departure.name, departure.way) == ("5", "lasting")


def test_what_two_repeats_differ_by_is_no_departure(reference: Path, tmp_path: Path) -> None:
    run = Run()
    run.clip = 0.45
    other = run.record(tmp_path / "other")
    assert first(align.compare_watched(reference, other)).quantity == "gradient"
    again = Run(noise=1e-7)
    again.clip = 0.46
    repeats = reference, again.record(tmp_path / "again")
    result = align.compare_watched(reference, other, repeat=repeats)
    assert result.verdict.outcome.value == "aligned", result.says
    assert "two repeats" in result.level
    run = Run()
    run.clip = 0.05
    far = run.record(tmp_path / "far")
    assert first(align.compare_watched(reference, far, repeat=repeats)).quantity == "gradient"


def plain_step(watch: Any, model: Any, optimizer: Any, x: Any, scaler: Any = None) -> None:
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    (loss if scaler is None else scaler.scale(loss)).backward()
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    watch.step(loss, x)


@pytest.mark.parametrize("fused", [False, True])
def test_a_loss_scale_is_no_departure(tmp_path: Path, *, fused: bool) -> None:
    import torch

    for folder, scaler in (("plain", None), ("scaled", torch.amp.GradScaler("cpu", init_scale=1024.0))):
        model = Run().model
        optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
        with align.watch(model, optimizer, tmp_path / folder, scaler=scaler) as watch:
            for step in range(6):
                plain_step(watch, model, optimizer, torch.full((4, 8), 1.0 + step), scaler)
    result = align.compare_watched(tmp_path / "plain", tmp_path / "scaled")
    assert result.verdict.outcome.value == "aligned", result.says


def test_a_validation_between_steps_is_no_part_of_them(tmp_path: Path) -> None:
    import torch

    for folder, validates in (("bare", False), ("validated", True)):
        model = Run().model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with align.watch(model, optimizer, tmp_path / folder) as watch:
            for step in range(6):
                plain_step(watch, model, optimizer, torch.full((4, 8), 1.0 + step))
                if validates:
                    model.eval()
                    with torch.no_grad():
                        model(torch.full((4, 8), 100.0))
                    model.train()
    result = align.compare_watched(tmp_path / "bare", tmp_path / "validated")
    assert result.verdict.outcome.value == "aligned", result.says


def test_gradients_that_are_added_up_are_compared_where_they_move_something(tmp_path: Path) -> None:
    import torch

    for folder, keeps in (("kept", True), ("handed", False)):
        model = Run().model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with align.watch(model, optimizer, tmp_path / folder) as watch:
            for step in range(8):
                model(torch.full((4, 8), 1.0 + step)).pow(2).mean().backward()
                if step % 4 == 3:
                    optimizer.step()
                    optimizer.zero_grad()
                kept = [parameter.grad for parameter in model.parameters()]
                if not keeps:  # as a loop that hands its gradients to the optimizer alone
                    for parameter in model.parameters():
                        parameter.grad = None
                watch.step()
                for parameter, gradient in zip(model.parameters(), kept, strict=True):
                    parameter.grad = gradient
    result = align.compare_watched(tmp_path / "kept", tmp_path / "handed")
    assert result.verdict.outcome.value == "aligned", result.says


def test_updates_of_large_parameters_are_judged_in_the_steps_that_have_them(tmp_path: Path) -> None:
    import torch

    def record(folder: str, lost: int, **options: Any) -> Path:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 10_000), torch.nn.GELU(), torch.nn.Linear(10_000, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        with align.watch(model, optimizer, tmp_path / folder, **options) as watch:
            for step in range(24):
                before = model[0].weight.detach().clone()
                optimizer.zero_grad()
                loss = model(torch.full((4, 8), 1.0 + step % 3)).pow(2).mean()
                loss.backward()
                optimizer.step()
                if step >= lost:
                    model[0].weight.data.copy_(before)
                watch.step(loss, torch.full((1,), step))
        return tmp_path / folder

    right = record("right", lost=99, full=5)
    assert align.compare_watched(right, record("each", lost=99, full=1)).verdict.outcome.value == "aligned"
    lost = first(align.compare_watched(right, record("lost", lost=12, full=5)))
    assert (lost.step, lost.quantity, lost.way, lost.name) == (15, "update", "missing", "0.weight")


def test_one_other_batch_and_one_late_rate_are_told_at_their_steps(tmp_path: Path) -> None:
    import torch

    def record(folder: str, other_batch: bool, late: int) -> Path:
        model = Run().model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with align.watch(model, optimizer, tmp_path / folder) as watch:
            for step in range(30):
                optimizer.param_groups[0]["lr"] = 0.001 if step >= 15 + late else 0.01
                x = torch.full((4, 8), 1.0 + step % 3)
                plain_step(watch, model, optimizer, x.flip(0) * 2 if other_batch and step == 10 else x)
        return tmp_path / folder

    right = record("right", other_batch=False, late=0)
    assert (first(align.compare_watched(right, record("batch", True, 0))).step) == 10
    assert first(align.compare_watched(right, tmp_path / "batch")).quantity == "data"
    departure = first(align.compare_watched(right, record("late", False, 1)))
    assert (departure.step, departure.quantity) == (15, "rate")


def test_a_layer_that_returns_nan_on_one_side_is_the_one_that_is_named(tmp_path: Path) -> None:
    import torch

    for folder, breaks in (("right", False), ("broken", True)):
        model = Run().model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with align.watch(model, optimizer, tmp_path / folder) as watch:
            for step in range(12):
                if breaks and step == 8:
                    with torch.no_grad():
                        model[3].bias.fill_(float("nan"))
                plain_step(watch, model, optimizer, torch.rand(4, 8, generator=torch.Generator().manual_seed(step)))
    departure = first(align.compare_watched(tmp_path / "right", tmp_path / "broken"))
    assert (departure.step, departure.quantity, departure.name) == (8, "output", "3")


def test_a_factor_behind_the_last_layer_is_the_models(tmp_path: Path) -> None:
    import torch

    class Scaled(torch.nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.fc, self.factor = torch.nn.Linear(8, 3), factor

        def forward(self, x: Any) -> Any:
            return self.fc(x) * self.factor

    for folder, factor in (("one", 1.0), ("two", 2.0)):
        model = Scaled(factor)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        with align.watch(model, optimizer, tmp_path / folder) as watch:
            for step in range(4):
                plain_step(watch, model, optimizer, torch.full((4, 8), 1.0 + step))
    result = align.compare_watched(tmp_path / "one", tmp_path / "two")
    assert (first(result).quantity, first(result).name) == ("output", "")
    assert "the model: its output departs first" in result.says


def test_the_command_prints_the_departure_and_what_to_type_next(
    reference: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(noise=1e-7)
    other_momentum(run)
    port = run.record(tmp_path / "port")
    line = f"watch compare {reference} {port} --run {tmp_path / 'run'}"
    assert main(shlex.split(line)) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "NOT ALIGNED: step 0, 1.running_mean: its buffer departs first" in out
    assert "align step REFERENCE CANDIDATE --batch FILE" in out
    document = json.loads((tmp_path / "run" / "watch.json").read_text("utf-8"))
    assert document["departures"][0]["name"] == "1.running_mean"
    assert len(document["heat"]["layers"]) == len(document["heat"]["differences"])


def test_records_that_cannot_be_compared_are_refused(reference: Path, tmp_path: Path) -> None:
    import torch

    with pytest.raises(RunFolderError, match="holds no record"):
        align.compare_watched(reference, tmp_path)
    other = torch.nn.Sequential(torch.nn.Linear(5, 7))
    with align.watch(other, None, tmp_path / "other") as watch:
        for _ in range(2):
            other(torch.ones(2, 5))
            watch.step()
    with pytest.raises(NothingInCommonError):
        align.compare_watched(reference, tmp_path / "other")
    late = Run()
    optimizer = torch.optim.SGD(late.model.parameters(), lr=0.1)
    with align.watch(late.model, optimizer, tmp_path / "late", resume=1000) as watch:
        late.model(torch.ones(4, 8)).sum().backward()
        watch.step()
    with pytest.raises(UsageError, match="no step in common"):
        align.compare_watched(reference, tmp_path / "late")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("watch compare A", "two records are compared, and one is given"),
        ("watch show A B", "`show` takes one record"),
        ("watch compare A B --repeat C", "--repeat takes two records"),
        ("watch show A --rank 3", "has no rank 3"),
        ("watch show A --run R", "`align watch show` takes no --run"),
        ("watch compare A B --tensorboard R", "`align watch compare` takes no --tensorboard"),
    ],
)
def test_slips_of_the_command_line_end_in_one_message(
    reference: Path, line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"A": str(reference), "B": str(reference), "C": str(reference)}
    assert main([places.get(word, word) for word in line.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_page_quotes_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    source = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if code.startswith("# train.py"))
    (tmp_path / "train.py").write_text(source, encoding="utf-8")
    for part in "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)).split("$ ")[1:]:
        command, *quoted = part.splitlines()
        if command == "python train.py":
            runpy.run_path("train.py", run_name="__main__")
        else:
            assert main(shlex.split(command)[1:]) == 1
            printed = " ".join(capsys.readouterr().out.split())
            assert quoted
            assert " ".join(quoted) in printed


@pytest.mark.parametrize("value", [Departure, WatchComparison, WatchedHeat, WatchedSeries, WatchedRecord, WatchedTrend])
def test_the_page_of_the_run_folder_names_every_field(value: type) -> None:
    named = set(re.findall(r"`([^`\s]+)`", (DOCS / "run-folder.md").read_text("utf-8")))
    assert {one.name for one in dataclasses.fields(value)} - named - {"findings", "verdict"} == set()


def test_a_record_is_read_as_a_loss_log(reference: Path, tmp_path: Path) -> None:
    run = Run(noise=1e-7)
    run.clip = 1e9
    result = align.compare_losses(reference, run.record(tmp_path / "port"))
    assert result.points.count == STEPS
    assert {one.metric for one in result.others} >= {"lr", "grad_norm"}
