"""What the tool said of a port, held against what is known to be wrong with it."""

from __future__ import annotations

import time
from fnmatch import fnmatch
from typing import Any


def compared(case: Any) -> dict[str, Any]:
    """The tool's verdict on a case as it stands, its culprits and the seconds that it took."""
    from align.core.documents import to_json_data
    from align.forward.compare_forward import compare_forward

    case.restore_names()
    begun = time.perf_counter()
    inputs = list(case.batches) if case.more else case.inputs
    result = compare_forward(case.model, case.net, inputs=inputs, name_map=case.name_map)
    case.restore_names()
    return {
        "verdict": result.verdict.outcome.value,
        "reason": result.verdict.reason,
        "culprits": to_json_data(result.culprits),
        "findings": [f"{one.code} {one.subject}: {one.message}" for one in result.findings],
        "seconds": round(time.perf_counter() - begun, 1),
    }


def parent(path: str) -> str:
    """Path of the cell around."""
    return path.rpartition(".")[0]


def in_words(culprit: dict[str, Any]) -> str:
    """One culprit in a line."""
    pair = " = ".join(
        f"{culprit[side] or 'the model'} ({culprit[f'{side}_class'].rpartition('.')[2]})"
        for side in ("reference", "candidate")
    )
    factor = f"{culprit['factor']:.3g} x limit" if isinstance(culprit["factor"], float) else "no figure"
    cause = f"{culprit['cause'] or 'no cause'} ({culprit['sureness']})"
    tail = "; ".join(filter(None, (culprit["change"], culprit["line"])))
    return f"{pair}, {culprit['part']}, {factor}: {cause}{'; ' if tail else ''}{tail}"


def judge_mutation(
    mutation: Any, port: Any, moves: dict[str, Any], said: dict[str, Any], before: dict[str, Any]
) -> dict[str, Any]:
    """What the tool said of a mutation: detected, at the right layer, with the right cause; and its strangers.

    What it said of the clean port `before` as well is no stranger here: it is a false alarm, and counted as one.
    The right layer of wrong settings and values is the cell itself, each of them that moves; wrong code shows at the
    cell, right around or inside it, or at the cell that begins next, and where else the mutation says. `cause` is None
    where none is asked for, `right batch` where there is one batch or none of its culprits is there.
    """
    places = {path: port.same_layer(path) for path in mutation.paths}
    if mutation.family not in ("settings", "weights"):
        places = {path: own | port.beside(path) | mutation.also for path, own in places.items()}
    known = {one["candidate"] for one in before["culprits"]} - {path for own in places.values() for path in own}
    culprits = [one for one in said["culprits"] if one["candidate"] not in known]
    moving = [path for path, ratio in moves["layers"].items() if ratio > 1] or list(places)
    there = [one for one in culprits if any(one["candidate"] in own for own in places.values())]
    causes = [cause for one in there for cause in one["cause"].split(" + ")]
    right_cause = any(fnmatch(cause, glob) for cause in causes for glob in mutation.causes)
    refused = said["verdict"] == "refused"  # a port that draws random numbers is told at once, with the layer
    named = [path for path, own in places.items() if refused and any(repr(one) in said["reason"] for one in own)]
    linted = [place for place, rule in said["linted"] if any(fnmatch(rule, glob) for glob in mutation.causes)]
    return {
        "name": mutation.name,
        "kind": mutation.kind,
        "family": mutation.family,
        "moves": "output" if moves["output"] > 1 else "layer" if max(moves["layers"].values()) > 1 else "nothing",
        "moved": moves,
        "verdict": said["verdict"],
        "reason": said["reason"],
        "culprits": culprits,
        "findings": said["findings"][:5],
        "detected": said["verdict"] == "not aligned" or refused,
        "right layer": all(
            path in named or any(one["candidate"] in places[path] for one in culprits) for path in moving
        ),
        "right batch": _right_batch(there, moves.get("batch")),
        "cause": right_cause if mutation.causes else None,
        "explained": any(one["cause"] or is_found_inside(one) for one in there),
        "strangers": len(culprits) - len(there),
        "linted": any(place in own for place in linted for own in places.values()) if mutation.lint else None,
        "seconds": said["seconds"],
    }


def is_found_inside(culprit: dict[str, Any]) -> bool:
    """Tell whether a culprit has the functional call at fault, and what it does otherwise."""
    inside = culprit.get("inside")
    return bool(inside and inside["difference"] and inside["sureness"] == "confirmed")


def _right_batch(culprits: list[dict[str, Any]], batch: str | None) -> bool | None:
    """Tell whether the first batch in which a culprit is shown is the first that a mutation moves: "2 of 2"."""
    if batch is None or not culprits:
        return None
    return min(one["facts"].get("batch", "no batch") for one in culprits) == batch
