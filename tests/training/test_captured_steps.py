"""Training steps captured on one machine and compared on another one: with one framework, and with none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import align
from align.cli.main import main
from align.errors import CannotRunError, DestinationError, RunFolderError, UnlikeTracesError, UsageError
from align.training.steps.record_step import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.frameworks

SIDES = """
import numpy as np
import torch
from mindspore import Parameter, Tensor, nn, ops


def batch(seed=0):
    return {"x": np.random.default_rng(seed).standard_normal((12, 6)).astype(np.float32), "label": np.arange(12) % 3}


def other():
    return batch(1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.mid = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8)
        self.drop, self.head = torch.nn.Dropout(0.1), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.drop(torch.tanh(self.mid(torch.relu(self.norm(self.stem(x)))))))


class Port(nn.Cell):
    def __init__(self, cut=False, momentum=0.9):
        super().__init__()
        self.stem, self.norm, self.mid = nn.Dense(6, 8), nn.BatchNorm1d(8, momentum=momentum), nn.Dense(8, 8)
        self.drop, self.head, self.cut = nn.Dropout(p=0.1), nn.Dense(8, 3), cut

    def construct(self, x):
        mid = ops.tanh(self.mid(ops.relu(self.norm(self.stem(x)))))
        return self.head(self.drop(ops.stop_gradient(mid) if self.cut else mid))


def reference():
    torch.manual_seed(0)
    model = Net()
    return model, torch.nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters(), 1e-2, weight_decay=0.1)


def trained(model, loss=None, rate=0.1):
    return model, loss or torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), rate, momentum=0.9)


def momentum():
    return trained(reference()[0])


def filled(**settings):
    port, values = Port(**settings), reference()[0].state_dict()
    names = {"norm.gamma": "norm.weight", "norm.beta": "norm.bias", "norm.moving_mean": "norm.running_mean",
             "norm.moving_variance": "norm.running_var"}
    for one in port.get_parameters():
        one.set_data(Tensor(values[names.get(one.name, one.name)].numpy()))
    return port


def as_momentum(port, loss=None, momentum=0.9):
    return port, loss or nn.CrossEntropyLoss(), nn.Momentum(port.trainable_params(), 0.1, momentum)


def port():
    return as_momentum(filled())


def cut():
    return as_momentum(filled(cut=True))


def summed():
    return as_momentum(filled(), nn.CrossEntropyLoss(reduction="sum"))


def several():
    return as_momentum(filled(momentum=0.1), momentum=0.8)


def other_seed():
    torch.manual_seed(1)
    return trained(Net())
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sides, and the reference's steps captured."""
    folder = tmp_path_factory.mktemp("steps")
    (folder / "sides.py").write_text(SIDES, encoding="utf-8")
    assert captured(folder, "momentum") == 0
    return folder


def captured(home: Path, side: str, out: str = "", *options: str, batch: str = "batch", steps: int = 2) -> int:
    sides = f"{home / 'sides.py'}:"
    return main(["capture", "--step", f"{sides}{side}", "--batch", f"{sides}{batch}", "--steps", str(steps),
                 "-o", str(home / (out or side)), *options])  # fmt: skip


def ready(home: Path, side: str) -> Path:
    """The folder of a side's two steps, captured by whoever asks first."""
    assert (home / side).is_dir() or captured(home, side) == 0
    return home / side


def places(result: Any) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.part, one.candidate, one.cause) for one in result.culprits]


FAULTS = [
    ("cut", [("backward", "code", "", "no-gradient")]),
    ("summed", [("loss", "loss", "", "loss-reduction")]),
    ("several", [("update", "optimizer", "", "momentum"), ("buffer", "layer", "norm", "statistics-momentum-swapped")]),
]


