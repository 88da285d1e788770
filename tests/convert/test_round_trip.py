"""From a torch file to a `.ckpt` and back: the identity over what a `.ckpt` holds, whatever a map did on the way."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from align.convert.convert_checkpoint import convert_checkpoint
from align.core.documents import to_json_data
from align.runs.run_folder import as_document

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16", "uint32",
    "uint64",
)  # fmt: skip
SHAPES = st.lists(st.integers(1, 4), max_size=4)
TRANSFORMS = st.sampled_from(["", "reshape", "permute", "chain", "drop"])


@st.composite
def tensors(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A state dict as data: names, dtypes, shapes, what a map does; some are views, some tied to an earlier one."""
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 6))):
        made = {
            "name": f"block.{number}.{draw(st.sampled_from(['weight', 'ö', 'running_mean', 'a b']))}",
            "dtype": draw(st.sampled_from(DTYPES)),
            "shape": draw(SHAPES),
            "strided": draw(st.booleans()),
            "op": draw(TRANSFORMS),
            "tied": None,
        }
        if found and draw(st.integers(0, 3)) == 0:
            first = draw(st.sampled_from(found))
            made |= {key: first[key] for key in ("dtype", "shape", "strided", "op")}
            made["tied"] = first["tied"] or first["name"]
        found.append(made)
    if all(one["op"] == "drop" for one in found):
        found = [{**one, "op": ""} for one in found]
    return found


def state_dict(described: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """The tensors themselves, of random bits."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Any] = {}
    for one in described:
        if one["tied"] is not None:
            made[one["name"]] = made[one["tied"]]
            continue
        shape, dtype = one["shape"][::-1] if one["strided"] else one["shape"], getattr(torch, one["dtype"])
        size = torch.tensor([], dtype=dtype).element_size()
        count = size
        for n in shape:
            count *= n
        bits = torch.randint(0, 2 if one["dtype"] == "bool" else 256, (count,), generator=generator, dtype=torch.uint8)
        tensor = bits.view(dtype).reshape(shape)
        made[one["name"]] = tensor.permute(*reversed(range(len(shape)))) if one["strided"] and shape else tensor
    return made


def bits(tensor: Any) -> bytes:
    """The value's bytes; NumPy has no bfloat16."""
    import torch

    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def map_file(described: list[dict[str, Any]]) -> str:
    """A map that renames, reshapes, permutes and drops; only small tensors are dropped, which a record keeps."""
    names, dropped = [], []
    for one in described:
        axes = list(reversed(range(len(one["shape"]))))
        ops = {
            "reshape": {"op": "reshape", "shape": [1, *one["shape"]]},
            "permute": {"op": "permute", "axes": axes},
            "chain": {
                "op": "chain",
                "steps": [{"op": "permute", "axes": axes}, {"op": "reshape", "shape": [*one["shape"][::-1], 1]}],
            },
        }
        source, target = json.dumps(one["name"], ensure_ascii=False), f'"t.{one["name"]}"'
        if one["op"] == "drop" and _elements(one) <= 64:
            dropped.append(f'{source} = "not wanted"')
        elif one["op"] in ops:
            names.append(f"{source} = {{ to = {target}, {_inline(ops[one['op']])} }}")
        else:
            names.append(f"{source} = {target}")
    return "\n".join(["[names]", *names, "[dropped.source]", *dropped]) + "\n"


def _elements(one: dict[str, Any]) -> int:
    count = 1
    for n in one["shape"]:
        count *= n
    return count


def _inline(table: dict[str, Any]) -> str:
    def value(item: Any) -> str:
        if isinstance(item, dict):
            return f"{{ {_inline(item)} }}"
        if isinstance(item, list):
            return f"[{', '.join(map(value, item))}]"
        return json.dumps(item)

    return ", ".join(f"{key} = {value(item)}" for key, item in table.items())


@pytest.mark.frameworks
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tensors(), st.integers(0, 2**31))
def test_a_torch_file_comes_back_bit_for_bit_with_its_ties(described, seed) -> None:
    import torch

    before = state_dict(described, seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        torch.save(before, folder / "a.pth")
        (folder / "map.toml").write_text(map_file(described), encoding="utf-8")
        record = convert_checkpoint(folder / "a.pth", folder / "a.ckpt", name_map=folder / "map.toml")
        (folder / "convert.json").write_text(json.dumps(to_json_data(as_document(record, {}))), encoding="utf-8")
        convert_checkpoint(folder / "a.ckpt", folder / "b.pth", name_map=folder / "convert.json")
        after = torch.load(folder / "b.pth", weights_only=True)
    assert after.keys() == before.keys()
    for name, tensor in before.items():
        assert after[name].dtype == tensor.dtype
        assert after[name].shape == tensor.shape
        assert bits(after[name]) == bits(tensor)
    for one in described:
        if one["tied"] is not None and one["op"] != "drop":
            assert after[one["name"]].data_ptr() == after[one["tied"]].data_ptr()
