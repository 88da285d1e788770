"""What the names in a checkpoint tell: whose they are and shall be, and which tensors are what a training kept.

A name alone proves nothing: a model may have a parameter called `momentum` and a module called `moments`. The state of
an optimizer is known by the parameters that it belongs to, the numbers beside it by that state, and a count that stands
alone by being an integer in front of all modules. What counts, every reader of checkpoints asks here.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import dropwhile, takewhile
from math import prod
from typing import TYPE_CHECKING, Final, Literal

from align.checkpoints.thresholds import FEWEST_COPIES, FEWEST_STATES
from align.core.align_sequences import grouped
from align.core.parameters import INTEGERS, is_float
from align.errors import UsageError
from align.rules.training_rules import training_state_rules
from align.words.catalogue import say, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.name_map import Fill, NameMap
    from align.core.parameters import Checkpoint, Shape, StoredTensor
    from align.rules.layer_rules import TargetFamily
    from align.rules.training_rules import OptimizerState, TrainingStateRules

    Tensors = Mapping[str, StoredTensor]


FrameworkName = Literal["torch", "mindspore"]

_FORMATS: dict[str, FrameworkName] = {"pt": "torch", "ms": "mindspore"}
# No layer of torch's has any of the first; a lone gamma or beta is a name that people give too.
NAMES_OF_MINDSPORE = frozenset({"moving_mean", "moving_variance", "embedding_table"})
PAIR_OF_MINDSPORE = frozenset({"gamma", "beta"})
NAMES_OF_TORCH = frozenset({"running_mean", "running_var", "num_batches_tracked"})

Reason = Literal[
    "optimizer state",
    "a count of steps or epochs",
    "a wrapper's count of averaged models",
    "averaged copies (EMA) of other weights",
    "weights in whose place their averaged copies (EMA) are taken",
    "what a module keeps beside its parameters (get_extra_state)",
]  # by which records are read back
STATE: Final = "optimizer state"
COUNT: Final = "a count of steps or epochs"
COUNTER: Final = "a wrapper's count of averaged models"
AVERAGED: Final = "averaged copies (EMA) of other weights"
REPLACED: Final = "weights in whose place their averaged copies (EMA) are taken"
EXTRA: Final = "what a module keeps beside its parameters (get_extra_state)"
REASONS: frozenset[Reason] = frozenset({STATE, COUNT, COUNTER, AVERAGED, REPLACED, EXTRA})


def source_framework(metadata: Mapping[str, str], names: Iterable[str]) -> tuple[FrameworkName, list[str]]:
    """Whose names a file has, by its format, else by the names; and the attributes that decided where names did so.

    A file that says nothing, with names that tell nothing, is taken as torch's.
    """
    if known := declared_framework(metadata):
        return known, []
    names = [*names]
    present = {name.rpartition(".")[2] for name in names}
    telling = sorted(present & NAMES_OF_MINDSPORE)
    if not telling and not present & NAMES_OF_TORCH and present >= PAIR_OF_MINDSPORE:
        groups: dict[str, set[str]] = {}
        for name in names:
            prefix, _, attribute = name.rpartition(".")
            groups.setdefault(prefix, set()).add(attribute)
        if any(own >= PAIR_OF_MINDSPORE for own in groups.values()) and not newer_norm_names(names):
            telling = sorted(PAIR_OF_MINDSPORE)
    return "mindspore" if telling else "torch", telling


def declared_framework(metadata: Mapping[str, str]) -> FrameworkName | None:
    """Whose names a file says that it has, None where it does not say."""
    return _FORMATS.get(metadata.get("format", ""))


_OLD_NORM = re.compile(r"(.*\bLayerNorm)\.(gamma|beta)")
_NEW_NORM = {"gamma": "weight", "beta": "bias"}


def newer_norm_names(names: Iterable[str]) -> dict[str, str]:
    """Older name -> newer name of scales and shifts in files of the first versions of transformers, BERT's among them.

    They were called as in TensorFlow (`LayerNorm.gamma`). MindSpore's layers are called so too, but then an embedding
    has an `embedding_table`, and not a `weight`.
    """
    names = [*names]
    old = {name: f"{found[1]}.{_NEW_NORM[found[2]]}" for name in names if (found := _OLD_NORM.fullmatch(name))}
    if not old or any(name.rpartition(".")[2] in NAMES_OF_MINDSPORE for name in names):
        return {}
    return old if any(name.endswith("_embeddings.weight") for name in names) else {}


def state_beside_weights(checkpoint: Checkpoint) -> dict[str, str]:
    """Name -> reason of what is no weight in a file, which tells whose names it has.

    In torch's names a lone count may be a buffer of the model: a conversion, which knows one file alone, keeps it.
    """
    rules, tensors = training_state_rules(), checkpoint.tensors
    framework, _ = source_framework(checkpoint.metadata, tensors)
    found = training_state(tensors, rules, framework)
    lone = {name: COUNT for name, tensor in tensors.items() if _counts_alone(tensor, rules)}
    return lone | found if len(lone) < len(tensors) else found


def training_notes(checkpoint: Checkpoint) -> Iterator[str]:
    """One line for each kind of what training left among the weights."""
    state = state_beside_weights(checkpoint)
    for reason in dict.fromkeys(state.values()):
        names = [name for name in state if state[name] == reason]
        yield sentence("checkpoint_note.no_weights", reason=reason, count=len(names), names=names)


def is_count(tensor: StoredTensor) -> bool:
    """Tell whether a tensor is one whole number, which no weight is."""
    return len(tensor.shape) <= 1 and prod(tensor.shape) == 1 and tensor.dtype in INTEGERS


def training_state(tensors: Tensors, rules: TrainingStateRules, framework: FrameworkName) -> dict[str, str]:
    """Name -> reason of every tensor that is none of the weights, in the file's order.

    Only MindSpore writes the state of an optimizer beside the weights, as if it were one of them.
    """
    state = dict.fromkeys(averaged_copies(tensors, rules), AVERAGED)
    state |= dict.fromkeys(_counters(tensors, rules), COUNTER)
    state |= {name: EXTRA for name in tensors if is_extra_state(name)}
    if framework == "mindspore":
        state |= dict.fromkeys(_optimizer_state(tensors, rules), STATE)
    return {name: state[name] for name in tensors if name in state}


def is_extra_state(name: str) -> bool:
    """Whether torch keeps under this name what a module adds to its state_dict by itself, such as scales of float8."""
    return name.rpartition(".")[2] == "_extra_state"


def averaged_copies(tensors: Tensors, rules: TrainingStateRules) -> dict[str, str]:
    """Averaged copy -> the weight that it is of, by name and shape; counts beside the copies lead to "".

    `ema_head_fc_weight`, `model_ema.head.fc.weight`, `head_ema.fc.weight` and `head.fc.weight_averaged` are copies of
    `head.fc.weight`. One of them alone may be a parameter of a layer (`embed_avg`): copies have a place of their own in
    front of all names, or all weights have one.
    """
    word = re.compile("|".join(map(re.escape, rules.averaged)) or "(?!)", re.IGNORECASE)  # nearly no name holds one
    marked = {name: bare for name in filter(word.search, tensors) if (bare := _without_word(name, rules)) is not None}
    if not marked:
        return {}
    live = {_squeezed(_words(name), rules): name for name in tensors if name not in marked}
    twins = {name: live[bare] for name, bare in marked.items() if bare in live}
    copies = {name: weight for name, weight in twins.items() if tensors[name].shape == tensors[weight].shape}
    in_front = {name for name in marked if _is_in_front(name, rules)}
    counts = [name for name in in_front if name not in copies and prod(tensors[name].shape) == 1]
    in_front_copies = [name for name in copies if name in in_front]
    if len(in_front_copies) >= FEWEST_COPIES and len(in_front_copies) + len(counts) == len(in_front):
        return {name: copies.get(name, "") for name in tensors if name in in_front}
    return copies if len(copies) >= FEWEST_COPIES and _are_of_all(copies, marked, tensors) else {}


def teacher_copies(tensors: Tensors, rules: TrainingStateRules) -> dict[str, str]:
    """Copy from which a training learns -> the weight of its name and shape, found as averaged copies are.

    `teacher.fc.weight` beside `fc.weight` or `student.fc.weight`. A port may have it as a part of its own.
    """
    likewise = replace(rules, averaged=rules.teachers, wrappers=rules.wrappers | rules.students)
    return {name: weight for name, weight in averaged_copies(tensors, likewise).items() if weight}


def _are_of_all(copies: Mapping[str, str], marked: Mapping[str, str], tensors: Tensors) -> bool:
    """Whether all weights of a file have a copy, or all of a part of it outside of which the copies stand."""
    weights = [name for name, one in tensors.items() if name not in marked and _is_averaged(one)]
    copied = set(copies.values())
    part = _common_path([name for name in weights if name in copied])
    inside = [name for name in weights if name.startswith(part)]
    apart = not any(name.startswith(part) for name in copies)
    return bool(inside) and copied.issuperset(inside) and (apart or len(inside) == len(weights))


def _words(name: str) -> list[str]:
    return name.replace("_", ".").split(".")


def _without_word(name: str, rules: TrainingStateRules) -> str | None:
    """What a name is called without the word that makes it a copy's; None for a name that has none."""
    words = _words(name)
    left = [word for word in words if word.lower() not in rules.averaged]
    return _squeezed(left, rules) if 0 < len(left) < len(words) else None


