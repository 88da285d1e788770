"""A torch model computed as a chip does: what an operator is given is rounded, sums stay float32, so may the result be.

A dispatch mode sees the operators that all code ends in, functional calls inside of torch's own modules too. Fused
attention and the fast paths of transformers are switched off meanwhile: they would hide their matrix products. LSTM and
GRU are no products that can be seen; they are run step by step (`emulated_recurrence`).
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from align.core.parameters import LARGEST_FLOAT16, NOT_EMULATED, EmulatedCalls, GradientsMet
from align.models.adapter_parts.batches import scalar
from align.models.adapter_parts.torch.functions import run_under
from align.models.adapter_parts.torch.state import dispatch_mode, is_scripted, plain_transformer_layers, to_array
from align.models.live_calls import leaves
from align.models.thresholds import SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt

    from align.core.parameters import Emulation, OperatorRounding
    from align.core.protocols import Model

    Round = Callable[..., Any]  # of a tensor and a format; `note=None`: nobody hears of it
    Exponents = npt.NDArray[np.int64]


# Which arguments of a product are its matrices; what is added to it (a bias) is added in float32.
MATRICES = {
    "addmm": (1, 2), "_addmm_activation": (1, 2), "baddbmm": (1, 2), "addbmm": (1, 2), "addmv": (1, 2), "mm": (0, 1),
    "bmm": (0, 1), "mv": (0, 1), "dot": (0, 1), "vdot": (0, 1), "linear": (0, 1),
}  # fmt: skip
CONVOLVED = (0, 1)  # no limit: places of input and weight; HF32 and TF32 leave the bias alone
RECURRENT = frozenset({"lstm", "gru"})
ATTENTION = "scaled_dot_product_attention"

# Operators that multiply inside, where no rounding reaches, and the operator that would be made coarser for them.
HIDDEN_PRODUCTS = {
    "_trilinear": "bmm", "_cdist_forward": "bmm", "_euclidean_dist": "mm", "conv_tbc": "convolution",
    "_sparse_mm": "mm", "_sparse_addmm": "addmm", "sspaddmm": "addmm", "_flash_attention_forward": "bmm",
    "_efficient_attention_forward": "bmm", "_scaled_dot_product_flash_attention": "bmm",
    "_scaled_dot_product_flash_attention_for_cpu": "bmm", "_scaled_dot_product_efficient_attention": "bmm",
    "_scaled_dot_product_cudnn_attention": "bmm", "_native_multi_head_attention": "bmm",
    "_transformer_encoder_layer_fwd": "bmm", "mkldnn_linear": "addmm", "mkldnn_convolution": "convolution",
    "mkldnn_rnn_layer": "lstm",
}  # fmt: skip
TORCHS_OWN = frozenset({"aten", "prim", "prims"})  # no limit: namespaces whose operators are known; others are not
FIRST_BEYOND = 65520.0  # format: what is less is rounded to the largest number of float16
DROPPED_BITS = {"HF32": 12, "TF32": 13}  # format: of float32's 23 bits of fraction, HF32 has 11 and TF32 10


def emulate(model: Model, emulation: Emulation) -> None:
    """Let a model compute as the chip does; see `emulated_calls`."""
    seen = _Seen(model, emulation)
    run_under(model, partial(_Emulating, seen))
    model.forward.emulated = seen  # a run puts the model's own attributes back


def emulated_calls(model: Model) -> tuple[EmulatedCalls, ...]:
    """The operators of an emulated model that were computed as the chip does, in its runs so far, by module."""
    seen = getattr(model.forward, "emulated", None)
    return () if seen is None else tuple(seen.found())


class _Seen:
    """Counts by module, operator and entry, kept over all runs of one model; `running` are the modules that run."""

    def __init__(self, model: Model, emulation: Emulation) -> None:
        self.model, self.emulation = model, emulation
        self.running: list[str] = []
        self._counts: dict[tuple[str, str, str], list[float]] = {}

    def add(self, operator: str, entry: str) -> Callable[[Any], None]:
        """Count a call; return what is to be told of each tensor that is rounded to float16."""
        module = self.running[-1] if self.running else ""
        counts = self._counts.setdefault((module, operator, entry), [0, 0.0, 0])
        counts[0] += 1
        return partial(_note_size, counts)

    def found(self) -> Iterator[EmulatedCalls]:
        for key, (calls, largest, overflowed) in self._counts.items():
            yield EmulatedCalls(*key, int(calls), largest, int(overflowed))


def _note_size(counts: list[float], value: Any) -> None:
    import torch

    largest = float(torch.linalg.vector_norm(value, inf)) if value.numel() else 0.0
    if not largest <= LARGEST_FLOAT16:  # also where it is NaN
        finite = value[torch.isfinite(value)].abs()
        counts[2] += int((finite >= FIRST_BEYOND).sum())
        largest = float(finite.max()) if finite.numel() else 0.0
    counts[1] = max(counts[1], largest)


class _Emulating:
    """Both modes of a run, the places of its modules, and fused kernels switched off; all is put back at the end."""

    def __init__(self, seen: _Seen) -> None:
        self._seen, self._stack = seen, ExitStack()

    def __enter__(self) -> None:
        self._stack.enter_context(plain_transformer_layers())
        self._stack.enter_context(attention_apart())
        for path, module in self._seen.model.named_modules():
            if not is_scripted(module):
                self._follow(path, module)
        self._seen.running.clear()
        self._stack.enter_context(_dispatch_mode(self._seen))
        self._stack.enter_context(_function_mode(self._seen))

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _follow(self, path: str, module: Model) -> None:
        running = self._seen.running

        def leave(*_: object) -> None:
            if running:
                running.pop()

        self._stack.callback(module.register_forward_pre_hook(lambda *_: running.append(path)).remove)
        self._stack.callback(module.register_forward_hook(leave, always_call=True).remove)


def _dispatch_mode(seen: _Seen) -> Any:

    rules = seen.emulation.operators

    class Rounding(dispatch_mode()):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__.removesuffix("_")
            rule = rules.get(name) if func.namespace in TORCHS_OWN else None
            if name in seen.emulation.reordered and func.namespace in TORCHS_OWN and _is_wide(args[0]):
                args = reordered(name, args)
            if rule is None or not _is_wide(args[0]):
                output = func(*args, **(kwargs or {}))
                if hidden := _hidden(func, args, output, seen.emulation):
                    seen.add(hidden, NOT_EMULATED)
                return output
            note = seen.add(name, rule.entry)
            rounded = _rounded_arguments(name, args, rule, seen.emulation, note)
            return _rounded_result(func(*rounded, **(kwargs or {})), rule, seen.emulation, note)

    return Rounding()


def _hidden(func: Any, args: tuple[Any, ...], output: Any, emulation: Emulation) -> str:
    """The name of an operator that may hold what the chip computes otherwise, but is not looked into; else ""."""
    name, rules = func.overloadpacket.__name__.removesuffix("_"), emulation.operators
    if func.namespace not in TORCHS_OWN:
        given, made = (_any_wide(one) for one in (args, output))
        coarse = any(rule.computes != "float32" for rule in rules.values())
        return f"{func.namespace}::{name}" if given and made and coarse else ""
    rule = rules.get(HIDDEN_PRODUCTS.get(name, name))
    if rule is None or rule.computes == "float32":
        return ""
    return name if name in HIDDEN_PRODUCTS or _is_complex(args[0]) else ""


def _function_mode(seen: _Seen) -> Any:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import _disable_current_modes

    class Recurrent(TorchFunctionMode):  # type: ignore[misc]
        """Runs LSTM and GRU as the rules say, or as they are, without a look at what they are made of."""

        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            if name == ATTENTION:  # the code may have chosen a kernel itself
                with attention_apart():
                    return func(*args, **(kwargs or {}))
            if name not in RECURRENT:
                return func(*args, **(kwargs or {}))
            rule = seen.emulation.operators.get(name)
            with _disable_current_modes():
                if rule is None or kwargs or not _is_wide(args[0]):
                    if rule is not None and kwargs and rule.computes != "float32":
                        seen.add(name, NOT_EMULATED)
                    return func(*args, **(kwargs or {}))
                note = seen.add(name, rule.entry)
                return run_recurrent(name, args, partial(round_to, emulation=seen.emulation, note=note), rule)

    return Recurrent()


def attention_apart() -> Any:
    """Attention by its two products."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


