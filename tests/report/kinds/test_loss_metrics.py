"""Of very many other metrics those that differ are shown first, and the rest is counted."""

from __future__ import annotations

from dataclasses import replace

from align.curves.loss_log import OtherMetric
from align.report.blocks import Lines, Table
from align.report.kinds.curves import loss_blocks
from align.report.thresholds import METRICS_SHOWN
from align.runs.run_folder import as_document
from tests.report.sample_runs import sample_losses


def _shown(count: int) -> tuple[list[str], list[str]]:
    others = tuple(OtherMetric(f"m{n}", 5, 5 - (n == count - 1), None, 0.0, None) for n in range(count))
    blocks = loss_blocks(as_document(replace(sample_losses(), others=others), {}, hashed=False))
    (table,) = (block for block in blocks if isinstance(block, Table) and block.title.startswith("Other metrics"))
    said = [line for block in blocks if isinstance(block, Lines) for line in block.lines if "more metrics" in line]
    return [row.cells[0] for row in table.rows], said


def test_a_few_metrics_keep_their_order() -> None:
    assert _shown(3) == (["m0", "m1", "m2"], [])


def test_of_very_many_those_that_differ_stand_first() -> None:
    names, said = _shown(METRICS_SHOWN + 50)
    assert names == [f"m{METRICS_SHOWN + 49}", *(f"m{n}" for n in range(METRICS_SHOWN - 1))]
    assert said == ["and 50 more metrics: --json lists them"]
