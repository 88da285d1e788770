"""Known differences of settings: the rules under `mappings/pitfalls/`.

A rule says, for each layer class that has the setting, where a live layer keeps it and what brings it to one common
form; two layers are compared if the rule knows both classes, whatever their frameworks. The files hold no code: how
values are changed is one word of a small vocabulary (align.rules.setting_forms).
"""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from align.core.verdicts import Severity
from align.errors import PitfallFileError
from align.rules.layer_rules import mappings_folder, rule_files
from align.words.catalogue import say, sentence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from align.core.protocols import Setting

FLOAT32_SETTING_TOLERANCE: Final = 1e-6
"""How far two settings differ, relative to each other, that are one: some went through float32 and back.
Choice: float32 keeps 6e-8; a smaller number would part 1e-5 from its float32 form,
a larger one would hide a changed setting."""

JUDGES = ("output", "in training", "after training", "zeros", "fresh", "spread", "steps")
OTHER_KEYS = ("forms", "examples", "idle", "training_only", "absent")


@dataclass(frozen=True, slots=True)
class Examples:
    """Pairs of real layers (or optimizers) that must `differ` and pairs that must `agree`, in what `judge` looks at.

    `output` is that of the layers in evaluation mode on `inputs`, `in training` that in training mode, `after training`
    that in evaluation mode after one call in training mode, `zeros` the share of zeros in training mode, `fresh` that
    with the weights that a layer starts with, `spread` the standard deviation of those, `steps` a parameter after some
    steps of an optimizer. `unrun` lists classes without a kernel on the CPU.
    """

    differ: tuple[tuple[str, str], ...]
    agree: tuple[tuple[str, str], ...]
    inputs: tuple[str, ...] = ()
    judge: str = "output"
    unrun: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pitfall:
    """One setting that layers of several classes have: `effect` says what comes of unlike ones.

    `idle` names the common value with which another setting of the layer, by attribute, leaves this one without any
    effect; it counts if it holds on both sides. A `training_only` one shows in no run in evaluation mode. `absent` is
    the common value with which a layer does what no layer does, None where a layer always does something.
    """

    id: str
    topic: str
    setting: str
    severity: Severity
    effect: str
    forms: tuple[Form, ...]
    examples: Examples
    idle: dict[str, Setting]
    training_only: bool = False
    absent: float | None = None

    @property
    def unrun(self) -> bool:
        """True if no pair that differs, or none that agrees, could be run where the rule was tested."""
        return any(
            all(any(is_of(layer, self.examples.unrun) for layer in pair) for pair in pairs)
            for pairs in (self.examples.differ, self.examples.agree)
        )

    def form_of(self, classes: Sequence[str]) -> Form | None:
        """The form of the first of these classes, most derived first, that the rule knows."""
        found = ((form, name) for name in classes for form in self.forms if name in form.classes)
        return next((form for form, _ in found), None)


def is_of(expression: str, classes: Sequence[str]) -> bool:
    """Tell whether an expression such as `torch.nn.ReLU()` makes a layer of one of these classes."""
    return expression.partition("(")[0] in classes


@cache
def pitfalls() -> tuple[Pitfall, ...]:
    """All rules, sorted by topic and id; raises PitfallFileError naming every fault of every file."""
    rules: list[Pitfall] = []
    faults: list[str] = []
    for path in rule_files(mappings_folder() / "pitfalls"):
        read, wrong = read_pitfalls(path)
        rules += read
        faults += [say("fault_list.one", head=path.name, fault=fault) for fault in wrong]
    ids = [rule.id for rule in rules]
    faults += [say("rule_file.id_twice", name=name) for name in sorted({name for name in ids if ids.count(name) > 1})]
    if faults:
        raise PitfallFileError(mappings_folder() / "pitfalls", faults)
    return tuple(sorted(rules, key=lambda rule: (rule.topic, rule.id)))


