"""Which way round the matrices of a checkpoint stand: what tells it, and what must stay open or unsure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.parameters import Module, Parameter, ParameterSet, StoredTensor
from align.core.transforms import IDENTITY, Permute
from align.names.map_result import parameters_of_file
from align.names.matching.match_names import match_names
from align.names.matching.matrix_orientations import UNTOLD
from align.names.user_rules import NameRules
from align.rules.layer_rules import layer_rules

if TYPE_CHECKING:
    from align.core.name_map import NameMap

    Shapes = dict[str, tuple[int, ...]]


def file(framework: str, shapes: Shapes) -> ParameterSet:
    tensors = {name: StoredTensor(name, shape, "float32", lambda: None) for name, shape in shapes.items()}
    return parameters_of_file(framework, framework, tensors, layer_rules())


def live(class_name: str, shapes: Shapes) -> ParameterSet:
    """A model whose layers are all of one class."""
    paths = dict.fromkeys(name.rpartition(".")[0] for name in shapes)
    own = {path: [name for name in shapes if name.rpartition(".")[0] == path] for path in paths}
    parameters = tuple(Parameter(n, s, "float32", *n.rsplit(".", 1)) for n, s in shapes.items())
    return ParameterSet("live", "torch", parameters, tuple(Module(p, (class_name,), tuple(own[p])) for p in paths))


def files(source: Shapes, target: Shapes) -> NameMap:
    return match_names(file("torch", source), file("mindspore", target), NameRules())


def dense(path: str, out: int, into: int) -> Shapes:
    return {f"{path}.weight": (out, into), f"{path}.bias": (out,)}


def pairs(name_map: NameMap) -> dict[str, tuple[str, float]]:
    return {p.source: (p.target, p.confidence) for p in name_map.pairings}


T5 = {"b.0.wi.weight": (24, 8), "b.0.wo.weight": (8, 24), "b.0.o.weight": (8, 8)}
TURNED = {"l.0.mapping.weight": (8, 24), "l.0.projection.weight": (24, 8), "l.0.out.weight": (8, 8)}


def test_layers_that_fit_as_they_stand_and_crosswise_transposed_stay_open() -> None:
    for source in (file("torch", T5), live("torch.nn.Linear", T5)):
        name_map = match_names(source, file("mindspore", TURNED), NameRules())
        assert not name_map.pairings
        groups = {frozenset(group.sources): set(group.targets) for group in name_map.ambiguous}
        assert groups == {
            frozenset({"b.0.wi.weight", "b.0.wo.weight"}): {"l.0.mapping.weight", "l.0.projection.weight"},
            frozenset({"b.0.o.weight"}): {"l.0.out.weight"},
        }


def test_names_tell_layers_apart_that_would_fit_crosswise() -> None:
    numbered = {"l.0.fc1.weight": (24, 8), "l.0.fc2.weight": (8, 24), "l.0.out.weight": (8, 8)}
    source = {name.replace("wi", "lin1").replace("wo", "lin2"): shape for name, shape in T5.items()}
    assert all(p.transform == IDENTITY and p.sure for p in files(source, numbered).pairings)
    assert files(source, numbered).complete
    assert all(p.confidence == 1 for p in files(T5, T5).pairings)


def test_counts_tell_that_a_gated_block_is_not_crossed() -> None:
    source = {f"b.0.{n}.weight": s for n, s in {"gate": (24, 8), "up": (24, 8), "down": (8, 24)}.items()}
    target = {f"l.0.{n}.weight": s for n, s in {"gate_x": (24, 8), "up_x": (24, 8), "last": (8, 24)}.items()}
    found = pairs(files(source, target))
    assert found["b.0.down.weight"] == ("l.0.last.weight", 1.0)


def test_a_plain_checkpoint_of_equal_orientation_maps_surely_with_its_squares() -> None:
    source = dense("fc1", 16, 8) | dense("fc2", 16, 16) | dense("head", 3, 16)
    name_map = files(source, source)
    assert name_map.complete
    assert all((p.confidence, p.transform, p.note) == (1.0, IDENTITY, "") for p in name_map.pairings)
    renamed = {f"net.{name}": shape for name, shape in source.items()}
    assert all(p.sure and p.transform == IDENTITY for p in files(source, renamed).pairings)


def test_squares_alone_are_paired_unsurely_with_a_note_and_their_biases_surely() -> None:
    source = dense("a", 8, 8) | dense("b", 8, 8)
    for left in (file("torch", source), live("torch.nn.Linear", source)):
        name_map = match_names(left, file("mindspore", source), NameRules())
        assert {p.source: (p.sure, p.note) for p in name_map.pairings} == {
            "a.weight": (False, UNTOLD), "a.bias": (True, ""), "b.weight": (False, UNTOLD), "b.bias": (True, ""),
        }  # fmt: skip


def test_the_namesake_of_a_transposed_matrix_is_transposed() -> None:
    """As in the files of GPT-2, whose layers keep (in, out): the square c_proj of the attention as that of the MLP."""
    source = {"h.0.attn.c_proj.weight": (8, 8), "h.0.attn.c_proj.bias": (8,)}
    source |= {"h.0.mlp.c_proj.weight": (32, 8), "h.0.mlp.c_proj.bias": (8,)}
    target = dense("h.0.attn.c_proj", 8, 8) | dense("h.0.mlp.c_proj", 8, 32)
    name_map = files(source, target)
    assert name_map.complete
    transforms = {p.source: p.transform for p in name_map.pairings if p.source.endswith("weight")}
    assert transforms == dict.fromkeys(transforms, Permute((1, 0)))
    assert all(p.transform == IDENTITY and p.confidence == 1 for p in files(source, source).pairings)


def test_a_square_without_namesakes_stays_open_where_others_are_transposed() -> None:
    source = dense("b.0.up", 32, 8) | dense("b.0.proj", 8, 8)
    target = {"b.0.up.weight": (8, 32), "b.0.up.bias": (32,)} | dense("b.0.proj", 8, 8)
    name_map = files(source, target)
    assert name_map.by_source["b.0.up.weight"].transform == Permute((1, 0))
    assert [(group.sources, group.targets) for group in name_map.ambiguous] == [
        (("b.0.proj.weight",), ("b.0.proj.weight",))
    ]
    assert "b.0.proj.bias" in pairs(name_map)


def test_a_namesake_on_the_side_that_stands_straight_turns_nothing() -> None:
    """`dense` is what the source calls both; it is the target's `mapping` that is transposed, not its `proj`."""
    source = dense("h.0.output.dense", 8, 32) | dense("h.0.attention.output.dense", 8, 8)
    target = {"h.0.mlp.mapping.weight": (32, 8), "h.0.mlp.mapping.bias": (8,)} | dense("h.0.attn.proj", 8, 8)
    assert not [p for p in files(source, target).pairings if p.target == "h.0.attn.proj.weight" and p.sure]


def test_live_layers_of_known_classes_are_no_matter_of_doubt() -> None:
    source = dense("a", 8, 8) | dense("b", 8, 8)
    name_map = match_names(live("torch.nn.Linear", source), live("mindspore.nn.Dense", source), NameRules())
    assert all(p.confidence == 1 for p in name_map.pairings)


def test_what_the_user_said_of_a_square_is_not_doubted() -> None:
    source = dense("a", 8, 8)
    rules = NameRules(names={"a.weight": ("a.weight", IDENTITY)})
    name_map = match_names(file("torch", source), file("mindspore", source), rules)
    assert {p.source: p.evidence for p in name_map.pairings} == {"a.weight": "user", "a.bias": "name"}
