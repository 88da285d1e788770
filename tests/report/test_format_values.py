from __future__ import annotations

import math

import pytest

from align.report.blocks import as_float, format_facts, format_number, format_percentage, layer_name, shorten_path


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0.0, "0"),
        (1.23456e-5, "1.23e-05"),
        (0.0227, "0.0227"),
        (4537.2, "4,540"),
        (123456.0, "123,000"),
        (1.5e9, "1.5e+09"),
        (-12345.6, "-12,300"),
        (25557032, "25,557,032"),
        ("NaN", "NaN"),
        ("Infinity", "inf"),
        ("-Infinity", "-inf"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_three_significant_digits_and_integers_all(value, shown):
    assert format_number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1"),
        (1.001, "1.001"),
        (0.99961, "0.9996"),
        (-1.0004, "-1.0004"),
        (2.0014, "2.001"),
        (1.0000002, "1"),
        (0.1251, "0.125"),
        (1.25149, "1.25"),
        (4537.2, "4,540"),
        (12, "12"),
        ("NaN", "NaN"),
        ("sqrt(2)", "sqrt(2)"),
    ],
)
def test_a_fact_beside_a_whole_number_has_the_digits_that_tell_them_apart(value, shown):
    assert format_facts({"scale": value}) == f"scale {shown}"


def test_none_reads_back_as_nan():
    assert math.isnan(as_float(None))
    assert as_float("-Infinity") == -math.inf


def test_a_share_is_never_rounded_to_nothing_or_to_everything():
    assert format_percentage(0, 10) == "0 %"
    assert format_percentage(1, 10**9) == "0.001 %"
    assert format_percentage(10**9 - 1, 10**9) == "99.999 %"
    assert format_percentage(10, 10) == "100 %"
    assert format_percentage(0, 0) == "-"


def test_shortening_keeps_numbers_longer_than_words():
    name = "resnet.encoder.stages.0.layers.11.layer.2.convolution"
    assert shorten_path(name, 60) == name
    assert shorten_path(name, 34) == "resnet.e.s.0.l.11.l.2.convolution"
    assert shorten_path(name, 28) == "r.e.s.0.l.11.l.2.convolution"
    assert len(shorten_path(name, 12)) == 12


@pytest.mark.parametrize("width", range(1, 60))
def test_a_shortened_name_fits(width):
    assert len(shorten_path("/a/long/path/to/some-model_checkpoint.v2/file.ckpt", width)) <= width


def test_a_layer_is_named_with_its_call_and_output():
    assert layer_name("norm", 0, "") == "norm"
    assert layer_name("norm", 2, "logits") == "norm#2:logits"
    assert layer_name("") == "(model output)"
