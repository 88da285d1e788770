"""Dumps of MindSpore, Polygraphy, transformers and DebugMode, and folders of arrays, are read and compared."""

from __future__ import annotations

import base64
import csv
import io
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import align
from align.cli.main import main
from align.core.load_code import dump_readers
from align.core.verdicts import Outcome
from align.errors import AlignError, DumpError
from align.models.frameworks.arrays import ArrayLayer, ArrayModel
from align.traces.dumped_side import read_dump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.traces import DumpedTensor, ForeignDump
    from align.forward.forward_result import ForwardComparison

DATA = Path(__file__).parents[1] / "data"
DUMP = DATA / "mindspore_dump"
ITERATION = Path("rank_0", "Net", "0", "0")
TREE = DATA / "transformers" / "BertModel_debug_tree_SUMMARY.json"
LOG = DATA / "debug_mode.log"


def tensor(dump: ForeignDump, part: str, module: str, item: str = "") -> DumpedTensor:
    (found,) = (one for one in dump.tensors if (one.part, one.module, one.item, one.call) == (part, module, item, 0))
    return found


def outcomes(result: ForwardComparison) -> dict[str, str]:
    return {one.reference: one.outcome for one in result.layers if one.part == "output"}


def changed(source: Path, to: Path, old: str, new: str) -> Path:
    text = source.read_text(encoding="utf-8")
    assert text.count(old) == 1
    to.write_text(text.replace(old, new), encoding="utf-8")
    return to


@pytest.mark.parametrize(
    ("path", "reader"),
    [
        (DUMP, "mindspore_dump"),
        (TREE, "transformers_debugger"),
        (TREE.parent, "transformers_debugger"),
        (LOG, "torch_debug_mode"),
        (DATA / "polygraphy" / "polygraphy_runresults_a.json", "polygraphy"),
        (DATA / "msprobe" / "torch", "msprobe"),
    ],
    ids=str,
)
def test_one_reader_recognizes_a_dump_before_the_last_resort(path: Path, reader: str) -> None:
    found = [name for name, one in dump_readers().items() if one.recognizes(path) and not one.last_resort]
    assert found == [reader]


def test_every_reader_names_the_version_that_it_was_tried_with() -> None:
    assert all(any(letter.isdigit() for letter in one.tried_with) for one in dump_readers().values())


def test_operators_of_mindspores_dump_stand_in_the_modules_that_call_them() -> None:
    dump = read_dump(DUMP)
    assert (dump.framework, dump.path) == ("mindspore", DUMP / ITERATION)
    conv = tensor(dump, "output", "conv1")
    inner = tensor(dump, "output", "conv1/BiasAdd-op0", "0")
    assert (conv.class_name, conv.shape) == ("Conv2d", (2, 4, 8, 8))
    assert conv.load is not None
    assert inner.load is not None
    assert np.array_equal(conv.load(), inner.load())
    names = {f"{one.module}.{one.item}" for one in dump.tensors if one.part == "parameter"}
    assert names == {
        "conv1.weight", "conv1.bias", "bn1.gamma", "bn1.beta", "bn1.moving_mean", "bn1.moving_variance",
        "fc.weight", "fc.bias",
    }  # fmt: skip
    assert tensor(dump, "input", "", "x").shape == (2, 3, 8, 8)
    assert tensor(dump, "output", "").shape == (2, 5)


def test_names_of_modules_are_right_without_the_list_of_the_order(tmp_path: Path) -> None:
    shutil.copytree(DUMP / ITERATION, tmp_path / "0")
    assert tensor(read_dump(tmp_path), "output", "fc").class_name == "Dense"


def test_mindspores_dump_is_compared_with_a_trace(tmp_path: Path) -> None:
    """The last layer of the dump, as a model of torch: right as it is, and wrong by one percent."""
    dump = read_dump(DUMP)
    values = {name: tensor(dump, "parameter", "fc", name).load for name in ("weight", "bias")}
    loaded = {name: np.array(load()) for name, load in values.items() if load}
    given = tensor(dump, "input", "fc", "0").load
    assert given is not None
    for name, factor in (("right", 1.0), ("wrong", 1.01)):
        layer = ArrayLayer("fc", "torch.nn.Linear", lambda x, weight, bias, by=factor: x @ weight.T * by + bias, loaded)
        align.capture_trace(ArrayModel((layer,)), tmp_path / name, inputs={"x": np.array(given()).reshape(2, -1)})
    assert outcomes(align.compare_trace_folders(tmp_path / "right", DUMP))["fc"] == "aligned"
    assert outcomes(align.compare_trace_folders(tmp_path / "wrong", DUMP))["fc"] == "not aligned"


