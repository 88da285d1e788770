"""Scripts that run one layer alone, for people who have its framework and NumPy and nothing else.

They are to be read: a layer, its weights, its inputs, one call, and what came of it against what was saved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from align.errors import CannotRunError

SCRIPT = '''\
"""{title}."""

{imports}from pathlib import Path

import numpy as np
import {package}

here = Path(__file__).parent
given = np.load(here / "inputs.npz")
{layer}
{call}
for name, value in {{{outputs}}}.items():
    mine = {array}
    for side in ("reference", "candidate"):
        saved = np.load(here / f"{{side}}_output.npz")[name].astype(float)
        alike = mine.shape == saved.shape
        difference = f"{{np.abs(mine - saved).max():.9e}}" if alike else f"shape {{mine.shape}}, not {{saved.shape}}"
        print(f"{{name}}: largest difference from the {{side}}: {{difference}}")
'''
FACTORY_SCRIPT = "import importlib\nimport sys\n"


@dataclass(frozen=True, slots=True)
class ScriptForms:
    """How code of a framework is written; `{}` stands for the expression that each is about.

    `method` is the name of what a user's layer defines. `fill` gives `layer` the values of `weights`, `cast_layer`
    the floating `{dtype}`; `call` sets `output` to what it returns for `{}`.
    """

    package: str
    method: str
    layer_at: str
    tensor: str
    cast: str
    array: str
    fill: str
    cast_layer: str
    call: str


@dataclass(frozen=True, slots=True)
class Factory:
    """Where a function that makes the model is imported from: a folder, a module in it, an expression."""

    folder: str
    module: str
    expression: str


@dataclass(frozen=True, slots=True)
class LayerScript:
    """What one script says: `layer` is the expression that makes the layer, or that takes it out of `model`.

    It is `filled` with weights if it has any, and cast to `dtype` if that is not "".
    """

    title: str
    side: str
    layer: str
    arguments: str
    outputs: Mapping[str, str]
    dtype: str = ""
    factory: Factory | None = None
    filled: bool = True

    def write(self, forms: ScriptForms) -> str:
        """Return the script."""
        return SCRIPT.format(
            title=self.title,
            imports="" if self.factory is None else FACTORY_SCRIPT,
            package=forms.package,
            side=self.side,
            layer="\n".join(self._making(forms)),
            call=forms.call.format(self.arguments),
            outputs=", ".join(f'"{name}": {expression}' for name, expression in self.outputs.items()),
            array=forms.array.format("value"),
        )

    def _making(self, forms: ScriptForms) -> Iterator[str]:
        if self.factory is not None:
            yield f"sys.path.insert(0, {self.factory.folder!r})"
            yield f"model = importlib.import_module({self.factory.module!r}).{self.factory.expression}"
        yield f"layer = {self.layer}"
        if self.filled:
            yield f'weights = np.load(here / "{self.side}_weights.npz")'
            yield forms.fill
        if self.dtype:
            yield forms.cast_layer.format(dtype=self.dtype)


def as_call(given: Mapping[Any, Any], tensor: Callable[[str], str | None]) -> str:
    """The arguments of a call as code: positions are numbers, keywords words; `tensor(name)` writes a tensor leaf.

    Raises CannotRunError for what no code can stand for.
    """
    written = [(key, as_expression(value, tensor, str(key))) for key, value in given.items()]
    return ", ".join(text if isinstance(key, int) else f"{key}={text}" for key, text in written)


def as_expression(value: Any, tensor: Callable[[str], str | None], name: str = "") -> str:
    """A value as code; see as_call."""
    found = tensor(name)
    if found is not None:
        return found
    if type(value) is dict:
        entries = [f"{key!r}: {as_expression(item, tensor, f'{name}.{key}')}" for key, item in value.items()]
        return f"{{{', '.join(entries)}}}"
    if type(value) in (tuple, list):
        items = [as_expression(item, tensor, f"{name}.{index}") for index, item in enumerate(value)]
        listed = ", ".join(items) + ("," if len(items) == 1 and type(value) is tuple else "")
        return f"({listed})" if type(value) is tuple else f"[{listed}]"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise CannotRunError.of("layer_script.no_source", kind=type(value).__name__, name=name)


def leaf_expressions(value: Any, expression: str, name: str = "") -> dict[str, str]:
    """How to reach each leaf of nested tuples, lists, mappings and dataclasses, by the names of `leaves`."""
    if isinstance(value, Mapping):
        items = {key: f"{expression}[{key!r}]" for key in value}
        inside = dict(value)
    elif isinstance(value, (tuple, list)):
        items = {index: f"{expression}[{index}]" for index in range(len(value))}
        inside = dict(enumerate(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {field.name: f"{expression}.{field.name}" for field in dataclasses.fields(value)}
        inside = {key: getattr(value, key) for key in items}
    else:
        return {name: expression}
    return {
        leaf: reached
        for key, item in items.items()
        for leaf, reached in leaf_expressions(inside[key], item, f"{name}.{key}" if name else str(key)).items()
    }
