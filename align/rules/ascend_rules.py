"""What is known of Ascend chips and GPUs, by the files of `mappings`, and what MindSpore has for torch's API.

Each entry names its source and how sure it is. A configuration is a chip, the framework that drives it (MindSpore's and
torch_npu's defaults differ) and the values of the switches; which entries hold follows from these.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

from align.core.parameters import Emulation, Format, OperatorRounding
from align.errors import UsageError
from align.rules.layer_rules import mappings_folder, read_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Driver = Literal["mindspore", "torch_npu", "torch"]
Certainty = Literal["documented", "read in the vendor's source", "reported in an issue", "concluded"]
OperatorClass = Literal[
    "only in float16",
    "float32 by default in float16",
    "float32 by default in HF32",
    "float32 by default in TF32",
    "float32 unless a switch says otherwise",
    "slow in float32",
    "flushes or saturates",
    "added in another order",
]
T = TypeVar("T")
MAKER: Final = "ascend:"
MAKERS: Final = ("ascend", "gpu")  # folders of mappings/
SATURATES: Final = "flushes or saturates"
REORDERS: Final = "added in another order"


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip by the names that people give it; `product` is its series, `maker` the folder that knows of it."""

    id: str
    names: tuple[str, ...]
    product: str
    source: str
    certainty: Certainty
    maker: str = MAKERS[0]

    @property
    def label(self) -> str:
        """What names it as a target."""
        return f"{self.maker}:{self.id}"


@dataclass(frozen=True, slots=True)
class SwitchDefault:
    """What a switch is if nobody sets it, on these chips and with these frameworks."""

    value: str
    source: str
    chips: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()

    def fits(self, chip: str, driver: str) -> bool:
        """Tell whether it holds there."""
        return (not self.chips or chip in self.chips) and (not self.frameworks or driver in self.frameworks)


@dataclass(frozen=True, slots=True)
class AscendSwitch:
    """A switch of `switches.toml`, whose head explains the fields; the first of its values is the most precise."""

    id: str
    values: tuple[str, ...]
    effect: str
    write: Mapping[str, str]
    defaults: tuple[SwitchDefault, ...]
    cann: str
    source: str
    certainty: Certainty
    ignored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def taken(self, driver: str) -> tuple[str, ...]:
        """The values that a framework takes."""
        return tuple(value for value in self.values if value not in self.ignored.get(driver, ()))

    def line(self, driver: Driver, value: str) -> str:
        """The line that sets it."""
        return self.write[driver].format(value=value)


@dataclass(frozen=True, slots=True)
class OperatorEntry:
    """What a chip does with an operator; `convolution.toml` explains the fields."""

    id: str
    operators: tuple[str, ...]
    torch: tuple[str, ...]
    chips: tuple[str, ...]
    operator_class: OperatorClass
    computes: Format
    result: Format
    cann: str
    source: str
    certainty: Certainty
    frameworks: tuple[str, ...] = ()
    when: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    switch: str = ""
    keeps: str = ""

    def holds(self, target: AscendTarget) -> bool:
        """Tell whether it holds for a chip under its switches."""
        here = target.chip.id in self.chips and (not self.frameworks or target.driver in self.frameworks)
        return here and all(target.switches[name] in values for name, values in self.when.items())


@dataclass(frozen=True, slots=True)
class AscendTarget:
    """A chip, the framework that drives it, the value of each switch, and which of them somebody has set.

    The order of sums counts only if it `reorders`: it is no format, and what it moves is rounding noise.
    """

    chip: Chip
    driver: Driver
    switches: Mapping[str, str]
    given: tuple[str, ...] = ()
    reorders: bool = False

    @property
    def own_switches(self) -> tuple[AscendSwitch, ...]:
        """All switches of its maker."""
        return ascend_switches(self.chip.maker)

    def entries(self) -> tuple[OperatorEntry, ...]:
        """What holds there, in the order of the files: the first entry of an operator counts."""
        return tuple(entry for entry in self.known() if entry.holds(self))

    def known(self) -> tuple[OperatorEntry, ...]:
        """What is known of the chip with this framework, under any switches."""
        here = (entry for entry in operator_entries(self.chip.maker) if self.chip.id in entry.chips)
        counted = (entry for entry in here if self.reorders or entry.operator_class != REORDERS)
        return tuple(entry for entry in counted if not entry.frameworks or self.driver in entry.frameworks)

    def changing(self) -> tuple[str, ...]:
        """The switches on which something depends there; a chip that has one value only has no use for the others."""
        depending = {name for entry in self.known() for name in entry.when}
        return tuple(switch.id for switch in self.own_switches if switch.id in depending)

    def without_effect(self) -> tuple[str, ...]:
        """The switches that somebody has set though nothing depends on them there."""
        return tuple(name for name in self.given if name not in self.changing())

    def coarser_by(self) -> tuple[str, ...]:
        """The switches at their most precise value of which another value rounds something."""
        rounding = {name for entry in self.known() if entry.computes != "float32" for name in entry.when}
        precise = {one.id for one in self.own_switches if self.switches[one.id] == one.values[0]}
        return tuple(name for name in self.changing() if name in rounding & precise)

    def emulation(self) -> Emulation:
        """The roundings of torch's operators; those that are only slow are there too, and round nothing."""
        holding = self.entries()
        roundings: dict[str, OperatorRounding] = {}
        for entry in holding:
            if entry.operator_class not in (SATURATES, REORDERS):
                rounding = OperatorRounding(entry.id, entry.computes, entry.result)
                roundings = {**dict.fromkeys(entry.torch, rounding), **roundings}
        reordered = frozenset(name for entry in holding if entry.operator_class == REORDERS for name in entry.torch)
        return Emulation(roundings, any(entry.operator_class == SATURATES for entry in holding), reordered)

    def with_switches(self, values: Mapping[str, str]) -> AscendTarget:
        """The same chip under other switches."""
        return replace(self, switches={**self.switches, **values})


