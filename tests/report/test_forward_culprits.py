from __future__ import annotations

from dataclasses import replace

import pytest

from align.core.verdicts import Finding
from align.forward.forward_result import AcceptedLayers, IsolatedComparison, UnseenModule
from align.forward.judge_forward import judge_forward
from align.report.kinds.culprits import cause_words
from align.report.show_result import blocks_as_html, blocks_as_text, result_blocks
from align.report.thresholds import CULPRITS_IN_PANEL
from align.rules.pitfalls import pitfalls


def panel_of(document, **options):
    return blocks_as_text(result_blocks(document, **options)[:1])


def test_what_is_at_fault_comes_first_with_its_cause_and_the_line_to_change(samples, document):
    panel = panel_of(document(samples.faulty_forward()))
    assert panel.startswith("╭─ 2 PARTS OF THE PORT ARE AT FAULT; all else follows")
    for said in (
        "│ 1  candidate   layer1.0.down_sample.0  (Conv2d)",
        f"reference   {samples.FIRST_DIVERGENT}  (ResNetConvLayer)",
        "the layer itself, 4,540 × its limit, in 2 calls",
        "confirmed (tried): max-pool-padding: ",
        "up to 0.134 (3.2e-05 allowed), at (1, 17, 0, 55) of (2, 64, 56, 56) float32",
        'reference padding=1, candidate pad_mode="same"',
        'write       nn.MaxPool2d(..., pad_mode="pad", padding=1)',
        "line        resnet.py:214",
        "│ 2  candidate   layer2.5.conv3  (Conv2d)",
        "the code in front, which makes its inputs, beyond any limit",
        "cause       unknown",
        'write align.probe("a", x) on both sides',
    ):
        assert said in panel, said


def test_rows_at_fault_are_marked_and_show_both_errors(samples, document):
    text = blocks_as_text(result_blocks(document(samples.faulty_forward())))
    rows = [line.split() for line in text.splitlines() if line.startswith("▶")]
    assert [row[1] for row in rows] == ["15", "60"]
    assert "42 layers that follow" in text
    follows = next(line.split() for line in text.splitlines() if line.split()[:1] == ["16"])
    assert follows[-5:] == ["0.0216", "4,330", "0.02", "NOT", "ALIGNED"]


def test_the_first_divergent_layer_has_no_panel_if_a_culprit_says_the_same(samples, document):
    told = samples.faulty_forward()
    later = replace(told, culprits=told.culprits[1:])
    assert "FIRST DIVERGENT" not in blocks_as_text(result_blocks(document(told)))
    assert "FIRST DIVERGENT" in blocks_as_text(result_blocks(document(later)))


def test_all_else_follows_only_if_every_layer_that_is_off_was_judged_alone(samples, document):
    told = samples.faulty_forward()
    layers = [replace(one, isolated=None) if one.order in (20, 21) else one for one in told.layers]
    assert "AT FAULT; 2 layers could not be judged alone" in panel_of(document(replace(told, layers=tuple(layers))))


def test_all_else_follows_only_if_every_module_was_seen(samples, document):
    told = samples.faulty_forward()

    def unseen(state, count):
        return tuple(UnseenModule("candidate", f"layers.{i}", "Dense", 8, state) for i in range(count))

    for state, count, said in (
        ("bypassed", 2, "AT FAULT; 2 modules were bypassed or not seen"),
        ("not seen", 1, "AT FAULT; 1 module was bypassed or not seen"),
        ("never called", 2, "AT FAULT; all else follows"),
    ):
        assert said in panel_of(document(replace(told, unseen=unseen(state, count))))


def test_all_else_follows_is_not_said_beside_rows_that_are_not_comparable(samples, document):
    told = samples.faulty_forward()

    def with_row(note):
        changes = {"outcome": "not comparable", "measurement": None, "factor": None, "isolated": None, "note": note}
        layers = [replace(one, **changes) if one.order == 20 else one for one in told.layers]
        return document(replace(told, layers=tuple(layers)))

    assert "AT FAULT; all else follows" in panel_of(document(told))
    for note in ("shapes [2, 3] and [3, 2] differ", "no elements", ""):
        assert "AT FAULT; 1 layer could not be judged alone" in panel_of(with_row(note))


def test_rows_without_a_figure_have_their_reasons_below_the_table(samples, document):
    told = samples.sample_forward()
    title = "Not comparable, or not judged alone"
    assert title not in blocks_as_text(result_blocks(document(told)))
    changes = {"outcome": "not comparable", "measurement": None, "factor": None}
    reason = "differs, but the next layer agrees: the two modules do not end at the same place"
    notes = {4: reason, 20: "no elements"}
    rows = [replace(one, note=notes[one.order], **changes) if one.order in notes else one for one in told.layers]
    lines = blocks_as_text(result_blocks(document(replace(told, layers=tuple(rows))))).splitlines()
    below = " ".join("\n".join(lines[lines.index(title) :]).split())
    assert max(map(len, lines)) <= 100
    for row in (row for row in rows if row.order in notes):
        assert f"{notes[row.order]}: {row.reference}" in below


def test_a_layer_off_that_could_not_be_run_alone_says_why(samples, document):
    told = samples.faulty_forward()
    reason = "its inputs are of other shapes"
    alone = IsolatedComparison("not comparable", None, None, None, None, reason)
    layers = [replace(one, isolated=alone) if one.order == 20 else one for one in told.layers]
    text = " ".join(blocks_as_text(result_blocks(document(replace(told, layers=tuple(layers))))).split())
    assert f"not judged alone: {reason}" in text
    assert "not judged alone:" not in blocks_as_text(result_blocks(document(told)))


