"""Gradient norms and updates by depth: both sides, what is outside its limit, where they part."""

from __future__ import annotations

import math

import pytest

from align.report.plot_layers import draw_gradient_norms, draw_update_sizes


def line(axes, label):
    return next(one for one in axes.lines if one.get_label() == label)


def points(axes, label):
    found = [one for one in axes.collections if one.get_label() == label]
    return found[0].get_offsets().tolist() if found else []


def test_both_norms_are_drawn_in_the_references_order_and_a_gradient_that_is_lacking_is_marked(samples, document):
    step = document(samples.sample_step())
    first = [one["reference"] for one in step["layers"][:2]]
    step["layers"].reverse()  # the run, not the map, gives the order
    upper, _ = draw_gradient_norms(step).axes
    reference, candidate = (line(upper, side).get_ydata() for side in ("reference", "candidate"))
    assert first == ["body.0.convolution", "body.1.convolution"]
    assert math.isclose(reference[0], math.hypot(0.5 * 1.1, 0.5 * 1.1))
    assert len(reference) == len(candidate) == 24
    assert upper.get_yscale() == "log"
    step["gradients"] = [one for one in step["gradients"] if not one["reference"].endswith("bias")]
    upper, _ = draw_gradient_norms(step).axes
    assert [place for place, _ in points(upper, "candidate: none, or zero")] == [9]
    assert math.isnan(line(upper, "candidate").get_ydata()[8])


def test_what_is_at_fault_is_named_at_its_layer_and_nothing_in_a_clean_step(samples, document):
    upper, lower = draw_gradient_norms(document(samples.sample_step())).axes
    assert [text.get_text() for text in upper.texts] == ["at fault, 1: code beside body.15.conv"]
    assert [list(one.get_xdata()) for one in upper.lines if one.get_label().startswith("_")] == [[16, 16]]
    assert [place for place, _ in points(lower, "not aligned")] == [*range(1, 17)]
    assert [place for place, _ in points(lower, "alone, at fault")] == [16]
    upper, lower = draw_gradient_norms(document(samples.clean_step())).axes
    assert [text.get_text() for text in upper.texts] == []
    assert points(lower, "not aligned") == points(lower, "alone, at fault") == []
    assert len(points(lower, "aligned")) == 24


def test_a_layer_without_parameters_is_marked_between_its_neighbours(samples, document):
    step = document(samples.sample_step())
    step["layers"].insert(2, step["layers"][0] | {"reference": "pool", "candidate": "pool"})
    step["culprits"] = [step["culprits"][0] | {"kind": "forward", "part": "layer", "candidate": "pool", "near": ""}]
    upper, _ = draw_gradient_norms(step).axes
    assert [text.get_text() for text in upper.texts] == ["at fault, 1: pool"]
    assert [list(one.get_xdata()) for one in upper.lines if one.get_label().startswith("_")] == [[2.5, 2.5]]


def test_where_no_layer_is_at_fault_the_last_one_outside_is_where_they_part(samples, document):
    step = document(samples.sample_step())
    step["culprits"] = step["culprits"][1:]
    upper, _ = draw_gradient_norms(step).axes
    assert [text.get_text() for text in upper.texts] == ["they part here: body.15.convolution"]


@pytest.mark.parametrize(
    ("sample", "ratio", "outside"), [("sample_step", math.sqrt((1 + 2**2) / 2), 24), ("clean_step", 1.0, 0)]
)
def test_updates_are_relative_to_the_parameters(samples, document, sample, ratio, outside):
    step = document(getattr(samples, sample)())
    upper, lower = draw_update_sizes(step).axes
    reference, candidate = (line(upper, side).get_ydata() for side in ("reference", "candidate"))
    first = 0.05 * 1.1**24
    assert math.isclose(reference[0], math.sqrt((1 + 1.9**2) / 2) * math.hypot(first, first) / math.hypot(8, 8))
    assert [b / a for a, b in zip(reference, candidate, strict=True)] == pytest.approx([ratio] * 24)
    assert len(points(lower, "not aligned")) == outside


def test_what_could_not_be_told_is_no_divergence(samples, document):
    step = document(samples.sample_step())
    step["gradients"] = [one | {"outcome": "could not tell", "factor": 9.0} for one in step["gradients"]]
    step["culprits"] = []
    upper, lower = draw_gradient_norms(step).axes
    assert len(points(lower, "could not tell")) == 24
    assert [text.get_text() for text in upper.texts] == points(lower, "not aligned") == []


def test_a_gradient_of_nan_is_marked_as_such_and_not_as_none(samples, document):
    step = document(samples.clean_step())
    step["gradients"][4] |= {"candidate_norm": "NaN", "factor": "Infinity", "outcome": "not aligned"}
    upper, lower = draw_gradient_norms(step).axes
    assert [place for place, _ in points(upper, "candidate: NaN or Inf")] == [3]
    assert points(upper, "candidate: none, or zero") == points(upper, "reference: NaN or Inf") == []
    assert [place for place, _ in points(lower, "not aligned")] == [3]


def test_a_step_without_sizes_draws_nothing(samples, document):
    step = document(samples.sample_step()) | {"updates": []}
    assert draw_update_sizes(step) is None
    assert draw_gradient_norms(step | {"gradients": []}) is None
