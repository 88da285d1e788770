"""`align report --markdown` and `--junit`: a run folder for other programs, without a notebook and what that needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from align.core.atomic_files import write_text
from align.errors import UsageError
from align.report.exports.junit import as_junit
from align.report.exports.pull_request import as_markdown
from align.report.judged_run import judged_run

if TYPE_CHECKING:
    from align.runs.ladder_result import LadderResult


def write_exports(run_folder: Path | str, *, markdown: Path | None = None, junit: Path | None = None) -> LadderResult:
    """Write what a pull request and a CI system show of a run folder, from what it holds; return its rungs.

    Both are made before one is written, and each is written whole or not at all. Raises RunFolderError for a folder
    without sound results, DestinationError, and UsageError where both are one file.
    """
    if markdown is not None and junit is not None and markdown.resolve() == junit.resolve():
        raise UsageError.of("report_usage.one_file_for_two", path=markdown)
    run = judged_run(Path(run_folder))
    texts = [(markdown, as_markdown(run) if markdown else ""), (junit, as_junit(run) if junit else "")]
    for path, text in texts:
        if path is not None:
            write_text(path, text)
    return run.ladder
