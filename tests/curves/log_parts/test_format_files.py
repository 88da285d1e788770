"""Formats that are data: what a file may say, what is wrong with one, and the page that lists them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.curves.log_parts.table_reader import format_tables, known_tables, read_format_tables, read_known_table
from align.curves.log_sources import LogSource
from align.curves.loss_log import RAW, Window
from align.curves.losslogs.console import console_formats, read_console, read_console_table
from align.curves.place_on_axis import place_on_axis
from align.curves.read_logs import read_log
from align.errors import MappingRuleError

if TYPE_CHECKING:
    from align.curves.loss_log import LossLog
    from align.curves.losslogs.console import ConsoleLines

ROOT = Path(__file__).parents[3]
WHOLE: dict[str, Any] = {
    "name": "own",
    "summary": "an own trainer",
    "has": "it ",
    "lines": "it <step>/<total> loss <loss>",
    "sample": "it 1/2 loss 2.5\n",
    "points": [[1, 2.5]],
}


def _made(**given: Any) -> ConsoleLines:
    return read_console_table(Path("own.toml"), WHOLE | given)


def _read(lines: ConsoleLines, text: str) -> LossLog:
    return read_console(lines, LogSource.of_text(text))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pattern": "x"}, "own: unknown keys pattern; known: bar, counts,"),
        ({"counts": "batches"}, "own: counts must be one of global step, step in epoch, epoch, not 'batches'"),
        ({"lines": "it (<step>"}, "own: missing \\), unterminated subpattern"),
        ({"window": "mean of a few"}, "own: a value of a log cannot be 'mean of a few'"),
        ({"points": [1, 2]}, "own: "),
    ],
)
def test_what_is_wrong_with_a_format_is_told(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(MappingRuleError, match=message):
        _ = _made(**wrong).line


@pytest.mark.parametrize("text", ["[console\n", "[console]\nname = 1\n", "[[consoles]]\n"])
def test_a_file_of_another_kind_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(text, encoding="utf-8")
    with pytest.raises(MappingRuleError):
        read_format_tables(tmp_path / "own.toml")


@pytest.mark.parametrize("wrong", [{"steps": "x"}, {"has": "("}, {"has": ["a", "("]}, {"loss": "("}, {"window": "x"}])
def test_what_is_wrong_with_a_known_table_is_told(wrong: dict[str, Any]) -> None:
    (path, table), *_ = format_tables("table")
    with pytest.raises(MappingRuleError, match=f"{table['name']}: "):
        read_known_table(path, table | wrong)


def test_a_step_that_is_as_large_as_its_total_is_not_counted_from_0() -> None:
    text = "".join(f"it {step}/3 loss {3 - step / 8}\n" for step in (1, 2, 3))
    assert _read(_made(first_step=0), text).base == 1
    assert _read(_made(first_step=0), text.replace("3/3", "0/3")).base == 0


def test_unlike_first_numbers_of_steps_and_epochs_are_brought_to_1() -> None:
    lines = _made(lines="ep <epoch> it <step>/<total> loss <loss>", first_step=0, first_epoch=1)
    curve = place_on_axis(_read(lines, "ep 1 it 0/2 loss 2.5\nep 1 it 1/2 loss 2.25\nep 2 it 0/2 loss 2\n"))
    assert curve.steps.tolist() == [1, 2, 3]


def test_skipped_steps_are_told_by_a_word_or_a_number() -> None:
    words = _made(lines="it <step> loss <loss> over <overflow>"), "it 1 loss 2 over False\nit 2 loss 2 over True\n"
    counts = _made(lines="it <step> loss <loss> skip <skipped>"), "it 5 loss 2 skip 0\nit 9 loss 2 skip 3\n"
    large = _made(lines="it <step> loss <loss> skip <skipped>"), f"it 5 loss 2 skip {'9' * 20}\n"
    assert _read(*large).table.skipped is not None
    told = [_read(*one).table.skipped for one in (words, counts)]
    assert [skipped.tolist() for skipped in told if skipped is not None] == [[0, 1], [0, 3]]


def test_a_loss_that_is_no_number_is_nan_with_a_note() -> None:
    log = _read(_made(), "it 1/3 loss 2.5\nit 2/3 loss None\nit 3/3 loss -nan(ind)\n")
    assert str(log.table.metrics["loss"].values.tolist()) == "[2.5, nan, nan]"
    assert log.notes[:2] == (
        "1 loss is null (first: line 2), kept as NaN",
        "1 loss is no number (first: '-nan(ind)' in line 3), kept as NaN",
    )


def test_windows_and_epochs_are_as_long_as_the_log_says() -> None:
    told = {"window_length": "smooth: ([0-9]+)", "epoch_length": "of ([0-9]+)"}
    text = "smooth: 20\nepochs of 5\nep 1 it 1 loss 2.5\nep 2 it 1 loss 2.25\n"
    log = _read(_made(lines="ep <epoch> it <step> loss <loss>", **told), text)
    assert log.table.metrics["loss"].window == Window("mean of last", 20)
    assert place_on_axis(log).steps.tolist() == [1, 6]
    assert _read(_made(window_length="smooth: ([0-9]+)"), "it 1/2 loss 2\n").table.metrics["loss"].window == RAW


def test_of_a_bar_the_last_line_at_a_step_counts() -> None:
    text = "it 1/2 loss 2.5\rit 1/2 loss 2.25\rit 2/2 loss 2\n"
    assert _read(_made(bar=True), text).table.metrics["loss"].values.tolist() == [2.25, 2.0]


def test_a_format_of_its_own_is_chosen_before_the_lines_alone_tell(tmp_path: Path) -> None:
    (caffe,) = (lines for lines in console_formats() if lines.name == "caffe")
    path = tmp_path / "train.log"
    path.write_text("average_loss: 20\n" + caffe.sample, encoding="utf-8")
    assert read_log(path).format == "caffe"
    assert read_log(path).table.metrics["loss"].window == Window("mean of last", 20)
    assert read_log(path, format="lines").table.metrics["loss"].window == RAW


def _row(name: str, summary: str, window: Window, first: int | None) -> str:
    length = f" {window.length}" if window.length > 1 else ""
    kind = "one step" if window == RAW else f"{window.kind}{length}"
    shown = summary.replace("|", "\\|")
    return f"| `{name}` | {shown} | {'' if first is None else first} | {kind} |"


def test_the_page_lists_all_of_them() -> None:
    page = (ROOT / "docs" / "log-formats.md").read_text(encoding="utf-8").splitlines()
    consoles = [
        _row(one.name, one.summary, one.window, one.first_epoch if one.first_step is None else one.first_step)
        for one in console_formats()
    ]
    tables = [_row(one.name, one.summary, one.window, one.first_step) for one in known_tables()]
    assert [line for line in page if line.startswith("| `")] == [*consoles, *tables]