HEADER = (
    "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value,"
    "Count,Negative Zero Count,Positive Zero Count,NaN Count,Negative Inf Count,Positive Inf Count,Zero Count\n"
)


def statistics(folder: Path, largest: float) -> Path:
    """A table in the documented form: two operators of one layer."""
    folder.mkdir()
    rows = [
        f'MatMul,Default/fc-Dense/MatMul-op1,12,0,1700,output,0,40,float32,"(2,5)",{largest},-1.0,0.1,10,0,0,0,0,0,0',
        'BiasAdd,Default/fc-Dense/BiasAdd-op2,13,0,1701,output,0,40,float32,"(2,5)",2.5,-1.0,0.2,10,0,0,0,0,0,0',
    ]
    (folder / "statistic.csv").write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_the_table_of_statistics_shows_a_difference(tmp_path: Path) -> None:
    mine, same, other = (statistics(tmp_path / name, value) for name, value in (("a", 2.0), ("b", 2.0), ("c", 2.1)))
    assert align.compare_trace_folders(mine, same).verdict.outcome is Outcome.NOT_COMPARED
    result = align.compare_trace_folders(mine, other)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert [name for name, outcome in outcomes(result).items() if outcome == "not aligned"] == ["fc/MatMul-op1"]


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    folder = statistics(tmp_path / "a", 2.0)
    file = folder / "statistic.csv"
    file.write_text(file.read_text(encoding="utf-8").replace(",12,0,1700", ",twelve,0,1700"), encoding="utf-8")
    with pytest.raises(DumpError, match="row 1"):
        read_dump(folder)


@pytest.fixture
def usual_csv_limit() -> Iterator[None]:
    """The longest field of a table as Python has it at first: packages that other tests import raise it."""
    before = csv.field_size_limit(1 << 17)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("usual_csv_limit")
@pytest.mark.parametrize(("old", "new"), [("2.5,-1.0", "2.5" * 50_000 + ",-1.0"), ("(2,5)", f"({'9' * 99},5)")])
def test_a_table_that_no_tool_writes_is_refused(tmp_path: Path, old: str, new: str) -> None:
    file = statistics(tmp_path / "a", 2.0) / "statistic.csv"
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(DumpError):
        read_dump(file.parent)


@pytest.mark.parametrize("task", ["twelve", [12], None, "9" * 5000], ids=range(4))
def test_overflow_in_a_task_that_is_no_number_is_counted(tmp_path: Path, task: object) -> None:
    folder = statistics(tmp_path / "a", 2.0)
    told = {"AI Core": {"status": 8, "task_id": task, "stream_id": 0}}
    (folder / "Opdebug.Node_OpDebug.13.0.1702.output.0.json").write_text(json.dumps(told), encoding="utf-8")
    assert any("1 operator overflowed" in note for note in read_dump(folder).notes)


def test_counts_of_nan_show_a_difference(tmp_path: Path) -> None:
    """The largest and smallest values of the documented table may be those of the finite elements alone."""
    folder = statistics(tmp_path / "a", 2.0)
    shutil.copytree(folder, tmp_path / "b")
    changed(folder / "statistic.csv", tmp_path / "b" / "statistic.csv", "0.1,10,0,0,0", "0.1,10,0,0,3")
    result = align.compare_trace_folders(folder, tmp_path / "b")
    assert outcomes(result)["fc/MatMul-op1"] == "not aligned"


def test_of_files_and_rows_of_one_output_the_files_are_read(tmp_path: Path) -> None:
    folder = statistics(tmp_path / "a", 2.0)
    table = (folder / "statistic.csv").read_text(encoding="utf-8").splitlines()
    (folder / "statistic.csv").write_text("\n".join(table[:2]) + "\n", encoding="utf-8")
    np.save(folder / "MatMul.Default_fc-Dense_MatMul-op1.12.0.1700.output.0.npy", np.ones((2, 5), np.float32))
    result = align.compare_trace_folders(folder, folder)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert outcomes(result) == {"": "aligned", "fc": "aligned", "fc/MatMul-op1": "aligned"}
    assert result.verdict.coverage.compared == len(read_dump(folder).tensors) == 3


