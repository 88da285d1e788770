"""`align.dump` in real loops: what is written, what is hooked and when, and what a killed process leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.errors import CannotRunError, DestinationError, UnlikeTracesError, UsageError
from align.models.frameworks.arrays import ArrayModel
from align.traces.open_trace import show_trace
from align.traces.trace_folder import TraceFolder

if TYPE_CHECKING:
    from pathlib import Path

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((16, 8)).astype(np.float32)
Y = GENERATOR.integers(0, 3, 16)


def torch_loop(lost_from: int = 10**9) -> tuple[Any, Any]:
    """A model, and a function that takes a training step; from one of them on its last layer is no number."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.ReLU(inplace=True), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(number: int) -> float:
        if number == lost_from:
            model[4].weight.data.fill_(float("nan"))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(torch.from_numpy(X)), torch.from_numpy(Y))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return model, step


def hooks_on(model: Any) -> int:
    modules = model.modules() if hasattr(model, "modules") else [cell for _, cell in model.cells_and_names()]
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_forward_hook", "_forward_pre_hook")
    return sum(len(getattr(module, name, ())) for module in modules for name in names)


def network() -> Any:
    import mindspore
    from mindspore import nn

    mindspore.set_seed(0)
    return nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.LayerNorm((16,)), nn.Dropout(p=0.5), nn.Dense(16, 3))


@pytest.mark.frameworks
def test_only_chosen_iterations_are_hooked_and_the_training_is_as_without(tmp_path: Path) -> None:
    model, step = torch_loop()
    plain = [step(number) for number in range(6)]
    model, step = torch_loop()
    hooked, losses = [], []
    with align.dump(model, tmp_path, iterations="1-2,4", float64=True) as dump:
        for number in range(6):
            hooked.append(hooks_on(model))
            losses.append(step(number))
            dump.step()
    assert losses == plain
    assert [bool(count) for count in hooked] == [False, True, True, False, True, False]
    assert hooks_on(model) == 0
    assert [folder.name for folder in dump.folders] == ["step_1", "step_2", "step_4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_1", "step_2", "step_4"]


@pytest.mark.frameworks
def test_an_iteration_is_a_trace_with_figures_gradients_and_the_error_against_float64(tmp_path: Path) -> None:
    model, step = torch_loop()
    with align.dump(model, tmp_path, float64=True, values=True, layer_inputs=True) as dump:
        step(0)
        dump.step()
    trace = show_trace(tmp_path / "step_0")
    assert trace.complete
    assert (trace.head.mode, trace.head.step, [*trace.head.inputs]) == ("training", 0, ["input"])
    assert [one.module for one in trace.calls] == ["", "0", "1", "2", "3", "4"]
    outputs = {one.module: one.outputs[0] for one in trace.calls}
    written = TraceFolder(tmp_path / "step_0")
    for capture in written.captures:
        magnitude = float(np.abs(written.value(capture).astype(np.float64)).sum())
        assert outputs[capture.module].statistics.magnitude == pytest.approx(magnitude, rel=1e-5)
    assert all(outputs[path].rounding < 1e-6 for path in "0124")
    assert (outputs["3"].rounding, outputs["3"].not_recomputed) == (None, "it draws random numbers")
    back = show_trace(tmp_path / "step_0" / "backward")
    assert [one.module for one in back.calls] == ["4", "", "3", "2", "1", "0"]
    assert back.head.direction == "backward"
    assert align.compare_trace_folders(tmp_path / "step_0", tmp_path / "step_0").verdict.exit_code == 0
    both = tmp_path / "step_0" / "backward"
    assert align.compare_trace_folders(both, both).verdict.exit_code == 0


@pytest.mark.frameworks
def test_a_half_precision_layer_is_further_off_float64_than_its_neighbours(tmp_path: Path) -> None:
    import torch

    class Half(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return (x.half() @ self.weight.half().T).to(x.dtype) if x.dtype == torch.float32 else x @ self.weight.T

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Half(8, 8, bias=False), torch.nn.Linear(8, 3))
    with align.dump(model, tmp_path, float64=True, tensors=["none"]) as dump:
        model(torch.from_numpy(X)).sum().backward()
        dump.step()
    off = {one.module: one.outputs[0].rounding for one in show_trace(tmp_path / "step_0").calls if one.module}
    assert off["1"] > 100 * max(off["0"], off["2"])
    assert not (tmp_path / "step_0" / "inputs.npz").exists()