def _any_wide(value: Any) -> bool:
    return any(map(_any_wide, value)) if isinstance(value, (tuple, list)) else _is_wide(value)


def _is_complex(value: Any) -> bool:
    import torch

    return bool(torch.is_tensor(value) and torch.is_complex(value))


def _is_wide(value: Any) -> bool:
    """Tell whether it is a tensor that float16 is coarser than."""
    import torch

    return torch.is_tensor(value) and value.dtype in (torch.float32, torch.float64)


def _rounded_arguments(
    name: str, args: tuple[Any, ...], rule: OperatorRounding, emulation: Emulation, note: Callable[[Any], None]
) -> list[Any]:
    places = MATRICES.get(name) or (CONVOLVED if rule.computes in DROPPED_BITS else range(len(args)))
    return [
        round_to(one, rule.computes, emulation, note) if place in places and _is_wide(one) else one
        for place, one in enumerate(args)
    ]


def _rounded_result(output: Any, rule: OperatorRounding, emulation: Emulation, note: Callable[[Any], None]) -> Any:
    """The result rounded in its place, for somebody may hold it; of several tensors each that is floating."""
    if rule.result == "float32":
        return output
    for one in output if isinstance(output, (tuple, list)) else (output,):
        if _is_wide(one):
            one.copy_(round_to(one, rule.result, emulation, note))
    return output


