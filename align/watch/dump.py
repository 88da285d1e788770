"""`align.dump`: what layers compute in chosen iterations of a loop of the user's own, as trace folders.

Outside of the chosen iterations nothing is hooked: a step costs one comparison of numbers. Each iteration is a folder
of its own, written as it runs, so that a killed process leaves all iterations but the last one whole.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.core.protocols import SettingsReader
from align.errors import CannotRunError, DestinationError, UsageError
from align.models.describe_sides import describe_launch
from align.models.loop_hooks import LoopHooks
from align.models.loop_watcher import LoopHost
from align.models.open_side import build_side
from align.traces.describe_data import describe_data
from align.traces.folder_lock import LOCK, folder_lock
from align.traces.kept_elements import read_kept
from align.traces.trace_writer import not_written
from align.watch.dumped_iteration import DumpedIteration, DumpPlan
from align.watch.step_ranges import read_ranges
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from align.core.protocols import Model
    from align.models.open_side import Side

STEP, RANK = "step_{}", "rank_{}"


def dump(  # noqa: PLR0913 - what can be chosen of a dump
    model: Model | Side,
    folder: Path | str,
    *,
    iterations: str = "0",
    ranks: str | None = None,
    layers: Sequence[str] | str = ("*",),
    tensors: Sequence[str] = ("all",),
    backward: bool = True,
    layer_inputs: bool = False,
    values: bool = False,
    float64: bool = False,
    first: int = 0,
    data: Any = None,
) -> Dump:
    """Write what a model's layers return in chosen iterations of a training loop, one trace folder an iteration.

    Call `step()` at the end of each iteration of your loop, and close the dump, best by a `with` block. `iterations`
    and `ranks` are ranges (`0-3,10,100-`); iterations are counted from `first`, ranks are all by default. `layers` are
    globs over the paths of modules, the model itself is always seen. `tensors` says whose values are kept, as in
    `align.capture_trace`: "none" for figures only. `backward` writes the gradients that come back to what layers
    return into `step_N/backward`. `layer_inputs` keeps what calls are given, `values` the parameters at the beginning
    of the iteration. `float64` computes each layer without others inside once more on the processor in float64, and
    notes the relative error of what the loop got. `data` is the loader or dataset of the loop: its lengths are kept,
    and it is not read; `callback()` finds it by itself. Raises UsageError for ranges and globs that name nothing,
    DestinationError for a folder that is not empty or cannot be written, CannotRunError for a model of a framework
    without loops, or one in graph mode.

    >>> from align.models.frameworks.arrays import ArrayModel
    >>> dump(ArrayModel(()), "dumps", iterations="0-2")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    align.errors.CannotRunError: no loop can be watched of a arrays model
    """
    chosen, wanted = read_ranges(iterations, "iterations"), read_ranges("0-" if ranks is None else ranks, "ranks")
    side, globs = build_side(model), [layers] if isinstance(layers, str) else [*layers]
    if not isinstance(side.reader, LoopHost):
        raise CannotRunError.of("loop_dump_error.no_loops", framework=side.reader.name)
    rank, size = side.reader.rank()
    seen = _seen_modules(side, side.reader, globs)
    plan = DumpPlan(
        kept=read_kept(tensors), backward=backward, layer_inputs=layer_inputs, values=values, float64=float64
    )
    home = Path(folder) / RANK.format(rank) if size > 1 else Path(folder)
    active = rank in wanted
    return Dump(side, seen, plan, home if active else None, (chosen, first), describe_data(data))


class Dump:
    """A dump of a loop that runs: `step()` ends an iteration, `close()` the dump; as a context manager it is closed.

    `folders` are those that were written so far. What an iteration computed after its last `step()` is left as it is.
    """

    def __init__(
        self,
        side: Side,
        modules: Sequence[tuple[str, Any]],
        plan: DumpPlan,
        home: Path | None,
        steps: tuple[Any, int],
        lengths: Mapping[str, str],
    ) -> None:
        self._side, self._modules, self._plan, self._home = side, modules, plan, home
        self._chosen, self.iteration = steps
        self._first, self._lengths = self.iteration, lengths
        self.folders: list[Path] = []
        self._held, self._current = ExitStack(), ExitStack()
        if home is not None:
            _claim(home, self._held)
        self._begin()

    @property
    def model(self) -> Model:
        """What is dumped."""
        return self._side.model

    def step(self) -> None:
        """End the iteration that runs; the next one begins."""
        self._current.close()
        self.iteration += 1
        self._begin()

    def callback(self) -> Any:
        """Return a callback that calls `step()` and `close()`: of Hugging Face's Trainer, or of `Model.train`."""
        assert isinstance(self._side.reader, LoopHost)  # noqa: S101 - for the type checker: it was asked before
        return self._side.reader.step_callback(lambda _: self.step(), self.close, self._see_data)

    def close(self) -> None:
        """End the dump: hooks are taken off, the iteration that runs is ended."""
        active, self._home = self._home is not None, None
        self._current.close()
        self._held.close()
        if active and not self.folders:
            facts = {"count": self.iteration - self._first, "iterations": self._chosen.shown}
            warnings.warn(say("loop_dump_reason.none_reached", **facts), RuntimeWarning, stacklevel=2)

    def _begin(self) -> None:
        if self._home is None or self.iteration not in self._chosen:
            return
        reader = self._side.reader
        assert isinstance(reader, LoopHost)  # noqa: S101 - for the type checker
        reader.refuse_unseen()
        folder = self._home / STEP.format(self.iteration)
        settings = reader.read_settings(self._side.model) if isinstance(reader, SettingsReader) else []
        sink = DumpedIteration((self._side, reader), folder, self.iteration, self._plan, (settings, self._environment))
        hooks = LoopHooks(sink, reader.loop_forms, backward=self._plan.backward)
        sink.hooks = hooks
        self._current = ExitStack()
        self._current.callback(self._ended, sink)
        self._current.enter_context(sink)
        self._current.enter_context(hooks.on_modules(self._modules))

    def _environment(self) -> dict[str, str]:
        return {**self._side.reader.environment(), **describe_launch(), **self._lengths}

    def _see_data(self, data: Any) -> None:
        """Keep the lengths of the data of a framework's own loop, if none were given; that never ends the loop."""
        with suppress(UsageError):
            self._lengths = self._lengths or describe_data(data)

    def _ended(self, sink: DumpedIteration) -> None:
        if sink.begun:
            self.folders.append(sink.folder)

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is None:
            self.close()
            return
        self._home = None
        try:
            self._current.__exit__(kind, error, tb)
        finally:
            self._held.close()


def _seen_modules(side: Side, host: LoopHost, globs: Sequence[str]) -> list[tuple[str, Any]]:
    """The model itself, and the modules that fit; raises UsageError for globs that fit none."""
    modules = host.loop_modules(side.model)
    paths = [path for path, _ in modules if path]
    idle = [glob for glob in globs if paths and not any(fnmatchcase(path, glob) for path in paths)]
    if idle:
        raise UsageError.of("loop_dump_error.no_layer_fits", globs=idle, count=len(paths), paths=paths)
    return [(path, one) for path, one in modules if not path or any(fnmatchcase(path, glob) for glob in globs)]


def _claim(home: Path, held: ExitStack) -> None:
    """Make the folder and hold it; raises DestinationError for one that is not empty, or cannot be written."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        if names := sorted(path.name for path in home.iterdir() if path.name != LOCK):
            raise DestinationError.of("loop_dump_error.folder_not_empty", folder=home, names=names)
        held.enter_context(folder_lock(home / LOCK, home, "trace"))
    except OSError as error:
        raise not_written(home, error) from error
