"""Sample run folders, their documents, and a real browser."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from align.core.verdicts import Outcome
from align.report.page_html import page_html
from align.report.write_report import ReportPaths, write_report
from align.runs import run_folder
from align.runs.climb_ladder import evidence_facts
from align.runs.run_folder import RunFolder
from align.runs.rung import JUDGED, Culprit, LadderResult, RungResult, judge_ladder, rungs

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

# Collects what fails, and writes what `tried` returns into the page.
PROBE = """<script>
const faults = [];
addEventListener("error", (event) => faults.push(event.message), true);
addEventListener("unhandledrejection", (event) => faults.push(String(event.reason)));
addEventListener("load", async () => {
  const found = await tried();
  const probe = document.createElement("pre");
  probe.id = "probe";
  probe.textContent = JSON.stringify({...found, faults,
    wide: document.documentElement.scrollWidth - innerWidth,
    loaded: performance.getEntriesByType("resource").length});
  document.body.append(probe);
});
"""


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
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=True)
        return done.stdout, done.stderr

    return browse


@pytest.fixture
def probe(browse, tmp_path):
    """Open a page with a script in it, and return what that found; the page must not have failed in any way."""

    def probe(page, script, *flags):
        path = tmp_path / "probed.html"
        path.write_text(page.replace("<head>", "<head>" + PROBE + script, 1), encoding="utf-8")
        dom, said = browse(path, "--dump-dom", *flags)
        found = json.loads(re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL).group(1).replace("&gt;", ">"))
        assert found.pop("faults") == []
        assert found.pop("loaded") == 0
        assert found.pop("wide") <= 0, "the page scrolls sideways"
        assert not [line for line in said.splitlines() if "CONSOLE" in line]
        return found

    return probe


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


COMMAND = ("align forward zoo.resnet:build ports.resnet:build --run run",)
KINDS = {"parameters": "map", "weights": "convert", "forward": "forward", "gradients": "step", "optimizer": "step"}
MANY = 5000


def climb(folder: RunFolder, **states: RungResult) -> LadderResult:
    """A ladder over the results of a folder, each judged by its rung; `states` are put in the place of some."""
    found = []
    for rung in rungs():
        kind = KINDS.get(rung.name)
        document = folder.read(kind) if kind else None
        if rung.name in states:
            found.append(replace(states[rung.name], name=rung.name))
        elif kind and document:
            judged = rung.judge(document)
            evidence = evidence_facts(folder.path, [folder.file(kind)])
            state = JUDGED[Outcome(judged.outcome)]
            shown = RungResult(rung.name, state, judged.reason, True, kind, COMMAND, judged.culprits, evidence=evidence)
            found.append(shown)
        elif rung.name in ("data", "metric"):
            found.append(RungResult(rung.name, "not available", "no data", asked=False, settle='data = "file"'))
    ladder = LadderResult("run", tuple(found), judge_ladder(found))
    folder.write(ladder, {})
    return ladder


@pytest.fixture(scope="session")
def faulty(samples: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was climbed and failed, with two layers that could not be compared, and curves beside the ladder."""
    folder = RunFolder(samples.write_sample_run(tmp_path_factory.mktemp("faulty") / "run"))
    unlike = {"outcome": "not comparable", "measurement": None, "limit": None, "factor": None, "isolated": None}
    forward = samples.faulty_forward()
    layers = [replace(one, **unlike) if place in (3, 90) else one for place, one in enumerate(forward.layers)]
    sources = {role: f"{role}.py:build" for role in ("reference", "candidate")}
    folder.write(replace(forward, layers=tuple(layers)), {**sources, "inputs": "inputs.npz", "map": "map.toml"})
    climb(folder)
    return folder


@pytest.fixture(scope="session")
def faulty_page(faulty: RunFolder) -> str:
    return page_html(faulty)


@pytest.fixture
def clean(samples: ModuleType, tmp_path: Path) -> RunFolder:
    """A climbed run of which every rung passed."""
    folder = RunFolder.create(tmp_path / "clean")
    results = samples.sample_map(), samples.sample_conversion(), samples.sample_forward(diverges=False)
    for result in (*results, samples.clean_step()):
        folder.write(result, {"reference": "zoo.resnet:build"})
    climb(folder)
    return folder


@pytest.fixture(scope="session")
def many_layers(samples: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Five thousand layers, one of which is at fault."""
    layers = []
    for place in range(MANY):
        block, own = divmod(place, 50)
        names = f"model.layers.{block}.block.{own}.convolution", f"net.blocks.{block}.cells.{own}.conv"
        one = samples.layer(place, *names, 3e-7 if place < MANY // 2 else 0.02)
        layers.append(replace(one, isolated=samples.alone(one, 0.02 if place == MANY // 2 else 1e-7)))
    culprits = (samples.culprit(layers[MANY // 2], 4540.0, line="port.py:3"),)
    places = {"first_divergent": MANY // 2, "last_aligned": MANY // 2 - 1}
    folder = RunFolder.create(tmp_path_factory.mktemp("many"))
    folder.write(replace(samples.sample_forward(), layers=tuple(layers), culprits=culprits, **places), {})
    return folder