@pytest.mark.parametrize(("side", "told"), [("port", []), *FAULTS])
def test_a_folder_against_a_live_port_and_against_its_folder(
    home: Path, side: str, told: list[tuple[str, str, str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    live = align.compare_training_step(home / "momentum", f"{home / 'sides.py'}:{side}")
    assert places(live) == told
    assert captured(home, side) == 0
    assert f"align step {home / side} CANDIDATE" in capsys.readouterr().out.replace("\n", "").replace("│", "")
    apart = align.compare_training_step(home / "momentum", home / side)
    assert places(apart) == told
    assert [one.line.rpartition(":")[0][-8:] for one in apart.culprits if one.part in ("code", "layer")] == [
        "sides.py" for kind, part, *_ in told if part in ("code", "layer")
    ]
    assert live.verdict.exit_code == apart.verdict.exit_code == int(bool(told))
    assert "steps-recorded-apart" in [one.code for one in apart.findings]
    assert [one.reference for one in live.losses] == [one.reference for one in apart.losses]


def test_a_live_reference_against_a_folder(home: Path) -> None:
    result = align.compare_training_step(f"{home / 'sides.py'}:momentum", ready(home, "cut"))
    assert places(result) == FAULTS[0][1]


def test_two_folders_are_compared_without_any_framework(home: Path) -> None:
    candidate = ready(home, "cut")
    program = (
        "import sys; sys.modules.update(torch=None, mindspore=None)\n"
        "from align.cli.main import main\n"
        f"sys.exit(main(['step', {str(home / 'momentum')!r}, {str(candidate)!r}, '--json']))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stderr
    assert [one["cause"] for one in json.loads(ran.stdout)["culprits"]] == ["no-gradient"]


def test_adam_is_held_against_its_rule_with_the_ports_own_gradients(home: Path, tmp_path: Path) -> None:
    import torch

    from align.training.open_training import open_training

    def other(**settings: Any) -> align.Training:
        training = open_training(f"{home / 'sides.py'}:reference").training
        return replace(training, optimizer=torch.optim.AdamW(training.model.parameters(), **settings))

    batch = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32), np.arange(12) % 3
    given = dict(zip(("x", "label"), batch, strict=True))
    for name, settings in (("a", {}), ("c", {"eps": 1e-3}), ("d", {"weight_decay": 0.0})):
        made = {"lr": 1e-2, "weight_decay": 0.1, **settings}
        align.capture_training_step(other(**made), tmp_path / name, batch=given, steps=2)
    assert align.compare_training_step(tmp_path / "a", tmp_path / "a").verdict.exit_code == 0
    for name, cause in (("c", "epsilon"), ("d", "weight-decay")):
        (culprit,) = align.compare_training_step(tmp_path / "a", tmp_path / name).culprits
        assert (culprit.part, culprit.cause, culprit.sureness) == ("optimizer", cause, "confirmed")


@pytest.mark.parametrize(
    ("side", "out", "options", "told"),
    [
        ("other_seed", "", {}, "begin from other values of stem.weight"),
        ("momentum", "other", {"batch": "other"}, "batches of step 1 are not the same"),
    ],
)
def test_folders_of_other_steps_are_refused(
    home: Path, side: str, out: str, options: dict[str, Any], told: str
) -> None:
    assert captured(home, side, out, **options) == 0
    with pytest.raises(UnlikeTracesError, match=told) as error:
        align.compare_training_step(home / "momentum", home / (out or side))
    assert error.value.hint


def cut_losses(folder: Path) -> None:
    path = folder / "steps.json"
    path.write_text(path.read_text(encoding="utf-8")[:-30], encoding="utf-8")


def other_schema(folder: Path) -> None:
    path = folder / "steps.json"
    path.write_text(path.read_text(encoding="utf-8").replace("training-steps/1", "training-steps/9"), encoding="utf-8")


def other_batch(folder: Path) -> None:
    np.savez(folder / "batches.npz", x=np.zeros((12, 6), np.float32), label=np.zeros(12))


def changed_tensor(folder: Path) -> None:
    path = folder / "updates" / "step0.safetensors"
    content = bytearray(path.read_bytes())
    content[8 + HEADER_BYTES + 1] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (cut_losses, "damaged"),
        (other_schema, "has schema"),
        (other_batch, "is not the file that was written"),
        (changed_tensor, "damaged"),
        (lambda folder: (folder / "model.json").unlink(), "model.json is missing"),
        (lambda folder: shutil.rmtree(folder / "noise"), "is missing"),
        (lambda folder: (folder / "steps.json").unlink(), "holds no training steps"),
    ],
)
def test_a_damaged_folder_is_refused(home: Path, tmp_path: Path, damage: Callable[[Path], Any], told: str) -> None:
    shutil.copytree(home / "momentum", tmp_path / "copy")
    damage(tmp_path / "copy")
    with pytest.raises(RunFolderError, match=told) as error:
        align.compare_training_step(tmp_path / "copy", home / "momentum")
    assert error.value.hint


def test_a_capture_that_fails_leaves_what_was_there(home: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    side = f"{home / 'sides.py'}:momentum"
    batch = {"x": np.zeros((4, 6), np.float32), "label": np.zeros(4, np.int64)}
    with pytest.raises(DestinationError, match=r"holds notes\.txt"):
        align.capture_training_step(side, tmp_path, batch=batch)
    wrong = {**batch, "x": np.zeros((4, 5), np.float32)}
    with pytest.raises(CannotRunError):
        align.capture_training_step(side, tmp_path / "new", batch=wrong)
    assert [one.name for one in tmp_path.iterdir()] == ["notes.txt"]


def test_captured_steps_are_replaced_on_request_only(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert captured(home, "momentum", str(out), steps=1) == 0
    with pytest.raises(UnlikeTracesError, match="captured for 2 and 1 steps") as error:
        align.compare_training_step(home / "momentum", out)
    assert error.value.hint
    before = (out / "steps.json").read_bytes()
    capsys.readouterr()
    assert captured(home, "reference", str(out), steps=1) == 2
    shown = capsys.readouterr().err
    assert f"{out} exists\nHint: add --overwrite to replace it" in shown
    assert (out / "steps.json").read_bytes() == before
    assert captured(home, "reference", str(out), "--overwrite", steps=1) == 0
    assert b"AdamW" in (out / "steps.json").read_bytes()


CAPTURE = "capture --step sides.py:port -o out"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (CAPTURE, "no batch is given"),
        (f"{CAPTURE} --batch sides.py:batch sides.py:port", "SIDE is of"),
        (f"{CAPTURE} --batch sides.py:batch --no-noise", "--no-noise is of"),
        (f"{CAPTURE} --batch sides.py:batch --steps 0", "0 is no number"),
        ("capture --step none.py:port --batch sides.py:batch -o out", "not found: none.py"),
        ("capture sides.py:port --batch sides.py:batch -o out", "--batch is for training steps"),
        ("capture -o out", "no model is given"),
        ("step momentum sides.py:port --batch sides.py:batch", "leave --batch and --steps out"),
    ],
)
def test_what_a_command_lacks_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    assert main(command.split()) == 2
    shown = capsys.readouterr().err
    assert told in " ".join(shown.split())
    assert "Hint:" in shown
    assert not (home / "out").exists()


def test_a_folder_brings_its_own_batches(home: Path) -> None:
    side = f"{home / 'sides.py'}:port"
    with pytest.raises(UsageError, match="on its own batch"):
        align.compare_training_step(home / "momentum", side, batch={"x": np.zeros((2, 6), np.float32)})
    with pytest.raises(UsageError, match="captured for 2 steps"):
        align.compare_training_step(home / "momentum", side, steps=3)
    with pytest.raises(UsageError, match="no batch is given"):
        align.compare_training_step(f"{home / 'sides.py'}:momentum", side)
