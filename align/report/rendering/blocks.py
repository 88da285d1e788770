"""What a report shows, before it is drawn: tables, lists of facts and lines, all of text.

One builder a kind of result makes blocks; the terminal and the notebook draw the same blocks, so they cannot
disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from align.report.rendering.format_values import format_facts, format_number
from align.words.catalogue import say, word

Tone = Literal["plain", "good", "bad", "open", "quiet"]
TONES: dict[str, Tone] = {
    "aligned": "good",
    "not aligned": "bad",
    "could not compare": "open",
    "within the prediction": "open",
    "not comparable": "open",
    "accepted": "open",
    "not run": "quiet",
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Paths are shortened to the room that the others leave, words stand in it on several lines.

    A `wide` column is shown in the notebook only.
    """

    header: str
    kind: Literal["text", "number", "path", "words"] = "text"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One row; as many cells as the table has columns."""

    cells: tuple[str, ...]
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns. What is `folded` shows its title only in the notebook, until it is opened."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    folded: bool = False

    @property
    def used_columns(self) -> list[int]:
        """Indices of the columns that hold anything; all of them if there are no rows."""
        return [i for i in range(len(self.columns)) if not self.rows or any(row.cells[i] for row in self.rows)]


@dataclass(frozen=True, slots=True)
class Facts:
    """Labelled facts about one thing, drawn as a panel."""

    title: str
    facts: tuple[tuple[str, str], ...]
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Lines:
    """A list of sentences under a title ("" for none).

    What stands behind a line break in one of them is to be pasted, and is never broken; all of those that have none
    where they are `commands`.
    """

    title: str
    lines: tuple[str, ...]
    tone: Tone = "plain"
    commands: bool = False


Block = Table | Facts | Lines


def verdict_block(verdict: dict[str, object], sides: tuple[str, str] = ("reference", "candidate")) -> Lines:
    """Return the closing lines of a result: outcome, reason, and how much of the two sides it rests on."""
    outcome = str(verdict["outcome"])
    headline = say("verdict.line", outcome=word("outcome", outcome), reason=verdict["reason"])
    caveats = verdict.get("caveats")
    but = [say("verdict.caveats", caveats="; ".join(caveats))] if isinstance(caveats, list) and caveats else []
    return Lines("", (headline, *but, coverage_line(verdict["coverage"], sides)), TONES.get(outcome, "plain"))


def findings_blocks(findings: list[dict[str, Any]]) -> list[Block]:
    """Return a line for each finding of a result, or nothing."""
    lines = []
    for finding in findings:
        texts = {key: finding[key] for key in ("subject", "message")}
        line = say("forward.finding", severity=word("severity", finding["severity"]), **texts)
        lines.append(f"{line} ({facts})" if (facts := format_facts(finding["facts"])) else line)
    return [Lines(say("forward.findings"), tuple(lines), "open")] if lines else []


def coverage_line(coverage: object, sides: tuple[str, str]) -> str:
    """Say how much was compared, left out and unmatched."""
    first, second = (word("word", side) for side in sides)
    facts = coverage if isinstance(coverage, dict) else {}
    shown = {key: format_number(value) if isinstance(value, int) else value for key, value in facts.items()}
    return say("verdict.coverage", first=first, second=second, **shown)
