"""Logs that no format knows, read by their lines: what is taken, what is told, and what is refused."""

from __future__ import annotations

import json
import random
import shlex
from typing import TYPE_CHECKING

import pytest

from align.curves.compare_losses import LogReading, compare_losses
from align.curves.place_on_axis import place_on_axis
from align.errors import (
    AlignError,
    EmptyLogError,
    MixedProcessesError,
    SeveralLossesError,
    SeveralRunsError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from align.curves.loss_log import LossLog

LOSSES = [2.5, 2.25, 2.375, 2.0, 1.875, 1.75]
STAMP = "2026-11-20 10:00:00,123"


def _epochs(line: str, lengths: int = 3) -> str:
    """Write a line for each of two epochs of three steps; `i` counts in the epoch from 1, `n` over all."""
    return "".join(
        line.format(e=index // lengths + 1, i=index % lengths + 1, n=index + 1, z=index % lengths, loss=loss) + "\n"
        for index, loss in enumerate(LOSSES)
    )


# Quoted in manner from the consoles of many trainers; none of them is a format of its own here.
STEPS = {
    "brackets": _epochs(STAMP + ":INFO:epoch[{e}], iter[{n}], loss:{loss:.6f}, fps:44.4 imgs/sec, lr:0.0001"),
    "totals": _epochs("epoch: [{e}/2] step: [{i}/3], loss: {loss}, lr: 0.1"),
    "words": _epochs("step: {n}, loss: {loss}, overflow:False, scale:1024.0"),
    "averages": _epochs("Epoch: [{e}][{i}/3]\tTime  0.5 ( 1.2)\tLoss {loss:.4e} (2.5e+00)\tAcc@1  3.1 ( 2.0)"),
    "phase alone": _epochs("Train: {e} [{i}/3 ( 10%)]  Loss: {loss} (2.7)  Time: 4.5s,  LR: 1.0e-06"),
    "equals": _epochs("INFO:tensorflow:loss = {loss}, step = {n} (9.5 sec)"),
    "glued": _epochs("epoch{e} iter{i}/3 trainLoss={loss}"),
    "beside parts": _epochs("iter: {n}  loss_cls: 1.5  loss_box: 0.5  total_loss: {loss}  time: 0:00:10"),
    "validation between": "step:0/6 val_loss:9.9\n"
    + _epochs("step:{n}/6 train_loss:{loss} t:1ms\nstep:{n}/6 val_loss:9"),
    "marked validation": _epochs(
        "epoch:[ {e}/2 ] train step:{i}/3 loss: {loss} lr: 0.1\nepoch:[ {e}/2 ] val step:{i}/3 loss: 9"
    ),
    "no name": "0 val 9.9\n" + _epochs("{n} train {loss}") + "6 val 9.5\n",
    "bracket": _epochs("[{n:5d}] loss: {loss}"),
    "pair": _epochs("[{e},  {i}] loss: {loss}"),
    "range": _epochs("(trainer:486) INFO: {e}epoch:train:{z}-{i}batch: iter_time=0.001, loss={loss}, lr_0=0.1"),
    "chinese": _epochs("轮次: {e}/2, 步数: {i}, 损失：{loss}, 学习率: 0.1"),
    "fixed total": _epochs("total_steps: 6, lr: 0.1, current_steps: {n}, loss: {loss}"),
    "above": _epochs("[step={n}/100]\n    optim/grad_norm=5.1\n    train/CrossEntropyLoss={loss}\n    speed=4,194"),
}


def _read(folder: Path, text: str, **given: object) -> LossLog:
    path = folder / "train.log"
    path.write_text(text, encoding="utf-8")
    given = given if "pattern" in given else {"format": "lines", **given}
    return LogReading(**given).read(path)  # type: ignore[arg-type]


def _points(log: LossLog) -> list[tuple[int, float]]:
    curve = place_on_axis(log)
    return list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))


