"""What a conversion makes of files whose tensors are no weights by themselves, and of averaged copies among them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor, dtype_name
from align.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from align.convert.convert_checkpoint import ConversionRecord

F8 = ml_dtypes.float8_e4m3fn
LAYERS = ("*=linear",)


def write(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    tensors = [
        StoredTensor(name, value.shape, dtype_name(value.dtype), lambda value=value: value)  # type: ignore[misc]
        for name, value in arrays.items()
    ]
    plugin = next(one for one in checkpoint_formats().values() if path.suffix in one.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": "pt"})
    return path


def ones(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.ones(shape, dtype)


def said(record: ConversionRecord) -> str:
    return "\n".join(map(str, record.warnings))


PACKED: dict[str, dict[str, np.ndarray[Any, Any]]] = {
    "blocks": {"fc.weight": ones(4, 4, dtype=F8), "fc.weight_scale_inv": ones(2, 2)},
    "channels": {"fc.weight": ones(4, 4, dtype=np.int8), "fc.weight_scale": ones(4, 1), "fc.bias": ones(4)},
    "gptq": {
        "fc.qweight": ones(1, 4, dtype=np.int32),
        "fc.qzeros": ones(1, 1, dtype=np.int32),
        "fc.scales": ones(1, 4),
    },
    "nf4": {"fc.weight": ones(8, 1, dtype=np.uint8), "fc.weight.absmax": ones(1), "fc.weight.quant_map": ones(16)},
}


def test_quantized_weights_are_refused_where_their_values_would_be_lost(tmp_path: Path, assert_each: Any) -> None:
    def check(name: str, ending: str, options: dict[str, Any]) -> None:
        source, out = write(tmp_path / f"{name}.safetensors", PACKED[name]), tmp_path / f"{name}{ending}"
        with pytest.raises(CannotRunError) as caught:
            convert_checkpoint(source, out, **options)
        assert "quantized" in caught.value.message
        assert "--dtype" not in caught.value.hint
        assert not out.exists()

    cast: dict[str, Any] = {"dtype": "bf16", "target": "torch"}
    ways: list[tuple[str, str, dict[str, Any]]] = [(name, ".ckpt", {"layers": LAYERS}) for name in PACKED]
    ways += [(name, ".ckpt", {}) for name in PACKED]
    ways += [("blocks", ".out.safetensors", cast), ("blocks", ".ckpt", {"layers": LAYERS, "dtype": "bf16"})]
    ways += [("channels", ".out.npz", {"dtype": "fp16", "target": "torch"})]
    assert_each(check, ways)


def test_quantized_weights_that_stay_with_their_scales_are_written_and_told(tmp_path: Path, assert_each: Any) -> None:
    def check(name: str) -> None:
        source, out = write(tmp_path / f"{name}.safetensors", PACKED[name]), tmp_path / f"{name}.out.safetensors"
        record = convert_checkpoint(source, out, target="torch")
        assert record.verdict.outcome.value == "aligned"
        assert "quantized and stays so" in said(record)
        assert open_checkpoint(out).tensors.keys() == PACKED[name].keys()

    assert_each(check, [*PACKED])


def test_a_map_decides_whether_quantized_weights_keep_their_scales(tmp_path: Path) -> None:
    def text(rest: str) -> Path:
        path = tmp_path / "map.toml"
        head = (
            'schema = "mindalign.names/1"\nsource = "torch"\ntarget = "mindspore"\n[names]\n"fc.weight" = "fc.weight"\n'
        )
        path.write_text(head + '"fc.bias" = "fc.bias"\n' + rest, encoding="utf-8")
        return path

    source = write(tmp_path / "a.safetensors", PACKED["channels"])
    kept = convert_checkpoint(source, tmp_path / "kept.ckpt", name_map=text('"fc.weight_scale" = "fc.scale"\n'))
    assert sorted(one.target for one in kept.tensors) == ["fc.bias", "fc.scale", "fc.weight"]
    with pytest.raises(CannotRunError, match="quantized"):
        convert_checkpoint(
            source, tmp_path / "lost.ckpt", name_map=text('[dropped.source]\n"fc.weight_scale" = "no"\n')
        )


def test_a_scale_in_another_shard_belongs_to_its_weight(tmp_path: Path) -> None:
    shards = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    write(tmp_path / shards[0], {"fc.weight": ones(4, 4, dtype=F8)})
    write(tmp_path / shards[1], {"fc.weight_scale_inv": ones(1, 1)})
    names = {"fc.weight": shards[0], "fc.weight_scale_inv": shards[1]}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}), encoding="utf-8")
    for source in (shards[0], "model.safetensors.index.json"):
        with pytest.raises(CannotRunError, match="quantized"):
            convert_checkpoint(tmp_path / source, tmp_path / "out.npz", target="torch", dtype="bf16")
    kept = convert_checkpoint(tmp_path / shards[0], tmp_path / "out.safetensors", target="torch")
    assert "quantized and stays so" in said(kept)


def test_files_that_only_look_quantized_are_converted(tmp_path: Path, assert_each: Any) -> None:
    def check(name: str, arrays: dict[str, Any], options: dict[str, Any]) -> None:
        out = tmp_path / f"{name}.ckpt"
        record = convert_checkpoint(write(tmp_path / f"{name}.safetensors", arrays), out, **options)
        assert (record.verdict.outcome.value, len(record.tensors)) == ("aligned", len(arrays))
        assert "quantized" not in said(record)

    layer: dict[str, Any] = {"fc.weight": ones(4, 4), "fc.bias": ones(4)}
    examples: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("scale", {**layer, "scale": ones(1), "logit_scale": np.float32(4.6).reshape(())}, {}),
        ("cast", {"fc.weight": ones(4, 4, dtype=F8), "fc.bias": ones(4)}, {"dtype": "fp32"}),
        ("mask", {**layer, "attn.bias": ones(1, 1, 4, 4, dtype=np.uint8), "attn.scale": ones(1)}, {}),
        ("slope", {"act.weight": ones(1), **layer}, {"layers": ("act=prelu",)}),
        ("empty", {**layer, "buffer": ones(4)}, {}),
    ]
    assert_each(check, examples)


def test_placeholders_are_refused_by_all_that_use_weights(tmp_path: Path) -> None:
    from align.convert.diff_checkpoints import diff_checkpoints
    from align.names.map_parameters import map_parameters

    path = write(tmp_path / "z.safetensors", {"embed.weight": ones(4, 4), "q.weight": ones(0, dtype=np.float16)})
    other = write(tmp_path / "w.safetensors", {"embed.weight": ones(4, 4), "q.weight": ones(4, 4)})
    uses: list[Callable[[], object]] = [
        lambda: convert_checkpoint(path, tmp_path / "out.ckpt"),
        lambda: convert_checkpoint(path, tmp_path / "out.safetensors", target="torch"),
        lambda: diff_checkpoints(path, path),
        lambda: diff_checkpoints(other, path),
        lambda: map_parameters(path, other),
    ]
    for use in uses:
        with pytest.raises(CannotRunError, match="does not hold the weights: 1 of 2 tensors is a placeholder"):
            use()


LIVE = {
    "backbone.conv.weight": ones(4, 3, 3, 3),
    "backbone.bn.weight": ones(4),
    "backbone.bn.bias": ones(4),
    "backbone.bn.running_mean": ones(4),
    "backbone.bn.running_var": ones(4),
    "backbone.bn.num_batches_tracked": np.int64(7).reshape(()),
    "head.weight": ones(5, 4),
    "head.bias": ones(5),
}
COPIES: dict[str, Callable[[str], str]] = {
    "underscores": lambda name: "ema_" + name.replace(".", "_"),
    "in front": lambda name: f"ema.{name}",
    "model_ema": lambda name: f"model_ema.{name}",
    "no dots": lambda name: "model_ema." + name.replace(".", ""),
    "ema_model.module": lambda name: f"ema_model.module.{name}",
    "shadow_params": lambda name: f"shadow_params.{name}",
    "behind": lambda name: f"{name}_ema",
    "of the first module": lambda name: name.replace(".", "_ema.", 1),
    "averaged": lambda name: f"{name}_averaged",
    "swa_model": lambda name: f"swa_model.{name}",
}


def test_of_weights_and_their_averaged_copies_the_asked_ones_are_taken(tmp_path: Path, assert_each: Any) -> None:
    def check(way: str, in_front: str, statistics: bool) -> None:
        live = {in_front + name: value * 2 for name, value in LIVE.items()}
        copied = [name for name in LIVE if statistics or "bn.running" not in name]
        copies = {COPIES[way](name): LIVE[name] for name in copied}
        source = write(tmp_path / "a.safetensors", {**live, **copies})
        with pytest.raises(UsageError, match=r"weights twice: .* is an averaged copy \(EMA\) of") as asked:
            convert_checkpoint(source, tmp_path / "a.ckpt", overwrite=True)
        assert "--prefer live takes the weights themselves, --prefer ema" in asked.value.hint
        record = convert_checkpoint(source, tmp_path / "a.ckpt", prefer="live", overwrite=True)
        wanted = {in_front + name for name in ("backbone.conv.weight", "backbone.bn.gamma", "backbone.bn.beta")}
        wanted |= {in_front + name for name in ("backbone.bn.moving_mean", "backbone.bn.moving_variance")}
        assert {one.target for one in record.tensors} == wanted | {f"{in_front}head.weight", f"{in_front}head.bias"}
        assert {*copies} <= record.dropped.keys()
        assert float(open_checkpoint(tmp_path / "a.ckpt").tensors[f"{in_front}head.bias"].load()[0]) == 2.0
        means = convert_checkpoint(source, tmp_path / "a.ckpt", prefer="ema", overwrite=True)
        assert {one.target for one in means.tensors} == {one.target for one in record.tensors}
        assert {one.source for one in means.tensors} <= {*copies} | {f"{in_front}{name}" for name in LIVE}
        assert float(open_checkpoint(tmp_path / "a.ckpt").tensors[f"{in_front}head.bias"].load()[0]) == 1.0
        kept = convert_checkpoint(source, tmp_path / "a.npz", target="torch", overwrite=True)
        assert len(kept.tensors) == len(live) + len(copies)
        assert f"{len(copies)} tensors are averaged copies (EMA) of other weights, and stay" in said(kept)

    ways = [(way, "", True) for way in COPIES] + [("in front", "model.", True), ("no dots", "model.", False)]
    ways += [("ema_model.module", "online_model.", True), ("underscores", "", False)]
    assert_each(check, ways)


def test_a_teacher_beside_the_weights_is_converted_and_told(tmp_path: Path, assert_each: Any) -> None:
    def check(student: str, teacher: str, told: bool) -> None:
        arrays = {f"{way}{name}": value for way in (student, teacher) for name, value in LIVE.items()}
        record = convert_checkpoint(write(tmp_path / "a.safetensors", arrays), tmp_path / "a.ckpt", overwrite=True)
        assert len(record.tensors) == 2 * (len(LIVE) - 1)  # but for the counts of batches
        words = "have the names and shapes of other weights, as in a teacher or a target network"
        assert (words in said(record)) == told
        assert "averaged" not in said(record)

    examples = [
        ("", "teacher.", True),
        ("student.", "teacher.", True),
        ("", "teacher_model.", True),
        ("online_network.", "target_network.", True),
        ("a.", "b.", False),
        ("left.teacher.", "right.teacher.", False),
    ]
    assert_each(check, examples)


def test_what_is_no_averaged_copy_is_a_weight(tmp_path: Path, assert_each: Any) -> None:
    def check(label: str, arrays: dict[str, Any], options: dict[str, Any]) -> None:
        source = write(tmp_path / "a.safetensors", arrays)
        record = convert_checkpoint(source, tmp_path / "a.ckpt", overwrite=True, **options)
        assert len(record.tensors) == len(arrays), label
        assert "averaged" not in said(record)

    codes = {"q.embed": ones(4, 8), "q.embed_avg": ones(4, 8), "q.cluster_size": ones(8)}
    moving = {"q.embed": ones(4, 8), "q.embed_ema": ones(4, 8), "q.size": ones(8), "q.size_ema": ones(8)}
    layer = {"fc.weight": ones(4, 4), "fc.bias": ones(4)}
    examples: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("only an average", {f"ema.{name}": value for name, value in layer.items()}, {}),
        ("only an average, with underscores", {"ema_fc.weight": ones(4, 4), "ema_fc.bias": ones(4)}, {}),
        ("a codebook", {**codes, **layer}, {}),
        ("a codebook with all its averages", {**moving, **layer}, {}),
        ("a module called ema", {"block.ema.alpha": ones(4), **layer}, {}),
        ("other shapes", {"ema.fc.weight": ones(8, 4), "ema.fc.bias": ones(8), **layer}, {}),
    ]
    assert_each(check, examples)


def test_a_map_that_names_averaged_copies_takes_them(tmp_path: Path) -> None:
    layer = {"fc.weight": ones(4, 4), "fc.bias": ones(4)}
    copies = {f"ema.{name}": value * 3 for name, value in layer.items()}
    source = write(tmp_path / "a.safetensors", {**layer, **copies})
    text = 'schema = "mindalign.names/1"\nsource = "torch"\ntarget = "mindspore"\n[names]\n'
    text += "".join(f'"ema.{name}" = "{name}"\n' for name in layer)
    text += "[dropped.source]\n" + "".join(f'"{name}" = "the average is used"\n' for name in layer)
    (tmp_path / "map.toml").write_text(text, encoding="utf-8")
    record = convert_checkpoint(source, tmp_path / "a.ckpt", name_map=tmp_path / "map.toml")
    assert {one.source: one.target for one in record.tensors} == {f"ema.{name}": name for name in layer}
    assert float(open_checkpoint(tmp_path / "a.ckpt").tensors["fc.bias"].load()[0]) == 3.0