def test_slashes_of_a_table_say_which_modules_there_are(tmp_path: Path) -> None:
    folder = statistics(tmp_path / "a", 2.0)
    file = folder / "statistic.csv"
    file.write_text(file.read_text(encoding="utf-8").replace("fc-Dense", "my_head-Odd_Name/fc-Dense"), encoding="utf-8")
    assert tensor(read_dump(folder), "output", "my_head.fc").class_name == "Dense"


def test_overflow_is_told(tmp_path: Path) -> None:
    folder = statistics(tmp_path / "a", 2.0)
    told = {"AI Core": {"status": 8, "task_id": 12, "stream_id": 0}, "L2 Atomic Add": {"status": 0}}
    name = "Opdebug.Node_OpDebug.13.0.1702.output.0.json"
    (folder / name).write_text(json.dumps(told), encoding="utf-8")
    findings = align.compare_trace_folders(folder, folder).findings
    (found,) = {one.message for one in findings if one.code == "dump-overflow"}
    assert "MatMul-op1" in found


def test_polygraphys_outputs_pair_by_name_and_by_value() -> None:
    first, second = (DATA / "polygraphy" / f"polygraphy_runresults_{name}.json" for name in "ab")
    result = align.compare_trace_folders(first, second)
    assert outcomes(result) == {"conv1": "aligned", "fc": "not aligned", "only_in_a": "aligned"}
    assert result.layers[2].candidate == "only_in_b"


def test_a_pickle_in_polygraphys_results_is_not_run(tmp_path: Path) -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    array = {"array": base64.b64encode(stream.getvalue()).decode(), "polygraphy_class": "ndarray"}
    results = {"outputs": {"y": {"values": array, "polygraphy_class": "LazyArray"}}}
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"lst": [["x", [results]]], "polygraphy_class": "RunResults"}), encoding="utf-8")
    with pytest.raises(AlignError, match="Python objects"):
        read_dump(file)


def test_results_of_several_runners_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    runs = [["onnxrt", []], ["trt", []]]
    file.write_text(json.dumps({"lst": runs, "polygraphy_class": "RunResults"}), encoding="utf-8")
    with pytest.raises(DumpError, match="onnxrt, trt"):
        read_dump(file)


def test_the_tree_of_transformers_is_compared_by_its_figures(tmp_path: Path) -> None:
    dump = read_dump(TREE)
    one = tensor(dump, "output", "embeddings.word_embeddings")
    assert (one.shape, one.load) == ((1, 6, 8), None)
    assert one.statistics is not None
    assert one.statistics.max == 0.042442
    assert align.compare_trace_folders(TREE, TREE).verdict.outcome is Outcome.NOT_COMPARED
    other = changed(
        TREE, tmp_path / "b_debug_tree_SUMMARY.json", '"max": "tensor(4.2442e-02)"', '"max": "tensor(4.2542e-02)"'
    )
    result = align.compare_trace_folders(TREE, other)
    assert [name for name, outcome in outcomes(result).items() if outcome == "not aligned"] == [
        "embeddings.word_embeddings"
    ]


def test_printed_digits_are_no_difference(tmp_path: Path) -> None:
    other = changed(
        TREE, tmp_path / "b_debug_tree_SUMMARY.json", '"max": "tensor(4.2442e-02)"', '"max": "tensor(4.2443e-02)"'
    )
    assert align.compare_trace_folders(TREE, other).verdict.outcome is Outcome.NOT_COMPARED


def test_hashes_of_debug_mode_show_a_difference(tmp_path: Path) -> None:
    dump = read_dump(LOG)
    assert tensor(dump, "output", "0/addmm").shape == (2, 3)
    assert tensor(dump, "output", "2/native_layer_norm", "1").shape == (2, 1)
    other = changed(LOG, tmp_path / "b.log", "2.7267117500305176", "2.8267117500305176")
    result = align.compare_trace_folders(LOG, other)
    assert [name for name, outcome in outcomes(result).items() if outcome == "not aligned"] == ["0/addmm"]


def arrays(folder: Path, names: dict[str, np.ndarray]) -> Path:
    folder.mkdir()
    for name, value in names.items():
        np.save(folder / f"{name}.npy", value)
    return folder


X, Y, Z = (np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32) for seed in range(3))


def test_numbers_in_front_of_names_are_the_order(tmp_path: Path) -> None:
    mine = arrays(tmp_path / "a", {"0_conv1": X, "2_fc": Y, "10_out": Z})
    theirs = arrays(tmp_path / "b", {"1_conv1": X, "2_fc": Y, "3_out": Z + 1})
    result = align.compare_trace_folders(mine, theirs)
    assert outcomes(result) == {"0_conv1": "aligned", "2_fc": "aligned", "10_out": "not aligned"}
    assert [one.candidate for one in result.layers] == ["1_conv1", "2_fc", "3_out"]


