"""YAML: MindFormers, PaddleClas, LLaMA-Factory, MindCV and the like, read as nodes and never built into objects.

Nodes have lines, a tag of Python stays a tag, and aliases cost what they stand for only as far as the limit of
settings goes. `__BASE__`, `_base_` and Hydra's `defaults` name files that come before. Tags of HyperPyYAML say what an
object is made of, and none is made.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from align.core.documents import DocumentFault, parse_toml
from align.errors import UnreadableSettingsError
from align.hyperparameters.setting_values import (
    BASES,
    BaseFiles,
    Leaf,
    Tree,
    flat_settings,
    merged,
    printed_value,
    with_references,
)
from align.hyperparameters.settings_format import SettingsPlugin
from align.hyperparameters.thresholds import DEEPEST_SETTINGS, LONGEST_YAML_BYTES, MOST_SETTINGS
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.hyperparameters.settings_format import Scalar, Setting, SettingsSource


MERGE = "tag:yaml.org,2002:merge"
NULL, BOOL = "tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"
WHOLE, FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
STANDARD = "tag:yaml.org,2002:"
PYTHON = "tag:yaml.org,2002:python/"
TRUE = ("true", "yes", "on")
TUPLE = "tag:yaml.org,2002:python/tuple"
# HyperPyYAML: what makes an object of a mapping, what stands for another value, and what gives none that can be read.
MAKING, STANDING, OPAQUE = ("!new:", "!name:"), ("!ref", "!copy"), ("!apply:", "!applyref:", "!PLACEHOLDER", "!module:")
LOCAL = "!"  # how tags begin that a program has for its own
DEFAULTS = "defaults"  # Hydra's list of files


class YamlSettings(SettingsPlugin):
    """YAML files."""

    name = "yaml"
    summary = "YAML configurations: MindFormers, PaddleClas, LLaMA-Factory, MindCV, GPT-NeoX"
    requires: tuple[str, ...] = ("yaml",)
    suffixes = (".yaml", ".yml")

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read all settings, those of its bases first."""
        files = BaseFiles(source)
        return flat_settings(with_references(_with_bases(source, files)), source.shown)


def _with_bases(source: SettingsSource, files: BaseFiles) -> Tree:
    tree = _yaml_tree(source)
    named: Tree = next((tree.pop(name) for name in BASES if isinstance(tree, dict) and name in tree), [])
    result: Tree = {}
    for one in named if isinstance(named, list) else [named]:
        if isinstance(one, Leaf):
            result = merged(result, files.within(str(one.value), source, lambda base: _with_bases(base, files)))
    return merged(merged(result, _with_groups(tree, source, files)), tree)


def _with_groups(tree: Tree, source: SettingsSource, files: BaseFiles) -> Tree:
    """What the files of Hydra's list say that stand beside this one; the list is taken out."""
    named = tree.get(DEFAULTS) if isinstance(tree, dict) else None
    if not isinstance(named, list) or not all(isinstance(entry, (dict, Leaf)) for entry in named):
        return {}
    del tree[DEFAULTS]
    result: Tree = {}
    for entry in named:
        group, leaf = next(iter(entry.items()), ("", None)) if isinstance(entry, dict) else ("", entry)
        group = group.rpartition(" ")[2].lstrip("/")  # `override /optimizer`
        name = f"{group}/{leaf.value}.yaml".lstrip("/") if isinstance(leaf, Leaf) else ""
        if name and (source.path.parent / name).is_file():
            inside = files.within(name, source, lambda base: _with_bases(base, files))
            result = merged(result, {group: inside} if group else inside)
    return result


def _yaml_tree(source: SettingsSource) -> Tree:
    import yaml

    text = source.whole_text(LONGEST_YAML_BYTES)
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        return _Nodes(source).mapping_of_all(nodes)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = getattr(error, "problem", None) or "unknown"
        raise UnreadableSettingsError(source.place(line), say("settings_fault.no_yaml", error=problem)) from error
    except RecursionError as error:
        raise UnreadableSettingsError(source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS)) from error


