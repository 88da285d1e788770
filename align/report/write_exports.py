"""`align report --markdown` and `--junit`: a run folder for other programs, without a notebook and what that needs."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from align.core.about import __version__
from align.core.atomic_files import write_text
from align.errors import UsageError
from align.names.fold_names import ELLIPSIS
from align.report.blocks import format_number
from align.report.judged_run import judged_run, rung_title
from align.report.kinds.ladder import FAULTY, culprit_lines, folded_culprits, next_steps, remedy_lines, rung_reason
from align.report.show_result import blocks_as_text, result_blocks
from align.report.thresholds import MARKDOWN_CELL_CHARACTERS, MARKDOWN_CHARACTERS, SHORT_TABLE_ROWS
from align.words.catalogue import say, speaking, word
from align.words.message_words import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from align.report.judged_run import JudgedRun
    from align.runs.rung import LadderResult, RungResult, RungState


def write_exports(run_folder: Path | str, *, markdown: Path | None = None, junit: Path | None = None) -> LadderResult:
    """Write what a pull request and a CI system show of a run folder, from what it holds; return its rungs.

    Both are made before one is written, and each is written whole or not at all. Raises RunFolderError for a folder
    without sound results, DestinationError, and UsageError where both are one file.
    """
    if markdown is not None and junit is not None and markdown.resolve() == junit.resolve():
        raise UsageError.of("report_usage.one_file_for_two", path=markdown)
    with speaking():
        run = judged_run(Path(run_folder))
        texts = [(markdown, as_markdown(run) if markdown else ""), (junit, as_junit(run) if junit else "")]
    for path, text in texts:
        if path is not None:
            write_text(path, text)
    return judged_run(Path(run_folder)).ladder


# A run as Markdown, to be put into a pull request: the verdict, the rungs, what is at fault, and details to unfold.
#
# It stays below what a comment may be long: details give way first, then what is at fault, never the rungs. What
# files and users wrote stands in code or is escaped, so that it is no markup, and calls nobody by an @.

MARKUP = re.compile(r"([\\`*_\[\]#|~$])")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b"}
FENCE = "```"
BREAK = "  \n"  # of a line, in Markdown


def as_markdown(run: JudgedRun, most: int = MARKDOWN_CHARACTERS) -> str:
    """Return a run as Markdown in GitHub's dialect, of at most `most` characters.

    Source: GitHub Flavored Markdown, https://github.github.com/gfm/.
    """
    faulty = [rung for rung in run.rungs if rung.state in FAULTY]
    made = say(
        "export.made",
        folder=_code(run.folder.path.resolve().name),
        created=f"{run.created:%Y-%m-%d %H:%M} UTC",
        version=__version__,
    )
    text = "\n\n".join([_verdict(run), _ladder(run.rungs)])
    for part in [*map(_culprits, faulty), *map(_remedy, faulty), _next(run), made]:
        if part and len(text) + len(part) + len(made) < most:
            text += f"\n\n{part}"
    kinds = list(dict.fromkeys(rung.kind for rung in (*faulty, *run.rungs) if run.document(rung)))
    for place, kind in enumerate(kinds):
        text += _details(run, kind, (most - len(text)) // (len(kinds) - place))
    return f"{text}\n"


def _verdict(run: JudgedRun) -> str:
    verdict = run.verdict
    caveats = [_plain(say("verdict.caveats", caveats="; ".join(verdict.caveats)))] if verdict.caveats else []
    headline = say("export.headline", outcome=word("outcome", verdict.outcome.value))
    return "\n\n".join([f"## {headline}", _plain(verdict.reason), *caveats])


def _ladder(rungs: Sequence[RungResult]) -> str:
    head = [say(f"ladder_table.{name}") for name in ("rung", "state", "reason")]
    rows = (
        [_title(rung), f"{_mark(rung)}{word('rung_state', rung.state)}", _plain(rung_reason(rung))] for rung in rungs
    )
    return _table(head, rows)


def _mark(rung: RungResult) -> str:
    """A sign before the word, which is found at a glance."""
    return {"passed": "✅ ", "failed": "❌ ", "could not compare": "❌ "}.get(rung.state, "")


def _culprits(rung: RungResult) -> str:
    """A table of what is at fault at a rung; "" where that is not known."""
    found = folded_culprits(rung.culprits)
    if not found:
        return ""
    columns = ("place", "cause", "line", "change")
    head = [say(f"export.{column}") for column in columns]
    rows = [[_code(one.place), _plain(one.cause), _code(one.line), _code(one.change)] for one in found]
    rest = len(rows) - SHORT_TABLE_ROWS
    more = "\n\n" + say("ladder_table.more", count=format_number(rest)) if rest > 0 else ""
    title = say("export.at_fault", name=_title(rung))
    return f"### {title}\n\n{_table(head, rows[:SHORT_TABLE_ROWS])}{more}"


def _remedy(rung: RungResult) -> str:
    """What to do about a command that could not run; "" where nothing is known."""
    return "  \n".join(f"{_title(rung)}: {_pasted(line)}" for line in remedy_lines(rung))


def _next(run: JudgedRun) -> str:
    """What to do next, a point each."""
    steps = [f"- {_pasted(step).replace(BREAK, BREAK + '  ')}" for step in next_steps(run.rungs, run.climb)]
    return "\n".join([f"### {say('ladder_table.next')}", "", *steps]) if steps else ""


def _details(run: JudgedRun, kind: str, room: int) -> str:
    """All that the terminal shows of a result, folded; "" where there is no room for its first lines."""
    document = run.documents[kind]
    text = "\n".join(map(printable, blocks_as_text(result_blocks(document)).splitlines()))
    fence = max([FENCE, *(ticks + "`" for ticks in re.findall("`{3,}", text))], key=len)
    around = f"\n\n<details>\n<summary>{escape(word('rung', kind))}</summary>\n\n{fence}text\n%s\n{fence}\n\n</details>"
    cut = _cut_lines(text, room - len(around))
    return around.replace("%s", cut) if cut else ""


def _cut_lines(text: str, room: int) -> str:
    """As many whole lines as there is room for, and how many more there are."""
    if len(text) <= room:
        return text
    lines = text.splitlines()
    last = say("export.more_lines", count=format_number(len(lines)))
    whole = text[: max(room - len(last), 0)].count("\n")
    return (
        "\n".join([*lines[:whole], say("export.more_lines", count=format_number(len(lines) - whole))]) if whole else ""
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _title(rung: RungResult) -> str:
    return _plain(rung_title(rung))


def _plain(text: str) -> str:
    """Text without any markup, in one line."""
    escaped = MARKUP.sub(r"\\\1", _short(text))
    return "".join(ENTITIES.get(char, char) for char in escaped)


def _pasted(line: str) -> str:
    """A sentence, and what stands behind line breaks in it, which is to be pasted, as lines of code."""
    words, *pasted = line.split("\n")
    return BREAK.join([_plain(words), *map(_code, pasted)])


def _code(text: str) -> str:
    """Text as code, in one line; in a table a bar is escaped even there."""
    if not text:
        return ""
    ticks = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if len(ticks) > 1 else ""
    return f"{ticks}{space}{_short(text)}{space}{ticks}".replace("|", "\\|")


def _short(text: str) -> str:
    line = printable(" ".join(text.split()))
    return line if len(line) <= MARKDOWN_CELL_CHARACTERS else line[:MARKDOWN_CELL_CHARACTERS] + ELLIPSIS


# A run as a JUnit file, which CI systems show: one test case for each rung.
#
# What was not run, is only foreseen, not available or blocked, is skipped, which is no pass; what could not be
# compared, and what is stale, is an error.

ELEMENTS: dict[RungState, str] = {
    "failed": "failure",
    "could not compare": "error",
    "stale": "error",
    "blocked": "skipped",
    "not run": "skipped",
    "not available": "skipped",
    "foreseen": "skipped",
}
COUNTS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
HOST = "localhost"  # what the schema wants where no host is known: a run may have been copied from another one


def as_junit(run: JudgedRun) -> str:
    """Return a run as a JUnit document with one suite; times are in seconds, the time of day is UTC.

    Source: the schemas of Jenkins' xunit plugin and of Ant's junit task, of which it holds both.
    """
    rungs = run.rungs
    name = printable(say("export.suite", folder=run.name))
    totals = {"name": name, "tests": str(len(rungs)), **_counts(rungs), "time": _seconds(rungs)}
    root = ET.Element("testsuites", totals)
    suite = ET.SubElement(
        root, "testsuite", {**totals, "timestamp": f"{run.created:%Y-%m-%dT%H:%M:%S}", "hostname": HOST}
    )
    for rung in rungs:
        _add_case(suite, rung, name)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _add_case(suite: ET.Element, rung: RungResult, classname: str) -> None:
    title = printable(rung_title(rung))
    case = ET.SubElement(suite, "testcase", {"name": title, "classname": classname, "time": _seconds([rung])})
    if rung.state not in ELEMENTS:
        return
    reason = rung_reason(rung)
    facts = {"message": printable(reason)}
    if ELEMENTS[rung.state] != "skipped":
        facts["type"] = rung.state
    element = ET.SubElement(case, ELEMENTS[rung.state], facts)
    lines = [reason, *culprit_lines(rung.culprits), *remedy_lines(rung), *rung.commands]
    element.text = "\n".join(printable(line) for line in dict.fromkeys("\n".join(lines).split("\n")))


def _counts(rungs: Sequence[RungResult]) -> dict[str, str]:
    elements = [ELEMENTS.get(rung.state) for rung in rungs]
    return {name: str(elements.count(element)) for name, element in COUNTS.items()}


def _seconds(rungs: Sequence[RungResult]) -> str:
    return f"{sum(rung.seconds or 0.0 for rung in rungs):.3f}"
