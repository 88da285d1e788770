"""One layer of both sides alone in a folder: its inputs, its weights, what came of it, and a script a side.

Where none is named, it is the first layer that is at fault.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.atomic_files import atomic_folder
from align.core.name_map import SIDES
from align.core.progress import silent
from align.errors import CannotRunError
from align.forward.compare_forward import compare_forward
from align.forward.repro_result import LayerRepro, ReproOutput
from align.forward.script_layer import Given, LayerFiles, ScriptedLayer, scripter_of, watch_call
from align.measure.measure_arrays import measure
from align.models.inputs import read_inputs, save_inputs
from align.models.open_side import open_sides
from align.traces.module_calls import inputs_of_calls
from align.traces.pair_traces import choose_map, map_in_order, pair_traces
from align.traces.trace_folder import TraceFolder
from align.words.catalogue import say
from align.words.message_words import close_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.forward.forward_result import ForwardComparison
    from align.forward.repro_result import ReproSide
    from align.models.open_side import Side
    from align.traces.module_calls import CallPair

INPUTS = "inputs.npz"
FILES = (INPUTS, *(f"{side}_{rest}" for side in SIDES for rest in ("layer.py", "weights.npz", "output.npz")))


def export_repro(  # noqa: PLR0913 - the options of one command
    reference: str | Model | Side,
    candidate: str | Model | Side,
    folder: Path | str,
    *,
    inputs: Path | str | Mapping[str, Array],
    layer: str | None = None,
    name_map: NameMap | Path | str | None = None,
    progress: Progress = silent,
) -> LayerRepro:
    """Write a folder that shows one layer: two short scripts run it alone, with its framework and NumPy only.

    `layer` is `PATH` or `PATH#CALL` on either side, by default the first culprit of a forward comparison. Both scripts
    run their layer on the reference's inputs, and print by how much it differs from what both layers returned.
    Layers of the frameworks are built by their constructors; those of the user's own classes are taken out of the
    model that the side's function makes. Raises CannotRunError where neither can be, DestinationError for a folder
    that holds something else.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model():
    ...     return ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    >>> export_repro(model(), model(), "act-alone", inputs={"x": np.ones(3, np.float32)}, layer="act")
    Traceback (most recent call last):
    align.errors.CannotRunError: no script can run arrays models
    Hint: give a torch model and a MindSpore network
    """
    sides = open_sides(reference, candidate)
    scripters = [scripter_of(side) for side in sides]
    arrays, folder = read_inputs(inputs), Path(folder)
    with tempfile.TemporaryDirectory(prefix="align-") as kept, atomic_folder(folder, FILES) as part:
        pair, trace = _choose(sides, arrays, (layer, name_map), Path(kept) / "traces", progress)
        given = Given(trace, inputs_of_calls(trace).get((pair.reference.module, pair.reference.call), []))
        keys = [(call.module, call.call) for call in (pair.reference, pair.candidate)]
        seen = [
            watch_call(reader, side.model, arrays, key, given)
            for reader, side, key in zip(scripters, sides, keys, strict=True)
        ]
        files = LayerFiles(pair, *seen)
        save_inputs(part / INPUTS, files.inputs)
        mine, theirs = (
            _write(part, ScriptedLayer(reader, side, name, files), files)
            for reader, side, name in zip(scripters, sides, SIDES, strict=True)
        )
        written = tuple(name for name in FILES if (part / name).exists())
    return LayerRepro(str(folder), mine, theirs, _outputs(files), files.own_inputs, written)


def _write(folder: Path, layer: ScriptedLayer, files: LayerFiles) -> ReproSide:
    if layer.weights:
        save_inputs(folder / f"{layer.name}_weights.npz", layer.weights)
    save_inputs(folder / f"{layer.name}_output.npz", files.outputs(layer.name))
    (folder / f"{layer.name}_layer.py").write_text(layer.script, encoding="utf-8")
    return layer.describe()


def _choose(
    sides: tuple[Side, Side],
    inputs: Mapping[str, Array],
    asked: tuple[str | None, NameMap | Path | str | None],
    kept: Path,
    progress: Progress,
) -> tuple[CallPair, TraceFolder]:
    """Compare the models, and return the pair of calls that is asked for with the reference's trace."""
    layer, given_map = asked
    first, second = (side.reader.read_parameters(side.model, side.label) for side in sides)
    name_map = choose_map(given_map, (first, second))  # before the run: a MindSpore cell may rename its parameters
    comparison = compare_forward(*sides, inputs=inputs, name_map=given_map, traces=kept, progress=progress)
    traces = TraceFolder(kept / "reference"), TraceFolder(kept / "candidate")
    if given_map is None and not name_map.complete:
        name_map = map_in_order(traces, (first, second), name_map)
    pairs = pair_traces(traces, (first, second), name_map).pairs
    return choose_pair(pairs, comparison, layer), traces[0]


def _outputs(files: LayerFiles) -> tuple[ReproOutput, ...]:
    theirs = files.outputs("candidate")
    return tuple(
        ReproOutput(
            name, one.shape, theirs[name].shape, measure(one, theirs[name]) if one.shape == theirs[name].shape else None
        )
        for name, one in files.outputs("reference").items()
    )


def choose_pair(pairs: Sequence[CallPair], comparison: ForwardComparison, named: str | None) -> CallPair:
    """Return the pair called `PATH` or `PATH#CALL` on either side, else that of the first culprit.

    What makes wrong inputs for a layer is the module around it. Raises CannotRunError for a name that no paired layer
    has, and where nothing is named and nothing differs, or the port failed before anything did.
    """
    if named is not None:
        return _named(pairs, named)
    if comparison.culprits:
        first = comparison.culprits[0]
        pair = next(p for p in pairs if (p.reference.module, p.reference.call) == (first.reference, first.call))
        return _around(pairs, pair) if first.part == "inputs" else pair
    if comparison.first_divergent is not None:
        layer = comparison.layers[comparison.first_divergent]
        return next(p for p in pairs if (p.reference.module, p.reference.call) == (layer.reference, layer.call))
    if comparison.failure is not None:
        raise CannotRunError(comparison.verdict.reason, say("forward_hint.or_name_layer", hint=comparison.failure.hint))
    raise CannotRunError.of("forward_error.nothing_to_show")


def _named(pairs: Sequence[CallPair], named: str) -> CallPair:
    path, _, number = named.partition("#")
    call = int(number) if number.isdigit() else 0
    for side in ("reference", "candidate"):
        for pair in pairs:
            one = getattr(pair, side)
            if (one.module, one.call) == (path, call):
                return pair
    known = {one.module for pair in pairs for one in (pair.reference, pair.candidate) if one.module}
    close = close_names([path], known)[path]
    raise CannotRunError.of("forward_error.no_such_pair", name=named, close=close, none=not close)


def _around(pairs: Sequence[CallPair], inner: CallPair) -> CallPair:
    """The innermost pair of modules that both run around a pair of calls."""
    around = [
        pair
        for pair in pairs
        if _holds(pair.reference.module, inner.reference.module)
        and _holds(pair.candidate.module, inner.candidate.module)
        and pair.reference.order > inner.reference.order
    ]
    return max(around, key=lambda pair: (len(pair.reference.module), -pair.reference.order), default=inner)


def _holds(path: str, inner: str) -> bool:
    return path != inner and (not path or inner.startswith(f"{path}."))
