"""The state of an optimizer as it lies in the source: torch's by number and group, MindSpore's among the weights.

torch's is looked for in the file of the weights, whatever trainer wrote it, and beside it. What no parameter can be
given back (one flat array, eight bits, factors, parts of several ranks) is named and refused. MindSpore's is known by
its names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from align.checkpoints.extents import file_state
from align.checkpoints.names_in_file import STATE, training_state
from align.checkpoints.thresholds import HEAD_BYTES
from align.convert.plan_conversion import BATCHES
from align.convert.thresholds import DEEPEST_STATE
from align.core.atomic_files import existing_file
from align.core.documents import DocumentFault, read_json
from align.core.load_code import nested_files
from align.core.parameters import OddTensor, StoredTensor
from align.errors import CannotRunError, UsageError
from align.rules.training_rules import optimizer_state_rules, part_by_name, training_state_rules
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from align.core.parameters import Checkpoint, Shape
    from align.rules.training_rules import MindSporeState, TorchState

    Tensors = Mapping[str, StoredTensor]

OPTIMIZER = {"state", "param_groups"}  # format: what `torch.optim.Optimizer.state_dict` returns
BESIDE = ("optimizer.pt", "optimizer.bin")  # of the trainers of Hugging Face and of accelerate
SCHEDULES = ("scheduler.pt", "scheduler.bin")
SCALERS = ("scaler.pt",)
WEIGHTS = ("model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin")
TRAINER = "trainer_state.json"
COUNTS = (("global_step",), ("meta", "iter"), ("iteration",))  # of Lightning and trainers, of mmengine, of Megatron
SCHEDULE = {"last_epoch", "_step_count"}
MOST_STEPS = 1 << 31  # format: MindSpore counts steps in int32


@dataclass(frozen=True, slots=True)
class StateOptions:
    """What the user said of the state: MindSpore's optimizer by name, and a file of its own."""

    port: str | None = None
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class TorchStateFile:
    """A state as torch saved it.

    `groups` are the settings of each group and `members` what it calls its parameters; `entries` is what is kept of
    each. `forms` are the optimizers that it may be of. `steps` maps numbers of steps to how many parameters took them.
    `key` is the entry that holds it in the file of the weights, "" where it has a file of its own.
    """

    path: Path
    key: str
    groups: tuple[dict[str, Any], ...]
    members: tuple[tuple[Any, ...], ...]
    entries: dict[Any, dict[str, Any]]
    forms: tuple[TorchState, ...]
    steps: dict[int, int]
    counted_by: str
    schedule: dict[str, Any] | None
    scale: dict[str, Any] | None
    used_keys: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def count(self) -> int | None:
        """The steps of the optimizer, None where nothing tells them."""
        return max(self.steps, default=None)

    def moments(self, member: Any) -> dict[str, StoredTensor]:
        """What is kept of a parameter, but for its count of steps."""
        kept = self.entries.get(member, {})
        return {key: one for key, one in kept.items() if key != "step" and isinstance(one, StoredTensor)}

    def listed(self) -> list[list[str]]:
        """The names of the parameters of each group, where the optimizer saved them; else nothing."""
        if all(isinstance(member, str) for group in self.members for member in group):
            return [[*group] for group in self.members]
        names = [group.get("param_names") for group in self.groups]
        sound = all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in names)
        return [[*one] for one in names if one is not None] if sound else []

    def shapes(self) -> list[list[Shape | None]]:
        """The shape of each parameter by what is kept of it; None where nothing is."""
        return [[next((one.shape for one in self.moments(m).values()), None) for m in group] for group in self.members]


@dataclass(frozen=True, slots=True)
class MindSporeStateFile:
    """A state among MindSpore's weights: moment -> parameter -> its tensor, the numbers, and names that are left."""

    form: MindSporeState
    moments: dict[str, dict[str, str]]
    numbers: dict[str, float]
    left: tuple[str, ...]
    names: frozenset[str] = field(default=frozenset())

    @property
    def steps(self) -> int | None:
        """The steps that were taken, None where no number tells them."""
        counts = (one for one in self.form.numbers if one.means == "steps" and one.name in self.numbers)
        found = next((self.numbers[one.name] - one.offset for one in counts), None)
        return int(found) if found is not None and 0 <= found < MOST_STEPS else None


