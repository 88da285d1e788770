"""`align report`: the run folder as a notebook, one HTML page and one JSON summary, or for other programs.

The summary is computed before any plot is drawn, from the verdicts in the folder alone, so that nothing that
happens while drawing can change it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

from align.core.about import CHECKOUT, __version__
from align.core.align_sequences import grouped
from align.core.atomic_files import write_text
from align.core.documents import in_words
from align.core.protocols import silent
from align.errors import FrameworkMissingError, ReportError, UsageError
from align.report.blocks import Lines, as_float, format_number
from align.report.draw_plot import PLOTS
from align.report.judged_run import judged_run, rung_title
from align.report.kinds.ladder import (
    FAULTY,
    against_blocks,
    culprit_lines,
    folded_culprits,
    next_steps,
    remedy_lines,
    rung_reason,
    since_line,
)
from align.report.open_run import read_template, summarize_run
from align.report.show_result import blocks_as_text, result_blocks, with_columns
from align.report.thresholds import (
    CELL_SECONDS,
    KERNEL_OUTPUT_SHOWN,
    MARKDOWN_CELL_CHARACTERS,
    MARKDOWN_CHARACTERS,
    SHORT_TABLE_ROWS,
)
from align.runs.baseline import cause_id, fingerprint, read_difference
from align.runs.run_folder import RunFolder
from align.runs.rung import JUDGED, Culprit
from align.words.catalogue import (
    ELLIPSIS,
    VARIABLE,
    in_language,
    printable,
    reader_language,
    say,
    speaking,
    spoken,
    word,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from align.core.protocols import Progress
    from align.report.judged_run import JudgedRun
    from align.runs.rung import RungResult, RungState

PACKAGES = ("nbformat", "nbclient", "ipykernel", "matplotlib")
CURVES = ("reference", "candidate", "difference", "limit")  # columns of a loss result
LOST_FIELDS = (AttributeError, LookupError, TypeError, ValueError)  # of results that are not whole
INSTALL = 'pip install "mindalign[report]"'


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """What a report wrote; `html` is None if no page was wanted, `notebook` without the packages that execute one."""

    notebook: Path | None
    html: Path | None
    summary: Path


def write_report(run_folder: Path | str, *, html: bool = True, progress: Progress = silent) -> ReportPaths:
    """Write `report.ipynb` (executed), `report.html` and `report.json` into a run folder from what it holds.

    Without the report extra there is no notebook, and the page has no plots. Raises RunFolderError for a folder without
    sound results, FrameworkMissingError if nothing but a notebook is wanted then, and ReportError if the notebook
    cannot be executed or a result is not whole; then nothing was written.
    """
    has_packages = not missing_packages()
    if not html and not has_packages:
        raise FrameworkMissingError(", ".join(missing_packages()), INSTALL)
    folder = RunFolder.open(Path(run_folder).resolve())
    summary = summarize_run(folder.path)
    notebook = _executed(folder.path, progress) if has_packages else None
    page = _page(folder) if html else None

    paths = ReportPaths(
        folder.path / "report.ipynb" if has_packages else None,
        folder.path / "report.html" if html else None,
        folder.file("report"),
    )
    if notebook is None:
        (folder.path / "report.ipynb").unlink(missing_ok=True)
    else:
        write_text(folder.path / "report.ipynb", _as_text(notebook))
    if page is None:
        (folder.path / "report.html").unlink(missing_ok=True)  # an older page would tell of an older run
    else:
        write_text(folder.path / "report.html", page)
    kinds = [kind for kind in ("ladder", *(rung.kind for rung in summary.rungs if rung.made_from is not None)) if kind]
    folder.write(summary, {kind: folder.file(kind) for kind in kinds if folder.file(kind).is_file()})
    return paths


def missing_packages() -> list[str]:
    """The packages of the report extra that are not installed."""
    from importlib.util import find_spec

    return [package for package in PACKAGES if find_spec(package) is None]


def _executed(folder: Path, progress: Progress) -> Any:
    import nbformat

    notebook = nbformat.reads(read_template("report_template.ipynb"), as_version=4)
    notebook.cells = _filled_sections(notebook.cells, RunFolder.open(folder))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = in_language(cell.source, reader_language())
    return execute_notebook(notebook, folder, progress)


SHOWN_KINDS = re.compile(r"run\.(headline|details|plot|beside|frame)\((.*)\)")


def _filled_sections(cells: Sequence[Any], folder: RunFolder) -> list[Any]:
    """The cells of a report that have something to show in this folder, with the headings above them."""
    kept: list[Any] = []
    for cell in cells:
        found = SHOWN_KINDS.search(cell.source) if cell.cell_type == "code" else None
        names = re.findall(r'"(\w+)"', found[2]) if found else []
        kinds = [PLOTS[name][0] for name in names] if found and found[1] == "plot" else names
        if not kinds or any(folder.file(kind).is_file() or folder.unfinished(kind) for kind in kinds):
            kept.append(cell)
    following = [*kept[1:], None]
    ends = (None, "markdown")
    return [
        cell
        for cell, after in zip(kept, following, strict=True)
        if cell.cell_type != "markdown" or (after and after.cell_type) not in ends
    ]


def _as_text(notebook: Any) -> str:
    import nbformat

    return str(nbformat.writes(notebook)) + "\n"


def _page(folder: RunFolder) -> str:
    from align.report.page_html import page_html

    try:
        return page_html(folder)
    except LOST_FIELDS as error:
        facts = {"folder": folder.path, "name": type(error).__name__, "value": error}
        raise ReportError.of("report_usage.page_failed", **facts) from error


# Execution of a notebook by a kernel of this very interpreter.
#
# No registered kernel is looked up: one called `python3` may belong to another environment. The user's IPython
# start-up files are left out, and what the kernel says on its standard error reaches the user only if it dies.

TASK = "report"


def execute_notebook(notebook: Any, folder: Path, progress: Progress) -> Any:
    """Execute a notebook in place, in `folder`, and return it; raises ReportError if a cell or the kernel fails."""
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    total = len(notebook.cells)
    with tempfile.TemporaryDirectory(prefix="mindalign-") as scratch, tempfile.TemporaryFile() as output:
        client = _client(notebook, folder, Path(scratch))
        client.on_cell_executed = lambda cell_index, **_: progress(TASK, cell_index + 1, total)
        started = {"env": _environment(Path(scratch)), "stderr": output, "stdout": output}
        try:
            _wait_for(lambda: asyncio.run(client.async_execute(cleanup_kc=True, **started)))
        except CellExecutionError as error:
            facts = {"folder": folder, "name": error.ename, "value": error.evalue}
            raise ReportError.of("report_usage.cell_failed", **facts) from error
        except (DeadKernelError, CellControlSignal, RuntimeError, OSError) as error:
            said = f"{error}{_end_of_output(output)}"
            raise ReportError.of("report_usage.kernel_failed", folder=folder, said=said) from error
        finally:
            # Where the kernel never answered, the client would clean up once more at exit, and fail loudly.
            atexit.unregister(client._cleanup_kernel)  # noqa: SLF001
    return notebook


def _wait_for(work: Callable[[], object]) -> None:
    """Run in a thread of its own: it has no event loop yet, and an interrupt stays with the main thread.

    An interrupted caller still waits until the kernel is stopped, so that none is left behind.
    """
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as pool:
        warnings.simplefilter("ignore")  # the client's own deprecations are no news to a user
        pool.submit(work).result()


def _client(notebook: Any, folder: Path, scratch: Path) -> Any:
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = KernelSpec(argv=argv, display_name="Python 3", language="python")

    class ThisInterpreter(KernelSpecManager):
        """Knows one kernel, whatever it is called."""

        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:  # noqa: ARG002
            return spec

    manager = AsyncKernelManager(
        kernel_spec_manager=ThisInterpreter(), connection_file=str(scratch / "connection.json")
    )
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, km=manager, timeout=CELL_SECONDS, resources=resources)


def _environment(scratch: Path) -> dict[str, str]:
    extra = {"IPYTHONDIR": str(scratch), "PYDEVD_DISABLE_FILE_VALIDATION": "1", "JUPYTER_PLATFORM_DIRS": "1"}
    if (CHECKOUT / "pyproject.toml").is_file():
        known = os.environ.get("PYTHONPATH")
        extra["PYTHONPATH"] = os.pathsep.join([str(CHECKOUT), *([known] if known else [])])
    return {**os.environ, VARIABLE: reader_language(), **extra}


def _end_of_output(output: IO[bytes]) -> str:
    output.seek(0)
    text = output.read().decode("utf-8", errors="replace").strip()
    return f"\n{text[-KERNEL_OUTPUT_SHOWN:]}" if text else ""


# `align report --markdown`, `--junit`, `--sarif` and `--tensorboard`: a run folder for other programs, without a
# notebook and what that needs.


def write_exports(run_folder: Path | str, **files: Path | None) -> None:
    """Write what a pull request and a CI system show of a run folder, from what it holds.

    `files` are any of `markdown`, `junit` and `sarif`, and `tensorboard`, a folder. All texts are made before one is
    written, and each is written whole or not at all. Raises RunFolderError for a folder without sound results,
    DestinationError, UsageError where two are one file, and FrameworkMissingError without tensorboard.
    """
    wanted = {kind: path for kind, path in files.items() if path is not None}
    if len({path.resolve() for path in wanted.values()}) < len(wanted):
        raise UsageError.of("report_usage.one_file_for_two", names=[f"--{kind}" for kind in wanted])
    with speaking():
        run = judged_run(Path(run_folder))
        events = wanted.pop("tensorboard", None)
        texts = {path: EXPORTS[kind](run) for kind, path in wanted.items()}
        summary = as_markdown(run) if events is not None else ""
    if events is not None:
        from align.loops.watched_folder import write_event_file

        write_event_file(events, _scalars(run), {"align": summary})
    for path, text in texts.items():
        write_text(path, text)


def _scalars(run: JudgedRun) -> Iterator[tuple[int, dict[str, float]]]:
    """Both curves and their difference by step, and at step 0 for each rung that was judged 1 if it passed, else 0."""
    judged = [rung for rung in run.rungs if rung.state in JUDGED.values()]
    yield 0, {f"passed/{rung.name}": float(rung.state == "passed") for rung in judged}
    if document := run.documents.get("loss"):
        points, metric = document["points"], document["metric"]
        for row, step in enumerate(points["step"]):
            yield int(step), {f"{metric}/{name}": as_float(points[name][row]) for name in CURVES}


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
    footer = say(
        "export.made",
        folder=code_span(run.folder.path.resolve().name),
        created=f"{run.created:%Y-%m-%d %H:%M} UTC",
        version=__version__,
    )
    text = "\n\n".join([_verdict(run), _ladder(run.rungs)])
    for part in [_since(run), *map(_culprits, faulty), *map(_remedy, faulty), _next(run), footer]:
        if part and len(text) + len(part) + len(footer) < most:
            text += f"\n\n{part}"
    kinds = list(dict.fromkeys(rung.kind for rung in (*faulty, *run.rungs) if run.document(rung)))
    for place, kind in enumerate(kinds):
        text += _details(run, kind, (most - len(text)) // (len(kinds) - place))
    return f"{text}\n"


def _verdict(run: JudgedRun) -> str:
    verdict = run.verdict
    caveats = [plain(say("verdict.caveats", caveats="; ".join(verdict.caveats)))] if verdict.caveats else []
    headline = say("export.headline", outcome=word("outcome", verdict.outcome.value))
    return "\n\n".join([f"## {headline}", plain(verdict.reason), *caveats])


def _since(run: JudgedRun) -> str:
    """The difference to the run before of the folder; "" for the first one."""
    document = in_words(read_difference(run.folder), spoken())
    if document is None:
        return ""
    titled = [block for block in against_blocks(document)[:-1] if isinstance(block, Lines)]
    lists = ["\n".join([f"**{plain(one.title)}**", "", *(f"- {plain(line)}" for line in one.lines)]) for one in titled]
    return "\n\n".join([plain(since_line(document)), *lists])


def _ladder(rungs: Sequence[RungResult]) -> str:
    head = [say(f"ladder_table.{name}") for name in ("rung", "state", "reason")]
    rows = (
        [_title(rung), f"{_mark(rung)}{word('rung_state', rung.state)}", plain(rung_reason(rung))] for rung in rungs
    )
    return markdown_table(head, rows)


def _mark(rung: RungResult) -> str:
    """A sign before the word, which is found at a glance."""
    return {"passed": "✅ ", "failed": "❌ ", "could not compare": "❌ "}.get(rung.state, "")


def _culprits(rung: RungResult) -> str:
    """A table of what is at fault at a rung; "" where that is not known."""
    culprits = folded_culprits(rung.culprits)
    if not culprits:
        return ""
    columns = ("place", "cause", "line", "change")
    head = [say(f"export.{column}") for column in columns]
    rows = [[code_span(one.place), plain(one.cause), code_span(one.line), code_span(one.change)] for one in culprits]
    rest = len(rows) - SHORT_TABLE_ROWS
    more = "\n\n" + say("ladder_table.more", count=format_number(rest)) if rest > 0 else ""
    title = say("export.at_fault", name=_title(rung))
    return f"### {title}\n\n{markdown_table(head, rows[:SHORT_TABLE_ROWS])}{more}"


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
    """Return as many whole lines as there is room for, and how many more there are."""
    if len(text) <= room:
        return text
    lines = text.splitlines()
    last = say("export.more_lines", count=format_number(len(lines)))
    whole = text[: max(room - len(last), 0)].count("\n")
    return (
        "\n".join([*lines[:whole], say("export.more_lines", count=format_number(len(lines) - whole))]) if whole else ""
    )


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Rows of cells that are Markdown already as a table."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *map(list, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _title(rung: RungResult) -> str:
    return plain(rung_title(rung))


def plain(text: str) -> str:
    """Text without any markup, in one line."""
    escaped = MARKUP.sub(r"\\\1", _short(text))
    return "".join(ENTITIES.get(char, char) for char in escaped)


def _pasted(line: str) -> str:
    """A sentence, and what stands behind line breaks in it, which is to be pasted, as lines of code."""
    words, *pasted = line.split("\n")
    return BREAK.join([plain(words), *map(code_span, pasted)])


def code_span(text: str) -> str:
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

    A rung that is at fault has the `file` and `line` of the first place that is known, from the current folder.
    Source: the schemas of Jenkins' xunit plugin and of Ant's junit task, of which it holds both but for these two,
    which pytest's older form has and GitLab shows.
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
    place = next((place for one in rung.culprits if (place := source_place(one.line))), None)
    at = {"file": printable(place.file), "line": str(place.line)} if place and rung.state in ELEMENTS else {}
    case = ET.SubElement(suite, "testcase", {"name": title, "classname": classname, "time": _seconds([rung]), **at})
    if rung.state not in ELEMENTS:
        return
    reason = rung_reason(rung)
    facts = {"message": printable(reason)}
    if ELEMENTS[rung.state] != "skipped":
        facts["type"] = rung.state
    element = ET.SubElement(case, ELEMENTS[rung.state], facts)
    element.text = "\n".join(map(printable, rung_lines(rung)))


def rung_lines(rung: RungResult) -> list[str]:
    """Why a rung is in its state, what is at fault, what to do about it, and its commands."""
    lines = [rung_reason(rung), *culprit_lines(rung.culprits), *remedy_lines(rung), *rung.commands]
    return list(dict.fromkeys("\n".join(lines).split("\n")))


def _counts(rungs: Sequence[RungResult]) -> dict[str, str]:
    elements = [ELEMENTS.get(rung.state) for rung in rungs]
    return {name: str(elements.count(element)) for name, element in COUNTS.items()}


def _seconds(rungs: Sequence[RungResult]) -> str:
    return f"{sum(rung.seconds or 0.0 for rung in rungs):.3f}"


# A run as a SARIF file, which shows each finding at its line in a pull request and in editors.
#
# What could not be compared is no finding but a notification of a run that did not succeed. A finding without a line of
# its own stands at the first line of the project file: GitHub shows none without a file.


class SourcePlace(NamedTuple):
    """A place of the user's code as it is printed: a file, a line and a column, from 1; column 1 where none is told."""

    file: str
    line: int
    column: int


