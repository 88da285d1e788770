"""The value that a setting gives a parameter: in its common form, converted as its name says."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from align.errors import UnreadableSettingsError
from align.hyperparameters.settings_format import Setting, SettingsSource
from align.hyperparameters.thresholds import (
    DEEPEST_SETTINGS,
    ENDLESS_DIGITS,
    LARGEST_COLOUR,
    LEAST_DIGITS_ROUNDED,
    LONGEST_CHAIN_OF_REFERENCES,
    LONGEST_VALUE,
    MOST_BASES,
    MOST_SETTINGS,
    SAME_NUMBER,
)
from align.rules.hyperparameter_rules import plain_choice
from align.words.catalogue import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from align.hyperparameters.settings_format import Scalar, Value
    from align.rules.hyperparameter_rules import Parameter, ParameterKind, Policy, SpelledName, Trainer


Origin = Literal["given", "default", "derived"]
RATE, DEVICES = "learning_rate", "world_size"


@dataclass(frozen=True, slots=True)
class Held:
    """The value of a parameter in its common form, as it was given, and where; `how` says how it was computed.

    `share` is of what is given as one of the learning rate. `rivals` are settings of the same file that may mean the
    same parameter and have another value. `computed` is what only the program knows, and
    `unsure` a batch whose name does not say whether it is that of one device or of all, or devices that may share it.
    """

    value: Value
    text: str
    place: str
    origin: Origin = "given"
    how: str = ""
    share: float | None = None
    rivals: tuple[str, ...] = ()
    computed: bool = False
    unsure: bool = False


def held_value(setting: Setting, parameter: Parameter, spelled: SpelledName, trainer: Trainer | None) -> Held | None:
    """The value that a setting gives a parameter; None where it leaves it to the program."""
    value, how = setting.value, ""
    if not is_given(value) or (parameter.id == DEVICES and setting.option and same_value(value, 1)):
        return None  # one device as an option's default is what a program has before its launcher says more
    if spelled.gives:
        value = spelled.gives if spelled.only or as_switch(value) is not False else None
        how = f"{setting.name} = {shown_value(setting.value)}"
    elif spelled.means != "plain":
        value, how = _converted(value, spelled.means)
    if value is None:
        return None
    own = trainer.values.get(parameter.id, {}) if trainer else {}
    same = {**parameter.same, **{plain_choice(key): choice for key, choice in own.items()}}
    plain = in_one_form(value, parameter.kind, same)
    if parameter.policies:
        plain = plain_policy(str(plain), parameter.policies)
    off = (*parameter.off, *(trainer.off.get(parameter.id, ()) if trainer else ()))
    if any(same_value(plain, off_value) for off_value in off):  # type: ignore[arg-type]
        return None
    origin: Origin = "given" if not how else "derived"
    return Held(
        plain, shown_value(setting.value), setting.place, origin, how, computed=setting.computed, unsure=spelled.unsure
    )


def _converted(value: Value, means: str) -> tuple[Value, str]:
    """A value as the parameter's meaning, and how it was computed."""
    kind, _, argument = means.partition(" ")
    if kind == "element":
        listed = listed_values(value)
        return (listed[int(argument)], "") if len(listed) > int(argument) else (None, "")
    if kind == "devices":
        return _counted(value)
    if kind == "not":
        return not as_switch(value), f"not {shown_value(value)}"
    number = as_number(value)
    return (None, "") if number is None else _CONVERSIONS[kind](number, shown_value(value))


def _counted(value: Value) -> tuple[Value, str]:
    """How many devices a list of their numbers names; a single number is how many there are, and 0 says nothing."""
    listed = listed_values(value)
    if len(listed) > 1:
        return float(len(listed)), f"devices {shown_value(value)}"
    return as_number(listed[0]) or None if listed else None, ""


_CONVERSIONS: dict[str, Callable[[float, str], tuple[Value, str]]] = {
    "one_minus": lambda number, text: (1.0 - number, f"1 - {text}"),
    "minus_one": lambda number, text: (number - 1, f"{text} - 1"),
    "percent": lambda number, text: (number / 100, f"{text} / 100"),
    "power_of_two": lambda number, text: (2.0 ** min(number, 127.0), f"2^{text}"),
    "times_rate": lambda number, text: (number, f"{text} × {RATE}"),
}