def _is_in_front(name: str, rules: TrainingStateRules) -> bool:
    """Whether the word that makes a name a copy's stands in front of all but what wrappers put there."""
    first = next(dropwhile(rules.wrappers.__contains__, _words(name)), "")
    return first.lower() in rules.averaged


def _squeezed(words: Sequence[str], rules: TrainingStateRules) -> str:
    """Words without a sign between them, and without what wrappers put in front of all."""
    return "".join(dropwhile(rules.wrappers.__contains__, words))


def _is_averaged(tensor: StoredTensor) -> bool:
    """Whether an average is made of a tensor by whoever makes one: of weights always, of statistics by some."""
    return is_float(tensor.dtype) and tensor.name.rpartition(".")[2] not in NAMES_OF_TORCH | NAMES_OF_MINDSPORE


def _common_path(names: Sequence[str]) -> str:
    paths = [name.split(".")[:-1] for name in names]
    shared = [parts[0] for parts in takewhile(lambda one: len({*one}) == 1, zip(*paths, strict=False))]
    return "".join(f"{part}." for part in shared)


def _optimizer_state(tensors: Tensors, rules: TrainingStateRules) -> Iterator[str]:
    numbers = _numbers(tensors, rules)
    owners: dict[str, str] = {}
    heads: set[str] = set()
    for optimizer in rules.optimizers:
        for head, groups in _states(tensors, optimizer).items():
            if _is_sure(groups, any(_head(number) == head for number in numbers)):
                owners |= {name: owner for group in groups.values() for name, owner in group.items()}
                heads |= set(_places(head))
    yield from owners
    numbers = [name for name in numbers if name not in owners.values()]  # an optimizer has no state for its own numbers
    yield from (
        name
        for name in numbers
        if _head(name) in heads or _counts_alone(tensors[name], rules) or _are_several(tensors, numbers, _head(name))
    )


