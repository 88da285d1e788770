"""Whether `align advise` names what makes a training slow, first, and leaves healthy ones alone; and a large trace.

`python benchmarks/advice.py` makes the trainings of `_slow_trainings.py`, and prints found, named first and alarms;
`--trace 500` makes a trace of so many MB besides, and prints the time and the memory that it takes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from _slow_trainings import HEALTHY, PLANTED, Case, sleep_in_loader

from align.advice.advise import advise


def main() -> int:
    """Run all cases, and the large trace if one is asked for; 1 if something is missed, or an alarm is false."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=int, default=0, metavar="MB")
    parser.add_argument("--only", default="", help="a part of the names of cases")
    options = parser.parse_args()
    planted = [case for case in PLANTED if options.only in case.name]
    found = [_judged(case) for case in planted]
    alarms = [_judged(case) for case in HEALTHY if options.only in case.name]
    first = sum(rules[:1] == [case.first] for case, rules in zip(planted, found, strict=True))
    anywhere = sum(case.first in rules for case, rules in zip(planted, found, strict=True))
    false = sum(bool(rules) for rules in alarms)
    print(f"{len(found)} planted: {anywhere} found, {first} named first; {len(alarms)} healthy: {false} with an alarm")
    if options.trace:
        _large_trace(options.trace)
    return int(first < len(found) or false > 0)


def _judged(case: Case) -> list[str]:
    """The rules above a note, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        case.make(Path(folder))
        result = advise(folder)
    rules = [one.rule for one in result.advice if one.level != "note"]
    mark = "ok " if rules[:1] == ([case.first] if case.first else []) else "BAD"
    print(f"{mark} {case.name}: {', '.join(rules) or 'nothing'}", flush=True)
    return rules


def _large_trace(size: int) -> None:
    """Make a trace of `size` MB of the real events of a small one, and read it in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sleep_in_loader(folder)
        events = [event for event in json.loads((folder / "trace.json").read_text())["traceEvents"] if "ts" in event]
        _repeat(folder / "large.json", events, size)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", "from align.cli.main import run; run()", "advise", str(folder / "large.json")]
        subprocess.run(command, check=False, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"a trace of {size} MB: {seconds:.1f} s of the processor, {after.ru_maxrss / 1024:.0f} MB")


def _repeat(path: Path, events: list[dict[str, object]], size: int) -> None:
    span = max(float(str(event["ts"])) for event in events) - min(float(str(event["ts"])) for event in events) + 1e5
    written, turn = 0, 0
    with path.open("w") as stream:
        stream.write('{"schemaVersion": 1, "traceEvents": [')
        while written < size * 1e6:
            moved = ({**event, "ts": float(str(event["ts"])) + turn * span} for event in events)
            text = ",".join(json.dumps(event, indent=2) for event in moved)
            written += stream.write(("," if turn else "") + text)
            turn += 1
        stream.write("]}")


if __name__ == "__main__":
    sys.exit(main())
