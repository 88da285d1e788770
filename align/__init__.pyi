"""The public API: each name and where it is made; the package imports it on first use. All else is internal."""

from align.checkpoints.inspect_checkpoint import inspect_checkpoint as inspect_checkpoint
from align.convert.convert_checkpoint import convert_checkpoint as convert_checkpoint
from align.convert.diff_checkpoints import diff_checkpoints as diff_checkpoints
from align.convert.diff_updates import diff_updates as diff_updates
from align.core.about import __version__ as __version__
from align.core.training import Training as Training
from align.curves.compare_losses import compare_losses as compare_losses
from align.evaluation.compare_generation import compare_generation as compare_generation
from align.evaluation.validate_models import validate_models as validate_models
from align.forward.bisect_port import bisect_port as bisect_port
from align.forward.bisect_precision import bisect_precision as bisect_precision
from align.forward.bisect_switches import bisect_switches as bisect_switches
from align.forward.compare_forward import compare_forward as compare_forward
from align.forward.compare_trace_folders import compare_trace_folders as compare_trace_folders
from align.forward.emulate_model import emulate_model as emulate_model
from align.forward.export_repro import export_repro as export_repro
from align.forward.measure_power import measure_power as measure_power
from align.lint.lint_models import lint_models as lint_models
from align.models.open_side import SideRequest as SideRequest
from align.models.open_side import open_side as open_side
from align.models.open_side import open_sides as open_sides
from align.models.probe import probe as probe
from align.names.check_name_map import check_name_map as check_name_map
from align.names.map_one_side import map_one_side as map_one_side
from align.names.map_parameters import map_parameters as map_parameters
from align.report.open_run import open_run as open_run
from align.report.result_frames import map_frame as map_frame
from align.report.write_report import write_report as write_report
from align.traces.capture_trace import capture_trace as capture_trace
from align.traces.open_trace import show_trace as show_trace
from align.training.bisect_training import bisect_training as bisect_training
from align.training.capture_training_step import capture_training_step as capture_training_step
from align.training.check_determinism import check_determinism as check_determinism
from align.training.check_parameters import check_parameters as check_parameters
from align.training.compare_initial_values import compare_initial_values as compare_initial_values
from align.training.compare_training_step import compare_training_step as compare_training_step
from align.training.freeze import freeze as freeze
from align.training.make_deterministic import make_deterministic as make_deterministic
from align.watch.compare_iterations import compare_iterations as compare_iterations
from align.watch.dump import dump as dump
from align.watch.locate_nonfinite import locate_nonfinite as locate_nonfinite
from align.watch.loss_scale import watch_loss_scale as watch_loss_scale
from align.watch.watch_nonfinite import watch_nonfinite as watch_nonfinite

__all__: list[str]