def _states(tensors: Tensors, optimizer: OptimizerState) -> dict[str, dict[str, dict[str, str]]]:
    """Place of the optimizer ("" or a path with its dot) -> each of its states, if all are there -> name -> parameter.

    Where something under the name of a state belongs to no parameter, it is a module of the model.
    """
    needed = (*optimizer.states, *optimizer.reduced)
    by_head: dict[str, dict[str, dict[str, str]]] = {}
    foreign: set[tuple[str, str]] = set()
    for affix in (*needed, *optimizer.more):
        for name, head, parameter in _split(tensors, affix):
            owner = next((one for one in (head + parameter, parameter) if one in tensors), None)
            if owner and _fits(tensors[name].shape, tensors[owner].shape, reduced=affix in optimizer.reduced):
                by_head.setdefault(head, {}).setdefault(affix, {})[name] = owner
            elif affix.endswith("."):
                foreign.add((head, affix))
    sound = {
        head: {affix: names for affix, names in groups.items() if (head, affix) not in foreign}
        for head, groups in by_head.items()
    }
    return {head: groups for head, groups in sound.items() if all(affix in groups for affix in needed)}


def _split(tensors: Tensors, affix: str) -> Iterator[tuple[str, str, str]]:
    """Names with the affix at the start of a part, what stands before it and what comes after it."""
    for name in tensors if affix in "\n".join(tensors) else ():
        place = name.find(affix)
        while place > 0 and name[place - 1] != ".":
            place = name.find(affix, place + 1)
        if place >= 0:
            yield name, name[:place], name[place + len(affix) :]


