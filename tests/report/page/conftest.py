"""Run folders with a ladder, and pages of them, made without any framework."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from align.core.verdicts import Outcome
from align.report.page.page_html import page_html
from align.runs.evidence import evidence_facts
from align.runs.ladder_result import JUDGED, LadderResult, RungResult, judge_ladder
from align.runs.run_folder import RunFolder
from align.runs.rung import rungs

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

COMMAND = ("align forward zoo.resnet:build ports.resnet:build --run run",)
KINDS = {"parameters": "map", "weights": "convert", "forward": "forward", "gradients": "step", "optimizer": "step"}
MANY = 5000


def climbed(folder: RunFolder, **states: RungResult) -> LadderResult:
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
    climbed(folder)
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
    climbed(folder)
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
