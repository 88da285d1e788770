"""Settings are brought to one form and back into arguments."""

from __future__ import annotations

from typing import Any

import pytest

from align.rules.pitfalls import Form, equal_settings

TORCH = Form(("torch.nn.Conv2d",), "padding", "padding")
CELL = Form(("mindspore.nn.Conv2d",), "padding", "padding", writes="pad_mode")


def padding(form: Form, **settings: Any) -> object:
    return form.read({"kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1), **settings}, form.classes)


@pytest.mark.parametrize(
    ("form", "settings", "common"),
    [
        (TORCH, {"padding": (0, 0)}, 0),
        (TORCH, {"padding": (1, 2)}, (1, 2)),
        (TORCH, {"padding": 2}, 2),
        (TORCH, {"padding": "same"}, 1),
        (TORCH, {"padding": "same", "kernel_size": (4, 4)}, ((1, 2), (1, 2))),
        (TORCH, {"padding": "valid"}, 0),
        (CELL, {"padding": 0, "pad_mode": "same"}, 1),
        (CELL, {"padding": 0, "pad_mode": "SAME", "dilation": (2, 2)}, 2),
        (CELL, {"padding": 0, "pad_mode": "same", "stride": (2, 2)}, "same"),
        (CELL, {"padding": 0, "pad_mode": "same", "stride": (2, 2), "kernel_size": (1, 1)}, 0),
        (CELL, {"padding": 0, "pad_mode": "valid"}, 0),
        (CELL, {"padding": 3, "pad_mode": "pad"}, 3),
        (CELL, {"padding": (1, 1, 2, 2), "pad_mode": "pad"}, (1, 2)),
        (CELL, {"padding": (0, 1, 0, 1), "pad_mode": "pad"}, ((0, 1), (0, 1))),
        (CELL, {"padding": (0, 1, 1), "pad_mode": "pad"}, 1),
        (CELL, {"pad_mode": "VALID"}, 0),
    ],
)
def test_padding_is_what_stands_before_and_behind_each_axis(form: Form, settings: Any, common: object) -> None:
    assert padding(form, **settings) == common


@pytest.mark.parametrize("classes", [("mindspore.nn.Conv1d",), ("my.net2d.Conv", "mindspore.nn.Conv1d")])
def test_axes_that_a_layer_adds_inside_do_not_count(classes: tuple[str, ...]) -> None:
    settings = {"padding": (0, 0, 2, 2), "pad_mode": "pad", "stride": (1, 3)}
    assert CELL.read(settings, classes) == 2
    assert Form(classes, "stride", "axes").read(settings, classes) == 3


def test_a_live_layer_is_shown_as_it_was_built() -> None:
    shape = Form(("torch.nn.LayerNorm",), "normalized_shape", "first_axis")
    same = {"padding": 0, "pad_mode": "SAME", "kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    assert shape.show({"normalized_shape": (3, 8)}, shape.classes) == "normalized_shape=(3, 8)"
    assert CELL.show(same, CELL.classes) == 'pad_mode="same"'
    assert TORCH.show({"padding": (1, 1)}, TORCH.classes) == "padding=1"
    begin = Form(("mindspore.nn.LayerNorm",), "begin_norm_axis", "axis", instead="another layer")
    assert begin.show({"begin_norm_axis": 1}, begin.classes) == "begin_norm_axis=1"
    assert begin.arguments(1) == ()


def test_one_number_in_a_tuple_stands_for_all_axes() -> None:
    assert padding(TORCH, padding=(1,)) == 1


def test_output_padding_is_cut_off_behind() -> None:
    form = Form(("torch.nn.ConvTranspose2d",), "padding", "crop")
    assert form.read({"padding": (1, 1), "output_padding": (1, 1)}, form.classes) == ((1, 0), (1, 0))
    assert form.read({"padding": (1, 1), "output_padding": (0, 0)}, form.classes) == 1


@pytest.mark.parametrize(
    ("form", "value", "argument"),
    [
        (TORCH, 1, "padding=1"),
        (TORCH, (1, 2), "padding=(1, 2)"),
        (TORCH, "same", 'padding="same" (with stride 1 only)'),
        (TORCH, ((0, 1), (0, 1)), "padding=0 after a padding layer of ((0, 1), (0, 1))"),
        (CELL, 0, 'pad_mode="valid"'),
        (CELL, 1, 'pad_mode="pad", padding=1'),
        (CELL, (1, 2), 'pad_mode="pad", padding=(1, 1, 2, 2)'),
        (CELL, ((0, 1), (0, 1)), 'pad_mode="pad", padding=(0, 1, 0, 1)'),
        (CELL, "same", 'pad_mode="same"'),
        (Form(("x",), "momentum", writes_as="one_minus"), 0.1, "momentum=0.9"),
        (Form(("x",), "dropout.keep_prob", "one_minus", writes="p", writes_as="plain"), 0.2, "p=0.2"),
        (Form(("x",), "betas.0"), 0.9, "betas[0]=0.9"),
        (Form(("x",), "elu.alpha"), 0.5, "alpha=0.5"),
        (Form(("x",), "mode", values=((False, "none"), (True, "tanh"))), "tanh", "mode=True"),
        (Form(("x",), "number", values=((1, "relu", "relu"),), writes="activation"), "relu", 'activation="relu"'),
        (Form(("x",), always=1, instead="nothing"), 1, "always 1"),
    ],
)
def test_a_common_value_is_written_as_the_argument_of_a_class(form: Form, value: Any, argument: str) -> None:
    assert form.write(value) == argument


@pytest.mark.parametrize(
    ("form", "value", "arguments"),
    [
        (TORCH, (1, 2), (("padding", (1, 2)),)),
        (TORCH, ((0, 1), (0, 1)), ()),
        (TORCH, "same", ()),
        (Form(("x",), "max_norm", lacking=0), 0, (("max_norm", None),)),
        (Form(("x",), "ceil", lacking=False), False, (("ceil", False),)),
        (Form(("x",), "mode", takes=(1, 2), instead="another"), 2, (("mode", 2),)),
        (Form(("x",), "mode", takes=(1, 2), instead="another"), 3, ()),
        (CELL, 0, (("pad_mode", "valid"),)),
        (CELL, ((0, 1), (0, 1)), (("pad_mode", "pad"), ("padding", (0, 1, 0, 1)))),
        (Form(("x",), "op.ceil", writes="ceil", beside=(("mode", "pad"),)), True, (("mode", "pad"), ("ceil", True))),
        (Form(("x",), always=1, instead="nothing"), 1, ()),
    ],
)
def test_what_is_written_is_also_had_as_arguments_of_the_constructor(form: Form, value: Any, arguments: object) -> None:
    assert form.arguments(value) == arguments


@pytest.mark.parametrize(
    ("form", "settings", "common"),
    [
        (Form(("x",), "p", "one_minus"), {"p": 0.9}, 0.1),
        (Form(("x",), "p", "not"), {"p": True}, False),
        (Form(("x",), "p", "present"), {"p": None}, False),
        (Form(("x",), "p", "present"), {"p": True}, True),
        (Form(("x",), "p", "lower"), {"p": "SAME"}, "same"),
        (Form(("x",), "p", "axes"), {"p": (2, 2)}, 2),
        (Form(("x",), "p", "axis"), {"p": (-1,)}, -1),
        (Form(("x",), "p", "first_axis"), {"p": (3, 8)}, -2),
        (Form(("x",), ("stride", "kernel")), {"stride": None, "kernel": 2}, 2),
        (Form(("x",), "betas.1"), {"betas": (0.9, 0.99)}, 0.99),
        (Form(("x",), "op.alpha", lacking=1), {}, 1),
        (Form(("x",), "reduction", "reduction"), {"reduce": True, "average": True}, "mean"),
        (Form(("x",), "reduction", "reduction"), {"reduce": True, "average": False}, "sum"),
        (Form(("x",), "reduction", "reduction"), {"reduce": False, "average": True}, "none"),
    ],
)
def test_a_setting_is_read_in_the_common_form(form: Form, settings: Any, common: object) -> None:
    assert form.readable(settings)
    assert form.read(settings, form.classes) == common


def test_a_setting_that_a_layer_does_not_have_is_not_readable() -> None:
    assert not Form(("x",), "alpha").readable({"beta": 1})


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1e-5, 9.99999974e-06, True),
        (1e-5, 1e-7, False),
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (None, 0, False),
        ((1, 2), (1, 2.0), True),
        ((1, 2), 1, False),
        ("mean", "mean", True),
    ],
)
def test_floats_are_equal_to_the_precision_of_float32_and_a_truth_value_is_no_number(
    one: Any, other: Any, equal: bool
) -> None:
    assert equal_settings(one, other) == equal
