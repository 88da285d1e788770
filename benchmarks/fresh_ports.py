"""The mapper over ports that were written by hand, each against the map that its author knows.

A folder holds the original and its port (`original.py` and `port.py`, or files whose names end in `_torch.py` and
`_ms.py`) with build(), `data.py` with inputs(), and `true_map.py`: PAIRS of a source, a target and the tables of what
is done to the value, DROP_SOURCE and DROP_TARGET, and FREE, groups of sources that may stand for each other. A pair is
right if each element that it writes is the one that PAIRS write there, and true pairs are counted by source and target.
Run: python benchmarks/fresh_ports.py [FOLDER ...] [--trial] [--verbose] [--json]; 1: a sure pair is wrong.
Bars, by names alone: no sure pair is wrong; 65 % of the true pairs are sure.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from _cases import in_process

FOLDER = Path(__file__).resolve().parents[1] / "tests/names/fresh_ports"
COUNTED = ("true", "right", "sure", "wrong", "wrong_sure", "missing")
Ids = dict[str, np.ndarray]  # a number for each element of a parameter, none of them 0
Written = dict[str, np.ndarray]


def main() -> int:
    """Print a line a port, and the total."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--trial", action="store_true", help="settle by a run with distinct values")
    parser.add_argument("--original", help="name of the original's module")
    parser.add_argument("--port", help="name of the port's module")
    parser.add_argument("--verbose", action="store_true", help="list what is wrong, unsure, missing")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        options.result.write_text(json.dumps(judged(options)), encoding="utf-8")
        return 0
    found = []
    for folder in options.folders or sorted(path.parent for path in FOLDER.glob("*/true_map.py")):
        found.append({"port": folder.name, **in_process(__file__, told(options, folder.resolve()))})
        if not options.json:
            show(found[-1], verbose=options.verbose)
    return report(found, as_json=options.json)


def told(options: argparse.Namespace, folder: Path) -> list[str]:
    """The arguments of the process that judges one folder."""
    named = [f"--{side}={name}" for side in ("original", "port") if (name := getattr(options, side))]
    return [str(folder), *named, *(["--trial"] if options.trial else [])]


def judged(options: argparse.Namespace) -> dict[str, Any]:
    """Map both sides of one folder, and hold the map against the true one."""
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    import align

    folder = options.folders[0]
    sys.path.insert(0, str(folder))
    original, port = (
        importlib.import_module(getattr(options, side) or module_of(folder, side)) for side in ("original", "port")
    )
    truth = importlib.import_module("true_map")
    model, net = original.build(), port.build()
    trial = {"inputs": importlib.import_module("data").inputs(), "trial": True} if options.trial else {}
    start = time.perf_counter()
    result = align.map_parameters(model, net, **trial)
    seconds = time.perf_counter() - start
    ids = numbered_elements(result.source_parameters)
    counts = judge(result.name_map, ids, truth)
    return {**counts, "complete": result.name_map.complete, "seconds": round(seconds, 1)}


def module_of(folder: Path, side: str) -> str:
    """The name of a side's module: `original` or `port`, or that of the one file with the ending."""
    if (folder / f"{side}.py").exists():
        return side
    ending = {"original": "_torch.py", "port": "_ms.py"}[side]
    found = [path.stem for path in folder.glob(f"*{ending}")]
    if len(found) != 1:
        sys.exit(f"{folder} has {len(found)} files *{ending}: name one by --{side}")
    return found[0]


def numbered_elements(parameters: Any) -> Ids:
    """A tensor of numbers for each parameter, each number once."""
    ids: Ids = {}
    first = 1
    for parameter in parameters:
        ids[parameter.name] = np.arange(first, first + parameter.count).reshape(parameter.shape)
        first += parameter.count
    return ids


def judge(name_map: Any, ids: Ids, truth: Any) -> dict[str, Any]:
    """Count the true pairs that are right, sure or missing, and the pairs that are wrong."""
    elements = true_elements(ids, truth)
    true = list(dict.fromkeys((source, target) for source, target, _ in truth.PAIRS))
    written: dict[tuple[str, str], list[tuple[int, bool]]] = defaultdict(list)
    wrong: list[tuple[str, str, float, str]] = []
    free = {name: group for group in getattr(truth, "FREE", []) for name in group}
    for one in name_map.pairings:
        count = right_elements(one, ids, elements, free)
        if count:
            written[one.source, one.target].append((count, one.sure))
        else:
            wrong.append((one.source, one.target, one.confidence, str(one.transform.as_table())))
    wrong += [(one.name, one.side, 1.0, "dropped") for one in wrong_drops(name_map, truth, free)]
    right = [pair for pair in true if is_whole(pair, written, ids, elements, free)]
    sure = [pair for pair in right if all(is_sure for _, is_sure in at(pair, written, free))]
    missing = [pair for pair in true if not at(pair, written, free)]
    return {
        "true": len(true),
        "right": len(right),
        "sure": len(sure),
        "wrong": len(wrong),
        "wrong_sure": sum(confidence >= 0.8 for _, _, confidence, _ in wrong),
        "missing": len(missing),
        "listed": {
            "wrong": [f"{x} = {y} ({confidence:.2f}) {how}" for x, y, confidence, how in wrong],
            "unsure": [" = ".join(pair) for pair in right if pair not in sure],
            "missing": [" = ".join(pair) for pair in missing],
        },
    }


