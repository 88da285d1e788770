"""Defects planted in the MindSpore ports of a folder of cases (see _cases.py), and whether the tool finds each.

The folder may hold written ports instead (see _written_ports.py): tests/planted/ports.

Each case is taken clean, as published or repaired. A mutation counts by what it moves, found without the tool: the
model's output by more than 10 times what float32 and float64 differ by in PyTorch, else only its own layer on the same
inputs, else nothing: then a run cannot tell. The clean port is compared before and after, and must be aligned.

--ways says how each case is run, several with commas between, each in a process of its own:
  plain      one batch in float32; wrong settings, weights and code (the default)
  float16, bfloat16   both sides in this precision; of the same those that move the output by more than 10 times what
             this precision and float32 differ by in PyTorch
  batches    two batches; of the same those that move the output
  state      two batches; what a cell keeps of its first call: its output, an argument, a mask, positions, statistics
  masks      a mask of padding with zeros in it; ignored, inverted, shifted, of another sample, on another axis
A case that cannot be run in a way is told and left out. Outputs at positions that a mask hides do not count.

Run: python benchmarks/mutations.py FOLDER [CASE ...] [--ways WAY,...] [--per-case N] [--seed S] [--only TEXT]
    [--family FAMILY] [--json]
Bars: all that moves the output detected, 98 % at the right layer, 90 % of the wrong settings that move anything with
the right cause, 98 % in the right batch where there are two, no false alarm; 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import defaultdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _cases import Case, case_names, in_process
from _judging import compared, in_words, judge_mutation
from _mutation_report import print_report, summary
from _planting import Mutation, NotPlantableError, Port
from _touched import snapshot, touched
from _watching import call_again, distance, rounding_of, watch
from _ways import EPSILONS, WAYS, NoSuchWayError, Way, open_in

from align.core.documents import to_json_data
from align.errors import AlignError, UserCodeError
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from _planting import Undo

TRIES = 10  # of so many mutations for each that is asked for, those are taken that move the output


def main() -> int:
    """Plant, compare, undo; print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--ways", default="plain", help=f"how cases are run: {', '.join(WAYS)}")
    parser.add_argument("--per-case", type=int, default=12, help="mutations of each case")
    parser.add_argument("--seed", type=int, default=0, help="which mutations are drawn")
    parser.add_argument("--only", default="", help="only mutations whose name holds this text")
    parser.add_argument("--family", default="", help="only settings, weights, code, state or masks")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        mutate(options)
        sys.stdout.flush()
        os._exit(0)  # without the frameworks' own goodbyes
    told = ["--per-case", str(options.per_case), "--seed", str(options.seed), "--only", options.only]
    told += ["--family", options.family]
    found = [
        {"case": f"{name} {way}".removesuffix(" plain"), "mutations": []}
        | in_process(__file__, [str(options.folder), name, "--ways", way, *told])
        for name in case_names(options.folder, options.cases)
        for way in ways_of(parser, options.ways)
    ]
    figures = summary(found)
    if options.json:
        print(json.dumps(to_json_data({"cases": found, **figures}), indent=1))
    else:
        print_report(found, figures)
    return 0 if figures["passed"] else 1


def ways_of(parser: argparse.ArgumentParser, text: str) -> list[str]:
    """The ways that a text names."""
    ways = text.split(",")
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"no way is called {', '.join(unknown)}; known: {', '.join(WAYS)}")
    return ways


def mutate(options: argparse.Namespace) -> None:
    """Mutate one case; what is known is written after each mutation, for a process may die."""
    begun = time.perf_counter()
    try:
        bench = Bench(WAYS[options.ways], options.folder, options.cases[0])
    except (NoSuchWayError, UserCodeError) as error:
        options.result.write_text(json.dumps({"cannot": " ".join(f"{error}".split())[:200]}), encoding="utf-8")
        return
    found: dict[str, Any] = {"noise": bench.noise, "before": bench.before, "mutations": [], "skipped": []}
    wanted = (options.only, options.family)
    drawn = chosen(bench.port, bench.way, f"{options.seed} {bench.case.name}", *wanted)
    for mutation in islice(drawn, TRIES * options.per_case if bench.way.loud else None):
        if len(found["mutations"]) == options.per_case:
            break
        try:
            found["mutations"].append(bench.judged(mutation))
            progress(bench.case.name, found["mutations"][-1])
        except UserCodeError as error:  # it cannot be planted, or the port no longer runs: loud without any tool
            found["skipped"].append(f"{mutation.name}: {error.message}")
            continue
        except NotPlantableError:  # it is not loud enough
            continue
        found["seconds"] = round(time.perf_counter() - begun, 1)
        options.result.write_text(json.dumps(found), encoding="utf-8")
    found |= {"after": compared(bench.case), "undone": bench.undone(), "seconds": round(time.perf_counter() - begun, 1)}
    options.result.write_text(json.dumps(found), encoding="utf-8")


