"""Results as text in the terminal: the kind of a document, which its schema names, chooses how it is shown.

The blocks of a kind are a function `KIND_blocks` in a module of `kinds/`; only that one is imported.
"""

from __future__ import annotations

import io
import linecache
import re
import sys
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.about import __version__
from align.core.documents import in_words, to_json_data
from align.core.protocols import collector_paused
from align.errors import RunFolderError
from align.report.blocks import Block, Column, Facts, Lines, Row, Table, Tone, shorten_path, text_width, verdict_block
from align.report.thresholds import (
    LABEL_COLUMN_WIDTH,
    LINES_AT_ONCE,
    LONG_TABLE,
    LONGEST_CELL,
    LONGEST_PASTED,
    NARROWEST_PATH,
    ONE_LINE_WIDTH,
    PAGE_WIDTH,
)
from align.runs.run_folder import schema_of
from align.words.catalogue import LONGEST_SHOWN_LINE, breaking_between_characters, harmless, say, speaking, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console, RenderableType
    from rich.text import Text

    from align.core.verdicts import Verdict
    from align.rules.codes import Explanation
    from align.runs.baseline import BaselineComparison


# The kinds of documents by the module of `kinds/` that shows them.
KINDS = {
    "advice": "advise crash doctor hyperparameters lint repro scan",
    "checkpoints": "convert diff inspect",
    "culprits": "fix",
    "curves": "iterations log loss scale",
    "forward": "forward power",
    "formula": "formula",
    "ladder": "against baseline bisect card emulate ladder verify",
    "names": "check map trace",
    "outputs": "batch data generate validate",
    "steps": "params step steps updates",
    "memory": "memory followed",
    "tokens": "tokens",
    "training": "determinism initial nonfinite precision ranks samples training watch watched",
}
MODULES = {kind: f"align.report.kinds.{module}" for module, kinds in KINDS.items() for kind in kinds.split()}


@collector_paused()
def print_result(document: dict[str, Any], *, show_all: bool = False, only_first: bool = False) -> None:
    """Print the document of a result; `show_all` leaves nothing out, `only_first` all but what matters most.

    Raises RunFolderError for an unknown schema.
    """
    with speaking() as language:
        blocks = result_blocks(in_words(document, language), show_all=show_all)
        print_blocks(blocks[:1] if only_first else blocks)


def print_lines(document: dict[str, Any]) -> None:
    """Print what a result finds at fault, a line for each cause, as `file.py:12:5: where: cause; write ...`.

    So editors and problem matchers read it; what has no line begins with where it is. The verdict stands last.
    """
    from align.report.judged_run import culprits_of
    from align.report.kinds.ladder import folded_culprits

    with speaking() as language:
        shown = in_words(document, language)
        for one in folded_culprits(culprits_of(_kind(document), shown)):
            line = with_columns(one.line)
            said = say("ladder_table.culprit", cause=one.cause, line="", change=one.change)
            print(harmless(f"{f'{line}: ' if line else ''}{one.place}{said}", LONGEST_PASTED))
        print(harmless(verdict_block(shown["verdict"]).lines[0], LONGEST_PASTED))


def result_blocks(document: dict[str, Any], *, show_all: bool = False) -> list[Block]:
    """Return a result as blocks; raises RunFolderError for an unknown schema.

    So it does for a document of another version, which is held to no list of fields, that lacks one which is shown.
    """
    try:
        return _blocks(document, show_all)
    except (KeyError, TypeError) as error:
        kind = _kind(document)
        if (document.get("mindalign"), document.get("schema")) == (__version__, schema_of(kind)):
            raise  # it was held to its schema when it was read
        facts = {"kind": kind, "error": repr(error)}
        raise RunFolderError.of("report_usage.lacks_fields", **facts) from error


def _blocks(document: dict[str, Any], show_all: bool) -> list[Block]:
    kind = _kind(document)
    if kind == "report":
        from align.report.kinds.ladder import summary_blocks

        return summary_blocks(document)
    if kind == "switches":
        from align.report.kinds.ladder import switches_blocks

        return switches_blocks(document)
    if kind in MODULES:
        blocks: list[Block] = getattr(import_module(MODULES[kind]), f"{kind}_blocks")(document, show_all=show_all)
        return blocks
    raise RunFolderError.of("report_usage.unknown_schema", schema=repr(document.get("schema")))