def test_equal_names_pair_though_a_name_without_its_number_is_there_more_than_once(tmp_path: Path) -> None:
    mine = arrays(tmp_path / "a", {"0_out": X, "1_out": Y, "0.fc": X, "1.fc": Y})
    theirs = arrays(tmp_path / "b", {"0_out": Z, "1_out": X + 1, "0.fc": Z, "1.fc": X + 1})
    result = align.compare_trace_folders(mine, theirs)
    assert outcomes(result) == dict.fromkeys(("0_out", "1_out", "0.fc", "1.fc"), "not aligned")


def test_a_name_that_is_there_more_than_once_is_no_proof_without_its_number(tmp_path: Path) -> None:
    mine = arrays(tmp_path / "a", {"0_out": X, "1_out": Y})
    theirs = arrays(tmp_path / "b", {"1_out": Z, "2_out": X + 1})
    assert outcomes(align.compare_trace_folders(mine, theirs)) == {"0_out": "not comparable", "1_out": "not comparable"}


def test_no_file_of_a_folder_is_lost_to_another_of_the_same_name(tmp_path: Path) -> None:
    folder = arrays(tmp_path / "a", {"a.b": X})
    arrays(folder / "a", {"b": Y})
    dump = read_dump(folder)
    assert [one.module for one in dump.tensors] == ["a.b", "a/b.npy"]


def test_arrays_without_common_names_pair_by_order_where_values_show_it(tmp_path: Path) -> None:
    mine = arrays(tmp_path / "a", {"0_conv": X, "1_norm": Y, "2_out": Z})
    theirs = arrays(tmp_path / "b", {"0_c": X, "1_n": Y, "2_o": Z * np.float32(1.2)})
    assert outcomes(align.compare_trace_folders(mine, theirs)) == {
        "0_conv": "aligned",
        "1_norm": "aligned",
        "2_out": "not aligned",
    }


def test_a_stranger_of_the_same_shape_is_no_counterpart(tmp_path: Path) -> None:
    mine = arrays(tmp_path / "a", {"0_fc": X, "1_aux": Y})
    theirs = arrays(tmp_path / "b", {"0_fc": X, "1_head": Z})
    result = align.compare_trace_folders(mine, theirs)
    assert outcomes(result) == {"0_fc": "aligned", "1_aux": "not comparable"}
    assert result.verdict.outcome is Outcome.NOT_COMPARED


def test_an_archive_is_a_side_like_a_folder(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", fc=X, out=Y)
    folder = arrays(tmp_path / "b", {"fc": X, "out": Y})
    assert main(["forward", str(tmp_path / "a.npz"), str(folder)]) == 0


def test_what_a_folder_of_arrays_holds_besides_is_named(tmp_path: Path) -> None:
    folder = arrays(tmp_path / "a", {"fc": X})
    np.savez(folder / "more.npz", out=Y)
    (folder / "linked").symlink_to(arrays(tmp_path / "b", {"out": Y}))
    (note,) = read_dump(folder).notes
    assert "more.npz" in note
    assert "linked" in note


def test_a_map_that_has_no_use_is_told(tmp_path: Path) -> None:
    folder = arrays(tmp_path / "a", {"fc": X})
    result = align.compare_trace_folders(folder, folder, name_map=tmp_path / "map.yaml")
    assert "map-not-used" in [one.code for one in result.findings]


def test_a_link_that_leaves_a_folder_of_arrays_is_refused(tmp_path: Path) -> None:
    folder = arrays(tmp_path / "a", {"fc": X})
    np.save(tmp_path / "secret.npy", Y)
    (folder / "out.npy").symlink_to(tmp_path / "secret.npy")
    with pytest.raises(AlignError, match="link"):
        read_dump(folder)


@pytest.mark.parametrize("shape", ["2 3", "9" * 5000, ", ,x"])
def test_a_shape_that_is_no_list_of_numbers_is_refused(shape: str, tmp_path: Path) -> None:
    log = f"    [nn.Mod] M.0\n      aten::addmm(t: f32[3])  ->  t: f32[{shape}]  # {{'hash': 2.5}}\n"
    (tmp_path / "log.txt").write_text(log)
    with pytest.raises(DumpError):
        read_dump(tmp_path / "log.txt")