@pytest.mark.parametrize("name", STEPS)
def test_a_log_of_no_known_format_is_read_by_its_lines(name: str, tmp_path: Path) -> None:
    log = _read(tmp_path, STEPS[name])
    assert log.format == "lines"
    assert _points(log) == list(enumerate(LOSSES, 1))


@pytest.mark.parametrize("name", STEPS)
def test_the_pattern_that_is_printed_does_the_same(name: str, tmp_path: Path) -> None:
    log = _read(tmp_path, STEPS[name])
    by_hand = _by_hand(log)
    assert _points(_read(tmp_path, STEPS[name], **by_hand)) == _points(log)


def _by_hand(log: LossLog) -> dict[str, object]:
    told = next(note for note in log.notes if note.startswith("to give the same by hand: "))
    words = shlex.split(told.removeprefix("to give the same by hand: "))
    return {
        option.removeprefix("--").replace("-", "_"): value
        for option, value in zip(words[::2], words[1::2], strict=True)
    }


@pytest.mark.parametrize("name", STEPS)
def test_lines_between_blank_lines_and_a_second_copy_change_nothing(name: str, tmp_path: Path) -> None:
    text = STEPS[name]
    mixed = text.replace("\n", "\n\nWARNING: 17 workers of rank 3 are slow\n")
    assert _points(_read(tmp_path, mixed)) == _points(_read(tmp_path, text + text)) == list(enumerate(LOSSES, 1))


@pytest.mark.parametrize("name", STEPS)
def test_a_shuffled_log_is_sorted_or_refused(name: str, tmp_path: Path) -> None:
    lines = STEPS[name].splitlines(keepends=True)
    random.Random(3).shuffle(lines)
    try:
        read = _points(_read(tmp_path, "".join(lines)))
    except AlignError:
        assert name == "above"
    else:
        assert read == list(enumerate(LOSSES, 1))


@pytest.mark.parametrize("name", ["brackets", "words", "equals", "no name"])
def test_a_last_line_that_was_cut_is_left_out(name: str, tmp_path: Path) -> None:
    text = STEPS[name].removesuffix("6 val 9.5\n").rstrip("\n")
    whole = _points(_read(tmp_path, STEPS[name]))
    cut = _read(tmp_path, text[:-3])
    assert _points(cut) == whole[:-1]
    assert "the last line was cut: it is left out" in cut.notes
    assert _points(_read(tmp_path, text)) == whole


@pytest.mark.parametrize("order", [("loss", "iter"), ("iter", "loss")])
def test_objects_of_json_that_are_cut_are_read_by_themselves_or_refused(order: tuple[str, str], tmp_path: Path) -> None:
    told = [{"loss": loss, "iter": step} for step, loss in enumerate(LOSSES, 1)]
    text = json.dumps({"iter": 6, "history": [{name: one[name] for name in order} for one in told]}, indent=1)
    cut = text[: text.rindex("{")]
    if order == ("iter", "loss"):
        assert _points(_read(tmp_path, cut)) == list(enumerate(LOSSES, 1))[:-1]
    else:
        with pytest.raises(EmptyLogError):
            _read(tmp_path, cut)


def test_it_says_what_it_took_on_a_line_of_the_log(tmp_path: Path) -> None:
    log = _read(tmp_path, STEPS["totals"])
    assert "read as epoch: [<epoch 2>/2] step: [<step 1>/<total 3>], loss: <loss 2.0>, lr: <lr 0.1>" in log.notes[0]
    assert [series.values.tolist() for name, series in log.table.metrics.items() if name == "lr"] == [[0.1] * 6]


