"""msprobe's dumps are read as it writes them: modules and functions, nested values, figures and checksums."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.cli.main import main
from align.core.load_code import dump_readers
from align.errors import AlignError, DumpError, HostileFileError

if TYPE_CHECKING:
    from align.core.traces import DumpedTensor, ForeignDump

DATA = Path(__file__).parents[1] / "data" / "msprobe"
EXTRA = DATA / "extra"


def read(path: Path) -> ForeignDump:
    return dump_readers()["msprobe"].read(path)


def tensor(dump: ForeignDump, part: str, module: str, item: str = "", call: int = 0) -> DumpedTensor:
    (found,) = (one for one in dump.tensors if (one.part, one.module, one.item, one.call) == (part, module, item, call))
    return found


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the folder of one step and rank, to be damaged."""
    return Path(shutil.copytree(DATA / "mindspore" / "step0" / "rank0", tmp_path / "dump"))


def change(folder: Path, name: str, change: Any) -> None:
    file = folder / "dump.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    change(document["data"][name])
    file.write_text(json.dumps(document), encoding="utf-8")


def first_output(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["output"][0]
    return found


def test_every_part_of_a_call_is_read() -> None:
    dump = read(DATA / "torch")
    counts = {part: sum(one.part == part for one in dump.tensors) for part in {one.part for one in dump.tensors}}
    assert counts == {
        "output": 8, "input": 8, "parameter": 10, "output gradient": 8, "input gradient": 7, "parameter gradient": 10,
    }  # fmt: skip
    assert (dump.framework, dump.notes) == ("torch", ())
    output = tensor(dump, "output", "layers.2")
    assert (output.class_name, output.shape, output.dtype, output.depth) == ("LayerNorm", (2, 16), "float32", 1)
    assert output.load is not None
    assert output.statistics is not None
    assert np.isclose(output.load().max(), output.statistics.max)
    assert np.isclose(np.sqrt(np.mean(output.load() ** 2)), output.statistics.rms, rtol=1e-5)


def test_the_line_of_the_users_code_is_kept() -> None:
    assert read(DATA / "torch").places["conv1", 0] == "/data/port/pt_r.py:11"


def test_values_inside_of_lists_and_tables_have_names() -> None:
    dump = read(EXTRA / "types_2steps_torch")
    names = {one.item: one.dtype for one in dump.tensors if one.module == "sub" and one.part in ("input", "output")}
    assert names == {
        "0": "float32", "mask": "bool", "opts.k": "float32",
        "y": "float32", "aux.0": "float32", "aux.2.0": "float16", "aux.2.1": "bool", "aux.2.2": "int64",
    }  # fmt: skip
    assert tensor(dump, "output", "sub", "aux.0").shape == ()
    assert tensor(dump, "output", "shared", call=1).order > tensor(dump, "output", "shared").order


def test_functions_stand_inside_of_the_module_that_calls_them() -> None:
    dump = read(EXTRA / "mix_mindspore")
    assert tensor(dump, "output", "conv1/Primitive.conv2d.Conv2D").depth == 1
    assert tensor(dump, "output", "layers.0/Primitive.bias_add.BiasAdd").class_name == "biasadd"
    assert tensor(dump, "output", "/Functional.cross_entropy").shape == ()


def test_figures_and_checksums_are_read_without_tensors() -> None:
    one = tensor(read(EXTRA / "md5_torch"), "output", "relu")
    assert (one.load, one.digest) == (None, "crc32:55969faa")
    assert one.statistics is not None
    assert one.statistics.min == 0.0


def test_what_the_user_saved_is_read() -> None:
    dump = read(EXTRA / "debug_save_mindspore")
    assert [(one.module, one.item, one.shape) for one in dump.tensors] == [("x1", "", (2, 3)), ("obj", "a", (2,))]


def test_of_several_runs_one_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in ("step2", "step10"):
        shutil.copytree(EXTRA / "md5_torch" / "step0", tmp_path / step)
    assert main(["trace", "show", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    runs = [str(tmp_path / step / "rank0") for step in ("step2", "step10")]
    assert f"holds 2 runs: {', '.join(runs)}" in " ".join(said.split())
    assert f"Hint: name one of them: {tmp_path / 'step2' / 'rank0'}" in said.replace("\n  ", " ")


def test_a_newer_dump_says_what_is_not_known(copied: Path) -> None:
    change(copied, "Cell.fc.Dense.forward.0", lambda record: record.update(rng_state={}))
    (note,) = read(copied).notes
    assert "msprobe 26.2.0" in note
    assert "rng_state" in note


def test_a_missing_file_is_named(copied: Path) -> None:
    (copied / "dump_tensor_data" / "Cell.fc.Dense.forward.0.output.0.npy").unlink()
    with pytest.raises(DumpError, match=r"lacks files.*Cell\.fc\.Dense\.forward\.0\.output\.0\.npy") as caught:
        read(copied)
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_path_that_leaves_the_folder_is_refused(copied: Path) -> None:
    change(copied, "Cell.fc.Dense.forward.0", lambda record: first_output(record).update(data_name="../../secret.npy"))
    with pytest.raises(HostileFileError, match="not a file in its folder"):
        read(copied)


def test_a_link_that_leaves_the_folder_is_refused(copied: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "secret.npy", np.zeros((2, 10), np.float32))
    file = copied / "dump_tensor_data" / "Cell.fc.Dense.forward.0.output.0.npy"
    file.unlink()
    file.symlink_to(tmp_path / "secret.npy")
    with pytest.raises(HostileFileError, match="link"):
        read(copied)


def test_a_shape_that_lies_is_found_when_the_tensor_is_read(copied: Path) -> None:
    change(copied, "Cell.fc.Dense.forward.0", lambda record: first_output(record).update(shape=[2, 10**9]))
    load = tensor(read(copied), "output", "fc").load
    assert load is not None
    with pytest.raises(DumpError, match="has the shape"):
        load()


@pytest.mark.parametrize(
    "value",
    [
        {"shape": [-1]},
        {"shape": "2"},
        {"shape": [1] * 99},
        {"shape": [10**200, 10**200]},
        {"shape": [2.5]},
        {"dtype": "os.system"},
        {"data_name": "\0"},
        {"data_name": "a" * 5000},
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_no_tensor_has_is_refused(copied: Path, value: dict[str, Any]) -> None:
    change(copied, "Cell.fc.Dense.forward.0", lambda record: first_output(record).update(value))
    with pytest.raises(AlignError) as caught:
        read(copied)
    assert caught.value.hint


def test_a_pickle_is_not_run(copied: Path) -> None:
    file = copied / "dump_tensor_data" / "Cell.fc.Dense.forward.0.output.0.npy"
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    load = tensor(read(copied), "output", "fc").load
    assert load is not None
    with pytest.raises(AlignError, match="Python objects"):
        load()


def test_nesting_without_end_is_refused(copied: Path) -> None:
    deep = '{"data": {"Cell.fc.Dense.forward.0": {"output": ' + "[" * 50_000 + "]" * 50_000 + "}}}"
    (copied / "dump.json").write_text(deep, encoding="utf-8")
    with pytest.raises(AlignError) as caught:
        read(copied)
    assert caught.value.hint
