"""Results that Polygraphy saves as JSON (`--save-outputs`): outputs by name, the arrays as `.npy` in base64."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from align.checkpoints.single_files import array_of_bytes, read_json
from align.core.dtypes import dtype_name
from align.core.traces import DumpedTensor, ForeignDump
from align.errors import DumpError
from align.traces.thresholds import MOST_LISTED_RUNS, RECOGNIZED_BYTES
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from align.core.dtypes import Array

_KIND = "polygraphy_class"


@dataclass(frozen=True, slots=True)
class PolygraphyReader:
    """A file of one runner's results."""

    name: str = "polygraphy"
    summary: str = "Polygraphy JSON: the results of one runner, as --save-outputs writes them"
    requires: tuple[str, ...] = ()
    last_resort: bool = False
    tried_with: str = "Polygraphy 0.49.27"

    def recognizes(self, path: Path) -> bool:
        """Tell by the name of the first list, and the class at the end."""
        if not path.is_file():
            return False
        with path.open("rb") as stream:
            head = stream.read(RECOGNIZED_BYTES)
            stream.seek(max(path.stat().st_size - RECOGNIZED_BYTES, 0))
            return b'"lst"' in head and b"RunResults" in stream.read()

    def read(self, path: Path) -> ForeignDump:
        """Decode all arrays; the file holds them all anyway."""
        document = read_json(path)
        runs = document.get("lst") if isinstance(document, dict) else None
        if not isinstance(runs, list) or not all(_is_run(run) for run in runs) or not runs:
            raise DumpError.of("dump_error.no_runners", path=path)
        if len(runs) > 1:
            names = [str(run[0]) for run in runs][:MOST_LISTED_RUNS]
            raise DumpError.of("dump_error.several_runners", path=path, count=len(runs), names=names)
        unknown: list[str] = []
        tensors = tuple(_tensors(path, runs[0][1], unknown))
        if not tensors:
            raise DumpError.of("dump_error.no_tensors", path=path)
        notes = (sentence("dump_note.not_known", tool=self.tried_with, names=sorted(unknown)),) if unknown else ()
        return ForeignDump(path, "polygraphy", "", tensors, of_modules=False, notes=notes)


PLUGIN = PolygraphyReader()


def _is_run(run: Any) -> bool:
    return isinstance(run, list) and len(run) == 2 and isinstance(run[1], list)


def _tensors(path: Path, iterations: list[Any], unknown: list[str]) -> Iterator[DumpedTensor]:
    order = 0
    for call, iteration in enumerate(iterations):
        outputs = iteration.get("outputs") if isinstance(iteration, dict) else None
        for name, held in outputs.items() if isinstance(outputs, dict) else ():
            value = _array(path, str(name), held)
            if value is None:
                unknown.append(str(name))
                continue
            yield DumpedTensor(
                order,
                "output",
                str(name),
                call,
                "",
                "",
                value.shape,
                dtype_name(value.dtype),
                load=partial(_same, value),
            )
            order += 1


def _same(value: Array) -> Array:
    return value


def _array(path: Path, name: str, held: Any) -> Array | None:
    """The array inside of the classes that may hold one; None for what is not known."""
    for _ in range(4):
        if not isinstance(held, dict):
            return None
        if held.get(_KIND) in ("ndarray", "Tensor") and isinstance(held.get("array"), str):
            try:
                content = base64.b64decode(held["array"], validate=True)
            except ValueError as error:  # of letters beyond ASCII, or binascii.Error
                raise DumpError.of("dump_error.no_base64", path=path, name=name, reason=error) from error
            return array_of_bytes(path, name, content)
        held = held.get("values")
    return None
