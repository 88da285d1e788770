"""Any curve written in any format reads back the same; logs that were shuffled, cut or repeated never pass silently."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from align.core.verdicts import Outcome
from align.curves.compare_losses import compare_losses
from align.curves.log_parts.record_lines import distance_from_zero
from align.curves.log_sources import LogSource, log_formats
from align.curves.losslogs.console import console_formats
from align.curves.place_on_axis import place_on_axis
from align.errors import CannotRunError, MixedProcessesError

if TYPE_CHECKING:
    from align.curves.loss_log import CurveComparison

losses = st.one_of(
    st.floats(min_value=-1e30, max_value=1e30), st.floats(width=32), st.sampled_from([math.nan, math.inf, 0.0])
)
curves = st.dictionaries(st.integers(0, 3000), losses, min_size=1, max_size=40).map(lambda d: dict(sorted(d.items())))
descents = st.lists(st.floats(min_value=0.5, max_value=8.0), min_size=8, max_size=30)


def _csv(curve: dict[int, float]) -> str:
    return "global_step,lr,loss\n" + "".join(f"{step},0.1,{loss!r}\n" for step, loss in curve.items())


def _jsonl(curve: dict[int, float]) -> str:
    return "".join(json.dumps({"step": step, "loss": loss, "lr": 0.1}) + "\n" for step, loss in curve.items())


def _monitor(curve: dict[int, float], length: int) -> str:
    return "".join(
        f"epoch: {step // length + 1} step: {step % length + 1}, loss is {loss!r}\n" for step, loss in curve.items()
    )


def _mindcv(curve: dict[int, float], length: int) -> str:
    return "".join(
        f"Epoch: [{step // length + 1}/9], batch: [{step % length + 1}/{length}], loss: {loss:.6f}, lr: 0.1, time: 1s\n"
        for step, loss in curve.items()
    )


def _read(text: str) -> tuple[str, tuple[int, ...], tuple[float, ...]]:
    names = [name for name, plugin in log_formats().items() if plugin.recognizes(LogSource.of_text(text))]
    assert len(names) == 1
    curve = place_on_axis(log_formats()[names[0]].read(LogSource.of_text(text)))
    return names[0], tuple(curve.steps), tuple(curve.values)


@given(curves)
def test_a_curve_written_as_csv_or_jsonl_reads_back_the_same(curve: dict[int, float]) -> None:
    base = 0 if 0 in curve or distance_from_zero(np.array(list(curve))) else 1
    for name, text in (("csv", _csv(curve)), ("jsonl", _jsonl(curve))):
        found, steps, values = _read(text)
        assert found == name
        assert steps == tuple(step + 1 - base for step in curve)
        np.testing.assert_array_equal(values, list(curve.values()))


@given(st.lists(losses, min_size=1, max_size=40), st.integers(1, 12))
def test_a_curve_written_as_lossmonitor_does_reads_back_the_same(values: list[float], length: int) -> None:
    name, steps, read = _read(_monitor(dict(enumerate(values)), length))
    assert name == "lossmonitor"
    assert steps == tuple(range(1, len(values) + 1))
    np.testing.assert_array_equal(read, values)


@given(curves, st.integers(1, 500))
def test_a_curve_written_as_mindcv_does_reads_back_to_six_decimals(curve: dict[int, float], length: int) -> None:
    name, steps, read = _read(_mindcv(curve, length))
    assert name == "mindcv"
    assert steps == tuple(step + 1 for step in curve)
    np.testing.assert_array_equal(read, [float(f"{loss:.6f}") for loss in curve.values()])


def _compare(reference: str, candidate: str) -> CurveComparison | CannotRunError:
    """Compare two texts; an error of the user is an answer too."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in ("reference.log", "candidate.log")]
        for path, text in zip(paths, (reference, candidate), strict=True):
            path.write_text(text, encoding="utf-8")
        try:
            return compare_losses(*paths)
        except CannotRunError as error:
            return error


def _silent(comparison: CurveComparison | CannotRunError) -> bool:
    """Tell whether a comparison passed with nothing said about the candidate's log."""
    if isinstance(comparison, CannotRunError):
        return not (comparison.message and comparison.hint)
    if comparison.verdict.outcome is not Outcome.ALIGNED:
        return False
    whole = comparison.verdict.coverage.unmatched_reference == 0
    plain = [note for note in comparison.candidate.notes if "counting starts" not in note and "is taken to" not in note]
    return whole and not plain


WRITERS = (_csv, _jsonl, lambda curve: _monitor(curve, 5))


@settings(max_examples=25)
@given(descents, st.sampled_from(WRITERS), st.data())
def test_a_cut_log_never_passes_silently(values: list[float], write, data: st.DataObject) -> None:
    text = write(dict(enumerate(values)))
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    assert not _silent(_compare(text, cut))


@settings(max_examples=25)
@given(descents, st.sampled_from(WRITERS), st.randoms(use_true_random=False))
def test_a_shuffled_log_never_passes_silently_nor_differs_from_itself(values: list[float], write, random) -> None:
    text = write(dict(enumerate(values)))
    header, lines = (text.splitlines()[:1], text.splitlines()[1:]) if write is _csv else ([], text.splitlines())
    shuffled = lines.copy()
    random.shuffle(shuffled)
    comparison = _compare(text, "\n".join([*header, *shuffled]) + "\n")
    assert _silent(comparison) == (shuffled == lines)
    if not isinstance(comparison, CannotRunError):
        assert not comparison.points.difference.any()


