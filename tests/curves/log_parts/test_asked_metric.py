"""A metric that is asked for is heard before a loss is known, and all numbers of unknown lines are kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main
from align.curves.compare_losses import describe_log
from align.curves.read_logs import read_log
from align.errors import CannotRunError

if TYPE_CHECKING:
    from pathlib import Path

STEPS = range(1, 9)
VERL = (
    "(TaskRunner pid=21844) step:{s} - actor/entropy_loss:0.4{s} - actor/pg_loss:{v} - "
    "critic/score/mean:0.5 - timing_s/step:3{s}.5"
)
SLIME = "model.py:500 - step {s}: {{'train/pg_loss': {v}, 'train/entropy_loss': 0.3{s}, 'train/kl_loss': 0.001}}"
PPO = "iteration {s} | policy_loss {v} | value_loss 0.{s} | reward 1.{s}"
OBJECT = '{{"step": {s}, "actor/pg_loss": {v}, "critic/vf_loss": 0.{s}, "reward": 1.{s}}}'
ROW = "{s},{v},0.{s},1.{s}"
TABLE = "  {s}000      {v}    6.66e-01    9.{s}7e-01    1.1e-08"


def _log(folder: Path, line: str, head: str = "") -> Path:
    path = folder / "train.log"
    text = "".join(line.format(s=step, v=f"{0.01 - step / 1000:.4f}") + "\n" for step in STEPS)
    path.write_text(head + text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "head", "metric", "others"),
    [
        (VERL, "", "actor/pg_loss", ("actor/entropy_loss", "critic/score/mean", "timing_s/step")),
        (SLIME, "", "train/pg_loss", ("train/entropy_loss", "train/kl_loss")),
        (PPO, "", "policy_loss", ("value_loss", "reward")),
        (OBJECT, "", "actor/pg_loss", ("critic/vf_loss", "reward")),
        (ROW, "step,actor/pg_loss,critic/vf_loss,reward\n", "actor/pg_loss", ("critic/vf_loss", "reward")),
        (TABLE, "# step  rmse_trn  rmse_val  rmse_e_trn  lr\n# a remark\n", "rmse_trn", ("rmse_val", "rmse_e_trn")),
    ],
)
def test_one_of_several_numbers_is_chosen_and_without_it_all_are_listed(
    line: str, head: str, metric: str, others: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = _log(tmp_path, line, head)
    assert main(["loss", str(log)]) == 2
    said = capsys.readouterr().err
    assert "choose one of its numbers with --metric NAME: " in said
    assert all(name in said for name in (metric, *others))
    assert "pid" not in said.partition("--metric NAME: ")[2]
    summary = describe_log(log, metric=metric)
    assert (summary.points, summary.first_value, summary.last_value) == (8, 0.009, 0.002)
    assert set(others) <= {one.name for one in summary.metrics}
    assert main(["loss", str(log), str(log), "--metric", others[0]]) == 0


def test_a_number_beside_a_loss_is_a_metric(tmp_path: Path) -> None:
    head = "DLL 2020-06-03 - Training Epoch: 0 Training Iteration: {s}00  average_loss : 1.4{s}  "
    log = _log(tmp_path, head + "step_loss : {v}  gnorm : 0.{s}")
    assert describe_log(log).first_value == 0.009
    assert describe_log(log, metric="average_loss").first_value == 1.41
    assert describe_log(log, metric="gnorm").last_value == 0.8
    with pytest.raises(CannotRunError, match="has no metric 'grad'"):
        describe_log(log, metric="grad")


@pytest.mark.parametrize("last", [600, 1000])
def test_numbers_are_kept_in_lines_of_many_layouts(last: int, tmp_path: Path) -> None:
    text = "".join(
        f"it {n} {'x' * (n % 40)}{'y' * (n % 37)} | tokens {n * 10} loss {2.5 - n / last:.4f}\n" for n in range(1, last)
    )
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    series = read_log(tmp_path / "a.log", metric="tokens").series("tokens")
    assert series is not None
    assert series.values.tolist() == [n * 10.0 for n in range(1, last)]


ICEFALL = "2023-05-10 14:20:11,23{r} INFO [train.py:901] ({r}/2) "
FORMATS = {
    "icefall": ICEFALL + "Epoch 1, batch {b}, loss[loss={v}, simple_loss=0.8, over 2500.00 frames. ], "
    "tot_loss[loss=9.1, over 2500.00 frames. ], batch size: 120, lr: 3.00e-05",
    "icefall with a global batch": ICEFALL + "Epoch {e}, batch {i}, global_batch_idx: {b}, batch size: 120, "
    "loss[loss={v}, over 2500.00 frames. ]",
    "slurm": "{r}: step {b} loss {v}",
}


@pytest.mark.parametrize("name", FORMATS)
def test_lines_of_one_rank_are_read(name: str, tmp_path: Path) -> None:
    lines = [
        FORMATS[name].format(r=rank, b=50 * n, i=50 * (n % 3), e=1 + n // 3, v=f"{7 - n / 10 + rank / 100:.3f}")
        for n in range(1, 7)
        for rank in (0, 1)
    ]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    summary = describe_log(tmp_path / "a.log")
    assert (summary.points, summary.first_value, summary.last_value) == (6, 6.9, 6.4)


SWIFT = {"loss": 1.5, "grad_norm": 1.2, "memory(GiB)": 20.1, "learning_rate": 1e-5, "epoch": 0.01}


@pytest.mark.parametrize("printed", [json.dumps, str])
@pytest.mark.parametrize("bar", ["", "Train:   0%|          | 10/11043 [00:10<3:00:00, 1.0s/it]\n"])
def test_a_step_with_its_total_is_read(printed: object, bar: str, tmp_path: Path) -> None:
    rows = [SWIFT | {"loss": 2 - n / 10, "global_step/max_steps": f"{10 * n}/11043"} for n in STEPS]
    text = "".join(bar * (printed is str) + printed(row) + "\n" for row in rows)  # type: ignore[operator]
    (tmp_path / "logging.jsonl").write_text(text, encoding="utf-8")
    summary = describe_log(tmp_path / "logging.jsonl")
    assert (summary.first_step, summary.last_step, summary.cadence) == (10, 80, 10)
    assert (summary.window.kind, summary.last_value) == ("since last print", 1.2)


@pytest.mark.parametrize(("name", "value"), [("name", "data"), ("metric", "value"), ("tag", "scalar")])
def test_one_number_a_line_is_a_table(name: str, value: str, tmp_path: Path) -> None:
    rows = [
        {name: what, "step": n, value: number}
        for n in STEPS
        for what, number in (("train_loss", 2.5 - n / 10), ("lr", 0.1), ("ppl", 9.0 - n))
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    summary = describe_log(tmp_path / "a.jsonl")
    assert (summary.format, summary.points, summary.first_value, summary.last_value) == ("json_series", 8, 2.4, 1.7)
    assert describe_log(tmp_path / "a.jsonl", metric="ppl").last_value == 1.0


@pytest.mark.parametrize("loss", ["train.loss", "train_loss", "loss"])
def test_the_objects_of_dllogger_are_read(loss: str, tmp_path: Path) -> None:
    head = 'DLLL {"type": "LOG", "step": "PARAMETER", "data": {"lr": 0.1}}\n'
    rows = [{"type": "LOG", "step": [0, 100 * n], "data": {loss: 7 - n / 10, "ips": 300.0}} for n in STEPS]
    text = head + "".join(f"DLLL {json.dumps(row)}\n" for row in rows)
    (tmp_path / "a.json").write_text(text + 'DLLL {"type": "LOG", "step": [0], "data": {"val.acc": 0.3}}\n')
    summary = describe_log(tmp_path / "a.json")
    assert (summary.points, summary.first_step, summary.last_step, summary.last_value) == (8, 100, 800, 6.2)


def test_the_bar_of_nemo_has_the_loss_of_the_step_too(tmp_path: Path) -> None:
    head = "Epoch 0:   1%|1  | {n}/77225 [9:06:35<878:01:48, 41.36s/it, loss=3.1, v_num=, "
    line = head + "reduced_train_loss={v:.3f}, global_step={n}.0]"
    text = "".join(line.format(n=n, v=3.3 - n / 100) + "\r" for n in range(1, 9)) + "\n"
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    assert describe_log(tmp_path / "a.log").window.length == 20
    summary = describe_log(tmp_path / "a.log", metric="reduced_train_loss")
    assert (summary.window.kind, summary.first_value, summary.last_value) == ("raw", 3.29, 3.22)


LINES = "Batch({b}/400) done. Loss: {v:.4f}\n"


@pytest.mark.parametrize("header", ["Training epoch: {e}\n", "--- Epoch {e} ---\n", "epoch {e} begins\n"])
@pytest.mark.parametrize("first", [2, 7])
def test_a_log_that_begins_inside_an_epoch_goes_on_with_the_next(header: str, first: int, tmp_path: Path) -> None:
    own = "".join(LINES.format(b=b, v=5 - b / 400) for b in range(200, 400, 20))
    after = "".join(LINES.format(b=b, v=4 - b / 400) for b in range(0, 400, 20))
    log = tmp_path / "tail.log"
    log.write_text(own + header.format(e=first) + after, encoding="utf-8")
    summary = describe_log(log)
    assert (summary.points, summary.first_value) == (30, 4.5)
    assert (summary.first_step, summary.last_step) == (400 * (first - 2) + 201, 400 * (first - 1) + 381)
    assert any(
        f"10 records above the first line with an epoch are counted to epoch {first - 1}" in n for n in summary.notes
    )
    log.write_text(own + after, encoding="utf-8")
    with pytest.raises(CannotRunError, match="epochs that its lines do not number"):
        describe_log(log)
