"""Training steps of ports that were written by hand: clean steps, and faults that somebody else thought of.

A folder of tests/planted/training_ports holds the original and its port with training(), the batches, the true map, and
FAULTS: what is replaced in the port, where that is, and what a colleague would answer. `causes` are the ids of causes
that say so. A cause is right too where the functional call, or the line, that is named stands in what was replaced, or
where the line of the original that is named holds what the port `lacks`.

Run: python benchmarks/training_ports.py [NAME ...] [--clean N] [--only PATTERN] [--batches N] [--verbose] [--json]
  --clean N  N clean pairs of batches each, in the place of the faults
Bars: detected 98 % of what moves anything, place 95 %, cause 88 %, wrong "confirmed" 1 %, no stranger, no false alarm.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from _cases import in_process

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parents[1] / "tests/planted/training_ports"
CALL_DIFFERS = "call-differs"  # says where, and is measured, whatever the cause
BARS = {"detected": 0.98, "place": 0.95, "cause": 0.88}
WHERE = {
    "loss": ("loss",),
    "forward": ("layer", "code", "loss"),
    "gradients": ("layer", "code", "step", "loss", "parameters"),
    "loop": ("step", "loss", "optimizer"),
    "optimizer": ("optimizer", "parameters"),
    "params": ("parameters", "optimizer", "layer", "step"),
    "statistics": ("layer", "step", "optimizer"),
}


def main() -> int:
    """Print a line a fault, and the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--clean", type=int, default=0, metavar="N")
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--batches", type=int, default=2, metavar="N")
    parser.add_argument("--verbose", action="store_true", help="print what was said of each fault")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        options.result.write_text(json.dumps([*tried(options)]), encoding="utf-8")
        return 0
    found: list[dict[str, Any]] = []
    for name in options.names or sorted(path.parent.name for path in FOLDER.glob("*/faults.py")):
        told = [name, "--clean", str(options.clean), "--only", options.only, "--batches", str(options.batches)]
        rows = in_process(__file__, told)
        rows = [{"port": name, "fault": "?", "failed": rows["failed"]}] if isinstance(rows, dict) else rows
        for row in rows:
            print(line_of(row, verbose=options.verbose), flush=True, file=sys.stderr if options.json else sys.stdout)
        found += rows
    return summed_up(found, as_json=options.json)