# Values in one form: 1e-4 and 0.0001, True and on, 10 % and 0.1, adamw_torch and AdamW are each one value.

TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
NOTHING = ("", "none", "null", "auto", "~")
PERCENT = "%"


def is_given(value: Value) -> bool:
    """Tell whether a value says anything: None, an empty text and DeepSpeed's "auto" leave it to the program."""
    return value is not None and not (isinstance(value, str) and value.strip().lower() in NOTHING)


def in_one_form(value: Value, kind: ParameterKind, same: Mapping[str, str]) -> Value:
    """A value as its kind has it; what is none of that kind stays a text.

    >>> in_one_form("1e-4", "number", {}), in_one_form("on", "switch", {}), in_one_form("10%", "number", {})
    (0.0001, True, 0.1)
    """
    if kind == "number":
        return _as_number(value)
    if kind == "switch":
        found = as_switch(value)
        return str(value) if found is None else found
    if kind in ("choice", "own name"):
        return _choice(str(value), same)
    if kind == "pixels":
        return _pixels(value)
    if kind in ("numbers", "shares"):
        return _numbers(value) if kind == "numbers" else _shares(value)
    return shown_value(value).strip()


def _pixels(value: Value) -> Value:
    """Numbers of colours as shares of 1, rounded as far as those that are written with three digits go."""
    numbers = [as_number(entry) for entry in listed_values(value)]
    known = [number for number in numbers if number is not None]
    if not known or len(known) < len(numbers):
        return shown_value(value)
    whole = LARGEST_COLOUR if max(map(abs, known)) > 1 else 1.0
    shares = [round(number / whole, 3) for number in known]
    return tuple(shares[:1] if len({*shares}) == 1 else shares)  # one number stands for all channels


def _numbers(value: Value) -> Value:
    listed = listed_values(value)
    numbers = [as_number(one) for one in listed]
    return tuple(one if one is not None else str(given) for one, given in zip(numbers, listed, strict=True))


def _shares(value: Value) -> Value:
    """Numbers as parts of their sum: 100,0,0 is 1, 0, 0."""
    numbers = [as_number(entry) for entry in listed_values(value)]
    known = [number for number in numbers if number is not None and isfinite(number)]
    whole = sum(known)
    if len(known) < 2 or len(known) < len(numbers) or whole <= 0:
        return shown_value(value).strip()
    return tuple(round(number / whole, 6) for number in known)


def _choice(value: str, same: Mapping[str, str]) -> str:
    """The common name of a choice; of a class with its module, `a.optim.AdamW`, the class says it."""
    name, last = plain_choice(value), plain_choice(value.rpartition(".")[2])
    return same.get(name) or same.get(last) or name


def as_number(value: Value) -> float | None:
    """The number that a value is, also in a text and as a share in percent; None for what is none."""
    if isinstance(value, bool) or value is None or isinstance(value, tuple):
        return None
    if isinstance(value, (int, float)):
        return float(value) if abs(value) < 1e308 else None
    text = value.strip().rstrip(",").replace("_", "")
    share = text.endswith(PERCENT)
    try:
        number = float(text.removesuffix(PERCENT))
    except ValueError:
        return None
    return number / 100 if share else number