def true_elements(ids: Ids, truth: Any) -> Written:
    """What PAIRS write into each target: the numbers of the source's elements, 0 where nothing is written."""
    elements: Written = {}
    for source, target, steps in truth.PAIRS:
        value = ids[source]
        for step in steps:
            value = applied(step, value)
        elements[target] = np.maximum(elements[target], value) if target in elements else value
    return elements


def applied(step: dict[str, Any], value: np.ndarray) -> np.ndarray:
    """What one table of a transform makes of a value; what a part does not write is 0."""
    if step["op"] == "chain":
        for one in step["steps"]:
            value = applied(one, value)
        return value
    if step["op"] == "reshape":
        return value.reshape(step["shape"])
    if step["op"] == "permute":
        return value.transpose(step["axes"])
    place = (*(slice(None),) * step["axis"], slice(step.get("start"), step.get("stop")))
    if step["op"] == "slice":
        return value[place]
    if step["op"] == "reorder":
        pieces = np.split(value, len(step["blocks"]), step["axis"])
        return np.concatenate([pieces[block] for block in step["blocks"]], step["axis"])
    if step["op"] != "part":
        raise ValueError(step)
    whole = np.zeros(step["shape"], value.dtype)
    whole[place] = value
    return whole


def right_elements(one: Any, ids: Ids, elements: Written, free: dict[str, list[str]]) -> int:
    """How many elements a pair writes, if all of them are true for its source or one that may stand for it; else 0."""
    true = elements.get(one.target)
    for source in free.get(one.source, [one.source]):
        made = one.transform.apply(ids[source]) if ids[source].shape == ids[one.source].shape else None
        if made is not None and true is not None and made.shape == true.shape and ((made == true) | (made == 0)).all():
            return int((made != 0).sum())
    return 0


def at(
    pair: tuple[str, str], written: dict[tuple[str, str], list[tuple[int, bool]]], free: dict[str, list[str]]
) -> list[tuple[int, bool]]:
    """What was found for a true pair, under any of the sources that may stand for its own."""
    source, target = pair
    return [one for name in free.get(source, [source]) for one in written.get((name, target), [])]


def is_whole(
    pair: tuple[str, str],
    written: dict[tuple[str, str], list[tuple[int, bool]]],
    ids: Ids,
    elements: Written,
    free: dict[str, list[str]],
) -> bool:
    """Tell whether all elements of a true pair are written, if there are several pieces."""
    source, target = pair
    sources = np.concatenate([ids[name].ravel() for name in free.get(source, [source])])
    wanted = int(np.isin(elements[target], sources).sum())
    return sum(count for count, _ in at(pair, written, free)) == wanted


def wrong_drops(name_map: Any, truth: Any, free: dict[str, list[str]]) -> list[Any]:
    """Drops of what has a counterpart, but for a source that another stands for."""
    paired = {"source": {source for source, _, _ in truth.PAIRS}, "target": {target for _, target, _ in truth.PAIRS}}
    return [one for one in name_map.dropped if one.name in paired[one.side] and one.name not in free]


def share(part: int, whole: int) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.0f} %" if whole else "-"


def show(one: dict[str, Any], *, verbose: bool) -> None:
    """Print the line of one port, and all that is not right if asked."""
    if "failed" in one and "true" not in one:
        print(f"{one['port']:20} FAILED: {one['failed']}", flush=True)
        return
    print(f"{one['port']:20} {line(one)}; {'complete' if one['complete'] else 'open'}; {one['seconds']} s", flush=True)
    for kind, names in one["listed"].items() if verbose else ():
        print("".join(f"    {kind}: {name}\n" for name in names), end="")


def line(one: dict[str, Any]) -> str:
    """The counts in words."""
    return (
        f"true {one['true']:3}, right {one['right']:3}, sure {one['sure']:3} ({share(one['sure'], one['true'])}), "
        f"wrong {one['wrong']} (sure {one['wrong_sure']}), missing {one['missing']}"
    )


def report(found: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print the total; 1 if a sure pair is wrong or a port could not run."""
    ran = [one for one in found if "true" in one]
    total = {key: sum(one[key] for one in ran) for key in COUNTED}
    if as_json:
        print(json.dumps({"ports": found, "total": total}, indent=1))
    elif ran:
        complete = sum(one["complete"] for one in ran)
        print(f"{'all':20} {line(total)}; {share(total['right'], total['true'])} right; complete {complete}/{len(ran)}")
    return int(bool(total["wrong_sure"]) or len(ran) < len(found))


if __name__ == "__main__":
    sys.exit(main())
