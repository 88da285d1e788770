"""Wrong code in ports that were written by hand: what `align forward` says of it, each slip by itself.

tests/planted/code_ports has pairs of small models, of which the port is right, `_code_faults.py` and
`_other_code_faults.py` have the slips. What is said of one:
    right     a right cause, or a function on the right line, of three at most, and what is different there
    line      the right line, among more than three
    unknown   no cause and no line
    false     another cause or line, or a port that is right called wrong
Run: python benchmarks/wrong_code.py [NAME ...] [--json]; 1 if a bar is missed.
Bars: 75 % right, none false.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
from _cases import in_process
from _code_faults import FAULTS as FIRST
from _code_faults import CodeFault
from _judging import in_words
from _other_code_faults import OTHERS

FOLDER = Path(__file__).resolve().parents[1] / "tests/planted/code_ports"
FAULTS = FIRST + OTHERS
LEAST_RIGHT = 0.75
MOST_LINES = 3  # so many lines may be named together
WORDS = ("right", "line", "unknown", "false")


def main() -> int:
    """Print what was said of each slip, and the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of the name of a class or a slip")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        options.result.write_text(json.dumps(judged(options.names[0], options.names[1:])), encoding="utf-8")
        os._exit(0)  # without the frameworks' own goodbyes
    found = []
    for port in dict.fromkeys(one.port for one in FAULTS if is_asked_for(one, options.names)):
        done = in_process(__file__, [port, *options.names])
        found += done.get("said", [{"port": port, "name": "the port", "word": "false", "told": [done.get("failed")]}])
        for one in found[-len(done.get("said", [0])) :] if not options.json else ():
            print(
                f"{one['word']:8} {one['port']}: {one['name']} ({one.get('seconds', 0)} s)", *one["told"], sep="\n    "
            )
    return report(found, as_json=options.json)


def is_asked_for(fault: CodeFault, names: list[str]) -> bool:
    """Tell whether a slip has any of these names in its own; of none, all are asked for."""
    return not names or any(one in f"{fault.port}: {fault.name}" for one in names)


def report(found: list[dict[str, Any]], *, as_json: bool) -> int:
    """Print the sums; 1 if a bar is missed."""
    faults = [one for one in found if one["name"] != "the port"]
    counts = Counter(one["word"] for one in faults)
    alarms = sum(one["word"] == "false" for one in found)
    sums = {"slips": len(faults), **{word: counts[word] for word in WORDS}, "false": alarms}
    shares = ", ".join(f"{word} {sums[word]} ({sums[word] / max(len(faults), 1):.0%})" for word in WORDS)
    print(json.dumps({"said": found, "sums": sums}, indent=1) if as_json else f"{len(faults)} slips: {shares}")
    return int(alarms > 0 or counts["right"] < LEAST_RIGHT * len(faults))


def judged(port: str, names: list[str]) -> dict[str, Any]:
    """What is said of the port of one class, right and with each of its slips."""
    original = next(one for one in FOLDER.glob("*original.py") if f"class {port}(" in one.read_text(encoding="utf-8"))
    text = original.with_name(original.name.replace("original", "port")).read_text(encoding="utf-8")
    model = load(original, "original").build(port)
    inputs = sys.modules["original"].inputs(port)
    said = [{"port": port, "name": "the port", **compared(model, build(text, port, "right"), inputs)}]
    said[0]["word"] = "right" if said[0]["verdict"] == "aligned" else "false"
    for number, fault in enumerate(one for one in FAULTS if one.port == port and is_asked_for(one, names)):
        written, right = with_slip(text, fault)
        told = compared(model, build(written, port, f"slip{number}"), inputs)
        said.append({"port": port, "name": fault.name, **told, "word": word(told, fault, right)})
    return {"said": [{**one, "told": in_lines(one)} for one in said]}


def with_slip(text: str, fault: CodeFault) -> tuple[str, set[int]]:
    """The port with a slip, and the numbers of the lines that may be named for it."""
    start = text.index(f"class {fault.port}(")
    helper = text.rfind("\n\n\ndef ", 0, start)
    begin = helper if helper > text.rfind("\nclass ", 0, start) else start
    end = text.find("\n\n\n", start)
    end = len(text) if end < 0 else end
    if text.count(fault.right, begin, end) != 1:
        sys.exit(f"{fault.port}: {fault.name} does not fit")
    place = text.index(fault.right, begin)
    written = text[:place] + fault.wrong + text[place + len(fault.right) :]
    first = written.count("\n", 0, place) + 1
    right = set(range(first, first + fault.wrong.count("\n") + 1))
    rows = written.splitlines()
    before, after = written.count("\n", 0, begin), written.count("\n", 0, end + len(fault.wrong) - len(fault.right))
    right.update(row + 1 for row in range(before, after + 1) for part in fault.also if part in rows[row])
    return written, right


def build(text: str, port: str, name: str) -> Any:
    """A port by its text; the file stays as long as the process."""
    path = Path(tempfile.mkdtemp(), f"{name}.py")
    path.write_text(text, encoding="utf-8")
    return load(path, name).build(port)


def load(path: Path, name: str) -> Any:
    """Import a file by a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def compared(model: Any, net: Any, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """Give the port the original's values, compare, and keep what is said."""
    import mindspore

    import align
    from align.core.documents import to_json_data

    name_map = align.map_parameters(model, net).name_map
    values = {key: value.detach().numpy() for key, value in model.state_dict().items()}
    made = {one.target: one.transform.apply(values[one.source]) for one in name_map.pairings}
    for one in net.get_parameters():
        one.set_data(mindspore.Tensor(np.array(made[one.name])))
    begun = time.perf_counter()
    result = align.compare_forward(model, net, inputs=inputs, name_map=name_map, power=False)
    seconds = round(time.perf_counter() - begun, 1)
    culprits = to_json_data(result.culprits)
    return {"verdict": result.verdict.outcome.value, "culprits": culprits, "seconds": seconds}


def word(told: dict[str, Any], fault: CodeFault, right: set[int]) -> str:
    """The word for what is said of one slip; the worst of what is said of its parts at fault decides."""
    said = [of_culprit(one, fault, right) for one in told["culprits"]]
    if told["verdict"] != "not aligned" or not said:
        return "false"
    return next(word for word in ("false", "line", "right", "unknown") if word in said)


def of_culprit(culprit: dict[str, Any], fault: CodeFault, right: set[int]) -> str:
    """The word for one part at fault."""
    inside = culprit["inside"]
    lines = [*(inside["lines"] if inside else ()), *([culprit["line"]] if culprit["code"] else ())]
    is_there = bool(right.intersection(int(one.rpartition(":")[2]) for one in lines))
    causes = culprit["cause"].split(" + ")
    if any(fnmatch(cause, glob) for cause in causes for glob in fault.causes):
        return "right"
    if is_there:
        return "right" if culprit["code"] or len(inside["lines"]) <= MOST_LINES else "line"
    return "false" if lines or culprit["cause"] else "unknown"


def in_lines(one: dict[str, Any]) -> list[str]:
    """Each part at fault in a line, with the function that is named."""
    return [f"{in_words(culprit)}{_in_words(culprit['inside'])}" for culprit in one["culprits"]]


def _in_words(inside: dict[str, Any] | None) -> str:
    if inside is None:
        return ""
    said = f"{inside['difference'] or 'no difference'}, {inside['sureness']}"
    other = f"{inside['reference_function']} at {inside['reference_line']}"
    return f" [{inside['function']} at {', '.join(inside['lines'])}: {said}, {other}]"


if __name__ == "__main__":
    sys.exit(main())