def as_switch(value: Value) -> bool | None:
    """True or False for the words of a switch, None for others."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return True if word in TRUE else False if word in FALSE else None


def listed_values(value: Value) -> tuple[Scalar, ...]:
    """The values of a list, also of one in a text: `0.9,0.95`, `[0.9, 0.95]`, `0.9 0.95`."""
    if isinstance(value, tuple):
        return tuple(one.rstrip(",") if isinstance(one, str) else one for one in value)
    found = printed_value(value) if isinstance(value, str) else value
    if isinstance(found, tuple):
        return found
    return tuple(str(value).replace(",", " ").split()) if isinstance(value, str) else (value,)


def same_value(first: Value, second: Value) -> bool:
    """Tell whether two values are the same, numbers up to their last bits, whatever they are spelled like."""
    if isinstance(first, tuple) or isinstance(second, tuple):
        both = listed_values(first), listed_values(second)
        return len(both[0]) == len(both[1]) and all(map(same_value, *both))
    if isinstance(first, bool) or isinstance(second, bool):
        return as_switch(first) == as_switch(second) is not None
    numbers = as_number(first), as_number(second)
    if numbers[0] is not None and numbers[1] is not None:
        return _same_number(*numbers)  # type: ignore[arg-type]
    return str(first).strip().casefold() == str(second).strip().casefold()


def _same_number(first: float, second: float) -> bool:
    """Tell equal numbers, also 4/3 and 1.333: a fraction without end, and the same one written in some digits."""
    if (
        first == second
        or (isnan(first) and isnan(second))
        or abs(first - second) <= SAME_NUMBER * max(abs(first), abs(second))
    ):
        return True
    if not (isfinite(first) and isfinite(second)):
        return False
    short, long = sorted((first, second), key=lambda number: len(repr(number)))
    if "e" in repr(short) + repr(long) or len(repr(long)) < ENDLESS_DIGITS:
        return False
    digits, decimals = repr(short).replace(".", "").lstrip("-0"), len(repr(short).partition(".")[2])
    return len(digits) >= LEAST_DIGITS_ROUNDED and round(long, decimals) == short


def shown_value(value: Value) -> str:
    """A value as a table shows it.

    >>> shown_value(0.0001), shown_value(512.0), shown_value((0.9, 0.95))
    ('0.0001', '512', '0.9, 0.95')
    """
    if isinstance(value, tuple):
        return ", ".join(map(shown_value, value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _as_number(value: Value) -> Value:
    """A number, 0 for False; of a list of equal ones, such as both sides of an image, the one; else the text."""
    if value is False or (isinstance(value, str) and value.strip().lower() == "false"):
        return 0.0
    if isinstance(value, tuple) and len({*value}) == 1:
        value = value[0]
    number = as_number(value)
    return shown_value(value) if number is None else number


# Policies of augmentation written as texts: `rand-m9-mstd0.5-inc1` of timm is `randaug-inc1-m9` of MindCV.

_PART = re.compile(r"([A-Za-z]+)(\d.*)?$")


def plain_policy(text: str, policies: Iterable[Policy]) -> str:
    """A policy in one form: its common name, then its parts in order, those too that its program fills in.

    A text of no known policy, or with a part that is not understood, stays as it is.

    >>> from align.rules.hyperparameter_rules import hyperparameter_rules
    >>> plain_policy("randaug-m7", hyperparameter_rules().parameter("auto_augment").policies)
    'rand-m7-mmax10-mstd0.5-n2-p0.5'
    """
    name, *parts = text.strip().lower().split("-")
    policy = next((one for one in policies if one.name == name), None)
    given = [_PART.match(part) for part in parts]
    if policy is None or not all(given):
        return text
    held: dict[str, str] = {key: _number(str(value)) for key, value in policy.parts.items()}
    held |= {found[1]: "" if found[1] in policy.flags else _number(found[2] or "") for found in given if found}
    return "-".join([policy.same, *(key + value for key, value in sorted(held.items()))])


def _number(text: str) -> str:
    """A number in its shortest form: 0.50 is 0.5, 9.0 is 9."""
    try:
        return f"{float(text):g}"
    except ValueError:
        return text


# Nested values with the place of each, and the flat settings that they make.


DELETE = "_delete_"
Tree = Any


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value and its place; `option`, `computed` and `also` as of a Setting."""

    value: Scalar
    place: str
    option: bool = False
    computed: bool = False
    also: tuple[str, ...] = ()


def flat_settings(tree: Tree, shown: str) -> list[Setting]:
    """All settings of a tree; raises UnreadableSettingsError if it is deeper or larger than any configuration."""
    settings: list[Setting] = []
    for setting in _walk(tree, (), shown):
        settings.append(setting)
        if len(settings) > MOST_SETTINGS:
            raise UnreadableSettingsError(shown, say("settings_fault.too_many", most=MOST_SETTINGS))
    return settings


