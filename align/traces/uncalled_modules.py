"""Modules with parameters of which a run shows no call: run past their hooks, or never called.

A comparison layer by layer sees nothing of them: whoever captures a model is told before the trace leaves the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from align.rules.layer_rules import rule_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from align.core.parameters import Module, ParameterSet
    from align.core.traces import Trace

_LIBRARIES = ("torch.nn.", "mindspore.nn.", "mindspore.mint.nn.")
_CONTAINERS = ("torch.nn.ParameterList", "torch.nn.ParameterDict")  # their parameters are used by the module around


def uncalled_modules(parameters: ParameterSet, trace: Trace) -> list[Module]:
    """The modules that hold parameters of their own and that a run does not show, in their order.

    What is inside a layer of a library that was seen is compared with it; buffers and tied parameters count nothing.
    """
    seen = {one.module for one in (*trace.captures, *trace.inputs)}
    seen |= {module.path for module in parameters.modules if module.merged_into in seen - {""}}
    seen |= {start.module for start in getattr(getattr(trace, "manifest", None), "starts", ())}
    whole = {module.path for module in parameters.modules if module.path in seen and _is_layer(module)}
    found = []
    for module in parameters.modules:
        around = list(_around(module.path))
        held_by = around[0] if module.classes[:1] and module.classes[0] in _CONTAINERS and around else module.path
        if own_elements(module, parameters) and held_by not in seen and not whole & {*around} and module.path:
            found.append(module)
    return found


def own_elements(module: Module, parameters: ParameterSet) -> int:
    """How many elements the parameters of a module itself have."""
    own = (parameters.by_name[name] for name in module.parameters)
    return sum(one.count for one in own if not one.buffer and one.tied_to is None)


def _is_layer(module: Module) -> bool:
    """Tell whether a module is a layer of a library, or made of one, and no mere container."""
    return rule_for(module.classes) is not None or (
        module.classes[:1] != () and module.classes[0].startswith(_LIBRARIES)
    )


def _around(path: str) -> Iterator[str]:
    """Paths of the modules around, the innermost first; "" last."""
    while path:
        path = path.rpartition(".")[0]
        yield path
