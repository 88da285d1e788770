"""What stands in the page, read as text: cards, plots, tables, and nothing that loads."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from html import unescape
from pathlib import Path

from align.core.atomic_files import sha256_of
from align.forward.forward_result import AcceptedDeviation, Allowances
from align.report.blocks import Column, Row, Table
from align.report.draw_plot import PLOTS
from align.report.page_blocks import PLOT_MARKS, ROWS_IN_PAGE, block_html, draw_page_plot, shared_marks
from align.report.page_html import page_html
from align.runs.baseline import keep_last_run
from align.runs.project_file import Project
from align.runs.run_folder import RunFolder
from align.runs.rung import Culprit, RungResult

climbed = runpy.run_path(str(Path(__file__).with_name("conftest.py")))["climb"]


def sections_of(page):
    return dict(re.findall(r'<section id="en-rung-\d+-(\w+)"(.*?)</section>(?=\n?<section)', page, re.DOTALL))


def cards_of(page):
    """Each fault's card: its text, and the rungs that it leads to."""
    cards = re.findall(r'<article class="card" id="en-fault-\d+">(.*?)</article>', page, re.DOTALL)
    plain = [" ".join(unescape(re.sub(r"<[^>]+>", " ", card)).split()) for card in cards]
    return [(text, re.findall(r'href="#en-rung-\d+-(\w+)"', card)) for text, card in zip(plain, cards, strict=True)]


def picture_of(name, document):
    plot = draw_page_plot(name, document)
    return plot.figure() + shared_marks([plot])


def test_a_fault_has_a_card_with_both_settings_the_cause_the_line_and_its_reproducer(faulty_page):
    (text, seen_in), (around, _), *_others = cards_of(faulty_page)
    assert seen_in == ["forward"]
    for said in ("padding=1", 'pad_mode="same"', "confirmed (tried)", "resnet.py:214"):
        assert said in text
    layer = "resnet.encoder.stages.0.layers.0.shortcut.convolution"
    command = f"align repro reference.py:build candidate.py:build --layer {layer} --map map.toml --inputs inputs.npz"
    assert f"{command} --out repro" in text
    assert "--layer resnet.encoder.stages.1.layers.5.layer.2 " in around, "the module around code at fault"


