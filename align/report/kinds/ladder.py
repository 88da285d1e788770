"""A climb shown: what the failing rungs found, then every rung with its state, then what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Outcome
from align.report.kind_parts.ladder_commands import next_steps
from align.report.kind_parts.ladder_culprits import FAULTY, failure_lines
from align.report.kind_parts.report_summary import TONES
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, verdict_block
from align.report.rendering.format_values import NONE
from align.runs.ladder_result import RungResult
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence


def ladder_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.ladder` document: of a rung that failed the first culprits, or with `show_all` every one."""
    rungs = [RungResult.read(one) for one in document["rungs"]]
    failed = [rung for rung in rungs if rung.state in FAULTY]
    blocks: list[Block] = [failure_lines(rung, document["run_folder"], show_all=show_all) for rung in failed]
    columns = (Column(say("ladder_table.rung")), Column(say("ladder_table.state")), Column(say("ladder_table.reason")))
    rows = tuple(
        Row(
            (rung.name, word("rung_state", rung.state), rung.reason or NONE),
            TONES[rung.state],
        )
        for rung in rungs
    )
    table = Table(say("ladder_table.title"), columns, rows)
    return [*blocks, table, verdict_block(document["verdict"]), _next(rungs, document)]


def _next(rungs: Sequence[RungResult], document: dict[str, Any]) -> Lines:
    """What a reader pastes next: of a port that is aligned the report, then what could be compared too."""
    steps = next_steps(rungs, document)
    if document["verdict"]["outcome"] == Outcome.ALIGNED.value or not steps:
        steps = (say("ladder_table.report", folder=shlex.quote(document["run_folder"])), *steps)
    return Lines(say("ladder_table.next"), steps, "plain", commands=True)