@settings(max_examples=25)
@given(descents, st.sampled_from(WRITERS), st.data())
def test_a_log_with_lines_taken_out_or_repeated_never_passes_silently(values: list[float], write, data) -> None:
    text = write(dict(enumerate(values)))
    lines = text.splitlines()
    at = data.draw(st.integers(1 if write is _csv else 0, len(lines) - 1))
    changed = data.draw(st.sampled_from([lines[:at] + lines[at + 1 :], [*lines[:at], lines[at], *lines[at:]]]))
    assert not _silent(_compare(text, "\n".join(changed) + "\n"))


@settings(max_examples=25)
@given(st.lists(st.floats(0.5, 8.0), min_size=12, max_size=30), st.sampled_from(WRITERS), st.data())
def test_a_log_that_lacks_a_step_inside_is_never_aligned(values: list[float], write, data) -> None:
    curve = dict(enumerate(values))
    # One step only: two could be a pattern that comes again, as an epoch's is.
    lost = {data.draw(st.integers(1, len(values) - 2))}
    comparison = _compare(write(curve), write({step: loss for step, loss in curve.items() if step not in lost}))
    assert not isinstance(comparison, CannotRunError)
    assert comparison.verdict.outcome is not Outcome.ALIGNED


@settings(max_examples=25)
@given(st.lists(st.floats(0.5, 8.0), min_size=1, max_size=30), st.sampled_from(WRITERS), st.data())
def test_a_loss_that_is_not_finite_on_one_side_is_never_aligned(values: list[float], write, data) -> None:
    lost = data.draw(st.sets(st.integers(0, len(values) - 1), min_size=1))
    word = data.draw(st.sampled_from(["nan", "-nan", "NaN", "inf", "-inf", "Infinity", "None", "null"]))
    marked = write({step: 12345.0 if step in lost else loss for step, loss in enumerate(values)})
    comparison = _compare(write(dict(enumerate(values))), marked.replace("12345.0", word))
    assert not isinstance(comparison, CannotRunError)
    assert (comparison.verdict.outcome, comparison.trouble) == (Outcome.NOT_ALIGNED, "NaN")
    assert comparison.verdict.coverage.compared == len(values)


@settings(max_examples=25)
@given(descents, st.sampled_from(WRITERS), st.data())
def test_a_run_resumed_with_other_losses_is_judged_by_the_later_ones(values: list[float], write, data) -> None:
    curve = dict(enumerate(values))
    back = data.draw(st.integers(1, len(values) - 2))
    other = data.draw(st.sets(st.integers(back, len(values) - 1), min_size=1))
    abandoned = {step: loss + (step in other) for step, loss in curve.items() if step >= back}
    first = write({**{step: loss for step, loss in curve.items() if step < back}, **abandoned})
    later = write({step: loss for step, loss in curve.items() if step >= back})
    resumed = first + (later.partition("\n")[2] if write is _csv else later)
    comparison = _compare(write(curve), resumed)
    assert not isinstance(comparison, CannotRunError)
    assert comparison.verdict.outcome is Outcome.ALIGNED
    assert any("goes back 1 time" in note for note in comparison.candidate.notes)


@given(descents, st.integers(2, 8))
def test_a_log_of_several_processes_without_a_prefix_is_refused(values: list[float], processes: int) -> None:
    curve = dict(enumerate(values))
    printed = [_monitor({step: loss + process}, 50) for step, loss in curve.items() for process in range(processes)]
    answer = _compare(_monitor(curve, 50), "".join(printed))
    assert isinstance(answer, MixedProcessesError)
    assert f"about {processes} different values" in answer.message
    assert "--candidate-rank" in answer.hint


# Formats that are data share one reader: a few of them are asked for all.
_CONSOLES = [lines.name for lines in console_formats()]
READERS = [plugin for name, plugin in log_formats().items() if name not in _CONSOLES[3:]]


@given(
    st.one_of(
        st.text(max_size=300),
        st.from_regex(r"epoch: [0-9]{1,30} step: [0-9]{1,30}, loss is [-0-9.eE]{1,9}"),
        st.from_regex(r"Epoch: \[[0-9]{1,30}/1\], batch: \[[0-9]{1,30}/[0-9]{1,30}\], loss: [-0-9.eE]{1,9}"),
        st.from_regex(r"\A(step|epoch),loss\n[-0-9.eE]{1,30},[-0-9.eE]{1,9}\n"),
        st.from_regex(r'\A\{"(step|epoch)": [0-9]{1,30}, "loss": [0-9]{1,9}\}\n'),
    )
)
def test_no_text_makes_a_reader_crash(text: str) -> None:
    for plugin in READERS:
        plugin.recognizes(LogSource.of_text(text))
        with contextlib.suppress(CannotRunError):
            assert len(place_on_axis(plugin.read(LogSource.of_text(text))).steps) > 0
