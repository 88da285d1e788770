"""Layers without parameters that a list of the port lacks: the reference's own kinds, put there on a trial.

A list calls its items one after the other, in the framework's code, so nothing of the user's is to be changed but the
items. What ends the fault with all lists that one line of source makes, and makes nothing worse, is what to write.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product, takewhile
from typing import TYPE_CHECKING

from align.core.protocols import LayerRebuilder, SettingsReader
from align.forward.causes.rebuild_layer import same_kind
from align.forward.causes.suspects import is_worse
from align.forward.functions.inserted_layers import ListedItems, inserted_behind
from align.forward.thresholds import MOST_INSERTED_LAYERS
from align.models.edited_code import changed_line, keywords, name_in
from align.models.function_source import shown
from align.models.source_lines import children_of, layer_at
from align.words.catalogue import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from align.core.layer_settings import LayerSettings
    from align.core.protocols import Model
    from align.forward.causes.rebuild_layer import LayerPlan
    from align.forward.causes.suspects import Suspect
    from align.forward.functions.inserted_layers import ListItem
    from align.forward.functions.look_inside import Budget
    from align.forward.isolation.bench import Bench
    from align.forward.isolation.isolate_layers import IsolatedLayers
    from align.forward.isolation.locate_faults import Fault
    from align.models.edited_code import CodeChange
    from align.models.open_side import Side

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