def explained_name(document: dict[str, Any], name: str) -> list[str]:
    """What a `mindalign.map` document knows of one parameter; raises UsageError for no such name."""
    from align.report.kinds.names import explained_pairs

    with speaking() as language:
        return explained_pairs(in_words(document, language), name)


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict alone: outcome, reason, what it does not rest on, and what it rests on."""
    with speaking() as language:
        print_blocks([verdict_block(in_words(to_json_data(verdict), language))])


def print_since(difference: BaselineComparison) -> None:
    """Print in a line what is new and what is mended since the run before of a folder."""
    with speaking():
        from align.report.kinds.ladder import since_line

        print_blocks([Lines("", (since_line(to_json_data(difference)),))])


def print_plugins(rows: Sequence[dict[str, Any]]) -> None:
    """Print a row for each plugin: its kind, name, summary and state; or of each check, what it showed."""
    with speaking() as language:
        is_check = "reasons" in rows[0]
        keys = ("room", "name", "origin", "state") if is_check else ("room", "name", "summary", "state")
        columns = tuple(Column(say(f"plugins.{key}")) for key in keys)
        shown = []
        for row in rows:
            state = ": ".join([row["state"], "; ".join(row["reasons"])] if row.get("reasons") else [row["state"]])
            cells = (
                (row["kind"], row["name"], row["origin"])
                if is_check
                else (row["room"], row["name"], in_words(row["summary"], language))
            )
            tone: Tone = (
                "good" if row["state"] in ("ready", "passed") else "bad" if row["state"] == "failed" else "open"
            )
            shown.append(Row((*cells, _plugin_state(state)), tone))
        print_blocks([Table(say("plugins.check" if is_check else "plugins.title"), columns, tuple(shown))])


def print_explanations(explanations: Sequence[Explanation], *, listed: bool) -> None:
    """Print a row for each code, or a panel for each meaning of one code, in the language that is spoken."""
    if listed:
        rows = [Row((meaning.code, word("code_kind", meaning.kind), meaning.meaning)) for meaning in explanations]
        columns = tuple(Column(say(f"code_table.{key}")) for key in ("code", "kind", "meaning"))
        print_blocks([Table(say("code_table.title"), columns, tuple(rows))])
        return
    for meaning in explanations:
        facts = [
            (say("code_table.kind"), word("code_kind", meaning.kind)),
            (say("code_table.meaning"), meaning.meaning),
        ]
        facts += [(say("code_table.severity"), word("severity", meaning.severity))] if meaning.severity else []
        facts += [(name, argument) for name, argument in meaning.forms]
        facts += [(say("code_table.write", place=place), text) for place, text in meaning.change]
        facts += [(say("code_table.check"), meaning.check)] if meaning.check else []
        facts += [(say("code_table.source"), meaning.source)] if meaning.source else []
        print_blocks([Facts(meaning.code, (*facts, (say("code_table.page"), f"docs/{meaning.page}.md")))])


def _plugin_state(state: str) -> str:
    """`ready`, or `missing` with what installs it behind a colon."""
    name, _, hint = state.partition(": ")
    known = word("plugin_state", name)
    return say("word.labelled", label=known, text=hint) if hint else known


def _kind(document: dict[str, Any]) -> str:
    return str(document.get("schema", "")).removeprefix("mindalign.").partition("/")[0]


# Blocks drawn in a terminal; elsewhere (a pipe, a file, a notebook) the page is 100 columns wide.
#
# Lines to paste are as long as they are: a shell, or a file, would take a break in them for their end.

# Names may hold brackets and colons, which are no markup; in a notebook rich would print by itself.
PLAIN: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "force_jupyter": False}
STYLES = {"plain": "", "good": "green", "bad": "red", "open": "yellow", "quiet": "dim"}


def print_blocks(blocks: Iterable[Block]) -> None:
    """Print blocks on standard output."""
    from rich.console import Console

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    draw(Console(width=None if is_terminal else PAGE_WIDTH, **PLAIN), blocks)


def blocks_as_text(blocks: Iterable[Block], width: int = PAGE_WIDTH) -> str:
    """Return blocks as plain text of at most `width` columns, but for lines to paste."""
    from rich.console import Console

    stream = io.StringIO()
    draw(Console(file=stream, width=width, color_system=None, **PLAIN), blocks)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def draw(console: Console, blocks: Iterable[Block]) -> None:
    """Draw blocks one below the other, an empty line between them; whatever files hold, no text steers the terminal.

    A terminal is shown places with their column, `file.py:12:5`, which it and editors open by a click.
    """
    change = with_columns if console.is_terminal else str
    with breaking_between_characters():
        for index, block in enumerate(blocks):
            if index:
                console.print()
            for part in _parts(_changed_texts(_harmless(block), change), console.width):
                if isinstance(part, PlainRows):
                    console.out(part.text, style=part.style, highlight=False)
                else:
                    console.print(part, soft_wrap=isinstance(part, Pasted))


def _harmless(block: Block) -> Block:
    if isinstance(block, Table):
        columns = tuple(replace(column, header=harmless(column.header)) for column in block.columns)
        rows = tuple(
            replace(row, cells=tuple(harmless(cell, LONGEST_CELL) for cell in row.cells)) for row in block.rows
        )
        return replace(block, title=harmless(block.title), columns=columns, rows=rows, note=harmless(block.note))
    if isinstance(block, Facts):
        facts = tuple((harmless(label), harmless(fact)) for label, fact in block.facts)
        return replace(block, title=harmless(block.title), facts=facts)
    # What stands behind a line break is to be pasted.
    longest = (LONGEST_PASTED if block.commands or "\n" in line else LONGEST_SHOWN_LINE for line in block.lines)
    return replace(block, title=harmless(block.title), lines=tuple(map(harmless, block.lines, longest)))


PLACE = re.compile(r"(?<![\w./-])(?P<file>[\w./-]+\.py):(?P<line>[1-9]\d*)\b(?!:\d)")


def with_columns(text: str) -> str:
    """Add to each line of a Python file that is named in a text the column where its statement begins, from 1.

    Files that are not found from the current folder, and lines that they lack, stay as they are.
    """
    if ".py:" not in text:
        return text
    return PLACE.sub(lambda match: match[0] + _column(match["file"], int(match["line"])), text)


def _column(file: str, line: int) -> str:
    code = linecache.getline(str(Path(file).absolute()), line)
    return f":{len(code) - len(code.lstrip()) + 1}" if code.strip() else ""


def _changed_texts(block: Block, change: Callable[[str], str]) -> Block:
    if isinstance(block, Table):
        rows = tuple(replace(row, cells=tuple(map(change, row.cells))) for row in block.rows)
        return replace(block, rows=rows, note=change(block.note))
    if isinstance(block, Facts):
        return replace(block, facts=tuple((label, change(fact)) for label, fact in block.facts))
    return replace(block, lines=tuple(map(change, block.lines)))


def _parts(block: Block, width: int) -> list[RenderableType]:
    if isinstance(block, Table):
        return _terminal_table(block, width)
    return [_terminal_facts(block, width)] if isinstance(block, Facts) else _terminal_lines(block)


def _terminal_table(block: Table, width: int) -> list[RenderableType]:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = [index for index in block.used_columns if not block.columns[index].wide]
    columns = [block.columns[index] for index in shown]
    rows = [(row, [row.cells[index] for index in shown]) for row in block.rows]
    room = _path_room(columns, [cells for _, cells in rows], width)
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for column, limit in zip(columns, room, strict=True):
        table.add_column(Text(column.header), max_width=limit, **_alignment(column))
    cuts = [limit if column.kind == "path" else None for column, limit in zip(columns, room, strict=True)]
    drawn, plain = rows, []
    if len(rows) > LONG_TABLE and (widths := _widths(columns, rows, cuts, width)):
        drawn, plain = rows[:1], _plain_rows(columns, rows[1:], cuts, widths)
        for drawn_column, one in zip(table.columns, widths, strict=True):
            drawn_column.min_width = one
    for row, cells in drawn:
        table.add_row(*_terminal_row(row, cells, cuts), style=STYLES[row.tone])
    title: list[RenderableType] = [Text(block.title, style="bold")] if block.title else []
    note: list[RenderableType] = [Text(block.note, style="dim")] if block.note else []
    return [*title, table, *plain, *note]


def _widths(
    columns: list[Column], rows: list[tuple[Row, list[str]]], cuts: list[int | None], width: int
) -> list[int] | None:
    """The widths of the columns if every row fits a line."""
    shown = [[*_cut_cells(cells, cuts)] for _, cells in rows]
    heads = [text_width(column.header) for column in columns]
    widths = [max(head, *map(text_width, column)) for head, column in zip(heads, zip(*shown, strict=True), strict=True)]
    return widths if sum(widths) + 2 * len(widths) - 1 <= width else None


def _plain_rows(
    columns: list[Column], rows: list[tuple[Row, list[str]]], cuts: list[int | None], widths: list[int]
) -> list[RenderableType]:
    """Rows as the table draws them, a thousand times as fast; those of one tone that follow each other together."""
    signs = [">" if column.kind == "number" else "<" for column in columns]
    line = "  ".join(f"{{:{sign}{one}}}" for sign, one in zip(signs, widths, strict=True))

    def drawn(cells: list[str]) -> str:
        shown = [*_cut_cells(cells, cuts)]
        if all(map(str.isascii, shown)):
            return line.format(*shown)
        room = (one - text_width(cell) + len(cell) for one, cell in zip(widths, shown, strict=True))
        return "  ".join(map(format, shown, map("{}{}".format, signs, room)))

    alike = (list(own) for _, own in groupby(rows, key=lambda row: row[0].tone))
    # The console takes a line at a time off the front of a text.
    parts = (own[start : start + LINES_AT_ONCE] for own in alike for start in range(0, len(own), LINES_AT_ONCE))
    return [PlainRows("\n".join(drawn(cells) for _, cells in part), STYLES[part[0][0].tone]) for part in parts]


def _cut_cells(cells: list[str], cuts: list[int | None]) -> Iterator[str]:
    return (cell if cut is None else shorten_path(cell, cut) for cell, cut in zip(cells, cuts, strict=True))


def _alignment(column: Column) -> dict[str, Any]:
    return {"justify": "right", "no_wrap": True} if column.kind == "number" else {"overflow": "fold"}


def _terminal_row(row: Row, cells: list[str], room: list[int | None]) -> list[RenderableType]:
    from rich.text import Text

    return [
        Text(cell if limit is None else shorten_path(cell, limit), style=STYLES[row.tone])
        for cell, limit in zip(cells, room, strict=True)
    ]


def _path_room(columns: list[Column], rows: list[list[str]], width: int) -> list[int | None]:
    """Share the room that the other columns leave among paths and words; short ones give theirs to long ones."""
    natural = [max(map(text_width, [column.header, *cells])) for column, *cells in zip(columns, *rows, strict=True)]
    elastic = [column.kind in ("path", "words") for column in columns]
    left = width + 1 - 2 * len(columns) - sum(n for n, shared in zip(natural, elastic, strict=True) if not shared)
    room: list[int | None] = [None] * len(columns)
    paths = sorted((i for i, shared in enumerate(elastic) if shared), key=natural.__getitem__)
    for done, index in enumerate(paths):
        granted = max(NARROWEST_PATH, min(natural[index], left // (len(paths) - done)))
        room[index] = granted
        left -= granted
    return room


def _terminal_facts(block: Facts, width: int) -> RenderableType:
    from rich.panel import Panel
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(max_width=LABEL_COLUMN_WIDTH)
    grid.add_column(overflow="fold")
    for label, fact in block.facts:
        grid.add_row(Text(label, style="dim"), Text(fact))
    return Panel(grid, title=Text(block.title), title_align="left", border_style=STYLES[block.tone], width=width)


def _terminal_lines(block: Lines) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    title: list[RenderableType] = [Text(block.title, style="bold")] if block.title else []
    indent, style = 2 if block.title else 0, STYLES[block.tone]
    lines: list[RenderableType] = []
    for line in block.lines:
        words, *pasted = line.split("\n")
        if block.commands and not pasted:
            lines.append(Pasted(" " * indent + words, style))
            continue
        lines.append(Padding(Text(words, style=style), (0, 0, 0, indent), expand=False))
        lines += [Pasted(" " * (indent + 2) + one, style) for one in pasted]
    return [*title, *lines]


@dataclass(frozen=True, slots=True)
class Pasted:
    """A line that is printed whole, however long it is."""

    text: str
    style: str

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(self.text, style=self.style)


class PlainRows(Pasted):
    """Lines of a table that are drawn already."""

    __slots__ = ()


# Blocks drawn as HTML for the notebook; every text is escaped, every outcome is a word and not only a colour.


@dataclass(frozen=True, slots=True)
class Shown:
    """Blocks as a notebook shows them: HTML where it can, elsewhere plain text of `brief` (or of all blocks).

    `head` goes before the HTML.
    """

    blocks: tuple[Block, ...]
    brief: tuple[Block, ...] = ()
    head: str = ""

    def _repr_html_(self) -> str:
        return self.head + blocks_as_html(self.blocks)

    def __repr__(self) -> str:
        return blocks_as_text(self.brief or self.blocks).rstrip("\n")


def blocks_as_html(blocks: tuple[Block, ...]) -> str:
    """Return blocks as one `div` of class `ma`."""
    return '<div class="ma">' + "\n".join(_block(block) for block in blocks) + "</div>"


def _block(block: Block) -> str:
    if isinstance(block, Table):
        return _html_table(block)
    return _html_facts(block) if isinstance(block, Facts) else _html_lines(block)


def _html_table(block: Table) -> str:
    columns = [(index, block.columns[index]) for index in block.used_columns]
    head = "".join(f'<th class="ma-{column.kind}">{escape(column.header)}</th>' for _, column in columns)
    body = "".join(_html_row(row, columns) for row in block.rows)
    note = f'<p class="ma-note">{escape(block.note)}</p>' if block.note else ""
    table = f'<div class="ma-scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    if block.folded:
        return f'<details class="ma-fold"><summary>{escape(block.title)}</summary>{table}{note}</details>'
    return _title(block.title) + table + note


def _html_row(row: Row, columns: list[tuple[int, Column]]) -> str:
    cells = "".join(_cell(row.cells[index], column.kind) for index, column in columns)
    return f'<tr class="ma-{row.tone}">{cells}</tr>'


def _cell(text: str, kind: str) -> str:
    short = " ma-short" if len(text) <= ONE_LINE_WIDTH else ""
    return f'<td class="ma-{kind}{short}">{escape(text)}</td>'


def _html_facts(block: Facts) -> str:
    facts = "".join(f"<dt>{escape(label)}</dt><dd>{escape(fact)}</dd>" for label, fact in block.facts)
    return f'<section class="ma-panel ma-{block.tone}"><h4>{escape(block.title)}</h4><dl>{facts}</dl></section>'


def _html_lines(block: Lines) -> str:
    if not block.title:
        return "".join(f'<p class="ma-line ma-{block.tone}">{with_pasted(line)}</p>' for line in block.lines)
    lines = "".join(f"<li>{with_pasted(line)}</li>" for line in block.lines)
    return f'{_title(block.title)}<ul class="ma-{block.tone}">{lines}</ul>'


def with_pasted(line: str) -> str:
    """A sentence, and what stands behind line breaks in it, which is to be pasted, as lines of code."""
    words, *pasted = line.split("\n")
    return escape(words) + "".join(f"<br><code>{escape(one)}</code>" for one in pasted)


def _title(title: str) -> str:
    return f"<h4>{escape(title)}</h4>" if title else ""