def weights_path(given: Path | str, options: StateOptions) -> Path:
    """Where the weights lie: in a trainer's folder the file of the model, which others stand beside."""
    source = Path(given)
    if options.file is not None or not source.is_dir() or not any((source / name).is_file() for name in BESIDE):
        return source
    return next((source / name for name in WEIGHTS if (source / name).is_file()), source)


# torch


def read_torch_state(checkpoint: Checkpoint, options: StateOptions) -> TorchStateFile:
    """Find and read the state that belongs to a checkpoint of torch.

    Raises UsageError where there is none, or more than one; CannotRunError for a state that cannot be carried.
    """
    path, tree = _tree(checkpoint, options)
    optimizers = dict(_optimizers(tree))
    _refuse_by_key(path, tree)
    if not optimizers:
        looked = [str(path), *(str(path.parent / name) for name in BESIDE)]
        raise UsageError.of("optimizer_state.none", path=path, looked=looked)
    if len(optimizers) > 1:
        raise UsageError.of("optimizer_state.several", path=path, names=[*optimizers])
    key, saved = next(iter(optimizers.items()))
    in_checkpoint = path in checkpoint.all_files
    groups, members = _groups(path, saved)
    entries = _entries(path, saved)
    settings = groups[0] if groups else {}
    forms = _forms(path, settings, entries)
    files, beside = _beside(path, own=in_checkpoint)
    schedule, schedule_key = _first(tree, beside, SCHEDULE)
    scale, scale_key = _first(tree, beside, {*optimizer_state_rules().scale})
    steps, counted_by = _steps(checkpoint, tree if in_checkpoint else None, path, groups, entries)
    used = (key, schedule_key, scale_key) if in_checkpoint else ()
    return TorchStateFile(
        path, key if in_checkpoint else "", groups, members, entries, forms, steps, counted_by, schedule, scale,
        tuple(one.partition(".")[0] for one in used if one), (path, *files),
    )  # fmt: skip


def _tree(checkpoint: Checkpoint, options: StateOptions) -> tuple[Path, Any]:
    """The file that holds the state, and all that is in it."""
    if options.file is not None:
        path = existing_file(options.file, "optimizer state")
        if part := part_by_name(path):
            raise CannotRunError.of(f"part_of_model.{part}", path=path, others=[], told="")
        return path, read_tree(path)
    inside = read_tree(checkpoint.path) if checkpoint.format.startswith("torch") else {}
    if next(_optimizers(inside), None) or _refused_key(inside):
        return checkpoint.path, inside
    beside = [checkpoint.path.parent / name for name in BESIDE]
    path = next((one for one in beside if one.is_file()), checkpoint.path)
    return path, read_tree(path) if path != checkpoint.path else inside


def read_tree(path: Path) -> Any:
    """All that a file of torch's holds, as `NestedFile.read_tree` gives it; raises UsageError for another file."""
    with path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    reader = next((one for one in nested_files() if one.recognizes(path, head)), None)
    if reader is None:
        raise UsageError.of("optimizer_state.no_torch_file", path=path)
    return reader.read_tree(path)