def head_of(page):
    """The facts of the head by their labels, in English, and what is said of the run before."""
    head = re.search(r'<section class="rests".*?</section>(?=<div id="en-rungs")', page, re.DOTALL)[0]
    facts = {unescape(name): unescape(text) for name, text in re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", head)}
    return facts, " ".join(unescape(re.sub(r"<[^>]+>", " ", head.partition('class="since">')[2])).split())


def test_the_head_says_what_the_run_rests_on_and_what_is_new_since_the_one_before(samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map", "forward")))
    ladder = climbed(run)
    facts, since = head_of(page_html(run))
    mark = sha256_of(run.path / "resnet50.pth")[:12]
    assert facts["weights"] == f"resnet50.pth {mark}"
    assert facts["compared"].startswith("parameters: 266 tensors; forward: 120 layers")
    assert {"date", "versions", "devices"} <= facts.keys()
    assert (facts.keys() & {"commit", "accepted deviations"}, since) == (set(), "")
    project = Project(allowances=Allowances(accepted=(AcceptedDeviation("head", "as <b> published"),)))
    keep_last_run(ladder, run, project)
    rungs = [replace(one, culprits=one.culprits[one.name == "forward" :]) for one in ladder.rungs]
    keep_last_run(replace(ladder, rungs=tuple(rungs)), run, project)
    page = page_html(run)
    facts, since = head_of(page)
    assert facts["accepted deviations"] == "head: as <b> published"
    assert 'class="new"' not in page
    assert re.match(
        r"Since the run of [-\d]+ [:\d]+ UTC: 0 new, 1 mended, [1-9] still there. Mended: 1 forward: ", since
    )
    keep_last_run(ladder, run, project)
    first, *others = re.findall('<article class="card" id="en-.*?</article>', page_html(run), re.DOTALL)
    assert ('<span class="new">new</span>' in first, any('class="new"' in card for card in others)) == (True, False)


def test_each_rung_of_a_training_step_has_its_own_faults_and_plot(faulty_page):
    sections = sections_of(faulty_page)
    seen_in = dict(cards_of(faulty_page))
    assert [rungs for text, rungs in seen_in.items() if "the way is cut" in text] == [["gradients"]]
    assert [rungs for text, rungs in seen_in.items() if "another learning rate" in text] == [["optimizer"]]
    fault = next(iter(re.findall(r'href="#(en-fault-\d+)"', sections["optimizer"])))
    assert f'<article class="card" id="{fault}">' in faulty_page
    assert "Plot: Gradient norms" in sections["gradients"]
    assert "Plot: Updates by depth" in sections["optimizer"]
    assert re.search(r'href="#en-rung-\d+-gradients"', sections["optimizer"])


def test_what_several_rungs_see_is_one_card_and_their_sections_lead_to_it(samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map", "forward", "step")))
    forward, step = samples.faulty_forward(), samples.sample_step()
    known, unlike = forward.culprits[0], step.culprits[1]
    names = {name: getattr(known, name) for name in ("reference", "candidate", "line", "cause", "change")}
    same = replace(step.culprits[0], **names, kind="forward", part="layer", also=("more.of.it",))
    elsewhere = replace(same, candidate="other.layer", also=())
    run.write(replace(step, culprits=(same, elsewhere, unlike)), {})
    climbed(run, loss=RungResult("", "failed", "the loss differs", kind="step"))
    cards = cards_of(page_html(run))
    assert [seen_in for _, seen_in in cards] == [
        ["forward", "loss", "gradients"], ["forward"], ["loss", "gradients"], ["optimizer"]
    ]  # fmt: skip
    assert "seen in forward , loss , gradients" in cards[0][0]
    assert "more.of.it" in cards[0][0]
    assert 'pad_mode="same"' in cards[0][0], "the forward comparison knows most of it"
    sections = sections_of(page_html(run))
    assert re.findall(r'href="#(en-fault-\d)"', sections["loss"]) == ["en-fault-1", "en-fault-3"]
    assert re.search(r'<details class="fold"><summary><h3>3 places are wrong', sections["loss"])


def test_what_one_change_of_one_line_mends_is_one_card(samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map", "step")))
    step = samples.sample_step()
    rate = next(one for one in step.culprits if one.kind == "update")
    causes = (("weight-decay", ""), ("decay-coupled", "AdamW(...)"))
    both = tuple(
        replace(rate, cause=cause, change=change, line="port.py:47", facts={cause: "1 vs 2"})
        for cause, change in causes
    )
    code = next(one for one in step.culprits if one.kind != "update")
    run.write(replace(step, culprits=(code, *both)), {})
    loss = RungResult("", "failed", "the loss differs", kind="step")
    climbed(run, loss=loss)
    (text,) = [text for text, seen_in in cards_of(page_html(run)) if "optimizer" in seen_in]
    for said in (
        "another weight decay; the decay goes through the moments",
        "AdamW(...)",
        "weight-decay=1, decay-coupled=1",
    ):
        assert said in text


def test_a_cause_that_forward_knows_stands_on_the_card_of_the_gradients(samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("map", "step")))
    step = samples.sample_step()
    code = replace(next(one for one in step.culprits if one.kind != "update"), cause="", change="", sureness="unknown")
    run.write(replace(step, culprits=(code,)), {})
    known = Culprit(str(code.candidate or code.part), "batch-norm-epsilon", code.line, "nn.BatchNorm2d(eps=1e-3)")
    climbed(run, gradients=RungResult("", "failed", "1 place", kind="step", culprits=(known,)))
    (text,) = [text for text, seen_in in cards_of(page_html(run)) if "gradients" in seen_in]
    assert "known from a rung below: batch-norm-epsilon" in text
    assert "nn.BatchNorm2d(eps=1e-3)" in text


def test_a_clean_report_is_short_and_every_section_is_closed(clean):
    page = page_html(clean)
    assert "<details open" not in page
    assert 'class="card"' not in page
    assert 'class="faults"' not in page
    shown = re.sub(r'<div class="body">.*?</details></section>', "", page, flags=re.DOTALL)
    english = re.search(
        r'<div class="version" lang="en">(.*)</footer>', shown.partition('lang="zh"><main>')[0], re.DOTALL
    )
    text = unescape(re.sub(r"<[^>]+>", " ", english[1])).split()
    assert len(text) < 180
    assert "aligned" in text


def test_the_page_loads_nothing_and_calls_no_script_from_an_attribute(faulty_page):
    assert not re.findall(r"<(?:link|iframe|img)\b|\bsrc=|url\((?!#)|@import", faulty_page)
    assert not re.findall(r"<[a-z]+[^>]*\son[a-z]+=", faulty_page)
    assert "default-src 'none'" in faulty_page
    ids = re.findall(r'\sid="([^"]+)"', faulty_page)
    assert len(ids) == len(set(ids))


def test_the_page_without_curves_is_small(faulty_page):
    assert len(faulty_page.encode()) < 800_000


def test_names_with_markup_are_shown_as_they_are(samples, tmp_path):
    run = RunFolder(samples.write_sample_run(tmp_path / "run", ("forward",)))
    document = json.loads(run.file("forward").read_text(encoding="utf-8"))
    for place in (15, 60):
        document["layers"][place]["reference"] = "模型.$0.</script><script>alert(1)</script>$"
    run.file("forward").write_text(json.dumps(document), encoding="utf-8")
    page = page_html(run)
    assert "<script>alert" not in page
    assert "\\u003cscript>alert(1)" in page
    assert "&lt;script&gt;alert(1)" in page


def test_a_plot_takes_the_colours_of_the_page_and_keeps_its_texts(samples, document):
    for name, (kind, _) in PLOTS.items():
        sample = samples.sample_losses if kind == "loss" else getattr(samples, f"sample_{kind}")
        picture = picture_of(name, document(sample()))
        assert "var(--ink)" in picture, name
        assert re.findall(r"#[0-9a-fA-F]{6}\b", picture) == [], name
        assert "<text" in picture
        assert "<metadata" not in picture
        assert picture.count('href="data:image/png;base64,') == (3 if name == "samples" else 0)


def test_a_plot_that_cannot_be_drawn_says_so_in_its_place(samples, document):
    forward = document(samples.sample_forward())
    forward["layers"][15]["measurement"]["decades"] = ["many"]
    assert "could not be drawn" in picture_of("difference_histogram", forward)
    assert "Nothing to plot" in picture_of("error_by_depth", forward | {"layers": [], "first_divergent": None})


def test_of_very_many_layers_the_worst_are_drawn_and_what_is_at_fault(many_layers):
    picture = picture_of("error_by_depth", many_layers.read("forward"))
    assert picture.count("<use") < 3 * PLOT_MARKS
    assert "at fault, 1: model.l.50.block.0.convolution" in picture


def test_of_very_many_steps_the_worst_are_drawn_and_where_the_curves_part(samples, document):
    loss = document(samples.sample_losses())
    for columns in (loss["points"], loss["reference"], loss["candidate"]):
        longer = {key: own * 100 for key, own in columns.items() if isinstance(own, list) and len(own) == 60}
        columns.update(longer | {key: list(range(1, 6001)) for key in ("step", "steps") if key in longer})
    loss["points"]["count"] = 6000
    picture = picture_of("loss_curves", loss)
    assert picture.count("<use") < 2 * PLOT_MARKS
    assert len(picture) < 600_000
    assert "parts at step 22" in picture


def test_rows_behind_the_first_stand_as_data_and_those_not_compared_are_folded():
    rows = tuple(Row((str(place), "not comparable" if place > 60 else "aligned")) for place in range(70))
    shown = block_html(Table("Rows", (Column("#", "number"), Column("outcome")), rows))
    assert shown.count("<tr class=") == ROWS_IN_PAGE
    behind = json.loads(re.search(r"<script[^>]*>(.*?)</script>", shown).group(1))
    assert len(behind) == 70 - ROWS_IN_PAGE
    assert sum(open_ for _, open_, *_ in behind) == 9
    assert "Show 9 that could not be compared" in shown