@pytest.mark.frameworks
def test_two_iterations_of_a_run_show_what_became_no_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, step = torch_loop(lost_from=2)
    with align.dump(model, tmp_path, iterations="0-", tensors=["none"]) as dump:
        for number in range(3):
            step(number)
            dump.step()
    sound = align.compare_iterations(tmp_path / "step_0", tmp_path / "step_1")
    assert (sound.first_non_finite, sound.before, sound.after) == (None, 0, 1)
    assert all(1.0 <= one.factor < 3.0 for one in sound.tensors)
    lost = align.compare_iterations(tmp_path / "step_1", tmp_path / "step_2")
    first = lost.tensors[lost.first_non_finite]
    assert (first.module, first.direction) == ("4", "forward")
    assert main(["trace", "changes", str(tmp_path / "step_1"), str(tmp_path / "step_2")]) == 0
    assert "NaN or Inf first in 4, forward: 48 of its elements at step 2" in " ".join(capsys.readouterr().out.split())
    assert main(["trace", "changes", str(tmp_path / "step_1")]) == 2
    assert "step_1 is one\nHint: name a later one too" in capsys.readouterr().err
    for line in ([str(tmp_path)], [str(tmp_path), str(tmp_path / "step_2")]):
        assert main(["trace", "changes", *line]) == 2
        said = capsys.readouterr().err
        assert f"{tmp_path} is not one iteration, it holds 3 iterations: step_0, step_1, step_2" in said
        assert f"Hint: name two of them: align trace changes {tmp_path}/step_0 {tmp_path}/step_1\n" in said
    with align.dump(torch_loop()[0][0], tmp_path / "other") as dump:
        dump.model(torch_input())
        dump.step()
    with pytest.raises(UnlikeTracesError, match="different model"):
        align.compare_iterations(tmp_path / "step_0", tmp_path / "other" / "step_0")


def torch_input() -> Any:
    import torch

    return torch.from_numpy(X)


@pytest.mark.frameworks
def test_a_functional_loop_of_mindspore_is_dumped(tmp_path: Path) -> None:
    import mindspore
    from mindspore import nn

    net, loss = network().set_train(), nn.CrossEntropyLoss()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    step = mindspore.value_and_grad(lambda x, y: loss(net(x), y), None, net.trainable_params())
    hooked = []
    with align.dump(net, tmp_path, iterations="1,3", layers=["0", "2", "3"], float64=True) as dump:
        for _ in range(4):
            hooked.append(bool(hooks_on(net)))
            optimizer(step(mindspore.Tensor(X), mindspore.Tensor(Y.astype(np.int32)))[1])
            dump.step()
    assert hooked == [False, True, False, True]
    assert hooks_on(net) == 0
    trace = show_trace(tmp_path / "step_3")
    outputs = {one.module: one.outputs[0] for one in trace.calls}
    assert [*outputs] == ["", "0", "2", "3"]
    assert max(outputs["0"].rounding, outputs["2"].rounding) < 1e-6
    assert outputs["3"].not_recomputed == "it draws random numbers"
    assert {one.module for one in show_trace(tmp_path / "step_1" / "backward").calls} == {"", "0", "2", "3"}
    assert align.compare_trace_folders(tmp_path / "step_1", tmp_path / "step_1").verdict.exit_code == 0


@pytest.mark.frameworks
@pytest.mark.parametrize("sink", [False, True])
def test_the_callback_dumps_the_steps_of_model_train(tmp_path: Path, *, sink: bool) -> None:
    """In sink mode too, which the processor does not have: MindSpore takes the steps one by one there."""
    from mindspore import dataset, nn
    from mindspore.train import Model

    net = network()
    columns = np.tile(X, (4, 1)), np.tile(Y.astype(np.int32), 4)
    data = dataset.NumpySlicesDataset(columns, ["x", "y"], shuffle=False).batch(len(X))
    dump = align.dump(net, tmp_path, iterations="0,2-", tensors=["none"])
    model = Model(net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1))
    model.train(1, data, callbacks=[dump.callback()], dataset_sink_mode=sink)
    assert [folder.name for folder in dump.folders] == ["step_0", "step_2", "step_3"]
    assert all(show_trace(folder).complete for folder in dump.folders)
    facts = show_trace(dump.folders[0]).environment
    assert (facts["dataset samples"], facts["dataset batches"]) == (str(4 * len(X)), "4")
    assert hooks_on(net) == 0


