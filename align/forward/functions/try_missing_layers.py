"""Layers without parameters that a list of the port lacks: the reference's own kinds, put there on a trial.

A list calls its items one after the other, in the framework's code, so nothing of the user's is to be changed but the
items. What ends the fault with all lists that one line of source makes, and makes nothing worse, is what to write.
"""

from __future__ import annotations

import ast
import linecache
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product, takewhile
from typing import TYPE_CHECKING, Any

from align.core.protocols import LayerRebuilder, SettingsReader
from align.forward.settings_to_try import same_kind
from align.forward.suspects import is_worse
from align.forward.thresholds import MOST_INSERTED_LAYERS
from align.models.function_source import CONSTRUCTOR, CodeChange, called_name, changed_line, keywords, name_in, shown
from align.models.restore_state import restored_attributes
from align.models.source_lines import children_of, construction_of, layer_at
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from align.core.protocols import LayerSettings, Model
    from align.forward.functions.look_inside import Budget
    from align.forward.isolate_layers import Bench, IsolatedLayers
    from align.forward.locate_faults import Fault
    from align.forward.settings_to_try import LayerPlan
    from align.forward.suspects import Suspect
    from align.models.function_source import FunctionSource
    from align.models.open_side import Side
    from align.models.source_lines import Construction, Place


LAYER_MISSING = "layer-missing"


def try_missing_layers(
    reference: Side, bench: Bench, alone: IsolatedLayers, suspects: Sequence[Suspect], budget: Budget
) -> tuple[Suspect, ...]:
    """Name the layers that a list lacks, for suspects that nothing has confirmed, as far as runs are left."""
    lists = _Lists(reference, bench, alone)
    known = isinstance(bench.side.reader, LayerRebuilder) and isinstance(reference.reader, SettingsReader)
    tried = (one for one in suspects if known and one.culprit.sureness != "confirmed" and one.fault.part != "layer")
    found: dict[tuple[str, str], Suspect] = {}
    for suspect in tried:
        if (named := lists.tried(suspect, budget)) is not None:
            found[suspect.key] = named
    return tuple(found.get(one.key, one) for one in suspects)


@dataclass(frozen=True, slots=True)
class _Missing:
    """New layers behind the items at some paths, which one change of source puts there."""

    plans: tuple[LayerPlan, ...]
    item: ListItem
    paths: tuple[str, ...]
    change: CodeChange


class _Lists:
    """The lists of the port's layers, and what the reference has between theirs."""

    def __init__(self, reference: Side, bench: Bench, alone: IsolatedLayers) -> None:
        self._reference, self._bench, self._alone = reference, bench, alone

    def tried(self, suspect: Suspect, budget: Budget) -> Suspect | None:
        """The suspect with the layers whose presence ends its fault; None where none do, or no run is left."""
        lacking = [] if budget.is_spent else list(self._lacking(suspect.fault))
        places = list(_ends_before(self._bench.side.model, suspect.fault)) if lacking else []
        for path, plans in product(places, lacking):
            missing = self._missing(path, plans) if not budget.is_spent else None
            if missing is None:
                continue
            budget.spend()
            if self._mends(suspect, missing):
                return self._named(suspect, missing)
        return None

    @cached_property
    def _settings(self) -> dict[str, LayerSettings]:
        reader = self._reference.reader
        read = reader.read_settings(self._reference.model) if isinstance(reader, SettingsReader) else ()
        return {one.path: one for one in read}

    @cached_property
    def _listed(self) -> ListedItems:
        return ListedItems(self._bench.side.model)

    def _lacking(self, fault: Fault) -> Iterator[tuple[LayerPlan, ...]]:
        """Layers of the reference without parameters that ran last before the fault, each alone, then all."""
        expected, framework = self._bench.expected, self._bench.side.reader.name
        paired = {pair.reference.module for pair in expected.pairs if pair.reference.kind}
        before = [one for one in expected.trace.captures if one.order < fault.tensor.reference.order]
        before.sort(key=lambda one: -one.order)
        between = takewhile(lambda one: one.module not in paired, before)
        found = (self._settings[one.module] for one in between if one.module in self._settings)
        own = list(islice(filter(None, (same_kind(one, framework) for one in found)), MOST_INSERTED_LAYERS))
        yield from ((one,) for one in own)
        if len(own) > 1:
            yield tuple(own[::-1])

    def _missing(self, path: str, plans: tuple[LayerPlan, ...]) -> _Missing | None:
        """The layers behind an item, and behind all that the same line makes; None where they cannot be written."""
        item = self._listed.get(path)
        names = [name_in(item.made.source.file, one.class_name) for one in plans] if item else []
        if item is None or not all(names):
            return None
        text = ", ".join(f"{name}({keywords(one.arguments)})" for name, one in zip(names, plans, strict=True))
        return _Missing(plans, item, self._listed.made_with(item), item.with_another(text))

    def _mends(self, suspect: Suspect, missing: _Missing) -> bool:
        reader = self._bench.side.reader
        if not isinstance(reader, LayerRebuilder):
            return False
        layers = {
            path: [reader.built(one.class_name, one.arguments) for one in missing.plans] for path in missing.paths
        }
        if any(one is None for added in layers.values() for one in added):
            return False
        with inserted_behind(self._bench.side.model, layers):
            run = self._bench.run(self._alone.way)
        return not run.failed and suspect.is_mended(run.calls) and not is_worse(run.calls, self._alone.calls)

    def _named(self, suspect: Suspect, missing: _Missing) -> Suspect:
        made, culprit = missing.item.made, suspect.culprit
        change = replace(missing.change, moves=sum(map(self._count_behind, missing.paths)))
        before, after = changed_line("".join(linecache.getlines(change.file)), change)
        named = replace(
            culprit,
            cause=culprit.cause or LAYER_MISSING,
            sureness="confirmed",
            change=sentence("forward_finding.write", before=before, after=after, moves=change.moves),
            line=shown(made.source, change.line),
            code=change,
        )
        return replace(suspect, culprit=named)

    def _count_behind(self, path: str) -> int:
        """How many parameters stand behind an item in its list: their names move with it."""
        model, (holder, _, name) = self._bench.side.model, path.rpartition(".")
        keys = [*children_of(layer_at(model, holder))]
        prefixes = tuple(f"{holder}.{key}." if holder else f"{key}." for key in keys[keys.index(name) + 1 :])
        return sum(one.startswith(prefixes) for one in self._bench.side.reader.read_values(model)) if prefixes else 0


def _ends_before(model: Model, fault: Fault) -> Iterator[str]:
    """The items of lists behind which something may lack: the last of the list at fault, or those before its item."""
    path = fault.pair.candidate.module
    if fault.part == "code":
        yield from _last_items(model, path)
        return
    while path:
        holder, _, name = path.rpartition(".")
        items = _items(model, holder)
        number = items.index(name) if name in items else 0
        if number:
            before = f"{holder}.{items[number - 1]}".lstrip(".")
            yield from _last_items(model, before)
            yield before
            return
        path = holder


def _last_items(model: Model, path: str) -> list[str]:
    """The last item of a list, and of the list that this is, the innermost first."""
    found: list[str] = []
    while items := _items(model, path):
        path = f"{path}.{items[-1]}".lstrip(".")
        found.append(path)
    return found[::-1]


def _items(model: Model, path: str) -> list[str]:
    """The names of a list's items; none for a layer that is no list of the framework's."""
    names = [*children_of(layer_at(model, path))]
    return names if all(one.isdigit() for one in names) else []


# A list of layers with one more in it: in the live model for as long as a trial runs, and in its source.

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