def _mappings(tree: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    """All mappings by the keys that lead to them, the outer ones first, each once; no optimizer's is looked into."""
    seen, level = {id(tree)}, [("", tree)]
    for _ in range(DEEPEST_STATE):
        inner: list[tuple[str, Any]] = []
        for keys, value in level:
            if isinstance(value, dict):
                yield keys, value
                if value.keys() >= OPTIMIZER:
                    continue
            for key, one in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(one, (dict, list)) and id(one) not in seen:
                    seen.add(id(one))
                    inner.append((f"{keys}.{key}" if keys else str(key), one))
        level = inner


def _optimizers(tree: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    yield from ((keys, one) for keys, one in _mappings(tree) if one.keys() >= OPTIMIZER)


def _refuse_by_key(path: Path, tree: Any) -> None:
    if refused := _refused_key(tree):
        identity, key = refused
        raise CannotRunError.of(f"refused_state.{identity}", path=path, names=[key])


def _refused_key(tree: Any) -> tuple[str, str] | None:
    for _, mapping in _mappings(tree):
        for rule in optimizer_state_rules().refused:
            for key in mapping:
                if isinstance(key, str) and any(fnmatchcase(key, glob) for glob in rule.keys):
                    return rule.id, key
    return None


def _groups(path: Path, saved: dict[Any, Any]) -> tuple[tuple[dict[str, Any], ...], tuple[tuple[Any, ...], ...]]:
    groups = saved["param_groups"]
    sound = isinstance(groups, list) and all(
        isinstance(group, dict)
        and isinstance(group.get("params"), list)
        and all(isinstance(member, (int, str)) for member in group["params"])
        for group in groups
    )
    if not sound or not isinstance(saved["state"], dict):
        raise CannotRunError.of("optimizer_state.odd", path=path)
    members = tuple(tuple(group["params"]) for group in groups)
    if len({member for group in members for member in group}) < sum(map(len, members)):
        raise CannotRunError.of("optimizer_state.odd", path=path)
    return tuple({key: value for key, value in group.items() if key != "params"} for group in groups), members


def _entries(path: Path, saved: dict[Any, Any]) -> dict[Any, dict[str, Any]]:
    entries: dict[Any, dict[str, Any]] = {}
    odd: list[str] = []
    for member, kept in saved["state"].items():
        if not isinstance(kept, dict):
            raise CannotRunError.of("refused_state.flat", path=path, names=[str(member)])
        for rule in optimizer_state_rules().refused:
            if found := [key for key in kept if any(fnmatchcase(str(key), glob) for glob in rule.entries)]:
                raise CannotRunError.of(f"refused_state.{rule.id}", path=path, names=found)
        odd += [one.reason for one in kept.values() if isinstance(one, OddTensor)]
        entries[member] = {str(key): one for key, one in kept.items() if one is not None}
    if odd:
        raise CannotRunError.of("refused_state.parts", path=path, names=odd)
    return entries


def _forms(path: Path, settings: Mapping[str, Any], entries: Mapping[Any, Mapping[str, Any]]) -> tuple[TorchState, ...]:
    kept = {key for entry in entries.values() for key in entry} - {"step"}
    forms = [form for form in optimizer_state_rules().torch if form.fits(settings) and kept <= form.moments.keys()]
    if not forms:
        facts = {"path": path, "kept": sorted(kept), "settings": sorted(settings)}
        raise CannotRunError.of(
            "refused_state.unknown", known=[form.id for form in optimizer_state_rules().torch], **facts
        )
    return tuple(form for form in forms if form.kind == forms[0].kind)


def _beside(path: Path, *, own: bool) -> tuple[tuple[Path, ...], list[Any]]:
    """Files of the schedule and the loss scale beside a state that has a file of its own, and what is in them."""
    if own:
        return (), []
    files = tuple(path.parent / name for name in (*SCHEDULES, *SCALERS) if (path.parent / name).is_file())
    return files, [read_tree(one) for one in files]


def _first(tree: Any, beside: Sequence[Any], keys: set[str]) -> tuple[dict[str, Any] | None, str]:
    """The first mapping with these keys, and what leads to it."""
    for one in (tree, *beside):
        for name, mapping in _mappings(one):
            if mapping.keys() >= keys:
                return mapping, name
    return None, ""


def _steps(
    checkpoint: Checkpoint,
    tree: Any,
    path: Path,
    groups: Sequence[Mapping[str, Any]],
    entries: Mapping[Any, Mapping[str, Any]],
) -> tuple[dict[int, int], str]:
    """How many parameters took how many steps, and what says so: the optimizer itself, a trainer, or a BatchNorm."""
    counts = [_number(entry["step"]) for entry in entries.values() if "step" in entry]
    counts += [_number(group["step"]) for group in groups if "step" in group]
    if any(count is not None and not 0 <= count < MOST_STEPS for count in counts):
        raise CannotRunError.of("optimizer_state.odd", path=path)
    known_counts = [int(count) for count in counts if count is not None]
    if known_counts:
        return {number: known_counts.count(number) for number in sorted({*known_counts})}, "optimizer"
    of_trainer = [_at(tree, keys) for keys in COUNTS] + [_trainer_step(path)]
    if (
        number := next((count for count in of_trainer if isinstance(count, int) and 0 < count < MOST_STEPS), None)
    ) is not None:
        return {number: 0}, "trainer"
    batches = [tensor for name, tensor in checkpoint.tensors.items() if name.rpartition(".")[2] == BATCHES]
    seen = [int(tensor.load().reshape(())) for tensor in batches if prod(tensor.shape) == 1]
    return ({max(seen): 0}, BATCHES) if seen and max(seen) > 0 else ({}, "")


def _trainer_step(path: Path) -> Any:
    file = path.parent / TRAINER
    try:
        return _at(read_json(file), ("global_step",)) if file.is_file() else None
    except DocumentFault:
        return None


def _at(tree: Any, keys: Iterable[str]) -> Any:
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def _number(value: Any) -> float | None:
    if isinstance(value, StoredTensor):
        return float(value.load().reshape(-1)[0]) if prod(value.shape) == 1 else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# MindSpore


def read_mindspore_state(checkpoint: Checkpoint, options: StateOptions, known_port: str = "") -> MindSporeStateFile:
    """The state among MindSpore's weights; `known_port` is the optimizer that a record names.

    Raises UsageError where there is none, or where the names are those of several optimizers.
    """
    tensors = checkpoint.tensors
    reasons = training_state(tensors, training_state_rules(), "mindspore")
    names = {name for name, reason in reasons.items() if reason == STATE}
    if options.file is not None:
        raise UsageError.of("optimizer_state.file_of_torch", path=options.file)
    if not names:
        raise UsageError.of("optimizer_state.none_among_weights", path=checkpoint.path)
    states = [name for name in names if prod(tensors[name].shape) > 1]
    forms = [port for port in optimizer_state_rules().mindspore if _is_of(port, tensors, states)]
    if options.port is not None:
        wanted = find_port(options.port)
        forms = [port for port in forms if port.id == wanted.id]
    elif any(port.id == known_port for port in forms):
        forms = [port for port in forms if port.id == known_port]
    if not forms:
        facts = {
            "path": checkpoint.path,
            "names": sorted(states),
            "known": [port.id for port in optimizer_state_rules().mindspore],
        }
        raise CannotRunError.of("refused_state.unknown_port", **facts)
    if len(forms) > 1:
        raise UsageError.of("optimizer_state.several_ports", path=checkpoint.path, names=[port.id for port in forms])
    form = forms[0]
    moments = {affix: _parameters_of(affix, tensors) for affix in form.moments}
    numbers = {number.name: tensors[number.name] for number in form.numbers if number.name in tensors}
    values = {name: float(tensor.load().reshape(-1)[0]) for name, tensor in numbers.items() if prod(tensor.shape) == 1}
    used = {name for affix in moments.values() for name in affix.values()} | values.keys()
    scale = [name for name in ("scale_sense", *SCALE_COUNTS) if name in tensors]
    values |= {name: float(tensors[name].load().reshape(-1)[0]) for name in scale if prod(tensors[name].shape) == 1}
    rates = [name for name in names if name.startswith("learning_rate") and prod(tensors[name].shape) == 1]
    values |= {name: float(tensors[name].load().reshape(-1)[0]) for name in rates}
    left = tuple(name for name in tensors if name in names and name not in used and name not in values)
    return MindSporeStateFile(form, moments, values, left, frozenset(names | {*scale}))


SCALE_COUNTS = ("current_iterator_step", "last_overflow_iterator_step")


def _parameters_of(affix: str, tensors: Tensors) -> dict[str, str]:
    """Parameter -> the tensor that is kept of it under this affix."""
    found = {name[len(affix) :]: name for name in tensors if name.startswith(affix)}
    return {one: name for one, name in found.items() if one in tensors and tensors[one].shape == tensors[name].shape}


def _is_of(form: MindSporeState, tensors: Tensors, states: Sequence[str]) -> bool:
    """Whether all that has the size of a parameter is this optimizer's, and what tells it from others is there."""
    shown = all(name in tensors for name in form.shows)
    numbers = (number for number in form.numbers if number.name in tensors and number.means != "rate")
    sound = all(
        tensors[number.name].shape == number.shape and tensors[number.name].dtype == number.dtype for number in numbers
    )
    needed = (affix for affix in form.moments if affix not in form.optional)
    explained = all(name.startswith((*form.moments, "learning_rate")) for name in states)  # a rate may be a table
    others = {"global_step", "step_t", "state_step"} - {number.name for number in form.numbers}
    return (
        shown and sound and explained
        and all(_parameters_of(affix, tensors) for affix in needed)
        and not others & tensors.keys()
    )  # fmt: skip


def find_port(given: str) -> MindSporeState:
    """The optimizer of MindSpore that a user means: `mint.AdamW`, `nn.Adam`, or a class that one package alone has."""
    forms = optimizer_state_rules().mindspore
    short = given.lower().removeprefix("mindspore.").replace("optim.", "")
    matches = [port for port in forms if port.id.lower() == short] or [
        port for port in forms if port.id.rpartition(".")[2].lower() == short
    ]
    if len(matches) == 1:
        return matches[0]
    key = "optimizer_state.port_of_several" if matches else "optimizer_state.no_such_port"
    raise UsageError.of(key, given=given, names=[port.id for port in matches or forms])


def choose_port(saved: TorchStateFile, options: StateOptions) -> MindSporeState:
    """The optimizer of MindSpore that is to take torch's state over."""
    if options.port is None:
        targets = [*dict.fromkeys(form.target for form in saved.forms)]
        if len(targets) > 1:
            raise UsageError.of("optimizer_state.adam_or_adamw", path=saved.path, names=targets)
        return find_port(targets[0])
    port = find_port(options.port)
    if port.kind != saved.forms[0].kind:
        fitting = [known.id for known in optimizer_state_rules().mindspore if known.kind == saved.forms[0].kind]
        facts = {"port": port.id, "optimizer": optimizer_name(saved.forms), "names": fitting}
        raise UsageError.of("optimizer_state.other_kind", **facts)
    return port


def optimizer_name(forms: Sequence[TorchState]) -> str:
    """What torch calls an optimizer, or the two that it may be."""
    return forms[0].id if len(forms) == 1 else sentence("state_order.either", names=[one.id for one in forms])


def without_state(checkpoint: Checkpoint, saved: TorchStateFile | MindSporeStateFile) -> Checkpoint:
    """The checkpoint without what is carried as state; its files are read as well, so none may change meanwhile."""
    if isinstance(saved, MindSporeStateFile):
        return replace(
            checkpoint, tensors={n: tensor for n, tensor in checkpoint.tensors.items() if n not in saved.names}
        )
    files = tuple(dict.fromkeys((*checkpoint.all_files, *saved.files)))
    states = checkpoint.states | {path: file_state(path) for path in saved.files if path not in checkpoint.states}
    return replace(
        checkpoint,
        other={key: value for key, value in checkpoint.other.items() if key not in saved.used_keys},
        other_tensors={key: value for key, value in checkpoint.other_tensors.items() if key not in saved.used_keys},
        files=files,
        states=states,
    )
