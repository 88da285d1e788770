"""What the rules say of training, by files of `mappings`, and how its ranks cut parameters.

What each optimizer computes, as fields of a rule (`update_rules.toml`); what training leaves in a checkpoint beside the
weights (`training_state.toml`); how initial values are drawn, by number or by the sizes of a weight
(`initial_values.toml`); what optimizers keep on both sides (`optimizer_states.toml`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase, translate
from functools import cache, lru_cache
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal, get_args

from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from align.core.protocols import Setting

Meaning = Literal["plain", "inverse", "sign"]
# The conventions of a rule that no setting changes: another class has them, or none.
CONVENTIONS = frozenset(
    {"decay_form", "corrected", "epsilon_scaled", "epsilon_inside", "second_start", "rate_in_momentum"}
)
HOMES = ("mindspore.nn.", "mindspore.experimental.optim.")  # of optimizers that update on every device


@dataclass(frozen=True, slots=True)
class FieldForm:
    """Which setting gives a field, and how: `plain`, the `inverse` number, or the `sign` -1 where it is true.

    `values` are pairs of a setting and the field's value.
    """

    setting: str
    means: Meaning = "plain"
    values: tuple[tuple[Setting, Any], ...] = ()

    def field_of(self, value: Setting) -> Any:
        """Turn the value of the setting into that of the field."""
        if self.values:
            return next((own for given, own in self.values if given == value), None)
        if isinstance(value, (int, float)) and self.means == "sign":
            return -1.0 if value else 1.0
        return 1.0 / value if self.means == "inverse" and isinstance(value, (int, float)) and value else value


@dataclass(frozen=True, slots=True)
class UpdateRuleForm:
    """What optimizers of these classes compute: a kind, fields that are always so, and fields that settings give.

    A setting of `unknown` that is on makes it another rule. `moments` are what they keep of each parameter, by
    their own names, as the formulas of updates call it (`momentum`, `first`, `second`, ...).
    """

    classes: tuple[str, ...]
    kind: str
    fixed: Mapping[str, Any]
    reads: Mapping[str, FieldForm]
    unknown: tuple[str, ...] = ()
    moments: Mapping[str, str] = field(default_factory=dict)

    def fields(self, settings: Mapping[str, Setting]) -> dict[str, Any] | None:
        """The fields of the rule under these settings, None where one of `unknown` is on."""
        if any(settings.get(name) for name in self.unknown):
            return None
        read = {field: (form, setting_at(settings, form.setting)) for field, form in self.reads.items()}
        given = {field: form.field_of(value) for field, (form, value) in read.items() if value is not None}
        return {"kind": self.kind, **self.fixed, **given}


def setting_at(settings: Mapping[str, Setting], path: str) -> Setting:
    """The setting of a name, or of several values the one of a number: `betas.0`."""
    name, _, place = path.partition(".")
    value = settings.get(name)
    if not place:
        return value
    return value[int(place)] if isinstance(value, tuple) and int(place) < len(value) else None


def update_rule_form(classes: Sequence[str]) -> UpdateRuleForm | None:
    """The form of the first of these classes, if that is known: what is derived from it may do something else."""
    return next((form for form in update_rule_forms() if classes and classes[0] in form.classes), None)


def optimizer_of_rule(classes: Sequence[str]) -> str:
    """The class of MindSpore that computes what optimizers of these classes do, by all that no setting changes.

    "" where none does, or where these classes are not known.

    >>> optimizer_of_rule(["torch.optim.AdamW"])
    'mindspore.experimental.optim.AdamW'
    """
    form = update_rule_form(classes)
    if form is None:
        return ""
    alike = (one for one in update_rule_forms() if (one.kind, one.fixed) == (form.kind, form.fixed))
    names = [name for one in alike for name in one.classes]
    return next((name for home in HOMES for name in names if name.startswith(home)), "")


def moment_kinds(classes: Sequence[str]) -> Mapping[str, str]:
    """What optimizers of these classes keep, as `UpdateRuleForm.moments`; a derived class keeps what its base does.

    Of other classes, the names that mean one thing wherever they are known.
    """
    forms = (form for name in classes for form in update_rule_forms() if name in form.classes)
    known = next(forms, None)
    return _usual_moments() if known is None else known.moments


@cache
def _usual_moments() -> dict[str, str]:
    pairs = {pair for form in update_rule_forms() for pair in form.moments.items()}
    meanings = Counter(name for name, _ in pairs)
    return {name: kind for name, kind in sorted(pairs) if meanings[name] == 1}


@cache
def update_rule_forms() -> tuple[UpdateRuleForm, ...]:
    """Read the file; raises MappingRuleError for a faulty one."""
    path = mappings_folder() / "update_rules.toml"
    return read_rules(path, lambda document: tuple(_form(table) for table in document["optimizer"]))


def _form(table: dict[str, Any]) -> UpdateRuleForm:
    reads = {field: _field_form(given) for field, given in table.get("reads", {}).items()}
    rest = {key: value for key, value in table.items() if key not in ("reads", "classes", "unknown")}
    classes, unknown = tuple(table["classes"]), tuple(table.get("unknown", ()))
    return UpdateRuleForm(**{"fixed": {}, **rest, "classes": classes, "unknown": unknown, "reads": reads})


def _field_form(given: Any) -> FieldForm:
    if isinstance(given, str):
        return FieldForm(given)
    pairs = tuple(tuple(pair) for pair in given.get("values", ()))
    return FieldForm(**{**given, "values": pairs})


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """How an optimizer calls its state: what it puts before a parameter's name.

    `states` have the parameter's shape and `reduced` a smaller one, and all of them are there; `more` may be missing.
    """

    id: str
    states: tuple[str, ...] = ()
    reduced: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrapperCounter:
    """A 0-d integer that a wrapper saves beside its model, whose names start with the prefix."""

    name: str
    prefix: str
    wrapper: str


@dataclass(frozen=True, slots=True)
class TrainingStateRules:
    """`numbers` are globs over the names of what an optimizer or a loss scaler counts and sets.

    `counts` are names of what training counts, which are known where they stand alone. `averaged` are words in the
    names of averaged copies, `wrappers` those in front of names that tell nothing; `teachers` are words in the names of
    copies from which a training learns, `students` those in front of the weights that learn.
    """

    optimizers: tuple[OptimizerState, ...]
    numbers: tuple[str, ...]
    counts: tuple[str, ...]
    counters: tuple[WrapperCounter, ...]
    averaged: tuple[str, ...]
    wrappers: frozenset[str]
    teachers: tuple[str, ...]
    students: frozenset[str]


@cache
def training_state_rules() -> TrainingStateRules:
    """Read the file; raises MappingRuleError for a faulty one."""
    return read_rules(mappings_folder() / "training_state.toml", _training_state)


def _training_state(table: dict[str, Any]) -> TrainingStateRules:
    entries: list[dict[str, Any]] = [
        {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
        for entry in table["optimizer"]
    ]
    return TrainingStateRules(
        tuple(OptimizerState(**entry) for entry in entries),
        tuple(table["numbers"]["names"]),
        tuple(table["numbers"]["counts"]),
        tuple(WrapperCounter(**entry) for entry in table["counter"]),
        tuple(table["averaged"]["words"]),
        frozenset(table["averaged"]["wrappers"]),
        tuple(table["averaged"]["teachers"]),
        frozenset(table["averaged"]["students"]),
    )


Fan = Literal["in", "out", "sum", "hidden"]


@dataclass(frozen=True, slots=True)
class InitialFamily:
    """A distribution with one number, its `scale`, and what draws from it in each framework."""

    id: str
    torch: str
    mindspore: str


@dataclass(frozen=True, slots=True)
class InitialScheme:
    """A family whose scale follows from the sizes of the weight: sqrt(factor / fan).

    The texts are what draws so, "" where nothing does in one call.
    """

    id: str
    family: str
    fan: Fan
    factor: float
    formula: str
    torch: str = ""
    mindspore: str = ""

    def scale(self, fans: Mapping[Fan, int]) -> float | None:
        """The scale for a weight of these sizes, None if it has no such size."""
        fan = fans.get(self.fan, 0)
        return sqrt(self.factor / fan) if fan else None


@dataclass(frozen=True, slots=True)
class InitialValueRules:
    """Families by id, and the schemes in the order in which they count."""

    families: dict[str, InitialFamily]
    schemes: tuple[InitialScheme, ...]


@cache
def initial_value_rules() -> InitialValueRules:
    """Read the file; raises MappingRuleError for a faulty one."""
    return read_rules(mappings_folder() / "initial_values.toml", _initial_values)


def _initial_values(table: dict[str, Any]) -> InitialValueRules:
    families = [InitialFamily(**entry) for entry in table["family"]]
    return InitialValueRules(
        {one.id: one for one in families}, tuple(InitialScheme(**entry) for entry in table["scheme"])
    )


# What shows that the tensors of a file are no weights by themselves (`mappings/stored_weights.toml`).
#
# Weights in fewer bits, whose values are made with the scales beside them, by names and dtypes; and files that are a
# part of one model, by their paths.

Proof = Literal["beside", "name", "values"]


@dataclass(frozen=True, slots=True)
class PackedForm:
    """One way of storing a weight in fewer bits; the globs are as in the file, `misses` and `hits` name -> dtype."""

    id: str
    tensor: tuple[str, ...]
    dtypes: frozenset[str]
    beside: tuple[str, ...]
    beside_not: frozenset[str]
    more: tuple[str, ...]
    hits: tuple[Mapping[str, str], ...]
    misses: tuple[Mapping[str, str], ...]

    @property
    def key(self) -> str:
        """The id as words have it in their keys."""
        return self.id.replace("-", "_")

    @property
    def marks(self) -> set[str]:
        """For each glob over what stands beside a packed tensor, letters that a name must hold to fit it."""
        return {max(re.split(r"\{\w+\}|\[.*\]|[*?]", glob), key=len) for glob in self.beside}

    def companions(self, attribute: str, dtype: str, siblings: Mapping[str, str]) -> tuple[str, ...]:
        """What belongs to a packed tensor of this name in its module; () if it is none.

        `siblings` are the dtypes of what else is in that module and below, by the names from there on.
        """
        if dtype not in self.dtypes:
            return ()
        fits = next((one for one in self.tensor if fnmatchcase(attribute, one)), None)
        if fits is None:
            return ()
        stem = attribute.removesuffix(fits.lstrip("*")) if fits.startswith("*") and fits != "*" else attribute
        marks, more = _pattern(self.beside, attribute, stem), _pattern(self.more, attribute, stem)
        if not any(marks.match(name) and siblings[name] not in self.beside_not for name in siblings):
            return ()
        return tuple(name for name in siblings if marks.match(name) or more.match(name))


@dataclass(frozen=True, slots=True)
class PartForm:
    """One way of naming the files of one model's parts; each group of `path` is the number of a part.

    `from_zero`: parts are counted from 0, so that another number shows that there are several.
    """

    id: str
    path: re.Pattern[str]
    proof: Proof
    examples: tuple[str, str]
    from_zero: bool = False

    def later_number(self, path: Path) -> str:
        """The number in a path which shows by itself that there is an earlier part, "" if none does."""
        found = self.path.search(path.absolute().as_posix()) if self.from_zero else None
        return next((number for number in found.groups("0") if int(number) > 0), "") if found else ""

    @property
    def key(self) -> str:
        """The id as words have it in their keys."""
        return self.id.replace("-", "_")


@dataclass(frozen=True, slots=True)
class StoredWeightRules:
    """Both kinds of rules, in the order in which they count."""

    packed: tuple[PackedForm, ...]
    parts: tuple[PartForm, ...]


@cache
def stored_weight_rules() -> StoredWeightRules:
    """Read the file; raises MappingRuleError for a faulty one."""
    return read_rules(mappings_folder() / "stored_weights.toml", _rules)


def part_by_name(path: Path) -> str:
    """The key of the rule by which a file is a part of a model whatever lies beside it, "" if none says so."""
    form = part_of_model(path)
    return form.key if form is not None and form.proof == "name" else ""


def part_of_model(path: Path) -> PartForm | None:
    """The first rule that the path of a file fits, whatever else it takes to be a part of a model."""
    text = path.absolute().as_posix()
    return next((one for one in stored_weight_rules().parts if one.path.search(text)), None)


@lru_cache(maxsize=1024)
def _pattern(globs: tuple[str, ...], attribute: str, stem: str) -> re.Pattern[str]:
    """What any of the globs fits, of names in the module of the packed tensor."""
    places = {"name": attribute, "stem": stem, "module": ""}
    quoted = {key: re.sub(r"([*?[])", r"[\1]", place) for key, place in places.items()}
    return re.compile("|".join(translate(glob.format(**quoted)) for glob in globs) or r"(?!)")


def _rules(table: dict[str, Any]) -> StoredWeightRules:
    return StoredWeightRules(
        tuple(_packed(entry) for entry in table["packed"]), tuple(_part(entry) for entry in table["part"])
    )


def _packed(entry: dict[str, Any]) -> PackedForm:
    return PackedForm(
        entry["id"],
        tuple(entry["tensor"]),
        frozenset(entry["dtypes"]),
        tuple(entry["beside"]),
        frozenset(entry["beside_not"]),
        tuple(entry["more"]),
        tuple(entry["examples"]["hits"]),
        tuple(entry["examples"]["misses"]),
    )


def _part(entry: dict[str, Any]) -> PartForm:
    if entry["proof"] not in get_args(Proof):
        raise ValueError(f"{entry['id']}: proof {entry['proof']!r}")
    part, whole = entry["examples"]
    return PartForm(
        entry["id"], re.compile(entry["path"]), entry["proof"], (part, whole), entry.get("from_zero", False)
    )


# What optimizers keep from step to step, on both sides (`mappings/optimizer_states.toml`).

StepPlace = Literal["parameter", "group", "nowhere"]
NumberMeaning = Literal["steps", "power", "rate", "setting"]


@dataclass(frozen=True, slots=True)
class TorchState:
    """How an optimizer of torch keeps its state: `moments` pairs its own word with what that is."""

    id: str
    kind: str
    moments: Mapping[str, str]
    shown_by: tuple[str, ...]
    steps: StepPlace
    target: str
    defaults: Mapping[str, Any]
    values: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, settings: Mapping[str, Any]) -> bool:
        """Whether a group with these settings may be one of this optimizer's."""
        return settings.keys() >= {*self.shown_by} and all(settings.get(k, v) == v for k, v in self.values.items())


