"""mindalign: prove that a port computes what its original computes.

The public names are imported on first use, so that `import align` is quick and free of frameworks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from align.core.probing import probe
    from align.report.frames import map_frame
    from align.report.notebook import write_report
    from align.workflows.bisect_port import bisect_port
    from align.workflows.bisect_precision import bisect_precision
    from align.workflows.capture_trace import capture_trace
    from align.workflows.check_map import check_name_map
    from align.workflows.compare_forward import compare_forward
    from align.workflows.compare_generation import compare_generation
    from align.workflows.compare_losses import compare_losses
    from align.workflows.compare_trace_folders import compare_trace_folders
    from align.workflows.convert_checkpoint import convert_checkpoint
    from align.workflows.diff_checkpoints import diff_checkpoints
    from align.workflows.export_repro import export_repro
    from align.workflows.inspect_checkpoint import inspect_checkpoint
    from align.workflows.lint_models import lint_models
    from align.workflows.map_one_side import map_one_side
    from align.workflows.map_parameters import map_parameters
    from align.workflows.measure_power import measure_power
    from align.workflows.show_trace import show_trace
    from align.workflows.sides import open_side
    from align.workflows.validate_models import validate_models

_HOMES = {
    "bisect_port": "align.workflows.bisect_port",
    "capture_trace": "align.workflows.capture_trace",
    "bisect_precision": "align.workflows.bisect_precision",
    "check_name_map": "align.workflows.check_map",
    "compare_forward": "align.workflows.compare_forward",
    "compare_generation": "align.workflows.compare_generation",
    "compare_losses": "align.workflows.compare_losses",
    "compare_trace_folders": "align.workflows.compare_trace_folders",
    "convert_checkpoint": "align.workflows.convert_checkpoint",
    "diff_checkpoints": "align.workflows.diff_checkpoints",
    "export_repro": "align.workflows.export_repro",
    "inspect_checkpoint": "align.workflows.inspect_checkpoint",
    "lint_models": "align.workflows.lint_models",
    "map_frame": "align.report.frames",
    "map_one_side": "align.workflows.map_one_side",
    "map_parameters": "align.workflows.map_parameters",
    "measure_power": "align.workflows.measure_power",
    "open_side": "align.workflows.sides",
    "probe": "align.core.probing",
    "show_trace": "align.workflows.show_trace",
    "validate_models": "align.workflows.validate_models",
    "write_report": "align.report.notebook",
}

__all__ = [
    "bisect_port",
    "bisect_precision",
    "capture_trace",
    "check_name_map",
    "compare_forward",
    "compare_generation",
    "compare_losses",
    "compare_trace_folders",
    "convert_checkpoint",
    "diff_checkpoints",
    "export_repro",
    "inspect_checkpoint",
    "lint_models",
    "map_frame",
    "map_one_side",
    "map_parameters",
    "measure_power",
    "open_side",
    "probe",
    "show_trace",
    "validate_models",
    "write_report",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    msg = f"module 'align' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