def read_pitfalls(path: Path) -> tuple[list[Pitfall], list[str]]:
    """Read one file, whose name is the topic; returns its sound rules and all of its faults."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return [], [say("document_fault.no_toml", error=error)]
    tables = document.pop("pitfall", None)
    if document or not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        return [], [say("rule_file.no_pitfalls")]
    faults = [
        say("rule_error.of_pitfall", name=table.get("id", "?"), fault=fault)
        for table in tables
        for fault in _faults(table)
    ]
    return ([] if faults else [_pitfall(path.stem, table) for table in tables]), faults


def _pitfall(topic: str, table: dict[str, Any]) -> Pitfall:
    examples = {key: _frozen(value) for key, value in table["examples"].items()}
    return Pitfall(
        **{
            **{key: _frozen(value) for key, value in table.items()},
            "topic": topic,
            "forms": tuple(Form(**{key: _frozen(value) for key, value in form.items()}) for form in table["forms"]),
            "examples": Examples(**examples),
            "idle": table.get("idle", {}),
        }
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _faults(table: dict[str, Any]) -> Iterator[str]:
    texts = {name: table.get(name) for name in ("id", "setting", "severity", "effect")}
    yield from (
        say("pitfall_fault.no_text", name=name, value=value) for name, value in texts.items() if not _is_text(value)
    )
    yield from (say("rule_error.unknown_key", name=key) for key in sorted(table.keys() - {*texts, *OTHER_KEYS}))
    if table.get("severity") not in get_args(Severity):
        yield say("pitfall_fault.severity", severity=table.get("severity"), known=get_args(Severity))
    forms = table.get("forms")
    if not isinstance(forms, list) or not forms or not all(isinstance(form, dict) for form in forms):
        yield say("pitfall_fault.forms")
    else:
        for number, form in enumerate(forms):
            yield from (say("rule_error.of_form", number=number, fault=fault) for fault in _form_faults(form))
    if not isinstance(table.get("idle", {}), dict):
        yield say("pitfall_fault.idle")
    yield from _training_faults(table)
    yield from _example_faults(table.get("examples"))


def _training_faults(table: dict[str, Any]) -> Iterator[str]:
    if not isinstance(table.get("training_only", False), bool):
        yield say("pitfall_fault.training_only", value=table["training_only"])
    absent = table.get("absent", 0)
    if isinstance(absent, bool) or not isinstance(absent, (int, float)):
        yield say("pitfall_fault.absent", absent=absent)
    if "absent" in table and table.get("training_only") is not True:
        yield say("pitfall_fault.absent_alone")


def _form_faults(form: dict[str, Any]) -> Iterator[str]:
    yield from (
        say("rule_error.unknown_key", name=key) for key in sorted(form.keys() - {one.name for one in fields(Form)})
    )
    if not _is_list(form.get("classes")):
        yield say("pitfall_fault.classes")
    if ("reads" in form) == ("always" in form):
        yield say("pitfall_fault.reads_or_always")
    if not {"always", "takes"}.isdisjoint(form) and not _is_text(form.get("instead")):
        yield say("pitfall_fault.needs_instead")
    if not (_is_text(form.get("reads", "x")) or _is_list(form.get("reads"))):
        yield say("pitfall_fault.reads", reads=form["reads"])
    if not _is_pairs(form.get("values", []), 3):
        yield say("pitfall_fault.values")
    if not _is_pairs(form.get("beside", []), 2):
        yield say("pitfall_fault.beside")
    for key in ("means", "writes_as"):
        if key in form and form[key] not in FORMS:
            yield say("pitfall_fault.unknown_form", name=key, form=form[key], forms=FORMS)


def _example_faults(examples: Any) -> Iterator[str]:
    if not isinstance(examples, dict):
        yield say("pitfall_fault.no_examples")
        return
    known = {one.name: one for one in fields(Examples)}
    yield from (say("pitfall_fault.unknown_example_key", name=key) for key in sorted(examples.keys() - known.keys()))
    for key in [name for name, one in known.items() if one.default is MISSING]:
        pairs = examples.get(key)
        if not isinstance(pairs, list) or not pairs or not all(_is_list(pair) and len(pair) == 2 for pair in pairs):
            yield say("pitfall_fault.no_pairs", name=key)
    if examples.get("judge", "output") not in JUDGES:
        yield say("pitfall_fault.judge", judge=examples["judge"], judges=JUDGES)
    yield from (
        say("pitfall_fault.no_texts", name=key)
        for key in ("inputs", "unrun")
        if key in examples and not _is_list(examples[key])
    )


def _is_pairs(value: object, most: int) -> bool:
    return isinstance(value, list) and all(isinstance(pair, list) and 2 <= len(pair) <= most for pair in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_text, value))


# How one class keeps a setting: what brings it to the form that all classes of a rule share, and back into code.
#
# The vocabulary (`FORMS`): `plain` as it stands; `axes` one number for all axes alike, else one an axis; `axis` the
# number of an axis, of which -1 and 1 may be the same, `first_axis` that of the first of several last ones;
# `one_minus` 1 - x; `not` the other truth value; `present` whether there is one at all; `lower` in small letters;
# `padding` what stands before and behind each axis, from pad_mode, kernel, stride and dilation, `crop` the same of a
# transposed convolution, less its output_padding; `reduction` from the two flags of MindSpore's losses.

FormName = Literal[
    "plain", "axes", "axis", "first_axis", "one_minus", "not", "present", "lower", "padding", "crop", "reduction"
]
FORMS: tuple[FormName, ...] = get_args(FormName)
SAME = "same"  # padding that depends on the size of the input, the larger half behind


@dataclass(frozen=True, slots=True)
class Form:
    """How layers of these classes keep the setting, and how a user writes it.

    `reads` is an attribute, or several of which the first that is there and not None counts (`betas.0`: the first of
    several values); `lacking` is the value where none is. `always` is the value of a class that cannot be given
    another, `takes` are those of one that cannot be given others: `instead` says what to write in its place. `writes`
    is the argument if it is not called as the attribute, `writes_as` its form if that is not `means`; `beside` are
    arguments without which it has no effect. `values` pairs values of this class with the common ones, and where a
    user writes them in a third way, with that.
    """

    classes: tuple[str, ...]
    reads: str | tuple[str, ...] = ()
    means: FormName = "plain"
    values: tuple[tuple[Setting, ...], ...] = ()
    lacking: Setting = None
    always: Setting = None
    instead: str = ""
    writes: str = ""
    writes_as: FormName | None = None
    beside: tuple[tuple[str, Setting], ...] = ()
    takes: tuple[Setting, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that may hold the setting."""
        return (self.reads,) if isinstance(self.reads, str) else self.reads

    @property
    def argument(self) -> str:
        """The argument of the constructor."""
        return self.writes or _argument(self.attributes[0])

    def readable(self, settings: Mapping[str, Setting]) -> bool:
        """Tell whether a layer's settings hold this one, or lacking it tells it."""
        return not self.attributes or self.lacking is not None or self.is_held(settings)

    def is_held(self, settings: Mapping[str, Setting]) -> bool:
        """Tell whether a layer's settings hold this one."""
        derived = self.means in ("padding", "reduction")
        return derived or any(name in settings or _item(settings, name) is not None for name in self.attributes)

    def alternative(self, value: Setting) -> str:
        """Return what to write in place of a layer of these classes if it cannot be given the value, else ""."""
        return "" if any(_equal(value, one) for one in self.takes) else self.instead

    def read(self, settings: Mapping[str, Setting], classes: Sequence[str]) -> Setting:
        """Return the setting of a live layer in the common form."""
        if not self.attributes:
            return self.always
        found = (value for name in self.attributes if (value := _item(settings, name)) is not None)
        value = next(found, self.lacking)
        if self.means in ("padding", "crop"):
            less = settings.get("output_padding", 0) if self.means == "crop" else 0
            return _padding(value, settings, classes, less)
        if self.means == "reduction":
            return _reduction(settings) if value is None else value
        common = _changed(self.means, value, axes_of(classes))
        return next((to for own, to, *_ in self.values if _equal(own, common)), common)

    def given(self, settings: Mapping[str, Setting], classes: Sequence[str]) -> Setting:
        """Return the common value of what a live layer was given, before the sizes of its kernel came to it."""
        mode = settings.get("pad_mode")
        if self.means in ("padding", "crop") and isinstance(mode, str) and mode.lower() == SAME:
            return SAME
        return self.read(settings, classes)

    def show(self, settings: Mapping[str, Setting], classes: Sequence[str]) -> str:
        """Return the argument that a live layer was built with, or one that makes the same layer."""
        if self.means == "first_axis":
            return f"{self.attributes[0]}={_literal(settings.get(self.attributes[0]))}"
        return self.write(self.given(settings, classes))

    def write(self, value: Setting) -> str:
        """Return the argument that gives a layer of these classes the common value: `momentum=0.9`."""
        if not self.attributes:
            return f"always {_literal(value)}"
        arguments = self._written(value)
        if not arguments:
            same = 'padding="same" (with stride 1 only)'
            return same if value == SAME else sentence("lint_change.padding_layer", padding=str(value))
        return ", ".join(f"{name}={_literal(own)}" for name, own in arguments)

    def arguments(self, value: Setting) -> tuple[tuple[str, Setting], ...]:
        """Return the arguments of the constructor, and what is given to them, that `write` puts into words.

        Empty for a class that cannot be given the value.
        """
        return () if not self.attributes or self.alternative(value) else self._written(value)

    def _written(self, value: Setting) -> tuple[tuple[str, Setting], ...]:
        if self.lacking is not None and _equal(self.lacking, 0) and _equal(value, 0):  # a zero that stands for none
            return (*self.beside, (self.argument, None))
        native = next(
            (entry[-1] if len(entry) > 2 else entry[0] for entry in self.values if _equal(entry[1], value)), value
        )
        if self.means in ("padding", "crop"):
            return _padding_arguments(native, "pad_mode" in self.writes)
        changed = _changed(self.writes_as or self.means, native, 0)
        return (*self.beside, (self.argument, changed))


