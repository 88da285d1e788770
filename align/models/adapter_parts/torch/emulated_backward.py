"""The gradients that a chip would hold in float16, by size: where they come from, how many there are of each exponent.

The way back is run in float32. A loss scale multiplies every gradient alike, so what each scale does follows from one
run. A second run, from twice the loss, tells gradients from weights: these stay as they are.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import inf
from typing import TYPE_CHECKING, Any

from align.core.dtypes import GradientsMet
from align.models.adapter_parts.batch_and_loss import scalar
from align.models.adapter_parts.torch.arrays import to_array
from align.models.adapter_parts.torch.emulated_recurrence import run_recurrent
from align.models.adapter_parts.torch.emulation import MATRICES, RECURRENT, TORCHS_OWN, attention_apart
from align.models.adapter_parts.torch.state import is_scripted
from align.models.nested_values import leaves

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt

    from align.core.dtypes import Emulation, OperatorRounding
    from align.core.protocols import Model

    Exponents = npt.NDArray[np.int64]

BACKWARD = "_backward"
MARK = "align"  # the key under which a node of autograd's graph keeps its module and operator
LOWEST, EXPONENTS = -150, 280  # format: exponents of float32, subnormal numbers among them
DOUBLED = 1.5  # no limit: what is twice as large in the second run is a gradient, all else is once as large


def gradients_met(model: Model, emulation: Emulation, call: Callable[[], Any]) -> tuple[GradientsMet, ...]:
    """Run `call`, which returns a loss, then back; return what becomes float16 on the way, by module and operator.

    The model is a copy. What its operators return is as it is in float32. Raises CannotRunError for a loss that is no
    single number.
    """
    import torch

    ends = [one for one in model.parameters() if one.requires_grad]
    with _Marking(model, emulation), torch.enable_grad():
        loss = call()
    scalar(to_array(loss.detach()) if torch.is_tensor(loss) else loss)
    if not (torch.is_tensor(loss) and loss.requires_grad and ends):
        return ()
    found: list[_Met] = []
    for scale in (1.0, 2.0):
        met = _Met(emulation)
        with met.mode():
            torch.autograd.grad(loss, ends, torch.full_like(loss, scale), retain_graph=True, allow_unused=True)
        found.append(met)
    return tuple(_gradients(*found))


def _gradients(once: _Met, twice: _Met) -> Iterator[GradientsMet]:
    """Of all that was met what grows with the loss, joined by module, operator and entry."""
    joined: dict[tuple[str, str, str], Exponents] = {}
    largest: dict[tuple[str, str, str], float] = {}
    for key, size in once.largest.items():
        if twice.largest.get(key, 0.0) >= DOUBLED * size > 0.0:
            name, counts = key[:3], once.exponents[key]
            joined[name] = joined[name] + counts if name in joined else counts
            largest[name] = max(largest.get(name, 0.0), size)
    for name, counts in joined.items():
        yield GradientsMet(*name, largest[name], {LOWEST + place: int(n) for place, n in enumerate(counts) if n})


class _Met:
    """What the operators of one way back are given and make that would be float16, by module, operator and place."""

    def __init__(self, emulation: Emulation) -> None:
        self._rules = emulation.operators
        self.largest: dict[tuple[str, str, str, int], float] = {}
        self.exponents: dict[tuple[str, str, str, int], Exponents] = {}

    def mode(self) -> Any:
        """A context in which a way back is seen."""
        from torch.utils._python_dispatch import TorchDispatchMode

        met = self

        class Seen(TorchDispatchMode):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                output = func(*args, **(kwargs or {}))
                if func.namespace in TORCHS_OWN:
                    met.add(func.overloadpacket.__name__, args, output)
                return output

        return Seen()

    def add(self, name: str, args: Any, output: Any) -> None:
        """Look at one operator."""
        module, inside = _place_of_node()
        operator = inside if inside and name in MATRICES else name.removesuffix(BACKWARD)
        rule = self._rules.get(operator)
        if rule is None or rule.computes != "float16":
            return
        given = MATRICES.get(name) or ((0,) if name.endswith(BACKWARD) else ())
        made = output if isinstance(output, (tuple, list)) else (output,)
        values = [(place, args[place]) for place in given]
        values += [(-1 - place, one) for place, one in enumerate(made)] if given and _rounds(rule) else []
        for place, value in values:
            self._note((module, operator, rule.entry, place), value)

    def _note(self, key: tuple[str, str, str, int], value: Any) -> None:
        import numpy as np
        import torch

        if not (torch.is_tensor(value) and value.is_floating_point() and value.numel()):
            return
        size = float(torch.linalg.vector_norm(value, inf))
        self.largest[key] = max(self.largest.get(key, 0.0), size)
        exponents = torch.frexp(value[value != 0].float())[1] - 1 - LOWEST  # frexp's fraction is 0.5..1
        counts = torch.bincount(exponents.flatten().clamp(0, EXPONENTS - 1).long(), minlength=EXPONENTS).numpy()
        self.exponents[key] = self.exponents.get(key, np.zeros(EXPONENTS, np.int64)) + counts


def _rounds(rule: OperatorRounding) -> bool:
    return rule.result == "float16"


def _place_of_node() -> tuple[str, str]:
    """The module and, inside of a recurrent layer, the operator of the node of the graph that runs now."""
    import torch

    node = torch._C._current_autograd_node()  # noqa: SLF001 - no public way
    mark: tuple[str, str] = ("", "") if node is None else node.metadata.get(MARK, ("", ""))
    return mark


class _Marking:
    """Marks every node of the graph that a run makes with the innermost module that made it."""

    def __init__(self, model: Model, emulation: Emulation) -> None:
        self._model, self._rules, self._stack = model, emulation.operators, ExitStack()
        self._running: list[str] = []

    def __enter__(self) -> None:
        self._stack.enter_context(attention_apart())
        for path, module in self._model.named_modules():
            if not is_scripted(module):
                self._follow(path, module)
        self._stack.enter_context(self._recurrent())

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _follow(self, path: str, module: Model) -> None:
        def left(_module: Any, _given: Any, output: Any) -> None:
            mark_nodes(output, (path, ""))
            if self._running:
                self._running.pop()

        self._stack.callback(module.register_forward_pre_hook(lambda *_: self._running.append(path)).remove)
        self._stack.callback(module.register_forward_hook(left).remove)

    def _recurrent(self) -> Any:
        """Recurrent layers step by step, whose products are seen on the way back."""
        from torch.overrides import TorchFunctionMode

        running, rules = self._running, self._rules

        class Steps(TorchFunctionMode):  # type: ignore[misc]
            def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                name = getattr(func, "__name__", "")
                rule = rules.get(name) if name in RECURRENT and not kwargs else None
                if rule is None or rule.computes != "float16":
                    return func(*args, **(kwargs or {}))
                output = run_recurrent(name, args, lambda value, *_, **__: value, rule)
                mark_nodes(output, (running[-1] if running else "", name))
                return output

        return Steps()


def mark_nodes(output: Any, mark: tuple[str, str]) -> None:
    """Mark the nodes behind an output that have no mark yet."""
    import torch

    ends = [leaf.grad_fn for _, leaf in leaves(output) if torch.is_tensor(leaf) and leaf.grad_fn is not None]
    while ends:
        node = ends.pop()
        if MARK not in node.metadata:
            node.metadata[MARK] = mark
            ends += [one for one, _ in node.next_functions if one is not None]
