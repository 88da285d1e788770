"""What `--tensors` keeps: by path, and of each tensor the same elements in every trace."""

from __future__ import annotations

import numpy as np
import pytest

from align.core.traces import Capture, KeptValues
from align.errors import UsageError
from align.traces import trace_folder as kept_elements
from align.traces.trace_folder import keep_part, kept_places, read_kept

VALUE = np.arange(24.0).reshape(2, 3, 4)


def of(module: str) -> Capture:
    return Capture(0, module, 0, "", "Linear", VALUE.shape, "float64")


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["all"], KeptValues()),
        (["none"], KeptValues(())),
        (["first:7"], KeptValues(elements=7)),
        (["sample:7", "all"], KeptValues(elements=7, sampled=True)),
        (["layers.*", "head", "first:7"], KeptValues(("layers.*", "head"), 7)),
    ],
)
def test_words_say_what_is_kept(words: list[str], kept: KeptValues) -> None:
    assert read_kept(words) == kept


@pytest.mark.parametrize(
    "words", [["first:0"], ["last:3"], ["first:3", "sample:3"], ["none", "all"], ["none", "x.*"], ["none", "first:3"]]
)
def test_words_that_do_not_go_together_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match="cannot keep the tensors"):
        read_kept(words)


def test_globs_choose_modules_and_the_models_own_output_stays() -> None:
    kept = KeptValues(("layers.*.fc",))
    assert [keep_part(kept, of(path), VALUE) is not None for path in ("layers.3.fc", "layers.3", "")] == [
        True,
        False,
        True,
    ]
    assert keep_part(KeptValues(()), of(""), VALUE) is None


def test_a_part_lies_flat_in_c_order_and_a_small_tensor_stays_whole() -> None:
    part = keep_part(KeptValues(elements=3), of("fc"), VALUE.transpose(2, 1, 0))
    assert part is not None
    assert part.tolist() == [0, 12, 4]
    assert keep_part(KeptValues(elements=24), of("fc"), VALUE) is VALUE


@pytest.mark.parametrize("largest", [kept_elements.LARGEST_SHUFFLED, 1])
def test_a_sample_is_drawn_alike_for_all_tensors_of_a_size(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_elements, "LARGEST_SHUFFLED", largest)
    places = kept_places(KeptValues(elements=50, sampled=True), 10_000 + largest % 7)
    assert places is not None
    assert 45 <= len(places) <= 50
    assert (np.diff(places) > 0).all()
    assert places.max() > 5_000