PLACE = re.compile(r"(?P<file>\S.*?):(?P<line>[1-9]\d*)(?::(?P<column>[1-9]\d*))?")
SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
FINGERPRINT = "mindalign/v1"  # under which a finding is known again, whatever line it moves to
NO_RULE_ID = re.compile(r"[^\w./-]+")


def source_place(text: str) -> SourcePlace | None:
    """Read `file.py:12:5`, or `file.py:12`; None for anything else.

    >>> source_place("port.py:12:5")
    SourcePlace(file='port.py', line=12, column=5)
    """
    match = PLACE.fullmatch(text)
    return match and SourcePlace(match["file"], int(match["line"]), int(match["column"] or 1))


def as_sarif(run: JudgedRun) -> str:
    """Return a run as SARIF 2.1.0: a result for each cause at each place that is at fault; paths from the repository.

    Source: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html.
    """
    project = str(run.climb.get("made_from", {}).get("project", {}).get("path", ""))
    findings = [finding for rung in run.rungs if rung.state == "failed" for finding in _findings(rung)]
    lacking = [rung for rung in run.rungs if rung.state in ("could not compare", "stale")]
    rules = {finding.rule: finding for finding in reversed(findings)}
    driver = {
        "name": "mindalign",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": rules[rule].rule_text}} for rule in sorted(rules)],
    }
    sarif_run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"align/{run.name}"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not lacking,
                "endTimeUtc": f"{run.created:%Y-%m-%dT%H:%M:%SZ}",
                "toolExecutionNotifications": list(map(_notification, lacking)),
            }
        ],
        "results": [_sarif_result(finding, project) for finding in findings],
    }
    document = {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [sarif_run]}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


