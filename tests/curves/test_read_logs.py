"""Loss logs as they lie on disk: packed, in folders, in several files, of several ranks."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from align.curves.log_sources import LogSource
from align.curves.place_on_axis import place_on_axis
from align.curves.read_logs import read_log, shown_lines
from align.curves.thresholds import LOG_HEAD_BYTES
from align.errors import (
    AmbiguousLogError,
    EmptyLogError,
    MissingFileError,
    UnknownLogError,
    UnreadableLogError,
    UsageError,
)


def _csv(steps: range) -> str:
    return "step,loss\n" + "".join(f"{step},{step / 8}\n" for step in steps)


def _monitor(steps: range) -> str:
    return "".join(f"epoch: 1 step: {step}, loss is {step / 8}\n" for step in steps)


def _write(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def test_a_packed_log_is_told_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(gzip.compress(_csv(range(1, 9)).encode()))
    assert place_on_axis(read_log(tmp_path / "train.log")).steps.tolist() == list(range(1, 9))
    plain = _write(tmp_path, plain__gz=_csv(range(1, 4))) / "plain.gz"
    assert read_log(str(plain)).table.steps.tolist() == [1, 2, 3]


@pytest.mark.parametrize("keep", [slice(0, -9), slice(0, 12)], ids=["cut at the end", "cut in the header"])
def test_a_damaged_packed_log_is_refused(tmp_path: Path, keep: slice) -> None:
    (tmp_path / "train.log.gz").write_bytes(gzip.compress(_csv(range(1, 999)).encode())[keep])
    with pytest.raises(UnreadableLogError, match=r"cannot read the log .*train\.log\.gz"):
        read_log(tmp_path / "train.log.gz")


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    _write(tmp_path, empty__log="")
    with pytest.raises(UnreadableLogError, match="it is empty"):
        read_log(tmp_path / "empty.log")
    with pytest.raises(MissingFileError):
        read_log(tmp_path / "none.log")
    (tmp_path / "none").mkdir()
    with pytest.raises(UnreadableLogError, match="the folder has no files"):
        read_log(tmp_path / "none")
    with pytest.raises(UsageError, match="no log is given"):
        read_log([])
    if Path("/proc/self/mem").exists():
        with pytest.raises(UnreadableLogError, match="Input/output error"):
            read_log("/proc/self/mem")


def test_binary_garbage_and_a_folder_without_logs_are_told_so(tmp_path: Path) -> None:
    (tmp_path / "model.ckpt").write_bytes(bytes(range(256)) * 9000)
    _write(tmp_path, notes__txt="nothing here\n", empty__log="", blank__log="\n \n")
    for log in (tmp_path, tmp_path / "model.ckpt", tmp_path / "blank.log"):
        with pytest.raises(UnknownLogError, match="no line has a step") as caught:
            read_log(log)
        assert "`align plugins` lists the formats" in caught.value.hint


def test_all_files_that_are_no_logs_are_named_together(tmp_path: Path) -> None:
    _write(tmp_path, a__log="nothing\n", b__log="nothing\n", c__log=_csv(range(1, 3)))
    with pytest.raises(EmptyLogError, match=r"a\.log, .*b\.log: no line has a step"):
        read_log([tmp_path / name for name in ("a.log", "c.log", "b.log")])


def test_the_logs_of_a_folder_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    _write(tmp_path, run_10__csv=_csv(range(5, 7)), run_2__csv=_csv(range(1, 5)), notes__txt="nothing\n")
    (tmp_path / "model.ckpt").write_bytes(bytes(999))
    log = read_log(tmp_path)
    assert log.table.steps.tolist() == [1, 2, 3, 4, 5, 6]
    assert log.notes[0].endswith("run_2.csv, " + str(tmp_path / "run_10.csv"))
    assert log.label == str(tmp_path)


def test_files_that_a_logger_turned_over_come_before_the_latest(tmp_path: Path) -> None:
    _write(tmp_path, info__log=_monitor(range(5, 7)))
    for age, steps in ((1, range(3, 5)), (2, range(1, 3))):
        (tmp_path / f"info.log.{age}").write_text(_monitor(steps), encoding="utf-8")
    assert read_log(tmp_path).table.steps.tolist() == [1, 2, 3, 4, 5, 6]


def test_files_that_are_given_are_read_in_their_order(tmp_path: Path) -> None:
    _write(tmp_path, b__csv=_csv(range(1, 4)), a__csv=_csv(range(4, 6)))
    assert read_log([tmp_path / "b.csv", str(tmp_path / "a.csv")]).table.steps.tolist() == [1, 2, 3, 4, 5]


def test_two_formats_are_refused_unless_one_is_named(tmp_path: Path) -> None:
    _write(tmp_path, a__csv=_csv(range(1, 4)), b__log=_monitor(range(1, 3)))
    with pytest.raises(AmbiguousLogError, match=r"csv: .*a\.csv\n  lossmonitor: .*b\.log") as caught:
        read_log(tmp_path)
    assert "--format" in caught.value.hint
    assert read_log(tmp_path, format="lossmonitor").table.steps.tolist() == [1, 2]
    mixed = _write(tmp_path, mixed__log=_csv(range(1, 4)) + _monitor(range(1, 3))) / "mixed.log"
    with pytest.raises(AmbiguousLogError, match="several log formats: csv, lossmonitor"):
        read_log(mixed)
    assert read_log(mixed, format="csv").table.steps.tolist() == [1, 2, 3]


def test_an_unknown_format_and_one_that_finds_nothing_are_told(tmp_path: Path) -> None:
    log = _write(tmp_path, a__csv=_csv(range(1, 4))) / "a.csv"
    with pytest.raises(UsageError, match="no log format 'lossmonitr'") as caught:
        read_log(log, format="lossmonitr")
    assert "lossmonitor" in caught.value.hint
    with pytest.raises(EmptyLogError, match="looked for:\n  MindSpore LossMonitor") as found_nothing:
        read_log(log, format="lossmonitor")
    assert "leave the format out" in found_nothing.value.hint


def test_of_a_folder_of_many_formats_a_few_files_of_each_are_named(tmp_path: Path) -> None:
    for number in range(50):
        _write(tmp_path, **{f"a{number}__csv": _csv(range(1, 4)), f"b{number}__log": _monitor(range(1, 3))})
    with pytest.raises(AmbiguousLogError, match=r"a2\.csv and 47 more\n  lossmonitor: .* and 47 more") as caught:
        read_log(tmp_path)
    assert len(str(caught.value).splitlines()) < 6


def test_an_own_pattern_takes_the_place_of_a_format(tmp_path: Path) -> None:
    log = _write(tmp_path, own__log="[rank0]: at 1 err 2.5\n[rank1]: at 1 err 9\n[rank0]: at 2 err 2.25\n") / "own.log"
    own = r"rank0\]: at (?P<step>\d+) err (?P<loss>\S+)"
    assert read_log(log, pattern=own).table.metrics["loss"].values.tolist() == [2.5, 2.25]
    assert read_log(log, pattern=own[9:], rank=1).table.metrics["loss"].values.tolist() == [9]
    with pytest.raises(UsageError, match="both"):
        read_log(log, pattern=own, format="csv")
    with pytest.raises(EmptyLogError) as caught:
        read_log(log, pattern=r"(?P<step>\d+) zzz(?P<loss>\S+)")
    assert r"'(?P<step>\d+) zzz" in str(caught.value)
    assert "try the expression" in caught.value.hint


def test_the_first_losses_may_come_after_much_else(tmp_path: Path) -> None:
    noise = "warning: nothing to see\n" * (3 * LOG_HEAD_BYTES // 24)
    log = read_log(_write(tmp_path, late__log=noise + _monitor(range(1, 4))) / "late.log")
    assert log.table.steps.tolist() == [1, 2, 3]
    assert log.ignored_lines == noise.count("\n")


def test_the_lowest_rank_of_an_interleaved_log_is_read_with_a_note(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: epoch: 1 step: {step}, loss is {rank}.5\n" for step in (1, 2) for rank in (1, 0)]
    log = _write(tmp_path, all__log="".join(lines)) / "all.log"
    assert read_log(log).table.metrics["loss"].values.tolist() == [0.5, 0.5]
    assert "the log has lines of ranks 0, 1: only those of rank 0 are read" in read_log(log).notes
    assert (read_log(log).table.lines.tolist(), read_log(log).ignored_lines) == ([2, 4], 2)
    assert read_log(log, rank=1).table.metrics["loss"].values.tolist() == [1.5, 1.5]
    with pytest.raises(UsageError, match="no lines of rank 7: it has ranks 0, 1"):
        read_log(log, rank=7)


def test_where_only_the_last_rank_prints_losses_its_lines_are_read(tmp_path: Path) -> None:
    lines = [f"[default0]:setup {step}\n[default3]:epoch: 1 step: {step}, loss is 2.5\n" for step in (1, 2)]
    log = read_log(_write(tmp_path, all__log="".join(lines)) / "all.log")
    assert log.table.lines.tolist() == [2, 4]
    assert "the log has lines of ranks 0, 3: only those of rank 3 are read" in log.notes


def test_a_rank_that_prints_only_after_long_lines_of_others_is_found(tmp_path: Path) -> None:
    start = "[default0]: some argument ................ None\n" * (LOG_HEAD_BYTES // 40)
    iterations = "".join(f"[default7]:{line}\n" for line in _monitor(range(1, 4)).splitlines())
    log = _write(tmp_path, all__log=start + iterations) / "all.log"
    assert read_log(log).table.steps.tolist() == read_log(log, rank=7).table.steps.tolist() == [1, 2, 3]
    with pytest.raises(EmptyLogError):
        read_log(log, rank=0)


def test_losses_of_nobody_are_read_with_the_lines_of_the_lowest_rank(tmp_path: Path) -> None:
    lines = "".join(f"[rank{rank}]: setup\n" for rank in (3, 1)) + _monitor(range(1, 4))
    log = read_log(_write(tmp_path, all__log=lines) / "all.log")
    assert log.table.steps.tolist() == [1, 2, 3]
    assert "the log has lines of ranks 1, 3: only those of rank 1 are read" in log.notes


def test_of_a_folder_with_a_file_for_each_rank_one_is_read(tmp_path: Path) -> None:
    _write(
        tmp_path, worker_0__log="no loss\n", worker_1__log=_monitor(range(1, 3)), worker_10__log=_monitor(range(1, 4))
    )
    log = read_log(tmp_path)
    assert log.table.steps.tolist() == [1, 2]
    assert "only the files of rank 1 are read, not worker_10.log" in log.notes
    assert read_log(tmp_path, rank=10).table.steps.tolist() == [1, 2, 3]
    with pytest.raises(UsageError, match="no file is of rank 0: there are ranks 1, 10"):
        read_log(tmp_path, rank=0)


def test_formats_are_asked_about_a_line_of_each_layout_but_about_all_of_a_document() -> None:
    lines = LogSource.of_text("".join(f"[08:43:05] iter {step} | loss {2 + step / 1000:.3f}\n" for step in range(900)))
    assert shown_lines(lines).text.count("\n") < 100
    rows = ",\n".join(f'{{"step": {step}, "loss": 2.5}}' for step in range(900))
    document = LogSource.of_text(f"[\n{rows}\n]\n")
    assert shown_lines(document) is document


@pytest.mark.parametrize("name", ["average_loss", "avg_loss", "running_loss"])
def test_a_mean_that_was_asked_for_is_said_to_be_one_by_its_name(tmp_path: Path, name: str) -> None:
    line = "iteration {} {} : {} step_loss : {} learning_rate : 0.1\n"
    _write(
        tmp_path, a__log="".join(line.format(step, name, 2 - step / 999, 2 - step / 777) for step in range(10, 90, 10))
    )
    words = f"by its name '{name}' may be a mean over several steps"
    assert [note for note in read_log(tmp_path / "a.log", metric=name).notes if words in note]
    for other in ("loss", "learning_rate"):
        assert not [note for note in read_log(tmp_path / "a.log", metric=other).notes if "by its name" in note]


@pytest.mark.parametrize(
    "stamp", ["[ Wed Jun  6 16:05:30 2018 ]", "Jun 16 16:05:30 host", "Wednesday, June 6 16:05:30 UTC 2018"]
)
def test_a_date_in_words_is_no_metric(tmp_path: Path, stamp: str) -> None:
    lines = "".join(f"{stamp} Batch({step}/400) Loss: {3 - step / 999:.4f} lr:0.1\n" for step in range(0, 400, 50))
    log = read_log(_write(tmp_path, a__log=lines) / "a.log")
    assert sorted(log.table.metrics) == ["loss", "lr"]