def round_to(value: Any, form: str, emulation: Emulation, note: Callable[[Any], None] | None) -> Any:
    """A copy of a tensor rounded to a format, in its own dtype; `note` hears of what becomes float16."""
    if form in DROPPED_BITS:
        return _round_fraction(value, DROPPED_BITS[form])
    if form != "float16":
        return value
    if note is not None:
        note(value)
    rounded = value.half()
    if emulation.saturates:
        rounded = rounded.nan_to_num(0.0, LARGEST_FLOAT16, -LARGEST_FLOAT16)
    return rounded.to(value.dtype)


def _round_fraction(value: Any, dropped: int) -> Any:
    """Round to the nearest number with so many bits of fraction fewer, ties to even, the default of Ascend's SetHF32.

    Of TF32 no page says how it is rounded; to the nearest it is off least.
    """
    import torch

    bits = value.float().contiguous().view(torch.int32)
    half = (1 << (dropped - 1)) - 1
    rounded = (bits >> dropped).bitwise_and_(1).add_(bits).add_(half).bitwise_and_(-(1 << dropped))
    return rounded.view(torch.float32).to(value.dtype)


# LSTM and GRU step by step, with the roundings of a chip: torch runs each as one operator that shows no inside.
#
# Inputs, both weights and the hidden state are rounded where they enter a product; products, sums, gates and
# activations are float32. Where the result is float16, biases are rounded too, and both states after each step.


def run_recurrent(name: str, args: tuple[Any, ...], round_to: Round, rule: OperatorRounding) -> tuple[Any, ...]:
    """Run what `torch.lstm` or `torch.gru` is called with, packed sequences too; dropout is off in evaluation mode."""
    import torch

    packed = isinstance(args[3], (tuple, list))  # data, batch_sizes, hx, weights, ...; else input, hx, weights, ...
    data, hx, weights, biased, layers = (args[0], *args[2:6]) if packed else (args[0], *args[1:5])
    both_ways, batch_first = args[-1] if packed else args[-2], not packed and args[-1]
    if packed:
        steps = [*torch.split(data, args[1].tolist())]
    else:
        steps = [*(data.transpose(0, 1) if batch_first else data).unbind(0)]
    states = [[*state.unbind(0)] for state in (hx if name == "lstm" else (hx,))]
    run = _Layers(name, round_to, rule, biased)
    ways = 2 if both_ways else 1
    size = len(weights) // (layers * ways)
    pieces = [weights[start : start + size] for start in range(0, len(weights), size)]
    ends: list[list[Any]] = []
    for layer in range(layers):
        by_way = []
        for way in range(ways):
            number = layer * ways + way
            outputs, end = run.layer(steps, [state[number] for state in states], pieces[number], backwards=way == 1)
            by_way.append(outputs)
            ends.append(end)
        steps = [torch.cat(one, -1) for one in zip(*by_way, strict=True)]
    output = torch.cat(steps) if packed else torch.stack(steps, 1 if batch_first else 0)
    return output, *(torch.stack(one) for one in zip(*ends, strict=True))


