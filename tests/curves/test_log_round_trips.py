"""A curve written as the loggers do reads back the same, whatever the format; one that was damaged is never made up."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from align.curves.log_sources import LogSource, log_formats
from align.curves.place_on_axis import place_on_axis
from align.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LENGTH, EPOCHS = 5, 9
STAMP = "2026-11-20 23:15:44"


@dataclass(frozen=True)
class Writer:
    """How a logger writes losses, the first at step 1, epochs of LENGTH steps; `printed` is one as it prints it."""

    lines: Callable[[list[float]], Iterator[str]]
    printed: str = "r"

    def text(self, losses: list[float]) -> str:
        return "".join(f"{line}\n" for line in self.lines(losses))

    def shown(self, losses: list[float]) -> list[float]:
        return losses if self.printed == "r" else [float(format(loss, self.printed)) for loss in losses]


def _places(losses: list[float]) -> Iterator[tuple[int, int, int, float]]:
    for index, loss in enumerate(losses):
        yield index + 1, index // LENGTH + 1, index % LENGTH + 1, loss


def _csv(losses: list[float]) -> Iterator[str]:
    yield "global_step,lr,loss"
    for step, _, _, loss in _places(losses):
        yield f"{step},0.1,{loss!r}"


def _csv_of_epochs(losses: list[float]) -> Iterator[str]:
    yield "Epoch; Batch; Train Loss"
    for _, epoch, inside, loss in _places([*losses, 1.0]):
        yield f"{epoch}; {inside}; {loss!r}"


def _jsonl(losses: list[float]) -> Iterator[str]:
    for step, _, _, loss in _places(losses):
        yield json.dumps({"step": step, "loss": loss, "note": "a: b"})


def _trainer_state(losses: list[float]) -> Iterator[str]:
    history = [{"step": step, "loss": loss, "epoch": step / LENGTH} for step, _, _, loss in _places(losses)]
    yield json.dumps({"global_step": len(losses), "log_history": history}, indent=2)


def _lightning(losses: list[float]) -> Iterator[str]:
    yield "epoch,lr-SGD,step,train_loss_epoch,train_loss_step"
    for step, epoch, inside, loss in _places(losses):
        yield f",0.1,{step - 1},,"
        yield f"{epoch - 1},,{step - 1},,{loss!r}"
        if inside == LENGTH:
            yield f"{epoch - 1},,{step - 1},0.5,"


def _lossmonitor(losses: list[float]) -> Iterator[str]:
    for _, epoch, inside, loss in _places(losses):
        yield f"epoch: {epoch} step: {inside}, loss is {loss!r}"
        if inside == LENGTH:
            yield "Train epoch time: 50.000 ms, per step time: 10.000 ms (data time: 0.250 ms)"


def _mindcv(losses: list[float]) -> Iterator[str]:
    for _, epoch, inside, loss in _places(losses):
        place = f"Epoch: [{epoch}/{EPOCHS}], batch: [{inside}/{LENGTH}]"
        yield f"[{STAMP}] mindcv.utils.callbacks INFO - {place}, loss: {loss:.6f}, lr: 0.100000, time: 0.745625s"


def _mindformers(losses: list[float]) -> Iterator[str]:
    means = accumulate(losses)
    for (_, epoch, inside, loss), total in zip(_places(losses), means, strict=True):
        place = f"Epoch:[{epoch:3d}/{EPOCHS:3d}], step:[{inside:5d}/{LENGTH:5d}]"
        rest = "per_step_time: 6ms, lr: [2.4499998e-06], overflow cond: False, loss_scale: 1024.0, global_norm: [1.87]"
        yield f"{STAMP},838 - mindformers[callback.py:377] - INFO - {{ {place}, loss:[{loss:5.3f}/{total:5.3f}], {rest}"


def _megatron(losses: list[float]) -> Iterator[str]:
    for step, _, _, loss in _places(losses):
        yield (
            f" [{STAMP}] iteration {step:8d}/{len(losses):8d} | consumed samples: {8 * step:12d} |"
            f" elapsed time per iteration (ms): 412.7 | learning rate: 1.500000E-06 | global batch size:     8 |"
            f" lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 21.337 | number of skipped iterations:   0 |"
            f" number of nan iterations:   0 |"
        )


def _torchtitan(losses: list[float]) -> Iterator[str]:
    for step, _, _, loss in _places(losses):
        yield (
            f"[titan] {STAMP},858 - root - INFO - step: {step:2}  loss: {loss:8.5f}  grad_norm:  0.7858"
            f"  memory:  0.90GiB(1.25%)  tps: 2,364  tflops: 0.10  mfu: 0.10%"
        )


def _mmengine(losses: list[float]) -> Iterator[str]:
    for _, epoch, inside, loss in _places(losses):
        place = f"Epoch(train) [{epoch}][{inside}/{LENGTH}]"
        yield (
            f"2026/11/20 08:34:15 - mmengine - INFO - {place}  lr: 1.0000e-02  eta: 0:00:00  time: 0.0014  "
            f"data_time: 0.0008  loss: {loss:.4f}"
        )


def _mmengine_scalars(losses: list[float]) -> Iterator[str]:
    for step, epoch, _, loss in _places(losses):
        numbers = {"lr": 0.01, "data_time": 0.0008, "loss": loss, "time": 0.001, "epoch": epoch}
        yield json.dumps({**numbers, "iter": step, "step": step})


def _paddlenlp(losses: list[float]) -> Iterator[str]:
    for step, _, _, loss in _places(losses):
        yield (
            f"[{STAMP},781] [    INFO] - loss: {loss:.8f}, learning_rate: 0.04688, global_step: {step}, "
            f"interval_runtime: 0.0517, interval_steps_per_second: 19.3502, progress_or_epoch: {step / LENGTH}"
        )


WRITERS = {
    "csv": Writer(_csv),
    "hf_trainer_state": Writer(_trainer_state),
    "jsonl": Writer(_jsonl),
    "lightning": Writer(_lightning),
    "lossmonitor": Writer(_lossmonitor),
    "megatron": Writer(_megatron, ".6E"),
    "mindcv": Writer(_mindcv, ".6f"),
    "mindformers": Writer(_mindformers, ".3f"),
    "mmengine": Writer(_mmengine, ".4f"),
    "mmengine_scalars": Writer(_mmengine_scalars),
    "paddlenlp": Writer(_paddlenlp, ".8f"),
    "torchtitan": Writer(_torchtitan, ".5f"),
}
finite = st.one_of(st.floats(min_value=1e-3, max_value=1e3), st.floats(width=32, min_value=0, max_value=1024))
losses_of_any_kind = st.one_of(finite, st.sampled_from([math.nan, math.inf]))
every_writer = pytest.mark.parametrize("name", WRITERS)


def _curve(name: str, text: str) -> tuple[list[int], list[float], tuple[str, ...]]:
    source = LogSource.of_text(text)
    assert [other for other, plugin in log_formats().items() if plugin.recognizes(source)] == [name]
    curve = place_on_axis(log_formats()[name].read(source))
    return curve.steps.tolist(), curve.values.tolist(), curve.notes


@settings(max_examples=20)
@given(st.lists(losses_of_any_kind, min_size=1, max_size=LENGTH * EPOCHS))
@every_writer
def test_a_curve_reads_back_as_it_was_printed(name: str, losses: list[float]) -> None:
    steps, values, _ = _curve(name, WRITERS[name].text(losses))
    assert steps == list(range(1, len(losses) + 1))
    np.testing.assert_array_equal(values, WRITERS[name].shown(losses))


@settings(max_examples=30)
@given(st.lists(finite, min_size=1, max_size=LENGTH * EPOCHS))
def test_a_table_that_counts_inside_epochs_reads_back_the_same(losses: list[float]) -> None:
    steps, values, _ = _curve("csv", Writer(_csv_of_epochs).text(losses))
    assert (steps, values) == (list(range(1, len(losses) + 2)), [*losses, 1.0])


@settings(max_examples=20)
@given(st.lists(finite, min_size=2, max_size=LENGTH * EPOCHS), st.data())
@every_writer
def test_a_log_cut_anywhere_gives_only_what_the_whole_one_has(
    name: str, losses: list[float], data: st.DataObject
) -> None:
    text = WRITERS[name].text(losses)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        steps, values, notes = _curve(name, cut) if _is_known(cut) else ([], [], ())
    except CannotRunError:
        return
    is_whole = cut.endswith("\n") or cut == text.rstrip()  # all records are there, and perhaps not what stands below
    assert len(steps) < len(losses) or notes or is_whole
    whole = dict(zip(range(1, len(losses) + 1), WRITERS[name].shown(losses), strict=True))
    kept = steps if not any("no line end" in note for note in notes) else steps[:-1]
    assert [whole[step] for step in kept] == values[: len(kept)]


def _is_known(text: str) -> bool:
    return any(plugin.recognizes(LogSource.of_text(text)) for plugin in log_formats().values())


@settings(max_examples=20)
@given(st.lists(finite, min_size=2, max_size=LENGTH * EPOCHS), st.randoms(use_true_random=False))
@every_writer
def test_shuffled_and_repeated_lines_are_told_or_refused(name: str, losses: list[float], random) -> None:
    head, *lines = (
        list(WRITERS[name].lines(losses)) if name in ("csv", "lightning") else ["", *WRITERS[name].lines(losses)]
    )
    repeated = [*lines, *random.sample(lines, random.randint(0, len(lines)))]
    random.shuffle(repeated)
    try:
        steps, values, notes = _curve(name, "\n".join([head, *repeated]).lstrip("\n") + "\n")
    except CannotRunError:
        return
    whole = list(zip(range(1, len(losses) + 1), WRITERS[name].shown(losses), strict=True))
    assert list(zip(steps, values, strict=True)) == whole or notes
