"""Defects planted in the MindSpore ports of a folder of cases (see _cases.py), and whether the tool finds each.

Each case is taken clean, as published or repaired. A mutation counts by what it moves, found without the tool: the
model's output by more than 10 times what float32 and float64 differ by in PyTorch, else only its own layer on the same
inputs, else nothing: then a run cannot tell. The clean port is compared before and after, and must be aligned.
Run: python benchmarks/mutations.py FOLDER [CASE ...] [--per-case N] [--seed S] [--only TEXT] [--json]
Bars: all that moves the output detected, 98 % at the right layer, 90 % of the wrong settings that move anything with
the right cause, no false alarm; 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _cases import Case, case_names, in_process, open_case
from _judging import compared, in_words, judge_mutation
from _mutation_report import print_report, summary
from _planters_code import plant_code
from _planters_settings import plant_settings
from _planters_weights import plant_weights
from _planting import Mutation, Port
from _touched import snapshot, touched
from _watching import EPSILON, call_again, distance, rounding_of, watch

from align.core.json_data import to_json_data
from align.errors import AlignError, UserCodeError
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np


def main() -> int:
    """Plant, compare, undo; print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--per-case", type=int, default=12, help="mutations of each case")
    parser.add_argument("--seed", type=int, default=0, help="which mutations are drawn")
    parser.add_argument("--only", default="", help="only mutations whose name holds this text")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        mutate(options)
        sys.stdout.flush()
        os._exit(0)  # without the frameworks' own goodbyes
    told = ["--per-case", str(options.per_case), "--seed", str(options.seed), "--only", options.only]
    found = [
        {"case": name, "mutations": [], **in_process(__file__, [str(options.folder), name, *told])}
        for name in case_names(options.folder, options.cases)
    ]
    figures = summary(found)
    if options.json:
        print(json.dumps(to_json_data({"cases": found, **figures}), indent=1))
    else:
        print_report(found, figures)
    return 0 if figures["passed"] else 1


def mutate(options: argparse.Namespace) -> None:
    """Mutate one case; what is known is written after each mutation, for a process may die."""
    begun = time.perf_counter()
    bench = Bench(open_case(options.folder, options.cases[0]))
    found: dict[str, Any] = {"noise": bench.noise, "before": bench.before, "mutations": [], "skipped": []}
    for mutation in chosen(bench.port, f"{options.seed} {bench.case.name}", options.only):
        if len(found["mutations"]) == options.per_case:
            break
        try:
            found["mutations"].append(bench.judged(mutation))
            progress(bench.case.name, found["mutations"][-1])
        except UserCodeError as error:  # it cannot be planted, or the port no longer runs: loud without any tool
            found["skipped"].append(f"{mutation.name}: {error.message}")
        found["seconds"] = round(time.perf_counter() - begun, 1)
        options.result.write_text(json.dumps(found), encoding="utf-8")
    found |= {"after": compared(bench.case), "undone": bench.undone(), "seconds": round(time.perf_counter() - begun, 1)}
    options.result.write_text(json.dumps(found), encoding="utf-8")


def chosen(port: Port, seed: str, only: str) -> Iterator[Mutation]:
    """All mutations in a random order in which each kind has its turn."""
    by_kind = defaultdict(list)
    for plant in (plant_settings, plant_weights, plant_code):
        for mutation in plant(port):
            if only in mutation.name:
                by_kind[mutation.kind].append(mutation)
    drawn = random.Random(seed)
    groups = [drawn.sample(own, len(own)) for own in by_kind.values()]
    drawn.shuffle(groups)
    while groups := [own for own in groups if own]:
        yield from (own.pop() for own in groups)


def progress(case: str, record: dict[str, Any]) -> None:
    """A line for who waits."""
    told = "; ".join(map(in_words, record["culprits"][:2])) or record["verdict"]
    print(f"{case} [{record['moves']}] {record['name']} -> {told}", flush=True)


class Bench:
    """A clean case, and what it does when nothing is planted."""

    def __init__(self, case: Case) -> None:
        case.repair()
        self.case = case
        original = case.run_original()
        widened = case.run_original(wide=True)
        self.noise = [distance([a], [b]) for a, b in zip(original, widened, strict=True)]
        self._clean = case.run_port()
        case.restore_names()
        paths = [path for path, _ in case.net.cells_and_names()]
        self._state = snapshot(case.net)  # after a run: cells may note in it what they were given
        self.port = Port(case.net, watch(case.net, paths, case.run_port))
        self.before = compared(case)

    def judged(self, mutation: Mutation) -> dict[str, Any]:
        """Plant, find out what moves, ask the tool, undo. Raises UserCodeError where the port cannot run so."""
        undo = _guarded(f"planting {mutation.name}", mutation.plant)
        try:
            moves = self._moves(mutation)
            said = self._said(mutation)
        finally:
            undo()
            self.case.restore_names()
        if left := touched(self._state, snapshot(self.case.net)):
            sys.exit(f"not undone: {mutation.name}: {left}")
        return judge_mutation(mutation, self.port, moves, said, self.before)

    def undone(self) -> bool:
        """Tell whether the port computes bit for bit what it did before the first mutation."""
        return distance(self._clean, _guarded("the clean port", self.case.run_port)) == 0.0

    def _moves(self, mutation: Mutation) -> dict[str, Any]:
        """By how many times its noise the model's output moves, and each cell's own on what it was given before."""
        outputs = _guarded("the port", self.case.run_port)
        cells = dict(self.case.net.cells_and_names())
        layers = {}
        for path in mutation.paths:
            seen = self.port.seen[path]
            layers[path] = distance(seen.outputs, call_again(cells[path], seen)) / rounding_of(seen.outputs)
        return {"output": self._output_moves(outputs), "layers": layers}

    def _output_moves(self, outputs: list[np.ndarray]) -> float:
        if len(outputs) != len(self._clean):
            return float("inf")
        floors = [10 * max(n, EPSILON * abs(c).max()) for n, c in zip(self.noise, self._clean, strict=True)]
        parts = zip(self._clean, outputs, floors, strict=True)
        return max(distance([clean], [output]) / floor for clean, output, floor in parts)

    def _said(self, mutation: Mutation) -> dict[str, Any]:
        try:
            said = compared(self.case)
        except AlignError as error:
            said = {"verdict": "refused", "reason": str(error), "culprits": [], "findings": [], "seconds": 0.0}
        return {**said, "linted": self._linted() if mutation.lint else []}

    def _linted(self) -> list[tuple[str, str]]:
        """Cell and rule of each finding of a lint."""
        from align.lint.lint_models import lint_models

        self.case.restore_names()
        result = lint_models(self.case.model, self.case.net, name_map=self.case.name_map)
        return [(one.candidate, one.rule) for one in result.findings]


def _guarded(what: str, code: Any) -> Any:
    return run_user_code(code, lambda error: UserCodeError(what, error))


if __name__ == "__main__":
    sys.exit(main())
