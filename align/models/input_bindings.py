"""Which parameter of a model each input is given to, reported so that a guess by position can be seen."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.core.name_map import SIDES
from align.core.verdicts import Finding
from align.models.batches import batches_of
from align.models.call_model import forward_of
from align.models.fit_inputs import cast_findings
from align.models.record_calls import bind_inputs
from align.models.thresholds import LONGEST_DEFAULT
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.protocols import Inputs
    from align.models.open_side import Side

    Sides = tuple[Side, Side]

_PLAIN = (None, False, True, 0, 0.0, "", ())  # defaults that switch something off, mostly, or leave it as it is


@dataclass(frozen=True, slots=True)
class InputBinding:
    """The parameter of one side that each input goes to, and the parameters that keep a default (as it is written)."""

    side: str
    parameters: dict[str, str]
    defaults: dict[str, str]

    @property
    def renamed(self) -> dict[str, str]:
        """Inputs that go by position to a parameter of another name."""
        return {name: parameter for name, parameter in self.parameters.items() if name != parameter}


def read_binding(role: str, side: Side, inputs: Inputs) -> InputBinding:
    """Tell how the first batch is bound; raises InputsError where it cannot be."""
    names = list(batches_of(inputs)[0])
    function = forward_of(side.model)
    args, kwargs = bind_inputs(function, {name: name for name in names})
    kinds = inspect.Parameter
    parameters = list(inspect.signature(function).parameters.values())
    places = [one.name for one in parameters if one.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    bound = {name: places[number] if number < len(places) else name for number, name in enumerate(args)}
    bound |= {name: name for name in kwargs}
    left = [one for one in parameters if one.name not in bound.values() and one.default is not kinds.empty]
    return InputBinding(role, bound, {one.name: _written(one.default) for one in left})


def read_bindings(sides: Sides, inputs: tuple[Inputs, Inputs]) -> tuple[InputBinding, ...]:
    """Tell how both sides take their inputs."""
    return tuple(read_binding(role, side, own) for role, side, own in zip(SIDES, sides, inputs, strict=True))


def bound_findings(sides: Sides, given: tuple[Inputs, Inputs], took: tuple[Inputs, Inputs]) -> Iterator[Finding]:
    """Warn of surprising bindings, and note what a side got in another dtype than it was given."""
    yield from _surprises(read_bindings(sides, given), [side.label for side in sides])
    for role, side, before, after in zip(SIDES, sides, given, took, strict=True):
        yield from cast_findings(role, side, before, after)


def _surprises(bindings: Sequence[InputBinding], labels: Sequence[str]) -> Iterator[Finding]:
    """Warn of inputs whose place is a guess, and of a default that one side alone has and that does something."""
    for own, other, label in zip(bindings, bindings[::-1], labels, strict=True):
        if own.renamed and (len(own.parameters) > 1 or own.defaults):
            pairs = own.renamed.items()
            places = [sentence("side_finding.place", name=name, parameter=parameter) for name, parameter in pairs]
            defaults = _listed(own.defaults) if own.defaults else ""
            message = sentence("side_finding.by_position", side=own.side, places=places, defaults=defaults)
            yield Finding("inputs-by-position", "warning", label, message)
        elif odd := {n: value for n, value in own.defaults.items() if _does_something(value, other.defaults.get(n))}:
            message = sentence("side_finding.default_kept", names=_listed(odd), side=own.side)
            yield Finding("default-kept", "warning", label, message)


def _does_something(value: str, others: str | None) -> bool:
    return value != others and value not in map(_written, _PLAIN)


def _listed(defaults: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in defaults.items())


def _written(default: Any) -> str:
    text = repr(default)
    return text if len(text) <= LONGEST_DEFAULT else f"<{type(default).__name__}>"
