"""Which name becomes which: by a map, a record, models, a family, or the file alone, and in which direction.

Whose names the source has, its format says; where it does not, the names do. Whose names the target has, the
destination's suffix says, or the user (`target`). Nothing about names is decided silently.

Paddle keeps the weight of a Linear as (in, out), and so does nothing else that has a bias of its last axis: such a
checkpoint is first brought to torch's names and layout. A matrix without a bias may be an Embedding's: the user knows.
Megatron's fused layers are taken apart where a family knows the parts by themselves.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from align.checkpoints.choose_weights import prefer_weights, require_preference
from align.checkpoints.names_in_file import (
    AVERAGED,
    REASONS,
    FrameworkName,
    NamingDirection,
    averaged_copies,
    check_kept,
    check_target,
    declared_framework,
    exporter_warnings,
    naming_direction,
    newer_norm_names,
    shared_prefixes,
    source_framework,
    teacher_copies,
    training_state,
    with_file_names,
    without_prefixes,
    without_wrappers,
    wrapper_words,
)
from align.checkpoints.shard_pieces import cut_along, reshaped
from align.checkpoints.torch_archives import MEGATRON
from align.convert.given_map import EndFrameworks, choose_direction, names_known
from align.convert.plan_conversion import default_fill, plan_conversion, with_counted_steps
from align.core.align_sequences import grouped
from align.core.name_map import FRAMEWORKS, Dropped, Fill, NameMap, Pairing
from align.core.parameters import StoredTensor
from align.errors import InputsError, MapError, OpenNamesError, UsageError
from align.models.open_side import open_side
from align.names.infer_names import map_from_file
from align.names.map_one_side import layer_kinds, model_faults, model_warnings
from align.rules.training_rules import training_state_rules
from align.words.catalogue import say, sentence, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from align.checkpoints.choose_weights import Preference
    from align.convert.given_map import TwoWayMap
    from align.core.parameters import Checkpoint, Parameter, ParameterSet
    from align.core.protocols import FrameworkName
    from align.models.open_side import Side
    from align.names.infer_names import InferredNames
    from align.names.map_result import MapResult
    from align.rules.layer_rules import TargetFamily
    from align.rules.model_families import ModelFamily

    Tensors = Mapping[str, StoredTensor]
    Way = Callable[[Tensors], "ChosenNames"]


@dataclass(frozen=True, slots=True)
class NameRequest:
    """What the user said of names; everything may be left out.

    `counts` are tensors that count steps, and are not among those of the file; `since` the steps since a record.
    """

    name_map: NameMap | Path | str | None = None
    source_model: str | Side | None = None
    target_model: str | Side | None = None
    family: str | None = None
    target: TargetFamily | None = None
    layers: tuple[str, ...] = ()
    strip: tuple[str, ...] = ()
    prefer: Preference | None = None
    counts: Mapping[str, StoredTensor] = field(default_factory=dict)
    since: int = 0


@dataclass(frozen=True, slots=True)
class ChosenNames:
    """The map from the file's names, prefixes included, to those to write, and whose names these are.

    `fills` are tensors that the target has and the source lacks; `ties` names of targets known to be one tensor, by
    a record; `origin` says in words where the map comes from.
    """

    name_map: NameMap
    framework: FrameworkName
    warnings: tuple[str, ...] = ()
    fills: tuple[Fill, ...] = ()
    ties: tuple[tuple[str, ...], ...] = ()
    origin: str = ""


def choose_names(
    checkpoint: Checkpoint, request: NameRequest, destination_framework: FrameworkName | None
) -> ChosenNames:
    """Decide the names; `destination_framework` is None where the destination's format does not tell.

    Raises UsageError, OpenNamesError, MapError or InputsError, each with everything that stands against it.

    >>> import numpy, tempfile
    >>> from align.checkpoints.open_checkpoint import open_checkpoint
    >>> path = Path(tempfile.mkdtemp(), "mindspore.npz")
    >>> numpy.savez(path, **{"net.bn.gamma": numpy.ones(3), "net.bn.beta": numpy.zeros(3)})
    >>> chosen = choose_names(open_checkpoint(path), NameRequest(strip=("net",)), "torch")
    >>> [(pair.source, pair.target) for pair in chosen.name_map.pairings]
    [('net.bn.gamma', 'bn.weight'), ('net.bn.beta', 'bn.bias')]
    """
    _check_request(request)
    check_target(request.target, destination_framework)
    names = without_prefixes(checkpoint.tensors, request.strip)
    names, left_out = prefer_weights(checkpoint, names, request.prefer)
    source, telling = source_framework(checkpoint.metadata, names)
    if source == "torch" and _changes_names(request, destination_framework):
        newer = newer_norm_names(names)
        names = {newer.get(name, name): was for name, was in names.items()}
    tensors = {name: checkpoint.tensors[was] for name, was in names.items()}
    state = training_state(checkpoint.tensors, training_state_rules(), source)
    taken = {was for name, was in names.items() if left_out and state.get(was) == AVERAGED}
    beside = {name: state[was] for name, was in names.items() if was in state and was not in taken}
    task = _Task(checkpoint, request, source, destination_framework, {name: tensors[name] for name in beside})
    way = _told_way(task)
    weights = {name: tensor for name, tensor in tensors.items() if name not in beside}
    chosen = _with_or_without_prefix(way, weights) if way else _by_file(task, weights)
    if request.prefer is None:
        said_to_drop = [names.get(one.name, one.name) for one in chosen.name_map.dropped if one.side == "source"]
        require_preference(checkpoint, (names[one.source] for one in chosen.name_map.pairings), said_to_drop)
    chosen = _without(beside, chosen)
    fills, name_map = _filled(chosen)
    paired = {pairing.source for pairing in name_map.pairings}  # a map or model may know them as parameters
    counts = {name: tensors[name] for name in beside if name not in paired} | {**request.counts}
    fills = with_counted_steps(fills, counts, request.since)
    told_by_names = telling and request.source_model is None
    told = [sentence("checkpoint_note.taken_as_mindspore", names=telling)] if told_by_names else []
    warnings = [*told, *exporter_warnings(tensors)]
    return replace(
        chosen,
        name_map=_with_left_out(with_file_names(name_map, names), left_out),
        fills=fills,
        warnings=(
            *warnings,
            *chosen.warnings,
            *_copy_warnings(checkpoint, {names.get(name, name) for name in paired}),
            *_fill_warnings(fills),
        ),
    )


def _changes_names(request: NameRequest, destination: FrameworkName | None) -> bool:
    """Whether nothing but the names of the file tells its layers, and these do not simply stay."""
    if request.name_map is not None or request.source_model is not None:
        return False
    return request.target == "torch" or naming_direction("torch", request.target, destination).family is not None


def _copy_warnings(checkpoint: Checkpoint, paired: Container[str]) -> Iterator[str]:
    """Say that copies of other weights are written beside them."""
    copies = averaged_copies(checkpoint.tensors, training_state_rules())
    if pairs := [(name, weight) for name, weight in copies.items() if name in paired and weight in paired]:
        name, weight = pairs[0]
        yield sentence("convert_warning.copies_stay", count=len(pairs), copy=name, weight=weight)
    teachers = teacher_copies(checkpoint.tensors, training_state_rules())
    if pairs := [(name, weight) for name, weight in teachers.items() if name in paired]:
        name, weight = pairs[0]
        yield sentence("convert_warning.teachers_stay", count=len(pairs), copy=name, weight=weight)


@dataclass(frozen=True, slots=True)
class _Task:
    """What was asked, and whose names stand at both ends as far as the files tell.

    `beside` are tensors that are no weights: each way leaves them out, but for those that it knows by name.
    """

    checkpoint: Checkpoint
    request: NameRequest
    source: FrameworkName
    destination: FrameworkName | None
    beside: Tensors

    def known_beside(self, known: Container[str]) -> Tensors:
        return {name: tensor for name, tensor in self.beside.items() if name in known}


def _told_way(task: _Task) -> Way | None:
    """How the names of the file's tensors are found by what the user gave; None if that is nothing."""
    request = task.request
    if request.name_map is not None:
        from align.convert.given_map import read_given_map

        return partial(_by_map, task, read_given_map(request.name_map))
    if request.family is not None:
        from align.rules.model_families import read_family

        return partial(_by_family, task, read_family(request.family))
    if request.source_model is None:
        return None
    if request.target_model is not None:
        from align.names.map_parameters import map_parameters

        return partial(_by_models, task, map_parameters(request.source_model, request.target_model))
    side = open_side(request.source_model)
    return partial(_by_model, task, side.reader.read_parameters(side.model, side.label))


