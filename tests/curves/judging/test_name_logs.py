"""Commands of `align loss` name the logs that were compared, and what was said of them; other commands do not."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from align.cli.main import main
from align.curves.compare_losses import compare_losses
from align.curves.judging.name_logs import LogsOnCommandLine, name_logs
from align.curves.troubles.loss_troubles import TROUBLES

if TYPE_CHECKING:
    from pathlib import Path

LOGS = LogsOnCommandLine("ref.csv", "my port.log", {"--candidate-base": 0, "--reference-base": None}, {"--preset": "x"})
NAMED = "align loss ref.csv 'my port.log'"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("align loss REFERENCE CANDIDATE --metric lr # why", f"{NAMED} --metric lr --candidate-base 0 # why"),
        ("align loss REFERENCE CANDIDATE --metric lr; then", f"{NAMED} --metric lr --candidate-base 0; then"),
        ("align loss REFERENCE CANDIDATE --candidate-base 1", f"{NAMED} --candidate-base 1 --preset x"),
        ("align loss REFERENCE CANDIDATE without --candidate-base 0", f"{NAMED} --preset x"),
        (
            "align loss REFERENCE CANDIDATE --candidate-window 'mean of last 10' # if",
            f"{NAMED} --candidate-window 'mean of last 10' --candidate-base 0 --preset x # if",
        ),
        (
            "align loss REFERENCE, and align loss CANDIDATE: each",
            "align loss ref.csv, and align loss 'my port.log': each",
        ),
        ("align forward REFERENCE CANDIDATE", "align forward REFERENCE CANDIDATE"),
    ],
)
def test_logs_stand_where_the_words_stood(said: str, named: str) -> None:
    assert name_logs(said, LOGS) == named
    assert name_logs(said, LOGS._replace(candidate="")) == said


@pytest.mark.parametrize("said", [one.next_command for one in TROUBLES])
def test_no_command_keeps_a_word_where_a_log_belongs(said: str) -> None:
    assert "align loss REFERENCE" not in name_logs(said, LOGS)


def test_a_wrong_learning_rate_is_found_by_the_command_as_it_stands(tmp_path: Path) -> None:
    paths = tmp_path / "the reference.csv", tmp_path / "port.csv"
    for path, rate in zip(paths, (0.1, 0.01), strict=True):
        losses = ((n, 3.0 / (1.0 + rate * n), rate) for n in range(60))
        path.write_text("step,loss,lr\n" + "".join(f"{n},{loss},{lr}\n" for n, loss, lr in losses))
    command = compare_losses(*paths).next_command
    words = shlex.split(command, comments=True)
    assert words[:2] == ["align", "loss"]
    assert main(words[1:]) == 1
    assert main(["loss", *map(str, paths[:1] * 2), *words[4:]]) == 0