def _fits(state: Shape, parameter: Shape, *, reduced: bool) -> bool:
    if not reduced:
        return state == parameter
    short = [(*parameter[:axis], *parameter[axis + 1 :]) for axis in range(len(parameter))]
    return state in ((), (1,), parameter, *short)


def _is_sure(groups: Mapping[str, Mapping[str, str]], numbered: bool) -> bool:
    return numbered or max(len(groups), *(len(names) for names in groups.values())) >= FEWEST_STATES


def _numbers(tensors: Tensors, rules: TrainingStateRules) -> list[str]:
    last = {name.rpartition(".")[2] for name in tensors}
    numbers = {word for word in last if any(fnmatchcase(word, one) for one in rules.numbers)}
    return [
        name
        for name, tensor in tensors.items()
        if len(tensor.shape) <= 1 and (_counts_alone(tensor, rules) or name.rpartition(".")[2] in numbers)
    ]


def _counts_alone(tensor: StoredTensor, rules: TrainingStateRules) -> bool:
    return tensor.name in rules.counts and is_count(tensor)


def _are_several(tensors: Tensors, numbers: list[str], head: str) -> bool:
    """Whether some numbers stand together of which one is an integer, a count of steps: no weight is."""
    together = [name for name in numbers if _head(name) == head]
    return len(together) >= FEWEST_STATES and any(is_count(tensors[name]) for name in together)


def _counters(tensors: Tensors, rules: TrainingStateRules) -> Iterator[str]:
    for counter in rules.counters:
        tensor = tensors.get(counter.name)
        others = [name for name in tensors if name != counter.name]
        if tensor is not None and tensor.shape == () and is_count(tensor):
            yield from [counter.name] if others and all(name.startswith(counter.prefix) for name in others) else []


def _head(name: str) -> str:
    prefix, dot, _ = name.rpartition(".")
    return prefix + dot


def _places(head: str) -> Iterator[str]:
    """A place and all above it: "", "net." and "net.opt." of "net.opt."."""
    parts = head.split(".")[:-1]
    yield from ("".join(f"{part}." for part in parts[:n]) for n in range(len(parts) + 1))


_EXPORTER = "onnx::"  # torch.onnx.export calls so what it computed: `onnx::Conv_16`, `onnx::MatMul_123`


@dataclass(frozen=True, slots=True)
class NamingDirection:
    """From whose names to whose; `family` is None where the names stay."""

    source: FrameworkName
    framework: FrameworkName
    family: TargetFamily | None


def naming_direction(
    source: FrameworkName, target: TargetFamily | None, destination: FrameworkName | None
) -> NamingDirection:
    """Where the names go; `target` is the user's word, `destination` what the file's suffix tells.

    A MindSpore file keeps its names, nn's or mint's, if it does not become torch's. Raises UsageError where the two
    contradict each other.
    """
    check_target(target, destination)
    if source == "torch":
        family: TargetFamily = target or ("torch" if destination == "torch" else "nn")
        return NamingDirection(
            source, "torch" if family == "torch" else "mindspore", None if family == "torch" else family
        )
    if target == "torch" or destination == "torch":
        return NamingDirection(source, "torch", "torch")
    return NamingDirection(source, "mindspore", None)


def check_target(target: TargetFamily | None, destination: FrameworkName | None) -> None:
    """Raise UsageError if the destination's format is not for the target's names."""
    if target is not None and destination is not None and (target == "torch") != (destination == "torch"):
        suffixes = ".pth, .pt or .bin" if target == "torch" else ".ckpt"
        raise UsageError.of("naming_usage.other_format", target=target, destination=destination, suffixes=suffixes)


def check_kept(target: TargetFamily | None, names: Iterable[str]) -> None:
    """Raise UsageError if names that stay are those of mindspore.nn where `target` is mint, or the reverse."""
    attributes = {name.rpartition(".")[2] for name in names}
    telling = {
        "nn": sorted(attributes & {*NAMES_OF_MINDSPORE, *PAIR_OF_MINDSPORE}),
        "mint": sorted(attributes & NAMES_OF_TORCH),
    }
    other = {"nn": "mint", "mint": "nn"}.get(target or "", "")
    if other and telling[other] and not telling[target or ""]:
        raise UsageError.of("naming_usage.other_target", target=target, other=other, names=telling[other])


