"""Ranks of one training, with real processes of torch's gloo, and with folders made by one process a rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from align import compare_ranks, open_run
from align.cli.main import main
from align.core.verdicts import Outcome
from align.errors import UsageError

TRAINING = """
import os

import numpy as np
import torch
from torch import distributed, nn

RANK, WORLD, STORE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["STORE"]


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def connect():
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", init_method=f"file://{STORE}", rank=RANK, world_size=WORLD)


def reduced():
    connect()
    wrapped = nn.parallel.DistributedDataParallel(model())
    return wrapped, nn.CrossEntropyLoss(), torch.optim.SGD(wrapped.parameters(), 0.1)


def summed():
    connect()
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(batch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(batch["x"]), batch["label"])
        loss.backward()
        for parameter in net.parameters():
            distributed.all_reduce(parameter.grad)
        optimizer.step()
        return loss

    return {"model": net, "optimizer": optimizer, "step": step}


def batch():
    generator = np.random.default_rng(RANK)
    return {"x": generator.normal(size=(4, 6)).astype(np.float32), "label": generator.integers(0, 3, 4)}
"""


def captured(tmp_path, factory, world):
    """The folders of all ranks, each captured by a process of its own."""
    (tmp_path / "train.py").write_text(TRAINING)
    own = {"WORLD_SIZE": str(world), "STORE": str(tmp_path / "store"), "OMP_NUM_THREADS": "1"}
    command = "import sys; from align.cli.main import main; sys.exit(main())"
    running = []
    for rank in range(world):
        options = ["--step", f"train.py:{factory}", "--batch", "train.py:batch", "--steps", "1", "--out", f"rank{rank}"]
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", command, "capture", *options],
                cwd=tmp_path,
                env=os.environ | own | {"RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        )
    for process in running:
        _, said = process.communicate(timeout=240)
        assert process.returncode == 0, said.decode()
    return [str(tmp_path / f"rank{rank}") for rank in range(world)]


def codes(result, severity="error"):
    return [finding.code for finding in result.findings if finding.severity == severity]


@pytest.mark.frameworks
def test_four_ranks_get_the_mean_of_their_gradients(tmp_path, capsys):
    folders = captured(tmp_path, "reduced", 4)
    result = compare_ranks(folders)
    assert (result.verdict.outcome, codes(result)) == (Outcome.ALIGNED, [])
    assert result.factor == pytest.approx(1, abs=1e-5)
    assert codes(result, "warning") == ["statistics-by-rank"]
    assert main(["ranks", *folders, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"][3]["samples"] == 4


@pytest.mark.frameworks
def test_a_sum_in_place_of_the_mean_is_named_with_its_factor(tmp_path):
    result = compare_ranks(captured(tmp_path, "summed", 2))
    assert codes(result) == ["gradients-not-mean"]
    assert result.factor == pytest.approx(2, abs=1e-5)
    assert "divide by 2" in result.verdict.reason


ONE_PROCESS = """
import numpy as np


def torch_training(seed=0):
    import torch
    from torch import nn

    torch.manual_seed(seed)
    net = nn.Linear(4, 3)
    return net, nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), 0.1)


def other_start():
    return torch_training(1)


def mindspore_training():
    import mindspore
    from mindspore import Tensor, nn

    generator = np.random.default_rng(0)
    net = nn.Dense(4, 3, weight_init=Tensor(generator.normal(size=(3, 4)).astype(np.float32)), bias_init="zeros")
    return net, nn.CrossEntropyLoss(), nn.SGD(net.trainable_params(), 0.1)


def other_model():
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    return net, nn.CrossEntropyLoss(), torch.optim.SGD(net.parameters(), 0.1)
"""


@pytest.fixture
def capture(tmp_path, monkeypatch, capsys):
    """Capture a rank in this process: nothing reduces its gradients."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alone.py").write_text(ONE_PROCESS)

    def capture(name, factory, *, seed, samples=4):
        generator = np.random.default_rng(seed)
        x = np.random.default_rng(7).normal(size=(1, 4)).astype(np.float32)
        x = np.concatenate([x, generator.normal(size=(samples - 1, 4)).astype(np.float32)])
        np.savez(f"{name}.npz", x=x, label=np.arange(samples, dtype=np.int32) % 3)
        options = ["--batch", f"{name}.npz", "--steps", "1", "--out", name, "--overwrite"]
        assert main(["capture", "--step", f"alone.py:{factory}", *options]) == 0
        capsys.readouterr()
        return name

    return capture


@pytest.mark.frameworks
def test_what_ranks_must_not_share_and_must_share_is_named(capture, capsys):
    first = capture("rank0", "torch_training", seed=0)
    result = compare_ranks([first, capture("rank1", "torch_training", seed=1)])
    assert codes(result) == ["same-samples", "gradients-not-reduced"]  # the first sample is one
    assert "1 sample is read by several ranks" in result.verdict.reason
    result = compare_ranks([first, capture("rank1", "torch_training", seed=0)])
    assert codes(result) == ["same-samples"]
    assert "all ranks read the same samples" in result.verdict.reason
    result = compare_ranks([first, capture("rank1", "other_start", seed=1, samples=5)])
    assert codes(result) == ["initial-values-differ", "same-samples", "gradients-not-reduced"]
    assert codes(result, "warning") == ["batch-sizes"]
    assert main(["ranks", "rank0", "rank1", "--run", "run"]) == 1
    assert "rank0 against rank1" in open_run("run").beside()._repr_html_()
    assert "begin from other values on rank1" in capsys.readouterr().out.replace("\n", " ")
    with pytest.raises(UsageError, match="is of another model"):
        compare_ranks([first, capture("rank1", "other_model", seed=1)])


@pytest.mark.frameworks
def test_ranks_that_share_data_two_by_two_do_not_all_read_the_same(capture):
    folders = [capture(f"rank{rank}", "torch_training", seed=rank // 2) for rank in range(4)]
    (shared, *_) = compare_ranks(folders).findings
    assert (shared.code, shared.message.count("all ranks")) == ("same-samples", 0)
    assert "7 samples are read by several ranks" in shared.message


@pytest.mark.frameworks
def test_ranks_of_mindspore_without_a_reducer(capture):
    folders = [capture(f"rank{rank}", "mindspore_training", seed=rank) for rank in range(2)]
    assert "gradients-not-reduced" in codes(compare_ranks(folders))


def test_one_folder_and_folders_without_steps_are_refused(tmp_path, capsys):
    assert main(["ranks", str(tmp_path)]) == 2
    assert main(["ranks", str(tmp_path), str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "1 folder is given" in said
    assert "Traceback" not in said
