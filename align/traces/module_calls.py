"""One side's calls of modules, with the parameters that each module owns and holds inside, and what calls are given."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from align.rules.layer_rules import rule_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.dtypes import Array
    from align.core.name_map import NameMap, SideName
    from align.core.parameters import ParameterSet
    from align.core.traces import Capture, Trace


CallKey = tuple[str, int]  # path of a module, number of the call


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call of one module with all tensors that it returned; `kind` is "" for a class that no layer rule knows."""

    module: str
    call: int
    order: int
    class_name: str
    kind: str
    outputs: tuple[Capture, ...]

    @property
    def depth(self) -> int:
        """How many modules were running around it."""
        return self.outputs[0].depth

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the outputs."""
        return tuple(capture.shape for capture in self.outputs)


@dataclass(frozen=True, slots=True)
class CallPair:
    """A call of the reference and one of the candidate.

    A `certain` pair is the same layer by its parameters or by an unmistakable place. Others may be of another kind,
    or end at another place: a module may include the activation that the other side leaves to its parent.
    """

    reference: Call
    candidate: Call
    certain: bool = True


@dataclass(frozen=True, slots=True)
class CallPairs:
    """Paired calls in the reference's order, and the calls that stay alone."""

    pairs: tuple[CallPair, ...]
    unpaired: tuple[UnpairedLayer, ...]


class CalledModules:
    """One side's calls in execution order and, by module path, the parameter pairs it owns and holds inside.

    `open` holds the paths of modules with parameters of which the name map does not know what they are.
    """

    def __init__(
        self, captures: Sequence[Capture], parameters: ParameterSet, name_map: NameMap, side: SideName
    ) -> None:
        pairs_of: dict[str, set[int]] = defaultdict(set)  # several of a tensor that the other side holds in pieces
        for number, pairing in enumerate(name_map.pairings):
            pairs_of[getattr(pairing, side)].add(number)
        decided = pairs_of.keys() | {one.name for one in name_map.dropped if one.side == side}
        open_names = {p.name for p in parameters.parameters if p.name not in decided and not p.tied_to}
        self.open = {module.path for module in parameters.modules if open_names & set(module.parameters)}
        self._classes = {module.path: module.classes for module in parameters.modules}
        self.owned = {
            module.path: frozenset(number for name in module.parameters for number in pairs_of.get(name, ()))
            for module in parameters.modules
        }
        self._below: dict[str, set[int]] = defaultdict(set)
        self._parents = set()
        for path, pairs in self.owned.items():
            for ancestor in _ancestors(path):
                self._parents.add(ancestor)
                self._below[ancestor] |= pairs
        self.inside = {path: frozenset(self._below[path] | own) for path, own in self.owned.items()}
        self.calls = list(self._group(captures))
        self.leaves = [call for call in self.calls if call.module not in self._parents]

    def owns(self, call: Call) -> frozenset[int]:
        """Numbers of the parameter pairs that the called module owns itself."""
        return self.owned.get(call.module, frozenset())

    def holds(self, call: Call) -> frozenset[int]:
        """Numbers of the parameter pairs of the called module and all modules inside."""
        return self.inside.get(call.module, frozenset())

    def within(self, call: Call) -> frozenset[int]:
        """Numbers of the parameter pairs inside the module around; none for a part of a composed activation."""
        return frozenset(self._below.get(call.module.rpartition(".")[0], ()))

    def _group(self, captures: Iterable[Capture]) -> Iterator[Call]:
        by_call: dict[tuple[str, int], list[Capture]] = defaultdict(list)
        for capture in captures:
            by_call[capture.module, capture.call].append(capture)
        for (module, number), outputs in by_call.items():
            rule = rule_for(self._classes.get(module, ()))
            kind = rule[0].kind if rule else ""
            yield Call(module, number, outputs[0].order, outputs[0].class_name, kind, tuple(outputs))


def outermost_calls(captures: Iterable[Capture]) -> list[list[Capture]]:
    """What each call of the model itself returned, in order: one call a batch, without those inside."""
    by_call: dict[int, list[Capture]] = defaultdict(list)
    for one in captures:
        if not one.module and not one.depth and one.role == "output":
            by_call[one.call].append(one)
    return list(by_call.values())


def _ancestors(path: str) -> Iterator[str]:
    while path:
        path = path.rpartition(".")[0]
        yield path


@dataclass(frozen=True, slots=True)
class UnpairedLayer:
    """A call of a module that has no counterpart on the other side, and why."""

    side: Literal["reference", "candidate"]
    module: str
    class_name: str
    call: int
    reason: str


def batch_ends(trace: Trace) -> list[int]:
    """The places in a run at which its batches end."""
    return [call[-1].order for call in outermost_calls(trace.captures)]


def batch_number(ends: Sequence[int], order: int) -> int:
    """The number, from 1 on, of the batch in which a capture of this order was made."""
    return min(bisect_left(ends, order), len(ends) - 1) + 1


def pair_inputs(reference: Sequence[Capture], inputs: Mapping[str, Array]) -> dict[str, Capture]:
    """Pair the tensors that two calls are given: by name where the shapes agree, others in order by their shape.

    A tensor of another shape pairs with its namesake.
    """
    pairs: dict[str, Capture] = {}
    for fits in (_is_namesake, _has_shape, _is_unlike_namesake):
        for name, value in inputs.items():
            left = [one for one in reference if one not in pairs.values()] if name not in pairs else []
            match = next((one for one in left if fits(one, name, value)), None)
            if match is not None:
                pairs[name] = match
    return pairs


def inputs_of_calls(trace: Trace) -> dict[CallKey, list[Capture]]:
    """The inputs of each call of a trace."""
    inputs: dict[CallKey, list[Capture]] = defaultdict(list)
    for one in trace.inputs:
        inputs[one.module, one.call].append(one)
    return dict(inputs)


def call_key(pair: CallPair) -> CallKey:
    """Path and number of the candidate's call."""
    return pair.candidate.module, pair.candidate.call


def _is_namesake(mine: Capture, name: str, value: Array) -> bool:
    return mine.output == name and mine.shape == value.shape


def _has_shape(mine: Capture, _: str, value: Array) -> bool:
    return mine.shape == value.shape


def _is_unlike_namesake(mine: Capture, name: str, _: Array) -> bool:
    return mine.output == name
