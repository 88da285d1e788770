"""Dumps as msprobe lays them out for calls of functions: `dump.json` (task tensor, level L1) and a file a tensor.

The layout is that of the calls in `tests/traces/data/msprobe`, which msprobe wrote: tensors with dtype, shape and
`data_name`, numbers and texts as `{"type": ..., "value": ...}`, what is absent as null.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pathlib import Path


def write_dump(
    folder: Path, calls: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...]]], framework: str = "pytorch"
) -> Path:
    """Write calls, each its name without the number and way, arguments, keywords, outputs; return the folder."""
    data = folder / "dump_tensor_data"
    data.mkdir(parents=True)
    counts: dict[str, int] = {}
    records = {}
    for api, args, kwargs, outputs in calls:
        name = f"{api}.{counts.get(api, 0)}.forward"
        counts[api] = counts.get(api, 0) + 1
        records[name] = {
            "input_args": [_described(one, data, f"{name}.input.{place}") for place, one in enumerate(args)],
            "input_kwargs": {key: _described(one, data, f"{name}.input.{key}") for key, one in kwargs.items()},
            "output": [_described(one, data, f"{name}.output.{place}") for place, one in enumerate(outputs)],
        }
    table = {"task": "tensor", "level": "L1", "framework": framework, "dump_data_dir": str(data), "data": records}
    (folder / "dump.json").write_text(json.dumps(table, indent=1), encoding="utf-8")
    return folder


def _described(value: Any, data: Path, name: str) -> Any:
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        torch.save(value.detach().clone(), data / f"{name}.pt")
        known = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
        return {**known, "data_name": f"{name}.pt", "requires_grad": value.requires_grad}
    if isinstance(value, (list, tuple)):
        return [_described(one, data, f"{name}.{place}") for place, one in enumerate(value)]
    return {"type": type(value).__name__, "value": value}
