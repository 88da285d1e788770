"""LSTM and GRU step by step, with the roundings of a chip: torch runs each as one operator that shows no inside.

Inputs, both weights and the hidden state are rounded where they enter a product; products, sums, gates and activations
are float32. Where the result is float16, biases are rounded too, and both states after each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from align.core.emulation import OperatorRounding

    Round = Callable[[Any, str], Any]


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
        self._cell = self._lstm if name == "lstm" else self._gru
        self._round, self._rule, self._biased = round_to, rule, biased

    def layer(
        self, steps: Sequence[Any], states: list[Any], weights: Sequence[Any], *, backwards: bool
    ) -> tuple[list[Any], list[Any]]:
        """The outputs of all steps, and the states at the end; a step of fewer rows leaves the others' states alone."""
        import torch

        inner = [self._product(weights[0]), self._product(weights[1])]
        biases: list[Any] = [*weights[2:4]] if self._biased else [None, None]
        if self._biased and self._cell == self._lstm:  # the two are added first
            biases = [self._result(biases[0] + biases[1]), None]
        projection = self._product(weights[-1]) if len(weights) in (3, 5) else None
        states = [self._result(one) for one in states]
        outputs: list[Any] = [None] * len(steps)
        for place in reversed(range(len(steps))) if backwards else range(len(steps)):
            rows = steps[place].shape[0]
            new = self._cell(self._product(steps[place]), [one[:rows] for one in states], inner, biases)
            if projection is not None:
                new[0] = self._result(torch.nn.functional.linear(self._product(new[0]), projection))
            outputs[place] = new[0]
            states = [torch.cat([one, old[rows:]]) for one, old in zip(new, states, strict=True)]
        return outputs, states

    def _lstm(self, value: Any, states: list[Any], weights: list[Any], biases: list[Any]) -> list[Any]:
        import torch
        from torch.nn.functional import linear

        gates = linear(value, weights[0], biases[0]) + linear(self._product(states[0]), weights[1], biases[1])
        taken, kept, new, shown = gates.chunk(4, -1)
        cell = self._result(torch.sigmoid(kept) * states[1] + torch.sigmoid(taken) * torch.tanh(new))
        return [self._result(torch.sigmoid(shown) * torch.tanh(cell)), cell]

    def _gru(self, value: Any, states: list[Any], weights: list[Any], biases: list[Any]) -> list[Any]:
        import torch
        from torch.nn.functional import linear

        given = linear(value, weights[0], biases[0]).chunk(3, -1)
        before = linear(self._product(states[0]), weights[1], biases[1]).chunk(3, -1)
        reset, update = (torch.sigmoid(given[one] + before[one]) for one in (0, 1))
        new = torch.tanh(given[2] + reset * before[2])
        return [self._result((1 - update) * new + update * states[0])]

    def _product(self, value: Any) -> Any:
        return self._round(value, self._rule.computes)

    def _result(self, value: Any) -> Any:
        return self._round(value, self._rule.result)