def _by_file(task: _Task, tensors: Tensors) -> ChosenNames:
    way = naming_direction(task.source, task.request.target, task.destination)
    if way.family is None:
        return _kept(task, way, tensors)
    try:
        inferred = map_from_file(tensors, way.family, task.request.layers)
    except OpenNamesError as error:
        from align.names.map_one_side import recognise_families

        for known in recognise_families(tensors, task.source):  # suggested and not taken: the port may be another one
            facts = {"about": known.family.about, "name": known.name}
            error.hint = say("names_usage.known_family", hint=error.hint, **facts)
        raise
    return _inferred(inferred, way, sentence("names_origin.file"))


def _by_map(task: _Task, two_way: TwoWayMap, tensors: Tensors) -> ChosenNames:
    rules = two_way.rules
    named = {name for source, target, _ in rules.all_names for name in (source, target)}
    named |= {name for name in task.beside if rules.drop_of("source", name)}
    tensors = {**tensors, **task.known_beside(named)}
    wanted: FrameworkName | None = "torch" if task.request.target == "torch" else task.destination
    directed = choose_direction(two_way, tensors, EndFrameworks(declared_framework(task.checkpoint.metadata), wanted))
    label = rules.label
    if directed.problems:
        sources, targets = names_known(two_way, tensors)
        facts = {"label": label, "count": len(tensors), "sources": sources, "targets": targets}
        raise MapError(say("given_map.known", **facts), directed.problems)
    back = directed.backwards and task.source == "mindspore"
    framework = wanted or directed.name_map.frameworks[1] or ("torch" if back else "mindspore")
    origin = sentence("names_origin.back", label=label) if directed.backwards else label
    return ChosenNames(directed.name_map, framework, directed.warnings, directed.fills, directed.ties, origin)


