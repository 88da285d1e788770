"""Both sides of a comparison, opened together: whatever is done to the one must not reach the other.

A factory may hand out one model twice, and a port may hold layers or tensors of its original. That shows once both are
built: filling, moving and casting wait until then, and the candidate is copied where it must be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from align.core.message_words import counted, first_few
from align.core.protocols import ModelCopier
from align.errors import CannotRunError, SharedModelError
from align.models.live.shared_tensors import changed_tensors, shared_tensors
from align.models.open_side import Preparation, Side, SideRequest, build_side, prepare_side
from align.models.user_code import run_user_code
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.core.parameters import TensorMemory
    from align.core.protocols import Model

Sides = tuple[Side, Side]
Purpose = Literal["comparison", "names", "trial"]
"""What for: a comparison of one object with itself would be a verdict about nothing, so it is refused.

Names may be those of one object: its map to itself is right, no value counts, and nothing is filled unless asked. A
trial fills both sides with values of its own: one object is copied.
"""


def open_sides(
    reference: str | Model | Side | SideRequest,
    candidate: str | Model | Side | SideRequest,
    purpose: Purpose = "comparison",
) -> Sides:
    """Build (or take) both models, see to it that they share nothing, then fill, move and cast each as asked.

    A side is what `open_side` takes, or a SideRequest with its options. Raises SharedModelError for a model that would
    be compared with itself, and for models that share tensors where the candidate cannot be copied, or where one was
    filled, moved or cast before; and what `open_side` raises.

    >>> import numpy as np
    >>> from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    >>> def model(path, weight):
    ...     layer = ArrayLayer(path, "torch.nn.Linear", lambda x, weight: x @ weight.T, {"weight": weight})
    ...     return ArrayModel((layer,))
    >>> weight = np.ones((2, 3), np.float32)
    >>> open_sides(model("fc", weight), model("head", weight))[1].copied
    'copied before anything was done to it: it shared 1 tensor (head.weight) with ArrayModel'
    """
    requests = _request(reference), _request(candidate)
    for request in requests:
        request.check()
    built = _built(requests)
    asked = _wanted(built[0], requests[0]), _wanted(built[1], requests[1])
    apart = _apart(built, asked, purpose)
    opened = prepare_side(apart[0], requests[0]), prepare_side(apart[1], requests[1])
    if built[0].model is built[1].model and purpose == "comparison" and _differ_in_place_only(asked):
        _refuse_alike(opened)
    return opened


def refuse_one_object(sides: Sides) -> None:
    """Raise SharedModelError if both sides are one object."""
    if sides[0].model is sides[1].model:
        raise SharedModelError(_labels(sides), "are one object: a comparison of a model with itself tells nothing")


def refuse_shared(sides: Sides) -> None:
    """Raise SharedModelError if both sides are one object, or share tensors."""
    refuse_one_object(sides)
    if shared := shared_tensors(_memory(sides[0]), _memory(sides[1])):
        raise SharedModelError(_labels(sides), f"share {_named(shared)}: a step of the one would move the other")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What makes a side another than its model as it was built."""

    checkpoint: Path | None = None
    device: str | None = None
    dtype: str | None = None
    compiled: bool = False


def _request(side: str | Model | Side | SideRequest) -> SideRequest:
    return side if isinstance(side, SideRequest) else SideRequest(side)


def _wanted(side: Side, request: SideRequest) -> _Wanted:
    before = side.prepared
    checkpoint = request.checkpoint or before.checkpoint
    return _Wanted(
        None if checkpoint is None else Path(checkpoint).resolve(),
        request.device or before.device,
        request.dtype or before.dtype,
        side.compiled or request.mode == "graph",
    )


def _built(requests: tuple[SideRequest, SideRequest]) -> Sides:
    """Build both; raises SharedModelError if the second's function changes the first's model."""
    first = build_side(requests[0].side)
    before = _memory(first) if isinstance(requests[1].side, str) else None
    sides = first, build_side(requests[1].side)
    if before is not None and (changed := changed_tensors(before, _memory(first))):
        raise SharedModelError(
            _labels(sides), f"are not apart: building the latter changed the former, {_named(changed)}"
        )
    return sides


def _apart(sides: Sides, asked: tuple[_Wanted, _Wanted], purpose: Purpose) -> Sides:
    """Both sides as two models that share no tensor."""
    untouched = purpose == "names" and asked == (_Wanted(), _Wanted())
    if sides[0].model is not sides[1].model:
        shared = [] if untouched else shared_tensors(_memory(sides[0]), _memory(sides[1]))
        return _with_copy(sides, _named(shared)) if shared else sides
    if untouched:
        return sides
    if purpose != "trial" and asked[0] == asked[1]:
        refuse_one_object(sides)
    return _with_copy(sides, "")


def _with_copy(sides: Sides, shared: str) -> Sides:
    """The candidate copied, of which tensors are `shared`, or "" for one object.

    Raises SharedModelError where it cannot be copied, or was filled, moved or cast before.
    """
    first, second = sides
    sharing_fault = f"shared {shared}" if shared else "was one object"
    if first.prepared != second.prepared or (second.prepared != Preparation() and first.model is not second.model):
        reason = f"were filled, moved or cast one after the other, but the latter {sharing_fault} with the former"
        hint = "open both at once, with align.open_sides, or let each function build a model of its own"
        raise SharedModelError(_labels(sides), reason, hint)

    def uncopied(error: BaseException) -> SharedModelError:
        said = str(error).strip().partition("\n")[0]
        reason = f"are not apart: the latter {sharing_fault} with the former, and cannot be copied"
        return SharedModelError(_labels(sides), f"{reason}: {type(error).__name__}: {said}")

    model = run_user_code(lambda: _copied(second), uncopied)
    note = (
        sentence("side_finding.shared", names=shared, side=first.label)
        if shared
        else sentence("side_finding.one_object", side=first.label)
    )
    copied = replace(second, model=model, copied=note)
    if left := shared_tensors(_memory(first), _memory(copied)):
        raise SharedModelError(_labels(sides), f"are not apart: a copy of the latter still shares {_named(left)}")
    return first, copied


def _copied(side: Side) -> Model:
    if isinstance(side.reader, ModelCopier):
        return side.reader.copied(side.model)
    raise CannotRunError(f"{side.label} shares memory with the other side, and {side.reader.name} copies no model")


def _differ_in_place_only(asked: tuple[_Wanted, _Wanted]) -> bool:
    mine, theirs = asked
    return (mine.checkpoint, mine.compiled) == (theirs.checkpoint, theirs.compiled)


def _refuse_alike(sides: Sides) -> None:
    """Raise SharedModelError for an object and its copy where neither device nor dtype differs after all."""
    mine, theirs = ([(one.device, one.dtype) for one in _memory(side).values()] for side in sides)
    if mine == theirs:
        reason = "are one object, on the device and in the dtype that are asked for: there is nothing to compare"
        raise SharedModelError(_labels(sides), reason)


def _memory(side: Side) -> dict[str, TensorMemory]:
    return side.reader.tensor_memory(side.model) if isinstance(side.reader, ModelCopier) else {}


def _labels(sides: Sides) -> tuple[str, str]:
    return sides[0].label, sides[1].label


def _named(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'tensor')} ({first_few(names)})"
