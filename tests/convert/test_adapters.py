"""Adapters merged as PEFT merges them, converted alone to the other library's names, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.cli.main import main
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.load_code import checkpoint_formats
from align.core.parameters import StoredTensor, dtype_name
from align.errors import CannotRunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

DATA = Path(__file__).parent / "data"
BASE = DATA / "adapters_base.safetensors"
MOST_UNITS = 4
Array = np.ndarray[Any, Any]


def write(path: Path, arrays: Mapping[str, Array], form: str = "pt") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = [
        StoredTensor(name, value.shape, dtype_name(value.dtype), lambda value=value: value)  # type: ignore[misc]
        for name, value in arrays.items()
    ]
    plugin = next(one for one in checkpoint_formats().values() if path.suffix in one.suffixes)
    with path.open("wb") as stream:
        plugin.write(stream, tensors, {"format": form})
    return path


def values(path: Path) -> dict[str, Array]:
    return {name: np.array(tensor.load()) for name, tensor in open_checkpoint(path).tensors.items()}


def adapter(folder: Path, arrays: Mapping[str, Array], **config: Any) -> Path:
    """A folder as PEFT writes it; `config` is what its config says beside the usual."""
    write(folder / "adapter_model.safetensors", arrays)
    table = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, **config}
    (folder / "adapter_config.json").write_text(json.dumps(table), encoding="utf-8")
    return folder


def layer(module: str, outputs: int, inputs: int, rank: int = 2, seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        f"{module}.lora_A.weight": random.standard_normal((rank, inputs)).astype(np.float32),
        f"{module}.lora_B.weight": random.standard_normal((outputs, rank)).astype(np.float32),
    }


def units_apart(one: Array, other: Array) -> float:
    """The largest difference in units of the last place of the largest value.

    A sum of products that nearly cancel is rounded as its parts are, on each processor in another order: four such
    roundings are allowed, where a wrong rank or scale makes thousands.
    """
    wide, theirs = one.astype(np.float64), other.astype(np.float64)
    spacing = np.spacing(np.abs(other.astype(np.float32)).max()) * (2**16 if other.dtype == ml_dtypes.bfloat16 else 1)
    return float(np.abs(wide - theirs).max() / spacing)


def test_the_merged_weights_are_those_of_peft(tmp_path: Path, assert_each: Any) -> None:
    def check(kind: str, changed: int) -> None:
        base, out = BASE, tmp_path / f"{kind}.safetensors"
        if kind == "half":
            base = tmp_path / "half_base.safetensors"
            convert_checkpoint(BASE, base, target="torch", dtype="bf16")
        folder = DATA / f"adapter_{kind}"
        record = convert_checkpoint(base, out, target="torch", merge_adapter=folder)
        before, made, wanted = values(base), values(out), values(folder / "merged.safetensors")
        assert made.keys() == wanted.keys()
        for name, value in wanted.items():
            assert made[name].dtype == value.dtype
            assert units_apart(made[name], value) <= MOST_UNITS, name
        assert sum(not np.array_equal(before[name], made[name]) for name in made) == changed
        assert f"{folder / 'adapter_model'}" in str(record.warnings[0])

    examples = [
        ("lora", 6),
        ("rslora", 4),
        ("half", 4),
        ("bias", 4),
        ("biases", 4),
        ("dora", 6),
        ("conv1d", 2),
    ]
    assert_each(check, examples)


def test_names_of_a_whole_state_dict_are_understood_as_well(tmp_path: Path) -> None:
    saved = values(DATA / "adapter_lora" / "adapter_model.safetensors")
    shutil.copytree(DATA / "adapter_lora", tmp_path / "named")
    named = {
        name.replace(".weight", ".default.weight") if "lora_" in name else name: one for name, one in saved.items()
    }
    named = {name.replace(".head.", ".head.modules_to_save.default."): one for name, one in named.items()}
    named["base_model.model.head.original_module.weight"] = saved["base_model.model.head.weight"] * 0
    write(tmp_path / "named" / "adapter_model.safetensors", named)
    out = tmp_path / "out.safetensors"
    convert_checkpoint(BASE, out, target="torch", merge_adapter=tmp_path / "named" / "adapter_model.safetensors")
    wanted = values(DATA / "adapter_lora" / "merged.safetensors")
    assert all(units_apart(value, wanted[name]) <= MOST_UNITS for name, value in values(out).items())


def test_an_adapter_alone_gets_the_names_of_mindpet_and_back(tmp_path: Path) -> None:
    source = adapter(tmp_path / "peft", {f"base_model.model.{k}": v for k, v in layer("net.q", 6, 4).items()})
    record = convert_checkpoint(source, tmp_path / "pet.ckpt")
    pet = values(tmp_path / "pet.ckpt")
    assert [*pet] == ["net.q.mindpet_delta_lora_a", "net.q.mindpet_delta_lora_b"]
    assert "set rank 2 and alpha / rank = 2 in the model" in str(record.warnings[0])
    convert_checkpoint(tmp_path / "pet.ckpt", tmp_path / "back.bin")
    back, saved = values(tmp_path / "back.bin"), values(source / "adapter_model.safetensors")
    assert back.keys() == saved.keys()
    assert all(np.array_equal(back[name], value) for name, value in saved.items())
    convert_checkpoint(source, tmp_path / "same.bin")
    assert values(tmp_path / "same.bin").keys() == saved.keys()


def test_a_map_leads_the_modules_of_an_adapter(tmp_path: Path) -> None:
    arrays = layer("model.layers.0.self_attn.q_proj", 6, 4) | {"model.norm.weight": np.ones(4, np.float32)}
    source = adapter(tmp_path / "peft", {f"base_model.model.{name}": value for name, value in arrays.items()})
    rules = tmp_path / "map.toml"
    rules.write_text(
        '[names]\n"model.layers.{i}.self_attn.q_proj.weight" = "layers.{i}.attention.wq.weight"\n'
        '"model.norm.weight" = "norm.gamma"\n"model.head.weight" = "head.weight"\n',
        encoding="utf-8",
    )
    text = rules.read_text(encoding="utf-8").replace("{i}", "0")
    rules.write_text(text, encoding="utf-8")
    convert_checkpoint(source, tmp_path / "pet.ckpt", name_map=rules)
    module = "layers.0.attention.wq.mindpet_delta_lora_"
    assert {*values(tmp_path / "pet.ckpt")} == {f"{module}a", f"{module}b", "norm.gamma"}
    rules.write_text(text.replace("self_attn.q_proj", "self_attn.k_proj"), encoding="utf-8")
    with pytest.raises(CannotRunError, match="q_proj"):
        convert_checkpoint(source, tmp_path / "b.ckpt", name_map=rules)
    rules.write_text(text, encoding="utf-8")
    convert_checkpoint(tmp_path / "pet.ckpt", tmp_path / "back.bin", name_map=rules)
    assert values(tmp_path / "back.bin").keys() == values(source / "adapter_model.safetensors").keys()


def test_an_adapter_of_mindpet_is_merged_into_the_file_that_holds_it(tmp_path: Path) -> None:
    a, b = (value for value in layer("q", 6, 4).values())
    weight = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    whole = {"q.weight": weight, "q.mindpet_delta_lora_a": a, "q.mindpet_delta_lora_b": b}
    source = write(tmp_path / "net.ckpt", whole, "ms")
    (tmp_path / "adapter_config.json").write_text('{"lora_rank": 2, "lora_alpha": 6}', encoding="utf-8")
    convert_checkpoint(source, tmp_path / "out.ckpt", merge_adapter=source)
    made = values(tmp_path / "out.ckpt")
    assert [*made] == ["q.weight"]
    assert np.array_equal(made["q.weight"], weight + (b @ a) * np.float32(3))


def test_an_update_is_added_to_the_values_of_a_quantized_base(tmp_path: Path) -> None:
    arrays = {"q.weight": np.full((6, 4), 2, np.int8), "q.weight_scale": np.full((6, 1), 0.5, np.float32)}
    base, update = write(tmp_path / "base.safetensors", arrays), layer("q", 6, 4)
    folder, out = adapter(tmp_path / "lora", update), tmp_path / "out.safetensors"
    with pytest.raises(CannotRunError, match="quantized weights"):
        convert_checkpoint(base, out, target="torch", merge_adapter=folder)
    convert_checkpoint(base, out, target="torch", merge_adapter=folder, dequantize="fp32")
    a, b = update.values()
    assert np.array_equal(values(out)["q.weight"], 1 + (b @ a) * np.float32(2))


def test_tied_weights_are_updated_together(tmp_path: Path) -> None:
    import io

    weight = np.ones((6, 4), np.float32)
    base = tmp_path / "base.pth"
    plugin = next(one for one in checkpoint_formats().values() if ".pth" in one.suffixes)
    one = StoredTensor("embed.weight", (6, 4), "float32", lambda: weight, storage="1")
    stream = io.BytesIO()
    plugin.write(stream, [one, StoredTensor("head.weight", (6, 4), "float32", lambda: weight, storage="1")], {})
    base.write_bytes(stream.getvalue())
    record = convert_checkpoint(base, tmp_path / "o.pth", merge_adapter=adapter(tmp_path / "l", layer("head", 6, 4)))
    made = values(tmp_path / "o.pth")
    assert np.array_equal(made["embed.weight"], made["head.weight"])
    assert not np.array_equal(made["head.weight"], weight)
    assert record.ties == (("embed.weight", "head.weight"),)


def test_what_cannot_be_merged_is_refused_with_the_reason(tmp_path: Path, assert_each: Any) -> None:
    base = write(tmp_path / "base.safetensors", {"q.weight": np.ones((6, 4), np.float32)})

    def check(label: str, arrays: Mapping[str, Array], config: dict[str, Any], words: str) -> None:
        out = tmp_path / "out.safetensors"
        folder = adapter(tmp_path / label, arrays, **config)
        with pytest.raises(CannotRunError) as caught:
            convert_checkpoint(base, out, target="torch", merge_adapter=folder)
        assert words in caught.value.message, caught.value.message
        assert caught.value.hint
        assert not out.exists()

    sound = layer("q", 6, 4)
    half = {name: value for name, value in sound.items() if "lora_A" in name}
    two = sound | {name.replace(".weight", ".other.weight"): value for name, value in layer("k", 6, 4).items()}
    two |= {name.replace(".weight", ".first.weight"): value for name, value in layer("v", 6, 4).items()}
    magnitude = sound | {"q.lora_magnitude_vector": np.ones(5, np.float32)}
    examples: list[tuple[str, Mapping[str, Array], dict[str, Any], str]] = [
        ("ia3", {"q.ia3_l": np.ones((6, 1), np.float32)}, {"peft_type": "IA3"}, "of the kind IA3"),
        ("vera", sound, {"peft_type": "VERA"}, "of the kind VERA"),
        ("nothing", {"q.weight": np.ones((6, 4), np.float32)}, {}, "holds no adapter"),
        ("half", half, {}, "q: of both factors only A is there"),
        ("shapes", sound | {"q.lora_B.weight": np.ones((6, 3), np.float32)}, {}, "are no update of one weight"),
        ("magnitude", magnitude, {}, "are no update of one weight"),
        ("several", two, {}, "several adapters"),
        ("libraries", sound | {"k.mindpet_delta_lora_a": np.ones((2, 4), np.float32)}, {}, "several libraries"),
        ("no base", layer("k", 6, 4), {}, "k: k.weight is not in the base"),
        ("base shape", layer("q", 6, 5), {}, "q.weight has the shape (6, 4) in the base"),
        ("whole", sound | {"norm.weight": np.ones(4, np.float32)}, {}, "norm.weight is not in the base"),
        ("bias", sound | {"q.lora_B.bias": np.ones(6, np.float32)}, {}, "q.bias is not in the base"),
        ("no alpha", sound, {"lora_alpha": None}, "lora_alpha is not known"),
        ("huge alpha", sound, {"lora_alpha": 10**400}, "lora_alpha is not known"),
        ("rank", sound, {"r": 8}, "its rank is 2, and adapter_config.json says 8"),
        ("pattern", sound, {"rank_pattern": {"(": 2}}, "'(' of adapter_config.json is no sound regular expression"),
        ("experts", sound, {"target_parameters": ["experts"]}, "the setting target_parameters"),
        ("tokens", sound, {"trainable_token_indices": [1]}, "the setting trainable_token_indices"),
        ("pissa", sound, {"init_lora_weights": "pissa_niter_4"}, "init_lora_weights='pissa_niter_4' had changed"),
    ]
    assert_each(check, examples)


def test_a_pattern_without_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("align.core.documents.PATTERN_SECONDS", 0.1)
    endless = {r"(?:\w|\w\w|\.)+[0-9]": 2}
    folder = adapter(tmp_path, layer("encoder.layer.attention" * 4, 6, 4), alpha_pattern=endless)
    with pytest.raises(CannotRunError, match="takes too long"):
        convert_checkpoint(BASE, tmp_path / "out.safetensors", target="torch", merge_adapter=folder)


def test_what_the_other_library_has_no_place_for_is_refused(tmp_path: Path, assert_each: Any) -> None:
    def check(label: str, arrays: Mapping[str, Array], words: str) -> None:
        with pytest.raises(CannotRunError) as caught:
            convert_checkpoint(adapter(tmp_path / label, arrays), tmp_path / "pet.ckpt")
        assert words in caught.value.message, caught.value.message
        assert "--merge-adapter" in caught.value.hint

    conv = {"c.lora_A.weight": np.ones((2, 3, 3, 3), np.float32), "c.lora_B.weight": np.ones((6, 2, 1, 1), np.float32)}
    table = {"e.lora_embedding_A": np.ones((2, 9), np.float32), "e.lora_embedding_B": np.ones((4, 2), np.float32)}
    examples: list[tuple[str, Mapping[str, Array], str]] = [
        ("conv", conv, "mindpet has LoRA for linear layers alone"),
        ("embedding", table, "mindpet has LoRA for linear layers alone"),
        ("dora", layer("q", 6, 4) | {"q.lora_magnitude_vector": np.ones(6, np.float32)}, "A, B, magnitude_vector"),
        ("whole", layer("q", 6, 4) | {"head.weight": np.ones((2, 4), np.float32)}, "only a map tells"),
    ]
    assert_each(check, examples)
    with pytest.raises(UsageError, match="only a map can lead"):
        convert_checkpoint(tmp_path / "conv", tmp_path / "pet.ckpt", family="gpt2")


def test_the_command_merges_and_ends_each_fault_in_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, out = str(BASE), tmp_path / "net.safetensors"
    folder = str(DATA / "adapter_lora")
    assert main(["convert", base, str(out), "--target", "torch", "--merge-adapter", folder]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "is merged in: 4 weights with updates, 2 tensors in the place of the base's" in told
    for bad in (str(tmp_path / "absent"), base):
        assert main(["convert", base, str(tmp_path / "b.ckpt"), "--merge-adapter", bad]) == 2
        assert capsys.readouterr().err.startswith("align: ")
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "adapter_config.json").write_text("{", encoding="utf-8")
    assert main(["convert", base, str(tmp_path / "b.ckpt"), "--merge-adapter", str(damaged)]) == 2


@pytest.mark.frameworks
def test_mindspore_loads_the_adapter_and_computes_what_peft_merged(tmp_path: Path) -> None:
    import mindspore as ms
    from mindspore import mint, nn

    class LoraDense(nn.Dense):
        """A layer with the parameters of mindpet's LoRADense."""

        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__(inputs, outputs, has_bias=False)
            self.mindpet_delta_lora_a = ms.Parameter(mint.zeros((4, inputs)), name="mindpet_delta_lora_A")
            self.mindpet_delta_lora_b = ms.Parameter(mint.zeros((outputs, 4)), name="mindpet_delta_lora_B")

        def construct(self, x: Any) -> Any:
            update = mint.matmul(mint.matmul(x, self.mindpet_delta_lora_a.T), self.mindpet_delta_lora_b.T)
            return super().construct(x) + update

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.q_proj = LoraDense(12, 20)

    saved = values(DATA / "adapter_half" / "adapter_model.safetensors")
    prefix = "base_model.model.layers.0."
    arrays = {name.removeprefix(prefix): value for name, value in saved.items() if f"{prefix}q_proj" in name}
    convert_checkpoint(adapter(tmp_path / "l", arrays, r=4), tmp_path / "pet.ckpt")
    net = Net()
    assert ms.load_param_into_net(net, ms.load_checkpoint(str(tmp_path / "pet.ckpt")))[1] == []
    weight = np.random.default_rng(0).standard_normal((20, 12)).astype(np.float32)
    net.q_proj.weight.set_data(ms.Tensor(weight))
    base = write(tmp_path / "base.safetensors", {"q_proj.weight": weight})
    convert_checkpoint(base, tmp_path / "m.safetensors", target="torch", merge_adapter=tmp_path / "l")
    x = np.random.default_rng(1).standard_normal((3, 12)).astype(np.float32)
    merged = values(tmp_path / "m.safetensors")["q_proj.weight"]
    assert np.allclose(net.q_proj(ms.Tensor(x)).asnumpy(), x @ merged.T, atol=1e-5)