def test_epochs_above_records_number_their_steps(tmp_path: Path) -> None:
    text = (
        "".join(
            f"Epoch {epoch}/2\n"
            + "".join(f"  {step}/3 [====>..] - ETA: 1s - loss: {epoch - step / 8}\n" for step in (1, 2, 3))
            for epoch in (1, 2)
        )
        .replace("  1/3 [", "[1/3] [")
        .replace("  2/3 [", "[2/3] [")
        .replace("  3/3 [", "[3/3] [")
    )
    log = _read(tmp_path, text)
    assert [step for step, _ in _points(log)] == [1, 2, 3, 4, 5, 6]
    assert _points(_read(tmp_path, text, **_by_hand(log))) == _points(log)


def test_a_moving_bar_tells_each_step_once(tmp_path: Path) -> None:
    text = "\r".join(
        f"Epoch 0:  {step}%|{'█' * step}   | {step}/18 [00:08<02:29, 8.77s/it, loss={loss}]"
        for step in range(1, 6)
        for loss in (3.5 - (step - 1) / 8, 3.5 - step / 8)
    )
    assert _points(_read(tmp_path, text + "\n")) == [(step, 3.5 - step / 8) for step in range(1, 6)]


def test_epochs_alone_with_the_loss_some_lines_below(tmp_path: Path) -> None:
    text = "".join(
        f"t: Epoch {e}\nt: Current learning rate: 0.01\nt: train_loss {loss}\nt: val_loss 9\n"
        for e, loss in enumerate(LOSSES)
    )
    log = _read(tmp_path, text)
    assert (log.counting, _points(log)) == ("epoch", list(enumerate(LOSSES, 1)))


def test_steps_are_counted_from_0_where_their_distance_shows_it(tmp_path: Path) -> None:
    text = "".join(
        f"eta: 0:01:00  iter: {20 * n - 1}  total_loss: {loss}  lr: 1e-4\n" for n, loss in enumerate(LOSSES, 1)
    )
    log = _read(tmp_path, text)
    assert [step for step, _ in _points(log)] == [20, 40, 60, 80, 100, 120]
    assert _by_hand(log)["base"] == "0"
    plain = _read(tmp_path, text.replace("19 ", "20 ").replace("9  total", "0  total"))
    assert "base" not in _by_hand(plain)


def test_a_faulty_port_is_found_between_two_unknown_formats_and_its_clean_twin_passes(tmp_path: Path) -> None:
    reference, port = tmp_path / "a.log", tmp_path / "b.log"
    reference.write_text(STEPS["glued"], encoding="utf-8")
    port.write_text(STEPS["beside parts"], encoding="utf-8")
    assert compare_losses(reference, port).verdict.outcome.value == "aligned"
    port.write_text(STEPS["beside parts"].replace("2.375", "2.875"), encoding="utf-8")
    faulty = compare_losses(reference, port).verdict
    assert faulty.outcome.value == "not aligned"


def test_several_numbers_that_could_be_the_loss_are_refused(tmp_path: Path) -> None:
    text = _epochs("[Epoch {e}/2] [Batch {i}/3] [D loss: {loss}] [G loss: 0.5]")
    with pytest.raises(SeveralLossesError, match="line 4 shows: D loss, G loss"):
        _read(tmp_path, text)
    settled = _read(
        tmp_path,
        text,
        pattern=r"Epoch (?P<epoch>\d+)/\d+\] \[Batch (?P<step>\d+)/(?P<total>\d+)\] \[D loss: (?P<loss>[\d.]+)",
    )
    assert _points(settled) == list(enumerate(LOSSES, 1))


def test_epochs_without_a_number_and_a_short_last_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SeveralRunsError):
        _read(tmp_path, _epochs("[{i}/3] loss: {loss} time: 3"))
    with pytest.raises(SeveralRunsError, match=r"1 steps \(from line 7 on\) would replace"):
        _read(tmp_path, STEPS["words"] + "step: 1, loss: 3.5, overflow:False, scale:1.0\n")