class _Nodes:
    """The values of nodes; each visit is counted, so that aliases of aliases end."""

    def __init__(self, source: SettingsSource) -> None:
        self._source, self._left = source, 2 * MOST_SETTINGS

    def mapping_of_all(self, nodes: list[Any]) -> Tree:
        """What all documents of a file hold together."""
        tree: Tree = {}
        for node in nodes:
            if node.tag == NULL:  # a document of nothing
                continue
            if type(node).__name__ != "MappingNode":
                raise UnreadableSettingsError(self._source.shown, say("settings_fault.no_names"))
            value = self._value(node, 0)
            tree = tree if _describes(value, tree) else merged(tree, value)
        return tree

    def _value(self, node: Any, depth: int) -> Tree:
        self._count(node, depth)
        kind = type(node).__name__
        if node.tag.startswith(OPAQUE):
            return Leaf(None, self._place(node))
        if node.tag.startswith(LOCAL) and kind != "MappingNode" and not node.tag.startswith((*MAKING, *STANDING)):
            return Leaf(node.tag, self._place(node), computed=True)
        if kind == "MappingNode":
            mapping = self._mapping(node, depth)
            if not node.tag.startswith(LOCAL):
                return mapping
            # PaddleDetection and HyperPyYAML name what a mapping is for by its tag, as others do by `type`.
            return {"type": Leaf(node.tag.partition(":")[2] or node.tag[1:], self._place(node)), **mapping}
        if kind == "SequenceNode":
            return [self._value(one, depth + 1) for one in node.value]
        return self._leaf(node)

    def _place(self, node: Any) -> str:
        return self._source.place(node.start_mark.line + 1)

    def _leaf(self, node: Any) -> Tree:
        """A single value; a text that is a tuple of Python is a list, and `!new:a.B` without settings is its name."""
        place, text = self._place(node), str(node.value)
        if node.tag.startswith(MAKING):
            return {"type": Leaf(node.tag.partition(":")[2], place)}
        if node.tag.startswith(STANDING):
            return Leaf(re.sub(r"<([\w.]+)>", r"${\1}", text), place)
        found = printed_value(text) if text.startswith("(") and text.endswith(")") else None
        return [Leaf(one, place) for one in found] if isinstance(found, tuple) else Leaf(_yaml_scalar(node), place)

    def _mapping(self, node: Any, depth: int) -> dict[str, Tree]:
        mapping: dict[str, Tree] = {}
        for key, value in node.value:
            if key.tag == MERGE:
                given = value.value if type(value).__name__ == "SequenceNode" else [value]
                for one in given:
                    inside = self._value(one, depth + 1)
                    mapping = {**inside, **mapping} if isinstance(inside, dict) else mapping
            elif type(key).__name__ == "ScalarNode":
                mapping[str(key.value)] = self._value(value, depth + 1)
        return mapping

    def _count(self, node: Any, depth: int) -> None:
        self._left -= 1
        known = node.tag.startswith(LOCAL) or node.tag == TUPLE
        if not known and (node.tag.startswith(PYTHON) or not node.tag.startswith(STANDARD)):
            place = self._place(node)
            raise UnreadableSettingsError(place, say("settings_fault.tag", tag=node.tag))
        if depth > DEEPEST_SETTINGS:
            raise UnreadableSettingsError(self._source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS))
        if self._left < 0:
            raise UnreadableSettingsError(self._source.shown, say("settings_fault.too_many", most=MOST_SETTINGS))


def _describes(document: Tree, settings: Tree) -> bool:
    """Tell a document that explains the settings before it: texts and lists of choices under their names.

    MindSpore's model zoo keeps these behind the settings in one file.
    """

    def is_text_or_list(value: Tree) -> bool:
        return isinstance(value, list) or (isinstance(value, Leaf) and isinstance(value.value, (str, type(None))))

    values = document.values() if isinstance(document, dict) else ()
    return bool(values) and not settings.keys().isdisjoint(document) and all(map(is_text_or_list, values))


