"""A run folder in a notebook: its rungs, what is at fault, plots and tables. It needs no framework."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.about import CHECKOUT
from align.core.documents import in_words, own_fields, to_json_data
from align.core.load_code import INSTALL_HINT, beside_package
from align.core.verdicts import Outcome, ShownResult, Verdict
from align.errors import FrameworkMissingError, ReportError, RunFolderError
from align.names.map_export import COLUMNS, map_rows
from align.report.blocks import NON_FINITE, Block, Lines, Table, as_float
from align.report.draw_plot import PLOTS, draw_plot, font_note
from align.report.judged_run import judged_run, rung_coverage, unfinished_text
from align.report.kinds.ladder import FAULTY, failure_lines, next_steps, rung_reason, source_blocks, summary_blocks
from align.report.kinds.steps import SIDES, step_parameters
from align.report.show_result import Shown, blocks_as_html, result_blocks
from align.runs.run_folder import KINDS, LADDER, RunFolder, as_document
from align.words.catalogue import say, speaking, spoken, word

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd

    from align.names.map_result import MapResult
    from align.report.judged_run import JudgedRun
    from align.report.kinds.steps import StepParameter
    from align.report.plot_layers import Picture
    from align.runs.rung import RungResult, RungState


# What drawing can fail with, whatever the values or the state of the plotting library are.
PLOT_FAILURES = (
    ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
LISTED_WHOLE = ("data", "forward", "loss", "map", "step")


@dataclass(frozen=True, slots=True)
class RunView:
    """A run folder as the notebook shows it."""

    folder: RunFolder

    @speaking()
    def summary(self) -> Shown:
        """Show every rung with its verdict; a rung that was not run is shown as such."""
        style = f"<style>{read_template('result.css')}</style>"
        blocks = summary_blocks(in_words(to_json_data(summarize_run(self.folder.path)), spoken()))
        note = [Lines("", (font_note(),), "quiet")] if font_note() else []
        return Shown((*blocks, *note), head=style)

    @speaking()
    def faults(self) -> Shown:
        """Show what each rung that failed or could not compare found: place, cause, line, what to write."""
        faulty = [rung for rung in judged_run(self.folder.path).rungs if rung.state in FAULTY]
        if not faulty:
            return _notice(say("rung.nothing_at_fault"))
        return Shown(tuple(failure_lines(rung, str(self.folder.path), show_all=True) for rung in faulty))

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _read(self, kind: str) -> dict[str, Any] | None:
        """A result, its sentences in the language that is spoken now."""
        document = self.folder.read(kind)
        return None if document is None else in_words(document, spoken())

    @speaking()
    def headline(self, kind: str) -> Shown:
        """Show what a rung says first: for `forward` the first divergent layer, for `loss` where the curves part."""
        document, run = self._read(kind), self.folder.unfinished(kind)
        if document is None:
            return _notice(say("rung.no_sections") if run is None else f"{unfinished_text(run)}.")
        before = [] if run is None else [Lines("", (say("rung.made_before", run=unfinished_text(run)),), "open")]
        return Shown((*before, *result_blocks(document)[:1]))

    @speaking()
    def details(self, kind: str) -> Shown:
        """Show all that a rung says after its headline; every layer and every step.

        A rung that was not run has said so in its headline; here it shows nothing.
        """
        document = self._read(kind)
        if document is None:
            return Shown(())
        full = result_blocks(document, show_all=kind in LISTED_WHOLE)
        return Shown(tuple(full[1:]), tuple(result_blocks(document)[1:]))

    @speaking()
    def beside(self, *kinds: str) -> Shown:
        """Show all that the results of these kinds say, those that there are; of all that are no rung of the ladder."""
        asked = kinds or tuple(kind for kind in KINDS if kind not in LADDER)
        found = {kind: document for kind in asked if (document := self._read(kind))}
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
            with speaking():
                return draw_plot(name, document) or _notice(say("plot.nothing"))
        except PLOT_FAILURES as error:  # shown as such; it changes no verdict
            reason = f"{type(error).__name__}: {error}"
            return Shown((Lines("", (say("plot.failed", name=say(f"plot.{name}_title"), reason=reason),), "open"),))

    def frame(self, kind: str) -> pd.DataFrame | Shown:
        """Return a rung's rows as a pandas frame, to sort and filter; a rung that was not run shows nothing."""
        document = self.folder.read(kind)
        return Shown(()) if document is None else FRAMES[kind](document)

    @speaking()
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