def tried(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What `align step` says of one port: clean, or with each of its faults."""
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    folder = FOLDER / options.names[0]
    if options.clean:
        for number in range(options.clean):
            fault = {"name": f"clean {number}", "where": "", "moves": False}
            yield compared(folder, fault, [2 * number, 2 * number + 1])
        return
    for fault in module_at(folder / "faults.py").FAULTS:
        if re.search(options.only, fault["name"]):
            yield compared(folder, fault, [*range(options.batches)])


def compared(folder: Path, fault: dict[str, Any], batches: list[int]) -> dict[str, Any]:
    """Compare the original with the port that has a fault."""
    import align
    from align.errors import AlignError

    row = {
        "port": folder.name,
        "fault": fault["name"],
        "moves": fault["moves"] or fault.get("later", False),
        "where": fault["where"],
    }
    row["answer"] = fault.get("answer", "")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as place:
        for path in folder.glob("*.py"):
            shutil.copy(path, place)
        port = Path(place, "port.py")
        if "old" in fault:
            port.write_text(port.read_text(encoding="utf-8").replace(fault["old"], fault["new"]), encoding="utf-8")
        batch, lines = module_at(Path(place, "data.py")).batch, lines_of(fault, port)
        try:
            result = align.compare_training_step(
                f"{place}/original.py:training", f"{port}:training",
                batch=[as_given(batch(number)) for number in batches], steps=max(3, len(batches)),
                name_map=true_map(folder),
            )  # fmt: skip
        except AlignError as error:
            return {**row, "failed": str(error)}
    told = [
        f"{one.kind}/{one.part}/{one.candidate}/{one.near}: {one.cause} {one.facts} ({one.sureness})"
        + (f" {one.inside.function} at {one.inside.lines} {one.inside.difference}" if one.inside else "")
        for one in result.culprits
    ]
    right = [one for one in result.culprits if is_at(fault, one)]
    known = set(fault.get("causes", ()))
    told_so = [
        one
        for one in right
        if known & {*one.cause.split(" + ")} or lines & lines_named(one) or names_what_lacks(fault, one, folder)
    ]
    return {
        **row,
        "detected": result.verdict.exit_code == 1,
        "place": bool(right),
        "cause": bool(told_so),
        "false": sum(one.sureness == "confirmed" and one not in told_so and one.cause != CALL_DIFFERS
                     for one in result.culprits),
        "strangers": len(result.culprits) - len(right),
        "told": told,
        "seconds": round(time.perf_counter() - begun, 1),
    }  # fmt: skip


def lines_of(fault: dict[str, Any], port: Path) -> set[int]:
    """The lines of a port that a fault replaced; of what it took out the one in its place."""
    text = port.read_text(encoding="utf-8")
    if not fault.get("new"):
        return set()
    first = text[: text.index(fault["new"])].count("\n") + 1
    return {*range(first, first + fault["new"].count("\n") + 1)}


def lines_named(one: Any) -> set[int]:
    """The lines that a culprit names as those of code at fault."""
    named = one.inside.lines if one.inside else (one.line,) if one.part == "layer" else ()
    return {int(line.rpartition(":")[2]) for line in named if line}


def names_what_lacks(fault: dict[str, Any], one: Any, folder: Path) -> bool:
    """Tell whether a culprit names the line of the original that holds what the port left out."""
    if "lacks" not in fault or one.inside is None:
        return False
    original = Path(folder, "original.py").read_text(encoding="utf-8").splitlines()
    file, _, line = one.inside.reference_line.rpartition(":")
    return file.endswith("original.py") and fault["lacks"] in original[int(line) - 1]


def as_given(value: Any) -> Any:
    """A batch whose whole numbers are int64, as the original takes them."""
    if isinstance(value, dict):
        return {key: as_given(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_given(one) for one in value]
    return value.astype(np.int64) if value.dtype == np.int32 else value


def is_at(fault: dict[str, Any], one: Any) -> bool:
    """Tell whether a culprit stands where the fault is, or in a like module: at it, around it or inside of it."""
    if one.part not in (*WHERE.get(fault["where"], ()), *fault.get("parts", ())):
        return False
    if one.part not in ("layer", "code") or not fault["module"]:
        return True
    inside, path, near = (re.sub(r"\d+", "0", name) for name in (fault["module"], one.candidate or one.near, one.near))
    return not path or path.startswith(inside) or inside.startswith(path) or near.startswith(inside)


def true_map(folder: Path) -> Any:
    """The true map of a folder as a NameMap."""
    from align.core.name_map import Dropped, NameMap, Pairing
    from align.core.transforms import Identity
    from align.names.map_file import parse_transform
    from align.words.catalogue import sentence

    truth = module_at(folder / "true_map.py")
    pairings = tuple(
        Pairing(source, target, "user", 1.0, parse_transform({"op": "chain", "steps": steps}) if steps else Identity())
        for source, target, steps in truth.PAIRS
    )
    reason = sentence("unmatched_reason.computed")
    dropped = tuple(
        Dropped(name, side, reason)
        for side, names in (("source", truth.DROP_SOURCE), ("target", truth.DROP_TARGET))
        for name in names
    )
    return NameMap("original", "port", pairings, dropped)


def module_at(path: Path) -> Any:
    """A module by its path, read anew."""
    spec = importlib.util.spec_from_file_location(f"training_port_{path.stem}_{path.parent.name}", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def line_of(row: dict[str, Any], *, verbose: bool) -> str:
    """One row for people."""
    head = f"{row['port']:12s} {row['fault']:32s}"
    if "failed" in row:
        return f"{head} FAILED: {row['failed'][:400]}"
    marks = [name for name in BARS if not row[name]] if row["moves"] else ["FALSE ALARM"] if row["detected"] else []
    marks += [f"{row[key]} {key}" for key in ("false", "strangers") if row[key] and row["moves"]]
    state = f"{head} {row['seconds']:5.1f} s  {'no ' if marks else 'ok'}{', '.join(marks)}"
    said = [f"    {row['where']}: {row['answer']}", *(f"    <- {one}" for one in row["told"])]
    return "\n".join([state, *said]) if marks or verbose else state


def summed_up(rows: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print the shares of all; 1 if a bar is missed."""
    ran = [row for row in rows if "failed" not in row]
    counted, still = [row for row in ran if row["moves"]], [row for row in ran if not row["moves"]]
    shares = {name: sum(row[name] for row in counted) / len(counted) for name in BARS} if counted else {}
    strangers, false = (sum(row[key] for row in counted) for key in ("strangers", "false"))
    alarms = sum(row["detected"] for row in still)
    if as_json:
        print(json.dumps({"shares": shares, "strangers": strangers, "false": false, "alarms": alarms, "rows": rows}))
    else:
        told = ", ".join(f"{name} {share:.1%} (bar {BARS[name]:.0%})" for name, share in shares.items())
        print(f"{len(counted)} faults that move something: {told}; {strangers} strangers, {false} wrong confirmed; "
              f"{alarms} alarms in {len(still)} that move nothing; {len(rows) - len(ran)} failed")  # fmt: skip
    return int(
        any(share < BARS[name] for name, share in shares.items()) or bool(strangers or alarms or len(rows) > len(ran))
    )


if __name__ == "__main__":
    sys.exit(main())
