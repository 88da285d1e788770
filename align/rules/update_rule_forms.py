"""What each optimizer computes, as fields of a rule: `mappings/update_rules.toml`."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from align.errors import MappingRuleError
from align.rules.layer_rules import mappings_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.layer_settings import Setting

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
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["optimizer"]
        return tuple(_form(table) for table in tables)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise MappingRuleError(path, f"malformed: {error!r}") from error


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
