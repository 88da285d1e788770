"""A run folder in a notebook: its rungs, what is at fault, plots and tables. It needs no framework."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.json_data import to_json_data
from align.report.draw_plot import PLOTS, draw_plot
from align.report.judged_run import judged_run, unfinished_text
from align.report.kind_parts.ladder_culprits import FAULTY, failure_lines
from align.report.kind_parts.report_summary import source_blocks, summary_blocks
from align.report.notebook.run_summary import summarize_run
from align.report.notebook.template_files import read_template
from align.report.rendering.blocks import Lines
from align.report.rendering.html import Shown
from align.report.result_frames import FRAMES
from align.report.show_result import result_blocks
from align.runs.run_folder import KINDS, LADDER, RunFolder
from align.words.catalogue import say, word

if TYPE_CHECKING:
    import pandas as pd

    from align.report.plots.figure_style import Picture


# What drawing can fail with, whatever the values or the state of the plotting library are.
PLOT_FAILURES = (
    ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
LISTED_WHOLE = ("forward", "loss", "map", "step")


@dataclass(frozen=True, slots=True)
class RunView:
    """A run folder as the notebook shows it."""

    folder: RunFolder

    def summary(self) -> Shown:
        """Show every rung with its verdict; a rung that was not run is shown as such."""
        style = f"<style>{read_template('report.css')}</style>"
        return Shown(tuple(summary_blocks(to_json_data(summarize_run(self.folder.path)))), head=style)

    def faults(self) -> Shown:
        """Show what each rung that failed or could not compare found: place, cause, line, what to write."""
        faulty = [rung for rung in judged_run(self.folder.path).rungs if rung.state in FAULTY]
        if not faulty:
            return _notice(say("rung.nothing_at_fault"))
        return Shown(tuple(failure_lines(rung, str(self.folder.path), show_all=True) for rung in faulty))

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def headline(self, kind: str) -> Shown:
        """Show what a rung says first: for `forward` the first divergent layer, for `loss` where the curves part."""
        document, run = self.folder.read(kind), self.folder.unfinished(kind)
        if document is None:
            return _notice(say("rung.no_sections") if run is None else f"{unfinished_text(run)}.")
        before = [] if run is None else [Lines("", (say("rung.made_before", run=unfinished_text(run)),), "open")]
        return Shown((*before, *result_blocks(document)[:1]))

    def details(self, kind: str) -> Shown:
        """Show all that a rung says after its headline; every layer and every step.

        A rung that was not run has said so in its headline; here it shows nothing.
        """
        document = self.folder.read(kind)
        if document is None:
            return Shown(())
        full = result_blocks(document, show_all=kind in LISTED_WHOLE)
        return Shown(tuple(full[1:]), tuple(result_blocks(document)[1:]))

    def beside(self, *kinds: str) -> Shown:
        """Show all that the results of these kinds say, those that there are; of all that are no rung of the ladder."""
        asked = kinds or tuple(kind for kind in KINDS if kind not in LADDER)
        found = {kind: document for kind in asked if (document := self.folder.read(kind))}
        if not found:
            return _notice(say("rung.nothing_beside"))
        parts = [(_titled(kind, document), self.headline(kind), self.details(kind)) for kind, document in found.items()]
        return Shown(tuple(block for part in parts for shown in part for block in shown.blocks))

    def plot(self, name: str) -> Picture | Shown:
        """Show one of `align.report.draw_plot.PLOTS`, or why there is no picture; nothing for a rung not run."""
        document = self.folder.read(PLOTS[name][0])
        if document is None:
            return Shown(())
        try:
            return draw_plot(name, document) or _notice(say("plot.nothing"))
        except PLOT_FAILURES as error:  # shown as such; it changes no verdict
            reason = f"{type(error).__name__}: {error}"
            return Shown((Lines("", (say("plot.failed", name=say(f"plot.{name}_title"), reason=reason),), "open"),))

    def frame(self, kind: str) -> pd.DataFrame | Shown:
        """Return a rung's rows as a pandas frame, to sort and filter; a rung that was not run shows nothing."""
        document = self.folder.read(kind)
        return Shown(()) if document is None else FRAMES[kind](document)

    def sources(self) -> Shown:
        """Show what every result was made from: files with their hashes, environments, inputs."""
        documents = {kind: document for kind in KINDS if (document := self.folder.read(kind)) is not None}
        return Shown(tuple(source_blocks(documents)))


def open_run(folder: str | Path = ".") -> RunView:
    r"""Open a run folder for showing, in a notebook; raises RunFolderError if it is none or holds nothing.

    >>> import contextlib, io, pathlib
    >>> from align.cli.main import main
    >>> for log in ("torch.csv", "port.csv"):
    ...     _ = pathlib.Path(log).write_text("step,loss\n1,2.3\n2,2.1\n")
    >>> with contextlib.redirect_stdout(io.StringIO()):
    ...     code = main(["loss", "torch.csv", "port.csv", "--run", "align-run"])
    >>> run = open_run("align-run")
    >>> code, "The curves stay together" in run.headline("loss")._repr_html_()
    (0, True)
    """
    return RunView(RunFolder.open(Path(folder)))


def _titled(kind: str, document: dict[str, Any]) -> Shown:
    """The name of a rung and its sides, one or two."""
    labels = [one["label"] for one in document["sides"]] if "sides" in document else None
    first, *others = labels or [
        document[side] for side in ("reference", "candidate", "model", "job") if side in document
    ]
    sides = say("rung.sides", reference=first, candidate=others[0]) if others else str(first)
    return Shown((Lines(word("rung", kind), (sides,)),))


def _notice(text: str) -> Shown:
    return Shown((Lines("", (text,), "quiet"),))
