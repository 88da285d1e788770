"""How open names are told: short for a model of any depth, with choices that settle them, none before the others."""

from __future__ import annotations

import re

import pytest

from align.core.parameters import StoredTensor
from align.errors import InputsError, MapError, OpenNamesError
from align.names.infer_names import map_from_file


def tensors(shapes):
    return {name: StoredTensor(name, shape, "float32", lambda: None) for name, shape in shapes.items()}


LLAMA = {"embed_tokens.weight": (320, 64)} | {
    f"layers.{n}.{part}.weight": shape
    for n in range(40)
    for part, shape in {"attn.q_proj": (64, 64), "attn.k_proj": (8, 64), "mlp.up": (96, 64), "norm": (64,)}.items()
}


def opened(shapes, layers=()):
    with pytest.raises(OpenNamesError) as error:
        map_from_file(tensors(shapes), layers=layers)
    return error.value


def test_layers_that_differ_in_numbers_only_share_a_line_and_its_choice_settles_them() -> None:
    error = opened(LLAMA)
    head, *lines = error.message.splitlines()
    assert head == "161 names are open, so nothing was written"
    assert len(lines) == 5
    assert len(error.lines) == 161
    assert lines[1] == (
        "  layers.{0…39}.attn.q_proj (weight (64, 64)): embedding -> embedding_table; linear -> weight "
        "[40 layers: --layer 'layers.*.attn.q_proj=KIND']"
    )
    globs = re.findall(r"--layer '(.*?)=KIND'", error.message)
    kinds = ["rms-norm" if glob.endswith("norm") else "linear" for glob in globs]
    chosen = [f"{glob}={kind}" for glob, kind in zip(globs, kinds, strict=True)]
    assert len(opened(LLAMA, chosen).lines) == 1
    assert map_from_file(tensors(LLAMA), layers=[*chosen, "embed_tokens=embedding"]).name_map.complete


def test_layers_of_other_shapes_or_alternatives_stay_apart() -> None:
    error = opened({"l.0.weight": (4, 2), "l.1.weight": (4, 3), "l.2.weight": (4,)})
    assert len(error.message.splitlines()) == 4


def test_what_does_not_fold_is_cut_and_stays_with_the_error() -> None:
    error = opened({f"{chr(97 + n)}.weight": (4, 2) for n in range(26)})
    lines = error.message.splitlines()
    assert (len(lines), lines[-1]) == (22, "  and 6 more")
    assert len(error.lines) == 26


def test_the_hint_names_each_way_and_prefers_none() -> None:
    assert opened({"a.0.weight": (4, 2), "a.1.weight": (4, 2)}).hint.startswith(
        "say what each is: --layer 'a.*=embedding' or ...=linear (patterns such as 'encoder.*' too), "
    )
    assert "--layer '=embedding' or ...=linear for the top level" in opened({"weight": (4, 2)}).hint


@pytest.mark.parametrize(
    "error", [MapError("m", list("abcdefghijklmnopqrstuvwxyz")), InputsError("m", "h", ["x"] * 26)]
)
def test_long_lists_of_faults_are_cut_and_stay_with_the_error(error) -> None:
    lines = error.message.splitlines()
    assert (len(lines), lines[-1]) == (22, "  and 6 more")
    assert len(error.faults) == 26
