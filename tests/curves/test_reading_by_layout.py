"""Lines read by layout give what lines read one by one give: with odd, foreign, blank and cut lines, NaN and inf."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from align.curves import log_sources
from align.curves.log_sources import find_layouts, log_formats
from align.curves.read_logs import read_log
from align.errors import AlignError

if TYPE_CHECKING:
    from pathlib import Path

    from align.curves.log_sources import LineLayouts
    from align.curves.loss_log import LossLog

STEPS, EPOCH = 120, 20
PATTERN = r"Epoch (?P<epoch>\d+)|(?P<validation>val )?loss=(?P<loss>\S+)(?: lr=(?P<lr>\S+))?"


def _value(random_numbers: random.Random, style: str) -> str:
    value = 2 + random_numbers.gauss(0, 0.2)
    if random_numbers.random() < 0.02:
        return random_numbers.choice(["nan", "inf", "-0.25"])
    return format(value, style) if style else repr(value)


def _records(form: str, step: int, value: str) -> list[str]:
    epoch, inside = divmod(step, EPOCH)
    ends = inside == EPOCH - 1
    place = f"[{epoch + 1}/9], batch: [{inside + 1}/{EPOCH}]"
    records = {
        "csv": [f"{step}, {value} ,{0.1 / (1 + epoch)!r}", *(["step,loss,lr"] if step == 70 else [])],
        "jsonl": [
            f'{{"step": {step}, "loss": {value}, "top5": 0.{step}}}',
            *([json.dumps({"step": step, "eval_loss": 1.5, "note": f"epoch {epoch}"})] if ends else []),
        ],
        "lossmonitor": [
            f"epoch: {epoch + 1} step: {inside + 1}, loss is {value}",
            *(["Train epoch time: 250.000 ms, per step time: 12.500 ms"] if ends else []),
        ],
        "mindcv": [f"INFO - Epoch: {place}, loss: {value}, lr: 0.100000, time: 0.0{step}1s"],
        "megatron": [
            f" iteration {step + 1:8d}/{STEPS:8d} | elapsed time per iteration (ms): 3{inside}.1 | lm loss: {value} | "
            f"loss scale: 1.0 | number of skipped iterations: {int(step == 55):3d} |",
            *([f" validation loss at iteration {step + 1} | lm loss value: 2.5E+00 |"] if ends else []),
        ],
        "mmengine": [
            f"mmengine - INFO - Epoch(train) [{epoch + 1}][{inside + 1:2d}/{EPOCH}]  lr: 1.0e-02  eta: 0:00:00  "
            f"time: 0.0014  loss: {value}  loss{1 + step % 2}: 0.5",
            *([f"mmengine - INFO - Epoch(val) [{epoch + 1}][9/9]    acc: 0.5{inside}  time: 0.1"] if ends else []),
        ],
        "lines": [f"[00:00:{inside:02d}] train | iter {step} | loss {value} | acc 0.{step}"],
        "pattern": [
            *([f"Epoch {epoch + 1}"] if not inside else []),
            *([f"val loss={value}"] if ends else [f"loss={value} lr=0.{step}"]),
        ],
    }
    return records[form]


def _log(form: str, style: str, oddity: str) -> str:
    """Write a log of some lines of each layout, not all of them regular."""
    random_numbers = random.Random(f"{form} {style}")
    lines = ["step,loss,lr"] * (form == "csv")
    lines += [line for step in range(STEPS) for line in _records(form, step, _value(random_numbers, style))]
    if oddity == "foreign":
        for line in ("", "   ", "WARNING: 12 things happened", "损失 3.5 ███", "Traceback (most recent call last):"):
            lines.insert(random_numbers.randrange(2, len(lines)), line)
    if oddity == "together":
        lines[40:42] = ["".join(lines[40:42])]
    text = "\n".join(lines)
    return text[:-4] if oddity == "cut" else text + "\n"


def _told(log: LossLog) -> tuple[Any, ...]:
    table = log.table
    columns = (table.lines, table.steps, table.epochs, table.totals, table.skipped)
    metrics = {
        name: (one.rows.tolist(), one.values.tobytes(), one.resolution.tolist(), one.window, one.phase)
        for name, one in table.metrics.items()
    }
    return (
        log.format,
        log.ignored_lines,
        log.notes,
        *(None if one is None else one.tolist() for one in columns),
        metrics,
    )


def _read(path: Path, pattern: str) -> tuple[Any, ...]:
    try:
        return _told(read_log(path, pattern=pattern))
    except AlignError as error:
        return (str(error),)


@pytest.mark.parametrize("oddity", ["", "foreign", "together", "cut"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "lossmonitor", "mindcv", "megatron", "mmengine", "lines", "pattern"])
def test_what_is_read_by_layout_is_what_is_read_line_by_line(
    form: str, oddity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern, path = PATTERN if form == "pattern" else "", tmp_path / "train.log"
    monkeypatch.setattr(log_sources, "MOST_BLOCK_BYTES", 3000)
    found: list[LineLayouts | None] = []
    find_layouts = log_sources.find_layouts
    for style in (".4f", ".6E", ""):
        path.write_text(_log(form, style, oddity), encoding="utf-8")
        monkeypatch.setattr(log_sources, "find_layouts", lambda text: found.append(find_layouts(text)) or found[-1])
        by_layout = _read(path, pattern)
        monkeypatch.setattr(log_sources, "find_layouts", lambda _: None)
        assert by_layout == _read(path, pattern)
        assert len(by_layout) > 1
    assert any(found)


def _other_decimals(sample: bytes, random_numbers: random.Random) -> bytes:
    def drawn(decimals: re.Match[bytes]) -> bytes:
        return bytes(random_numbers.choices(b"0123456789", k=len(decimals[0])))

    return re.sub(rb"(?<=[0-9]\.)[0-9]+", drawn, sample)


@pytest.mark.parametrize("end", [b"", b"\n\nWARNING: 12 things\n", b"loss"])
@pytest.mark.parametrize(
    "name", [name for name, one in log_formats().items() if one.sample and b"\0" not in one.sample]
)
def test_every_format_reads_by_layout_what_it_reads_line_by_line(
    name: str, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, random_numbers = log_formats()[name], random.Random(name)
    again = b"".join(_other_decimals(plugin.sample, random_numbers) for _ in range(12))
    data = plugin.sample + again + end

    def told() -> tuple[Any, ...]:
        try:
            return _told(plugin.read(log_sources.LogSource("train.log", data)))
        except AlignError as error:
            return (str(error),)

    by_layout = told()
    monkeypatch.setattr(log_sources, "find_layouts", lambda _: None)
    assert by_layout == told()


def test_many_layouts_of_one_length_are_told_apart_and_what_varies_in_each() -> None:
    words = [f"{first}{second}" for first in "abcdefg" for second in "tuvwxyz"]
    lines = [f"{word} {number % 7} 1.5" for number in range(20) for word in words]
    layouts = find_layouts("\n".join(lines))
    assert layouts is not None
    assert layouts.samples == tuple(lines[: len(words)])
    assert layouts.kinds.tolist() == [*range(len(words))] * 20
    looked = [one.tolist() for one in layouts.varying if one is not None]
    assert looked
    assert looked == [[False, False, False, True, False, False, False, False]] * len(looked)
