"""Commands of `align loss` name the logs that were compared, and what was said of them; other commands do not."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import numpy as np
import pytest

from align.cli.main import main
from align.core.documents import to_json_data
from align.curves.classify_trouble import TROUBLES, Trouble
from align.curves.compare_losses import compare_losses
from align.curves.event_rules import CurveEvidence
from align.curves.loss_log import PairedCurves
from align.curves.other_axis import LogsOnCommandLine, compare_logs, describe_log, name_logs, without_option
from align.words.catalogue import in_language, joined, sentence

if TYPE_CHECKING:
    from pathlib import Path

LOGS = LogsOnCommandLine("ref.csv", "my port.log", {"--candidate-base": 0, "--reference-base": None}, {"--preset": "x"})
STEPS = np.arange(1, 4)
EVIDENCE = CurveEvidence(
    metric="loss",
    pairs=PairedCurves(STEPS, STEPS * 1.0, STEPS * 2.0, STEPS * 0.0, 0, 0),
    outside=STEPS[:0],
    failed=frozenset(),
    divergent=2,
    first_compared=True,
    first_agrees=True,
    shift_option="--candidate-base 0",
    update_behind="candidate",
    last_common=3,
    steps_per="--steps-per 2:1",
    window="--candidate-window 'mean of last 10'",
)
NAMED = "align loss ref.csv 'my port.log'"


@pytest.mark.parametrize(
    ("said", "named"),
    [
        (compare_logs("--metric lr"), f"{NAMED} --metric lr --candidate-base 0"),
        (compare_logs("--candidate-base 1"), f"{NAMED} --candidate-base 1 --preset x"),
        (compare_logs(without_option("--candidate-base")), f"{NAMED} --preset x"),
        (
            compare_logs("--candidate-window 'mean of last 10'"),
            f"{NAMED} --candidate-window 'mean of last 10' --candidate-base 0 --preset x",
        ),
        (
            sentence("loss_next.gaps", reference=describe_log("reference"), candidate=describe_log("candidate")),
            "align loss ref.csv, and align loss 'my port.log': each lists the gaps of its log",
        ),
        ("align forward REFERENCE CANDIDATE", "align forward REFERENCE CANDIDATE"),
    ],
)
def test_logs_stand_where_the_words_stood(said: str, named: str) -> None:
    assert name_logs(said, LOGS) == named
    assert name_logs(said, LOGS._replace(candidate="")) == said


@pytest.mark.parametrize("trouble", TROUBLES[:-1], ids=lambda one: one.name)
def test_no_command_keeps_a_word_where_a_log_belongs(trouble: Trouble) -> None:
    said = joined("; ", trouble.next_commands(EVIDENCE, 2))
    assert "align " in said
    assert "align loss REFERENCE" not in (named := name_logs(said, LOGS))
    assert in_language(to_json_data({"a": named})["a_from"], "en") == named


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
