"""Markdown as GitHub reads it: tables, code and details stay what they are, whatever stands in the results."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from align.report.judged_run import judged_run
from align.report.thresholds import MARKDOWN_CHARACTERS
from align.report.write_report import as_markdown
from align.runs.rung import Culprit


def tables(text):
    """The cells of each table, as text."""
    found, rows = [], None
    for token in MarkdownIt("gfm-like", {"linkify": False}).disable("linkify").parse(text):
        if token.type == "table_open":
            rows = []
            found.append(rows)
        elif token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and token.level >= 4 and rows:
            rows[-1].append("".join(child.content for child in token.children))
    return found


def test_verdict_rungs_culprits_with_line_and_change_and_folded_details(climbed):
    text = as_markdown(judged_run(climbed.path))
    assert text.startswith("## Port: NOT ALIGNED\n\nforward failed: 5 differ")
    ladder, weights, *rest = tables(text)
    assert [row[:2] for row in ladder[1:]] == [
        ["environment", "not run"],
        ["parameters", "✅ passed"],
        ["weights", "❌ COULD NOT COMPARE"],
        ["data", "not available"],
        ["forward", "❌ FAILED"],
        ["gradients", "blocked"],
        ["curve", "stale"],
    ]
    assert rest == []
    culprits = weights
    assert culprits[1][0] == "layers.{0…3}.norm (4)"
    assert culprits[1][2:] == ["port.py:7", "nn.LayerNorm(8, epsilon=1e-5)"]
    assert re.findall(r"<summary>(.*)</summary>", text) == ["forward", "name map", "loss curve"]
    assert "layer1.0.down_sample.0" in text.split("<details>")[1]
    assert text.count("<details>") == text.count("</details>") == 3


def test_what_stands_in_results_is_no_markup_and_calls_nobody(climbed):
    text = as_markdown(judged_run(climbed.path)).split("<details>")[0]
    rendered = MarkdownIt("gfm-like", {"linkify": False}).disable("linkify").render(text)
    assert "<b>" not in rendered
    assert "&lt;b&gt;bad &amp; worse" in rendered
    assert "\x1b" not in text
    assert "@somebody" not in text
    assert "<code>head|`er`</code>" in rendered
    assert text.encode("utf-8")


@pytest.mark.parametrize("most", [MARKDOWN_CHARACTERS, 9000, 5000])
def test_it_is_never_longer_than_a_comment_may_be_and_the_rungs_stay(climbed, most):
    run = judged_run(climbed.path)
    many = tuple(
        Culprit("<" * 400 + chr(97 + n) * 3, "&" * 400 + chr(97 + n), "l|" * 200, "`|" * 200) for n in range(26)
    )
    rungs = tuple(replace(one, culprits=many, state="failed", kind="forward") for one in run.rungs)
    text = as_markdown(replace(run, rungs=rungs), most)
    assert len(text) <= most
    assert len(tables(text)[0]) == 8
    assert text.count("<details>") == text.count("</details>")


def test_details_are_cut_at_a_line_and_say_so(climbed):
    whole = as_markdown(judged_run(climbed.path))
    text = as_markdown(judged_run(climbed.path), len(whole) // 2)
    assert len(text) <= len(whole) // 2
    told = re.findall(r"\.\.\. and (\d+) more lines", text)
    assert told
    assert whole.count("\n") - text.count("\n") == sum(map(int, told)) - len(told)
