"""Real loaders on both sides: `torch.utils.data` against `mindspore.dataset`, and batches captured on the way."""

from __future__ import annotations

import json
import multiprocessing

import numpy as np
import pytest

import align
from align import compare_data
from align.cli.main import main
from align.core.verdicts import Outcome

SIDES = """
import numpy as np

RAW = (np.kron(np.random.default_rng(0).random((24, 5, 5, 3)), np.ones((1, 4, 4, 1))) * 255).astype(np.uint8)
LABELS = np.arange(24) % 4


def torch_loader(transform=None, workers=0):
    from torch.utils.data import DataLoader, Dataset

    class Pictures(Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, index):
            return RAW[index].transpose(2, 0, 1).astype(np.float32) / 255, int(LABELS[index])

    return DataLoader(Pictures(), batch_size=6, num_workers=workers)


def with_workers():
    return torch_loader(workers=1)


def torch_dataset():
    return torch_loader().dataset


def mindspore_dataset(*operations, shuffle=False):
    import mindspore.dataset as ds
    from mindspore.dataset import vision

    rows = ds.NumpySlicesDataset({"image": RAW, "label": LABELS.astype(np.int32)}, shuffle=shuffle)
    return rows.map([*operations, vision.Rescale(1 / 255, 0), vision.HWC2CHW()], "image").batch(6)


def turned():
    from mindspore.dataset import vision

    return mindspore_dataset(vision.VerticalFlip())


def shuffled():
    return mindspore_dataset(shuffle=True)


def repeated():
    return mindspore_dataset(shuffle=True).repeat(3)


def repeated_at_random():
    from mindspore.dataset import config, vision

    config.set_seed(5489)  # MindSpore's word for none, whatever ran before in this process
    return mindspore_dataset(vision.RandomHorizontalFlip()).repeat(2)


def with_copies():
    import torch
    from torch.utils.data import DataLoader, RandomSampler

    data, drawn = torch_loader().dataset, torch.Generator().manual_seed(1)
    sampler = RandomSampler(data, replacement=True, num_samples=48, generator=drawn)
    return DataLoader(data, batch_size=6, sampler=sampler)


def ragged():
    return [{"x": [np.arange(3), np.arange(4)], "word": ["a", "b"]}]
"""


@pytest.fixture
def sides(tmp_path):
    path = tmp_path / "sides.py"
    path.write_text(SIDES)
    return lambda name: f"{path}:{name}"


@pytest.mark.frameworks
def test_torch_against_mindspore(sides):
    result = compare_data(sides("torch_loader"), sides("mindspore_dataset"))
    assert result.verdict.outcome is Outcome.ALIGNED
    assert (result.reference.kind, result.candidate.kind) == ("torch.DataLoader", "mindspore.BatchDataset")
    assert (result.reference.batch_sizes, result.candidate.batch_sizes) == ((6, 6), (6, 6))
    assert [cause.id for cause in compare_data(sides("torch_loader"), sides("turned")).causes] == ["flip"]
    shuffled = compare_data(sides("torch_loader"), sides("shuffled"))
    assert [finding.code for finding in shuffled.findings if finding.severity == "error"] == ["order-differs"]


@pytest.mark.frameworks
def test_a_dataset_that_repeats_is_told_from_one_that_draws_with_copies(sides):
    repeated, at_random, drawn = (
        compare_data(sides("torch_loader"), sides(name)) for name in ("repeated", "repeated_at_random", "with_copies")
    )
    assert [(cause.id, cause.facts["times"], cause.confirmed) for cause in repeated.causes] == [("repeat", 3.0, True)]
    assert [cause.id for cause in at_random.causes] == ["repeat", "augmentation-flip"]
    assert drawn.causes == ()
    assert "order-differs" in [finding.code for finding in drawn.findings]


@pytest.mark.frameworks
def test_workers_end_with_the_reading_and_a_dataset_gives_samples(sides):
    result = compare_data(sides("with_workers"), sides("torch_dataset"), batches=2)
    assert result.verdict.outcome is Outcome.ALIGNED
    assert result.candidate.batch_sizes is None
    assert multiprocessing.active_children() == []


