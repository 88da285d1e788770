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


def whole(w, *between):
    return [
        w.embedding("emb", 9, 8), *(w.linear(f"layer.{n}.fc", 16, 8) for n in range(3)), *between, w.linear("cls", 2, 8)
    ]  # fmt: skip


@pytest.mark.parametrize("names", [("pooler.dense", "blocks.adapter"), ("final_norm", "emb_norm")])
def test_the_only_two_of_one_width_that_stand_elsewhere_and_have_no_word_in_common_stay_open(written, names) -> None:
    w = written
    make = w.layer_norm if "norm" in names[0] else w.linear
    width = (8,) if "norm" in names[0] else (8, 8)
    source, target = whole(w, make(names[0], *width)), whole(w)
    target.insert(1, make(names[1], *width))
    target = [layer.at(layer.path.replace("layer.", "blocks.")) for layer in target]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert w.open_names(name_map) == {f"{names[0]}.weight", f"{names[0]}.bias"}
    assert all(p.sure for p in name_map.pairings)


def test_what_stands_in_one_place_and_has_no_word_in_common_is_paired_unsurely(written) -> None:
    w = written
    source, target = whole(w, w.linear("pooler", 8, 8)), whole(w, w.linear("adapter", 8, 8))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert name_map.by_source["pooler.weight"].target == "adapter.weight"
    assert {p.source for p in name_map.pairings if not p.sure} == {"pooler.weight", "pooler.bias"}


def test_words_lengths_of_their_own_and_numbered_blocks_are_no_strangers(written) -> None:
    """Both call a norm final, a head has as many outputs as nothing else, and what is in each block is no chance."""
    w = written
    source = [*whole(w, w.layer_norm("final_norm", 8)), *(w.linear(f"tail.{n}.thing", 8, 8) for n in range(2))]
    names = {"emb": "tokens", "final_norm": "ln_final", "cls": "predict", "tail.0.thing": "end.0.stuff"}
    names |= {"tail.1.thing": "end.1.stuff"}
    target = [layer.at(names.get(layer.path, layer.path)) for layer in source]
    target.insert(1, target.pop(4))
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert name_map.complete
    assert all(p.sure for p in name_map.pairings)


def test_words_of_the_kind_and_words_that_others_share_speak_against_no_pair(written) -> None:
    w = written
    source = [w.conv("image.conv", 6, 3), w.batch_norm("image.bn", 6), w.linear("head", 2, 6)]
    target = [w.conv("img_conv", 6, 3), w.batch_norm("img_norm", 6), w.linear("cls", 2, 6)]
    name_map = w.matched(w.side("torch", *source), w.side("nn", *target))
    assert name_map.complete
    assert all(p.sure for p in name_map.pairings)
