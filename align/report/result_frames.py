"""Results as pandas frames, to sort, filter and plot in the notebook.

Documents name NaN and the infinities in words; in a frame they are numbers again.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from align.core.json_data import own_fields
from align.names.map_export import COLUMNS, map_rows
from align.report.kind_parts.step_parameters import SIDES, step_parameters
from align.report.rendering.format_values import NON_FINITE, as_float

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from align.names.map_result import MapResult
    from align.report.kind_parts.step_parameters import StepParameter


def kind_frame(kind: str, document: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of a document of this kind: those of `FRAMES`, else one row each entry of what it lists.

    Figures and limits of a row stand in columns of their own, the latter as `limit_*`. Rows of a part, as the
    parameters of a side, have what is said of the part before them.

    >>> document = {"sides": [{"label": "a", "loss": "NaN", "parameters": [{"name": "w"}]}]}
    >>> kind_frame("params", document).to_dict("records")
    [{'label': 'a', 'loss': nan, 'name': 'w'}]
    """
    if kind in FRAMES:
        return FRAMES[kind](document)
    outer, *inner = ROWS[kind]
    rows = document[outer]
    if inner:
        rows = [{**_single_values(part), **row} for part in rows for row in part[inner[0]]]
    return _frame([dict(_flat(row)) for row in rows])


def pair_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a paired parameter of a map result: source, target, evidence, confidence, transform."""
    columns = ("source", "target", "evidence", "confidence", "transform")
    rows = [{**pair, "transform": pair["transform"]["op"]} for pair in document["name_map"]["pairings"]]
    return _frame(rows, columns)


def map_frame(result: MapResult) -> pd.DataFrame:
    """One row a pair, and one each name that is not paired.

    Columns: source, target, transform, evidence, confidence (NaN where nothing is paired), status (paired, ambiguous,
    unmatched or dropped), shapes and dtypes of both sides, note.

    >>> from align.core.name_map import NameMap, Pairing
    >>> from align.names.map_result import MapResult
    >>> pairing = Pairing("fc.weight", "head.weight", "structure", 0.9)
    >>> result = MapResult(NameMap("a", "b", (pairing,)), None, None, None)
    >>> map_frame(result)[["source", "target", "confidence"]].values.tolist()
    [['fc.weight', 'head.weight', 0.9]]
    """
    import pandas as pd

    frame = pd.DataFrame(map_rows(result), columns=list(COLUMNS))
    return frame.astype({"confidence": "float64"})


def layer_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a compared tensor of a forward result, with all figures and the limit in force, in execution order.

    `alone_*` are of the layer in a run in which all before returned the reference's values.
    """
    return _frame([_layer_row(layer) for layer in document["layers"]])


def point_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a common step of a loss result: both values, their difference and what it may be."""
    import pandas as pd

    return pd.DataFrame({name: _column(column) for name, column in document["points"].items() if name != "count"})


def parameter_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a paired parameter of a step result: L2 norms of both gradients and updates, multiples of the limit.

    Sizes of updates are the root mean square over the steps, with both optimizers given the reference's gradients.
    """
    return _frame([_parameter_row(one) for one in step_parameters(document)])


def loss_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a training step that was captured, with its loss."""
    return _frame([{"step": step, "loss": loss} for step, loss in enumerate(document["losses"], 1)])


def memory_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a sample of a process that was followed: seconds since the start, and bytes."""
    pairs = zip(document["seconds"], document["resident"], strict=True)
    return _frame([{"seconds": seconds, "resident": resident} for seconds, resident in pairs])


FRAMES = {
    "map": pair_frame,
    "forward": layer_frame,
    "step": parameter_frame,
    "steps": loss_frame,
    "loss": point_frame,
    "memory": memory_frame,
}
# What other kinds list: a field, or a field of each entry of a field.
ROWS = {
    "batch": ("tasks",),
    "bisect": ("points",),
    "check": ("faults",),
    "convert": ("tensors",),
    "determinism": ("sides", "parts"),
    "diff": ("tensors",),
    "doctor": ("switches",),
    "emulate": ("layers",),
    "fix": ("places",),
    "scan": ("calls",),
    "generate": ("comparisons", "positions"),
    "hyperparameters": ("differences",),
    "initial": ("parameters",),
    "inspect": ("tensors",),
    "iterations": ("tensors",),
    "ladder": ("rungs",),
    "lint": ("findings",),
    "log": ("metrics",),
    "crash": ("steps",),
    "nonfinite": ("before",),
    "params": ("sides", "parameters"),
    "power": ("parameters",),
    "precision": ("layers",),
    "report": ("rungs",),
    "repro": ("outputs",),
    "scale": ("steps",),
    "switches": ("switches",),
    "trace": ("calls", "outputs"),
    "training": ("layers",),
    "updates": ("tensors",),
    "validate": ("combinations",),
}
# Fields of a row that hold figures, and what goes before the name of each as a column.
FIGURES = {
    "measurement": "",
    "accumulated": "accumulated_",
    "alone": "alone_",
    "limit": "limit_",
    "statistics": "",
    "window": "window_",
    "reference_values": "reference_",
    "candidate_values": "candidate_",
}


_NAMED = (
    "order",
    "reference",
    "candidate",
    "reference_class",
    "candidate_class",
    "call",
    "output",
    "outcome",
    "factor",
)


def _parameter_row(one: StepParameter) -> dict[str, Any]:
    row = asdict(one)
    for key in ("gradient", "update"):
        row |= {f"{side}_{key}": size for side, size in zip(SIDES, row.pop(f"{key}s"), strict=True)}
    return row


def _layer_row(layer: dict[str, Any]) -> dict[str, Any]:
    row = {name: layer[name] for name in _NAMED}
    figures = layer["measurement"] or {}
    row |= {name: value for name, value in figures.items() if not isinstance(value, list)}
    limit, alone = layer["limit"] or {}, layer.get("isolated") or {}
    row |= {f"limit_{name}": value for name, value in limit.items()}
    row |= {f"alone_{name}": alone.get(name) for name in ("outcome", "factor", "inputs_factor")}
    return row | {"amplification": layer.get("amplification")}


def _single_values(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in own_fields(part).items() if not isinstance(value, (dict, list))}


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields of a row, with its figures, but for lists of them, among them."""
    for name, value in own_fields(row).items():
        if name in FIGURES and isinstance(value, dict):
            yield from ((f"{FIGURES[name]}{key}", one) for key, one in _single_values(value).items())
        elif name not in FIGURES or value is not None:
            yield name, value


def _frame(rows: Sequence[dict[str, Any]], columns: Sequence[str] = ()) -> pd.DataFrame:
    """Make a frame of rows, which may lack fields of others."""
    import pandas as pd

    names = columns or dict.fromkeys(name for row in rows for name in row)
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> list[Any]:
    """Turn words for numbers that are not finite into these, where all else are numbers."""
    if any(isinstance(one, str) and one in NON_FINITE for one in values) and all(map(_is_figure, values)):
        return list(map(as_float, values))
    return values


def _is_figure(value: object) -> bool:
    return value is None or isinstance(value, (int, float)) or (isinstance(value, str) and value in NON_FINITE)
