"""Situations that users bring, each with its right outcome, as clean and faulty twins; and clean pairs in bulk.

A module of `situations/` is a class of them: it lists SITUATIONS, with what is right to say of each beside it. A class
runs in a process of its own, a situation in at most LONGEST seconds. What can be wrong with an outcome:
    false aligned   a fault passes, or nothing was to be compared     false alarm   a clean twin is called not aligned
    refused         a pair that can be compared is not                unsaid        right, but a word is missing
    crash           anything but a result or an AlignError            slow          no end in time
Run: python benchmarks/odd_situations.py [CLASS ...] [--only NAME] [--jobs 2] [--json]; 1 if a bar is missed (BARS).
With --clean-runs N: N clean pairs of random models, shapes, seeds and precisions instead; see _clean_runs.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _cases import in_process

BARS = {"false aligned": 0, "false alarm": 1, "refused": 0, "unsaid": 0, "crash": 0, "slow": 0}
CLASSES = sorted(path.stem for path in (Path(__file__).parent / "situations").glob("[a-z]*.py"))


def main() -> int:
    """Print the outcome of each situation by class, then the sums."""
    options = _parser().parse_args()
    if options.clean_runs:
        from _clean_runs import clean_runs

        return clean_runs(options.clean_runs, first_seed=options.first_seed, as_json=options.json)
    if options.result:
        from _run_situations import run_class

        run_class(options.classes[0], options.only, options.skip, options.result)
        os._exit(0)  # without the frameworks' own goodbyes
    found = []
    with ThreadPoolExecutor(options.jobs) as pool:
        names = options.classes or CLASSES
        for name, one in zip(names, pool.map(lambda name: _class(name, options.only), names), strict=True):
            found += one
            if not options.json:
                print(*lines(name, one), sep="\n", flush=True)
    total = sums(found)
    print(json.dumps({"situations": found, "sums": total}, indent=1) if options.json else summary(total))
    return int(any(total[what] > most for what, most in BARS.items()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("classes", nargs="*", metavar="CLASS", choices=[[], *CLASSES], help=", ".join(CLASSES))
    parser.add_argument("--only", default="", help="part of the names of the situations to run")
    parser.add_argument("--jobs", type=int, default=2, help="classes at once")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--clean-runs", type=int, default=0, metavar="N")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    return parser


def _class(name: str, only: str) -> list[dict[str, Any]]:
    """All situations of a class; one that ends the process is a crash, and the next ones get another process."""
    found: list[dict[str, Any]] = []
    while True:
        done = in_process(str(Path(__file__).resolve()), [name, "--only", only, "--skip", str(len(found))])
        found += done.get("situations", [])
        if "failed" not in done:
            return found
        died = done.get("running", {"class": name, "name": "the class itself", "twin": ""})
        said = {"expected": ["an end"], "got": "crash", "wrong": "crash", "seconds": 0.0, "said": done["failed"]}
        found.append(died | said)
        if "running" not in done:
            return found


def sums(found: list[dict[str, Any]]) -> dict[str, Any]:
    """How many situations there were, and how many went wrong in which way."""
    wrong = Counter(one["wrong"] for one in found)
    seconds = round(sum(one["seconds"] for one in found), 1)
    return {"situations": len(found), "right": wrong[""], **{what: wrong[what] for what in BARS}, "seconds": seconds}


def summary(total: dict[str, Any]) -> str:
    """The sums in a line, with the bars that they must keep."""
    counts = [f"{what} {total[what]} (at most {most})" for what, most in BARS.items()]
    return f"{total['right']} of {total['situations']} right: {', '.join(counts)}; {total['seconds']} s"


def lines(name: str, found: list[dict[str, Any]]) -> list[str]:
    """One class as a table; below what went wrong stands what was said, and the figures that decided."""
    text = [f"\n{name}", f"  {'situation':44}{'twin':8}{'expected':42}{'got':20}{'seconds':>8}  "]
    for one in found:
        expected, took = " / ".join(one["expected"]), f"{one['seconds']:8.1f}"
        text.append(f"  {one['name']:44}{one['twin']:8}{expected:42}{one['got']:20}{took}  {one['wrong']}")
        text += [f"      {line}" for line in (one["said"], *one.get("figures", ()))] if one["wrong"] else []
    return text


if __name__ == "__main__":
    sys.exit(main())
