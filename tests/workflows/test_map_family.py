"""`align map` with a family, on real models; the frameworks are needed to build them."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from align.core.families import read_family
from align.core.rename import NameRules
from align.core.transforms import IDENTITY
from align.errors import MapError, UsageError
from align.workflows.map_parameters import map_parameters

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def sides():
    import mindcv
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic", num_labels=1000)
    return ResNetForImageClassification(config), mindcv.create_model("resnet18")


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
    import mindcv
    import transformers

    config, model = (getattr(transformers, name) for name in made)
    net, cell = model(config(num_labels=1000)), mindcv.create_model(port)
    result = map_parameters(net, cell, family="auto")
    assert {(p.evidence, p.note) for p in result.name_map.pairings} == {("family", family)}
    own = read_family(family).dropped["mindspore"]
    counters = {name for name in net.state_dict() if name.endswith(".num_batches_tracked")}
    assert {p.source for p in result.name_map.pairings} | counters == set(net.state_dict())
    targets = {parameter.name for parameter in cell.get_parameters()}
    left = targets - {p.target for p in result.name_map.pairings}
    assert all(any(fnmatchcase(name, glob) for glob in own) for name in left)