def test_a_loss_above_its_step_is_no_record_of_the_step_before(tmp_path: Path) -> None:
    text = "".join(
        f"-----\n| grad_norm | 0.5 |\n| loss | {loss} |\n| step | {10 * n} |\n" for n, loss in enumerate(LOSSES)
    )
    with pytest.raises(EmptyLogError):
        _read(tmp_path, text)
    pattern = r"loss \| (?P<loss>\S+).*\n.*step \| (?P<step>\d+)"
    assert _points(_read(tmp_path, text, pattern=pattern)) == [(10 * n + 1, loss) for n, loss in enumerate(LOSSES)]


def test_an_overflow_in_the_line_counts_skipped_steps(tmp_path: Path) -> None:
    log = _read(tmp_path, STEPS["words"].replace("False", "True", 1))
    assert log.table.skipped is not None
    assert log.table.skipped.tolist() == [1, 0, 0, 0, 0, 0]
    assert _read(tmp_path, STEPS["words"]).table.skipped is None


def test_an_epoch_that_never_changes_proves_no_count_from_0(tmp_path: Path) -> None:
    text = "".join(f"[step={n}/7000,epoch=0] loss={loss}\n" for n, loss in enumerate(LOSSES, 1))
    assert _points(_read(tmp_path, text)) == list(enumerate(LOSSES, 1))


def test_one_run_in_two_formats_is_aligned_and_a_faulty_copy_is_not(tmp_path: Path) -> None:
    console, table = tmp_path / "console.log", tmp_path / "table.csv"
    console.write_text(_epochs("epoch: [{e}/2] step: [{i}/3], loss: {loss:.4f}, lr: 0.1, per step time: 20 ms"))
    rows = [f"{n},{loss}" for n, loss in enumerate(LOSSES)]
    table.write_text("\n".join(["step,loss", *rows]) + "\n", encoding="utf-8")
    assert compare_losses(console, table).verdict.outcome.value == "aligned"
    table.write_text("\n".join(["step,loss", *rows[:3], "3,2.5", *rows[4:]]) + "\n", encoding="utf-8")
    assert compare_losses(console, table).verdict.outcome.value == "not aligned"


def test_ranks_without_a_prefix_are_refused(tmp_path: Path) -> None:
    text = "".join(f"epoch {e} step 5 loss {2 + rank / 8}\n" for e in (1, 2) for rank in range(8))
    with pytest.raises(MixedProcessesError):
        place_on_axis(_read(tmp_path, text))


NO_LOGS = {
    "evaluation": _epochs("Test: [{i}/3] Loss {loss} (2.5) Acc 3.1"),
    "prose": "We trained for 3 epochs. After step 500 the loss was 0.3.\nAt step 700 the loss was 0.2: done.\n",
    "compiler": _epochs("[{n}/90] Building CXX object src/loss_{n}.cpp.o\nsrc/a.cpp:{n}:3: warning: loss of precision"),
    "tests": _epochs("test_train.py::test_loss_at_step[{n}] PASSED [ {n}%]"),
    "ping": _epochs("64 bytes: icmp_seq={n} ttl=64 time=1.5 ms") + "5 packets, 0% packet loss, time 4005ms\n",
    "settings": "epochs: 3\nlr: 0.1\nloss_weight: 0.5\nloss: 3\nsteps: 10\nlog_interval: 5\n",
    "search": _epochs("trial {n} epoch 10 best loss {loss}"),
    "JSON": '{"runs": [{"epoch": 3, "objective": "loss 0.5"}, {"epoch": 4, "objective": "loss 0.4"}]}',
}


@pytest.mark.parametrize("name", NO_LOGS)
def test_what_is_no_training_log_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(EmptyLogError):
        _read(tmp_path, NO_LOGS[name])


def test_a_known_format_is_not_asked_for_twice(tmp_path: Path) -> None:
    text = "epoch: 1 step: 1, loss is 2.5\nepoch: 1 step: 2, loss is 2.25\n"
    assert _read(tmp_path, text, format=None).format == "lossmonitor"
    assert _points(_read(tmp_path, text, format="lines")) == [(1, 2.5), (2, 2.25)]
