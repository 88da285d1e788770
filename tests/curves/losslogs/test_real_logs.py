"""Logs that the real loggers wrote, each recognised by exactly one format and read with its meaning."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from align.curves.compare_losses import describe_log
from align.curves.log_sources import LogSource, log_formats
from align.curves.loss_log import EPOCH_MEAN, SINCE_LAST_PRINT
from align.curves.place_on_axis import place_on_axis
from align.curves.read_logs import read_log
from align.errors import UnknownLogError

DATA = Path(__file__).parents[1] / "data"
LOGS = sorted(file.name for file in DATA.iterdir() if file.suffix not in (".py", ".md"))


@pytest.mark.parametrize("file", LOGS)
def test_a_real_log_is_recognised_by_exactly_one_format(file: str) -> None:
    source = LogSource(file, (DATA / file).read_bytes())
    assert len([name for name, plugin in log_formats().items() if plugin.recognizes(source)]) == 1
    assert read_log(DATA / file).table.metrics


def test_a_log_of_a_format_not_known_is_refused_with_a_line_of_it_and_an_expression(tmp_path: Path) -> None:
    own = tmp_path / "own.log"
    own.write_text("started\n\nat 1 the error is 2.5\nat 2 the error is 2.25\n", encoding="utf-8")
    with pytest.raises(UnknownLogError, match="such as line 3:\n  at 1 the error is") as caught:
        read_log(own)
    assert len(str(caught.value).splitlines()) == 5
    words = shlex.split(caught.value.hint.splitlines()[1])
    assert words[0] == "--pattern"
    assert place_on_axis(read_log(own, pattern=words[1])).values.tolist() == [2.5, 2.25]


def test_lossmonitor_steps_run_on_over_epochs_and_timemonitor_tells_their_length() -> None:
    log = read_log(DATA / "mindspore_lossmonitor.log")
    curve = place_on_axis(log)
    assert log.steps_per_epoch == 4
    assert tuple(curve.steps) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert curve.values[4] == 0.9129121899604797
    assert set(curve.resolution.tolist()) == {0.0}
    assert log.table.metrics["step_time_ms"].values.tolist() == [17.024, 11.726]


def test_mindcv_prints_first_every_nth_and_last_step_with_six_decimals() -> None:
    curve = place_on_axis(read_log(DATA / "mindcv_rank0.log"))
    assert tuple(curve.steps) == (1, 2, 4, 5, 6, 8)
    assert tuple(curve.values) == (1.53686, 1.807196, 1.144807, 1.245404, 1.459894, 1.065711)
    assert set(curve.resolution.tolist()) == {1e-6}


@pytest.mark.parametrize(
    ("name", "metric", "unit"),
    [
        ("lossmonitor", "step_time_ms", 1e-3),
        ("megatron", "lm loss", 1e-6),
        ("megatron", "grad norm", 1e-3),
        ("mindcv", "loss", 1e-6),
        ("mindcv_result", "TrainLoss", 1e-6),
        ("mindformers", "loss", 1e-3),
        ("mmcv_json", "loss", 1e-5),
        ("mmengine", "loss", 1e-4),
        ("mmengine", "lr", 1e-6),
        ("paddle_hapi", "loss", 1e-4),
        ("paddleclas", "loss", 1e-5),
        ("paddledetection", "loss", 1e-6),
        ("paddlenlp", "loss", 1e-8),
        ("paddlenlp", "learning_rate", 1e-5),
        ("torchtitan", "loss", 1e-5),
        ("lossmonitor", "loss", 0.0),
        ("mindformers", "lr", 0.0),
        ("mmengine_scalars", "loss", 0.0),
        ("paddlenlp", "eval_loss", 0.0),
    ],
)
def test_a_format_that_rounds_is_known_to_from_two_or_three_lines(name: str, metric: str, unit: float) -> None:
    plugin = log_formats()[name]
    series = plugin.read(LogSource("sample", plugin.sample)).table.metrics[metric]
    finite = [one for one, value in zip(series.resolution.tolist(), series.values, strict=True) if math.isfinite(value)]
    assert set(finite) == {unit}


def test_a_mindcv_result_log_holds_the_last_loss_of_each_epoch() -> None:
    console = place_on_axis(read_log(DATA / "mindcv_rank0.log"))
    result = place_on_axis(read_log(DATA / "mindcv_result.log"))
    assert result.axis == "epoch"
    assert tuple(result.steps) == (1, 2)
    assert tuple(result.values) == (console.values[2], console.values[5])


def test_lightning_counts_from_0_and_its_epoch_means_stay_apart() -> None:
    log = read_log(DATA / "lightning_metrics.csv")
    assert tuple(place_on_axis(log).steps) == (2, 4, 6, 8)
    means = place_on_axis(log, "train_loss_epoch")
    assert means.window == EPOCH_MEAN
    assert tuple(means.steps) == (4, 8)


def test_hf_losses_are_means_since_the_last_print() -> None:
    curve = place_on_axis(read_log(DATA / "hf_trainer_state.json"))
    assert curve.window == SINCE_LAST_PRINT
    assert tuple(curve.steps) == (2, 4, 6, 8)


# The arguments of a training, the steps of its epochs, and those that it tells of.
TRAININGS = {
    "2 3 1 time": (3, (1, 2, 3, 4, 5, 6)),
    "2 3 1": (3, (1, 2, 3, 4, 5, 6)),
    "3 5 2": (5, (2, 4, 6, 8, 10, 12, 14)),
}
# One after the other in one process: MindSpore's import takes longer than all of them.
TRAIN_ALL = """
import contextlib, runpy, sys
scripts, folder, *trainings = sys.argv[1:]
for training in trainings:
    script = "train_summary.py" if training == "summary" else "train_lossmonitor.py"
    sys.argv = [script, *(training.split() if training != "summary" else [f"{folder}/summary"])]
    with open(f"{folder}/{training}.log", "w") as log, contextlib.redirect_stdout(log):
        runpy.run_path(f"{scripts}/{script}", run_name="__main__")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What each training printed, in a file of its arguments' name."""
    folder = tmp_path_factory.mktemp("trained")
    command = [sys.executable, "-c", TRAIN_ALL, DATA, folder, *TRAININGS, "summary"]
    subprocess.run(command, capture_output=True, timeout=300, check=True, env={**os.environ, "GLOG_v": "3"})
    return folder


@pytest.mark.frameworks
@pytest.mark.parametrize("training", TRAININGS)
def test_what_lossmonitor_prints_today_is_read_back(training: str, trained: Path) -> None:
    log, (length, steps) = trained / f"{training}.log", TRAININGS[training]
    curve = place_on_axis(read_log(log))
    assert describe_log(log).steps_per_epoch == length
    assert tuple(curve.steps) == steps
    printed = [line.rpartition(" ")[2] for line in log.read_text(encoding="utf-8").splitlines() if "loss is" in line]
    assert tuple(curve.values) == tuple(map(float, printed))
    assert all(map(math.isfinite, curve.values))


@pytest.mark.frameworks
def test_a_summary_that_mindspore_writes_holds_the_losses_that_it_prints(trained: Path) -> None:
    (written,) = (trained / "summary").glob("*_MS")
    summary = place_on_axis(read_log(written, format="mindspore_summary"))
    printed = place_on_axis(read_log(trained / "summary.log"))
    np.testing.assert_array_equal(summary.steps, printed.steps)
    np.testing.assert_array_equal(summary.values.astype(np.float32), printed.values.astype(np.float32))
