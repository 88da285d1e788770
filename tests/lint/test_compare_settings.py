"""Settings of paired layers held against the rules, with no framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from align.core.protocols import LayerSettings
from align.errors import CannotRunError
from align.lint.compare_settings import LayerPair, compare_settings
from align.lint.lint_sides import open_lint_side
from align.rules.pitfalls import pitfalls

if TYPE_CHECKING:
    from align.lint.compare_settings import ComparedSettings


def layer(path: str, name: str, **values: Any) -> LayerSettings:
    return LayerSettings(path, (name,), values)


def slopes(*values: tuple[float, float], certain: bool = True) -> list[LayerPair]:
    return [
        LayerPair(
            layer(f"act{n}", "torch.nn.LeakyReLU", negative_slope=mine),
            layer(f"relu{n}", "mindspore.nn.LeakyReLU", alpha=theirs),
            certain,
        )
        for n, (mine, theirs) in enumerate(values)
    ]


def compare(pairs: list[LayerPair]) -> ComparedSettings:
    return compare_settings(pairs, pitfalls())


def test_a_finding_names_both_layers_both_settings_and_what_to_write() -> None:
    (finding,) = compare(slopes((0.01, 0.2))).findings
    assert (finding.rule, finding.severity) == ("leaky-relu-slope", "error")
    assert (finding.reference, finding.candidate) == ("act0", "relu0")
    assert (finding.reference_setting, finding.candidate_setting) == ("negative_slope=0.01", "alpha=0.2")
    assert finding.change == "nn.LeakyReLU(..., alpha=0.01)"
    assert finding.certain


def test_equal_settings_are_counted_and_found_nothing_of() -> None:
    compared = compare(slopes((0.2, 0.2), (0.01, 0.01)))
    assert compared.findings == ()
    assert (compared.compared, compared.unread) == (2, 0)


def test_what_is_paired_by_its_place_alone_gives_a_note() -> None:
    (finding,) = compare(slopes((0.01, 0.2), (0.2, 0.2), certain=False)).findings
    assert (finding.severity, finding.certain) == ("note", False)


def test_what_every_pairing_would_find_is_sure() -> None:
    findings = compare(slopes((0.01, 0.2), (0.02, 0.3), certain=False)).findings
    assert [(finding.severity, finding.certain) for finding in findings] == [("error", True)] * 2


def test_an_attribute_that_a_layer_lacks_is_counted_as_not_read() -> None:
    pair = LayerPair(layer("a", "torch.nn.LeakyReLU"), layer("b", "mindspore.nn.LeakyReLU", alpha=0.2))
    compared = compare([pair])
    assert (compared.compared, compared.unread) == (0, 1)


def test_two_sides_of_one_framework_are_compared_too() -> None:
    pair = LayerPair(
        layer("a", "torch.nn.LeakyReLU", negative_slope=0.1), layer("b", "torch.nn.LeakyReLU", negative_slope=0.2)
    )
    assert compare([pair]).findings[0].change == "nn.LeakyReLU(..., negative_slope=0.1)"


def test_a_port_may_be_the_reference() -> None:
    (pair,) = slopes((0.01, 0.2))
    (finding,) = compare([LayerPair(pair.candidate, pair.reference)]).findings
    assert finding.change == "nn.LeakyReLU(..., negative_slope=0.2)"


def test_a_subclass_is_known_by_its_base() -> None:
    mine = LayerSettings("a", ("my.Act", "torch.nn.LeakyReLU"), {"negative_slope": 0.5})
    assert compare([LayerPair(mine, layer("b", "mindspore.nn.LeakyReLU", alpha=0.2))]).findings


def test_a_setting_without_effect_on_both_sides_is_left_out() -> None:
    def pair(layers: int) -> LayerPair:
        values = {"batch_first": False, "bias": True, "has_bias": True, "num_layers": layers, "proj_size": 0}
        return LayerPair(
            layer("a", "torch.nn.LSTM", dropout=0.5, **values), layer("b", "mindspore.nn.LSTM", dropout=0.0, **values)
        )

    assert compare([pair(1)]).findings == ()
    assert [finding.rule for finding in compare([pair(2)]).findings] == ["recurrent-dropout"]


def test_axes_counted_from_both_ends_may_be_one_axis() -> None:
    def finding(mine: int | None, theirs: int) -> Any:
        return compare(
            [LayerPair(layer("a", "torch.nn.Softmin", dim=mine), layer("b", "mindspore.nn.Softmin", axis=theirs))]
        ).findings[0]

    assert finding(1, -1).severity == "note"
    assert finding(1, 2).severity == "error"
    assert finding(-2, -1).severity == "error"


def test_unlike_kinds_at_one_place_are_a_warning() -> None:
    layers = layer("a", "torch.nn.Tanh"), layer("b", "mindspore.nn.ReLU")
    (finding,) = compare([LayerPair(*layers, kinds=("tanh", "relu"))]).findings
    assert (finding.rule, finding.severity, finding.change) == ("other-kind", "warning", "a layer of the kind tanh")
    assert compare([LayerPair(*layers, certain=False, kinds=("tanh", "relu"))]).findings == ()
    assert compare([LayerPair(*layers, kinds=("tanh", ""))]).findings == ()


def test_unlike_kinds_with_one_weight_in_two_shapes_are_a_note() -> None:
    layers = layer("a", "torch.nn.Linear"), layer("b", "mindspore.nn.Conv2d")
    for reshaped, severity in ((True, "note"), (False, "warning")):
        findings = compare([LayerPair(*layers, kinds=("linear", "conv"), reshaped=reshaped)]).findings
        assert [(one.rule, one.severity) for one in findings if one.rule == "other-kind"] == [("other-kind", severity)]


def test_padding_may_stand_in_the_layer_before() -> None:
    values = {"kernel_size": 3, "stride": 2, "dilation": 1, "ceil_mode": False}
    layers = (
        layer("a", "torch.nn.MaxPool2d", padding=1, **values),
        layer("b", "mindspore.nn.MaxPool2d", pad_mode="VALID", **values),
    )
    for padded, severity in ((True, "note"), (False, "error")):
        (finding,) = compare([LayerPair(*layers, padded=padded)]).findings
        assert (finding.rule, finding.severity) == ("max-pool-padding", severity)


def test_the_gravest_come_first_and_then_the_order_of_the_reference() -> None:
    dropout = LayerPair(
        layer("drop", "torch.nn.Dropout", p=0.5), layer("d", "mindspore.nn.Dropout", **{"dropout.keep_prob": 0.9})
    )
    findings = compare([dropout, *slopes((0.01, 0.2), (0.3, 0.4))]).findings
    assert [finding.reference for finding in findings] == ["act0", "act1", "drop"]


def test_an_onnx_file_has_no_settings_to_compare(tmp_path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(b"")
    with pytest.raises(CannotRunError, match="no layers whose settings"):
        open_lint_side(str(file))