SIDE_NAMES = ("reference", "candidate", "model", "job", "dump")  # of a document, where it has no list of them


def _titled(kind: str, document: dict[str, Any]) -> Shown:
    """The name of a rung and its sides, one or two."""
    sides = document.get("sides") or [document[name] for name in SIDE_NAMES if name in document]
    labels = [side["label"] if isinstance(side, dict) else side for side in sides]
    first, *others = labels or [rank["folder"] for rank in document["ranks"]]
    named = say("rung.sides", reference=first, candidate=others[0]) if others else str(first)
    return Shown((Lines(word("rung", kind), (named,)),))


def _notice(text: str) -> Shown:
    return Shown((Lines("", (text,), "quiet"),))


# The summary of a run folder for `report.json`, the terminal and the notebook: its rungs, and what each rests on.


@dataclass(frozen=True, slots=True)
class ReportRung:
    """One rung: its state and why, and the kind of its result with its coverage, its time and what it was made from.

    `unfinished` is the run that began after the result was made and did not come to its end; None if there is none.
    """

    name: str
    state: RungState
    reason: str = ""
    kind: str = ""
    coverage: dict[str, Any] | None = None
    created: str = ""
    made_from: dict[str, dict[str, str]] | None = None
    unfinished: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ReportSummary(ShownResult):
    """All rungs, the verdict over them and its outcome, and what to do next."""

    result_kind = "report"
    run_folder: str
    outcome: Outcome
    rungs: tuple[ReportRung, ...]
    verdict: Verdict
    next_steps: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit code of the verdict."""
        return self.verdict.exit_code


def summarize_run(path: Path | str) -> ReportSummary:
    """Summarize a run folder; raises RunFolderError if it is none, is empty or holds a damaged result."""
    run = judged_run(path)
    rungs = tuple(_rung(run, rung) for rung in run.rungs)
    steps = next_steps(run.rungs, run.climb)
    return ReportSummary(run.name, run.verdict.outcome, rungs, run.verdict, steps)


def _rung(run: JudgedRun, rung: RungResult) -> ReportRung:
    document = run.document(rung)
    begun = run.folder.unfinished(rung.kind) if rung.state == "could not compare" and document else None
    unfinished = asdict(begun) if begun else None
    reported = ReportRung(rung.name, rung.state, rung_reason(rung), rung.kind, unfinished=unfinished)
    if document is None:
        return reported
    try:
        coverage = own_fields(rung_coverage(rung, document))
        return replace(reported, coverage=coverage, created=document["created"], made_from=document["made_from"])
    except (KeyError, TypeError, ValueError) as error:
        file = run.folder.file(rung.kind)
        raise RunFolderError.of("report_usage.no_verdict", file=file, error=repr(error)) from error


# The files under `notebooks/` that a report is made from, found in a wheel, an editable install and a checkout.


def read_template(name: str) -> str:
    """Return the text of a file under `notebooks/`; raises ReportError if the installation lacks it."""
    if folder := beside_package("notebooks", name):
        return (folder / name).read_text(encoding="utf-8")
    raise ReportError.of("report_usage.template_missing", path=CHECKOUT / "notebooks" / name)


# Results as a notebook shows them by themselves: the headline and one table, and all their rows as a frame.
#
# A notebook's theme cannot be asked for, so colours are either the page's own or shine through on any page.


def result_html(result: Any) -> str:
    """Return the headline of a result and one of its tables; all it says where it has no table.

    >>> from align.names.map_result import MapCheck
    >>> from align.core.verdicts import Coverage, Outcome, Verdict
    >>> verdict = Verdict(Outcome.ALIGNED, "all names are there", Coverage("tensors", 2))
    >>> "all names are there" in result_html(MapCheck("map.toml", "a", "b", (), (), verdict))
    True
    """
    with speaking() as language:
        blocks = result_blocks(in_words(as_document(result, {}, hashed=False), language))
    style = f"<style>{read_template('result.css')}</style>"
    return f'<div class="ma-result">{style}{blocks_as_html(headline_and_table(blocks))}</div>'


def result_frame(result: Any) -> pd.DataFrame:
    """Return the rows of a result: of a map one each name, as `map_frame` does; else as its document lists them."""
    return map_frame(result) if result.result_kind == "map" else kind_frame(result.result_kind, to_json_data(result))


def headline_and_table(blocks: list[Block]) -> tuple[Block, ...]:
    """Choose the verdict, what a result says first, and its largest table, rather not one of facts by side."""
    tables = [block for block in blocks if isinstance(block, Table) and block.rows]
    if not tables:
        return tuple(blocks)
    verdict = [block for block in blocks if isinstance(block, Lines) and not block.title][-1:]
    first = [block for block in blocks[:1] if not isinstance(block, Table) and block not in verdict]
    return (*verdict, *first, max(tables, key=_size))


def _size(table: Table) -> tuple[bool, int]:
    """Cells of a table; one of facts by side, whose first column has no name, comes behind all others."""
    return table.columns[0].header != "", len(table.rows) * len(table.used_columns)


# Results as pandas frames, to sort, filter and plot in the notebook.
#
# Documents name NaN and the infinities in words; in a frame they are numbers again.


def kind_frame(kind: str, document: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of a document of this kind: those of `FRAMES`, else one row each entry of what it lists.

    Figures and limits of a row stand in columns of their own, the latter as `limit_*`. Rows of a part, as the
    parameters of a side, have what is said of the part before them.

    >>> document = {"sides": [{"label": "a", "loss": "NaN", "parameters": [{"name": "w"}]}]}
    >>> kind_frame("params", document).to_dict("records")
    [{'label': 'a', 'loss': nan, 'name': 'w'}]
    """
    if kind in FRAMES:
        return FRAMES[kind](document)
    outer, *inner = ROWS[kind]
    rows = document[outer]
    if inner:
        rows = [{**_single_values(part), **row} for part in rows for row in part[inner[0]]]
    return _frame([dict(_flat(row)) for row in rows])