def exporter_warnings(names: Iterable[str]) -> Iterable[str]:
    """Say which tensors an exporter to ONNX made of several, or turned: none of a model's is called so."""
    if made := [name for name in names if name.startswith(_EXPORTER)]:
        yield sentence("checkpoint_note.exporter", count=len(made), names=made)


# What wrappers put into names (`module.`, `_orig_mod.`), in front or in the middle, taken off and put back.
#
# `torch.compile`, FSDP and activation checkpointing use words that nobody else does. DistributedDataParallel and
# DataParallel say `module`, as models of users may: it is a wrapper's where it stands alone in front of all names, or
# where another side without it has the same names.

WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
PARALLEL = "module"
_OWN = "*"  # stands for what a module owns
_COUNTERS = frozenset({"n_averaged", "steps"})  # of averaged models, beside `module`


def without_wrappers(names: Iterable[str], *, inner: bool = False) -> dict[str, str]:
    """Names as they are -> names without the parts that wrappers put there; names that would become equal stay.

    With `inner`, `module` goes wherever it is all that stands in a place, and not only in front of all names.

    >>> without_wrappers(["module.encoder._orig_mod.fc.weight", "module.head.weight"])
    {'module.encoder._orig_mod.fc.weight': 'encoder.fc.weight', 'module.head.weight': 'head.weight'}
    """
    known = list(dict.fromkeys(names))
    if not _has_wrappers(known):
        return {name: name for name in known}
    children = _children(known)
    found = {name: _unwrapped(name, children, inner=inner) for name in known}
    taken = Counter(found.values())
    return {name: new if taken[new] == 1 else name for name, new in found.items()}


def paths_without_wrappers(paths: Iterable[str], holders: Iterable[str], *, inner: bool) -> dict[str, str]:
    """The same for paths of modules, of which `holders` own parameters; a wrapper gets the path of what it holds."""
    paths = list(paths)
    if not _has_wrappers(paths):
        return {path: path for path in paths}
    children = _children(f"{path}.{_OWN}" for path in holders)
    below = {path: _unwrapped(f"{path}.{_OWN}" if path else _OWN, children, inner=inner) for path in paths}
    return {path: new.removesuffix(_OWN).removesuffix(".") for path, new in below.items()}


def matched_without_wrappers(names: Iterable[str], wanted: Iterable[str]) -> dict[str, str]:
    """Names -> those wanted that are the same but for what wrappers put into either.

    Nothing changes unless more names meet so than as they are; those that meet nothing stay.
    """
    names, wanted = list(names), list(wanted)
    best, most = {name: name for name in names}, len(set(names) & set(wanted))
    for inner in (False, True):
        known = {bare: name for name, bare in without_wrappers(wanted, inner=inner).items()}
        found = {name: known.get(bare, name) for name, bare in without_wrappers(names, inner=inner).items()}
        meeting = len(set(found.values()) & set(wanted))
        if meeting > most and len(set(found.values())) == len(names):
            best, most = found, meeting
    return best


def targets_without_wrappers(name_map: NameMap, fills: Sequence[Fill] = ()) -> tuple[NameMap, tuple[Fill, ...], str]:
    """The map and fills with targets named without what wrappers put there, and in words what that was."""
    ends = [pairing.target for pairing in name_map.pairings]
    ends += [drop.name for drop in name_map.dropped if drop.side == "target"] + [fill.name for fill in fills]
    names = without_wrappers(ends)
    pairings = tuple(replace(pairing, target=names[pairing.target]) for pairing in name_map.pairings)
    dropped = tuple(
        replace(drop, name=names[drop.name]) if drop.side == "target" else drop for drop in name_map.dropped
    )
    named = tuple(replace(fill, name=names[fill.name]) for fill in fills)
    return replace(name_map, pairings=pairings, dropped=dropped), named, wrapper_words(names)


def wrapper_words(renamed: Mapping[str, str]) -> str:
    """The parts that wrappers put into either of each two names, in words; "" if there are none."""
    pairs = [(was.split("."), new.split(".")) for was, new in renamed.items() if was != new]
    parts = [part for was, new in pairs for part in ((Counter(was) - Counter(new)) + (Counter(new) - Counter(was)))]
    listed = [f"{part}." for part in dict.fromkeys(parts)]
    return sentence("convert_warning.wrapper_parts", parts=listed, count=len(pairs)) if listed else ""