@dataclass(frozen=True, slots=True)
class StateNumber:
    """One tensor of one element that MindSpore's optimizer keeps beside its moments."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    means: NumberMeaning
    setting: str = ""
    offset: int = 0


@dataclass(frozen=True, slots=True)
class MindSporeState:
    """How an optimizer of MindSpore keeps its state: `moments` pairs what stands before a name with what that is."""

    id: str
    kind: str
    moments: Mapping[str, str]
    optional: tuple[str, ...] = ()
    start: Mapping[str, float] = field(default_factory=dict)
    numbers: tuple[StateNumber, ...] = ()
    shows: tuple[str, ...] = ()
    needs_steps: bool = False
    rate_in: str = ""
    differs: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedState:
    """State that belongs to no parameter as a whole; globs over what is kept of a parameter, and over keys."""

    id: str
    entries: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizerStateRules:
    """Both sides; `scale` are the keys of torch's loss scaler, `scale_defaults` what MindSpore does not keep of it."""

    torch: tuple[TorchState, ...]
    mindspore: tuple[MindSporeState, ...]
    refused: tuple[RefusedState, ...]
    scale: tuple[str, ...]
    scale_defaults: Mapping[str, Any]


@cache
def optimizer_state_rules() -> OptimizerStateRules:
    """Read the file; raises MappingRuleError for a faulty one."""
    return read_rules(mappings_folder() / "optimizer_states.toml", _optimizer_states)


