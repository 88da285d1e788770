"""Why a parameter has no counterpart, and what comes closest: a wrong model asks that thousands of times.

Names that differ in their numbers alone are looked up once; the answer is then told with the parameter's own numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from align.core.folding import NUMBER
from align.core.names import Unmatched
from align.core.words import some
from align.steps.layers import whole_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from align.core.names import SideName
    from align.core.parameters import Parameter, ParameterSet, Shape
    from align.steps.layers import Layer

    Roles = dict[str, tuple[Layer, str]]
    Group = dict[tuple[str, ...], Parameter]  # by the numbers in their names, in which alone they differ

_SUGGESTIONS = 3
_CLOSE = 0.4
_PARTS = (
    "and no map makes the whole of its parts: take torch's weight_norm, spectral_norm or pruning out of the model first"
    " (remove_weight_norm, parametrize.remove_parametrizations, prune.remove)"
)


@dataclass(frozen=True, slots=True)
class WhyUnmatched:
    """What parameters of a side are held against: `left` is what is left on the `other` side.

    `counterparts` are the layers there that theirs are paired with, by name; `roles` the layers of both sides, their
    own first.
    """

    side: SideName
    counterparts: dict[str, Layer]
    left: list[Parameter]
    other: ParameterSet
    roles: tuple[Roles, Roles]
    _by_shape: dict[Shape, list[Parameter]] = field(init=False, default_factory=dict)
    _parts: dict[str, list[str]] = field(init=False, default_factory=dict)
    _known: dict[tuple[str, Shape, bool], list[Group]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for parameter in self.left:
            self._by_shape.setdefault(parameter.shape, []).append(parameter)
            if whole := whole_of(parameter):
                self._parts.setdefault(whole, []).append(parameter.name)

    def explain(self, parameter: Parameter) -> Unmatched:
        """Say why a parameter has no counterpart, with the names that come closest."""
        if whole := whole_of(parameter):
            return Unmatched(parameter.name, self.side, f"it is a part of {whole}, {_PARTS}")
        if parts := self._parts.get(parameter.name):
            return Unmatched(parameter.name, self.side, f"the other side has it in parts, {_PARTS}", tuple(parts))
        shape = list(parameter.shape)
        same_shape = self._by_shape.get(parameter.shape, [])
        close = self._closest(parameter, whole_shape=True)
        namesake = self.other.by_name.get(parameter.name)
        if layer := self.counterparts.get(parameter.name):
            reason = f"its layer is paired with {layer.path or 'the root'}, which has no such parameter"
        elif same_shape:
            reason = f"what is left of shape {shape} {self._differences(parameter, close or same_shape)}"
        elif namesake is not None and namesake.shape != parameter.shape:
            reason = f"shape {shape}, the parameter of this name has {list(namesake.shape)}"
            close = [namesake]
        elif close := self._closest(parameter, whole_shape=False):
            reason = f"nothing is left of shape {shape}, the closest name has {list(close[0].shape)}"
        else:
            reason = f"nothing is left of shape {shape} on the other side"
        return Unmatched(parameter.name, self.side, reason, tuple(p.name for p in close))

    def _closest(self, parameter: Parameter, *, whole_shape: bool) -> list[Parameter]:
        """The parameters left, of this shape or of as many axes, whose names are most like its own."""
        key = NUMBER.sub("#", parameter.name), parameter.shape, whole_shape
        if key not in self._known:
            self._known[key] = self._alike(parameter, whole_shape=whole_shape)
        numbers = _numbers(parameter)
        return [group.get(numbers) or next(iter(group.values())) for group in self._known[key]]

    def _alike(self, parameter: Parameter, *, whole_shape: bool) -> list[Group]:
        """Groups of parameters whose names differ in their numbers alone, the closest first."""
        shapes = [parameter.shape] if whole_shape else [s for s in self._by_shape if len(s) == len(parameter.shape)]
        groups: dict[str, Group] = {}
        for shape in shapes:
            for one in self._by_shape.get(shape, ()):
                groups.setdefault(NUMBER.sub("#", one.name), {})[_numbers(one)] = one
        names = get_close_matches(NUMBER.sub("#", parameter.name), groups, _SUGGESTIONS, _CLOSE)
        return [groups[name] for name in names]

    def _differences(self, parameter: Parameter, others: Iterable[Parameter]) -> str:
        mine = self.roles[0].get(parameter.name)
        theirs = [self.roles[1].get(other.name) for other in others]
        told = (_difference(mine, one) for one in theirs if mine and one)
        return some(list(dict.fromkeys(told))) or "is of no layer"


def _difference(mine: tuple[Layer, str], theirs: tuple[Layer, str]) -> str:
    """What keeps two parameters of one shape apart."""
    (a, role), (b, other) = mine, theirs
    if a.aside != b.aside:
        return f"is {'no ' if a.aside else ''}part of an auxiliary head or a copy{', as this is' if a.aside else ''}"
    if a.kind and b.kind and a.kind != b.kind:
        return f"is of another kind of layer ({b.kind}, this of {a.kind})"
    if role != other:
        return f"plays another role ({other}, this {role})"
    if a.signature != b.signature:
        return "is in a layer of other parameters or other shapes"
    return "has nothing in common with it but its shape"


def _numbers(parameter: Parameter) -> tuple[str, ...]:
    return tuple(NUMBER.findall(parameter.name))
