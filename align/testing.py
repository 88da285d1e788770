"""A port held to its original in a test suite: `assert_aligned`, and the rungs of a project as tests of pytest.

`pytest --align` is a plugin of pytest's, found by the entry point `pytest11`. It is loaded by every pytest of an
environment: little more than this file is imported before `--align` is given.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from align.errors import AlignError, CannotRunError, UsageError
from align.words.catalogue import say, speaking, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

    from align.core.verdicts import Verdict
    from align.runs.project_file import Project
    from align.runs.rung import LadderResult, RungResult


class Judged(Protocol):
    """A result of align, of whichever verb."""

    @property
    def verdict(self) -> Verdict:
        """What it says."""


def assert_aligned(subject: Judged | Path | str, *, rungs: Sequence[str] = ()) -> None:
    """Raise AssertionError unless a result says "aligned", or all rungs of a project file pass.

    `subject` is what a verb returns (`align.compare_forward(...)`), or the path of a project file, of which these
    `rungs` alone are run, or all that it asks for. Raises CannotRunError where nothing is decided: no port failed then.

        assert_aligned(align.compare_losses("torch.log", "mindspore.log"))
        assert_aligned("align.toml", rungs=["forward", "gradients"])
    """
    from align.core.verdicts import Outcome

    result = run_project(Path(subject), rungs) if isinstance(subject, (str, Path)) else subject
    if result.verdict.outcome is Outcome.ALIGNED:
        return
    text = _as_text(result)
    if result.verdict.outcome is Outcome.NOT_ALIGNED:
        raise AssertionError(text)
    raise CannotRunError.of("testing.not_compared", text=text)


def run_project(file: Path, rungs: Sequence[str] = ()) -> LadderResult:
    """Run these rungs of a project file, or all that it asks for, and do not stop at a failure.

    What has passed and rests on the same is not run again. Results are in its run folder, or in `align-run` beside it.
    """
    project = open_project(file)
    return climb_project(replace(project, rungs=tuple(rungs)) if rungs else project)


def open_project(file: Path) -> Project:
    """Read a project file; modules beside it are found."""
    from align.core.about import RUN_FOLDER
    from align.core.load_code import put_first
    from align.runs.read_settings import find_settings

    project, folder = find_settings(file), file.resolve().parent
    put_first(folder)
    return replace(project, run_folder=project.run_folder or folder / RUN_FOLDER)


def climb_project(project: Project) -> LadderResult:
    """Run the rungs that a project asks for, behind failures too."""
    from align.cli.project import perform
    from align.core.about import RUN_FOLDER
    from align.runs.baseline import keep_last_run
    from align.runs.climb_ladder import Climb, climb_ladder
    from align.runs.run_folder import RunFolder

    folder = project.run_folder or Path(RUN_FOLDER)
    with _quiet():
        result = climb_ladder(project, folder, perform, Climb(keep_going=True))
    keep_last_run(result, RunFolder(folder), project)
    return result


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Frameworks warn while they are imported, which is no failure of a test that makes errors of warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _as_text(result: Any) -> str:
    """A result as `align` prints it."""
    from align.report.show_result import print_result
    from align.runs.run_folder import as_document

    with contextlib.redirect_stdout(io.StringIO()) as output:
        print_result(as_document(result, {}, hashed=False))
    return output.getvalue().rstrip()


# The plugin. A rung that failed or could not be compared fails its test; one that was not run is skipped.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--align` and what goes with it."""
    group = parser.getgroup("align", say("testing.group"))
    group.addoption("--align", action="store_true", help=say("testing.align"))
    group.addoption("--align-project", metavar="FILE", help=say("testing.project"))


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each rung, before -k and -m choose among the tests."""
    if config.getoption("--align"):
        items += rung_tests(session, config.getoption("--align-project"))


def rung_tests(session: pytest.Session, file: str | None) -> list[pytest.Item]:
    """One test a rung of a project file, by default of that of the current folder or above; they share one climb."""
    import pytest

    from align.core.about import PROJECT_FILE, find_project
    from align.runs.rung import rungs

    chosen = Path(file) if file else find_project()
    if chosen is None:
        raise pytest.UsageError(str(UsageError.of("cli_usage.no_project", file=PROJECT_FILE)))
    try:
        project = open_project(chosen)
    except AlignError as error:
        raise pytest.UsageError(str(error)) from error
    names = [rung.name for rung in rungs() if rung.name in project.rungs or not (rung.optional or project.rungs)]
    climb = SharedClimb(project, session, names)
    parent = _project_node().from_parent(session, path=chosen.resolve())
    return [_rung_test().from_parent(parent, name=name, climb=climb) for name in names]


@dataclass
class SharedClimb:
    """What the tests of one session share: the rungs are run once, up to the last whose test was not deselected."""

    project: Project
    session: pytest.Session
    names: Sequence[str]

    @property
    def results(self) -> dict[str, RungResult]:
        """The rungs by name; a run that could not be made is not tried again by the next test."""
        if isinstance(self._climbed, AlignError):
            raise self._climbed
        return self._climbed

    @cached_property
    def _climbed(self) -> dict[str, RungResult] | AlignError:
        chosen = [item.name for item in self.session.items if getattr(item, "climb", None) is self]
        project = self.project
        if len(chosen) < len(self.names):
            below = self.names[: 1 + max(map(self.names.index, chosen))]
            project = replace(project, rungs=tuple(_available(project, below)))
        try:
            return {rung.name: rung for rung in climb_project(project).rungs}
        except AlignError as error:
            return error


def _available(project: Project, names: Sequence[str]) -> Iterator[str]:
    from align.runs.rung import Plan, rungs

    folder = project.run_folder or Path()
    return (rung.name for rung in rungs() if rung.name in names and isinstance(rung.plan(project, folder), Plan))


class RungFailedError(AssertionError):
    """What a rung found, in the lines that `align run` prints of it."""


@cache
def _project_node() -> Any:
    import pytest

    class ProjectNode(pytest.File):
        """A project file; its tests are made with it."""

        def collect(self) -> list[pytest.Item]:
            """Nothing by itself."""
            return []

    return ProjectNode


@cache
def _rung_test() -> Any:
    import pytest

    class RungTest(pytest.Item):
        """One rung as a test."""

        def __init__(self, *, climb: SharedClimb, **facts: Any) -> None:
            super().__init__(**facts)
            self.climb = climb

        def runtest(self) -> None:
            """Pass, fail or skip as the rung did."""
            rung = self.climb.results.get(self.name)
            if rung is None:
                pytest.skip(word("rung_state", "not available"))
            self.user_properties.append(("seconds", rung.seconds))
            if rung.state in ("failed", "could not compare", "stale"):
                raise RungFailedError(rung_text(rung))
            if rung.state != "passed":
                pytest.skip(rung_text(rung))

        def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
            """The words of the rung, or of an error of the user's, without a traceback through mindalign."""
            is_told = isinstance(excinfo.value, (RungFailedError, AlignError))
            return str(excinfo.value) if is_told else super().repr_failure(excinfo, style)

        def reportinfo(self) -> tuple[Path, None, str]:
            """The project file."""
            return self.path, None, self.name

    return RungTest


def rung_text(rung: RungResult) -> str:
    """A rung in the lines that `align run` prints of it."""
    from align.report.write_report import rung_lines

    with speaking():
        reason, *lines = rung_lines(rung)
        facts = {"name": rung.name, "state": word("rung_state", rung.state), "reason": reason}
        return "\n".join([say("ladder_table.failure", **facts), *lines])
