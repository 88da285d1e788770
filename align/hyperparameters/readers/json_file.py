"""JSON: config.json of Hugging Face, DeepSpeed's configuration, trainer_state.json, arguments that a script kept."""

from __future__ import annotations

import ast
import json
import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from align.errors import UnreadableSettingsError
from align.hyperparameters.reader_parts.nested_settings import Leaf, Tree, flat_settings
from align.hyperparameters.thresholds import DEEPEST_SETTINGS
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.hyperparameters.settings_format import Setting
    from align.hyperparameters.settings_source import SettingsSource

WORDS = {"true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf")}
HISTORY = ("log_history", "history")  # what a training measured
MEASURED = (
    "best_metric",
    "best_global_step",
    "epoch",
    "global_step",
    "total_flos",
    "is_*",
    "trial_*",
    "stateful_callbacks",
)


class JsonSettings:
    """JSON files."""

    name = "json"
    summary = "JSON: config.json, DeepSpeed configurations, trainer_state.json"
    requires: tuple[str, ...] = ()
    certain = True

    def recognizes(self, source: SettingsSource) -> bool:
        """By its name."""
        return source.suffix == ".json"

    def read(self, source: SettingsSource) -> list[Setting]:
        """Read all settings; what a training measured is none."""
        text = source.whole_text()
        try:
            json.loads(text)
            tree = _tree(_expression(text), source)
        except RecursionError as error:
            raise UnreadableSettingsError(
                source.shown, say("settings_fault.too_deep", most=DEEPEST_SETTINGS)
            ) from error
        except (ValueError, MemoryError) as error:
            raise UnreadableSettingsError(source.shown, say("settings_fault.no_json", error=error)) from error
        if not isinstance(tree, dict):
            raise UnreadableSettingsError(source.shown, say("settings_fault.no_names"))
        if any(name in tree for name in HISTORY):
            tree = {name: value for name, value in tree.items() if not _is_measured(name)}
        return flat_settings(tree, source.shown)


def _is_measured(name: str) -> bool:
    return name in HISTORY or any(fnmatchcase(name, one) for one in MEASURED)


def _expression(text: str) -> ast.expr:
    """JSON as Python's own parser sees it, which knows the lines; `json` has made sure that it is JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of \\/ in a text
        try:
            return ast.parse(text.strip(), mode="eval").body
        except SyntaxError as error:  # nested too deep for it
            raise RecursionError(str(error)) from error


def _tree(node: ast.expr, source: SettingsSource) -> Tree:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(getattr(key, "value", "")): _tree(value, source) for key, value in pairs}
    if isinstance(node, ast.List):
        return [_tree(one, source) for one in node.elts]
    return Leaf(_scalar(node), source.place(node.lineno))


def _scalar(node: ast.expr) -> str | int | float | bool | None:
    if isinstance(node, ast.Name):
        return WORDS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Name):
        return -float(WORDS[node.operand.id] or 0)  # -Infinity
    found = ast.literal_eval(node)
    return found if isinstance(found, (str, int, float)) else str(found)


PLUGIN = JsonSettings()
