"""The tool on real ports with known faults: each as published and after its repair (cases: see _cases.py).

What is wrong is found without the tool: the cells that the repair touches, and of these the ones that return something
else on the same inputs. A culprit is right at such a cell, near it right around, inside, or at the cell that begins
next (where the original has no module for the cell), else a stranger; on a clean or repaired port each culprit, and
each verdict but "aligned", is a false alarm.
Run: python benchmarks/known_faults.py FOLDER [CASE ...] [--json]; 1 if a fault was missed or an alarm was false.
Bars: every visible fault named, no stranger, no false alarm.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from _cases import Case, case_names, in_process, open_case
from _judging import compared, in_words
from _planting import Port
from _touched import snapshot, touched
from _watching import EPSILON, call_again, distance, rounding_of, watch

from align.core.documents import to_json_data

COUNTED = ("faults", "named", "right", "near", "strangers", "false alarms", "seconds")


def main() -> int:
    """Print what the tool said of each case, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        options.result.write_text(json.dumps(judged(options.folder, options.cases[0])), encoding="utf-8")
        os._exit(0)  # without the frameworks' own goodbyes
    found = []
    for name in case_names(options.folder, options.cases):
        found.append({"case": name, **in_process(__file__, [str(options.folder), name])})
        if not options.json:
            print(*lines(found[-1]), sep="\n", flush=True)
    total = totals(found)
    plain = to_json_data({"cases": found, "totals": total})
    print(json.dumps(plain, indent=1) if options.json else in_figures("TOTAL", total))
    return int(total["named"] < total["faults"] or any(total[k] for k in ("strangers", "false alarms", "failed")))


def judged(folder: Path, name: str) -> dict[str, Any]:
    """Compare one case as published and, where it has a repair, mended; hold both against the truth."""
    case = open_case(folder, name)
    published = compared(case)
    if not hasattr(case.module, "repair"):
        clean = {**published, "output": output_noise(case)}
        return {"diverges": case.diverges, "clean": clean, **figures({}, None, clean)}
    mended = open_case(folder, name)
    before = snapshot(mended.net)
    mended.repair()
    changed = touched(before, snapshot(mended.net))
    port = Port(mended.net, watch(mended.net, before.keys(), mended.run_port))
    truth = {path: effect(case.net, port, path, names) for path, names in changed.items()}
    clean = {**compared(mended), "output": output_noise(mended)}
    return {
        "diverges": case.diverges,
        "truth": truth,
        "published": published,
        "clean": clean,
        **figures(truth, published, clean),
    }


def output_noise(case: Case) -> float:
    """By how many times what float32 and float64 differ by in PyTorch the outputs of a clean port differ."""
    case.restore_names()
    original = case.run_original()
    return distance(original, case.run_port()) / max(distance(original, case.run_original(wide=True)), EPSILON)


def effect(published: Any, port: Port, path: str, names: list[str]) -> dict[str, Any]:
    """What is known of a touched cell: its class, what differs, how many roundings its output moves, what is near."""
    cell, seen = dict(published.cells_and_names()).get(path), port.seen.get(path)
    moves = moved(cell, seen)
    return {
        "class": type(cell).__name__ if cell is not None else "",
        "differs": names[:6],
        "moved": moves,
        "visible": moves > 1,
        "at": sorted(port.same_layer(path)),
        "near": sorted(port.beside(path) - {""}) if seen else [],
    }


def moved(cell: Any, seen: Any) -> float:
    """By how many times what may be rounding a cell's output differs from what was seen; 0 if it is not called."""
    if seen is None or cell is None:
        return 0.0 if seen is None else float("inf")
    return distance(seen.outputs, call_again(cell, seen)) / rounding_of(seen.outputs)


def figures(truth: dict[str, Any], published: dict[str, Any] | None, clean: dict[str, Any]) -> dict[str, Any]:
    """The counts of one case."""
    visible = [fact for fact in truth.values() if fact["visible"]]
    culprits = [one["candidate"] for one in published["culprits"]] if published else []
    at = {path for fact in truth.values() for path in fact["at"]}
    near = {path for fact in visible for path in fact["near"]} - at
    return {
        "faults": len(visible),
        "named": sum(not set(culprits).isdisjoint([*fact["at"], *fact["near"]]) for fact in visible),
        "right": sum(path in at for path in culprits),
        "near": sum(path in near for path in culprits),
        "strangers": sum(path not in at | near for path in culprits),
        **{key: told(published, key) for key in ("cause", "sureness")},
        "false alarms": len(clean["culprits"]) or int(clean["verdict"] != "aligned"),
        "seconds": round((published["seconds"] if published else 0) + clean["seconds"], 1),
    }


def told(published: dict[str, Any] | None, key: str) -> dict[str, int]:
    """How often each word stands in the culprits."""
    return dict(Counter(one[key] or "none" for one in published["culprits"])) if published else {}


def totals(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over all cases that ran."""
    ran = [one for one in found if "failed" not in one]
    sums: dict[str, Any] = {name: round(sum(one[name] for one in ran), 1) for name in COUNTED}
    for name in ("cause", "sureness"):
        sums[name] = dict(sum((Counter(one[name]) for one in ran), Counter()))
    return {**sums, "cases": len(ran), "failed": len(found) - len(ran)}


def lines(one: dict[str, Any]) -> list[str]:
    """One case in words."""
    if "failed" in one:
        return [f"{one['case']:22} could not run: {one['failed']}"]
    text = [in_figures(one["case"], one)]
    if one["diverges"]:
        text.append(f"    the case says: {one['diverges']}")
    truth = one.get("truth", {})
    faults = {path: fact for path, fact in truth.items() if fact["visible"]}
    for path, fact in faults.items():
        text.append(f"    fault     {path} ({fact['class']}), moves by {fact['moved']:.3g} roundings")
    if hidden := sorted(truth.keys() - faults):
        text.append(f"    touched   and moves nothing: {', '.join(hidden)}")
    for state in ("published", "clean"):
        said = one.get(state)
        output = f" (the output differs by {said['output']:.2g} x its noise)" if said and "output" in said else ""
        text += [f"    {state:10}{said['verdict']}: {said['reason']}{output}"] if said else []
        text += [f"        {in_words(culprit)}" for culprit in said["culprits"]] if said else []
    return text


def in_figures(name: str, one: dict[str, Any]) -> str:
    """The counts in a line."""
    return f"{name:22} " + "  ".join(f"{key} {one[key]}" for key in (*COUNTED, "cause", "sureness"))


if __name__ == "__main__":
    sys.exit(main())
