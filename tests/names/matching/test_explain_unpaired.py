"""Groups that stay open: they hold whoever may be meant, and both of their sides."""

from __future__ import annotations

from align.core.name_map import Ambiguity, NameMap, Pairing
from align.names.matching.explain_unpaired import explain_unpaired_anew
from align.names.read_layers import LayeredSides


def attention(w, family, block, names):
    rest = [w.linear(f"{block}.fc1", 16, 4), w.linear(f"{block}.fc2", 4, 16)]
    return [*(w.linear(f"{block}.{name}", 4, 4) for name in names), *rest]


def test_a_group_holds_every_free_layer_of_its_place(written) -> None:
    w = written
    source = w.side("torch", *(one for i in range(2) for one in attention(w, "torch", f"h.{i}", ["dense"])))
    port = ["projection", "dense1", "dense2", "dense3"]
    target = w.side("nn", *(one for i in range(2) for one in attention(w, "nn", f"blocks.{i}", port)))
    name_map = w.matched(source, target)
    groups = [group for group in name_map.ambiguous if group.sources[0].endswith("weight")]
    assert [(group.sources, set(group.targets)) for group in groups] == [
        ((f"h.{i}.dense.weight",), {f"blocks.{i}.{name}.weight" for name in port}) for i in range(2)
    ]
    assert not name_map.unmatched


def test_a_layer_of_another_place_is_not_drawn_into_a_group(written) -> None:
    w = written
    ends = [w.linear("pooler", 4, 4), w.linear("head", 3, 4)]
    source = w.side("torch", *attention(w, "torch", "h.0", ["dense"]), *ends[1:])
    target = w.side("nn", *attention(w, "nn", "blocks.0", ["one", "two"]), *ends)
    groups = [group for group in w.matched(source, target).ambiguous if group.sources[0].endswith("weight")]
    assert [set(group.targets) for group in groups] == [{"blocks.0.one.weight", "blocks.0.two.weight"}]


def test_own_parameters_of_other_names_are_paired_by_structure_not_by_a_rule(written) -> None:
    w = written
    name_map = w.matched(w.side("torch", w.own("m", alpha=(4,))), w.side("nn", w.own("m", gain=(4,))))
    assert [(p.source, p.target, p.evidence) for p in name_map.pairings] == [("m.alpha", "m.gain", "structure")]


def test_a_group_that_lost_one_side_is_unmatched_and_a_tie_of_a_new_pair_dropped(written) -> None:
    w = written
    tied = [w.embedding("tok", 9, 4), w.embedding("pos", 9, 4), w.linear("head", 9, 4, bias=False)]
    sides = w.side("torch", *tied, ties={"head.weight": "tok.weight"}), w.side("nn", w.embedding("e", 9, 4))
    settled = NameMap(
        "source",
        "target",
        (Pairing("tok.weight", "e.embedding_table", "trial", 1.0),),
        ambiguous=(Ambiguity(("pos.weight",), (), "the run tells nothing"),),
    )
    again = explain_unpaired_anew(LayeredSides(sides), settled)
    assert not again.ambiguous
    assert [one.name for one in again.unmatched] == ["pos.weight"]
    assert [(one.name, one.reason) for one in again.dropped] == [
        ("head.weight", "the same tensor as tok.weight, which is paired")
    ]