def _by_family(task: _Task, family: ModelFamily, tensors: Tensors) -> ChosenNames:
    way = naming_direction(task.source, task.request.target, task.destination)
    origin = sentence("names_origin.family", name=family.name)
    if way.family is None:
        raise UsageError.of("names_usage.family_says_nothing", path=task.checkpoint.path)
    from align.names.map_one_side import map_from_family

    return _inferred(map_from_family(family, tensors, way.family), way, origin)


def _by_model(task: _Task, model: ParameterSet, tensors: Tensors) -> ChosenNames:
    tensors = {**tensors, **task.known_beside(model.names)}
    _check_model(task, model.label, model.parameters, tensors)
    source = FRAMEWORKS.get(model.framework or "", task.source)
    way = naming_direction(source, task.request.target, task.destination)
    origin = sentence("names_origin.model", label=model.label)
    if way.family is None:
        return replace(_kept(task, way, tensors), origin=origin)
    chosen = _inferred(map_from_file(tensors, way.family, task.request.layers, layer_kinds(model)), way, origin)
    return replace(chosen, warnings=(*chosen.warnings, *model_warnings(model, tensors)))


def _by_models(task: _Task, models: MapResult, tensors: Tensors) -> ChosenNames:
    tensors = {**tensors, **task.known_beside([parameter.name for parameter in models.source_parameters])}
    _check_model(task, models.source.label, models.source_parameters, tensors)
    origin = sentence("names_origin.models", source=models.source.label, target=models.target.label)
    if problems := plan_conversion(tensors, models.name_map).problems:
        hint = say("given_map.not_complete", source=models.source.label, target=models.target.label)
        raise MapError(origin, problems, hint)
    framework = FRAMEWORKS.get(models.target.framework or "", task.destination or "mindspore")
    check_target(framework if framework == "torch" else "nn", task.destination)
    return ChosenNames(models.name_map, framework, origin=origin)


def _inferred(inferred: InferredNames, way: NamingDirection, origin: str) -> ChosenNames:
    return ChosenNames(inferred.name_map, way.framework, inferred.warnings, inferred.fills, origin=origin)


def _kept(task: _Task, way: NamingDirection, tensors: Tensors) -> ChosenNames:
    if task.request.layers:
        raise UsageError.of("names_usage.layer_says_nothing", path=task.checkpoint.path)
    if way.source == "mindspore":
        check_kept(task.request.target, tensors)
    pairings = tuple(Pairing(name, name, "file", 1.0) for name in {**tensors, **task.beside})
    name_map = NameMap(f"{way.source} file", way.framework, pairings)
    words = wrapper_words(without_wrappers(tensors))
    said = (sentence("convert_warning.wrapper_stays", words=words),) if words else ()
    return ChosenNames(name_map, way.framework, said, origin=sentence("names_origin.kept"))


