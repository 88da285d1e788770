"""Maps with equal names on both sides and a rotation that undoes nothing by chance: never followed the wrong way."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

from align.checkpoints.open_checkpoint import open_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint
from align.core.documents import to_json_data
from align.core.name_map import Dropped, NameMap, Pairing
from align.core.transforms import IDENTITY, Add, Cast, Scale, chained
from align.errors import MapError, UsageError

STATED = 'source = "torch"\ntarget = "mindspore"\n'
ROTATION = r"""
[[rename]]
from = '(.*q_proj.weight)'
to = '\1'
op = "chain"
steps = [
    { op = "reshape", shape = [2, 2, 2, 8], from = [8, 8] },
    { op = "permute", axes = [1, 2, 0, 3] },
    { op = "reshape", shape = [8, 8], from = [2, 2, 2, 8] },
]
back = { from = '(.*q_proj.weight)', to = '\1' }
"""
WEIGHT = np.arange(64, dtype=np.float32).reshape(8, 8)
PORTED = WEIGHT.reshape(2, 2, 2, 8).transpose(1, 2, 0, 3).reshape(8, 8)


@pytest.fixture
def write(tmp_path):
    def write(name, **values):
        np.savez(tmp_path / "values.npz", **values)
        pairings = tuple(Pairing(n, n, "user", 1.0) for n in values)
        convert_checkpoint(tmp_path / "values.npz", tmp_path / name, name_map=NameMap("a", "b", pairings))
        return tmp_path / name

    return write


def values(path):
    return {name: tensor.load() for name, tensor in open_checkpoint(path).tensors.items()}


@pytest.mark.parametrize(
    ("held", "destination", "target", "ported"),
    [
        ("w.npz", "out.ckpt", None, True),
        ("w.npz", "out.pth", None, False),
        ("w.npz", "out.npz", "torch", False),
        ("w.pth", "out.npz", None, True),
        ("w.ckpt", "out.npz", None, False),
        ("w.ckpt", "out.pth", "torch", False),
    ],
)
def test_a_stated_map_goes_the_way_that_file_and_destination_say(
    write, tmp_path, held, destination, target, ported
) -> None:
    (tmp_path / "map.toml").write_text(STATED + ROTATION, encoding="utf-8")
    given = write(held, **{"l.q_proj.weight": WEIGHT if ported else PORTED})
    convert_checkpoint(given, tmp_path / destination, name_map=tmp_path / "map.toml", target=target)
    found = values(tmp_path / destination)["l.q_proj.weight"]
    np.testing.assert_array_equal(found, PORTED if ported else WEIGHT, strict=True)


@pytest.mark.parametrize("destination", ["out.pth", "out.ckpt", "out.npz"])
def test_a_map_that_states_nothing_is_not_guessed_at_and_nothing_is_written(write, tmp_path, destination) -> None:
    (tmp_path / "map.toml").write_text(ROTATION, encoding="utf-8")
    for held in ("w.npz", "w.ckpt", "w.pth"):
        given = write(held, **{"l.q_proj.weight": WEIGHT})
        with pytest.raises(UsageError, match=r"fits the file in both directions, and l\.q_proj\.weight becomes"):
            convert_checkpoint(given, tmp_path / destination, name_map=tmp_path / "map.toml")
    assert not (tmp_path / destination).exists()


def test_a_map_from_mindspore_to_torch_is_followed_forward_from_a_mindspore_file(write, tmp_path) -> None:
    turned = '[names]\n"w.x" = { to = "w.x", op = "permute", axes = [1, 2, 0] }\n'
    (tmp_path / "map.toml").write_text('source = "mindspore"\ntarget = "torch"\n' + turned, encoding="utf-8")
    cube = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    given = write("c.ckpt", **{"w.x": cube})
    record = convert_checkpoint(given, tmp_path / "c.pth", name_map=tmp_path / "map.toml")
    np.testing.assert_array_equal(values(tmp_path / "c.pth")["w.x"], cube.transpose(1, 2, 0))
    assert "followed back" not in record.names
    assert (record.source_framework, record.framework) == ("mindspore", "torch")


def test_a_record_is_used_again_on_the_next_epoch_and_leads_back(write, tmp_path) -> None:
    first, second = (write(f"e{n}.ckpt", **{"w.x": np.full((4, 4), n + 0.125, np.float32)}) for n in (1, 2))
    options = {"dtype": "bf16", "target": "torch", "layers": ["w=as-is"]}
    record = convert_checkpoint(first, tmp_path / "e1.pth", **options)
    path = tmp_path / "convert.json"
    path.write_text(json.dumps({"schema": "mindalign.convert/1", **to_json_data(record)}), encoding="utf-8")
    convert_checkpoint(second, tmp_path / "e2.pth", name_map=path)
    assert values(tmp_path / "e2.pth")["w.x"].dtype == ml_dtypes.bfloat16
    convert_checkpoint(tmp_path / "e2.pth", tmp_path / "back.ckpt", name_map=path)
    np.testing.assert_array_equal(
        values(tmp_path / "back.ckpt")["w.x"], np.full((4, 4), 2.125, np.float32), strict=True
    )


def test_a_record_tells_what_only_the_target_had(write, tmp_path) -> None:
    drops = Dropped("gone", "source", "not wanted"), Dropped("step", "target", "of the port")
    given = NameMap("a", "b", (Pairing("w", "v", "user", 1.0),), drops)
    record = convert_checkpoint(write("w.pth", w=WEIGHT, gone=np.ones(65)), tmp_path / "v.ckpt", name_map=given)
    assert record.dropped == {"gone": "not wanted", "step": "of the port"}
    assert record.dropped_target == ("step",)
    path = tmp_path / "convert.json"
    path.write_text(json.dumps({"schema": "mindalign.convert/1", **to_json_data(record)}), encoding="utf-8")
    back = convert_checkpoint(tmp_path / "v.ckpt", tmp_path / "w2.pth", name_map=path)
    (warning,) = [line for line in back.warnings if "left out" in line]
    assert warning.endswith("neither a value nor a default is known: gone")


def test_what_each_cast_of_a_chain_costs_is_measured_on_what_comes_to_it(write, tmp_path) -> None:
    source = write("w.npz", a=np.array([0.1, 1e30, 0.5]), b=np.array([1.0, 2.0]))
    twice = chained(Cast("float16"), Cast("float32"))
    narrower = chained(Cast("float32"), Cast("bfloat16"))
    record = convert_checkpoint(
        source,
        tmp_path / "out.pth",
        name_map=NameMap("a", "b", (Pairing("a", "a", "user", 1.0, twice), Pairing("b", "b", "user", 1.0, narrower))),
    )
    assert record.warnings == ("a: the cast float64 -> float16 cannot hold 1 of 3 values and rounds 1",)
    assert "2 values lost or rounded" in record.verdict.reason
    both = NameMap("a", "b", (Pairing("a", "a", "user", 1.0, narrower), Pairing("b", "b", "user", 1.0, IDENTITY)))
    record = convert_checkpoint(source, tmp_path / "two.pth", name_map=both)
    assert record.warnings == (
        "the cast float64 -> float32 rounds 2 values of 1 tensor: a",
        "the cast float32 -> bfloat16 rounds 2 values of 1 tensor: a",
    )


def test_a_value_filled_from_a_record_is_cast_and_its_loss_is_said(write, tmp_path) -> None:
    drops = (Dropped("scale", "source", "the port has none"),)
    given = NameMap("a", "b", (Pairing("w", "v", "user", 1.0),), drops)
    record = convert_checkpoint(
        write("w.pth", w=WEIGHT, scale=np.array([0.1], np.float32)), tmp_path / "v.ckpt", name_map=given
    )
    path = tmp_path / "convert.json"
    path.write_text(json.dumps({"schema": "mindalign.convert/1", **to_json_data(record)}), encoding="utf-8")
    back = convert_checkpoint(tmp_path / "v.ckpt", tmp_path / "w2.pth", name_map=path, dtype="bf16")
    assert values(tmp_path / "w2.pth")["scale"].dtype == ml_dtypes.bfloat16
    assert "the cast float32 -> bfloat16 rounds 1 value of 1 tensor: scale" in back.warnings


def test_numbers_added_and_factors_are_undone_on_the_way_back(write, tmp_path) -> None:
    (tmp_path / "map.toml").write_text(
        STATED
        + """