# Kills itself in the layer of a number in its fifth step; the layers before it have been dumped.
LOOP = """
import os, signal, sys, torch, align
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(12)))
with align.dump(model, sys.argv[1], iterations="0-") as dump:
    for step in range(5):
        if step == 4:
            model[int(sys.argv[2])].forward = lambda x: os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(64, 64)).sum().backward()
        dump.step()
"""


@pytest.mark.frameworks
def test_a_killed_process_leaves_all_iterations_but_the_last_one_whole(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", LOOP, str(tmp_path / "dumps"), "7"], check=False)
    assert ended.returncode == -signal.SIGKILL
    steps = sorted((tmp_path / "dumps").glob("step_*"))
    assert [folder.name for folder in steps] == [f"step_{step}" for step in range(5)]
    for folder in steps[:-1]:
        assert show_trace(folder).complete
        assert show_trace(folder / "backward").complete
    last = show_trace(steps[-1])
    assert all(call.returned or call.module in last.running for call in last.calls)


@pytest.mark.frameworks
def test_ranks_write_beside_each_other_and_one_that_was_not_chosen_hooks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        model, step = torch_loop()
        with align.dump(model, tmp_path, ranks="0,2-", tensors=["none"]) as dump:
            assert bool(hooks_on(model)) == (rank != 1)
            step(0)
            dump.step()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")) == [
        "rank_0/step_0", "rank_2/step_0", "rank_3/step_0",
    ]  # fmt: skip


@pytest.mark.frameworks
def test_what_cannot_be_dumped_is_said_before_the_loop_begins(tmp_path: Path) -> None:
    model, _ = torch_loop()
    for text, parts in (("3-1", ""), ("a", ""), ("", ""), ("1-2,x-", ": 'x-'"), ("3-1,y", ": 'y', '3-1'")):
        with pytest.raises(UsageError) as raised:
            align.dump(model, tmp_path / "new", iterations=text)
        assert raised.value.message == f"'{text}' is not a list of iterations{parts}"
    with pytest.raises(UsageError, match="is not a list of ranks"):
        align.dump(model, tmp_path / "new", ranks="-1")
    with pytest.raises(UsageError, match=r"none of 5 modules matches encoder\.\*: 0, 1"):
        align.dump(model, tmp_path / "new", layers=["encoder.*", "0"])
    with pytest.raises(UsageError, match="cannot keep the tensors"):
        align.dump(model, tmp_path / "new", tensors=["all", "none"])
    assert not (tmp_path / "new").exists()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DestinationError, match=r"is not empty, it holds notes\.txt"):
        align.dump(model, tmp_path)
    with pytest.raises(DestinationError, match="cannot write the trace"):
        align.dump(model, tmp_path / "notes.txt" / "dumps")
    with pytest.raises(CannotRunError, match="cannot be watched"):
        align.dump(ArrayModel(()), tmp_path / "new")
    assert hooks_on(model) == 0


@pytest.mark.frameworks
def test_graph_mode_in_which_nothing_would_be_seen_is_refused(tmp_path: Path) -> None:
    import mindspore

    net, mode = network(), mindspore.get_context("mode")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    try:
        with pytest.raises(CannotRunError, match="graph mode"):
            align.dump(net, tmp_path / "dumps")
    finally:
        mindspore.set_context(mode=mode)
    assert not (tmp_path / "dumps").exists() or not any((tmp_path / "dumps").iterdir())


@pytest.mark.frameworks
def test_a_step_that_raises_leaves_a_trace_that_says_so_and_no_hook(tmp_path: Path) -> None:
    model, step = torch_loop()

    def loop() -> None:
        with align.dump(model, tmp_path, tensors=["none"]):
            step(0)
            step(1 // 0)

    with pytest.raises(ZeroDivisionError):
        loop()
    assert hooks_on(model) == 0
    trace = show_trace(tmp_path / "step_0")
    assert (trace.complete, trace.failure) == (False, "ZeroDivisionError")
    lines = (tmp_path / "step_0" / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    assert all(json.loads(line) for line in lines)


@pytest.mark.frameworks
def test_a_dump_that_reached_none_of_its_iterations_says_so(tmp_path: Path) -> None:
    dump = align.dump(network(), tmp_path / "late", iterations="3-4,9-")
    dump.step()
    dump.step()
    with pytest.warns(RuntimeWarning, match=r"none of the iterations 3-4,9- ran .* step\(\) was called 2 times"):
        dump.close()
