"""What a training step of any framework takes: the parts of a batch, a loss that is a number, and layers that drop."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from align.core.training import BatchParts
from align.errors import CannotRunError, InputsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from align.core.protocols import Batch, Model
    from align.core.training import Training

# What modules call the share that they drop, or that they keep, where they hand it to a function themselves.
_DROPS = re.compile(r"Drop|Stochastic_?Depth")
_SHARES = re.compile(r"(?:\w+_)?(?:dropout|drop)(?:_(?:p|prob|rate|ratio))?|keep_prob")


def dropping(
    modules: Iterable[tuple[str, Model]], off: Mapping[str, float]
) -> Iterator[tuple[str, Model, dict[str, Any]]]:
    """Modules that drop a share of what they are given, each with the attributes that switch it off.

    Layers for dropout, by their class or one that it derives from, have the attributes `off`; others keep a share as a
    number under a usual name.
    """
    for path, module in modules:
        attributes = vars(module)
        drops = any(_DROPS.search(one.__name__) for one in type(module).__mro__)
        found = {name: value for name, value in off.items() if drops and name in attributes}
        shares = {name for name, value in attributes.items() if isinstance(value, float) and 0.0 < value < 1.0}
        found |= {name: 1.0 if name == "keep_prob" else 0.0 for name in shares if _SHARES.fullmatch(name)}
        if found:
            yield path, module, found


def scalar(loss: Any) -> float | None:
    """A loss as a number, None if there is none; raises CannotRunError for one of several elements."""
    if loss is None:
        return None
    if np.size(loss) == 1 and (isinstance(loss, (int, float, np.ndarray, np.generic))):
        return float(np.asarray(loss).astype(np.float64).reshape(()))
    got = f"an array of {list(loss.shape)}" if isinstance(loss, np.ndarray) else f"a {type(loss).__name__}"
    raise CannotRunError(
        f"the loss is no single number, but {got}",
        "reduce it in the loss function (`reduction='mean'`); a step of your own returns the loss, or nothing",
    )


def own_loss(outputs: Any) -> Any:
    """The loss of a model that returns its own: all of it, what it calls `loss`, or the first of several.

    Raises CannotRunError if there is none.
    """
    if isinstance(outputs, (tuple, list)):
        loss = next(iter(outputs), None)
    else:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", outputs)
    if loss is None:
        raise CannotRunError(
            "the model returns no loss", "give a loss beside it, or the labels that it wants as inputs"
        )
    return loss


def batch_parts(training: Training, batch: Batch, forward: Callable[..., Any]) -> BatchParts:
    """Which arrays of a batch go to the model, and which to its loss.

    Those that bear names of the model's parameters are its inputs; if none does, as many as it must have come first.
    Without a loss all are inputs, unless a step of the user's own hands out the rest. Raises InputsError if none is
    left for the loss.
    """
    if training.loss is None and training.step is None:
        return BatchParts(dict(batch), {})
    parameters = inspect.signature(forward).parameters.values()
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    inputs = [name for name in batch if name in named]
    needed = sum(one.default is one.empty and one.kind == one.POSITIONAL_OR_KEYWORD for one in parameters)
    inputs = inputs or [*batch][: max(1, needed)]
    targets = {name: value for name, value in batch.items() if name not in inputs}
    if not targets and training.step is None:
        raise InputsError(
            f"the batch has {', '.join(batch)}, and nothing for the loss",
            "name the model's inputs as its forward does, and add the labels under another name",
        )
    return BatchParts({name: batch[name] for name in inputs}, targets)
