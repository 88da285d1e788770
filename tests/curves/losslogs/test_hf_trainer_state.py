"""The Trainer's state file: whole, cut while it was written, and two of them in one file."""

from __future__ import annotations

import json

from align.curves.log_sources import LogSource, log_formats
from align.curves.place_on_axis import place_on_axis

FORMAT = log_formats()["hf_trainer_state"]
HISTORY = [{"epoch": step / 40, "learning_rate": 0.1, "loss": 4.0 - step / 100, "step": step} for step in (10, 20, 30)]
STATE = json.dumps({"best_metric": None, "epoch": 0.75, "global_step": 30, "log_history": HISTORY}, indent=2)
POINTS = [(10, 3.9), (20, 3.8), (30, 3.7)]


def _read(text: str) -> tuple[list[tuple[int, float]], tuple[str, ...]]:
    source = LogSource.of_text(text, "trainer_state.json")
    assert [name for name, plugin in log_formats().items() if plugin.recognizes(source)] == [FORMAT.name]
    log = FORMAT.read(source)
    curve = place_on_axis(log)
    return list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True)), log.notes


def test_a_whole_file_is_read_without_a_note() -> None:
    assert _read(STATE) == (POINTS, ())


def test_a_file_that_was_cut_gives_the_entries_before_that_and_says_so() -> None:
    cut = STATE[: STATE.index('"step": 30')]
    assert _read(cut) == (POINTS[:2], ("the file is cut: the entries before that are read",))
    after_all = STATE[: STATE.rindex("]")]
    assert _read(after_all) == (POINTS, ("the file is cut: the entries before that are read",))


def test_two_files_in_one_are_read_as_one_after_the_other() -> None:
    points, notes = _read(f"{STATE}\n{STATE}\n")
    assert points == POINTS
    assert notes == ("the file holds 2 documents, one after the other",)