def test_an_error_beside_the_layers_opens_the_report(samples, document):
    told = samples.sample_forward(diverges=False)
    error = Finding("precision-too-coarse", "error", "head", "1 output is coarser than float32")
    for errors, title in (((error,), "BUT 1 FINDING IS AN ERROR"), ((error, error), "BUT 2 FINDINGS ARE ERRORS")):
        verdict = judge_forward(told.layers, (), errors)
        panel = panel_of(document(replace(told, findings=errors, verdict=verdict)))
        assert f"NO LAYER DIVERGES, {title}" in panel
        assert "head: 1 output is coarser than float32" in panel
    assert "No divergent layer" in panel_of(document(told))


def test_a_layer_at_fault_whose_error_a_later_one_hides_is_shown_and_never_folded(samples, document):
    told = samples.sample_forward(diverges=False)
    layers = [replace(one, isolated=samples.alone(one, 0.5 if one.order == 40 else 0.0)) for one in told.layers]
    hidden = replace(told, layers=tuple(layers), culprits=(samples.culprit(layers[40], 9.0),))
    text = blocks_as_text(result_blocks(document(hidden)))
    assert text.startswith("╭─ 1 PART OF THE PORT IS AT FAULT")
    assert next(line for line in text.splitlines() if line.startswith("▶")).split()[1] == "40"


def test_culprits_that_differ_in_their_numbers_alone_are_told_once_with_the_worst_and_all_lines(samples, document):
    told = samples.faulty_forward()
    blocks = [one for one in told.layers if one.reference.endswith("layer.4.convolution")][4:8]
    alike = [samples.culprit(one, 2.0 + place, line=f"net.py:{place}") for place, one in enumerate(blocks)]
    panel = panel_of(document(replace(told, culprits=(*alike, samples.culprit(told.layers[60], 3.0, change="x")))))
    assert panel.startswith("╭─ 5 PARTS OF THE PORT ARE AT FAULT")
    assert "│ 1  candidate   layer{1…2}.{0…5}.conv5 (4)  (Conv2d)" in panel
    assert "the layer itself, by up to 5 × its limit" in panel
    assert "net.py:0, net.py:1, net.py:2 and 1 more" in panel
    assert "│ 2  candidate   layer2.5.conv3  (Conv2d)" in panel


def test_more_culprits_than_the_panel_holds_stand_in_a_table(samples, document):
    told = samples.faulty_forward()
    many = replace(told, culprits=tuple(samples.culprit(one, 5.0, change=str(one.order)) for one in told.layers[15:29]))
    text = blocks_as_text(result_blocks(document(many)))
    assert f"and {14 - CULPRITS_IN_PANEL} more, in the table below" in text
    table = text[text.index("All parts at fault") : text.index("Layers in execution order")]
    assert len([line for line in table.splitlines() if line.split()[:1] and line.split()[0].isdigit()]) == 14
    assert max(map(len, text.splitlines())) <= 100


def test_the_page_holds_the_table_of_culprits_with_all_that_is_known(samples, document):
    page = blocks_as_html(tuple(result_blocks(document(samples.faulty_forward()), show_all=True)))
    assert "resnet.py:214" in page
    assert "<h4>All parts at fault</h4>" in page


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"findings": ()}, "not judged: the layers were not run one by one"),
        ({}, "not judged: ports.resnet:build failed on the reference's values"),
        ({"alone": 1e-7}, "0.02 × its limit: the difference comes from its inputs"),
        ({"alone": 0.021}, "4,200 × its limit"),
        ({"alone": 0.021, "inputs_factor": 7.5}, "4,200 × its limit, but its inputs are already at 7.5 × theirs"),
    ],
)
def test_without_culprits_the_first_divergent_layer_says_what_it_is_alone(samples, document, changes, said):
    told = samples.sample_forward()
    finding = samples.Finding("not-isolated", "warning", "", "ports.resnet:build failed on the reference's values")
    layers = list(told.layers)
    if "alone" in changes:
        alone = samples.alone(layers[15], changes["alone"])
        layers[15] = replace(layers[15], isolated=replace(alone, inputs_factor=changes.get("inputs_factor")))
    told = replace(told, layers=tuple(layers), findings=changes.get("findings", (finding,)))
    panel = panel_of(document(told))
    assert panel.startswith("╭─ FIRST DIVERGENT LAYER")
    assert said in panel


def test_several_causes_are_told_apart_and_one_of_another_version_stays_as_it_is():
    rule = pitfalls()[0]
    assert cause_words(f"{rule.id} + weights-differ + new-cause") == (
        f"{rule.id}: {rule.effect}; weights-differ: its parameters hold other values than the reference's; new-cause"
    )


def test_accepted_deviations_stand_with_their_reason_and_those_that_nothing_needs_are_told(samples, document):
    accepted = (
        AcceptedLayers("*.tanh", "the kernel of the CPU", ("a.tanh", "b.tanh"), 12.5),
        AcceptedLayers("head", "as trained", (), None),
    )
    text = blocks_as_text(result_blocks(document(replace(samples.sample_forward(diverges=False), accepted=accepted))))
    assert "*.tanh: the kernel of the CPU; deviating layers: 2, by up to 12.5 × their limit" in text
    assert "head: as trained; none of these layers deviates: no longer needed" in text