def _optimizer_states(table: dict[str, Any]) -> OptimizerStateRules:
    return OptimizerStateRules(
        tuple(TorchState(**_tupled(entry)) for entry in table["torch"]),
        tuple(
            MindSporeState(**_tupled(entry) | {"numbers": tuple(map(_state_number, entry.get("numbers", ())))})
            for entry in table["mindspore"]
        ),
        tuple(RefusedState(**_tupled(entry)) for entry in table["refused"]),
        tuple(table["scale"]["torch"]),
        table["scale"]["defaults"],
    )


def _state_number(entry: dict[str, Any]) -> StateNumber:
    if entry["means"] not in get_args(NumberMeaning):
        raise ValueError(f"{entry['name']}: means {entry['means']!r}")
    return StateNumber(**_tupled(entry))


def _tupled(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}


# How tensor-parallel ranks cut each parameter, by its name: what `mappings/shard_layouts.toml` says of it.
#
# A user's own names stand in a file of the same form, `shard_layouts.toml`, beside the checkpoint that has them.


FILE = "shard_layouts.toml"
Fused = Literal["", "groups", "blocks"]


@dataclass(frozen=True, slots=True)
class ShardCut:
    """One way of cutting parameters; `axis` is None for those that every rank has whole.

    `gated` and `beside` replace a word of the name, which then names the weight whose input tells the sizes inside.
    """

    names: tuple[str, ...]
    axis: int | None = None
    gated: tuple[str, ...] = ()
    fused: Fused = ""
    beside: tuple[str, ...] = ()
    vocabulary: bool = False
    examples: tuple[str, ...] = ()

    def neighbour(self, name: str) -> str:
        """The name of the weight whose input tells the sizes of what lies in one, "" if none does."""
        words = self.gated or self.beside
        return name.replace(words[0], words[1]).replace(".bias", ".weight") if words else ""