def merged(base: Tree, over: Tree) -> Tree:
    """A configuration over another one: dicts are merged key by key, all else replaces; inputs are not changed."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    if isinstance(flag := over.get(DELETE), Leaf) and flag.value:
        return {name: value for name, value in over.items() if name != DELETE}
    return base | {name: merged(base[name], value) if name in base else value for name, value in over.items()}


def placed(tree: Tree, path: Sequence[str], value: Tree) -> Tree:
    """A tree with a value at a path, in place of what stood there; the input is not changed."""
    if not path:
        return value
    inside = tree.get(path[0], {}) if isinstance(tree, dict) else {}
    return {**(tree if isinstance(tree, dict) else {}), path[0]: placed(inside, path[1:], value)}


def short(value: Scalar) -> Scalar:
    """A value as it is kept: of a long text the beginning."""
    return value[:LONGEST_VALUE] if isinstance(value, str) else value


def _walk(tree: Tree, path: tuple[str, ...], shown: str) -> Iterator[Setting]:
    if len(path) > DEEPEST_SETTINGS:
        raise UnreadableSettingsError(shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS))
    if isinstance(tree, Leaf):
        yield Setting(".".join(path), short(tree.value), tree.place, tree.option, tree.computed, tree.also)
    elif isinstance(tree, dict):
        for name, value in tree.items():
            yield from _walk(value, (*path, str(name)), shown)
    elif all(isinstance(one, Leaf) for one in tree):
        yield from _single_values(tree, path)
    else:
        for index, value in enumerate(tree):
            yield from _walk(value, (*path, str(index)), shown)


def _single_values(leaves: list[Leaf], path: tuple[str, ...]) -> Iterator[Setting]:
    if leaves:
        yield Setting(".".join(path), tuple(short(one.value) for one in leaves), leaves[0].place)


# The files that a configuration is made from: each read once a way, and never in a circle.
#
# They are named relative to it, or stand in an installed package, which is found and not imported.

IN_PACKAGE = "::"
CONFIGS_OF_PACKAGE = (".mim", "configs")  # where mmengine's packages keep them
BASES = ("_base_", "__BASE__", "_BASE_")


class BaseFiles:
    """The files that are being read, outermost first, and how many were read in all."""

    def __init__(self, source: SettingsSource) -> None:
        self._open: list[Path] = [source.path.resolve()]
        self._read = 0

    def within(self, name: str, named_by: SettingsSource, read: Callable[[SettingsSource], Tree]) -> Tree:
        """Read a base that a file names; raises UnreadableSettingsError for one that is missing, or is being read."""
        path = _package_file(name, named_by) if IN_PACKAGE in name else named_by.path.parent / name
        self._read += 1
        if path.resolve() in self._open or self._read > MOST_BASES:
            raise UnreadableSettingsError(named_by.shown, say("settings_fault.circle", base=name))
        if not path.is_file():
            raise UnreadableSettingsError(
                named_by.shown, say("settings_fault.no_base", base=name), say("settings_fault.base_hint")
            )
        self._open.append(path.resolve())
        try:
            return read(SettingsSource(path))
        finally:
            self._open.pop()


def package_folder(package: str, base: str, named_by: SettingsSource) -> Path:
    """Where a package is installed; raises UnreadableSettingsError where it is not, `base` being what is looked for."""
    spec = find_spec(package) if package.isidentifier() and package != "__main__" else None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        fault = say("settings_fault.no_package", base=base, package=package)
        raise UnreadableSettingsError(named_by.shown, fault, say("settings_fault.package_hint", package=package))
    return Path(places[0])


def _package_file(name: str, named_by: SettingsSource) -> Path:
    """The file that `package::folder/config.py` stands for, with mmengine's rule; the ending may be left out."""
    package, _, inside = name.partition(IN_PACKAGE)
    path = package_folder(package, name, named_by).joinpath(*CONFIGS_OF_PACKAGE, inside)
    return path if path.suffix else path.with_suffix(".py")


# References in a configuration: `${optimizer.lr}` of OmegaConf stands for another value of the same tree.
#
# `???` says that a value is to be given later. What is computed, and what stands for a whole part, gives no value.

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
MISSING = "???"


