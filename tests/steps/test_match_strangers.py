"""Two layers that are left over and share a shape: what stands around them and words of their own tell strangers."""

from __future__ import annotations

import pytest

FRONTS = [("", ""), ("net.", ""), ("", "net."), ("net.", "net."), ("net.", "model.")]


def names_of(w, source, target) -> dict[str, str]:
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    return {a.removesuffix(".weight"): b.removesuffix(".weight") for a, b in w.paired(name_map).items()}


@pytest.mark.parametrize(("front", "other_front"), FRONTS)
def test_a_word_in_front_of_all_makes_no_friends_of_strangers(written, front, other_front) -> None:
    w = written
    source = [w.linear(front + name, bias=False) for name in ("fc1", "fc2", "pooler", "head")]
    target = [w.linear(other_front + name, bias=False) for name in ("fc1", "adapter", "fc2", "head")]
    found = names_of(w, source, target)
    assert f"{front}pooler" not in found
    assert found.get(f"{front}head") == f"{other_front}head"


@pytest.mark.parametrize(("front", "other_front"), FRONTS)
def test_a_word_in_front_of_all_joins_no_modules(written, front, other_front) -> None:
    w = written
    source = [w.conv(f"{front}left.red", 3, 4), w.linear(f"{front}left.thing"), w.conv(f"{front}right.blue", 5, 4)]
    target = [w.conv(f"{other_front}up.one", 3, 4), w.conv(f"{other_front}down.two", 5, 4)]
    target.append(w.linear(f"{other_front}down.stuff"))
    assert names_of(w, source, target) == {
        f"{front}left.red": f"{other_front}up.one",
        f"{front}right.blue": f"{other_front}down.two",
    }


def bert(w, top):
    names = ("attention.query", "attention.key", "attention.output.dense")
    return [
        layer
        for n in range(2)
        for layer in (
            *(w.linear(f"{top}encoder.layer.{n}.{name}", 8, 8) for name in names),
            w.linear(f"{top}encoder.layer.{n}.intermediate.dense", 16, 8),
            w.linear(f"{top}encoder.layer.{n}.output.dense", 8, 16),
        )
    ]


@pytest.mark.parametrize("top", ["bert.", "model."])
def test_a_word_that_many_layers_have_makes_no_two_of_them_one(written, top) -> None:
    w = written
    source, target = bert(w, "bert."), bert(w, top)
    true = {a.path: b.path for a, b in zip(source, target, strict=True)}
    source.append(w.linear("bert.pooler.dense", 8, 8))
    found = names_of(w, source, [*target, w.linear("cls.predictions.transform.dense", 8, 8)])
    assert "bert.pooler.dense" not in found
    assert {a: b for a, b in found.items() if not a.endswith("bias")} == true


def test_a_word_of_its_own_joins_a_layer_wherever_it_stands(written) -> None:
    w = written
    source, target = bert(w, "bert."), bert(w, "model.")
    source.append(w.linear("bert.pooler.dense", 8, 8))
    found = names_of(w, source, [*target, w.linear("model.heads.pool.dense", 8, 8)])
    assert found["bert.pooler.dense"] == "model.heads.pool.dense"


def test_names_of_one_pattern_that_both_sides_keep_tell_strangers(written) -> None:
    w = written
    source = [w.own("vit", cls_token=(1, 1, 8), mask_token=(1, 1, 8)), w.conv("patch", 8, 3)]
    target = [w.own("vit", cls_token=(1, 1, 8), dist_token=(1, 1, 8)), w.conv("patch", 8, 3)]
    assert names_of(w, source, target) == {"vit.cls_token": "vit.cls_token", "patch": "patch"}
    renamed = [w.own("vit", class_emb=(1, 1, 8), mask_emb=(1, 1, 8)), w.conv("patch", 8, 3)]
    assert names_of(w, source, renamed)["vit.mask_token"] == "vit.mask_emb"
