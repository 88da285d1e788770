"""A language model as a decoder: logits of a whole text, or token by token with its key/value cache.

A model is called as those of transformers are, with `past_key_values` if its signature has it. Any other is made one by
the user's adapter, a function that takes the model and returns `step(ids, cache) -> (logits, cache)`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from align.errors import InputsError, UserCodeError
from align.evaluation.generation.compare_logits import greedy_tokens
from align.models.call_model import forward_of, model_caller
from align.models.open_side import find_function
from align.models.user_code import run_user_code

if TYPE_CHECKING:
    from align.core.dtypes import Array
    from align.core.protocols import Model
    from align.models.open_side import Side

Step = Callable[[Any, Any], tuple[Any, Any]]
Adapter = Callable[["Model"], Step]
CACHE = "past_key_values"


class Decoder:
    """One side that is fed token ids (sequences, tokens); `adapter` is the user's, or its name."""

    def __init__(self, side: Side, adapter: str | Adapter | None = None) -> None:
        self.side = side
        self._caller = model_caller(side)
        make = find_function(adapter) if isinstance(adapter, str) else adapter
        self._step = _usual_step(side.model) if make is None else self._guarded(partial(make, side.model))

    def logits(self, ids: Array) -> Array:
        """Logits (sequences, tokens, vocabulary) of a text that is fed whole, without cache."""
        with self._caller.evaluating(self.side.model):
            return self._call(ids, None)[0]

    def cached_logits(self, ids: Array, prompt: int) -> Array | None:
        """The same with the first tokens fed whole and the others one by one; None if the model returns no cache."""
        with self._caller.evaluating(self.side.model):
            first, cache = self._call(ids[:, :prompt], None)
            if cache is None:
                return None
            found = [first]
            for place in range(prompt, ids.shape[1]):
                logits, cache = self._call(ids[:, place : place + 1], cache)
                found.append(logits)
        return np.concatenate(found, axis=1)

    def greedy(self, prompts: Array, tokens: int) -> Array:
        """The new tokens (sequences, tokens) of greedy decoding, for each of which the whole text is fed."""
        text = prompts
        with self._caller.evaluating(self.side.model):
            for _ in range(tokens):
                logits, _ = self._call(text, None)
                text = np.concatenate([text, greedy_tokens(logits[:, -1:])], axis=1)
        return text[:, prompts.shape[1] :]

    def _call(self, ids: Array, cache: Any) -> tuple[Array, Any]:
        given = self._caller.as_tensor(np.ascontiguousarray(ids), self.side.model)
        returned = self._guarded(partial(self._step, given, cache), list(ids.shape))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise InputsError(f"a step of {self.side.label} returns a {type(returned).__name__}", "(logits, cache)")
        logits = self._caller.as_array(returned[0])
        if logits is None or logits.ndim != 3 or logits.shape[:2] != ids.shape:
            got = type(returned[0]).__name__ if logits is None else f"an array {list(logits.shape)}"
            hint = "it must return logits (sequences, tokens, vocabulary) of every token that it is fed"
            raise InputsError(f"{self.side.label} returns {got} for tokens {list(ids.shape)}", hint)
        return np.array(logits), returned[1]

    def _guarded(self, code: Callable[[], Any], shape: list[int] | None = None) -> Any:
        label = self.side.label
        if shape is None:
            return run_user_code(code, lambda error: UserCodeError(f"the adapter of {label}", error))
        return run_user_code(code, lambda error: UserCodeError(f"{label}, on tokens {shape},", error))


def _usual_step(model: Model) -> Step:
    names = inspect.signature(forward_of(model)).parameters
    wanted = {"use_cache": True} if "use_cache" in names else {}

    def step(ids: Any, cache: Any) -> tuple[Any, Any]:
        returned = model(ids, **{CACHE: cache}, **wanted) if CACHE in names else model(ids)
        logits, more = _taken_apart(returned)
        return logits, more if CACHE in names else None

    return step


def _taken_apart(returned: Any) -> tuple[Any, Any]:
    """The logits and the cache among what a model returned: by name, else the first two."""
    if isinstance(returned, Mapping):
        return returned.get("logits"), returned.get(CACHE)
    if isinstance(returned, (tuple, list)):
        return returned[0], returned[1] if len(returned) > 1 else None
    if hasattr(returned, "logits"):
        return returned.logits, getattr(returned, CACHE, None)
    return returned, None