def with_references(tree: Tree) -> Tree:
    """A tree in which references to single values are filled in; the input is not changed."""
    return _filled(tree, tree)


def _filled(tree: Tree, whole: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: _filled(one, whole) for name, one in tree.items()}
    if isinstance(tree, list):
        return [_filled(one, whole) for one in tree]
    if isinstance(tree, Leaf) and isinstance(tree.value, str) and ("${" in tree.value or tree.value == MISSING):
        return _leaf(tree, whole)
    return tree


def _leaf(leaf: Leaf, whole: Tree) -> Tree:
    value: Scalar = None if leaf.value == MISSING else leaf.value
    for _ in range(LONGEST_CHAIN_OF_REFERENCES):
        if not isinstance(value, str) or "${" not in value:
            break
        alone = _REFERENCE.fullmatch(value.strip())
        target = _at(whole, alone[1]) if alone else None
        if isinstance(target, list) and all(isinstance(one, Leaf) for one in target):
            return [replace(one, place=leaf.place) for one in target]
        value = _value(target) if alone else _REFERENCE.sub(lambda one: str(_text(whole, one)), value)
    return replace(leaf, value=None if isinstance(value, str) and "${" in value else value)


def _text(whole: Tree, reference: re.Match[str]) -> str:
    found = _at(whole, reference[1])
    return str(found.value) if isinstance(found, Leaf) else reference[0]


def _value(tree: Tree | None) -> Scalar:
    return tree.value if isinstance(tree, Leaf) else None


def _at(tree: Tree, path: str) -> Tree | None:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


# Values as programs print them, and the parts of a printed call such as `Namespace(lr=0.1, betas=(0.9, 0.999))`.

OPENING, CLOSING, QUOTES = "([{<", ")]}>", "'\""


def printed_value(text: str) -> Value:
    """What a text stands for: a number, a list, True, None, else the text without quotes.

    >>> printed_value("(0.9, 0.999)"), printed_value("cosine"), printed_value("1e-4")
    ((0.9, 0.999), 'cosine', 0.0001)
    """
    text = text.strip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in a text
            literal = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return short(_unwrapped(text))
    if isinstance(literal, (list, tuple)) and all(
        isinstance(one, (str, int, float, bool, type(None))) for one in literal
    ):
        return tuple(literal)
    return short(literal) if isinstance(literal, (str, int, float, bool, type(None))) else short(text)


def call_arguments(text: str, start: int) -> tuple[list[tuple[str, str, int]], int]:
    """The arguments `name=value` of a printed call, from behind its parenthesis: name, text and where each begins.

    Also where the call ends: behind its closing parenthesis, or at the end of a text that was cut off.
    """
    arguments, begin = [], start
    for place, mark in _top_level_marks(text, start):
        name, equals, value = text[begin:place].partition("=")
        if equals and name.strip().isidentifier():
            arguments.append((name.strip(), value.strip(), begin + len(name) - len(name.lstrip())))
        begin = place + 1
        if mark == ")":
            break
    return arguments, begin


def _top_level_marks(text: str, start: int) -> Iterator[tuple[int, str]]:
    """The commas between arguments and the parenthesis that ends them; what stands in quotes or brackets is passed."""
    depth, quote, place = 0, "", start
    while place < len(text):
        letter = text[place]
        if quote:
            place += letter == "\\"
            quote = "" if letter == quote else quote
        elif letter in QUOTES:
            quote = letter
        elif letter in OPENING:
            depth += 1
        elif depth and letter in CLOSING:
            depth -= 1
        elif letter == ")" or (letter == "," and not depth):
            yield place, letter
        place += 1


def _unwrapped(text: str) -> str:
    """What stands in `<SchedulerType.COSINE: 'cosine'>` and `PosixPath('x')`; other texts as they are."""
    if text.startswith("<") and text.endswith(">") and ": " in text:
        return text[1:-1].rpartition(": ")[2].strip(QUOTES)
    if text.endswith(")") and text.partition("(")[0].isidentifier():
        inside = text.partition("(")[2][:-1].strip()
        return inside.strip(QUOTES) if inside[:1] in tuple(QUOTES) else text
    return text
