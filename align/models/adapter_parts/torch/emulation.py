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

from align.core.dtypes import LARGEST_FLOAT16, NOT_EMULATED, EmulatedCalls
from align.models.adapter_parts.torch.emulated_recurrence import run_recurrent
from align.models.adapter_parts.torch.function_modes import run_under
from align.models.adapter_parts.torch.reordered_sums import reordered
from align.models.adapter_parts.torch.state import is_scripted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from align.core.dtypes import Emulation, OperatorRounding
    from align.core.protocols import Model

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
        """All counts in the order of the first calls."""
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
        import torch

        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        self._stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        self._stack.enter_context(attention_apart())
        for path, module in self._seen.model.named_modules():
            if not is_scripted(module):
                self._follow(path, module)
        self._seen.running.clear()
        dispatch = _dispatch_mode(self._seen)
        self._stack.enter_context(dispatch)
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
    from torch.utils._python_dispatch import TorchDispatchMode

    rules = seen.emulation.operators

    class Rounding(TorchDispatchMode):  # type: ignore[misc]
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
    """Tell whether there is such a tensor in what an operator is given or returns."""
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
