"""Results as pandas frames, to sort, filter and plot in the notebook."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from align.names.map_export import COLUMNS, map_rows
from align.report.kind_parts.step_parameters import SIDES, step_parameters

if TYPE_CHECKING:
    import pandas as pd

    from align.names.map_result import MapResult
    from align.report.kind_parts.step_parameters import StepParameter


def pair_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a paired parameter of a map result: source, target, evidence, confidence, transform."""
    import pandas as pd

    columns = ["source", "target", "evidence", "confidence", "transform"]
    rows = [{**pair, "transform": pair["transform"]["op"]} for pair in document["name_map"]["pairings"]]
    return pd.DataFrame(rows, columns=columns)


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
    import pandas as pd

    return pd.DataFrame([_layer_row(layer) for layer in document["layers"]])


def point_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a common step of a loss result: both values, their difference and what it may be."""
    import pandas as pd

    return pd.DataFrame({name: column for name, column in document["points"].items() if name != "count"})


def parameter_frame(document: dict[str, Any]) -> pd.DataFrame:
    """One row a paired parameter of a step result: L2 norms of both gradients and updates, multiples of the limit.

    Sizes of updates are the root mean square over the steps, with both optimizers given the reference's gradients.
    """
    import pandas as pd

    return pd.DataFrame([_parameter_row(one) for one in step_parameters(document)])


FRAMES = {"map": pair_frame, "forward": layer_frame, "step": parameter_frame, "loss": point_frame}


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
