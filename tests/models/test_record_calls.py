"""How models are called with named arrays, and how what they return is taken apart, for every framework."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from align.errors import DestinationError, InputsError, ModelFailedError
from align.models.record_calls import CallRecorder, bind_inputs, leaves, run_user_model, with_leaves

X, Y = np.ones(2), np.zeros(3)


class Sink:
    def __init__(self) -> None:
        self.keys: list[str] = []
        self.depths: list[int] = []

    def add(self, capture: Any, value: Any) -> None:
        self.keys.append(capture.key)
        self.depths.append(capture.depth)


def as_array(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else None


def recorder() -> tuple[CallRecorder, Sink]:
    sink = Sink()
    return CallRecorder(sink, as_array, lambda value, like: value), sink


def test_inputs_go_by_keyword_where_the_signature_has_all_names() -> None:
    def forward(pixels, mask=None, *, scale=1.0): ...  # type: ignore[no-untyped-def]

    assert bind_inputs(forward, {"scale": X, "pixels": Y}) == ((), {"scale": X, "pixels": Y})


def test_inputs_of_other_names_go_by_position_in_their_order() -> None:
    def construct(x, y): ...  # type: ignore[no-untyped-def]

    assert bind_inputs(construct, {"pixels": X, "mask": Y}) == ((X, Y), {})
    assert bind_inputs(lambda *args: args, {"pixels": X}) == ((X,), {})


def test_a_position_only_parameter_is_not_given_by_keyword() -> None:
    def forward(x, /): ...  # type: ignore[no-untyped-def]

    assert bind_inputs(forward, {"x": X}) == ((X,), {})


def test_a_wrapper_that_passes_keywords_on_gets_keywords() -> None:
    assert bind_inputs(lambda **kwargs: kwargs, {"x": X, "y": Y}) == ((), {"x": X, "y": Y})
    assert bind_inputs(lambda *args, **kwargs: args, {"x": X}) == ((X,), {})


def test_an_input_never_lands_on_another_parameter_than_its_own() -> None:
    def forward(ids, mask): ...  # type: ignore[no-untyped-def]

    with pytest.raises(InputsError, match="takes ids, mask; by position it would get mask as ids"):
        bind_inputs(forward, {"mask": X, "tokens": Y})
    assert bind_inputs(forward, {"ids": X, "attention": Y}) == ((X, Y), {})


Pair = namedtuple("Pair", "first second")


@dataclass
class Output:
    logits: Any
    hidden: Any = None


@pytest.mark.parametrize(
    ("value", "names"),
    [
        (X, [""]),
        ((X, Y), ["0", "1"]),
        ([X, (Y, X)], ["0", "1.0", "1.1"]),
        ({"logits": X, "cache": [Y]}, ["logits", "cache.0"]),
        (OrderedDict(b=X, a=Y), ["b", "a"]),
        (Pair(X, Y), ["0", "1"]),
        (Output(X, (Y, Y)), ["logits", "hidden.0", "hidden.1"]),
        ((None, X), ["0", "1"]),
        ((), []),
    ],
)
def test_outputs_are_taken_apart_into_named_leaves(value: Any, names: list[str]) -> None:
    assert [name for name, _ in leaves(value)] == names


def test_a_class_is_no_container() -> None:
    assert list(leaves(Output)) == [("", Output)]


def test_every_tensor_of_every_call_is_passed_on_and_nothing_else() -> None:
    record, sink = recorder()
    for _ in range(2):
        record.begin("")
        record.begin("fc")
        record.end("fc", "Linear", (X, None, 3.0, {"k": Y}))
        record.end("", "Net", X)
    assert sink.keys == ["fc#0:0", "fc#0:3.k", "#0", "fc#1:0", "fc#1:3.k", "#1"]
    assert sink.depths == [1, 1, 0, 1, 1, 0]


def test_a_call_without_tensors_counts_as_a_call() -> None:
    record, sink = recorder()
    for output in (None, X):
        record.begin("fc")
        record.end("fc", "Linear", output)
    assert sink.keys == ["fc#1"]


def test_a_module_that_raised_and_was_caught_by_the_model_leaves_no_trace() -> None:
    record, sink = recorder()
    record.begin("")
    record.begin("attempt")
    record.begin("attempt.inner")
    record.begin("fallback")
    record.end("fallback", "Linear", X)
    record.end("", "Net", X)
    assert sink.keys == ["fallback#0", "#0"]
    assert sink.depths[-1] == 0
    assert record.running is None


def failing(error: BaseException) -> None:
    record, _ = recorder()
    record.begin("")
    record.begin("encoder.fc")

    def call() -> None:
        raise error

    run_user_model(call, record, {"x": X.astype(np.float32)}, "torch")


def test_what_the_model_raises_names_the_layer_and_the_inputs() -> None:
    with pytest.raises(
        ModelFailedError,
        match=r"in layer 'encoder\.fc' at .*_calls\.py:\d+ on inputs x float32\[2\], failed: ValueError: no",
    ):
        failing(ValueError("no"))


def test_what_the_sink_raises_is_not_blamed_on_the_model() -> None:
    with pytest.raises(DestinationError):
        failing(DestinationError("the disk is full"))


def test_an_interrupt_passes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        failing(KeyboardInterrupt())


def test_a_model_that_leaves_the_program_has_failed() -> None:
    with pytest.raises(ModelFailedError, match=r"it ends the program: sys\.exit\(3\)"):
        failing(SystemExit(3))


def test_leaves_are_replaced_in_copies_of_all_their_containers() -> None:
    Pair = namedtuple("Pair", "left right")
    value = {"a": [1, (2,)], "b": Pair(3, OrderedDict(c=4))}
    made = with_leaves(value, lambda name, leaf: f"{name}={leaf}")
    assert made == {"a": ["a.0=1", ("a.1.0=2",)], "b": Pair("b.0=3", OrderedDict(c="b.1.c=4"))}
    assert value == {"a": [1, (2,)], "b": Pair(3, OrderedDict(c=4))}


def test_leaves_of_a_dataclass_are_replaced_in_a_copy() -> None:
    @dataclass(frozen=True)
    class Output:
        logits: int

    output = Output(1)
    assert with_leaves(output, lambda _, leaf: leaf + 1) == Output(2)
    assert output == Output(1)
