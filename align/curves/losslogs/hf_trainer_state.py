"""`trainer_state.json` of the Hugging Face Trainer.

Each loss is the mean since the last print, over as many steps as `step` went on; all else is of one step. The summary
at the end is of the whole run and no record. An explicit `null` is NaN.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from align.curves.log_parts.table_builder import as_table, read_step
from align.curves.log_parts.validation_metrics import phase_by_name
from align.curves.loss_log import RAW, SINCE_LAST_PRINT, LogRecord, LossLog
from align.errors import EmptyLogError
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.curves.log_sources import LogSource
    from align.curves.loss_log import Window

_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_ENTRY = re.compile(r"[\s,]*\{")
_END = re.compile(r"\s*\]")


class TrainerStateFormat:
    """One JSON object with `log_history` and `global_step`."""

    name = "hf_trainer_state"
    summary = "trainer_state.json of the Hugging Face Trainer"
    requires: tuple[str, ...] = ()
    quoted = False
    sample = (
        b'{"epoch": 1.0, "global_step": 4, "log_history": [\n'
        b'{"epoch": 0.5, "grad_norm": 1.54, "learning_rate": 4.3e-05, "loss": 0.25994735956192017, "step": 2},\n'
        b'{"epoch": 1.0, "grad_norm": 0.95, "learning_rate": 3.1e-05, "loss": 0.20888003706932068, "step": 4},\n'
        b'{"epoch": 1.0, "eval_loss": 0.23425716161727905, "step": 4}]}\n'
    )

    def recognizes(self, source: LogSource) -> bool:
        """Tell whether an object begins that has a log history; a long one is not parsed for that."""
        return source.text.lstrip().startswith("{") and _HISTORY.search(source.text) is not None

    def read(self, source: LogSource) -> LossLog:
        """Read the log history; raises EmptyLogError if no entry has a loss."""
        ignored: list[int] = []
        history, notes = _history(source)
        table = as_table(_records(history, ignored), _window, phase_by_name)
        if "loss" not in table.metrics:
            raise EmptyLogError(source.label, [self.summary])
        return LossLog(
            label=source.label,
            format=self.name,
            table=table,
            loss_name="loss",
            counting="global step",
            base=1,
            ignored_lines=len(ignored),
            notes=notes,
        )


def _history(source: LogSource) -> tuple[list[Any], tuple[str, ...]]:
    """Return the entries, and a note where the file is no single whole document."""
    state = source.document
    if state is None:
        return _whole_entries(source.text)
    history = state.get("log_history") if isinstance(state, dict) else None
    return (history if isinstance(history, list) else []), ()


def _whole_entries(text: str) -> tuple[list[Any], tuple[str, ...]]:
    """Return the entries of all histories that are there, each up to where it is cut."""
    decoder, entries, ends = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str), [], []
    histories = [begun.end() for begun in _HISTORY.finditer(text)]
    for first in histories:
        at = first
        while (begun := _ENTRY.match(text, at)) is not None:
            try:
                entry, at = decoder.raw_decode(text, begun.end() - 1)
            except (ValueError, RecursionError):
                break
            entries.append(entry)
        ends.append(_END.match(text, at) is not None)
    if not entries:
        return [], ()
    several = [sentence("logs_note.several_documents", count=len(histories))] if len(histories) > 1 else []
    cut = [sentence("logs_note.cut_file")] if not all(ends) or len(histories) == 1 else []
    return entries, (*several, *cut)


def _records(history: list[Any], ignored: list[int]) -> Iterator[LogRecord]:
    """Yield entries with a step; `line` is the place in the history, from 1."""
    for place, entry in enumerate(history, start=1):
        entries = entry.items() if isinstance(entry, dict) else ()
        texts = {name: value or "nan" for name, value in entries if value is None or isinstance(value, str)}
        step = read_step(texts.get("step", ""))
        if step is None or "train_runtime" in texts:
            ignored.append(place)
        else:
            yield LogRecord(place, step, None, {name: text for name, text in texts.items() if name != "step"})


def _window(name: str) -> Window:
    return SINCE_LAST_PRINT if name == "loss" else RAW


PLUGIN = TrainerStateFormat()
