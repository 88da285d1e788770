"""A file and its own conversion, files that counts stand in on one side only, and one file given twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints, diff_updates
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor
from align.core.verdicts import Outcome

if TYPE_CHECKING:
    from pathlib import Path

Values = dict[str, np.ndarray[Any, Any]]


def saved(path: Path, values: Values, names: str = "pt") -> Path:
    tensors = [StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in values.items()]
    plugin = next(p for p in checkpoint_formats().values() if path.suffix in p.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": names})
    return path


def drawn(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed + 17 * len(shape)).standard_normal(shape).astype(np.float32)


NORM = {
    "conv.weight": drawn(4, 3, 3, 3),
    "bn.weight": drawn(4, seed=1),
    "bn.bias": drawn(4, seed=2),
    "bn.running_mean": drawn(4, seed=3),
    "bn.running_var": abs(drawn(4, seed=4)) + 1,
    "bn.num_batches_tracked": np.int64(3).reshape(()),
    "fc.weight": drawn(5, 4),
    "fc.bias": drawn(5, seed=6),
}
TEXT = {
    "emb.weight": drawn(10, 8),
    "norm.weight": drawn(8, seed=1),
    "norm.bias": drawn(8, seed=2),
    "act.weight": drawn(1, seed=3),
    "fc.weight": drawn(6, 8, seed=4),
    "fc.bias": drawn(6, seed=5),
}
SOUND = {
    "conv.weight": drawn(4, 3, 5),
    "conv.bias": drawn(4),
    "norm.weight": drawn(4, seed=1),
    "norm.bias": drawn(4, seed=2),
}
MODELS: dict[str, tuple[Values, tuple[str, ...]]] = {
    "norm": (NORM, ()),
    "text": (TEXT, ("emb=embedding", "act=prelu")),
    "sound": (SOUND, ("conv=conv-1d",)),
}


def converted(folder: Path, model: str, values: Values | None = None, **options: Any) -> tuple[Path, Path]:
    own, layers = MODELS[model]
    source = saved(folder / f"{model}.pth", values or own)
    out = folder / f"{model}.ckpt"
    convert_checkpoint(source, out, layers=layers, overwrite=True, **options)
    return source, out


def moved(values: Values, by: float = 0.01) -> Values:
    return {name: value + np.float32(by) if value.dtype == np.float32 else value for name, value in values.items()}


def test_a_file_and_its_own_conversion_are_equal(tmp_path: Path, assert_each: Any) -> None:
    def check(model: str, target: str, back: bool) -> None:
        files = converted(tmp_path, model, target=target)
        diff = diff_checkpoints(*(files[::-1] if back else files))
        assert (diff.verdict.outcome, diff.missing, diff.extra) == (Outcome.ALIGNED, {}, {}), diff.verdict.reason
        assert len(diff.tensors) + len(diff.dropped) == len(MODELS[model][0])
        renamed = any(one.reference != one.candidate for one in diff.tensors)
        assert any("the names of two frameworks" in text for text in diff.warnings) == renamed

    assert_each(
        check, [(model, target, back) for model in MODELS for target in ("nn", "mint") for back in (False, True)]
    )


def test_what_was_changed_after_a_conversion_is_found_under_its_own_name(tmp_path: Path, assert_each: Any) -> None:
    def check(model: str, name: str, becomes: str) -> None:
        own = MODELS[model][0]
        source, out = converted(tmp_path, model, {**own, name: own[name] + 1})
        saved(source, own)
        diff = diff_checkpoints(source, out)
        assert diff.verdict.outcome is Outcome.NOT_ALIGNED
        assert [one.candidate for one in diff.tensors if one.outcome != "equal"] == [becomes]
        assert (diff.missing, diff.extra) == ({}, {})

    examples = [
        ("norm", "bn.weight", "bn.gamma"),
        ("text", "emb.weight", "emb.embedding_table"),
        ("text", "act.weight", "act.w"),
    ]
    assert_each(check, [*examples, ("sound", "conv.weight", "conv.weight"), ("norm", "fc.bias", "fc.bias")])


TWINS = {
    **{name: value for name, value in NORM.items() if not name.startswith("fc")},
    **{f"fc{n}.weight": drawn(6, 6, seed=n) for n in (1, 2)},
    "head.weight": drawn(9, 6),
    "head.bias": drawn(9),
}


def test_a_layer_that_holds_another_one_s_weight_is_no_layer_of_that_name(tmp_path: Path, assert_each: Any) -> None:
    source = saved(tmp_path / "twins.pth", TWINS)
    convert_checkpoint(source, tmp_path / "twins.ckpt", layers=["fc*=linear"])
    port = {name: np.asarray(one.load()) for name, one in open_checkpoint(tmp_path / "twins.ckpt").tensors.items()}

    def check(changes: Values, relations: dict[str, str]) -> None:
        other = saved(tmp_path / "other.ckpt", {**port, **changes}, "ms")
        diff = diff_checkpoints(source, other)
        assert diff.verdict.outcome is Outcome.NOT_ALIGNED
        assert {one.reference: one.relations[0].id for one in diff.tensors if one.outcome != "equal"} == relations

    swapped = {"fc1.weight": port["fc2.weight"], "fc2.weight": port["fc1.weight"]}
    assert_each(
        check,
        [
            (swapped, {"fc1.weight": "another-tensor", "fc2.weight": "another-tensor"}),
            ({"fc1.weight": np.ascontiguousarray(port["fc1.weight"].T)}, {"fc1.weight": "transposed"}),
        ],
    )
    turned = saved(tmp_path / "turned.ckpt", {**port, "head.weight": np.ascontiguousarray(port["head.weight"].T)}, "ms")
    diff = diff_checkpoints(source, turned)
    assert any("keeps it the other way round: head.weight" in text for text in diff.warnings)


def test_names_of_a_known_family_pair_where_no_value_tells(tmp_path: Path) -> None:
    llama = {"model.embed_tokens.weight": drawn(24, 16), "lm_head.weight": drawn(24, 16, seed=1)}
    for number in range(2):
        layer = f"model.layers.{number}"
        llama |= {f"{layer}.self_attn.{one}_proj.weight": drawn(16, 16, seed=ord(one) + number) for one in "qkvo"}
        llama |= {f"{layer}.mlp.{one}_proj.weight": drawn(32, 16, seed=number + len(one)) for one in ("gate", "up")}
        llama[f"{layer}.mlp.down_proj.weight"] = drawn(16, 32, seed=number)
        llama |= {f"{layer}.{one}_layernorm.weight": np.ones(16, np.float32) for one in ("input", "post_attention")}
    llama["model.norm.weight"] = np.ones(16, np.float32)
    source = saved(tmp_path / "llama.pth", llama)
    convert_checkpoint(source, tmp_path / "llama.ckpt", family="mf-llama")
    diff = diff_checkpoints(source, tmp_path / "llama.ckpt")
    assert (diff.verdict.outcome, len(diff.tensors)) == (Outcome.ALIGNED, len(llama)), diff.verdict.reason


def test_names_that_nothing_pairs_are_not_compared(tmp_path: Path) -> None:
    source, out = converted(tmp_path, "norm")
    tensors = {name: np.asarray(one.load()) for name, one in open_checkpoint(out).tensors.items()}
    other = saved(
        tmp_path / "other.ckpt", {f"renamed.{n}" if n == "fc.bias" else n: v for n, v in tensors.items()}, "ms"
    )
    saved(source, {**NORM, "fc.bias": NORM["fc.bias"] + 1})
    diff = diff_checkpoints(source, other)
    assert diff.verdict.outcome is Outcome.NOT_COMPARED
    assert "nothing in the files pairs fc.bias of the reference with renamed.fc.bias" in diff.verdict.reason
    assert "--map" in diff.verdict.reason


def test_names_of_one_framework_are_still_compared_as_they_are(tmp_path: Path) -> None:
    first = saved(tmp_path / "a.pth", {"conv.weight_g": drawn(4, 1), "conv.weight_v": drawn(4, 3)})
    other = saved(tmp_path / "b.pth", {"conv.original0": drawn(4, 1), "conv.original1": drawn(4, 3), "fc": drawn(2)})
    diff = diff_checkpoints(first, other)
    assert (len(diff.missing), len(diff.extra)) == (2, 3)
    assert not any("two frameworks" in text for text in diff.warnings)


COUNTS: dict[str, np.ndarray[Any, Any]] = {
    "global_step": np.array([77], np.int32),
    "epoch_num": np.int32(3).reshape(()),
    "step_num": np.array([5], np.int64),
}


def test_a_count_that_stands_in_one_file_only_stops_no_comparison(tmp_path: Path, assert_each: Any) -> None:
    own = {"fc.weight": drawn(5, 4), "fc.bias": drawn(5), "bn.gamma": drawn(4), "bn.beta": drawn(4, seed=1)}

    def check(name: str, flipped: bool) -> None:
        files = saved(tmp_path / "a.ckpt", own, "ms"), saved(tmp_path / "b.ckpt", {**own, name: COUNTS[name]}, "ms")
        diff = diff_checkpoints(*(files[::-1] if flipped else files))
        assert (diff.verdict.outcome, diff.dropped) == (Outcome.ALIGNED, {name: "optimizer state"})
        saved(files[1], {**moved(own), name: COUNTS[name]}, "ms")
        result = diff_updates(files, files)
        assert (result.verdict.outcome, result.dropped) == (Outcome.ALIGNED, {name: "optimizer state"})

    assert_each(check, [(name, flipped) for name in COUNTS for flipped in (False, True)])


def test_a_count_in_both_files_is_compared(tmp_path: Path) -> None:
    own = {"bn.gamma": drawn(4), "bn.beta": drawn(4, seed=1)}
    files = [saved(tmp_path / f"{n}.ckpt", {**own, "global_step": np.array([n], np.int32)}, "ms") for n in (1, 2)]
    diff = diff_checkpoints(*files)
    assert [one.reference for one in diff.tensors if one.outcome != "equal"] == ["global_step"]


def test_updates_of_two_frameworks_pair_as_their_files_do(tmp_path: Path, assert_each: Any) -> None:
    def check(model: str, by: float, outcome: Outcome) -> None:
        own, layers = MODELS[model]
        before, out_before = converted(tmp_path, model)
        after = saved(tmp_path / "after.pth", moved(own))
        convert_checkpoint(
            saved(tmp_path / "port.pth", moved(own, by)), tmp_path / "after.ckpt", layers=layers, overwrite=True
        )
        tensors = {
            name: np.asarray(one.load()) for name, one in open_checkpoint(tmp_path / "after.ckpt").tensors.items()
        }
        out_after = saved(tmp_path / "counted.ckpt", {**tensors, "global_step": np.array([1], np.int32)}, "ms")
        result = diff_updates((before, after), (out_before, out_after))
        assert result.verdict.outcome is outcome, result.verdict.reason
        assert result.dropped["global_step"] == "optimizer state"

    assert_each(
        check,
        [(model, by, out) for model in MODELS for by, out in ((0.01, Outcome.ALIGNED), (0.02, Outcome.NOT_ALIGNED))],
    )


def test_one_file_given_twice_is_told_in_one_line(tmp_path: Path, assert_each: Any) -> None:
    own = saved(tmp_path / "a.pth", NORM)
    (tmp_path / "link.pth").symlink_to(own)
    (tmp_path / "hard.pth").hardlink_to(own)
    saved(tmp_path / "copy.pth", NORM)

    def check(other: str, told: bool) -> None:
        diff = diff_checkpoints(own, tmp_path / other)
        assert diff.verdict.outcome is Outcome.ALIGNED
        assert ("both sides are one file" in diff.verdict.reason) == told

    assert_each(check, [("a.pth", True), ("link.pth", True), ("hard.pth", True), ("copy.pth", False)])
    before, after = own, saved(tmp_path / "after.pth", moved(NORM))
    assert any("both sides are one file" in text for text in diff_updates((before, after), (before, after)).warnings)


@pytest.mark.frameworks
def test_two_entries_of_one_file_are_two_sides(tmp_path: Path) -> None:
    import torch

    net = torch.nn.Linear(3, 2)
    torch.save({"model": net.state_dict(), "ema": net.state_dict()}, tmp_path / "a.pth")
    options = {"reference_key": "model", "candidate_key": "ema"}
    diff = diff_checkpoints(tmp_path / "a.pth", tmp_path / "a.pth", **options)
    assert "one file" not in diff.verdict.reason
    again = diff_checkpoints(tmp_path / "a.pth", tmp_path / "a.pth", reference_key="ema", candidate_key="ema")
    assert "both sides are one file" in again.verdict.reason
