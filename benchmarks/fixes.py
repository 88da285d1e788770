"""What `align fix` does to real ports with known faults: planned, applied to a copy of the package, compared again.

Each case (see _cases.py) is compared as published, the confirmed changes are planned, the port's package is copied with
the planned texts, and a new process that imports the copy compares again. `gone` are the faults of settings that are no
culprits any more, `worse` the culprits that were none before, `broken` copies whose comparison came to no end.
Run: python benchmarks/fixes.py FOLDER [CASE ...] [--json]; 1 if a bar is missed.
Bars: 85 % of the confirmed faults of settings gone, no layer worse, no copy broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from _cases import case_names, in_process, open_case
from _judging import compared

Found = dict[str, Any]
COUNTED = ("faults", "planned", "refused", "gone", "worse", "broken")
BAR = 0.85


def main() -> int:
    """Print what became of each case, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--overlay", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        found = looked_at(options.folder, options.cases[0], options.overlay)
        options.result.write_text(json.dumps(found), encoding="utf-8")
        os._exit(0)  # without the frameworks' own goodbyes
    every = [{"case": name, **fixed(options.folder, name)} for name in case_names(options.folder, options.cases)]
    totals = Counter({name: sum(one.get(name, 0) for one in every) for name in COUNTED})
    if options.json:
        print(json.dumps({"cases": every, "totals": totals}, indent=2))
    else:
        for one in [*every, {"case": "TOTAL", **totals}]:
            print(f"{one['case']:22}", *(f"{name} {one.get(name, 0)}" for name in COUNTED), one.get("failed", ""))
            for said in one.get("said", ()):
                print(f"    {said}")
    met = totals["gone"] >= BAR * totals["faults"] and not totals["worse"] and not totals["broken"]
    return int(not met)


def fixed(folder: Path, name: str) -> Found:
    """Plan, copy, and compare again."""
    with tempfile.TemporaryDirectory() as place:
        overlay = Path(place) / "overlay"
        before = in_process(__file__, [str(folder), name, "--overlay", str(overlay)])
        if "culprits" not in before:
            return before
        faults = [one for one in before["culprits"] if one["sureness"] == "confirmed" and one["arguments"]]
        counts = {"faults": len(faults), "planned": len(before["edits"]), "refused": len(before["refused"])}
        said = [f"{one['file']}:{one['line']}: {one['before']}  ->  {one['after']}" for one in before["edits"]]
        said += [f"refused {', '.join(one['layers'][:3])}: {one['reason']} {one['facts']}" for one in before["refused"]]
        if not overlay.is_dir():
            return {**counts, "said": said}
        after = again(folder, name, overlay)
        if "culprits" not in after:
            return {**counts, "broken": 1, "said": [*said, *map(str, after.values())]}
        left = {one["candidate"] for one in after["culprits"]}
        known = {one["candidate"] for one in before["culprits"]}
        gone = [one for one in faults if one["candidate"] not in left]
        said += [f"worse: {one}" for one in sorted(left - known)]
        return {**counts, "gone": len(gone), "worse": len(left - known), "said": said}


def again(folder: Path, name: str, overlay: Path) -> Found:
    """Compare in a new process that imports the copy."""
    path = os.pathsep.join([str(overlay), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as place:
        result = Path(place) / "result.json"
        command = [sys.executable, "-W", "ignore", __file__, str(folder), name, "--result", str(result)]
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        return json.loads(result.read_text()) if result.is_file() else {"failed": done.stderr[-500:]}


def looked_at(folder: Path, name: str, overlay: Path | None) -> Found:
    """Compare a case; with `overlay` plan its edits, and write the copy of its package there."""
    from align.core.documents import to_json_data
    from align.fixes.fix_port import CONFIRMED, read_culprits
    from align.fixes.plan_edits import plan_edits

    case = open_case(folder, name)
    found = compared(case)
    if overlay is None:
        return found
    culprits = [one for one in read_culprits(found) if one.sureness == CONFIRMED and one.arguments]
    planned = plan_edits(culprits, case.net)
    for file, text in planned.texts.items():
        top = package_of(file)
        if top is None:
            continue
        if not (overlay / top.name).exists():
            shutil.copytree(top, overlay / top.name, ignore=shutil.ignore_patterns("__pycache__"))
        copy = overlay / top.name / file.relative_to(top)
        require_lines(copy.read_text(encoding="utf-8"), text, len(planned.edits))
        copy.write_text(text, encoding="utf-8")
    return {**found, "edits": to_json_data(planned.edits), "refused": to_json_data(planned.refused)}


def package_of(file: Path) -> Path | None:
    """The outermost package that a file belongs to."""
    folders = [one for one in file.parents if (one / "__init__.py").is_file()]
    return folders[-1] if folders else None


def require_lines(before: str, after: str, edits: int) -> None:
    """Stop where more lines differ than edits say, but for one that is imported."""
    lines = Counter(before.splitlines(keepends=True)), Counter(after.splitlines(keepends=True))
    if sum((lines[0] - lines[1]).values()) > edits:
        sys.exit("more lines changed than the edits say")


if __name__ == "__main__":
    sys.exit(main())