class _Layers:
    """Runs one layer in one direction; what all layers share."""

    def __init__(self, name: str, round_to: Round, rule: OperatorRounding, biased: bool) -> None:
        self._quietly = partial(round_to, note=None)  # no state is larger than the number of its steps
        self._cell = self._lstm if name == "lstm" else self._gru
        self._round, self._rule, self._biased = round_to, rule, biased

    def layer(
        self, steps: Sequence[Any], states: list[Any], weights: Sequence[Any], *, backwards: bool
    ) -> tuple[list[Any], list[Any]]:
        """The outputs of all steps, and the states at the end; a step of fewer rows leaves the others' states alone."""
        import torch
        from torch.nn.functional import linear

        biases: list[Any] = [*weights[2:4]] if self._biased else [None, None]
        if self._biased and self._cell == self._lstm:  # the two are added first
            biases = [self._result(biases[0] + biases[1]), None]
        rows = [step.shape[0] for step in steps]
        given = torch.split(linear(self._product(torch.cat([*steps])), self._product(weights[0]), biases[0]), rows)
        inner = self._product(weights[1]).t()
        projection = self._product(weights[-1]).t() if len(weights) in (3, 5) else None
        states = [self._result(state) for state in states]
        outputs: list[Any] = [None] * len(steps)
        for place in reversed(range(len(steps))) if backwards else range(len(steps)):
            new = self._cell(given[place], [state[: rows[place]] for state in states], inner, biases[1])
            if projection is not None:
                new[0] = self._state(self._product(new[0]) @ projection)
            outputs[place] = new[0]
            states = [
                state if state.shape == old.shape else torch.cat([state, old[rows[place] :]])
                for state, old in zip(new, states, strict=True)
            ]
        return outputs, states

    def _lstm(self, given: Any, states: list[Any], inner: Any, _bias: Any) -> list[Any]:
        gates = given + self._before(states[0]) @ inner
        size = gates.shape[-1] // 4
        new = gates[:, 2 * size : 3 * size].tanh()
        taken, kept, _, shown = gates.sigmoid_().chunk(4, -1)
        cell = self._state(kept * states[1] + taken * new)
        return [self._state(shown * cell.tanh()), cell]

    def _gru(self, given: Any, states: list[Any], inner: Any, bias: Any) -> list[Any]:
        before = self._before(states[0]) @ inner
        reset, update, new = given.chunk(3, -1)
        old = (before if bias is None else before + bias).chunk(3, -1)
        reset, update = (reset + old[0]).sigmoid(), (update + old[1]).sigmoid()
        new = (new + reset * old[2]).tanh()
        return [self._state(new + update * (states[0] - new))]

    def _product(self, value: Any) -> Any:
        return self._round(value, self._rule.computes)

    def _result(self, value: Any) -> Any:
        return self._round(value, self._rule.result)

    def _before(self, value: Any) -> Any:
        """The hidden state as it enters a product: one that was rounded as a result is so already."""
        same = self._rule.result == self._rule.computes
        return value if same else self._quietly(value, self._rule.computes)

    def _state(self, value: Any) -> Any:
        return self._quietly(value, self._rule.result)


