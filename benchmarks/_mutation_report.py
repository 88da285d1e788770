"""The figures of a mutation benchmark: rates over all, by kind and by case, and each mutation that went wrong."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from _judging import in_words

if TYPE_CHECKING:
    from collections.abc import Iterable

COLUMNS = (
    "planted",
    "output",
    "detected",
    "right layer",
    "layer",
    "found",
    "nothing",
    "settings",
    "cause",
    "code",
    "explained",
    "strangers",
)
BARS = {"detected": 1.0, "right layer": 0.98, "cause": 0.9, "explained": 0.75, "right batch": 0.98}
Record = dict[str, Any]


def summary(found: list[Record]) -> dict[str, Any]:
    """All rates, the tables, and whether each bar is met."""
    records = [{**one, "case": case["case"]} for case in found for one in case["mutations"]]
    total = tally(records)
    alarms = {case["case"]: alarm for case in found if (alarm := false_alarms(case))}
    rates = {
        "detected": rate(total["detected"], total["output"]),
        "right layer": rate(total["right layer"], total["output"]),
        "cause": rate(total["cause"], total["settings"]),
        "explained": rate(total["explained"], total["code"]),
    }
    batches = [one["right batch"] for one in records if one.get("right batch") is not None]
    rates |= {"right batch": rate(sum(batches), len(batches))} if batches else {}
    failed = {case["case"]: case["failed"] for case in found if "failed" in case}
    met = all(share is None or share >= BARS[name] for name, share in rates.items())
    return {
        "total": total,
        "rates": rates,
        "false alarms": alarms,
        "by kind": {
            name: tally(r for r in records if r["kind"] == name) for name in sorted({r["kind"] for r in records})
        },
        "by case": {case["case"]: tally(case["mutations"]) for case in found},
        "lint": Counter("named" if r["linted"] else "not named" for r in records if r["linted"] is not None),
        "skipped": sum(len(case.get("skipped", ())) for case in found),
        "failed": failed,
        "cannot": {case["case"]: case["cannot"] for case in found if "cannot" in case},
        "passed": bool(met and total["output"] and not alarms and not failed and not total["strangers"]),
    }


def tally(records: Iterable[Record]) -> dict[str, int]:
    """How many moved the output, the layer alone or nothing, and what the tool found of them.

    `found` are those that only move their layer and were detected there; `settings` those of which a cause is asked.
    `explained` are those of wrong `code` that moves the output which are told with a cause, a relation or the call.
    """
    counts: Counter[str] = Counter()
    for one in records:
        counts["planted"] += 1
        counts[one["moves"]] += 1
        if one["moves"] == "output":
            counts["detected"] += one["detected"]
            counts["right layer"] += one["detected"] and one["right layer"]
            counts["code"] += one["family"] == "code"
            counts["explained"] += one["family"] == "code" and one.get("explained", False)
        if one["moves"] == "layer":
            counts["found"] += one["detected"] and one["right layer"]
        if is_asked(one):
            counts["settings"] += 1
            counts["cause"] += bool(one["cause"])
        counts["strangers"] += one["strangers"]
    return {name: counts[name] for name in COLUMNS}


def is_asked(one: Record) -> bool:
    """Tell whether the cause of a mutation counts: a wrong setting that moves something."""
    return one["family"] == "settings" and one["moves"] != "nothing" and one["cause"] is not None


def is_wrong(one: Record) -> bool:
    """Tell whether the tool missed something of a mutation, or said too much."""
    missed = one["moves"] == "output" and not (one["detected"] and one["right layer"])
    quiet = one["moves"] == "layer" and not one["right layer"]
    untold = one["linted"] is False or (is_asked(one) and not one["cause"])
    return missed or quiet or untold or one["strangers"] > 0 or one.get("right batch") is False


def false_alarms(case: Record) -> list[str]:
    """What is wrong with the clean port before and after: by the tool, or by this benchmark."""
    states = [(name, case[name]) for name in ("before", "after") if name in case]
    told = [
        f"{name}: {s['verdict']}: {s['reason']}" for name, s in states if s["verdict"] != "aligned" or s["culprits"]
    ]
    return told + ([] if case.get("undone", True) else ["the clean port is not what it was"])


def rate(part: int, whole: int) -> float | None:
    """A share, None of nothing."""
    return part / whole if whole else None


def print_report(found: list[Record], figures: dict[str, Any]) -> None:
    """Print the tables, what went wrong, and the rates."""
    for table in ("by kind", "by case"):
        width = max(map(len, figures[table]), default=0)
        print(f"\n{table:{max(width, 24)}}" + "".join(f"{column:>12}" for column in COLUMNS))
        for name, counts in figures[table].items():
            print(f"{name:{max(width, 24)}}" + "".join(f"{counts[column]:12}" for column in COLUMNS))
    print()
    for case in found:
        for one in filter(is_wrong, case["mutations"]):
            print(*wrong_lines(case["case"], one), sep="\n")
    for name, told in figures["false alarms"].items():
        print(f"FALSE ALARM {name}: {'; '.join(told)}")
    for word in ("failed", "cannot"):
        for name, told in figures[word].items():
            print(f"{word.upper()} {name}: {told}")
    total, seconds = figures["total"], sum(case.get("seconds", 0.0) for case in found)
    shares = ", ".join(
        f"{name} {'of none' if share is None else f'{100 * share:.1f} %'}" for name, share in figures["rates"].items()
    )
    lint = ", ".join(f"{count} {name}" for name, count in figures["lint"].items())
    print(
        f"{total['planted']} mutations in {seconds:.0f} s: {shares}; {total['layer']} move their layer alone"
        f" ({total['found']} found), {total['nothing']} move nothing: undecidable (lint: {lint or 'none for it'});"
        f" {total['strangers']} strangers, false alarms in {len(figures['false alarms'])} of {len(found)} cases"
    )


def wrong_lines(case: str, one: Record) -> list[str]:
    """One mutation that went wrong."""
    visible = one["moves"] != "nothing"
    missed = [name for name in ("detected", "right layer") if visible and not one[name]]
    missed += ["cause"] if is_asked(one) and not one["cause"] else []
    missed += ["in the right batch"] if one.get("right batch") is False else []
    missed += ["named by lint"] if one["linted"] is False else []
    missed = [f"not {name}" for name in missed] + ([f"{one['strangers']} strangers"] if one["strangers"] else [])
    told = f"{', '.join(missed)} (output {one['moved']['output']:.3g} x noise): {one['verdict']}: {one['reason']}"
    return [f"WRONG {case}: {one['name']}: {told}", *(f"      {in_words(culprit)}" for culprit in one["culprits"][:4])]
