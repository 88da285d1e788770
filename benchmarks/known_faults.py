"""The tool on real ports with known faults: each as published and after its repair (cases: see _cases.py).

What is wrong is found without the tool: the cells that the repair touches, and of these the ones that return something
else on the same inputs. A culprit is right at such a cell, near it right around or inside, else a stranger; on a clean
or repaired port each culprit, and each verdict but "aligned", is a false alarm.
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
from _judging import compared, count, in_words, is_at, is_near
from _touched import snapshot, touched
from _watching import call_again, distance, rounding_of, watch

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
    print(json.dumps({"cases": found, "totals": total}, indent=1) if options.json else in_figures("TOTAL", total))
    return int(total["named"] < total["faults"] or any(total[k] for k in ("strangers", "false alarms", "failed")))


def judged(folder: Path, name: str) -> dict[str, Any]:
    """Compare one case as published and, where it has a repair, mended; hold both against the truth."""
    case = open_case(folder, name)
    published = compared(case)
    if not hasattr(case.module, "repair"):
        return {"diverges": case.diverges, "clean": published, **figures({}, None, published)}
    mended = open_case(folder, name)
    before = snapshot(mended.net)
    mended.repair()
    truth = effects(case, mended, touched(before, snapshot(mended.net)))
    clean = compared(mended)
    return {
        "diverges": case.diverges,
        "truth": truth,
        "published": published,
        "clean": clean,
        **figures(truth, published, clean),
    }


def effects(case: Case, mended: Case, changed: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """What is known of each touched cell: its class, what differs, and how many roundings the output moves."""
    cells = dict(case.net.cells_and_names())
    seen = watch(mended.net, changed, mended.run_port)
    found = {}
    for path, names in changed.items():
        told = {"class": type(cells[path]).__name__ if path in cells else "", "differs": names[:6]}
        found[path] = {**told, "moved": moved(cells.get(path), seen.get(path)), "visible": False}
        found[path]["visible"] = found[path]["moved"] > 1
    return found


def moved(cell: Any, seen: Any) -> float:
    """By how many times what may be rounding a cell's output differs from what was seen; 0 if it is not called."""
    if seen is None or cell is None:
        return 0.0 if seen is None else float("inf")
    return distance(seen.outputs, call_again(cell, seen)) / rounding_of(seen.outputs)


def figures(truth: dict[str, Any], published: dict[str, Any] | None, clean: dict[str, Any]) -> dict[str, Any]:
    """The counts of one case."""
    visible = [path for path, one in truth.items() if one["visible"]]
    culprits = published["culprits"] if published else []
    right = count(culprits, lambda one: is_at(one, truth))
    near = count(culprits, lambda one: not is_at(one, truth) and is_near(one, truth))
    return {
        "faults": len(visible),
        "named": count(visible, lambda path: any(is_at(one, [path]) for one in culprits)),
        "right": right,
        "near": near,
        "strangers": len(culprits) - right - near,
        "causes": dict(Counter(one["cause"] or "none" for one in culprits)),
        "sureness": dict(Counter(one["sureness"] for one in culprits)),
        "false alarms": len(clean["culprits"]) or int(clean["verdict"] != "aligned"),
        "seconds": round((published["seconds"] if published else 0) + clean["seconds"], 1),
    }


def totals(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums over all cases that ran."""
    ran = [one for one in found if "failed" not in one]
    sums: dict[str, Any] = {name: round(sum(one[name] for one in ran), 1) for name in COUNTED}
    for name in ("causes", "sureness"):
        sums[name] = dict(sum((Counter(one[name]) for one in ran), Counter()))
    return {**sums, "cases": len(ran), "failed": len(found) - len(ran)}


def lines(one: dict[str, Any]) -> list[str]:
    """One case in words."""
    if "failed" in one:
        return [f"{one['case']:22} could not run: {one['failed']}"]
    told = [in_figures(one["case"], one)]
    if one["diverges"]:
        told.append(f"    the case says: {one['diverges']}")
    truth = one.get("truth", {})
    faults = {path: fact for path, fact in truth.items() if fact["visible"]}
    for path, fact in faults.items():
        told.append(f"    fault     {path} ({fact['class']}), moves by {fact['moved']:.3g} roundings")
    if hidden := sorted(truth.keys() - faults):
        told.append(f"    touched   and moves nothing: {', '.join(hidden)}")
    for state in ("published", "clean"):
        said = one.get(state)
        told += [f"    {state:10}{said['verdict']}: {said['reason']}"] if said else []
        told += [f"        {in_words(culprit)}" for culprit in said["culprits"]] if said else []
    return told


def in_figures(name: str, one: dict[str, Any]) -> str:
    """The counts in a line."""
    return f"{name:22} " + "  ".join(f"{key} {one[key]}" for key in (*COUNTED, "causes", "sureness"))


if __name__ == "__main__":
    sys.exit(main())