# The gradients that a chip would hold in float16, by size: where they come from, how many there are of each exponent.
#
# The way back is run in float32. A loss scale multiplies every gradient alike, so what each scale does follows from
# one run. A second run, from twice the loss, tells gradients from weights: these stay as they are.

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
    runs: list[_Met] = []
    for scale in (1.0, 2.0):
        met = _Met(emulation)
        with met.mode():
            torch.autograd.grad(loss, ends, torch.full_like(loss, scale), retain_graph=True, allow_unused=True)
        runs.append(met)
    return tuple(_gradients(*runs))


def _gradients(once: _Met, twice: _Met) -> Iterator[GradientsMet]:
    """What of all that was met grows with the loss, joined by module, operator and entry."""
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

        met = self

        class Seen(dispatch_mode()):  # type: ignore[misc]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                output = func(*args, **(kwargs or {}))
                if func.namespace in TORCHS_OWN:
                    met.add(func.overloadpacket.__name__, args, output)
                return output

        return Seen()

    def add(self, name: str, args: Any, output: Any) -> None:
        module, inside = _place_of_node()
        operator = inside if inside and name in MATRICES else name.removesuffix(BACKWARD)
        rule = self._rules.get(operator)
        if rule is None or rule.computes != "float16":
            return
        given = MATRICES.get(name) or ((0,) if name.endswith(BACKWARD) else ())
        made = output if isinstance(output, (tuple, list)) else (output,)
        values = [(place, args[place]) for place in given]
        values += [(-1 - place, one) for place, one in enumerate(made)] if given and (rule.result == "float16") else []
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


# Operators that add, given what they add in another order: mathematically the same, and rounded otherwise.
#
# A fixed shuffle of the axis that is summed over stands for the orders that kernels take which are not deterministic.

# Places of the two matrices of a product, and the axis of the second that is summed over; of the first it is the last.
PRODUCTS = {
    "mm": (0, 1, 0), "addmm": (1, 2, 0), "_addmm_activation": (1, 2, 0), "mv": (0, 1, 0), "addmv": (1, 2, 0),
    "bmm": (0, 1, 1), "baddbmm": (1, 2, 1), "linear": (0, 1, -1),
}  # fmt: skip
CONVOLUTIONS = frozenset({"convolution", "_convolution"})
TRANSPOSED, GROUPS = 6, 8  # no limit: places among the arguments of a convolution


def reordered(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an operator, shuffled along what it adds over; as they are where it adds nothing up.

    A convolution adds its channels in another order, not the places under its kernel.
    """
    if name in PRODUCTS:
        return _product(args, *PRODUCTS[name])
    if name in CONVOLUTIONS:
        return _convolution(args)
    return _indexed(args)


def _product(args: tuple[Any, ...], first: int, second: int, axis: int) -> tuple[Any, ...]:
    order = _order(args[first].shape[-1], args[first])
    return _with(args, {first: args[first].index_select(-1, order), second: args[second].index_select(axis, order)})


def _convolution(args: tuple[Any, ...]) -> tuple[Any, ...]:
    import torch

    given, weight, groups = args[0], args[1], args[GROUPS]
    channels = given.dim() - weight.dim() + 1
    size = given.shape[channels] // groups
    inner = _order(size, given)
    starts = torch.arange(groups, device=given.device)[:, None] * size
    order = (starts + inner[None, :]).flatten()
    turned = weight.index_select(0, order) if args[TRANSPOSED] else weight.index_select(1, inner)
    return _with(args, {0: given.index_select(channels, order), 1: turned})


def _indexed(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """What `index_add` and `scatter_add` add, with its places."""
    axis, index, source = args[1:4]
    if index.dim() == 0 or (index.dim() > 1 and index.shape != source.shape):
        return args
    over = axis if index.dim() > 1 else 0
    order = _order(index.shape[over], index)
    return _with(args, {2: index.index_select(over, order), 3: source.index_select(axis, order)})


def _order(size: int, like: Any) -> Any:
    import torch

    return torch.randperm(size, generator=torch.Generator().manual_seed(SEED)).to(like.device)


def _with(args: tuple[Any, ...], changed: dict[int, Any]) -> tuple[Any, ...]:
    return tuple(changed.get(place, one) for place, one in enumerate(args))
