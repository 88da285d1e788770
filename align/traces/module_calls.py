"""One side's calls of modules, with the parameters that each module owns and holds inside, and what calls are given."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

from align.core.align_sequences import grouped
from align.core.parameters import paths_around
from align.core.verdicts import Finding
from align.rules.layer_rules import rule_for
from align.traces.manifest import TraceManifest
from align.traces.thresholds import MOST_LISTED_PARTS
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import NameMap, SideName
    from align.core.parameters import Array, ParameterSet
    from align.core.traces import Capture, ContainerKind, DumpedTensor, PartKind, ReturnedParts, Trace


CallKey = tuple[str, int]  # path of a module, number of the call
_Captured = TypeVar("_Captured", "Capture", "DumpedTensor")


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
            for ancestor in paths_around(path):
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
        for (module, number), outputs in by_call(captures).items():
            rule = rule_for(self._classes.get(module, ()))
            kind = rule[0].kind if rule else ""
            yield Call(module, number, outputs[0].order, outputs[0].class_name, kind, tuple(outputs))


def outermost_calls(captures: Iterable[Capture]) -> list[list[Capture]]:
    """What each call of the model itself returned, in order: one call a batch, without those inside."""
    outermost = (one for one in captures if not one.module and not one.depth and one.role == "output")
    return list(grouped((one.call, one) for one in outermost).values())


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
    return by_call(trace.inputs)


def by_call(captures: Iterable[_Captured]) -> dict[CallKey, list[_Captured]]:
    """Captures, or tensors of a dump, by their calls, which are in the order of their first ones."""
    return grouped(((one.module, one.call), one) for one in captures)


def call_key(pair: CallPair) -> CallKey:
    """Path and number of the candidate's call."""
    return pair.candidate.module, pair.candidate.call


def _is_namesake(mine: Capture, name: str, value: Array) -> bool:
    return mine.output == name and mine.shape == value.shape


def _has_shape(mine: Capture, _: str, value: Array) -> bool:
    return mine.shape == value.shape


def _is_unlike_namesake(mine: Capture, name: str, _: Array) -> bool:
    return mine.output == name


# What two models returned beside tensors: which parts are compared, and what is left out of the comparison.
#
# An object may have keys and attributes that the other has not, as nobody asks for them. A list that is longer, and a
# number where the other has None under the same key, are another result.

Captures = tuple["Capture", ...]
Parts = dict[int, "ReturnedParts"]

# What an object may lack on one side: beside tensors and arrays, what is not a result need not be ported.
_OPTIONAL: dict[PartKind | None, str] = {
    "number": "returned_part.number",
    "text": "returned_part.text",
    "attribute": "returned_part.attribute",
    "cache": "returned_part.of_cache",
}
_LACKS: dict[Lack, str] = {
    "one more": "returned_part.one_more",
    "other form": "returned_part.other_form",
    "no container": "returned_part.no_container",
    "None": "returned_part.none",
    "behind the end": "returned_part.behind_the_end",
}
Lack = Literal["one more", "other form", "None", "behind the end", "no container", "other container"]


def parts_of(trace: Trace) -> Parts:
    """What each call of the model returned beside tensors, by its number; nothing for traces of other tools."""
    manifest = getattr(trace, "manifest", None)
    return {one.call: one for one in manifest.returned} if isinstance(manifest, TraceManifest) else {}


def comparable_captures(captures: tuple[Captures, Captures], parts: Sequence[Parts]) -> list[Captures]:
    """The captures of two runs without those parts of the models' outputs that are no tensors and the other side lacks.

    Where both return the same number of parts, all stay: those of unequal names pair by their places.
    """
    out = [lacks.keys() for lacks in _lacks(captures, parts)]
    return [tuple(one for one in own if one.key not in lost) for own, lost in zip(captures, out, strict=True)]


def left_out_parts(
    captures: tuple[Captures, Captures], parts: Sequence[Parts], labels: Sequence[str]
) -> Iterator[Finding]:
    """Tell, for each side, of what it returned and was not compared; None only where the other side has something.

    A warning names what the other side need not have, an error what makes it another result.
    """
    names = [{capture.output for call in outermost_calls(own) for capture in call} for own in captures]
    lacks = _lacks(captures, parts)
    for side, label in enumerate(labels):
        left_out: dict[str, str] = {}
        for part in parts[side].values():
            left_out |= {
                name: what for name, what in part.left_out.items() if what != "None" or _has(names[1 - side], name)
            }
        wrong: dict[str, str] = {}
        for capture, lack in (
            (capture, lacks[side][capture.key]) for capture in captures[side] if capture.key in lacks[side]
        ):
            into = left_out if lack == "one more" else wrong
            kind = sentence(_OPTIONAL[_kind(capture, parts[side])])
            into[capture.output] = sentence("returned_part.lacking", kind=kind, lack=sentence(_LACKS[lack]))
        if left_out:
            message = sentence("trace_finding.outputs_left_out", parts=_listed(left_out), more=_unlisted(left_out))
            yield Finding("outputs-left-out", "warning", label, message, {"parts": len(left_out)})
        if wrong:
            listed, more = _listed(wrong), _unlisted(wrong)
            message = sentence("trace_finding.outputs_lacking", side=label, parts=listed, more=more)
            yield Finding("outputs-lacking", "error", _place(next(iter(wrong))), message, {"parts": len(wrong)})


