"""What the tool finds in ports as they are published: the page docs/published-ports.md (cases: see _cases.py).

Each case is taken as published, on one side the package that holds the original, on the other the one that holds the
port. The table says where the port differs, the line that makes it, why, and how far it moves the output. Cases whose
port is no installed package are passed over. A case that cannot be opened here is listed with its reason.
Run: python benchmarks/published_ports.py FOLDER [CASE ...] [--write docs/published-ports.md]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from _cases import Case, case_names, in_process, open_case

from align.core.atomic_files import write_text
from align.forward.compare_forward import compare_forward
from align.names.user_rules import fold_names
from align.report.kinds.culprits import cause_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from align.forward.forward_result import Culprit

Found = dict[str, Any]
LINES = 3  # of one cause that are listed
COMMAND = "python benchmarks/published_ports.py CASES --write docs/published-ports.md"
FRAMEWORKS = ("torch", "mindspore")
HEAD = """# What the tool found in published ports

Each port below is compared as its package has it, with the parameter map that is known to be true, on equal random
weights. Nothing is downloaded. `align forward` names each part that is at fault by itself.

*moves the output* is the relative L2 difference of the outputs, port against original. The brackets say how many times
that is what rounding does to the original, float32 against float64.
"""
SUSPECTED = "suspected"
UNCONFIRMED = (
    "Outputs differ by more than the limits, and no trial has confirmed why. These ports are not counted as found."
)
ROUNDING = "An output that moves by no more than a few times the rounding is what a right port has, too."


def main() -> int:
    """Print the page, or write it; 1 if nothing was compared."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--write", type=Path, help="the page; left out: it is printed")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        options.result.write_text(json.dumps(looked_at(options.folder, options.cases[0])), encoding="utf-8")
        os._exit(0)  # without the frameworks' own goodbyes
    found = []
    for name in case_names(options.folder, options.cases):
        found.append({"case": name, **in_process(__file__, [str(options.folder), name])})
        print(name, found[-1].get("verdict") or found[-1].get("failed") or "no package", file=sys.stderr, flush=True)
    text = page([one for one in found if one.get("port") != ""])
    if options.write:
        write_text(options.write, text)
    else:
        print(text)
    return int(not any("verdict" in one for one in found))


def looked_at(folder: Path, name: str) -> Found:
    """Compare one port as published; `port` is "" where it is no installed package."""
    case = open_case(folder, name)
    sides = {"original": package_of(case.model), "port": package_of(case.net)}
    if not sides["port"]:
        return {"port": ""}
    case.restore_names()
    result = compare_forward(case.model, case.net, inputs=case.inputs, name_map=case.name_map)
    case.restore_names()
    moved, rounding = movements(case)
    return {
        **sides,
        "model": type(case.net).__name__,
        "verdict": result.verdict.outcome.value,
        "reason": str(result.verdict.reason),
        "faults": faults(result.culprits),
        "moved": moved,
        "rounding": rounding,
    }


def package_of(model: Any) -> str:
    """The name and version of the installed package that a model's class is of; "" for code that is in none.

    Of a class that was derived to call the model, the base counts.
    """
    for kind in type(model).__mro__:
        top = kind.__module__.partition(".")[0]
        if top in FRAMEWORKS:
            return ""
        try:
            return f"{top} {version(top)}"
        except PackageNotFoundError:
            continue
    return ""


def movements(case: Case) -> tuple[float, float]:
    """The relative L2 difference of the outputs: of the port, and of the original in float64 against itself."""
    original = case.run_original()
    return relative(original, case.run_port()), relative(case.run_original(wide=True), original)


def relative(first: Sequence[np.ndarray[Any, Any]], second: Sequence[np.ndarray[Any, Any]]) -> float:
    """The L2 norm of the difference over that of the first."""
    if [one.shape for one in first] != [one.shape for one in second]:
        return float("inf")
    squares = [(float(np.sum((a - b) ** 2)), float(np.sum(a**2))) for a, b in zip(first, second, strict=True)]
    gap, whole = (sum(own) for own in zip(*squares, strict=True))
    return float(np.sqrt(gap / whole)) if whole else float("inf") if gap else 0.0


