"""Sample run folders, their documents, and a real browser."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.report.write_report import ReportPaths, write_report
from align.runs import run_folder
from align.runs.evidence import evidence_facts
from align.runs.ladder_result import LadderResult, RungResult, judge_ladder
from align.runs.run_folder import RunFolder
from align.runs.rung import Culprit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "\x1b[31m]]> <b>bad & worse</b> | `tick` @somebody #7 LONE"
HINT = "no Chromium found: apt-get update && apt-get install -y chromium"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
)


def _load_samples() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sample_runs", Path(__file__).with_name("sample_runs.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sample_runs"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    return _load_samples()


@pytest.fixture
def document() -> Callable[[Any], dict[str, Any]]:
    """Turn a result into the document that a run folder gives back."""

    def through_json(result: Any) -> dict[str, Any]:
        text = json.dumps(run_folder.as_document(result, {"reference": "zoo.resnet:build"}), allow_nan=False)
        return json.loads(text)

    return through_json


@pytest.fixture(scope="session")
def reported(samples: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> ReportPaths:
    """A whole run that is not aligned, with its report."""
    return write_report(samples.write_sample_run(tmp_path_factory.mktemp("run")))


@pytest.fixture
def browse(tmp_path: Path) -> Callable[..., str]:
    """Open a page in a real browser: returns its DOM after loading, or with `extra` flags what those print."""

    def browse(page: Path, *extra: str) -> tuple[str, str]:
        browser = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
        assert browser is not None, HINT
        profile = tmp_path / "profile"
        arguments = [browser, *FLAGS, f"--user-data-dir={profile}", *(extra or ("--dump-dom",)), page.as_uri()]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout, done.stderr

    return browse


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