class _Finding(NamedTuple):
    rule: str
    rule_text: str
    culprit: Culprit
    text: str
    fingerprint: str


def _findings(rung: RungResult) -> Iterator[_Finding]:
    """What a rung that failed has at fault, what is alike as one; its reason where it names nothing."""
    by_rule = grouped((cause_id(one.cause), one) for one in rung.culprits or [Culprit("", rung.reason)])
    for cause, culprits in by_rule.items():
        for culprit in folded_culprits(culprits):
            words = f"{culprit.place}{say('ladder_table.culprit', **asdict(culprit))}" if culprit.place else rung.reason
            text = f"{rung_title(rung)}: {words}"
            rule = NO_RULE_ID.sub("-", f"{rung.name}/{cause or 'unknown'}")
            mark = fingerprint(rung.name, replace(culprit, cause=culprits[0].cause))
            yield _Finding(rule, printable(culprit.cause or rung.reason), culprit, printable(text), mark)


def _sarif_result(finding: _Finding, project: str) -> dict[str, Any]:
    place = source_place(with_columns(finding.culprit.line))
    if place is None or not Path(place.file).is_file():
        place = SourcePlace(project, 1, 1) if project and Path(project).is_file() else None
    location: dict[str, Any] = {}
    if finding.culprit.place:
        location["logicalLocations"] = [{"fullyQualifiedName": printable(finding.culprit.place)}]
    if place is not None:
        region = {"startLine": place.line, "startColumn": place.column}
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(place.file)}, "region": region}
    return {
        "ruleId": finding.rule,
        "level": "error",
        "message": {"text": finding.text},
        "partialFingerprints": {FINGERPRINT: finding.fingerprint},
        **({"locations": [location]} if location else {}),
    }


def _uri(file: str) -> str:
    """A file as the repository names it in which it lies; from the current folder where it lies in none."""
    path = Path(file).resolve()
    root = next((folder for folder in path.parents if (folder / ".git").exists()), Path.cwd())
    return quote(Path(os.path.relpath(path, root)).as_posix())


def _notification(rung: RungResult) -> dict[str, Any]:
    lines = [f"{rung_title(rung)}: {rung_reason(rung)}", *remedy_lines(rung)]
    return {"level": "error", "message": {"text": printable(" ".join(" ".join(lines).split()))}}


EXPORTS = {"markdown": as_markdown, "junit": as_junit, "sarif": as_sarif}