[names]
"norm.weight" = { to = "norm.gamma", op = "add", value = 1.0 }
"out.weight" = { to = "out.weight", op = "chain", steps = [
    { op = "scale", factor = 8.0 },
    { op = "permute", axes = [1, 0] },
] }
""",
        encoding="utf-8",
    )
    norm = np.array([-0.5, 0.0, 0.25], np.float32)
    given = write("w.pth", **{"norm.weight": norm, "out.weight": WEIGHT})
    there = convert_checkpoint(given, tmp_path / "out.ckpt", name_map=tmp_path / "map.toml")
    assert there.verified
    assert values(tmp_path / "out.ckpt")["norm.gamma"].tolist() == [0.5, 1.0, 1.25]
    np.testing.assert_array_equal(values(tmp_path / "out.ckpt")["out.weight"], 8 * WEIGHT.T, strict=True)
    convert_checkpoint(tmp_path / "out.ckpt", tmp_path / "back.pth", name_map=tmp_path / "map.toml")
    for name, value in {"norm.weight": norm, "out.weight": WEIGHT}.items():
        np.testing.assert_array_equal(values(tmp_path / "back.pth")[name], value, strict=True)


@pytest.mark.parametrize(("transform", "lost"), [(Scale(1e30), 3), (Scale(1e-9), 2), (Add(65504.0), 1), (Add(1.0), 0)])
def test_values_that_a_number_takes_out_of_their_dtype_are_told(write, tmp_path, transform, lost) -> None:
    given = write("w.npz", w=np.array([0.0, 1.0, -2.0, 65504.0], np.float16))
    names = NameMap("a", "b", (Pairing("w", "v", "user", 1.0, transform),))
    record = convert_checkpoint(given, tmp_path / "out.ckpt", name_map=names)
    told = f"v: float16 cannot hold {lost} of 4 values that {transform.op} makes"
    assert (told in record.warnings) == bool(lost)


@pytest.mark.parametrize("transform", [Add(1.0), Scale(2.0)])
def test_whole_numbers_are_neither_added_to_nor_scaled(write, tmp_path, transform) -> None:
    given = write("w.npz", ids=np.arange(4))
    names = NameMap("a", "b", (Pairing("ids", "ids", "user", 1.0, transform),))
    with pytest.raises(MapError, match="needs floating numbers, and these are int64"):
        convert_checkpoint(given, tmp_path / "out.ckpt", name_map=names)