def _yaml_scalar(node: Any) -> Scalar:
    """YAML 1.1 takes 1e-4 for a text, since it lacks a point; the comparison takes it for the number that is meant."""
    text = str(node.value)
    if node.tag == NULL:
        return None
    if node.tag == BOOL:
        return text.lower() in TRUE
    try:
        if node.tag == WHOLE:
            return int(text.replace("_", ""), 0) if not text.lstrip("+-").startswith("0") or "x" in text else int(text)
        return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan")) if node.tag == FLOAT else text
    except ValueError:  # such as 1:30, a number to the base 60
        return text


# JSON: config.json of Hugging Face, DeepSpeed's configuration, trainer_state.json, arguments that a script kept.

WORDS = {"true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf")}
HISTORY = ("log_history", "history")  # what a training measured
MEASURED = (
    *HISTORY, "best_metric", "best_global_step", "epoch", "global_step", "total_flos", "is_*", "trial_*",
    "stateful_callbacks",
)  # fmt: skip


class JsonSettings(SettingsPlugin):
    """JSON files."""

    name = "json"
    summary = "JSON: config.json, DeepSpeed configurations, trainer_state.json"
    suffixes = (".json",)

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read all settings; what a training measured is none."""
        text = source.whole_text()
        try:
            json.loads(text)
            tree = _json_tree(_expression(text), source)
        except (ValueError, MemoryError) as error:
            raise UnreadableSettingsError(source.shown, say("settings_fault.no_json", error=error)) from error
        if not isinstance(tree, dict):
            raise UnreadableSettingsError(source.shown, say("settings_fault.no_names"))
        if any(name in tree for name in HISTORY):
            tree = {name: value for name, value in tree.items() if not any(fnmatchcase(name, one) for one in MEASURED)}
        return flat_settings(tree, source.shown)


def _expression(text: str) -> ast.expr:
    """JSON as Python's own parser sees it, which knows the lines; `json` has made sure that it is JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of \\/ in a text
        try:
            return ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:  # nested too deep for it
            raise RecursionError(str(error)) from error


def _json_tree(node: ast.expr, source: SettingsSource) -> Tree:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(getattr(key, "value", "")): _json_tree(value, source) for key, value in pairs}
    if isinstance(node, ast.List):
        return [_json_tree(one, source) for one in node.elts]
    return Leaf(_json_scalar(node), source.place(node.lineno))


def _json_scalar(node: ast.expr) -> str | int | float | bool | None:
    if isinstance(node, ast.Name):
        return WORDS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Name):
        return -float(WORDS[node.operand.id] or 0)  # -Infinity
    found = ast.literal_eval(node)
    return found if isinstance(found, (str, int, float)) else str(found)


# TOML: values as Python's own reader gives them; the line of a key is looked for under its table.

_TABLE = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"\s*([\w.\"'-]+)\s*=")


class TomlSettings(SettingsPlugin):
    """TOML files."""

    name = "toml"
    summary = "TOML configurations"
    suffixes = (".toml",)

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read all settings."""
        text = source.whole_text()
        try:
            return flat_settings(_toml_tree(parse_toml(text), (), _lines(text), source), source.shown)
        except DocumentFault as fault:
            raise UnreadableSettingsError(source.shown, str(fault)) from fault


def _lines(text: str) -> dict[str, int]:
    """The line of each key that stands at the beginning of one, by its full name."""
    line_of_key: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            table = header[1].replace('"', "") + "."
        elif key := _KEY.match(line):
            line_of_key.setdefault(table + key[1].replace('"', ""), number)
    return line_of_key


def _toml_tree(value: object, path: tuple[str, ...], lines: dict[str, int], source: SettingsSource) -> Tree:
    if isinstance(value, dict):
        return {name: _toml_tree(one, (*path, name), lines, source) for name, one in value.items()}
    if isinstance(value, list):
        return [_toml_tree(one, path, lines, source) for one in value]
    known = value if isinstance(value, (str, int, float, bool)) else str(value)
    return Leaf(known, source.place(lines.get(".".join(path), 1)))


PLUGINS = (YamlSettings(), JsonSettings(), TomlSettings())
