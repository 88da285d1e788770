"""Known differences of settings: the rules under `mappings/pitfalls/`.

A rule says, for each layer class that has the setting, where a live layer keeps it and what brings it to one common
form; two layers are compared if the rule knows both classes, whatever their frameworks. The files hold no code: how
values are changed is one word of a small vocabulary (align.rules.setting_forms).
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from align.core.verdicts import Severity
from align.errors import PitfallFileError
from align.rules.layer_rules import mappings_folder
from align.rules.setting_forms import FORMS, Form
from align.words.catalogue import say

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from align.core.layer_settings import Setting

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
    for path in sorted((mappings_folder() / "pitfalls").glob("*.toml")):
        read, wrong = read_pitfalls(path)
        rules += read
        faults += [f"{path.name}: {fault}" for fault in wrong]
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
        return [], [f"not TOML: {error}"]
    tables = document.pop("pitfall", None)
    if document or not isinstance(tables, list) or not tables or not all(isinstance(one, dict) for one in tables):
        return [], [say("rule_file.no_pitfalls")]
    faults = [f"rule {table.get('id', '?')!r}: {fault}" for table in tables for fault in _faults(table)]
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
    yield from (f"unknown key {key!r}" for key in sorted(table.keys() - {*texts, *OTHER_KEYS}))
    if table.get("severity") not in get_args(Severity):
        yield say("pitfall_fault.severity", severity=table.get("severity"), known=get_args(Severity))
    forms = table.get("forms")
    if not isinstance(forms, list) or not forms or not all(isinstance(form, dict) for form in forms):
        yield say("pitfall_fault.forms")
    else:
        yield from (f"form {number}: {fault}" for number, form in enumerate(forms) for fault in _form_faults(form))
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
    yield from (f"unknown key {key!r}" for key in sorted(form.keys() - {one.name for one in fields(Form)}))
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
