"""A list of layers with one more in it: in the live model for as long as a trial runs, and in its source."""

from __future__ import annotations

import ast
import linecache
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from align.models.child_layers import children_of, layer_at
from align.models.edited_code import CodeChange
from align.models.function_source import called_name
from align.models.list_elements import CONSTRUCTOR
from align.models.restore_state import restored_attributes
from align.models.source_lines import construction_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def list_item(model: object, path: str) -> ListItem | None:
    """Find the item at `path` among those that make its list; None where it stands in none by itself."""
    holder = path.rpartition(".")[0]
    around = {id(one.node) for one in _calls(construction_of(model, holder))} if holder else set()
    kind = type(layer_at(model, holder)).__name__
    for made in _calls(construction_of(model, path)):
        whole = _element(made, kind) if id(made.node) not in around else None
        if whole is not None:
            return ListItem(made, whole)
    return None


def _calls(made: Construction | None) -> Iterator[Construction]:
    """What makes a layer, the call of the function that it stands in, and so on."""
    while made is not None:
        yield made
        made = made.caller


def _element(made: Construction, holder: str) -> ast.expr | None:
    """What is written anew: an item of a list or among arguments, or the call that appends it."""
    for node in ast.walk(made.source.node):
        if isinstance(node, (ast.List, ast.Tuple)) and any(one is made.node for one in node.elts):
            return made.node
        if isinstance(node, ast.Call) and any(one is made.node for one in node.args):
            name = called_name(node)
            if name in (holder, CONSTRUCTOR):
                return made.node
            return node if name == "append" and len(node.args) == 1 else None
    return None