@dataclass(frozen=True, slots=True)
class ShardLayouts:
    """The cuts in their order, and the patterns that find the number of a layer and of an expert in a name."""

    cuts: tuple[ShardCut, ...]
    layers: re.Pattern[str]
    experts: re.Pattern[str]
    first: tuple[str, ...]
    examples: dict[str, tuple[str, ...]]

    def cut_of(self, name: str) -> ShardCut | None:
        """The first cut whose names a name fits."""
        return next((cut for cut in self.cuts if any(fnmatchcase(name, glob) for glob in cut.names)), None)

    def renumbered(self, name: str, *, layer: int = 0, expert: int = 0) -> str:
        """The name with its layer and its expert counted from so many on."""
        for pattern, first in ((self.layers, layer), (self.experts, expert)):
            found = pattern.search(name) if first else None
            if found is not None:
                start, stop = next(found.span(n) for n in range(1, 1 + len(found.groups())) if found[n] is not None)
                name = f"{name[:start]}{int(name[start:stop]) + first}{name[stop:]}"
        return name

    def layer_of(self, name: str) -> tuple[str, int] | None:
        """What stands in front of the number of a layer, and that number; None for what belongs to no layer."""
        found = self.layers.search(name)
        return None if found is None else (name[: found.start(1)], int(found[1]))

    def is_first(self, name: str) -> bool:
        """Whether what belongs to no layer stands before all of them."""
        return any(fnmatchcase(name, glob) for glob in self.first)

    def expert_of(self, name: str) -> int | None:
        """The number of the expert, None for what belongs to none."""
        found = self.experts.search(name)
        return None if found is None else int(next(number for number in found.groups() if number is not None))