def faults(culprits: Iterable[Culprit]) -> list[Found]:
    """One entry for each cause with what to write: the layers, their class, and the lines that make them."""
    groups: dict[tuple[str, str, str], list[Culprit]] = {}
    for one in culprits:
        kind = (one.candidate_class or one.reference_class).rpartition(".")[2]
        groups.setdefault((one.cause, one.change, kind), []).append(one)
    return [
        {
            "cause": cause,
            "words": cause_words(cause),
            "sureness": own[0].sureness,
            "change": change,
            "class": kind,
            "layers": [one.candidate for one in own],
            "lines": list(dict.fromkeys(one.line for one in own if one.line)),
        }
        for (cause, change, kind), own in groups.items()
    ]


def page(found: Sequence[Found]) -> str:
    """The page as Markdown."""
    differ = [one for one in found if any(fault["sureness"] != SUSPECTED for fault in one.get("faults", ()))]
    suspected = [one for one in found if one.get("faults") and one not in differ]
    clean = [one for one in found if one.get("verdict") == "aligned"]
    other = [one for one in found if one not in (*differ, *suspected, *clean)]
    total = len(differ) + len(suspected) + len(clean)
    parts = [HEAD]
    parts += [f"## {len(differ)} of {total} ports compute something else\n", table(differ)] if differ else []
    parts += [section(one) for one in differ]
    if suspected:
        parts += [f"## Suspected, and not shown\n\n{UNCONFIRMED}\n", table(suspected)]
        parts += [section(one) for one in suspected]
    if clean:
        lines = [f"- {title(one)}: moves the output by {moved(one)}" for one in clean]
        parts.append("\n".join([f"## Ports that agree\n\n{ROUNDING}\n", *lines, ""]))
    if other:
        lines = [f"- {one['case']}: {one.get('reason') or one.get('failed')}" for one in other]
        parts.append("\n".join(["## Not compared\n", *lines, ""]))
    parts.append(
        f"## Made by\n\n    {COMMAND}\n\nCASES is a folder of pairs; `benchmarks/_cases.py` says what a pair is.\n"
    )
    return "\n".join(parts)


def table(found: Sequence[Found]) -> str:
    """A row for each port and cause."""
    rows = ["| port | original | file and line | cause | moves the output |", "|---|---|---|---|---|"]
    for one in found:
        for place, fault in enumerate(one["faults"]):
            port, original = (title(one), one["original"]) if place == 0 else ("", "")
            rows.append(
                f"| {port} | {original} | {lines_of(fault)} | {cell(cause_of(fault))}"
                f" | {moved(one) if place == 0 else ''} |"
            )
    return "\n".join([*rows, ""])


def section(one: Found) -> str:
    """All that is at fault in one port, with what to write."""
    lines = [
        f"### {title(one)}\n",
        f"{one['original']} is the original. {one['reason'][:1].upper()}{one['reason'][1:]}.\n",
    ]
    for fault in one["faults"]:
        places = fold_names(fault["layers"])
        write = f"; write `{fault['change']}`" if fault["change"] else ""
        named = ", ".join(f"`{place or 'the model itself'}`" for place in places)
        lines.append(f"- {named} ({fault['class']}): {cause_of(fault)}{write}")
    return "\n".join([*lines, ""])


def cause_of(fault: Mapping[str, Any]) -> str:
    """The cause in words, and how sure it is where no trial confirmed it."""
    sure = "" if fault["sureness"] == "confirmed" else f" ({fault['sureness']})"
    return f"{fault['words']}{sure}" if fault["words"] else "no cause is known"


def title(one: Mapping[str, Any]) -> str:
    """The port's package with its version, and the case."""
    return f"{one['port']}, {one['model']} (`{one['case']}`)"


def lines_of(fault: Mapping[str, Any]) -> str:
    """The first lines of one cause, and how many more there are."""
    lines = fault["lines"]
    more = f" and {len(lines) - LINES} more" if len(lines) > LINES else ""
    return ", ".join(f"`{line}`" for line in lines[:LINES]) + more or "-"


def moved(one: Mapping[str, Any]) -> str:
    """By how much, and how many times the rounding that is."""
    times = one["moved"] / one["rounding"] if one["rounding"] else float("inf")
    return f"{one['moved']:.2g} ({times:,.0f} ×)" if times >= 10 else f"{one['moved']:.2g} ({times:.1f} ×)"


def cell(text: str) -> str:
    """A text that stands in one cell of a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