def ascend_target(name: str, driver: Driver = "mindspore", switches: Mapping[str, str] | None = None) -> AscendTarget:
    """The chip that a name as `ascend:910b` or `gpu` means, with its default switches but for these.

    Raises UsageError for a chip, a switch or a value that is not known, and for a framework that does not drive it.

    >>> ascend_target("ascend:910B4").switches["conv_allow_hf32"]
    'True'
    """
    chip = _chip(name)
    known = {switch.id: switch for switch in ascend_switches(chip.maker)}
    drivers = [*known["deterministic"].write]
    if driver not in drivers:
        raise UsageError.of("ascend_usage.other_framework", name=driver, target=chip.label, known=drivers)
    values = {switch: _default(known[switch], chip.id, driver) for switch in known}
    for switch, value in (switches or {}).items():
        if switch not in known:
            raise UsageError.of("ascend_usage.unknown_switch", name=switch, known=[*known])
        if value not in (taken := known[switch].taken(driver)):
            facts = {"name": switch, "value": value, "framework": driver, "known": [*taken]}
            raise UsageError.of("ascend_usage.unknown_value", **facts)
        values[switch] = value
    return AscendTarget(chip, driver, values, tuple(switches or ()))


def _chip(name: str) -> Chip:
    maker, _, wanted = name.lower().partition(":")
    chips = [chip for one in MAKERS for chip in ascend_chips(one)]
    for chip in chips:
        names = (chip.id, *chip.names, *([""] if name.lower() == "gpu" else []))
        if maker == chip.maker and wanted.removeprefix(maker) in names:
            return chip
    raise UsageError.of("ascend_usage.unknown_chip", name=name, known=[chip.label for chip in chips])


def _default(switch: AscendSwitch, chip: str, driver: str) -> str:
    return next(one.value for one in switch.defaults if one.fits(chip, driver))


@cache
def ascend_chips(maker: str = MAKERS[0]) -> tuple[Chip, ...]:
    """All chips of a maker that are known."""
    return _read(maker, "chips", "chip", lambda table: Chip(**{**table, "names": tuple(table["names"])}, maker=maker))


@cache
def ascend_switches(maker: str = MAKERS[0]) -> tuple[AscendSwitch, ...]:
    """All switches of a maker's chips that are known."""
    return _read(maker, "switches", "switch", _switch)


@cache
def operator_entries(maker: str = MAKERS[0]) -> tuple[OperatorEntry, ...]:
    """What is known of operators, file by file."""
    files = sorted(path.stem for path in (mappings_folder() / maker).glob("*.toml"))
    found = [_read(maker, name, "operator", _entry) for name in files if name not in ("chips", "switches")]
    return tuple(entry for entries in found for entry in entries)


def _read(maker: str, name: str, key: str, make: Callable[[dict[str, Any]], T]) -> tuple[T, ...]:
    path = mappings_folder() / maker / f"{name}.toml"
    return read_rules(path, lambda document: tuple(make(table) for table in document[key]))


def _switch(table: dict[str, Any]) -> AscendSwitch:
    defaults = [SwitchDefault(**_with_tuples(one)) for one in table["defaults"]]
    return AscendSwitch(**{**table, "values": tuple(table["values"]), "defaults": tuple(defaults)})


def _entry(table: dict[str, Any]) -> OperatorEntry:
    given = _with_tuples({key: value for key, value in table.items() if key != "class"})
    given["when"] = {name: tuple(values) for name, values in table.get("when", {}).items()}
    if table["class"] not in get_args(OperatorClass) or table["certainty"] not in get_args(Certainty):
        raise ValueError(f"{table['id']}: {table['class']!r}, {table['certainty']!r}")
    return OperatorEntry(**given, operator_class=table["class"])


