"""Two checkpoints of any formats: every way to differ is found and named, and equal ones are equal."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import align
from align.convert import diff_checkpoints as diffs
from align.convert.diff_checkpoints import diff_checkpoints
from align.core.load_code import checkpoint_formats
from align.core.name_map import Dropped, NameMap, Pairing
from align.core.parameters import StoredTensor
from align.core.transforms import Permute, Reshape
from align.core.verdicts import Outcome
from align.errors import CannotRunError, MapError, NotACheckpointError, UsageError
from align.measure.measure_arrays import measure
from align.measure.thresholds import SHARED_BLOCK

if TYPE_CHECKING:
    from pathlib import Path

    from align.convert.pair_checkpoints import CheckpointDiff, TensorDifference

NAN = float("nan")
Values = dict[str, np.ndarray[Any, Any]]


def saved(path: Path, values: Values) -> Path:
    tensors = [StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in values.items()]
    plugin = next(p for p in checkpoint_formats().values() if path.suffix in p.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": "pt"})
    return path


FILES = ("a.safetensors", "b.safetensors")


def diffed(folder: Path, reference: Values, candidate: Values, **options: Any) -> CheckpointDiff:
    paths = saved(folder / FILES[0], reference), saved(folder / FILES[1], candidate)
    return diff_checkpoints(*paths, **options)


def only(folder: Path, reference: Any, candidate: Any) -> tuple[Outcome, TensorDifference]:
    diff = diffed(folder, {"w": np.asarray(reference)}, {"w": np.asarray(candidate)})
    (tensor,) = diff.tensors
    return diff.verdict.outcome, tensor


def check_figures(tensor: TensorDifference, reference: np.ndarray[Any, Any], candidate: np.ndarray[Any, Any]) -> None:
    assert tensor.measurement is not None
    found, expected = dataclasses.asdict(tensor.measurement), dataclasses.asdict(measure(reference, candidate))
    for name, value in expected.items():
        assert found[name] == (None if value is None else pytest.approx(value, rel=1e-12)), name


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_equal_files_are_aligned_bit_for_bit(tmp_path: Path) -> None:
    values = {"w": normal(3, 4), "b": normal(4), "steps": np.array(7), "empty": np.empty((0, 3), np.float32)}
    diff = diffed(tmp_path, values, values, unchanged=True)
    assert diff.verdict.outcome is Outcome.ALIGNED
    assert set(diff.unchanged or ()) == set(values)
    assert all(tensor.identical and tensor.outcome == "equal" for tensor in diff.tensors)


def test_missing_extra_shape_dtype_and_values_are_told_apart(tmp_path: Path) -> None:
    same = normal(2, 3)
    reference = {"same": same, "gone": same, "shape": same, "dtype": np.ones(3, np.float32), "values": same}
    candidate = {"same": same, "new": same, "shape": same.T.copy(), "dtype": np.ones(3, np.float16), "values": same + 1}
    diff = diffed(tmp_path, reference, candidate)
    found = {tensor.reference: tensor.outcome for tensor in diff.tensors}
    assert found == {"same": "equal", "shape": "shapes differ", "dtype": "dtypes differ", "values": "values differ"}
    assert (diff.missing, diff.extra) == ({"gone": "float32 (2, 3)"}, {"new": "float32 (2, 3)"})
    assert diff.verdict.outcome is Outcome.NOT_ALIGNED
    assert diff.verdict.reason == "3 of 4 tensors differ, 1 missing, 1 extra; 1 equal bit for bit"
    coverage = diff.verdict.coverage
    assert (coverage.compared, coverage.unmatched_reference, coverage.unmatched_candidate) == (4, 1, 1)


@pytest.mark.parametrize(("ours", "theirs"), [((2, 3, 1, 1), (2, 3)), ((), (1,)), ((4, 1), (4, 4)), ((0,), (1,))])
def test_unequal_shapes_are_never_broadcast(tmp_path: Path, ours: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    outcome, tensor = only(tmp_path, np.ones(ours), np.ones(theirs))
    assert (outcome, tensor.outcome, tensor.measurement) == (Outcome.NOT_ALIGNED, "shapes differ", None)


def test_the_figures_are_those_of_the_arrays_and_worst_is_where_it_is(tmp_path: Path) -> None:
    reference = normal(50, 40)
    candidate = reference * np.float32(1.01)
    candidate[17, 3] += 5
    _, tensor = only(tmp_path, reference, candidate)
    check_figures(tensor, reference, candidate)
    assert tensor.measurement is not None
    assert tensor.measurement.worst == (17, 3)


def test_one_unit_of_the_last_place_differs_and_its_relative_figures_show_rounding(tmp_path: Path) -> None:
    reference = normal(1000)
    outcome, tensor = only(tmp_path, reference, np.nextafter(reference, np.float32(9)))
    assert (outcome, tensor.outcome) == (Outcome.NOT_ALIGNED, "values differ")
    assert tensor.measurement is not None
    assert 0 < (tensor.measurement.relative_l2 or 0) < 2.0**-23


def test_nan_in_the_same_places_is_equal_and_elsewhere_is_not(tmp_path: Path) -> None:
    assert only(tmp_path, [1.0, NAN], [1.0, NAN])[0] is Outcome.ALIGNED
    outcome, tensor = only(tmp_path, [1.0, NAN], [NAN, 1.0])
    assert outcome is Outcome.NOT_ALIGNED
    assert tensor.measurement is not None
    assert tensor.measurement.non_finite_mismatch == 2


def test_minus_zero_and_other_nan_are_equal_in_value_and_not_among_the_unchanged(tmp_path: Path) -> None:
    other_nan = np.array([0x7FC00001], np.uint32).view(np.float32)
    reference = {"zero": np.array([0.0, 1.0]), "nan": np.array([NAN], np.float32), "same": np.ones(2)}
    candidate = {"zero": np.array([-0.0, 1.0]), "nan": other_nan, "same": np.ones(2)}
    diff = diffed(tmp_path, reference, candidate, unchanged=True)
    assert diff.verdict.outcome is Outcome.ALIGNED
    assert diff.verdict.reason == "all 3 tensors are equal in value, 1 of them bit for bit"
    assert diff.unchanged == ("same",)


def test_a_dtype_is_a_difference_though_all_values_are_equal(tmp_path: Path) -> None:
    for kind in (np.float16, ml_dtypes.bfloat16, np.float64, np.int32):
        outcome, tensor = only(tmp_path, np.arange(4, dtype=np.float32), np.arange(4).astype(kind))
        assert (outcome, tensor.outcome, tensor.identical) == (Outcome.NOT_ALIGNED, "dtypes differ", False)


@pytest.mark.parametrize("pair", [(np.float32, ml_dtypes.bfloat16), (np.float64, np.float16), (np.int64, np.uint8)])
def test_values_of_two_dtypes_are_compared_in_the_wider_one(tmp_path: Path, pair: tuple[Any, Any]) -> None:
    reference = (normal(3 * SHARED_BLOCK) * 50).astype(pair[0])
    candidate = (normal(3 * SHARED_BLOCK, seed=1) * 50).astype(pair[1])
    _, tensor = only(tmp_path, reference, candidate)
    check_figures(tensor, reference, candidate)


def test_integers_beyond_the_53_bits_of_float64_are_told_apart(tmp_path: Path) -> None:
    _, tensor = only(tmp_path, np.array([2**62, True]), np.array([2**62 + 1, True]))
    assert tensor.measurement is not None
    assert (tensor.measurement.max_abs, tensor.measurement.mismatched) == (1.0, 1)
    assert only(tmp_path, [True, False], [True, True])[0] is Outcome.NOT_ALIGNED
    assert only(tmp_path, np.array([1 + 2j], np.complex64), np.array([1 + 2j], np.complex64))[0] is Outcome.ALIGNED


def test_nothing_in_common_could_not_be_compared_and_hints_at_a_map(tmp_path: Path) -> None:
    diff = diffed(tmp_path, {"fc.weight": normal(2)}, {"aux.fc.gamma": normal(2)})
    assert diff.verdict.outcome is Outcome.NOT_COMPARED
    assert "--map" in diff.warnings[0]
    assert diff.tensors == ()


def test_no_tensors_on_either_side_could_not_be_compared(tmp_path: Path) -> None:
    assert diffed(tmp_path, {}, {}).verdict.outcome is Outcome.NOT_COMPARED


def test_hardly_any_equal_names_hint_at_a_map(tmp_path: Path) -> None:
    reference = {f"bn.{i}.weight": normal(2) for i in range(9)} | {"fc": normal(2)}
    candidate = {f"bn.{i}.gamma": normal(2) for i in range(9)} | {"fc": normal(2)}
    diff = diffed(tmp_path, reference, candidate)
    assert diff.warnings == (
        "only 1 of 10 names is on both sides: if they are named differently, give their map with --map",
    )
    assert diffed(tmp_path, reference, {"fc": normal(2)}).warnings == ()  # a part of the other: the names are alike


def test_a_map_pairs_and_transforms(tmp_path: Path) -> None:
    reference = {"conv": normal(4, 3, 5), "fc": normal(2, 3), "count": np.array(1)}
    candidate = {
        "c.weight": reference["conv"].reshape(4, 3, 1, 5),
        "f.weight": reference["fc"].T.copy(),
        "step": np.array(2),
    }
    pairings = (
        Pairing("conv", "c.weight", "user", 1.0, Reshape((4, 3, 1, 5))),
        Pairing("fc", "f.weight", "user", 1.0, Permute((1, 0))),
    )
    dropped = (Dropped("count", "source", "a counter"), Dropped("step", "target", "of the trainer"))
    diff = diffed(tmp_path, reference, candidate, name_map=NameMap("a", "b", pairings, dropped), unchanged=True)
    assert diff.verdict.outcome is Outcome.ALIGNED
    assert diff.unchanged == ("conv", "fc")
    assert (diff.dropped, diff.verdict.coverage.excluded) == ({"count": "a counter", "step": "of the trainer"}, 2)


def test_a_map_that_leaves_a_tensor_out_leaves_it_missing(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[names]\n"a" = "x"\n"b" = { to = "y", op = "reshape", shape = [7] }\n')
    reference = {"a": normal(2), "b": normal(6), "c": normal(2)}
    diff = diffed(
        tmp_path, reference, {"x": reference["a"], "y": normal(7), "c": normal(2)}, name_map=tmp_path / "map.toml"
    )
    assert [(t.reference, t.candidate, t.outcome) for t in diff.tensors] == [
        ("a", "x", "equal"),
        ("b", "y", "shapes differ"),
    ]
    assert diff.tensors[1].note == "cannot reshape (6,) to (7,)"
    assert (list(diff.missing), list(diff.extra)) == (["c"], ["c"])
    assert diff.verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.parametrize(("names", "at_fault"), [(("b", "x"), 0), (("a", "y"), 1)])
def test_a_file_of_other_names_than_the_maps_is_named_not_the_map(
    names: tuple[str, str], at_fault: int, tmp_path: Path
) -> None:
    (tmp_path / "map.toml").write_text('[names]\na = "x"\n')
    with pytest.raises(CannotRunError) as raised:
        diffed(tmp_path, {names[0]: normal(2)}, {names[1]: normal(2)}, name_map=tmp_path / "map.toml")
    wanted, there = (("a", "b"), ("x", "y"))[at_fault]
    said = raised.value.message
    assert said.endswith(f"map.toml ({wanted}); it has {there}")
    assert said.startswith(str(tmp_path / FILES[at_fault]))
    assert "remove its line `checkpoint`" in raised.value.hint


def test_a_map_of_names_that_neither_file_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[names]\na = "x"\n')
    with pytest.raises(MapError, match="its names are those of neither"):
        diffed(tmp_path, {"b": normal(2)}, {"y": normal(2)}, name_map=tmp_path / "map.toml")


MAP = """
[names]
w = { to = "weight", op = "permute", axes = [1, 0] }
gone = "left"
[dropped.source]
"*.num_batches_tracked" = "MindSpore has no counter"
[dropped.target]
"bn.extra" = "only MindSpore has it"
"""


@pytest.mark.parametrize("back", [False, True])
def test_a_map_is_followed_in_the_direction_that_fits_and_its_drops_are_excluded(tmp_path: Path, back: bool) -> None:
    (tmp_path / "map.toml").write_text(MAP)
    ours = {"w": normal(2, 3), "bn.num_batches_tracked": np.array(3), "new": normal(2)}
    theirs = {"weight": normal(2, 3).T.copy(), "bn.extra": normal(1)}
    sides = (theirs, ours) if back else (ours, theirs)
    diff = diffed(tmp_path, *sides, name_map=tmp_path / "map.toml")
    assert [tensor.identical for tensor in diff.tensors] == [True]
    assert list(diff.extra if back else diff.missing) == ["new"]
    assert list(diff.missing if back else diff.extra) == []
    assert diff.dropped == {
        "bn.num_batches_tracked": "MindSpore has no counter",
        "bn.extra": "only MindSpore has it",
    }
    assert diff.verdict.coverage.compared == 1
    assert any("used backwards" in said for said in diff.warnings) is back


def test_a_conversion_is_checked_by_its_record_in_both_directions(tmp_path: Path) -> None:
    from align.cli.main import main

    values = {"conv.weight": normal(4, 3, 3, 3), "bn.weight": normal(4), "bn.bias": normal(4)}
    values |= {"bn.running_mean": normal(4), "bn.running_var": normal(4) ** 2, "bn.num_batches_tracked": np.array(7)}
    source, run = saved(tmp_path / "plain.pth", values), tmp_path / "run"
    assert main(["convert", str(source), str(tmp_path / "ms.ckpt"), "--run", str(run)]) == 0
    for sides in (source, tmp_path / "ms.ckpt"), (tmp_path / "ms.ckpt", source):
        diff = diff_checkpoints(*sides, name_map=run / "convert.json")
        assert diff.verdict.outcome is Outcome.ALIGNED
        assert (len(diff.tensors), list(diff.dropped)) == (5, ["bn.num_batches_tracked"])
    damaged = dict(values, **{"bn.bias": values["bn.bias"] + 1})
    diff = diff_checkpoints(tmp_path / "ms.ckpt", saved(tmp_path / "d.pth", damaged), name_map=run / "convert.json")
    assert [tensor.candidate for tensor in diff.tensors if tensor.outcome != "equal"] == ["bn.bias"]


def test_a_transform_without_a_way_back_is_named(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[names]\na = "x"\nb = { to = "y", op = "cast", dtype = "float16" }\n')
    ours, theirs = {"x": normal(2), "y": normal(2).astype(np.float16)}, {"a": normal(2), "b": normal(2)}
    diff = diffed(tmp_path, ours, theirs, name_map=tmp_path / "map.toml")
    assert (list(diff.missing), list(diff.extra)) == (["y"], ["b"])
    assert "cannot go back to b" in diff.warnings[1]


def test_prefixes_are_taken_off_whichever_side_has_them(tmp_path: Path) -> None:
    ours = {"fc.weight": normal(2), "fc.bias": normal(1)}
    theirs = {f"module._orig_mod.{name}": value for name, value in ours.items()}
    for sides in ((ours, theirs), (theirs, ours)):
        diff = diffed(tmp_path, *sides, strip=["_orig_mod", "module."])
        assert diff.verdict.outcome is Outcome.ALIGNED
        assert [tensor.candidate for tensor in diff.tensors] == sorted(ours)
        assert diff.strip == ("_orig_mod", "module.")
        unasked = diffed(tmp_path, *sides)
        assert unasked.verdict.outcome is Outcome.ALIGNED
        assert unasked.warnings == (
            "names are matched without the parts that a wrapper added: module., _orig_mod. in 2 names",
        )
    with pytest.raises(UsageError, match=r"no name starts with 'net\.'"):
        diffed(tmp_path, ours, theirs, strip=["net"])


def test_a_prefix_that_is_no_wrappers_stays_and_the_option_is_named(tmp_path: Path) -> None:
    ours = {"fc.weight": normal(2), "fc.bias": normal(1)}
    diff = diffed(tmp_path, ours, {f"net.{name}": value for name, value in ours.items()})
    assert diff.verdict.outcome is Outcome.NOT_COMPARED
    assert diff.warnings == ("only 0 of 2 names are on both sides: with --strip net. the names are equal",)


def test_wrappers_in_the_middle_of_names_are_taken_off_beside_names_that_one_side_lacks(tmp_path: Path) -> None:
    bare = {"encoder.fc.weight": normal(2), "encoder.fc.bias": normal(1), "head.weight": normal(3)}
    words = {"encoder.fc": "encoder._fsdp_wrapped_module.fc._orig_mod", "head": "head.module"}
    wrapped = {f"{words[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}": value for name, value in bare.items()}
    for sides in ((bare | {"own": normal(1)}, wrapped), (wrapped | {"own": normal(1)}, bare)):
        diff = diffed(tmp_path, *sides)
        assert (len(diff.tensors), list(diff.missing), list(diff.extra)) == (3, ["own"], [])
        assert {tensor.outcome for tensor in diff.tensors} == {"equal"}
        assert "without the parts that a wrapper added" in diff.warnings[0]


def test_a_map_of_bare_names_fits_files_of_wrapped_ones(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[names]\n"fc.w" = "weight"\n')
    ours, theirs = {"_orig_mod.fc.w": normal(2)}, {"module.weight": normal(2)}
    diff = diffed(tmp_path, ours, theirs, name_map=tmp_path / "map.toml")
    assert diff.verdict.outcome is Outcome.ALIGNED


def test_stripping_comes_before_the_map(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text('[names]\nw = "weight"\n')
    ours, theirs = {"module.w": normal(2)}, {"weight": normal(2)}
    diff = diffed(tmp_path, ours, theirs, strip=["module"], name_map=tmp_path / "map.toml")
    assert diff.verdict.outcome is Outcome.ALIGNED


def test_one_shard_alone_is_told_of_the_others(tmp_path: Path) -> None:
    shard = saved(tmp_path / "m-00001-of-00003.safetensors", {"w": normal(2)})
    diff = diff_checkpoints(shard, shard)
    assert "one of 3 shards" in diff.warnings[0]


@pytest.mark.parametrize("suffixes", [(".npz", ".safetensors"), (".ckpt", ".npz"), (".safetensors", ".ckpt")])
def test_formats_do_not_matter(tmp_path: Path, suffixes: tuple[str, str]) -> None:
    values = {"w": normal(300, 7), "b": normal(5), "steps": np.array(3, np.int64)}
    ours, theirs = (saved(tmp_path / f"side{suffix}", values) for suffix in suffixes)
    diff = diff_checkpoints(ours, theirs)
    assert diff.verdict.outcome is Outcome.ALIGNED
    assert diff.verdict.coverage.compared == 3


def test_column_major_and_compressed_arrays_are_compared_by_value(tmp_path: Path) -> None:
    values = {"w": normal(700, 301)}
    np.savez_compressed(tmp_path / "a.npz", w=np.asfortranarray(values["w"]))
    candidate = saved(tmp_path / "b.safetensors", values)
    assert diff_checkpoints(tmp_path / "a.npz", candidate).verdict.outcome is Outcome.ALIGNED


def test_large_tensors_are_cut_into_parts_that_give_the_figures_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = normal(5 * SHARED_BLOCK + 3)
    candidate = reference + normal(5 * SHARED_BLOCK + 3, seed=1) * np.float32(1e-3)
    candidate[[10, -1]] = NAN, 1e6
    for part in (SHARED_BLOCK // 2 + 1, 2 * SHARED_BLOCK, diffs.PART_ELEMENTS):
        monkeypatch.setattr(diffs, "PART_ELEMENTS", part)
        _, tensor = only(tmp_path, reference, candidate)
        check_figures(tensor, reference, candidate)


def test_blocks_of_unlike_lengths_are_put_together(tmp_path: Path) -> None:
    values = normal(1000)

    def in_blocks(length: int) -> StoredTensor:
        raw = memoryview(values.tobytes())
        blocks = lambda _: (raw[start : start + length] for start in range(0, len(raw), length))  # noqa: E731
        return StoredTensor("w", (1000,), "float32", lambda: values, blocks=blocks)

    (sums,) = diffs.measure_pairs([(in_blocks(28), in_blocks(52))])
    assert (sums.count, sums.mismatched, sums.identical) == (1000, 0, True)


def test_many_small_tensors_are_all_compared(tmp_path: Path) -> None:
    reference = {f"layers.{i}.weight": normal(4, seed=i) for i in range(300)}
    moved = {name: value + (name == "layers.123.weight") for name, value in reference.items()}
    diff = diffed(tmp_path, reference, moved, unchanged=True)
    assert [t.reference for t in diff.tensors if t.outcome != "equal"] == ["layers.123.weight"]
    assert [t.reference for t in diff.tensors] == sorted(reference)  # the order of the file
    assert diff.unchanged is not None
    assert len(diff.unchanged) == 299


def test_a_crc_is_checked_before_anything_is_compared(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.ckpt", {"w": normal(4)})
    with path.open("ab") as stream:
        stream.write(b"crc_num" + (12345).to_bytes(10, "big"))
    with pytest.raises(NotACheckpointError, match=r"(?i)crc"):
        diff_checkpoints(path, path)


def test_a_file_cut_short_while_it_is_read_ends_in_its_error_and_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {f"w{i}": normal(1000) for i in range(50)}
    ours, theirs = saved(tmp_path / "a.safetensors", values), saved(tmp_path / "b.safetensors", values)

    measure_pairs = diffs.measure_pairs

    def cut(*_: object) -> tuple[object, ...]:
        os.truncate(theirs, theirs.stat().st_size // 2)
        return measure_pairs(*_)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr("align.convert.diff_checkpoints.measure_pairs", cut)
    before = threading.active_count()
    with pytest.raises(NotACheckpointError, match=r"b\.safetensors .* ends at byte"):
        diff_checkpoints(ours, theirs)
    assert threading.active_count() == before


def test_progress_ends_at_all_bytes_of_both_sides(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    values = {"a": normal(1000), "b": normal(10)}
    diffed(tmp_path, values, values, progress=lambda *step: told.append(step))
    assert told[-1] == ("comparing", 8080, 8080)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_a_folder_of_shards_is_one_side(tmp_path: Path) -> None:
    values = {"a": normal(10), "b": normal(20)}
    folder = tmp_path / "sharded"
    folder.mkdir()
    saved(folder / "model-00001-of-00002.safetensors", {"a": values["a"]})
    saved(folder / "model-00002-of-00002.safetensors", {"b": values["b"]})
    places = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    index = {"metadata": {"total_size": 120}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = saved(tmp_path / "whole.npz", values)
    assert diff_checkpoints(folder, whole).verdict.outcome is Outcome.ALIGNED


@pytest.mark.frameworks
def test_a_torch_file_against_its_mindspore_port_by_the_map(tmp_path: Path) -> None:
    import mindspore
    import torch

    model = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), torch.nn.BatchNorm1d(4))
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "a.pth")
    names = {"0.weight": "conv.weight", "0.bias": "conv.bias", "1.weight": "bn.gamma", "1.bias": "bn.beta"}
    names |= {"1.running_mean": "bn.moving_mean", "1.running_var": "bn.moving_variance"}
    values = {new: model.state_dict()[old].numpy() for old, new in names.items()}
    values["conv.weight"] = values["conv.weight"][:, :, None]
    mindspore.save_checkpoint(
        [{"name": name, "data": mindspore.Tensor(value)} for name, value in values.items()], str(tmp_path / "b.ckpt")
    )
    lines = [f'"{old}" = "{new}"' for old, new in names.items() if old != "0.weight"]
    lines += ['"0.weight" = { to = "conv.weight", op = "reshape", shape = [4, 3, 1, 3] }', "[dropped.source]"]
    (tmp_path / "map.toml").write_text("\n".join(["[names]", *lines, '"*.num_batches_tracked" = "not counted"']))
    diff = diff_checkpoints(tmp_path / "a.pth", tmp_path / "b.ckpt", name_map=tmp_path / "map.toml", unchanged=True)
    assert (diff.verdict.outcome, len(diff.unchanged or ())) == (Outcome.ALIGNED, 6)


@pytest.mark.frameworks
def test_what_a_training_step_did_not_move_is_listed(tmp_path: Path) -> None:
    import torch

    model = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in ("used", "frozen", "forgotten", "uncalled")})
    model["frozen"].requires_grad_(False)
    torch.save(model.state_dict(), tmp_path / "before.pth")
    moving = [p for name, layer in model.items() if name != "forgotten" for p in layer.parameters()]
    optimizer = torch.optim.SGD(moving, lr=0.1)
    model["forgotten"](model["frozen"](model["used"](torch.ones(2, 4)))).sum().backward()
    optimizer.step()
    torch.save(model.state_dict(), tmp_path / "after.pth")
    diff = align.diff_checkpoints(tmp_path / "before.pth", tmp_path / "after.pth", unchanged=True)
    stuck = [f"{layer}.{name}" for layer in ("frozen", "forgotten", "uncalled") for name in ("weight", "bias")]
    assert diff.unchanged == tuple(stuck)


@pytest.mark.frameworks
def test_keys_choose_the_entries_and_what_lies_beside_is_said(tmp_path: Path) -> None:
    import torch

    weights = {"w": torch.arange(6.0)}
    torch.save({"model": weights, "ema": {"w": torch.arange(6.0) + 1}}, tmp_path / "a.pth")
    torch.save(weights, tmp_path / "b.pth")
    sides = tmp_path / "a.pth", tmp_path / "b.pth"
    diff = diff_checkpoints(*sides, reference_key="model")
    assert diff.verdict.outcome is Outcome.ALIGNED
    assert any("ema" in line and "NOT COMPARED" in line for line in diff.warnings)
    assert diff_checkpoints(*sides, reference_key="ema").verdict.outcome is Outcome.NOT_ALIGNED


@pytest.mark.frameworks
def test_transposed_views_in_torch_files_are_compared_as_what_they_show(tmp_path: Path) -> None:
    import torch

    base = torch.randn(600, 700)
    torch.save({"w": base.T}, tmp_path / "a.pth")
    torch.save({"w": base.T.contiguous()}, tmp_path / "b.pth")
    assert diff_checkpoints(tmp_path / "a.pth", tmp_path / "b.pth").verdict.outcome is Outcome.ALIGNED


PARTS = {
    "conv.weight_g": "conv.parametrizations.weight.original0",
    "conv.weight_v": "conv.parametrizations.weight.original1",
    "rnn.weight_hh_l0_g": "rnn.parametrizations.weight_hh_l0.original0",
    "rnn.weight_hh_l0_v": "rnn.parametrizations.weight_hh_l0.original1",
    "fc.weight_orig": "fc.parametrizations.weight.original",
    "fc.weight_u": "fc.parametrizations.weight.0._u",
    "fc.weight_v": "fc.parametrizations.weight.0._v",
}


@pytest.mark.parametrize("layer", ["conv.", "rnn.", "fc.", ""])
@pytest.mark.parametrize("newer_first", [True, False])
def test_parts_of_weights_pair_under_older_and_newer_names(tmp_path: Path, layer: str, newer_first: bool) -> None:
    rng = np.random.default_rng(0)
    older = {name: rng.standard_normal((3, 2)) for name in PARTS if name.startswith(layer)}
    newer = {PARTS[name]: value for name, value in older.items()}
    sides = (newer, older) if newer_first else (older, newer)
    both = [{**side, "head.bias": np.zeros(2)} for side in sides]
    diff = diffed(tmp_path, *both)
    assert (diff.verdict.outcome, len(diff.tensors)) == (Outcome.ALIGNED, len(older) + 1)
    last = next(iter(both[1]))
    differs = diffed(tmp_path, both[0], {**both[1], last: both[1][last] + 1})
    assert differs.verdict.outcome is Outcome.NOT_ALIGNED
    assert [one.candidate for one in differs.tensors if one.outcome != "equal"] == [last]


def test_a_magnitude_is_no_direction(tmp_path: Path) -> None:
    diff = diffed(tmp_path, {"conv.weight_g": np.ones(3)}, {"conv.parametrizations.weight.original1": np.ones(3)})
    assert diff.verdict.outcome is not Outcome.ALIGNED
