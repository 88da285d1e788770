"""Which switch of an Ascend chip or a GPU a model suffers from: all are set widest, then halved until one is left.

A switch is emulated by the casts that it stands for: no card is needed, and the lines to run on one are part of the
result. What no switch widens (operators that the chip has in float16 only) stays in every run.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from align.core.progress import silent
from align.core.protocols import ChipEmulator
from align.core.verdicts import Coverage, Outcome, Verdict
from align.errors import CannotRunError, UsageError
from align.forward.bisect_precision import KeptOutputs, judged_by, smallest_set
from align.forward.bisect_result import SwitchBisection, SwitchMoved
from align.forward.running.measure_noise import measure_noise
from align.forward.running.predict_errors import emulation_findings
from align.models.inputs import describe_inputs, read_inputs
from align.models.open_side import open_side
from align.rules.ascend_rules import ascend_target
from align.traces.trace_folder import TraceFolder
from align.traces.trace_writer import TraceWriter
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from align.core.dtypes import Array, EmulatedCalls
    from align.core.progress import Progress
    from align.core.protocols import Model
    from align.forward.bisect_precision import Movement
    from align.models.open_side import Side
    from align.rules.ascend_rules import AscendSwitch, AscendTarget, Driver


def bisect_switches(  # noqa: PLR0913 - the options of one command
    side: str | Model | Side,
    *,
    target: str,
    inputs: Path | str | Mapping[str, Array],
    framework: Driver = "mindspore",
    switches: Mapping[str, str] | None = None,
    limit: float | None = None,
    loss: str | Callable[[Any], float] | None = None,
    progress: Progress = silent,
) -> SwitchBisection:
    """Find the smallest set of switches that moves a torch model's output above a limit where they are not widest.

    The switches that are halved are those that are not at their most precise value, by default on the chip or as
    `switches` say. `limit` and `loss` are as for `align.bisect_precision`; without a limit the output's is that of a
    port in float32. Raises UsageError for an unknown chip or switch, and where all switches are widest already.

    >>> widest = {"conv_allow_hf32": "False", "deterministic": "True"}
    >>> bisect_switches("model.py:build", target="ascend:950", inputs={}, switches=widest)
    Traceback (most recent call last):
    align.errors.UsageError: all switches of ascend:950 are at their most precise value already
    Hint: set one otherwise with --switch: precision_mode, conv_allow_hf32, matmul_allow_hf32, deterministic
    """
    chip = replace(ascend_target(target, framework, switches), reorders=True)
    narrow = _narrow(chip, target)
    opened, arrays = open_side(side), read_inputs(inputs)
    if not isinstance(opened.runner, ChipEmulator):
        facts = {"side": opened.label, "framework": opened.reader.name}
        raise CannotRunError.of("emulation_error.no_torch_model", **facts)
    with tempfile.TemporaryDirectory(prefix="align-") as folder:
        with TraceWriter(Path(folder), opened.reader.environment()) as writer:
            opened.runner.run(opened.model, arrays, writer)
        trace = TraceFolder(Path(folder))
        noise = measure_noise(opened, arrays, trace)
        bench = _Bench(opened, arrays, chip, judged_by(trace, (noise, "", limit), loss), progress)
        everything, widest = bench.move(narrow), bench.move(())
        matters = (
            smallest_set(narrow, lambda names: bench.move(names).factor > 1.0) if _shows(everything, widest) else ()
        )
        moved = tuple(_moved(bench, name, matters) for name in narrow)
    return SwitchBisection(
        model=opened.label,
        target=chip.chip.label,
        framework=chip.driver,
        judged="loss" if loss else "output",
        switches=moved,
        all_moved=everything.moved,
        all_factor=everything.factor,
        widest_moved=widest.moved,
        widest_factor=widest.factor,
        widest_lines=tuple(switch.line(chip.driver, switch.values[0]) for switch in _switches(chip)),
        runs=len(bench.runs),
        findings=(*noise.findings, *emulation_findings(bench.calls, chip)),
        inputs=describe_inputs(arrays),
        environment={opened.reader.name: opened.reader.environment()},
        verdict=_verdict(moved, everything, widest, chip),
    )


def _narrow(chip: AscendTarget, target: str) -> tuple[str, ...]:
    """The switches that are not at their most precise value; raises UsageError if there is none.

    Those that a chip has at one value only are left out: no line widens them.
    """
    changing = chip.changing()
    found = [one.id for one in _switches(chip) if chip.switches[one.id] != one.values[0]]
    if not found:
        raise UsageError.of("ascend_usage.all_widest", target=target, switches=[*changing])
    return tuple(found)


def _switches(chip: AscendTarget) -> tuple[AscendSwitch, ...]:
    """Those on which something depends there."""
    return tuple(switch for switch in chip.own_switches if switch.id in chip.changing())


def _shows(everything: Movement, widest: Movement) -> bool:
    return everything.factor > 1.0 >= widest.factor


@dataclass
class _Bench:
    """The model, run with some switches as they are and all others at their widest; no such run is made twice.

    `calls` are those of the first run, with all switches as they are.
    """

    side: Side
    inputs: Mapping[str, Array]
    chip: AscendTarget
    judge: Callable[[Mapping[str, Array]], Movement]
    progress: Progress
    runs: dict[frozenset[str], Movement] = field(default_factory=dict)
    calls: tuple[EmulatedCalls, ...] = ()

    def move(self, narrow: Sequence[str]) -> Movement:
        """Run with these switches as they are."""
        key = frozenset(narrow)
        if key not in self.runs:
            wide = {one.id: one.values[0] for one in self.chip.own_switches if one.id not in key}
            emulation = self.chip.with_switches(wide).emulation()
            assert isinstance(self.side.runner, ChipEmulator)  # noqa: S101 - for the type checker: it was asked before
            sink, model = KeptOutputs(), self.side.runner.emulated(self.side.model, emulation)
            self.side.runner.run(model, self.inputs, sink)
            if not self.runs:
                self.calls = self.side.runner.emulated_calls(model)
            self.runs[key] = self.judge(sink.values)
            self.progress("bisect", len(self.runs), 2 * len(self.runs))
        return self.runs[key]


def _moved(bench: _Bench, name: str, matters: Sequence[str]) -> SwitchMoved:
    switch = next(one for one in bench.chip.own_switches if one.id == name)
    alone = bench.move((name,))
    return SwitchMoved(
        switch=name,
        value=bench.chip.switches[name],
        widest=switch.values[0],
        effect=switch.effect,
        matters=name in matters,
        alone=alone.moved,
        alone_factor=alone.factor,
        write=switch.line(bench.chip.driver, switch.values[0]),
    )


def _verdict(moved: Sequence[SwitchMoved], everything: Movement, widest: Movement, chip: AscendTarget) -> Verdict:
    coverage = Coverage("switches", len(moved))
    target = chip.chip.label
    if everything.factor <= 1.0:
        return Verdict(Outcome.PREDICTED, sentence("switches_verdict.within", target=target), coverage)
    if widest.factor > 1.0:
        return Verdict(Outcome.NOT_ALIGNED, sentence("switches_verdict.no_switch_helps", target=target), coverage)
    names = [one.switch for one in moved if one.matters]
    return Verdict(Outcome.NOT_ALIGNED, sentence("switches_verdict.matter", names=names, target=target), coverage)