def _with_tuples(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


# What to run when a training crashes or hangs: `mappings/crash/`, a file a device; each step cites its source.

CrashCertainty = Literal["documented", "read in the vendor's source"]
HOST: Final = "cpu"


@dataclass(frozen=True, slots=True)
class CrashStep:
    """One thing to try: lines to paste, what they show, and where a vendor says so; `cpu.toml` explains the fields."""

    id: str
    title: str
    lines: tuple[str, ...]
    shows: str
    source: str
    certainty: CrashCertainty


@dataclass(frozen=True, slots=True)
class CrashDevice:
    """A device and its own steps."""

    device: str
    title: str
    steps: tuple[CrashStep, ...]


@cache
def crash_devices() -> Mapping[str, CrashDevice]:
    """All devices by name.

    >>> sorted(crash_devices())
    ['cpu', 'cuda', 'mlu', 'npu']
    """
    found = [read_rules(path, _device) for path in sorted((mappings_folder() / "crash").glob("*.toml"))]
    return {one.device: one for one in found}


def crash_steps(device: str) -> tuple[CrashStep, ...]:
    """The steps of a device, and behind them those of the host; raises UsageError for a device that has none."""
    devices = crash_devices()
    if device not in devices:
        raise UsageError.of("doctor_usage.device", device=device, known=sorted(devices))
    own = devices[device].steps
    return own if device == HOST else (*own, *devices[HOST].steps)


def _device(document: dict[str, Any]) -> CrashDevice:
    steps = tuple(CrashStep(**{**table, "lines": tuple(table["lines"])}) for table in document["step"])
    return CrashDevice(document["device"], document["title"], steps)


# What MindSpore has for each class, function and method of torch (`mappings/api/*.toml`).
#
# `benchmarks/make_api_tables.py` makes the table, from MindSpore's published mapping and from running both
# frameworks. An entry lists counterparts, the best first. Which one counts depends on the target: many functions of
# `mindspore.mint` have a kernel on Ascend only.


Relation = Literal["same", "other default", "other name"]
Status = Literal["no counterpart", "no kernel", "other default", "other name", "unknown", "same"]
ApiCertainty = Literal["tried here", "vendor's page", "vendor's docstring", "concluded"]
Platform = Literal["cpu", "gpu", "ascend"]
BY_EFFORT: Final = get_args(Status)


@dataclass(frozen=True, slots=True)
class OtherDefault:
    """A setting that is another one where nobody sets it; both values as written, "" for an absent one."""

    setting: str
    torch: str
    mindspore: str


@dataclass(frozen=True, slots=True)
class OtherCall:
    """What to write where a layer's `setting` is `value`, in the place of what is written for others."""

    setting: str
    value: str
    write: str


@dataclass(frozen=True, slots=True)
class Counterpart:
    """What MindSpore has: its name, how it relates to torch's, and the platforms that have a kernel for it.

    `same` takes the same arguments and returns the same; `other default` does once the `settings` are given; `other
    name` has other arguments, or another name. `arguments` renames torch's arguments, to "" what is to be left out.
    `write` is the call as one writes it, `otherwise` that for settings that want another. `certainty` is of the
    relation: tried here means on a CPU. One that is not `documented` was tried on a CPU, and no page says on what else
    it runs.
    """

    name: str
    relation: Relation
    platforms: tuple[Platform, ...]
    certainty: ApiCertainty
    settings: tuple[OtherDefault, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    write: str = ""
    otherwise: tuple[OtherCall, ...] = ()
    documented: bool = True

    def call_for(self, settings: Mapping[str, object]) -> OtherCall:
        """What to write for a layer with these settings, with the setting that decides it ("" for none)."""
        own = (one for one in self.otherwise if settings.get(one.setting) == one.value)
        return next(own, OtherCall("", "", self.write))


@dataclass(frozen=True, slots=True)
class ApiEntry:
    """A class, function or method of torch by its public name, and its counterparts, the best first.

    Without a counterpart, `write` says what to write instead; `instead` is the same as code that was run. `examples`
    are the calls that were tried, `F` standing for either name. `operators` are torch's operators by which an Ascend
    chip's rules know it. `source` is where the vendor says so, "" where no page does.
    """

    torch: str
    counterparts: tuple[Counterpart, ...] = ()
    write: str = ""
    certainty: ApiCertainty = "tried here"
    examples: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    source: str = ""

    def answer(self, platform: Platform) -> tuple[Status, Counterpart | None]:
        """The status on a platform and the counterpart that counts: the first with a kernel there, else the first."""
        if not self.counterparts:
            return "no counterpart", None
        for one in self.counterparts:
            if platform in one.platforms:
                return one.relation if one.documented or platform == "cpu" else "unknown", one
        return "no kernel", self.counterparts[0]


@dataclass(frozen=True, slots=True)
class ScanTarget:
    """What a port is to run on: a platform, and of Ascend the chip."""

    name: str
    platform: Platform
    chip: AscendTarget | None = None


def scan_target(name: str) -> ScanTarget:
    """The target that `cpu`, `gpu` or `ascend:CHIP` means; raises UsageError for any other.

    >>> scan_target("ascend:910B4").name
    'ascend:910b'
    """
    wanted = name.lower()
    if wanted.startswith(MAKER):
        chip = ascend_target(name)
        return ScanTarget(f"{MAKER}{chip.chip.id}", "ascend", chip)
    for platform in ("cpu", "gpu"):
        if wanted == platform:
            return ScanTarget(platform, platform)
    known = ["cpu", "gpu", *(f"{MAKER}{chip.id}" for chip in ascend_chips())]
    raise UsageError.of("scan_usage.unknown_target", name=name, known=known)


@cache
def api_entries() -> Mapping[str, ApiEntry]:
    """All entries by torch's name; raises MappingRuleError for a malformed file."""
    entries: dict[str, ApiEntry] = {}
    for path in sorted((mappings_folder() / "api").glob("*.toml")):
        for entry in read_rules(path, lambda document: [_api_entry(table) for table in document["api"]]):
            entries[entry.torch] = entry
    return entries


def _api_entry(table: dict[str, Any]) -> ApiEntry:
    own: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    counterparts = tuple(_counterpart(one) for one in own.pop("counterpart", ()))
    _check(own.get("certainty", "tried here"), ApiCertainty)
    return ApiEntry(**own, counterparts=counterparts)


def _counterpart(table: dict[str, Any]) -> Counterpart:
    settings = tuple(OtherDefault(**one) for one in table.get("settings", ()))
    otherwise = tuple(OtherCall(**one) for one in table.get("otherwise", ()))
    _check(table["relation"], Relation)
    _check(table["certainty"], ApiCertainty)
    for platform in table["platforms"]:
        _check(platform, Platform)
    own = {"settings": settings, "otherwise": otherwise, "platforms": tuple(table["platforms"])}
    return Counterpart(**{**table, **own})


def _check(value: str, words: Any) -> None:
    if value not in get_args(words):
        raise ValueError(f"{value!r} is none of {get_args(words)}")


# What operators of both frameworks do with parameters: `mappings/operators.toml`, whose head explains the keys.

FILE: Final = "operators.toml"


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """What the operators of a group do; `places` are those of both factors and of what is added, of a product."""

    does: str
    names: tuple[str, ...]
    reason: str
    places: tuple[int, int, int] = (0, 1, 2)
    channels: bool = False
    transposed: bool = False


@cache
def operator_rules() -> Mapping[str, OperatorRule]:
    """The rule of each operator by its name; raises MappingRuleError for a malformed file.

    >>> operator_rules()["addmm"].places
    (1, 2, 0)
    """
    return read_rules(mappings_folder() / FILE, _by_name)


def _by_name(document: dict[str, Any]) -> dict[str, OperatorRule]:
    rules = [_rule(**one) for one in document["operators"]]
    found = {name: rule for rule in rules for name in rule.names}
    if len(found) < sum(len(rule.names) for rule in rules):
        raise ValueError("an operator is listed twice")
    return found


def _rule(does: str, names: list[str], reason: str, places: tuple[int, ...] = (0, 1, 2), **flags: bool) -> OperatorRule:
    left, right, added = places
    return OperatorRule(does, tuple(names), reason, (left, right, added), **flags)


# Which calls of a script set a training: `torch.optim.AdamW(..., lr=1e-4)`, `clip_grad_norm_(..., 1.0)`.
#
# `mappings/hyperparameters/calls/` lists them, a file for each library.

FOLDER: Final = ("hyperparameters", "calls")


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """Calls of one kind: what they end with, the setting that is called like them, and those that arguments give."""

    calls: tuple[str, ...]
    named: str = ""
    keywords: Mapping[str, str] = field(default_factory=dict)
    positions: Mapping[str, str] = field(default_factory=dict)


@cache
def script_calls() -> tuple[ScriptCall, ...]:
    """All calls of the tables; raises MappingRuleError for a malformed file.

    >>> any("optim.[A-Z]*" in one.calls for one in script_calls())
    True
    """
    files = sorted(mappings_folder().joinpath(*FOLDER).glob("*.toml"))
    return tuple(one for path in files for one in read_rules(path, _calls))


def _calls(document: dict[str, Any]) -> list[ScriptCall]:
    return [ScriptCall(**{**one, "calls": tuple(one["calls"])}) for one in document["call"]]
