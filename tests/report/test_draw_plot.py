from __future__ import annotations

import math
import struct
from dataclasses import replace

import matplotlib as mpl
import pytest
from matplotlib import font_manager
from matplotlib.font_manager import fontManager

from align.report.draw_plot import PLOTS, draw_plot, font_note
from align.report.open_run import open_run
from align.words.catalogue import VARIABLE


def size_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", png[16:24])


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("coverage", "sample_map"),
        ("coverage", "open_map"),
        ("difference_histogram", "sample_forward"),
        ("error_by_depth", "sample_forward"),
        ("error_by_depth", "broken_forward"),
        ("error_by_depth", "faulty_forward"),
        ("gradient_norms", "sample_step"),
        ("gradient_norms", "clean_step"),
        ("update_sizes", "sample_step"),
        ("loss_curves", "sample_losses"),
    ],
)
def test_a_plot_is_a_picture_of_its_document(samples, document, name, sample):
    picture = draw_plot(name, document(getattr(samples, sample)()))
    width, height = size_of(picture.png)
    assert width == 1440
    assert height > 200
    assert picture._repr_png_()[1]["width"] == 960


def test_every_plot_has_a_title(samples, document):
    assert {kind for kind, _ in PLOTS.values()} == {
        *("map", "data", "forward", "step", "watch", "loss", "batch", "memory", "advise", "tokens")
    }
    for name, (kind, _) in PLOTS.items():
        sample = samples.sample_losses if kind == "loss" else getattr(samples, f"sample_{kind}")
        assert draw_plot(name, document(sample())).alt.startswith("Plot: ")


def axes_of(samples, document, result):
    return PLOTS["error_by_depth"][1](document(result)).axes[0]


def test_the_first_divergent_layer_is_marked_at_its_place_and_named(samples, document):
    axes = axes_of(samples, document, samples.sample_forward())
    assert any("resnet.e.s.0.l.0.s.convolution" in text.get_text() for text in axes.texts)
    assert any(list(line.get_xdata()) == [15, 15] for line in axes.lines)


def test_what_is_at_fault_is_marked_and_each_layer_alone_is_a_series_of_its_own(samples, document):
    axes = axes_of(samples, document, samples.faulty_forward())
    assert [list(line.get_xdata()) for line in axes.lines[1:]] == [[15, 15], [60, 60]]
    assert [text.get_text()[:11] for text in axes.texts] == ["at fault, 1", "at fault, 2"]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"alone", "alone, at fault", "not aligned"} <= set(labels)
    alone = next(one for one in axes.collections if one.get_label() == "alone, at fault")
    assert alone.get_offsets()[:, 0].tolist() == [15, 60]


def test_the_limit_is_drawn_relative_to_each_layer(samples, document):
    forward = document(samples.sample_forward())
    axes = axes_of(samples, document, samples.sample_forward())
    layer = forward["layers"][7]
    limit = axes.lines[0].get_ydata()[7]
    assert math.isclose(limit, layer["limit"]["rmse"] / layer["measurement"]["reference_rms"])


def test_a_layer_with_nan_is_drawn_as_such_and_not_left_out(samples, document):
    axes = axes_of(samples, document, samples.broken_forward())
    assert "NaN or Inf" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_drawing_leaves_the_global_settings_alone(samples, document):
    before = dict(mpl.rcParams)
    draw_plot("loss_curves", document(samples.sample_losses()))
    assert dict(mpl.rcParams) == before


def test_nothing_to_plot_is_said_and_not_drawn(samples, document, tmp_path):
    empty = document(samples.sample_forward()) | {"layers": [], "first_divergent": None}
    assert draw_plot("error_by_depth", empty) is None
    assert draw_plot("difference_histogram", empty) is None
    assert draw_plot("loss_curves", document(samples.sample_losses()) | {"points": {"count": 0}}) is None


@pytest.mark.parametrize(
    ("known", "new", "said"), [((), (), "Plot: "), (("SimHei",), (), "图："), ((), ("SimHei",), "图：")]
)
def test_labels_are_chinese_where_a_font_has_the_letters_else_english_with_one_note(
    samples, document, tmp_path, monkeypatch, known, new, said
):
    def font(name):
        return replace(next(one for one in fontManager.ttflist if one.name == "DejaVu Sans"), name=name)

    monkeypatch.setenv(VARIABLE, "zh")
    fonts = [font(name) for name in ("DejaVu Sans", *known)]
    monkeypatch.setattr(fontManager, "ttflist", fonts)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [*new])  # installed since the list was made
    monkeypatch.setattr(fontManager, "addfont", lambda path: fonts.append(font(path)))
    assert draw_plot("coverage", document(samples.sample_map())).alt.startswith(said)
    shown = open_run(samples.write_sample_run(tmp_path / "run", ("map",)))._repr_html_()
    assert shown.count("未安装中文字体") == (0 if known or new else 1)
    monkeypatch.setenv(VARIABLE, "en")
    assert font_note() == ""


def test_a_failing_plot_is_shown_as_a_failed_plot(samples, tmp_path, monkeypatch):
    def fail(document):
        raise RuntimeError("no colours left")

    run = open_run(samples.write_sample_run(tmp_path / "run"))
    monkeypatch.setitem(PLOTS, "error_by_depth", ("forward", fail))
    shown = run.plot("error_by_depth")._repr_html_()
    assert "could not be drawn (RuntimeError: no colours left)" in shown
    assert "No verdict depends on it" in shown


def test_the_histogram_reaches_to_the_limit_however_far_it_is(samples, document):
    forward = document(samples.sample_forward())
    forward["layers"][15]["limit"]["max_abs"] = 3e-13
    axes = PLOTS["difference_histogram"][1](forward).axes[0]
    left, right = axes.get_xlim()
    marked = [line.get_xdata()[0] for line in axes.lines]
    assert len(marked) == 2
    assert all(left < place < right for place in marked)
    assert math.isclose(marked[0], math.log10(3e-13))