def with_padding(
    arguments: Mapping[str, Setting], form: Form, padding: Setting, settings: Mapping[str, Setting]
) -> dict[str, Setting]:
    """Arguments that ask for explicit padding, with how much, where the layer computed it itself.

    `form` is that of the padding of the layer's class, `padding` its common value, `settings` are the layer's.
    """
    mode, asked = arguments.get("pad_mode"), dict(form.arguments(padding))
    kept = mode is None or mode != asked.get("pad_mode") or mode == str(settings.get("pad_mode")).lower()
    return {**arguments} if kept else {**asked, **arguments}


def _item(settings: Mapping[str, Setting], name: str) -> Setting:
    head, _, number = name.rpartition(".")
    values = settings.get(head) if number.isdigit() else None
    return values[int(number)] if isinstance(values, tuple) else settings.get(name)


def _argument(attribute: str) -> str:
    head, _, last = attribute.rpartition(".")
    return f"{head}[{last}]" if last.isdigit() else last


def equal_settings(one: Setting, other: Setting) -> bool:
    """Tell whether two settings in the common form are equal, floats to the precision of float32."""
    return _equal(one, other)


def _equal(left: Setting, right: Setting) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(_equal(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left == right or abs(left - right) <= FLOAT32_SETTING_TOLERANCE * max(abs(left), abs(right))
    return left == right


def _changed(form: FormName, value: Setting, axes: int) -> Setting:
    if form in ("axes", "axis"):
        return _collapsed(value[-axes:] if axes and isinstance(value, tuple) else value)
    if form == "first_axis":
        return -len(value) if isinstance(value, tuple) else value
    if form == "one_minus" and isinstance(value, (int, float)):
        return round(1 - value, 9)
    if form == "not":
        return not value
    if form == "present":
        return value is not None and value is not False
    return value.lower() if form == "lower" and isinstance(value, str) else value


def _reduction(flags: Mapping[str, Setting]) -> Setting:
    if not flags.get("reduce"):
        return "none"
    return "mean" if flags.get("average") else "sum"


def _collapsed(value: Setting) -> Setting:
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


def axes_of(classes: Sequence[str]) -> int:
    """The number of axes that a class works on, by its name (`Conv2d`, `Conv1dTranspose`); 0 if the name has none."""
    names = (name.rpartition(".")[2] for name in classes)
    numbers = [found[1] for name in names if (found := re.search(r"([123])d", name))]
    return int(numbers[0]) if numbers else 0


def _padding(padding: Setting, settings: Mapping[str, Setting], classes: Sequence[str], less: Setting) -> Setting:
    """One number, or (before, behind) an axis; `same` where it depends on the size of the input."""
    axes = axes_of(classes)
    mode = padding if isinstance(padding, str) else settings.get("pad_mode")
    mode = mode.lower() if isinstance(mode, str) else "pad"
    pairs = _same_pairs(settings, axes, transposed=_is_transposed(classes)) if mode == SAME else [(0, 0)] * axes
    if mode == "pad":
        pairs = _given_pairs(_numbers(padding, axes), axes)
    if not pairs:
        return SAME
    pairs = [(before, behind - cut) for (before, behind), cut in zip(pairs, _numbers(less, axes), strict=True)]
    if all(before == behind for before, behind in pairs):
        return _collapsed(tuple(before for before, _ in pairs))
    return tuple(pairs)


def _is_transposed(classes: Sequence[str]) -> bool:
    return any(re.search(r"Conv[123]dTranspose|ConvTranspose[123]d", name) for name in classes)


def _same_pairs(settings: Mapping[str, Setting], axes: int, *, transposed: bool) -> list[tuple[int, int]]:
    """None at all where a stride makes them depend on the input.

    A transposed layer cuts what it reaches beyond the input's size times the stride, whatever that size.
    """
    names = ("kernel_size", "stride", "dilation")
    kernel, stride, dilation = (_numbers(settings.get(name, 1), axes)[-axes:] for name in names)
    reach = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    if transposed:
        cuts = [r + 1 - s for r, s in zip(reach, stride, strict=True)]
        return [] if min(cuts, default=0) < 0 else [(cut // 2, cut - cut // 2) for cut in cuts]
    if any(r and s != 1 for r, s in zip(reach, stride, strict=True)):
        return []
    return [(r // 2, r - r // 2) for r in reach]


def _given_pairs(numbers: Sequence[int], axes: int) -> list[tuple[int, int]]:
    """One number an axis, or two; axes that the layer adds inside stand in front."""
    if len(numbers) % 2 == 0 and len(numbers) >= 2 * axes:
        own = numbers[-2 * axes :]
        return list(zip(own[::2], own[1::2], strict=True))
    return [(each, each) for each in numbers[-axes:]]


def _numbers(value: Setting, axes: int) -> list[int]:
    given = value if isinstance(value, tuple) else (value,)
    listed = given * axes if len(given) == 1 else given
    return [each if isinstance(each, int) else 0 for each in listed]


def _padding_arguments(value: Setting, by_mode: bool) -> tuple[tuple[str, Setting], ...]:
    if not by_mode:
        uneven = isinstance(value, tuple) and any(isinstance(each, tuple) for each in value)
        return () if uneven or value == SAME else (("padding", value),)
    if value == SAME:
        return (("pad_mode", SAME),)
    if value == 0:
        return (("pad_mode", "valid"),)
    numbers = value if isinstance(value, tuple) else (value,)
    flat = tuple(n for each in numbers for n in (each if isinstance(each, tuple) else (each,) * min(len(numbers), 2)))
    return ("pad_mode", "pad"), ("padding", flat[0] if len(flat) == 1 else flat)


def _literal(value: Setting) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
