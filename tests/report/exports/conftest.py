"""Run folders as a climb leaves them."""

from __future__ import annotations

import pytest

from align.runs.evidence import evidence_facts
from align.runs.ladder_result import LadderResult, RungResult, judge_ladder
from align.runs.run_folder import RunFolder
from align.runs.rung import Culprit

HOSTILE = "\x1b[31m]]> <b>bad & worse</b> | `tick` @somebody #7 LONE"


@pytest.fixture
def climbed(samples, tmp_path):
    """A folder in which forward failed, and one rung in each other state."""
    folder = RunFolder(samples.write_sample_run(tmp_path / "run", ("map", "forward", "loss")))
    culprits = (
        *(
            Culprit(f"layers.{place}.norm", "norm-eps", "port.py:7", "nn.LayerNorm(8, epsilon=1e-5)")
            for place in range(4)
        ),
        Culprit("head|`er`", HOSTILE, "", "x" * 5000),
    )
    rungs = (
        RungResult("environment", "not run", asked=False, kind="doctor"),
        RungResult("parameters", "passed", "all decided", kind="map", seconds=1.25, evidence=facts(folder, "map")),
        RungResult("weights", "could not compare", HOSTILE, kind="convert", seconds=0.5),
        RungResult("data", "not available", "no data", asked=False),
        RungResult("forward", "failed", "5 differ", True, "forward", ("align forward a b",), culprits, seconds=2.0,
                   evidence=facts(folder, "forward")),
        RungResult("gradients", "blocked", "forward must pass first", kind="step", blocked_by="forward"),
        RungResult("curve", "stale", "the logs have changed", kind="loss", evidence=facts(folder, "loss")),
    )  # fmt: skip
    written = folder.write(LadderResult("run", rungs, judge_ladder(rungs)), {})
    text = written.read_text(encoding="utf-8").replace("LONE", "\\ud83d")  # half a character, which JSON can name
    written.write_text(text, encoding="utf-8")
    return folder


def facts(folder, kind):
    return evidence_facts(folder.path, [folder.file(kind)])
