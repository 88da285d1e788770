"""Both models as trees: pairs, and the levels that become colours."""

from __future__ import annotations

from dataclasses import replace

from align.report.page_blocks import model_trees

NAME, PARENT, PAIR, OWN, WORST, ROW, REASON = 0, 2, 3, 4, 5, 6, 7


def trees_of(samples, document, result):
    trees = model_trees(document(result))
    paths = {}
    for side, nodes in trees.items():
        paths[side] = {}
        for place, node in enumerate(nodes):
            above = [path for path, at in paths[side].items() if at == node[PARENT]]
            paths[side][f"{above[0]}.{node[NAME]}".lstrip(".") if above and above[0] else node[NAME] * (place > 0)] = (
                place
            )
    return trees, paths


def test_layers_that_were_compared_are_pairs_and_so_are_the_modules_that_hold_them(samples, document):
    names = [("model.blocks.0.conv", "net.layers.0.c"), ("model.blocks.0.norm", "net.layers.0.n"),
             ("model.blocks.1.conv", "net.layers.1.c"), ("model.head", "net.fc")]  # fmt: skip
    layers = [samples.layer(place, *own, 1e-7) for place, own in enumerate(names)]
    forward = replace(samples.sample_forward(diverges=False), layers=tuple(layers), unpaired=())
    trees, paths = trees_of(samples, document, forward)
    for one, other in [*names, ("model.blocks.0", "net.layers.0"), ("model.blocks", "net.layers"), ("", "")]:
        assert trees["reference"][paths["reference"][one]][PAIR] == paths["candidate"][other]
        assert trees["candidate"][paths["candidate"][other]][PAIR] == paths["reference"][one]


def test_a_closed_module_has_the_worst_of_what_it_holds_and_its_own_apart(samples, document):
    trees, paths = trees_of(samples, document, samples.faulty_forward())
    leaf = trees["candidate"][paths["candidate"]["layer1.0.down_sample.0"]]
    holder = trees["candidate"][paths["candidate"]["layer1"]]
    assert leaf[OWN][0] == leaf[OWN][2] == 4
    assert leaf[ROW] == 15
    assert holder[OWN] == [0, "", 0, ""]
    assert holder[WORST][2] == 4


def test_layers_without_a_figure_and_without_a_counterpart_have_levels_of_their_own(samples, document):
    forward = samples.sample_forward()
    unlike = replace(forward.layers[0], outcome="not comparable", measurement=None, limit=None, factor=None)
    trees, paths = trees_of(samples, document, replace(forward, layers=(unlike, *forward.layers[1:])))
    assert trees["candidate"][paths["candidate"]["conv1"]][OWN][0] == 5
    alone = trees["reference"][paths["reference"]["resnet.encoder.stages.0.layers.0.activation"]]
    assert alone[OWN][0] == 6
    assert alone[REASON] == "ports use a function here"
    assert alone[PAIR] == -1


def test_nothing_compared_is_no_tree(samples, document):
    assert model_trees(document(samples.sample_forward()) | {"layers": []}) is None
