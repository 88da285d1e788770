"""What is told of one log, also where its global steps are open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.curves.compare_losses import LogReading, compare_losses, describe_log
from align.errors import UnknownEpochLengthError

if TYPE_CHECKING:
    from pathlib import Path

SPARSE = "".join(f"epoch {e} step {s} loss: {3 - e / 2 - s / 100}\n" for e in (1, 2) for s in (10, 20))
SHARES = "".join(f"{{'loss': {2 - n / 4}, 'learning_rate': 0.1, 'epoch': {n / 10}}}\n" for n in (1, 2, 3))


@pytest.mark.parametrize(("text", "steps"), [(SPARSE, (10, 40)), (SHARES, (1, 3))], ids=["epochs", "shares"])
def test_a_log_that_leaves_its_steps_open_is_described_but_not_compared(
    text: str, steps: tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "train.log"
    path.write_text(text, encoding="utf-8")
    summary = describe_log(path)
    assert (summary.first_step, summary.last_step) == steps
    assert (summary.steps_told, summary.steps_per_epoch) == (False, None)
    assert "the global step is not known" in summary.notes[0]
    with pytest.raises(UnknownEpochLengthError):
        compare_losses(path, path)
    settled = describe_log(path, reading=LogReading(steps_per_epoch=100))
    assert settled.steps_told
    assert settled.steps_per_epoch == 100