def _without(beside: Mapping[str, str], chosen: ChosenNames) -> ChosenNames:
    """What is beside the weights and was not mentioned is left out, which is said."""
    name_map = chosen.name_map
    named = {p.source for p in name_map.pairings} | {drop.name for drop in name_map.dropped if drop.side == "source"}
    drops = (Dropped(name, "source", reason) for name, reason in beside.items() if name not in named)
    name_map = replace(name_map, dropped=(*name_map.dropped, *drops))
    # A record may have left it out before.
    left_out = grouped(
        (drop.reason, drop.name) for drop in name_map.dropped if drop.name in beside and drop.reason in REASONS
    )
    said = (
        sentence("convert_warning.left_out", reason=reason, count=len(names), names=names)
        for reason, names in left_out.items()
    )
    return replace(chosen, name_map=name_map, warnings=(*chosen.warnings, *said))


def _with_left_out(name_map: NameMap, left_out: Mapping[str, str]) -> NameMap:
    """The map that also drops what the file's other weights were preferred to."""
    known = {one.name for one in name_map.dropped if one.side == "source"}
    drops = (Dropped(name, "source", reason) for name, reason in left_out.items() if name not in known)
    return replace(name_map, dropped=(*name_map.dropped, *drops))


def _with_or_without_prefix(way: Way, tensors: Tensors) -> ChosenNames:
    """What the way makes of the names, or of the names without a prefix that all share, if only these fit.

    Raises what the names as they are raise, if none fit.
    """
    try:
        return way(tensors)
    except (MapError, InputsError):
        for prefix in shared_prefixes(tensors):
            names = without_prefixes(tensors, (prefix,))
            if chosen := _if_it_fits(way, {name: tensors[was] for name, was in names.items()}):
                said = sentence("convert_warning.without_prefix", prefix=prefix)
                name_map = with_file_names(chosen.name_map, names)
                return replace(chosen, name_map=name_map, warnings=(said, *chosen.warnings))
        newer = newer_norm_names(tensors)
        names = {newer.get(name, name): name for name in tensors}
        if newer and (chosen := _if_it_fits(way, {name: tensors[was] for name, was in names.items()})):
            return replace(chosen, name_map=with_file_names(chosen.name_map, names))
        if chosen := _without_inner_wrappers(way, tensors):
            return chosen
        raise


def _without_inner_wrappers(way: Way, tensors: Tensors) -> ChosenNames | None:
    for inner in (False, True):
        names = {new: was for was, new in without_wrappers(tensors, inner=inner).items()}
        words = wrapper_words(names)
        chosen = _if_it_fits(way, {name: tensors[was] for name, was in names.items()}) if words else None
        if chosen:
            said = sentence("convert_warning.without_wrapper", words=words)
            name_map = with_file_names(chosen.name_map, names)
            return replace(chosen, name_map=name_map, warnings=(said, *chosen.warnings))
    return None


def _if_it_fits(way: Way, tensors: Tensors) -> ChosenNames | None:
    try:
        return way(tensors)
    except (MapError, InputsError):
        return None


def _check_model(task: _Task, label: str, parameters: Sequence[Parameter], tensors: Tensors) -> None:
    if faults := model_faults(parameters, tensors):
        raise InputsError(*texts("names_usage.other_model", path=task.checkpoint.path, label=label), faults=faults)


def _check_request(request: NameRequest) -> None:
    """Refuse options that do not go together, or that would be idle."""
    given = {"--map": request.name_map, "--family": request.family, "--source-model": request.source_model}
    several = [option for option, value in given.items() if value is not None]
    if len(several) > 1:
        raise UsageError.of("names_usage.several", options=several)
    if request.target_model is not None and request.source_model is None:
        raise UsageError.of("names_usage.target_model_alone")
    for what, decided, target in (
        ("a map", request.name_map is not None, request.target in ("nn", "mint")),
        ("--target-model", request.target_model is not None, request.target is not None),
        ("--family", request.family is not None, request.target in ("nn", "mint")),
    ):
        idle = [option for option, value in (("--target", target), ("--layer", request.layers)) if value]
        if decided and idle:
            raise UsageError.of("names_usage.idle", options=idle, what=what)


def _filled(chosen: ChosenNames) -> tuple[tuple[Fill, ...], NameMap]:
    """Beside the fills so far, those of dropped targets that have a default."""
    drops = {drop.name: default_fill(drop.name) for drop in chosen.name_map.dropped if drop.side == "target"}
    fills = tuple(fill for fill in drops.values() if fill is not None)
    dropped = tuple(drop for drop in chosen.name_map.dropped if drop.side == "source" or drops[drop.name] is None)
    return (*chosen.fills, *fills), replace(chosen.name_map, dropped=dropped)


