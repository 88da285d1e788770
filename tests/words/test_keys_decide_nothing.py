"""What is said decides nothing: code that looks at the key of a text changes a verdict when the text is renamed."""

from __future__ import annotations

import ast
from pathlib import Path

import align
from align.words.catalogue import catalogue

KEYS = {f"{section}.{name}" for section, texts in catalogue().items() for name in texts}
ROOT = Path(align.__path__[0])
SAID = {"note", "reason", "message"}  # fields that hold texts
# Still held against what is said, by file: each is to become data, and none is to come.
STILL_DECIDED = {
    "convert/plan_conversion.py": 1,
    "names/settle_by_trial.py": 5,  # what a trial does not see is kept in the note of a pair
    "report/page_html.py": 3,
    "training/faults/step_updates.py": 1,
}


def is_key(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.partition("#")[0] in KEYS


def names_of_keys(tree: ast.Module) -> set[str]:
    """The names of a module that stand for keys, one or several."""
    found = set()
    for node in tree.body:
        values = [one for one in ast.walk(node) if is_key(one)] if isinstance(node, (ast.Assign, ast.AnnAssign)) else []
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if values:
            found |= {one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name)}
    return found


def decisions(source: str) -> list[str]:
    """The comparisons with a key, with the key of a text, or with what a field says."""
    tree = ast.parse(source)
    named = names_of_keys(tree)

    def is_decided(compared: list[ast.expr]) -> bool:
        inner = [one for side in compared for one in ast.walk(side)]
        holds_keys = any(isinstance(one, ast.Name) and one.id in named for one in inner)
        return any(map(is_key, inner)) or (holds_keys and any(map(is_of_text, inner)))

    comparisons = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    found = [ast.unparse(node) for node in comparisons if is_decided([node.left, *node.comparators])]
    found += [
        ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call) and is_method(node.func, named)
    ]
    return [*found, *("case" for node in ast.walk(tree) if isinstance(node, ast.MatchValue) and is_key(node.value))]


def is_of_text(node: ast.AST) -> bool:
    """The key of a text, also in a document, or a field that holds a text."""
    if isinstance(node, ast.Attribute):
        return node.attr in SAID | {"key"}
    return isinstance(node, ast.Constant) and node.value == "key"


def is_method(called: ast.expr, named: set[str]) -> bool:
    """A method of a set of keys, such as `KEYS.isdisjoint`."""
    owner = called.value if isinstance(called, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in named and called.attr.startswith(("is", "inter"))  # type: ignore[attr-defined]


def test_no_code_decides_by_the_key_of_a_text() -> None:
    files = sorted(ROOT.rglob("*.py"))
    assert len(files) > 300
    found = {path.relative_to(ROOT).as_posix(): decisions(path.read_text(encoding="utf-8")) for path in files}
    assert {path: len(said) for path, said in found.items() if said} == STILL_DECIDED, found


def test_every_way_to_decide_by_a_key_is_seen() -> None:
    known = min(KEYS)
    for code in (
        f"text.key == {known!r}",
        f"if {known!r} in keys: pass",
        f"KEPT = {known!r}\nif one['key'] != KEPT: pass",
        f"KEPT = ({known!r}, 'other')\nif origin.get('key') in KEPT: pass",
        f"KEPT = {{{known!r}}}\nx = KEPT.isdisjoint(keys)",
        f"match text.key:\n    case {known!r}: pass",
    ):
        assert decisions(code), code
    assert decisions(f"sentence({known!r}, count=1)\nTEXTS = {{'a': {known!r}}}\nsay(TEXTS['a'])") == []
