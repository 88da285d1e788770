"""One class of situations, run through the forward comparison and held against what is right to say of each."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import time
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import align
from align.errors import AlignError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST = 120  # seconds that one situation may take
SHOWN = 3  # rows whose figures are shown


class _TookTooLongError(BaseException):
    """Raised by the alarm; no code of a user catches it."""


def run_class(name: str, only: str, skip: int, result: Path) -> None:
    """Run the situations of `situations/NAME.py` whose names contain `only`, but for the first `skip` of them.

    What is known stands in `result` before each of them: frameworks may end the process. It runs in the folder of
    that file, for they leave things there.
    """
    situations = [one for one in importlib.import_module(f"situations.{name}").SITUATIONS if only in one.name][skip:]
    os.chdir(result.parent)
    found: list[dict[str, Any]] = []
    for one in situations:
        known = {"situations": found, "running": {"class": name, "name": one.name, "twin": one.twin}}
        result.write_text(json.dumps(known), encoding="utf-8")
        found.append({"class": name, **run(one)})
    result.write_text(json.dumps({"situations": found}), encoding="utf-8")


def run(situation: Any) -> dict[str, Any]:
    """Compare one situation; say what came of it and what is wrong with that, "" if nothing is."""
    begun, factor = time.perf_counter(), 0.0
    try:
        with _alarm(LONGEST):
            (got, said, told), shown, factor = compare(situation)
    except AlignError as error:
        said = told = f"{type(error).__name__}: {error} {error.hint or ''}"
        got, shown = "could not compare", []
    except _TookTooLongError:
        got, said, told, shown = "slow", f"more than {LONGEST} s", "", []
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the user would meet
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = told = f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})"
        got, shown = "crash", []
    return {
        "name": situation.name,
        "twin": situation.twin,
        "expected": list(situation.expected),
        "got": got,
        "wrong": wrong(situation, got, told),
        "seconds": round(time.perf_counter() - begun, 1),
        "said": " ".join(said.split())[:600],
        "factor": factor,
        "figures": shown,
    }


def compare(situation: Any) -> tuple[tuple[str, str, str], list[str], float]:
    """The outcome, its reason and all that is said, with the figures of a forward comparison and the worst of them."""
    if hasattr(situation, "compare"):
        return situation.compare(), [], 0.0
    result = align.compare_forward(situation.reference(), situation.candidate(), inputs=situation.inputs())
    said = result.verdict.outcome.value, result.verdict.reason, all_said(result)
    return said, figures(result), max(map(_worst, result.layers), default=0.0)


@contextmanager
def _alarm(seconds: int) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise _TookTooLongError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wrong(situation: Any, got: str, told: str) -> str:
    """What is wrong with an outcome; a right one must also come with its words."""
    if got in ("crash", "slow"):
        return got
    if got not in situation.expected:
        return {"aligned": "false aligned", "not aligned": "false alarm", "could not compare": "refused"}[got]
    words = situation.caveat if got == "aligned" else situation.named
    missing = [word for word in words if not re.search(word, told, re.IGNORECASE)]
    return "unsaid" if missing else ""


def all_said(result: Any) -> str:
    """The reason, the findings, the parts at fault, and the notes of what is not aligned or not comparable."""
    findings = [f"{one.code} {one.subject} {one.message}" for one in result.findings]
    culprits = [f"{one.candidate} {one.reference} {one.cause} {one.change}" for one in result.culprits]
    notes = [f"{row.candidate} {row.output} {row.note}" for row in result.layers if row.outcome != "aligned"]
    caveats = [str(one) for one in getattr(result.verdict, "caveats", ())]
    return "\n".join([result.verdict.reason, *findings, *culprits, *notes, *caveats])


def figures(result: Any) -> list[str]:
    """The models' own outputs, and the layers that are nearest to their limits or beyond: gathered, and alone."""
    outputs = [row for row in result.layers if not row.reference]
    layers = sorted((row for row in result.layers if row.reference), key=_worst, reverse=True)
    return [in_figures(row) for row in (*outputs[:SHOWN], *layers[:SHOWN])]


def _worst(row: Any) -> float:
    return max(row.factor or 0.0, (row.isolated and row.isolated.factor) or 0.0)


def in_figures(row: Any) -> str:
    """One row: by how much it differs, what it may differ by, and the same alone."""
    text = [f"{row.reference or 'model'} {row.output} {row.outcome}"]
    for word, judged in (("gathered", row), ("alone", row.isolated)):
        if judged is not None and judged.factor and judged.measurement is not None and judged.limit is not None:
            measured, limit = judged.measurement, judged.limit
            text.append(
                f"{word} {judged.factor:.3g} x limit: max {measured.max_abs:.2g} of {limit.max_abs:.2g}, rms"
                f" {measured.rmse:.2g} of {limit.rmse:.2g} ({limit.source}), relative {measured.relative_l2 or 0:.2g}"
            )
    return "; ".join([*text, row.note] if row.note else text)