def _fill_warnings(fills: Iterable[Fill]) -> Iterable[str]:
    for reason, names in grouped((fill.reason, fill.name) for fill in fills).items():
        yield sentence("convert_warning.filled", count=len(names), reason=reason, names=names)


PADDLE = "paddle"  # what its reader calls the format
ATTRIBUTES = {"_mean": "running_mean", "_variance": "running_var", "_weight": "weight"}  # of norms, and of PReLU
LINEAR = "linear"
# Megatron's names, and a family's for the same: norms inside of the layer that follows, experts as a rank counts them.
FUSED_NAME = re.compile(r"\.(?:linear_qkv|linear_fc1)\.(?:weight|bias)")
PLAIN_NAMES = (
    (re.compile(r"(.*)\.self_attention\.linear_qkv\.layer_norm_(weight|bias)"), r"\1.input_layernorm.\2"),
    (re.compile(r"(.*)\.mlp\.linear_fc1\.layer_norm_(weight|bias)"), r"\1.pre_mlp_layernorm.\2"),
    (re.compile(r"(.*)\.linear_(q|kv)_up_proj\.layer_norm_(weight|bias)"), r"\1.\2_layernorm.\3"),
    (re.compile(r"(.*\.experts)\.local_experts\.(\d+\..*)"), r"\1.\2"),
    (re.compile(r"(.*\.experts)\.(linear_fc[12]\.(?:weight|bias))(\d+)"), r"\1.\3.\2"),
)
QUERY_KEY_VALUE = re.compile(r"(.*)\.linear_qkv\.(weight|bias)")
GATED = re.compile(r"(.*)\.linear_fc1\.(weight|bias)(_[wv])?")


def in_known_layout(
    checkpoint: Checkpoint, request: NameRequest, destination: FrameworkName | None
) -> tuple[Checkpoint, NameRequest]:
    """A checkpoint in the layout of which names are known, and what of the request is still to be done.

    A map of the user speaks of the file as it is. Raises UsageError as `_from_paddle` and `_from_megatron`.
    """
    if checkpoint.format == PADDLE and request.name_map is None:
        return _from_paddle(checkpoint, request, destination)
    if request.family is not None and any(FUSED_NAME.search(name) for name in checkpoint.tensors):
        return _from_megatron(checkpoint, request, destination)
    return checkpoint, request


def _from_paddle(
    checkpoint: Checkpoint, request: NameRequest, destination: FrameworkName | None
) -> tuple[Checkpoint, NameRequest]:
    """Paddle's checkpoint under torch's names and in its layout, and what of the request is still to be done.

    Raises UsageError naming each matrix of which nothing says whether it is a Linear's.
    """
    turned, open_ones = list[str](), list[str]()
    for name, tensor in checkpoint.tensors.items():
        module, _, attribute = name.rpartition(".")
        if attribute == "weight" and len(tensor.shape) == 2:
            kind = _kind(module, request.layers) or _shown_kind(module, tensor, checkpoint.tensors)
            (turned if kind == LINEAR else open_ones if kind is None else []).append(name)
    if open_ones:
        raise UsageError.of("paddle_usage.open", path=checkpoint.path, names=open_ones, count=len(open_ones))
    tensors = {_torch_name(name): _turned(one) if name in turned else one for name, one in checkpoint.tensors.items()}
    tensors = {name: replace(one, name=name) for name, one in tensors.items()}
    renamed = sum(name not in checkpoint.tensors for name in tensors)
    note = sentence("checkpoint_note.from_paddle", turned=len(turned), renamed=renamed)
    stays = "torch" in (request.target, destination)  # the layers say nothing of names that stay now
    made = replace(checkpoint, tensors=tensors, notes=(note,), metadata={"format": "pt"})
    return made, replace(request, layers=()) if stays else request


def _kind(module: str, layers: Sequence[str]) -> str | None:
    """What the user says that a layer is; the last word counts."""
    said = [text.rpartition("=") for text in layers]
    return next((kind for pattern, _, kind in reversed(said) if fnmatchcase(module, pattern)), None)


def _shown_kind(module: str, weight: StoredTensor, tensors: Mapping[str, StoredTensor]) -> str | None:
    bias = tensors.get(f"{module}.bias" if module else "bias")
    return LINEAR if bias is not None and bias.shape == weight.shape[1:] else None


def _torch_name(name: str) -> str:
    module, dot, attribute = name.rpartition(".")
    return module + dot + ATTRIBUTES.get(attribute, attribute)


