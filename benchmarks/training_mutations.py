"""Faults planted in training steps of ports, and whether `align step` finds each; and clean steps, for false alarms.

The pairs are those of tests/planted/step_nets.py: an MLP with BatchNorm, a ResNet, a Transformer encoder and an LSTM of
torch.nn and mindspore.nn, trained on digits. A fault stands in the loss, in a layer's way back, in a layer, in the
optimizer, or in the loop. It counts if it moves something, found without the tool: after three steps of its own the
port's parameters and statistics differ from the right port's by more than 1e-5 of the largest value of a tensor, a
hundred times the rounding of float32.

Run: python benchmarks/training_mutations.py [--clean N] [--seeds N] [--only PATTERN] [--json]
  --clean N  N clean steps of each of the 20 pairs (net and optimizer), other batches and weights each
  --seeds N  each fault on N other weights and batches (1)
  --cases DIR  real pairs of a folder of cases in the place of the four (see _training_cases.py), with faults of theirs
Bars: 97 % detected, 95 % at the right place, 90 % with the right cause, no stranger, no false alarm; 1 if one is
missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _optimizer_faults import CLEAN_PAIRS
from _planted_fault import Fault, Outcome, moves, outcome_of
from _training_cases import tried_cases
from _training_faults import FAULTS

import align
from align.errors import AlignError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.training.step_result import StepComparison

PAIRS_FILE = Path(__file__).parents[1] / "tests" / "planted" / "step_nets.py"
STEPS = 3
BARS = {"detected": 0.97, "place": 0.95, "cause": 0.90}


def main() -> int:
    """Plant, compare; print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", type=int, default=0, metavar="N")
    parser.add_argument("--seeds", type=int, default=1, metavar="N")
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--cases", type=Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.cases:
        return _real(options.cases, options.only, as_json=options.json)
    nets = step_nets()
    if options.clean:
        return _clean(nets, [*_clean_pairs(nets, options.clean, options.only)], as_json=options.json)
    outcomes = []
    for seed in range(options.seeds):
        for fault in FAULTS:
            for net in fault.nets:
                if re.search(options.only, f"{fault.group} {fault.name} {net}"):
                    outcomes.append(_tried(nets, fault, net, seed))
                    if not options.json:
                        print(_line(outcomes[-1]), flush=True)
    return _summed_up(outcomes, as_json=options.json)


def _real(folder: Path, only: str, *, as_json: bool) -> int:
    """Clean steps and faults of real pairs."""
    outcomes: list[Outcome] = []
    alarms: list[str] = []
    for false, found in tried_cases(folder, only):
        alarms, outcomes = alarms + false, outcomes + found
        print(*(f"false alarm: {text}" for text in false), *map(_line, found), sep="\n", flush=True, file=sys.stderr)
    code = _summed_up(outcomes, as_json=as_json)
    return int(bool(alarms)) or code


def step_nets() -> Any:
    """The module of the small pairs, which stands among the tests."""
    spec = importlib.util.spec_from_file_location("step_nets", PAIRS_FILE)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    sys.modules["step_nets"] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def _tried(nets: Any, fault: Fault, net: str, seed: int) -> Outcome:
    batch = nets.batch(start=16 * seed)
    moved = moves(fault.clean(nets, net, seed), fault.faulty(nets, net, seed), batch, STEPS)
    result = align.compare_training_step(*(make(nets, net, seed) for make in (fault.reference, fault.faulty)),
                                         batch=batch, steps=STEPS)  # fmt: skip
    return outcome_of(fault, (net, seed), result, moved=moved)


def _line(one: Outcome) -> str:
    state = "moves nothing" if not one.moved else "missed" if not one.detected else "found"
    marks = "" if not one.moved or (one.place and one.cause and not one.strangers) else f"  <- {'; '.join(one.told)}"
    return f"{one.group:10s} {one.fault:34s} {one.net:8s} {state}{marks}"


def _summed_up(outcomes: list[Outcome], *, as_json: bool) -> int:
    counted = [one for one in outcomes if one.moved]
    shares = {name: sum(getattr(one, name) for one in counted) / max(1, len(counted)) for name in BARS}
    strangers = sum(one.strangers for one in outcomes)
    if as_json:
        print(json.dumps({"shares": shares, "strangers": strangers, "outcomes": [repr(one) for one in outcomes]}))
    else:
        told = ", ".join(f"{name} {share:.1%} (bar {BARS[name]:.0%})" for name, share in shares.items())
        print(f"{len(counted)} of {len(outcomes)} faults move something: {told}; {strangers} strangers")
    return int(any(share < BARS[name] for name, share in shares.items()) or strangers > 0)


def _clean(nets: Any, pairs: Sequence[tuple[str, str, int]], *, as_json: bool) -> int:
    alarms: dict[str, list[str]] = defaultdict(list)
    started, runs = time.perf_counter(), 0
    for net, optimizer, number in pairs:
        runs += 1
        reference, port = (make(nets, net, number) for make in CLEAN_PAIRS[optimizer])
        try:
            result: StepComparison = align.compare_training_step(
                reference, port, batch=nets.batch(start=16 * (number % 30)), steps=2
            )
        except AlignError as error:
            alarms[f"{net} {optimizer}"].append(f"{number}: {error.message}")
            continue
        if result.verdict.exit_code:
            alarms[f"{net} {optimizer}"].append(f"{number}: {[(one.kind, one.candidate) for one in result.culprits]}")
    if as_json:
        print(json.dumps({"runs": runs, "alarms": alarms}))
    else:
        print(f"{sum(map(len, alarms.values()))} alarms in {runs} clean steps, {time.perf_counter() - started:.0f} s")
        for pair, told in alarms.items():
            print(pair, *told, sep="\n  ")
    return int(bool(alarms))


def _clean_pairs(nets: Any, count: int, only: str) -> Iterator[tuple[str, str, int]]:
    for net in nets.NETS:
        for optimizer in CLEAN_PAIRS:
            if re.search(only, f"{net} {optimizer}"):
                yield from ((net, optimizer, number) for number in range(count))


if __name__ == "__main__":
    sys.exit(main())