def _has_wrappers(names: Iterable[str]) -> bool:
    """Tell whether a name may have a part that a wrapper put there: nearly no model has, and this is soon seen."""
    together = "\n".join(names)
    return any(word in together for word in (*WRAPPERS, PARALLEL))


def _children(names: Iterable[str]) -> dict[tuple[str, ...], set[str]]:
    children: dict[tuple[str, ...], set[str]] = {}
    for name in names:
        parts = tuple(name.split("."))
        for place in range(len(parts)):
            children.setdefault(parts[:place], set()).add(parts[place])
    return children


def _unwrapped(name: str, children: Mapping[tuple[str, ...], set[str]], *, inner: bool) -> str:
    parts = tuple(name.split("."))
    kept: list[str] = []
    for place, part in enumerate(parts):
        alone = children.get(parts[:place], set()) - _COUNTERS == {PARALLEL} and (inner or not kept)
        if place == len(parts) - 1 or not (part in WRAPPERS or (part == PARALLEL and alone)):
            kept.append(part)
    return ".".join(kept)


def without_prefixes(names: Iterable[str], prefixes: Sequence[str]) -> dict[str, str]:
    """Names without the prefixes -> names as they were; of nested prefixes each is taken off once, in any order.

    A prefix is one or more whole parts of a path; the dot at its end may be left out. Raises UsageError for prefixes
    that no name has, and for names that would become equal.
    """
    return without_prefixes_of_all((names,), prefixes)[0]


def without_prefixes_of_all(sides: Sequence[Iterable[str]], prefixes: Sequence[str]) -> list[dict[str, str]]:
    """The same for several files: a prefix may be that of any of them."""
    wanted = [prefix if prefix.endswith(".") else f"{prefix}." for prefix in prefixes]
    used: set[str] = set()
    sides_by_name = [grouped((_stripped(name, wanted, used), name) for name in names) for names in sides]
    faults = [say("naming_usage.no_such_prefix", prefix=prefix) for prefix in wanted if prefix not in used]
    groups = [item for new_names in sides_by_name for item in new_names.items()]
    faults += [say("naming_usage.same_names", same=same, new=new) for new, same in groups if len(same) > 1]
    if faults:
        raise UsageError.of("naming_usage.strip", faults=faults)
    return [{new: same[0] for new, same in new_names.items()} for new_names in sides_by_name]


def shared_prefixes(names: Iterable[str]) -> list[str]:
    """Prefixes that all names share, the shortest first: `a.` and `a.b.` of `a.b.c` and `a.b.d`."""
    shared: list[str] = []
    for parts in zip(*(name.split(".")[:-1] for name in names), strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return [".".join(shared[: n + 1]) + "." for n in range(len(shared))]


def with_file_names(name_map: NameMap, names: Mapping[str, str]) -> NameMap:
    """The map with its sources named as in the file."""
    pairings = (replace(one, source=names.get(one.source, one.source)) for one in name_map.pairings)
    dropped = (
        replace(one, name=names.get(one.name, one.name)) if one.side == "source" else one for one in name_map.dropped
    )
    return replace(name_map, pairings=tuple(pairings), dropped=tuple(dropped))


def _stripped(name: str, prefixes: Sequence[str], used: set[str]) -> str:
    left = list(prefixes)
    while prefix := next((one for one in left if name.startswith(one)), ""):
        left.remove(prefix)
        used.add(prefix)
        name = name.removeprefix(prefix)
    return name


# What torch.nn.utils.parametrizations calls the parts of a weight, and what its weight_norm and spectral_norm did.
_NEWER_PARTS = {"original0": "_g", "original1": "_v", "original": "_orig", "0._u": "_u", "0._v": "_v"}
_NEWER = re.compile(r"\bparametrizations\.(\w+)\.(original[01]?|0\._[uv])$")


def older_part_name(name: str) -> str:
    """The name of a part of a weight as torch 1 has it: `fc.parametrizations.weight.original0` is `fc.weight_g`."""
    return _NEWER.sub(lambda found: f"{found[1]}{_NEWER_PARTS[found[2]]}", name)