def chosen(port: Port, way: Way, seed: str, only: str = "", family: str = "") -> Iterator[Mutation]:
    """All mutations of a way in a random order in which each kind has its turn."""
    by_kind = defaultdict(list)
    for mutation in way.mutations(port):
        if only in mutation.name and family in ("", mutation.family):
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
    """A clean case run in one way, and what it does when nothing is planted.

    Raises NoSuchWayError where it cannot be run so, UserCodeError where a framework cannot.
    """

    def __init__(self, way: Way, folder: Path, name: str) -> None:
        self.way = way
        self.case: Case = open_in(way, folder, name)
        _guarded("the clean port", self.case.run_port)
        original = _guarded("the model", self.case.run_original)
        widened = _guarded("the model", partial(self.case.run_original, wide=True))
        self.noise = [distance([a], [b]) for a, b in zip(original, widened, strict=True)]
        self._clean = self.case.run_port()
        self._epsilon = EPSILONS[way.dtype]
        self.case.restore_names()
        paths = [path for path, _ in self.case.net.cells_and_names()]
        self._state = snapshot(self.case.net)  # after a run: cells may note in it what they were given
        seen = [watch(self.case.net, paths, partial(self.case.run_port_on, batch)) for batch in self.case.batches]
        self.port = Port(self.case.net, seen[0], tuple(seen[1:]))
        self.before = compared(self.case)

    def judged(self, mutation: Mutation) -> dict[str, Any]:
        """Plant, find out what moves, ask the tool, undo.

        Raises UserCodeError where the port cannot run so, NotPlantableError where it is not loud enough.
        """
        undo = _guarded(f"planting {mutation.name}", mutation.plant)
        try:
            outputs = self._output_moves(_guarded("the port", self.case.run_port))
            if self.way.loud and max(outputs) <= 1:
                raise NotPlantableError
            undo = _afresh(mutation, undo)
            moves = self._moves(mutation, outputs)
            undo = _afresh(mutation, undo)
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

    def _moves(self, mutation: Mutation, outputs: list[float]) -> dict[str, Any]:
        """By how many times its noise the model's output moves, and each cell's own on what it was given before."""
        cells = dict(self.case.net.cells_and_names())
        batches = [seen for seen in (self.port.seen, *self.port.later) if all(path in seen for path in mutation.paths)]
        ratios: dict[str, list[float]] = {path: [] for path in mutation.paths}
        for seen in batches:
            for path in mutation.paths:
                clean = seen[path].outputs
                moved = distance(clean, call_again(cells[path], seen[path]))
                ratios[path].append(moved / rounding_of(clean, self._epsilon))
        layers = {path: max(own) for path, own in ratios.items()}
        return {"output": max(outputs), "layers": layers, "batch": _first_batch([*ratios.values(), outputs])}

    def _output_moves(self, outputs: list[np.ndarray]) -> list[float]:
        """The largest move of each batch, in multiples of 10 times the noise."""
        if len(outputs) != len(self._clean):
            return [float("inf")]
        epsilon = EPSILONS["float32"]
        floors = [10 * max(n, epsilon * abs(c).max()) for n, c in zip(self.noise, self._clean, strict=True)]
        parts = zip(self._clean, outputs, floors, strict=True)
        moves = [distance([clean], [output]) / floor for clean, output, floor in parts]
        size = len(moves) // len(self.case.batches)
        return [max(moves[start : start + size]) for start in range(0, len(moves), size)]

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


def _afresh(mutation: Mutation, undo: Undo) -> Undo:
    """What keeps something of its calls is planted anew: nothing has been called yet."""
    if mutation.family != "state":
        return undo
    undo()
    return mutation.plant()


def _first_batch(ratios: list[list[float]]) -> str | None:
    """The first of several batches in which anything moves."""
    moving = [any(ratio > 1 for ratio in one) for one in zip(*ratios, strict=False)]
    return f"{moving.index(True) + 1} of {len(moving)}" if len(moving) > 1 and any(moving) else None


def _guarded(what: str, code: Any) -> Any:
    return run_user_code(code, lambda error: UserCodeError(what, error))


if __name__ == "__main__":
    sys.exit(main())
