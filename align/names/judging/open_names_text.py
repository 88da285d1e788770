"""What a checkpoint leaves open, in words: layers that differ only in their numbers share a line and a choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.core.name_map import Unmatched
from align.errors import OpenNamesError
from align.names.fold_names import common_glob, fold_alike

if TYPE_CHECKING:
    from collections.abc import Sequence

    from align.names.infer_names import OpenLayer


def open_names_error(layers: Sequence[OpenLayer]) -> OpenNamesError:
    """The error that lists open layers, and how to settle the first of them."""
    lines = [_line(layer.prefix, layer) for layer in layers]
    folded = []
    globs = []
    for name, places in fold_alike((layer.prefix, _likeness(layer)) for layer in layers):
        globs.append(common_glob([layers[place].prefix for place in places]))
        line = _line(name, layers[places[0]])
        folded.append(f"{line} [{len(places)} layers: --layer '{globs[-1]}=KIND']" if len(places) > 1 else line)
    return OpenNamesError(lines, _hint(globs[0], layers[0]), folded)


def open_names(layers: Sequence[OpenLayer]) -> list[Unmatched]:
    """The names of open layers, with what each may be and the option that says which; a module stands for its own."""
    found = []
    for _, places in fold_alike((layer.prefix, _likeness(layer)) for layer in layers):
        own = [layers[place] for place in places]
        reason = f"{_ways(own[0])}: say which by {_choices(common_glob([layer.prefix for layer in own]), own[0])}"
        names = [f"{layer.prefix}.{attribute}".strip(".") for layer in own for attribute in layer.shapes or ("",)]
        found += [Unmatched(name, "source", reason) for name in names]
    return found


def _likeness(layer: OpenLayer) -> tuple[object, ...]:
    return tuple(layer.shapes.items()), layer.alternatives


def _line(name: str, layer: OpenLayer) -> str:
    shapes = ", ".join(f"{attribute} {shape}" for attribute, shape in layer.shapes.items())
    return f"{name or '(top level)'}{f' ({shapes})' if shapes else ''}: {_ways(layer)}"


def _ways(layer: OpenLayer) -> str:
    return "; ".join(f"{ids} -> {', '.join(names)}" for ids, names in layer.alternatives)


def _hint(glob: str, layer: OpenLayer) -> str:
    top = "" if layer.prefix else " for the top level"
    return (
        f"say what each is: {_choices(glob, layer)}{top} (patterns such as 'encoder.*' too), or give a map with --map "
        "or the model with --source-model"
    )


def _choices(glob: str, layer: OpenLayer) -> str:
    """All that the layer can be, none before the others: the first is often not the right one."""
    first, *others = [ids.partition(",")[0] for ids, _ in layer.alternatives]
    return " or ".join([f"--layer '{glob}={first}'", *(f"...={other}" for other in others)])
