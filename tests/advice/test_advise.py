"""Trainings that are slow for a known reason: the reason comes first; healthy ones have nothing above a note."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tarfile
from pathlib import Path

import pytest

from align.advice.advise import AdviceResult, advise
from align.advice.evidence import ProfileSource, StepSeries, profile_readers, step_evidence
from align.core.verdicts import Outcome
from align.errors import MissingFileError, UnreadableProfileError

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))

import _slow_trainings as trainings
from record_profiles import NAMES, RECORDED

# What profilers measure depends on the load of the machine: such files are recorded, all others are made here.
MADE = [case for case in trainings.PLANTED if case.name not in NAMES and not case.framework]
HEALTHY = [case for case in trainings.HEALTHY if case.name not in NAMES and not case.framework]
RECORDINGS = [case for case in [*trainings.PLANTED, *trainings.HEALTHY] if case.name in NAMES]


def made(case: trainings.Case, folder: Path) -> AdviceResult:
    case.make(folder)
    return advise(folder)


def unpack(name: str, folder: Path) -> Path:
    with tarfile.open(RECORDED / f"{NAMES[name]}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def above_notes(result: AdviceResult) -> list[str]:
    return [one.rule for one in result.advice if one.level != "note"]


@pytest.mark.parametrize("case", MADE, ids=lambda case: case.name)
def test_what_makes_it_slow_comes_first(case: trainings.Case, tmp_path: Path) -> None:
    result = made(case, tmp_path)
    assert above_notes(result)[:1] == [case.first]
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    first = result.advice[0]
    assert str(tmp_path) in first.place
    assert first.change
    assert first.source.startswith("https://")


@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case.name)
def test_a_healthy_training_has_no_advice(case: trainings.Case, tmp_path: Path) -> None:
    result = made(case, tmp_path)
    assert above_notes(result) == []
    assert result.verdict.outcome is Outcome.ALIGNED


@pytest.mark.parametrize("case", RECORDINGS, ids=lambda case: case.name)
def test_a_recorded_profile_shows_what_was_planted_first(case: trainings.Case, tmp_path: Path) -> None:
    result = advise(unpack(case.name, tmp_path))
    assert above_notes(result)[:1] == ([case.first] if case.first else [])
    assert result.verdict.outcome is (Outcome.NOT_ALIGNED if case.first else Outcome.ALIGNED)


def test_decoding_is_named_with_the_line_of_the_users_own_code(tmp_path: Path) -> None:
    first = advise(unpack("decoding in the main process", tmp_path)).advice[0]
    line = re.search(r"_slow_trainings\.py\((\d+)\): decode_picture", (tmp_path / "trace.json").read_text())
    assert line
    assert first.place.endswith(f"_slow_trainings.py:{line[1]}")


def test_a_graph_that_is_compiled_for_each_shape_is_the_only_advice(tmp_path: Path) -> None:
    result = advise(unpack("changing shapes in graph mode", tmp_path))
    assert above_notes(result) == ["recompiled-for-shapes"]
    assert result.candidate.framework == "mindspore"
    assert "cpu_framework_0.txt:" in result.advice[0].place


def test_decoding_by_one_worker_is_named_by_the_queues_of_minddata(tmp_path: Path) -> None:
    first = advise(unpack("decoding by one worker", tmp_path)).advice[0]
    assert (first.rule, first.subject) == ("one-worker-operation", "Map(id=1)")
    assert first.place.endswith("pipeline_profiling_0.json (operation 1)")


@pytest.mark.frameworks
@pytest.mark.parametrize(("name", "framework"), [("a float64 layer", "torch"), ("PyNative mode", "mindspore")])
def test_what_the_installed_framework_writes_is_read(name: str, framework: str, tmp_path: Path) -> None:
    result = made(next(case for case in trainings.PLANTED if case.name == name), tmp_path)
    assert result.candidate.framework == framework
    assert result.candidate.step > 0
    assert sum(part.seconds for part in result.candidate.parts) == pytest.approx(result.candidate.step)


@pytest.mark.frameworks
def test_the_columns_of_made_tables_are_those_that_mindspores_viewers_write() -> None:
    from mindspore.profiler.analysis.viewer.ascend_kernel_details_viewer import AscendKernelDetailsViewer as Kernels
    from mindspore.profiler.analysis.viewer.ascend_step_trace_time_viewer import AscendStepTraceTimeViewer as Steps

    assert trainings.STEP_COLUMNS.split(",") == Steps.STEP_TRACE_TIME_HEADERS
    assert set(Kernels.RENAME_HEADERS.values()) <= set(trainings.KERNEL_COLUMNS.split(","))
    assert set(Kernels.RENAME_HEADERS) <= set(trainings.SUMMARY_COLUMNS.split(","))


def test_msprofs_summary_is_read_as_the_kernels_are(tmp_path: Path) -> None:
    row = '0,1,2,3,MatMul-op{at},MatMulV2,static,AI_CORE,{start},900.0,0,20,NO,"512,512;512,512",FLOAT;FLOAT,ND,"",,'
    lines = [trainings.SUMMARY_COLUMNS, *(row.format(at=at, start=1e6 + 1000 * at) for at in range(50))]
    (tmp_path / "op_summary_0.csv").write_text("\n".join(lines))
    result = advise(tmp_path / "op_summary_0.csv")
    assert above_notes(result) == ["no-mixed-precision"]
    assert result.advice[0].share == pytest.approx(0.9, abs=0.01)


def test_the_statistic_of_operators_names_what_runs_on_the_ai_cpu(tmp_path: Path) -> None:
    rows = ["MatMulV2,AI_CORE,10,5000,1,500,600,50", "ScatterNdUpdate,AI_CPU,10,4000,1,400,500,40"]
    (tmp_path / "op_statistic.csv").write_text("\n".join([trainings.STATISTIC_COLUMNS, *rows]))
    result = advise(tmp_path)
    assert above_notes(result) == ["operators-on-ai-cpu"]
    assert result.advice[0].place.endswith("op_statistic.csv:3")


def test_a_table_of_queues_is_read_as_the_sampled_ones(tmp_path: Path) -> None:
    columns = "op_id,op_type,num_workers,output_queue_size,output_queue_average_size,output_queue_length"
    rows = ['0,Batch,4,"[0, 0]",0.0,16,0.0,10,-1,[1]', '1,Map,6,"[0, 0]",0.1,16,0.0,10,0,[2]',
            '2,Generator,1,"[16, 16]",15.5,16,0.97,10,1,']  # fmt: skip
    header = f"{columns},output_queue_usage_rate,sample_interval,parent_id,children_id"
    (tmp_path / "minddata_pipeline_raw_0.csv").write_text("\n".join([header, *rows]))
    (first,) = advise(tmp_path).advice
    assert (first.rule, first.subject, first.place[-2:]) == ("empty-queue", "Map(id=1)", ":3")


# Two sides: parts until they add up.


def test_parts_of_two_profiles_add_up_to_the_gap(tmp_path: Path) -> None:
    slow, fast = tmp_path / "slow", tmp_path / "fast"
    for folder, between in ((slow, [("TransData", "AI_VECTOR_CORE", 120.0)]), (fast, [])):
        folder.mkdir()
        trainings.kernels(folder, (), between=between, length=6600.0 if between else 4100.0)
    result = advise(slow, baseline=fast)
    assert result.gap is not None
    gap = result.gap.candidate - result.gap.reference
    assert sum(part.candidate - part.reference for part in result.gap.parts) == pytest.approx(gap)
    assert sum(part.share for part in result.gap.parts) == pytest.approx(1.0)
    first = result.gap.parts[0]
    assert (first.operator, first.example) == ("layout change", "TransData")
    assert first.share == pytest.approx(0.96, abs=0.02)
    assert result.gap.explained >= 0.9
    assert result.ratio == pytest.approx(1.6, abs=0.03)


def test_what_both_logs_leave_whole_is_not_explained(tmp_path: Path) -> None:
    for name, usual, wait in (("a", 0.2, 0.01), ("b", 0.4, 0.05)):
        (tmp_path / name).mkdir()
        trainings.write_log(tmp_path / name, [usual + wait] * 30, waits=[wait] * 30)
    result = advise(tmp_path / "b", baseline=tmp_path / "a")
    assert result.gap is not None
    assert result.gap.explained == pytest.approx(0.04 / 0.24, abs=0.01)
    assert any("83%" in note for note in result.notes)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.parametrize(("at_most", "outcome"), [(1.05, Outcome.NOT_ALIGNED), (1.3, Outcome.ALIGNED)])
def test_a_step_may_take_as_long_as_is_allowed(at_most: float, outcome: Outcome, tmp_path: Path) -> None:
    for name, usual in (("a", 0.2), ("b", 0.24)):
        (tmp_path / name).mkdir()
        trainings.write_log(tmp_path / name, [usual] * 30)
    result = advise(tmp_path / "b", baseline=tmp_path / "a", at_most=at_most)
    assert result.ratio == pytest.approx(1.2)
    assert result.verdict.outcome is outcome


# Files that are none, damaged, packed, cut.


def test_files_that_say_nothing_end_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\0\1\2")
    (tmp_path / "notes.txt").write_text("nothing of interest\n")
    with pytest.raises(UnreadableProfileError, match="none of 2 files"):
        advise(tmp_path)
    with pytest.raises(MissingFileError):
        advise(tmp_path / "none.log")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnreadableProfileError, match="no file"):
        advise(tmp_path / "empty")


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents": [{"ph": "X", "name": "aten::mm", "ts": "x"}]}',
        '[{"ph": "X", "ts": 1',
        '{"op_info": [{"output_queue": 1}]}',
    ],
)
def test_a_damaged_profile_is_one_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(UnreadableProfileError):
        advise(tmp_path / "trace.json")


def test_a_packed_trace_and_one_that_is_cut_are_read(tmp_path: Path) -> None:
    trainings.gpu_items(tmp_path)
    text = (tmp_path / "trace.json").read_text()
    (tmp_path / "trace.json").unlink()
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(text.encode()))
    assert above_notes(advise(tmp_path))[:1] == ["values-read-one-by-one"]
    (tmp_path / "packed.json.gz").write_bytes(gzip.compress(text.encode())[:-40])
    with pytest.raises(UnreadableProfileError):
        advise(tmp_path / "packed.json.gz")
    (tmp_path / "cut.json").write_text(text[: len(text) // 2])
    assert above_notes(advise(tmp_path / "cut.json"))[:1] == ["values-read-one-by-one"]


def test_a_trace_larger_than_what_is_read_at_once_keeps_every_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from align.advice import timeline

    trainings.one_nccl_group(tmp_path)
    source = ProfileSource(tmp_path / "trace.json")
    whole = timeline.read_events(source)
    monkeypatch.setattr(timeline, "READ_AT_ONCE", 37)
    piecewise = timeline.read_events(source)
    count = len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"])
    assert len(whole.start) == len(piecewise.start) == count
    assert whole.keys == piecewise.keys
    assert not whole.cut


def test_each_form_of_files_is_known_by_one_reader(tmp_path: Path) -> None:
    makers = {
        "trace": trainings.gpu_items, "kernels": trainings.healthy_kernels, "step trace": trainings.idle_npu,
        "nsys table": trainings.healthy_nsys, "training log": trainings.growing_log,
    }  # fmt: skip
    for form, make in makers.items():
        folder = tmp_path / form.replace(" ", "_")
        folder.mkdir()
        make(folder)
        (file,) = (path for path in folder.rglob("*") if path.is_file())
        knowing = [reader.name for reader in profile_readers() if reader.recognizes(ProfileSource(file))]
        assert knowing[0] == form
        assert set(knowing[1:]) <= {"training log"}


# Times of steps.


def series(seconds: list[float], **more: object) -> StepSeries:
    import numpy as np

    times = np.array(seconds)
    waits = np.array(more.get("waits", [np.nan] * len(times)), float)
    return StepSeries(times, waits, np.ones(len(times), np.int64), str, None, bool(more.get("whole", True)))


def test_a_slow_step_counts_for_one_reason_only() -> None:
    times = [4.0] + [0.2] * 99
    for at in (20, 33, 47, 71):
        times[at] = 3.9
    kinds = [one.kind for one in step_evidence(series(times))]
    assert kinds == ["first step", "slow as the first step"]


def test_steps_that_are_equal_show_nothing() -> None:
    assert [*step_evidence(series([0.2] * 50))] == []


def test_few_steps_show_no_rule() -> None:
    assert [one.kind for one in step_evidence(series([0.2, 0.9, 0.2, 0.9, 0.2]))] == []
