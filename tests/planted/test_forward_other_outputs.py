"""Outputs that are no tensors: arrays, numbers, texts, objects and caches are compared, or said to be left out."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.core.verdicts import Outcome
from align.models.record_calls import taken_apart

if TYPE_CHECKING:
    from collections.abc import Callable

    from align.forward.forward_result import ForwardComparison

pytestmark = pytest.mark.frameworks

X = {"x": np.random.default_rng(0).standard_normal((2, 6, 8)).astype(np.float32)}
Wrap = "Callable[[Any], Any]"


class Result:
    """What a detector returns."""

    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


class KeyValueCache:
    """A cache of keys and values of a layer each, with settings of its own."""

    def __init__(self, *pairs: Any, size: int = 7) -> None:
        self.layers = [Result(keys=keys, values=values, size=size) for keys, values in pairs]
        self.size = size


class Settings:
    """Nothing that could be compared."""


def sides(mine: Callable[[Any], Any], theirs: Callable[[Any], Any]) -> tuple[Any, Any]:
    """A dense layer on both sides, of whose output each makes what it returns."""
    import torch
    from mindspore import nn as mnn
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            return mine(self.fc(x))

    class Port(mnn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = mnn.Dense(8, 5)

        def construct(self, x: Any) -> Any:
            return theirs(self.fc(x))

    torch.manual_seed(0)
    reference, port = Net(), align.open_side(Port())
    port.reader.load_values(port.model, {name: value.numpy() for name, value in reference.state_dict().items()})
    return reference, port


def compare(mine: Callable[[Any], Any], theirs: Callable[[Any], Any]) -> ForwardComparison:
    return align.compare_forward(*sides(mine, theirs), inputs=X)


def values(y: Any) -> Any:
    return (y.detach() if hasattr(y, "detach") else y).numpy() if hasattr(y, "numpy") else y.asnumpy()


def taken(value: Any) -> list[tuple[str, bytes]]:
    return [(one.name, one.array.tobytes()) for one in taken_apart(value, lambda _: None, "float32").found]


def array(scale: float = 1.0) -> Any:
    return lambda y: {"logits": y, "boxes": values(y) * np.float32(scale)}


def number(scale: float = 1.0) -> Any:
    return lambda y: {"logits": y, "score": float(y.sum()) * scale / 3, "found": 3, "whole": True}


def numbers(step: int = 0) -> Any:
    return lambda y: {"logits": y, "ids": (values(y).argmax(-1) + step).tolist()}


def text(word: str = "cat") -> Any:
    return lambda y: (y, {"label": word})


class Label(Enum):
    CAT = 1
    DOG = 2


def raw(word: bytes = b"cat") -> Any:
    return lambda y: {"logits": y, "raw": word}


def member(label: Label = Label.CAT) -> Any:
    return lambda y: {"logits": y, "label": label}


def names(word: str = "cat") -> Any:
    return lambda y: {"logits": y, "names": np.array(["cow", word])}


def chosen(last: int = 3) -> Any:
    return lambda y: {"logits": y, "chosen": {1, 2, last}}


def words(word: str = "cat") -> Any:
    return lambda y: {"logits": y, "words": {"cow", word}}


def counted(end: int = 4) -> Any:
    return lambda y: {"logits": y, "counted": range(end)}


def held(scale: float = 1.0) -> Any:
    return lambda y: (y, Result(mask=y > 0, boxes=y * scale, name="box"))


def cached(scale: float = 1.0, size: int = 7) -> Any:
    return lambda y: {"logits": y, "past": KeyValueCache((y * 2, y * 3), (y * scale, y), size=size)}


KINDS: list[tuple[Any, Any, str]] = [
    (array, 5.0, "boxes"),
    (number, 1.01, "score"),
    (numbers, 1, "ids"),
    (text, "dog", "1.label"),
    (text, "a dog", "1.label"),
    (raw, b"dog", "raw"),
    (member, Label.DOG, "label"),
    (names, "dog", "names"),
    (chosen, 4, "chosen"),
    (words, "dog", "words"),
    (counted, 5, "counted"),
    (held, 7.0, "1.boxes"),
    (cached, 2.0, "past.layers.1.keys"),
]


@pytest.mark.parametrize(("make", "fault", "place"), KINDS)
def test_a_fault_in_an_output_that_is_no_tensor_is_found(make: Any, fault: Any, place: str) -> None:
    result = compare(make(), make(fault))
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert [row.output for row in result.layers if row.outcome == "not aligned"] == [place]


@pytest.mark.parametrize("make", [array, number, numbers, text, held, cached])
def test_equal_outputs_that_are_no_tensors_are_aligned(make: Any) -> None:
    result = compare(make(), make())
    assert result.verdict.outcome is Outcome.ALIGNED, result.verdict.reason
    assert not [one for one in result.findings if one.code == "outputs-left-out"]


def test_texts_are_told_as_texts() -> None:
    notes = {row.output: row.note for row in compare(text(), text("a dog")).layers}
    assert notes["1.label"] == '"cat" against "a dog"'


def test_what_a_cache_keeps_beside_its_tensors_is_nobodys_fault() -> None:
    assert compare(cached(), cached(size=9)).verdict.outcome is Outcome.ALIGNED


def left_out(result: ForwardComparison) -> dict[str, str]:
    return {one.subject: one.message for one in result.findings if one.code == "outputs-left-out"}


def test_what_cannot_be_compared_is_listed_by_kind_and_place() -> None:
    result = compare(lambda y: {"logits": y, "cfg": Settings()}, lambda y: {"logits": y, "cfg": Settings()})
    assert result.verdict.outcome is Outcome.ALIGNED
    said = "left out of the comparison: outputs.cfg (a Settings object)"
    assert left_out(result) == {"Net": said, "Port": said}


def test_a_number_that_one_side_lacks_is_listed_and_the_rest_is_compared() -> None:
    result = compare(number(), lambda y: {"logits": y})
    assert result.verdict.outcome is Outcome.ALIGNED
    assert left_out(result) == {
        "Net": "left out of the comparison: outputs.score (a number, which the other side lacks), "
        "outputs.found (a number, which the other side lacks), outputs.whole (a number, which the other side lacks)"
    }
    assert compare(number(), lambda y: {"logits": y * 2}).verdict.outcome is Outcome.NOT_ALIGNED


def also(**more: Any) -> Any:
    return lambda y: {"logits": y, **more}


LACKS: dict[str, tuple[Any, Any, str]] = {
    "a text of a list": (also(t=["a", "b"]), also(t=["a", "b", "c"]), "outputs.t.2 (a text, beyond the end of"),
    "all of a list": (also(ids=[1, 2]), also(ids=[]), "outputs.ids (a number, which has another form on the other"),
    "a sequence": (also(ids=[[1, 2], [4]]), also(ids=[[1, 2], [4], [5, 6]]), "outputs.ids.2 (a number, beyond"),
    "an even list": (
        also(r=[[1, 2], [3]]),
        also(r=[[1, 2], [3, 3]]),
        "outputs.r.0 (a number, where the other side returns something else)",
    ),
    "None for a number": (also(loss=0.5), also(loss=None), "outputs.loss (a number, which is None on the other"),
    "None for a text": (lambda y: (y, "cat"), lambda y: (y, None), "outputs.1 (a text, which is None on the other"),
    "None for a list": (also(t=["a", "b"]), also(t=None), "outputs.t.0 (a text, which is None on the other"),
    "None for an object": (also(o=Result(n=3)), also(o=None), "outputs.o.n (an attribute, which is None"),
    "a number of a tuple": (
        lambda y: (y, 3),
        lambda y: y,
        "outputs.1 (a number, where the other side returns something else)",
    ),
    "a key of a dict in a list": (also(a=[{"n": 1}]), also(a=[]), "outputs.a.0.n (a number, beyond the end"),
}


@pytest.mark.parametrize(("mine", "theirs", "said"), LACKS.values(), ids=LACKS.keys())
def test_what_lacks_in_a_list_or_under_a_key_of_both_is_a_difference(mine: Any, theirs: Any, said: str) -> None:
    result = compare(mine, theirs)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert said in " ".join(one.message for one in result.findings if one.code == "outputs-lacking")


@pytest.mark.parametrize("make", [pair[1] for pair in LACKS.values()])
def test_lists_and_none_that_both_return_are_aligned(make: Any) -> None:
    assert compare(make, make).verdict.outcome is Outcome.ALIGNED


MORE: dict[str, tuple[Any, Any]] = {
    "a key": (also(n=3), also()),
    "a key with a list": (also(t=["a", "b"]), also()),
    "a key of a dict inside": (also(a={"n": 1, "m": 2}), also(a={"n": 1})),
    "a key that is a number": (lambda y: {0: y, 1: 3}, lambda y: {0: y}),
    "an attribute": (lambda y: Result(y=y, n=3), lambda y: Result(y=y)),
    "a key of a dict against a tuple": (also(n=3), lambda y: (y,)),
    "a key of a dict against a tensor": (also(n=3), lambda y: y),
    "a cache against None": (cached(), also(past=None)),
    "a cache against nothing": (lambda y: (y, KeyValueCache((y, y))), lambda y: y),
}


@pytest.mark.parametrize(("mine", "theirs"), MORE.values(), ids=MORE.keys())
def test_keys_and_attributes_that_the_other_object_has_not_are_told_only(mine: Any, theirs: Any) -> None:
    result = compare(theirs, mine)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert ", which the other side lacks)" in left_out(result)["Port"]


@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: [1, n], lambda n: {n}, lambda n: [[n, 1], [2, 3]]])
def test_whole_numbers_of_any_size_are_compared_digit_by_digit(wrap: Any) -> None:
    for number in (2**63, 2**64 - 1, 2**70, -(2**70), 10**5000):
        assert taken(wrap(number)) == taken(wrap(number))
        assert taken(wrap(number)) != taken(wrap(number + 1))


def test_a_last_digit_of_a_whole_number_is_a_difference() -> None:
    found = compare(also(n=2**70), also(n=2**70 + 1))
    assert [row.output for row in found.layers if row.outcome == "not aligned"] == ["n"]
    assert compare(also(n=2**70), also(n=2**70)).verdict.outcome is Outcome.ALIGNED


def test_an_array_that_one_side_lacks_is_not_passed_over() -> None:
    assert compare(array(), lambda y: {"logits": y}).verdict.outcome is Outcome.NOT_COMPARED


def test_none_in_the_place_of_a_tensor_is_told() -> None:
    result = compare(lambda y: {"logits": y, "aux": y * 2}, lambda y: {"logits": y, "aux": None})
    assert result.verdict.outcome is Outcome.NOT_COMPARED
    assert left_out(result) == {"Port": "left out of the comparison: outputs.aux (None)"}


def test_none_on_both_sides_needs_no_word() -> None:
    result = compare(lambda y: (y, None), lambda y: (y, None))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert left_out(result) == {}


def test_captured_folders_are_compared_by_the_same_parts(tmp_path: Any) -> None:
    from align.forward.compare_trace_folders import compare_trace_folders
    from align.traces.capture_trace import capture_trace

    makes = {"own": (number(), number()), "bad": (number(), number(1.01)), "less": (number(), lambda y: {"logits": y})}
    makes["short"] = also(t=["a", "b"]), also(t=["a"])
    outcomes = {}
    for name, pair in makes.items():
        for place, side in zip(("a", "b"), sides(*pair), strict=True):
            capture_trace(side, tmp_path / name / place, inputs=X)
        outcomes[name] = compare_trace_folders(tmp_path / name / "a", tmp_path / name / "b")
    assert [one.verdict.outcome.value for one in outcomes.values()] == [
        *("aligned", "not aligned", "aligned", "not aligned")
    ]
    assert "outputs.score" in next(iter(left_out(outcomes["less"]).values()))


def test_arrays_between_modules_are_compared_and_given_back_as_arrays() -> None:
    import torch
    from torch import nn

    def net(scale: float) -> Any:
        class Post(nn.Module):
            def forward(self, y: Any) -> Any:
                return y.detach().numpy() * np.float32(scale), "a word of an inner module"

        class Net(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc, self.post, self.head = nn.Linear(8, 5), Post(), nn.Linear(5, 3)

            def forward(self, x: Any) -> Any:
                found, _ = self.post(self.fc(x))
                assert isinstance(found, np.ndarray)
                return self.head(torch.from_numpy(found))

        torch.manual_seed(0)
        return Net()

    assert align.compare_forward(net(1.0), net(1.0), inputs=X).verdict.outcome is Outcome.ALIGNED
    result = align.compare_forward(net(1.0), net(1.1), inputs=X)
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert [one.candidate for one in result.culprits] == ["post"]