@pytest.mark.frameworks
def test_captured_batches_stand_for_the_side(sides, tmp_path, capsys):
    folder = tmp_path / "captured"
    assert main(["capture", "--data", sides("torch_loader"), "--batches", "3", "--out", str(folder)]) == 0
    assert "3 batches written" in capsys.readouterr().out
    assert main(["data", str(folder), sides("mindspore_dataset"), "--batches", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["reference"]["kind"], document["reference"]["length"]) == ("torch.DataLoader", 4)


def test_ragged_rows_and_words_are_captured(sides, tmp_path, capsys):
    folder = tmp_path / "captured"
    for _ in range(2):  # the second one takes the place of the first
        assert main(["capture", "--data", sides("ragged"), "--out", str(folder)]) == 0
    assert main(["data", str(folder), sides("ragged")]) == 0
    capsys.readouterr()
    (folder / "batch00000.npz").write_bytes(b"PK no archive")
    assert main(["data", str(folder), sides("ragged")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    (folder / "batch00000.npz").unlink()
    assert main(["data", str(folder), sides("ragged")]) == 2
    assert "holds no batches" in capsys.readouterr().err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert main(["capture", "--data", sides("ragged"), "--out", str(tmp_path / "full")]) == 2
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"


def test_bad_options_end_with_2(sides, tmp_path, capsys):
    assert main(["data", sides("ragged"), sides("ragged"), "--whole", "--batches", "3"]) == 2
    assert main(["data", sides("nothing"), sides("ragged")]) == 2
    assert main(["data", sides("ragged"), sides("ragged"), "--batches", "0"]) == 2
    said = capsys.readouterr().err
    assert "give one of them" in said
    assert "Traceback" not in said


def test_a_cause_is_shown_first_and_the_document_holds_small_pictures(tmp_path, capsys):
    (tmp_path / "pictures.py").write_text(
        SIDES + "\n\ndef one():\n    return [(RAW, LABELS)]\n\n\ndef two():\n    return [(RAW[..., ::-1], LABELS)]\n"
    )
    one, two = (f"{tmp_path / 'pictures.py'}:{name}" for name in ("one", "two"))
    assert main(["data", one, two]) == 1
    assert "BGR in the candidate" in capsys.readouterr().out.split("\n")[1]
    assert main(["data", one, two, "--run", str(tmp_path / "run")]) == 1
    assert f"{one} against {two}" in align.open_run(tmp_path / "run").beside()._repr_html_()
    (sample, *_) = json.loads((tmp_path / "run" / "data.json").read_text())["samples"]
    assert sample["size"] == [20, 20]


PROJECT = """
from sides import mindspore_dataset, torch_loader, turned


def torch_data():
    from torch.utils.data import DataLoader

    return DataLoader(torch_loader().dataset, batch_size=6)


def port_data():
    from mindspore.dataset import NumpySlicesDataset

    dataset = NumpySlicesDataset({"x": [0]})
    return dataset.batch(6)
"""


@pytest.mark.frameworks
def test_init_finds_the_loaders_and_the_rung_compares_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sides.py").write_text(SIDES)
    (tmp_path / "train.py").write_text(PROJECT)
    (tmp_path / "original.py").write_text("import torch\n\n\ndef model():\n    return torch.nn.Linear(3, 2)\n")
    (tmp_path / "port.py").write_text("from mindspore import nn\n\n\ndef model():\n    return nn.Dense(3, 2)\n")
    assert main(["init", "--candidate-data", "train.py:port_data"]) == 0
    said = capsys.readouterr().out
    assert "[reference] data may be" in said
    assert "sides.py:torch_loader" in said
    assert "train.py:torch_data" in said
    assert main(["init", "--reference-data", "sides.py:torch_loader", "--overwrite"]) == 0
    said = capsys.readouterr().out
    assert "train.py:port_data" in said
    assert (
        main(
            [
                "init",
                "--reference-data",
                "sides.py:torch_loader",
                "--candidate-data",
                "train.py:port_data",
                "--overwrite",
            ]
        )
        == 0
    )
    capsys.readouterr()
    project = (tmp_path / "align.toml").read_text()
    for name, state, code in (("mindspore_dataset", "passed", 0), ("turned", "failed", 1)):
        (tmp_path / "align.toml").write_text(project.replace("train.py:port_data", f"sides.py:{name}"))
        main(["run", "--only", "data"])
        capsys.readouterr()
        rungs = {
            rung["name"]: rung for rung in json.loads((tmp_path / "align-run" / "ladder.json").read_text())["rungs"]
        }
        assert rungs["data"]["state"] == state
        assert [culprit["place"] for culprit in rungs["data"]["culprits"]] == ["0"] * code


def test_pictures_that_differ_are_drawn_beside_each_other(tmp_path, capsys):
    from align.report.draw_plot import draw_plot

    (tmp_path / "pictures.py").write_text(
        SIDES + "\n\ndef one():\n    return [(RAW, LABELS)]\n\n\ndef two():\n    return [(RAW[..., ::-1], LABELS)]\n"
    )
    one, two = (f"{tmp_path / 'pictures.py'}:{name}" for name in ("one", "two"))
    main(["data", one, two, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert draw_plot("samples", document).png.startswith(b"\x89PNG")
    document["samples"] = [sample for sample in document["samples"] if not sample["size"][0]]
    assert draw_plot("samples", document) is None


def test_long_rows_are_drawn_as_curves():
    from align.core.documents import to_json_data
    from align.report.draw_plot import draw_plot

    signals = np.cumsum(np.random.default_rng(0).normal(size=(8, 300)), 1)
    document = to_json_data(compare_data([(signals,)], [(signals * 2,)]))
    assert [len(curve) for curve in document["samples"][0]["curves"]] == [200, 200]
    assert draw_plot("samples", document).png.startswith(b"\x89PNG")