def rung_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a rung of a baseline or a card: its name, state, reason, and how much it compared."""
    return _frame(document["record"]["rungs"], ("name", "state", "reason", "compared", "unit"))


def pair_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a paired parameter of a map result: source, target, evidence, confidence, transform."""
    columns = ("source", "target", "evidence", "confidence", "transform")
    rows = [{**pair, "transform": pair["transform"]["op"]} for pair in document["name_map"]["pairings"]]
    return _frame(rows, columns)


def map_frame(result: MapResult) -> pd.DataFrame:
    """One row a pair, and one each name that is not paired.

    Columns: source, target, transform, evidence, confidence (NaN where nothing is paired), status (paired, ambiguous,
    unmatched or dropped), shapes and dtypes of both sides, note.

    >>> from align.core.name_map import NameMap, Pairing
    >>> from align.names.map_result import MapResult
    >>> pairing = Pairing("fc.weight", "head.weight", "structure", 0.9)
    >>> result = MapResult(NameMap("a", "b", (pairing,)), None, None, None)
    >>> map_frame(result)[["source", "target", "confidence"]].values.tolist()
    [['fc.weight', 'head.weight', 0.9]]
    """
    return _frame(map_rows(result), COLUMNS).astype({"confidence": "float64"})


def layer_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a compared tensor of a forward result, with all figures and the limit in force, in execution order.

    `alone_*` are of the layer in a run in which all before returned the reference's values.
    """
    return _frame([_layer_row(layer) for layer in document["layers"]])


def point_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a common step of a loss result: both values, their difference and what it may be."""
    return _data_frame({name: _column(column) for name, column in document["points"].items() if name != "count"})


def parameter_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a paired parameter of a step result: L2 norms of both gradients and updates, multiples of the limit.

    Sizes of updates are the root mean square over the steps, with both optimizers given the reference's gradients.
    """
    return _frame([_parameter_row(one) for one in step_parameters(document)])


def loss_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a training step that was captured, with its loss."""
    return _frame([{"step": step, "loss": loss} for step, loss in enumerate(document["losses"], 1)])


