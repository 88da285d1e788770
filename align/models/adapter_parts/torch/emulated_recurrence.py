"""LSTM and GRU step by step, with the roundings of a chip: torch runs each as one operator that shows no inside.

Inputs, both weights and the hidden state are rounded where they enter a product; products, sums, gates and activations
are float32. Where the result is float16, biases are rounded too, and both states after each step.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.dtypes import OperatorRounding

    Round = Callable[..., Any]  # of a tensor and a format; `note=None`: nobody hears of it


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
        found = []
        for way in range(ways):
            number = layer * ways + way
            outputs, end = run.layer(steps, [state[number] for state in states], pieces[number], backwards=way == 1)
            found.append(outputs)
            ends.append(end)
        steps = [torch.cat(one, -1) for one in zip(*found, strict=True)]
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
        rows = [one.shape[0] for one in steps]
        given = torch.split(linear(self._product(torch.cat([*steps])), self._product(weights[0]), biases[0]), rows)
        inner = self._product(weights[1]).t()
        projection = self._product(weights[-1]).t() if len(weights) in (3, 5) else None
        states = [self._result(one) for one in states]
        outputs: list[Any] = [None] * len(steps)
        for place in reversed(range(len(steps))) if backwards else range(len(steps)):
            new = self._cell(given[place], [one[: rows[place]] for one in states], inner, biases[1])
            if projection is not None:
                new[0] = self._state(self._product(new[0]) @ projection)
            outputs[place] = new[0]
            states = [
                one if one.shape == old.shape else torch.cat([one, old[rows[place] :]])
                for one, old in zip(new, states, strict=True)
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
