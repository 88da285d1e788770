from __future__ import annotations

import dataclasses
import io
import re

import pytest
from rich.console import Console

from align.errors import RunFolderError
from align.report.blocks import Column, Facts, Row, Table
from align.report.show_result import blocks_as_text, draw, print_plugins, print_result, result_blocks

KINDS = (
    "sample_map",
    "open_map",
    "sample_conversion",
    "sample_diff",
    "sample_forward",
    "faulty_forward",
    "broken_forward",
    "sample_losses",
    "sample_step",
    "clean_step",
)


def text_of(document, **options):
    return blocks_as_text(result_blocks(document, **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("show_all", [False, True])
def test_no_line_is_wider_than_100_columns(samples, document, kind, show_all):
    text = text_of(document(getattr(samples, kind)()), show_all=show_all)
    assert max(map(len, text.splitlines())) <= 100


def test_a_result_printed_away_from_a_terminal_is_100_columns_wide_and_uncoloured(samples, document, capsys):
    print_result(document(samples.sample_forward()))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) == 100
    assert "\x1b" not in printed


def test_the_first_divergent_layer_comes_first_with_all_its_figures(samples, document):
    text = text_of(document(samples.sample_forward()))
    panel = text[: text.index("Layers in execution order")]
    assert text.splitlines()[0].startswith("╭─ FIRST DIVERGENT LAYER")
    for said in (
        samples.FIRST_DIVERGENT,
        "layer1.0.down_sample.0",
        "ResNetConvLayer",
        "Conv2d",
        "(2, 64, 56, 56) float32 on both sides",
        "0.145 at (1, 17, 0, 55)",
        "57,344 of 401,408 elements (14.3 %)",
        "rounding",
        "4,540 × this limit",
        "#14",
    ):
        assert said in panel, said


def test_the_table_folds_aligned_stretches_cuts_the_middle_and_keeps_the_first_divergent_row(samples, document):
    text = text_of(document(samples.sample_forward()))
    table = text[text.index("Layers in execution order") : text.index("Findings")]
    assert "13 layers" in table
    assert "68 rows left out" in table
    assert next(line for line in table.splitlines() if line.startswith("▶")).split()[1] == "15"
    assert len(table.splitlines()) < 50


def test_a_first_divergent_layer_late_in_a_long_table_is_never_cut(samples, document):
    forward = document(samples.sample_forward())
    for position, layer in enumerate(forward["layers"]):
        layer["outcome"] = "not comparable" if position % 2 else "aligned"
    forward["layers"][70]["outcome"] = "not aligned"
    forward["first_divergent"] = 70
    assert "▶ 70" in text_of(forward)


def test_show_all_shows_every_layer(samples, document):
    forward = document(samples.sample_forward())
    text = text_of(forward, show_all=True)
    assert "left out" not in text
    assert all(f" {order}  " in text for order in range(120))


def test_numbers_of_layers_survive_the_shortening_of_their_names(samples, document):
    text = text_of(document(samples.sample_forward()))
    row = next(line for line in text.splitlines() if line.split()[:1] == ["16"])
    assert "s.0.l.2.layer.3" in row
    assert row.split()[1].endswith(".convolution")


def test_nan_on_one_side_is_shown_and_has_no_passing_limit(samples, document):
    text = text_of(document(samples.broken_forward()))
    assert "NaN: 0 in the reference, 12 in the candidate" in text
    assert "no limit: NaN or Inf on one side only" in text
    assert "not comparable" in text


def test_non_finite_losses_are_shown_as_such(samples, document):
    loss = document(samples.sample_losses())
    for key in ("candidate", "difference"):
        loss["points"][key][0] = "NaN"
    loss["points"]["candidate"][1] = "Infinity"
    loss["points"]["difference"][1] = "-Infinity"
    text = text_of(loss)
    first, second = (line for line in text.splitlines() if line.split()[:1] in (["1"], ["2"]))
    assert first.split()[2:4] == ["NaN", "NaN"]
    assert second.split()[2:4] == ["inf", "-inf"]


def test_a_forward_without_divergence_names_the_layer_nearest_to_its_limit(samples, document):
    text = text_of(document(samples.sample_forward(diverges=False)))
    assert "No divergent layer" in text.splitlines()[0]
    assert "FIRST DIVERGENT" not in text
    assert "nearest to its limit" in text


def test_a_map_shows_both_sides_and_folds_what_was_left_out(samples, document):
    text = text_of(document(samples.sample_map()))
    assert text.count("25,557,032") == 4
    assert "normalization.num_batches_tracked (53)" in text
    assert "more pairs" not in text
    table = text[text.index("All pairs") : text.index("Left out")]
    assert sum(table.count(f"  {count}  ") * count for count in (2, 15, 36)) + 1 == 266
    assert "Compared: 266" in text
    assert "Excluded: 53" in text


@pytest.mark.usefixtures("guarded")
def test_a_map_of_50000_pairs_is_a_few_rows_and_drawn_pair_by_pair(samples, document, growth):
    name = "layers.{}.experts.{}.w{}".format
    result = samples.sample_map()

    def text_for(layers, experts=256):
        pairs = [(name(a, b, c), name(a + 1, b, c)) for a in range(layers) for b in range(experts) for c in range(1, 4)]
        pairings = tuple(samples.Pairing(a, b, "structure", 0.9) for a, b in pairs)
        return text_of(document(dataclasses.replace(result, name_map=samples.NameMap("a", "b", pairings))))

    assert growth(lambda layers: text_for(layers, 16), 30) < 3
    text = text_for(60)
    assert "46,080" in text
    row = next(line for line in text.splitlines() if line.startswith("layers."))
    assert row.startswith("layers.{0..59}.experts.{0..255")
    assert "layers.{1..60}.experts.{0..255" in row
    assert "  46,080  " in row


def test_of_many_unlike_pairs_the_least_sure_are_shown(samples, document):
    pairings = [samples.Pairing(f"a{'b' * n}", f"c{'d' * n}", "structure", 0.5 + n / 200) for n in range(80)]
    told = document(dataclasses.replace(samples.sample_map(), name_map=samples.NameMap("a", "b", tuple(pairings))))
    text = text_of(told)
    assert "68 more pairs" in text
    assert "0.505" in text
    assert "0.7" not in text[text.index("Some of the pairs") :]
    assert "more pairs" not in text_of(told, show_all=True)


def test_everything_open_in_a_map_is_named_with_its_reason(samples, document):
    text = text_of(document(samples.open_map()))
    for said in (
        "equal shapes",
        "blocks.0.fc{1…2}.weight (2)",
        "no tensor of shape (10, 64)",
        "closest: head2.weight, heads.weight",
        "rename encoder.* to enc.*",
        "COULD NOT COMPARE: 3 names are open",
        "reshape [8, 3, 1, 3]",
    ):
        assert said in text, said


def test_a_conversion_that_was_not_read_back_says_so(samples, document):
    assert "read back and equal bit for bit" in text_of(document(samples.sample_conversion()))
    text = text_of(document(samples.sample_conversion(verified=False)))
    assert "NOT VERIFIED" in text
    assert "bit for bit" not in text


def test_a_diff_shows_the_worst_first_and_everything_that_differs(samples, document):
    text = text_of(document(samples.sample_diff()))
    for said in (
        "tensor              head.norm.weight",
        "NaN: 0 in the reference, 12 in the candidate",
        "embed.weight: shape (2, 64, 56, 56) against (30528, 768)",
        "pos: float32 against float16, equal in value",
        "out.weight: the candidate is 8 times the reference (within 2 units in the last place)",
        "pooler.{0…2}.bias (3)",
        "bn.num_batches_tracked: MindSpore's BatchNorm does not count batches",
        "1 unchanged, 45 moved",
        "holds 80 tensors: NOT COMPARED",
        "NOT ALIGNED: 44 of 46 tensors differ",
    ):
        assert said in text, said
    table = text[text.index("Values differ, worst first") :].splitlines()[3:5]
    assert table[0].startswith("head.norm.weight")
    assert table[1].startswith("e.s.{0…3}")
    assert "40" in table[1].split()


def test_a_diff_unfolded_has_a_row_for_each_tensor_the_largest_difference_first(samples, document):
    rows = [line for line in text_of(document(samples.sample_diff()), show_all=True).splitlines() if ".dense.w" in line]
    assert len(rows) == 40
    assert ".3.l.9." in rows[0].replace("layers", "l")
    multiples = [float(row.split()[-2].replace(",", "")) for row in rows]
    assert multiples == sorted(multiples, reverse=True)


def test_a_loss_shows_criteria_first_divergent_step_and_the_next_command(samples, document):
    text = text_of(document(samples.sample_losses()))
    for said in ("The curves part at step 22", "align step zoo.resnet:build", "published migration guide", "OUTSIDE"):
        assert said in text, said


def test_names_with_brackets_are_no_markup(samples, document):
    forward = document(samples.broken_forward())
    forward["layers"][1]["reference"] = "norm[red]"
    assert "norm[red]" in text_of(forward)


def test_an_unknown_schema_is_refused_with_a_hint():
    with pytest.raises(RunFolderError, match=r"mindalign\.dance/9"):
        print_result({"schema": "mindalign.dance/9"})


def test_plugins_are_listed_with_their_state(capsys):
    print_plugins([{"room": "formats", "name": "ckpt", "summary": "MindSpore checkpoints", "state": "ready"}])
    assert capsys.readouterr().out.split()[-4:] == ["ckpt", "MindSpore", "checkpoints", "ready"]


def test_the_step_where_a_loss_stops_being_finite_is_among_the_points_shown(samples, document):
    loss = document(samples.sample_losses())
    for key in ("candidate", "difference"):
        loss["points"][key][40] = "NaN"
    assert [line.split()[2] for line in text_of(loss).splitlines() if line.split()[:1] == ["41"]] == ["NaN"]


def test_a_loss_result_tells_drift_events_other_metrics_and_speed(samples, document):
    text = text_of(document(samples.sample_losses()))
    assert "spike (candidate): step 40 (3.1)" in text
    assert re.search(r"sign test\s+31\s+1e-06\s+0.005\s+FOUND", text)
    assert re.search(r"grad_norm\s+60\s+19\s+21\s+0.7\s+60", text)
    assert "3 × the reference's time (median)" in text
    assert re.search(r"waiting for data\s+5% \| 60%", text)
    assert "loading data" in text


def test_a_terminal_is_shown_places_with_their_column_and_a_file_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "port.py").write_text("import x\n    self.norm = x\n\n")
    table = Table("", (Column("line"),), (Row(("port.py:2",)),), "and port.py:2:9")
    facts = Facts("fault", (("line", "at port.py:2; write x"), ("other", "lib/port.py:2, port.py:3, port.py:99")))
    for is_terminal, shown in ((True, "port.py:2:5"), (False, "port.py:2")):
        stream = io.StringIO()
        draw(Console(file=stream, width=100, force_terminal=is_terminal, color_system=None), [table, facts])
        text = stream.getvalue()
        assert f"at {shown}; write x" in text
        assert "lib/port.py:2, port.py:3, port.py:99" in text
        assert "and port.py:2:9" in text
        assert text.count("port.py:2:5") == (2 if is_terminal else 0)