def followed_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a sample of a process that was followed: seconds since the start, and bytes."""
    pairs = zip(document["seconds"], document["resident"], strict=True)
    return _frame([{"seconds": seconds, "resident": resident} for seconds, resident in pairs])


FRAMES = {
    "baseline": rung_frame,
    "card": rung_frame,
    "map": pair_frame,
    "forward": layer_frame,
    "step": parameter_frame,
    "steps": loss_frame,
    "loss": point_frame,
    "followed": followed_frame,
}
# What other kinds list: a field, or a field of each entry of a field.
ROWS = {
    "against": ("new",),
    "batch": ("tasks",),
    "bisect": ("points",),
    "check": ("faults",),
    "convert": ("tensors",),
    "determinism": ("sides", "parts"),
    "diff": ("tensors",),
    "doctor": ("switches",),
    "emulate": ("layers",),
    "fix": ("places",),
    "scan": ("calls",),
    "generate": ("comparisons", "positions"),
    "hyperparameters": ("differences",),
    "advise": ("advice",),
    "initial": ("parameters",),
    "formula": ("calls",),
    "inspect": ("tensors",),
    "iterations": ("tensors",),
    "ladder": ("rungs",),
    "lint": ("findings",),
    "memory": ("sides", "layers"),
    "log": ("metrics",),
    "crash": ("steps",),
    "nonfinite": ("before",),
    "params": ("sides", "parameters"),
    "power": ("parameters",),
    "precision": ("layers",),
    "report": ("rungs",),
    "repro": ("outputs",),
    "ranks": ("ranks",),
    "watch": ("departures",),
    "watched": ("trends",),
    "samples": ("samples",),
    "scale": ("steps",),
    "switches": ("switches",),
    "tokens": ("positions",),
    "trace": ("calls", "outputs"),
    "training": ("layers",),
    "updates": ("tensors",),
    "data": ("fields",),
    "validate": ("combinations",),
    "verify": ("differs",),
}
# Fields of a row that hold figures, and what goes before the name of each as a column.
FIGURES = {
    "measurement": "",
    "accumulated": "accumulated_",
    "alone": "alone_",
    "limit": "limit_",
    "statistics": "",
    "window": "window_",
    "reference_values": "reference_",
    "candidate_values": "candidate_",
}


_NAMED = (
    "order",
    "reference",
    "candidate",
    "reference_class",
    "candidate_class",
    "call",
    "output",
    "outcome",
    "factor",
)


def _parameter_row(one: StepParameter) -> dict[str, Any]:
    row = asdict(one)
    for key in ("gradient", "update"):
        row |= {f"{side}_{key}": size for side, size in zip(SIDES, row.pop(f"{key}s"), strict=True)}
    return row


def _layer_row(layer: dict[str, Any]) -> dict[str, Any]:
    row = {name: layer[name] for name in _NAMED}
    figures = layer["measurement"] or {}
    row |= {name: value for name, value in figures.items() if not isinstance(value, list)}
    limit, alone = layer["limit"] or {}, layer.get("isolated") or {}
    row |= {f"limit_{name}": value for name, value in limit.items()}
    row |= {f"alone_{name}": alone.get(name) for name in ("outcome", "factor", "inputs_factor")}
    return row | {"amplification": layer.get("amplification")}


def _single_values(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own_fields(part).items() if not isinstance(value, (dict, list))}


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a row, with its figures, but for lists of them, among them."""
    for name, value in own_fields(row).items():
        if name in FIGURES and isinstance(value, dict):
            yield from ((f"{FIGURES[name]}{key}", one) for key, one in _single_values(value).items())
        elif name not in FIGURES or value is not None:
            yield name, value


def _frame(rows: Sequence[dict[str, Any]], columns: Sequence[str] = ()) -> pd.DataFrame:
    """Make a frame of rows, which may lack fields of others."""
    names = columns or dict.fromkeys(name for row in rows for name in row)
    return _data_frame({name: _column([row.get(name) for row in rows]) for name in names})


def _data_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Make a frame; raises FrameworkMissingError where pandas, which comes with the extra `report`, is not there."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise FrameworkMissingError("pandas", INSTALL_HINT["pandas"]) from error
    return pd.DataFrame(columns)


def _column(values: list[Any]) -> list[Any]:
    """Turn words for numbers that are not finite into these, where all else are numbers."""
    if any(isinstance(one, str) and one in NON_FINITE for one in values) and all(map(_is_figure, values)):
        return list(map(as_float, values))
    return values


def _is_figure(value: object) -> bool:
    return value is None or isinstance(value, (int, float)) or (isinstance(value, str) and value in NON_FINITE)