def _lacks(captures: tuple[Captures, Captures], parts: Sequence[Parts]) -> list[dict[str, Lack]]:
    """How the other side lacks the parts that are no tensors, by the keys of their captures, for each side."""
    lacks: list[dict[str, Lack]] = [{}, {}]
    for mine, theirs in zip(*map(outermost_calls, captures), strict=False):
        if len(mine) != len(theirs):
            lacks[0] |= _lacks_of_call(mine, theirs, parts)
            lacks[1] |= _lacks_of_call(theirs, mine, parts[::-1])
    return lacks


def _lacks_of_call(mine: Sequence[Capture], theirs: Sequence[Capture], parts: Sequence[Parts]) -> dict[str, Lack]:
    others = [capture.output for capture in theirs]
    tree, other = (
        tree_of([capture.output for capture in call], of_side.get(call[0].call))
        for call, of_side in zip((mine, theirs), parts, strict=True)
    )
    lacks = {
        capture.key: what_lacks(capture.output, kind, tree, other)
        for capture in mine
        if (kind := _kind(capture, parts[0])) in _OPTIONAL and kind and capture.output not in others
    }
    return {key: lack for key, lack in lacks.items() if lack in _LACKS}


def _listed(left_out: dict[str, str]) -> list[str]:
    return [
        sentence("returned_part.named", place=_place(name), what=what)
        for name, what in islice(left_out.items(), MOST_LISTED_PARTS)
    ]


def _unlisted(left_out: dict[str, str]) -> int:
    return max(len(left_out) - MOST_LISTED_PARTS, 0)


def _place(name: str) -> str:
    return f"outputs{'.' if name else ''}{name}"


def _has(names: set[str], name: str) -> bool:
    return any(one == name or one.startswith(f"{name}.") for one in names)


def _kind(capture: Capture, parts: Parts) -> PartKind | None:
    return parts[capture.call].kinds.get(capture.output) if capture.call in parts else None


@dataclass(frozen=True, slots=True)
class ReturnedTree:
    """All names in what a call returned, the containers among them, and those that hold None."""

    names: frozenset[str]
    containers: Mapping[str, ContainerKind]
    empty: frozenset[str]

    def around(self, name: str) -> Iterator[tuple[str, str]]:
        """The containers that a part lies in, the outermost first, each with the name of its item on the way."""
        inside = sorted((one for one in self.containers if not one or name.startswith(f"{one}.")), key=len)
        return zip(inside, [*inside[1:], name], strict=True)


def tree_of(captured: Collection[str], parts: ReturnedParts | None) -> ReturnedTree:
    """The tree of captured names and of what was noted beside; containers are known by the names in earlier traces."""
    left_out = parts.left_out if parts else {}
    containers = parts.containers if parts and parts.containers else _by_names([*captured, *left_out])
    empty = frozenset(name for name, what in left_out.items() if what == "None")
    return ReturnedTree(frozenset([*captured, *left_out, *containers]), containers, empty)


def what_lacks(name: str, kind: PartKind, tree: ReturnedTree, other: ReturnedTree) -> Lack:
    """Say how the other side lacks a part that is no tensor."""
    if kind == "cache" and _without_cache(name, tree, other):
        return "one more"
    for parent, item in tree.around(name):
        if item not in other.names:
            return _in_containers(parent, tree, other)
    return "None" if name in other.empty else "other form"


def _in_containers(parent: str, own: ReturnedTree, other: ReturnedTree) -> Lack:
    """How an item lacks of which both have what is around it."""
    mine, theirs = own.containers[parent], other.containers.get(parent)
    if mine != "list" and (theirs not in ("list", None) or (not parent and not other.empty)):
        return "one more"  # a dict against a tuple or a bare tensor: what is returned as a whole may have another form
    if mine == theirs:
        return "behind the end"
    if parent in other.empty:
        return "None"
    return "no container" if theirs is None or parent else "other container"


def _without_cache(name: str, own: ReturnedTree, other: ReturnedTree) -> bool:
    """Whether the other side returned no cache at all; earlier traces do not say."""
    cache = next((one for one, _ in own.around(name) if own.containers[one] == "cache"), None)
    return cache is None or cache not in other.names or cache in other.empty


def _by_names(names: Collection[str]) -> dict[str, ContainerKind]:
    parts = [name.split(".") for name in names if name]
    items = grouped((".".join(keys[:place]), key) for keys in parts for place, key in enumerate(keys))
    return {name: "list" if all(key.isdigit() for key in keys) else "object" for name, keys in items.items()}
