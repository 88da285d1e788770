"""A list of layers with one more in it: in the live model for as long as a trial runs, and in its source."""

from __future__ import annotations

import ast
import linecache
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from align.models.edited_code import CodeChange
from align.models.function_source import CONSTRUCTOR, called_name
from align.models.restore_state import restored_attributes
from align.models.source_lines import children_of, construction_of, layer_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.models.function_source import FunctionSource
    from align.models.source_lines import Construction, Place

ORDER = "cell_list"  # where MindSpore's SequentialCell keeps them in their order


@contextmanager
def inserted_behind(model: object, layers: Mapping[str, Sequence[object]]) -> Iterator[None]:
    """Let new layers stand behind items of lists, by the paths of the items; all that was there keeps its name."""
    holders = {path.rpartition(".")[0] for path in layers}
    with restored_attributes([layer_at(model, one) for one in holders]):
        for path, added in layers.items():
            holder, _, name = path.rpartition(".")
            _insert(layer_at(model, holder), name, added)
        yield


def _insert(holder: object, name: str, added: Sequence[object]) -> None:
    attributes = vars(holder)
    children = children_of(holder)
    before = [*children.items()]
    children.clear()
    for key, layer in before:
        children[key] = layer
        if key == name:
            children.update({f"{key}+{number}": one for number, one in enumerate(added)})
    if ORDER in attributes:
        attributes[ORDER] = [*children.values()]


@dataclass(frozen=True, slots=True)
class ListItem:
    """An item of a list of layers in source: what makes it, and what is written anew to add another one.

    That is the same, or the call that appends it.
    """

    made: Construction
    whole: ast.expr

    @property
    def place(self) -> Place:
        """What tells it from all others."""
        return self.made.place

    def with_another(self, text: str) -> CodeChange:
        """The change that writes another item behind it."""
        after = f"{self._source(self.made.node)}, {text}"
        if self.whole is not self.made.node and isinstance(self.whole, ast.Call):
            holder = self.whole.func.value if isinstance(self.whole.func, ast.Attribute) else self.whole.func
            after = f"{self._source(holder)}.extend([{after}])"
        before, line, column = self._source(self.whole), self.whole.lineno, self.whole.col_offset
        return CodeChange(self.made.source.file, line, column, before, after)

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment("".join(linecache.getlines(self.made.source.file)), node) or ""


@dataclass(frozen=True, slots=True)
class _Unsure:
    """An item whose source is not found: the classes of the list and of the item, and the function that makes the list.

    None for a function that is not known either.
    """

    kinds: tuple[type, type]
    source: FunctionSource | None


class ListedItems:
    """The items of all lists of a model, and which are made at one place."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._found: dict[str, ListItem] = {}
        self._unsure: list[_Unsure] = []
        walk = getattr(model, "cells_and_names", None) or model.named_modules
        for path, layer in walk():
            around = [*_calls(construction_of(model, path))] if path else []
            for name in filter(str.isdigit, children_of(layer)):
                self._read(f"{path}.{name}".lstrip("."), layer, around)

    def _read(self, path: str, holder: object, around: Sequence[Construction]) -> None:
        kind, places = type(holder), {one.place for one in around}
        made = [*_calls(construction_of(self._model, path))]
        for one in made:
            whole = _element(one, kind.__name__) if one.place not in places else None
            if whole is not None:
                self._found[path] = ListItem(one, whole)
                return
        if not made or made[0].place in places:  # else it is made elsewhere than an item is
            is_list = bool(made) and called_name(made[0].node) in (kind.__name__, CONSTRUCTOR)
            self._unsure.append(_Unsure(self._kinds(path), made[0].source if is_list else None))

    def _kinds(self, path: str) -> tuple[type, type]:
        return type(layer_at(self._model, path.rpartition(".")[0])), type(layer_at(self._model, path))

    def get(self, path: str) -> ListItem | None:
        """The item at a path; None where it stands in no list by itself, or where its line may make others unseen."""
        item = self._found.get(path)
        if item is None:
            return None
        alike = [one.source for one in self._unsure if one.kinds == self._kinds(path)]
        return None if any(one is None or one == item.made.source for one in alike) else item

    def made_with(self, item: ListItem) -> tuple[str, ...]:
        """The paths of all items that one place of source makes."""
        return tuple(path for path, one in self._found.items() if one.place == item.place)


def _calls(made: Construction | None) -> Iterator[Construction]:
    """What makes a layer, the call of the function that it stands in, and so on."""
    while made is not None:
        yield made
        made = made.caller


def _element(made: Construction, holder: str) -> ast.expr | None:
    """What is written anew: an item of a list or among arguments, or the call that appends it."""
    for node in ast.walk(made.source.node):
        if isinstance(node, (ast.List, ast.Tuple)) and any(one is made.node for one in node.elts):
            is_pair = isinstance(node, ast.Tuple) and isinstance(node.elts[0], (ast.Constant, ast.JoinedStr))
            return None if is_pair else made.node
        if isinstance(node, ast.Call) and any(one is made.node for one in node.args):
            name = called_name(node)
            if name in (holder, CONSTRUCTOR):
                return made.node
            return node if name == "append" and len(node.args) == 1 else None
    return None
