"""How one class keeps a setting: what brings it to the form that all classes of a rule share, and back into code.

The vocabulary (`FORMS`): `plain` as it stands; `axes` one number for all axes alike, else one an axis; `axis` the
number of an axis, of which -1 and 1 may be the same, `first_axis` that of the first of several last ones; `one_minus`
1 - x; `not` the other truth value; `present` whether there is one at all; `lower` in small letters; `padding` what
stands before and behind each axis, from pad_mode, kernel, stride and dilation, `crop` the same of a transposed
convolution, less its output_padding; `reduction` from the two flags of MindSpore's losses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from align.rules.thresholds import FLOAT32_SETTING_TOLERANCE
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from align.core.layer_settings import Setting

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
        own = next(
            (entry[-1] if len(entry) > 2 else entry[0] for entry in self.values if _equal(entry[1], value)), value
        )
        if self.means in ("padding", "crop"):
            return _padding_arguments(own, "pad_mode" in self.writes)
        changed = _changed(self.writes_as or self.means, own, 0)
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


def _equal(one: Setting, other: Setting) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one == other or abs(one - other) <= FLOAT32_SETTING_TOLERANCE * max(abs(one), abs(other))
    return one == other


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
