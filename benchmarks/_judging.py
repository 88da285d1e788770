"""What the tool said of a port, held against what is known to be wrong with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIELDS = (
    "reference",
    "candidate",
    "reference_class",
    "candidate_class",
    "call",
    "part",
    "factor",
    "cause",
    "sureness",
    "change",
    "line",
)


def compared(case: Any) -> dict[str, Any]:
    """The tool's verdict on a case as it stands, its culprits and the seconds that it took."""
    from align.core.plain import to_plain
    from align.workflows.compare_forward import compare_forward

    case.restore_names()
    begun = time.perf_counter()
    result = compare_forward(case.model, case.net, inputs=case.inputs, name_map=case.name_map)
    case.restore_names()
    return {
        "verdict": result.verdict.outcome.value,
        "reason": result.verdict.reason,
        "culprits": [{name: to_plain(getattr(one, name)) for name in FIELDS} for one in culprits_of(result)],
        "findings": [f"{one.code} {one.subject}" for one in result.findings if one.severity != "note"],
        "seconds": round(time.perf_counter() - begun, 1),
    }


def parent(path: str) -> str:
    """Path of the cell around."""
    return path.rpartition(".")[0]


def is_at(culprit: dict[str, Any], paths: Iterable[str]) -> bool:
    """Tell whether a culprit is one of these cells."""
    return culprit["candidate"] in set(paths)


def is_near(culprit: dict[str, Any], paths: Iterable[str]) -> bool:
    """Tell whether a culprit is the cell right around one of these, or one right inside it."""
    place = culprit["candidate"]
    return any(place == parent(path) or parent(place) == path for path in paths)


def count(items: Iterable[Any], holds: Callable[[Any], bool]) -> int:
    """How many items it holds for."""
    return sum(1 for item in items if holds(item))


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


def culprits_of(result: Any) -> list[Any]:
    """Until there are culprits: the first divergent layer."""
    from types import SimpleNamespace

    if hasattr(result, "culprits"):
        return list(result.culprits)
    if result.first_divergent is None:
        return []
    layer = result.layers[result.first_divergent]
    own = {name: getattr(layer, name, "") for name in FIELDS}
    return [SimpleNamespace(**{**own, "part": "layer", "sureness": "unknown"})]
