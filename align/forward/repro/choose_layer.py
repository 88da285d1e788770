"""Which pair of calls shows a fault best: the one that the user names, or the first that is at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.message_words import close_names, first_few
from align.errors import CannotRunError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.forward.forward_result import ForwardComparison
    from align.traces.module_calls import CallPair


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
        raise CannotRunError(comparison.verdict.reason, f"{comparison.failure.hint}; or name a layer with --layer PATH")
    raise CannotRunError("no layer differs, so there is none to show", "name one with --layer PATH")


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
    hint = f"close to it: {first_few(close)}" if close else "`align forward` lists all pairs"
    raise CannotRunError(f"no paired call is named {named!r}", hint)


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
