"""`align map` with a family, on real models; the frameworks are needed to build them."""

from __future__ import annotations

from contextlib import nullcontext
from fnmatch import fnmatchcase
from functools import cache

import pytest

from align.core.transforms import IDENTITY
from align.errors import MapError, UsageError
from align.names.map_parameters import map_parameters
from align.names.user_rules import NameRules
from align.rules.model_families import read_family

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def sides():
    options = {"depths": (2, 2, 2, 2), "hidden_sizes": (64, 128, 256, 512), "layer_type": "basic", "num_labels": 1000}
    return original("ResNetConfig", "ResNetForImageClassification", **options), port_of("resnet18")


@cache
def port_of(name):
    """A model of mindcv, its values not drawn where it can be built without: they take the longest and are not read."""
    import mindcv
    from mindspore.nn.utils import no_init_parameters

    computes_with_them = name.startswith("convnext")
    with nullcontext() if computes_with_them else no_init_parameters():
        return mindcv.create_model(name)


@cache
def original(config, model, **options):
    import transformers
    from transformers.initialization import no_init_weights

    with no_init_weights():
        return getattr(transformers, model)(getattr(transformers, config)(**options))


@pytest.mark.parametrize("family", ["auto", "hf-resnet"])
def test_the_pairs_of_a_family_are_told_as_such_and_equal_to_those_without(sides, family) -> None:
    plain, by_family = map_parameters(*sides), map_parameters(*sides, family=family)
    assert by_family.name_map.complete
    assert {(p.evidence, p.note) for p in by_family.name_map.pairings} == {("family", "hf-resnet")}
    for result in (plain, by_family):
        assert {(p.source, p.target) for p in result.name_map.pairings} == {
            (p.source, p.target) for p in plain.name_map.pairings
        }


def test_the_user_is_never_overruled_by_a_family(sides) -> None:
    names = {"resnet.embedder.embedder.normalization.weight": ("bn1.beta", IDENTITY)}
    result = map_parameters(*sides, family="auto", rules=NameRules("mine", names))
    pair = result.name_map.by_source["resnet.embedder.embedder.normalization.weight"]
    assert (pair.target, pair.evidence) == ("bn1.beta", "user")
    assert "bn1.beta" not in [p.target for p in result.name_map.pairings if p is not pair]
    assert result.name_map.unused_rules == ()


def test_a_family_that_does_not_know_the_names_is_refused_and_auto_takes_none(sides) -> None:
    with pytest.raises(MapError, match="the family has no such name"):
        map_parameters(*sides, family="hf-vit")
    with pytest.raises(UsageError, match="leads from torch to MindSpore"):
        map_parameters(sides[0], sides[0], family="hf-resnet")
    twice = map_parameters(sides[0], sides[0], family="auto")
    assert "family" not in {p.evidence for p in twice.name_map.pairings}


@pytest.mark.parametrize(
    ("made", "port", "family"),
    [
        (("MobileNetV2Config", "MobileNetV2ForImageClassification"), "mobilenet_v2_100", "hf-mobilenet-v2"),
        (("ConvNextConfig", "ConvNextForImageClassification"), "convnext_tiny", "hf-convnext"),
        (("SwinConfig", "SwinForImageClassification"), "swin_tiny", "hf5-swin"),
    ],
)
def test_the_models_that_are_installed_are_recognised_and_mapped_whole(made, port, family) -> None:
    net, cell = original(*made, num_labels=1000), port_of(port)
    result = map_parameters(net, cell, family="auto")
    assert {(p.evidence, p.note) for p in result.name_map.pairings} == {("family", family)}
    own = read_family(family).dropped["mindspore"]
    counters = {name for name in net.state_dict() if name.endswith(".num_batches_tracked")}
    assert {p.source for p in result.name_map.pairings} | counters == set(net.state_dict())
    targets = {parameter.name for parameter in cell.get_parameters()}
    left = targets - {p.target for p in result.name_map.pairings}
    assert all(any(fnmatchcase(name, glob) for glob in own) for name in left)


@pytest.mark.parametrize(
    ("config", "model", "port", "family"),
    [
        ("ResNetConfig", "ResNetModel", "resnet50", "hf-resnet"),
        ("ResNetConfig", "ResNetBackbone", "resnet50", "hf-resnet"),
        ("ConvNextConfig", "ConvNextModel", "convnext_tiny", "hf-convnext"),
        ("MobileNetV2Config", "MobileNetV2Model", "mobilenet_v2_100", "hf-mobilenet-v2"),
        ("SwinConfig", "SwinModel", "swin_tiny", "hf5-swin"),
        ("ViTConfig", "ViTModel", "vit_b_32_224", "hf5-vit"),
    ],
)
@pytest.mark.parametrize("auto", [True, False])
def test_a_bare_model_is_of_the_family_without_the_prefix_of_its_names(config, model, port, family, auto) -> None:
    options = {"num_hidden_layers": 12, "patch_size": 32} if model == "ViTModel" else {}
    net, cell = original(config, model, **options), port_of(port)
    result = map_parameters(net, cell, family="auto" if auto else family)
    assert {(p.evidence, p.note) for p in result.name_map.pairings} == {("family", family)}
    assert {one.name.partition(".")[0] for one in result.name_map.unmatched} <= {"classifier", "head"}
    assert [one for one in result.name_map.unmatched if one.side == "source"] == []


def test_a_name_of_the_family_pairs_at_its_place_or_nowhere(sides) -> None:
    source, wider = sides[0], port_of("resnet50")
    name_map = map_parameters(source, wider, family="hf-resnet").name_map
    assert {p.evidence for p in name_map.pairings} == {"family"}
    reasons = {one.name: one for one in name_map.unmatched}
    lone = reasons["resnet.encoder.stages.1.layers.0.shortcut.convolution.weight"]
    assert lone.reason == "the family says layer2.0.down_sample.0.weight, which has shape [512, 256, 1, 1]"
    assert lone.suggestions == ("layer2.0.down_sample.0.weight",)
    gone = reasons["layer1.0.bn3.gamma"]
    assert gone.reason.endswith("which the other side does not have")
    spoken = {p.target for p in name_map.pairings} | reasons.keys() | {drop.name for drop in name_map.dropped}
    assert {parameter.name for parameter in wider.get_parameters()} <= spoken


def test_the_user_pairs_beside_the_family_what_it_has_elsewhere(sides) -> None:
    name, to = "resnet.encoder.stages.1.layers.0.shortcut.normalization.weight", "layer3.0.bn1.gamma"
    rules = NameRules("mine", {name: (to, IDENTITY)})
    net = port_of("resnet50")
    width = dict(zip((p.name for p in net.get_parameters()), (p.shape for p in net.get_parameters()), strict=True))
    assert width[to] != sides[0].state_dict()[name].shape  # so that a rule to it is refused, with the family or without
    with pytest.raises(MapError, match="the target has"):
        map_parameters(sides[0], net, family="hf-resnet", rules=rules)
    rules = NameRules("mine", {name: ("layer2.0.bn1.gamma", IDENTITY)})
    pair = map_parameters(sides[0], net, family="hf-resnet", rules=rules).name_map.by_source[name]
    assert (pair.target, pair.evidence) == ("layer2.0.bn1.gamma", "user")