def _turned(tensor: StoredTensor) -> StoredTensor:
    return StoredTensor(tensor.name, tensor.shape[::-1], tensor.dtype, lambda: tensor.load().T)


def _from_megatron(
    checkpoint: Checkpoint, request: NameRequest, destination: FrameworkName | None
) -> tuple[Checkpoint, NameRequest]:
    """Megatron's checkpoint with each layer by itself, under the names that the family has on its Megatron side.

    Where these are what is to be written, the names then stay. Raises UsageError where Megatron's arguments are missing
    or do not fit the shapes, and MapError for names that are not of the family.
    """
    from align.names.map_one_side import map_from_family
    from align.rules.model_families import read_family

    family, sizes = read_family(request.family or ""), json.loads(checkpoint.metadata.get(MEGATRON, "{}"))
    names = {_plain_name(name): tensor for name, tensor in checkpoint.tensors.items()}
    tensors: dict[str, StoredTensor] = {}
    faults = []
    for name, tensor in names.items():
        try:
            known = family.place(name, backwards=True) is not None
            layers = {name: replace(tensor, name=name)} if known else _taken_apart(name, tensor, names, sizes)
        except ValueError as error:
            faults.append(say("fault_list.one", head=name, fault=error))
            continue
        tensors |= layers
    if faults:
        raise UsageError.of("megatron_usage.fused", path=checkpoint.path, count=len(faults), faults=faults)
    note = sentence("checkpoint_note.from_megatron", count=sum(name not in tensors for name in names))
    checkpoint = replace(checkpoint, tensors=tensors, notes=(*checkpoint.notes, note), metadata={"format": "ms"})
    if "torch" in (request.target, destination):
        return checkpoint, request
    map_from_family(family, tensors, "torch")  # raises for names of another family
    return checkpoint, replace(request, family=None)


def _plain_name(name: str) -> str:
    for pattern, written in PLAIN_NAMES:
        name = pattern.sub(written, name) if pattern.fullmatch(name) else name
    return name


def _taken_apart(name: str, tensor: StoredTensor, tensors: Tensors, sizes: Mapping[str, int]) -> Tensors:
    """The layers that lie in one parameter, or the parameter itself; raises ValueError where it cannot be cut.

    Source: megatron-core's attention.py (each group has its queries, then its key, then its value) and mlp.py (gates,
    then values; with a name for each layer each half has a name of its own).
    """
    if match := QUERY_KEY_VALUE.fullmatch(name):
        return _queries_keys_values(name, match, tensor, sizes)
    match = GATED.fullmatch(name)
    behind = match and tensors.get(f"{match[1]}.linear_fc2.weight")
    if match and match[3]:
        pieces = {f"{match[1]}.{'gating' if match[3] == '_w' else 'hidden'}.{match[2]}": tensor}
    elif match and behind is not None and tensor.shape[0] == 2 * behind.shape[-1]:
        half = behind.shape[-1]
        pieces = {
            f"{match[1]}.{layer}.{match[2]}": cut_along(name, tensor, 0, start, start + half)
            for layer, start in (("gating", 0), ("hidden", half))
        }
    else:
        pieces = {name: tensor}
    return {written: replace(piece, name=written) for written, piece in pieces.items()}


def _queries_keys_values(name: str, match: re.Match[str], tensor: StoredTensor, sizes: Mapping[str, int]) -> Tensors:
    heads, groups = sizes.get("num_attention_heads", 0), sizes.get("num_query_groups", 0)
    if not sizes.get("group_query_attention", groups):  # Megatron's own default: a group for each head
        groups = heads
    if heads < 1 or groups < 1:
        raise ValueError(say("megatron_fault.no_heads"))
    rows, rest = tensor.shape[0], tensor.shape[1:]
    width = rows // (heads + 2 * groups)
    if heads % groups or width * (heads + 2 * groups) != rows or sizes.get("kv_channels", width) != width:
        raise ValueError(say("megatron_fault.other_heads", rows=rows, heads=heads, groups=groups))
    by_group = reshaped(tensor, name, (groups, rows // groups, *rest))
    pieces, start = {}, 0
    for layer, count in (("linear_q", heads // groups), ("linear_k", 1), ("linear_v", 1)):
        written = f"{match[1]}.{layer}.{match[2]}"
        piece = cut_along(written, by_group, 1, start, start + count * width)
        pieces[written] = reshaped(piece, written, (groups * count * width, *rest))
        start += count * width
    return pieces