@cache
def shard_layouts(own: Path | None = None) -> ShardLayouts:
    """The layouts of the file, behind those of a user's own; raises MappingRuleError for a faulty one."""
    first = _own_cuts(own) if own is not None else ()
    known = read_rules(mappings_folder() / FILE, _layouts)
    return replace(known, cuts=(*first, *known.cuts))


def _own_cuts(path: Path) -> tuple[ShardCut, ...]:
    return read_rules(path, lambda table: tuple(_cut(entry) for entry in table["cut"]))


def _layouts(table: dict[str, Any]) -> ShardLayouts:
    patterns = {key: re.compile(table[key]["pattern"]) for key in ("layers", "experts")}
    examples = {key: tuple(table[key]["examples"]) for key in (*patterns, "first_stage")}
    cuts = tuple(_cut(entry) for entry in table["cut"])
    return ShardLayouts(cuts, **patterns, first=tuple(table["first_stage"]["names"]), examples=examples)


def _cut(entry: dict[str, Any]) -> ShardCut:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    cut = ShardCut(**values)
    texts = (cut.names, cut.gated, cut.beside, cut.examples)
    if not cut.names or any(not isinstance(one, str) for group in texts for one in group):
        raise ValueError(f"names {cut.names!r}")
    if cut.fused not in get_args(Fused) or len(cut.gated) not in (0, 2) or len(cut.beside) not in (0, 2):
        raise ValueError(f"{cut.names[0]}: fused {cut.fused!r}, gated {cut.gated!r}, beside {cut.beside!r}")
    if cut.axis is not None and (type(cut.axis) is not int or not 0 <= cut.axis < 2):
        raise ValueError(f"{cut.names[0]}: axis {cut.axis!r}")
    return cut


@cache
def kept_tensors() -> dict[str, str]:
    """What MindSpore's operators keep for the way back by their names: `nothing`, or what they `returned`.

    >>> kept_tensors()["ReLU"], kept_tensors().get("MatMul", "given")
    ('returned', 'given')
    """
    return read_rules(
        mappings_folder() / "kept_tensors.toml",
        lambda table: {name: kept for kept in ("nothing", "returned") for name in table[kept]},
    )
