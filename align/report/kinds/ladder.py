"""A climb shown: what the failing rungs found, then every rung with its state, then what to do next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from align.core.verdicts import Outcome
from align.report.kind_parts.ladder_commands import next_steps
from align.report.kind_parts.ladder_culprits import culprit_lines, remedy_lines, rung_reason
from align.report.kind_parts.report_summary import TONES
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, verdict_block
from align.report.rendering.format_values import NONE
from align.report.thresholds import CULPRITS_SHOWN
from align.runs.ladder_result import RungResult
from align.words.catalogue import say, word

if TYPE_CHECKING:
    from collections.abc import Sequence


def ladder_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.ladder` document: of a rung that failed the first culprits, or with `show_all` every one."""
    rungs = [RungResult.read(one) for one in document["rungs"]]
    failed = [rung for rung in rungs if rung.state in ("failed", "could not compare")]
    blocks: list[Block] = [_failure(rung, document["run_folder"], show_all=show_all) for rung in failed]
    columns = (Column(say("ladder_table.rung")), Column(say("ladder_table.state")), Column(say("ladder_table.reason")))
    rows = tuple(
        Row(
            (rung.name, word("rung_state", rung.state), rung_reason(rung) or NONE),
            TONES[rung.state],
        )
        for rung in rungs
    )
    table = Table(say("ladder_table.title"), columns, rows)
    return [*blocks, table, verdict_block(document["verdict"]), _next(rungs, document)]


def _failure(rung: RungResult, folder: str, *, show_all: bool) -> Lines:
    title = say("ladder_table.failure", name=rung.name, state=word("rung_state", rung.state), reason=rung.reason)
    lines = culprit_lines(rung.culprits)
    shown = lines if show_all else lines[:CULPRITS_SHOWN]
    more = [say("ladder_table.more", count=len(lines) - len(shown))] if len(shown) < len(lines) else []
    text = next((path for path in rung.evidence if path.endswith(".txt")), "")
    whole = [say("ladder_table.whole", path=shlex.quote(f"{folder}/{text}"))] if text else []
    return Lines(title, (*shown, *more, *remedy_lines(rung), *whole), "bad")


def _next(rungs: Sequence[RungResult], document: dict[str, Any]) -> Lines:
    """What a reader pastes next: of a port that is aligned the report, then what could be compared too."""
    steps = next_steps(rungs, document)
    if document["verdict"]["outcome"] == Outcome.ALIGNED.value or not steps:
        steps = (say("ladder_table.report", folder=shlex.quote(document["run_folder"])), *steps)
    return Lines(say("ladder_table.next"), steps, "plain")
