"""Each form of settings is read with its values and places."""

from __future__ import annotations

import enum
import pickle
import sys
import types
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from align.errors import UnreadableSettingsError
from align.hyperparameters.settings_format import read_settings_of, settings_formats

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = """
[rank0]: starting
------------------------ arguments ------------------------
  adam_beta1 ...................................... 0.9
  bf16 ............................................ True
  data_path ....................................... ['a', 'b']
  lr_decay_style .................................. cosine
-------------------- end of arguments ---------------------
  step .................. 3
"""
NAMESPACE = """19:05 | args: Namespace(lr=0.0001, betas=(0.9, 0.999), name='a, b', device=device(type='cuda'))
step 1 loss 3.0
Namespace(lr=0.5)
"""
ARGUMENTS = """TrainingArguments(
_n_gpu=1,
learning_rate=5e-05,
lr_scheduler_type=SchedulerType.LINEAR,
optim=OptimizerNames.ADAMW_TORCH,
strategy=<IntervalStrategy.STEPS: 'steps'>,
)
"""
NESTED = """[12/25 14:22:26] OPTIMIZER :
[12/25 14:22:26]     learning_rate :
[12/25 14:22:26]         boundaries : [15, 20]
[12/25 14:22:26]         name : PiecewiseDecay
[12/25 14:22:26]     momentum : 0.9
[12/25 14:22:26] ------------------------
[12/25 14:22:26] epochs : 20
[12/25 14:22:27] epoch 1 started
"""


def test_megatrons_block_of_arguments(settings: Any) -> None:
    found = settings.read("train.log", BLOCK)
    assert found == {"adam_beta1": 0.9, "bf16": True, "data_path": ("a", "b"), "lr_decay_style": "cosine"}
    assert settings.places("train.log", BLOCK)["bf16"] == "train.log:5"


def test_a_printed_namespace_is_read_as_it_came_first(settings: Any) -> None:
    found = settings.read("train.log", NAMESPACE)
    assert found["lr"] == 0.0001
    assert found["betas"] == (0.9, 0.999)
    assert found["name"] == "a, b"
    assert settings.places("train.log", NAMESPACE)["lr"] == "train.log:1"


def test_printed_training_arguments(settings: Any) -> None:
    found = settings.read("out.txt", ARGUMENTS)
    assert (found["learning_rate"], found["strategy"]) == (5e-05, "steps")
    assert settings.places("out.txt", ARGUMENTS)["learning_rate"] == "out.txt:3"


def test_a_printed_list_with_what_a_logger_puts_before_it(settings: Any) -> None:
    found = settings.read("paddle.log", NESTED)
    assert found["OPTIMIZER.learning_rate.boundaries"] == (15, 20)
    assert found["OPTIMIZER.momentum"] == 0.9
    assert found["epochs"] == 20


def test_a_table_with_lines_around_it(settings: Any) -> None:
    rows = "".join(
        f"│ {name:<8} │ {value:<8} │\n" for name, value in [("seed", "None"), ("lr", "0.1"), ("warmup", "5")]
    )
    assert settings.read("x.log", rows) == {"seed": None, "lr": 0.1, "warmup": 5}


def test_yaml_with_merges_bases_and_places(settings: Any) -> None:
    settings.file("base.yaml", "lr: 0.1\nnested:\n  a: 1\n  b: 2\n")
    text = "__BASE__: [base.yaml]\ncommon: &c {x: 1, y: 2}\nnested:\n  b: 3\nown:\n  <<: *c\n  y: 5\n"
    found = settings.read("top.yaml", text)
    assert (found["lr"], found["nested.a"], found["nested.b"], found["own.x"], found["own.y"]) == (0.1, 1, 3, 1, 5)
    assert settings.places("top.yaml", text)["lr"] == "base.yaml:1"
    assert settings.places("top.yaml", text)["own.y"] == "top.yaml:7"


def test_json_has_lines_and_leaves_out_what_was_measured(settings: Any) -> None:
    text = '{\n "max_steps": 10,\n "log_history": [{"loss": 1.0}],\n "epoch": 2.0,\n "a": {"b": [1, 2]}\n}'
    assert settings.read("trainer_state.json", text) == {"max_steps": 10, "a.b": (1, 2)}
    assert settings.places("trainer_state.json", text)["max_steps"] == "trainer_state.json:2"


def test_toml_has_lines(settings: Any) -> None:
    text = "seed = 1\n[train]\nlr = 1e-4\nmilestones = [1, 2]\n"
    assert settings.read("x.toml", text) == {"seed": 1, "train.lr": 0.0001, "train.milestones": (1, 2)}
    assert settings.places("x.toml", text)["train.lr"] == "x.toml:3"


def test_a_configuration_of_mmengine_with_its_base(settings: Any) -> None:
    settings.file(
        "_base_/schedule.py", "optim = dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9))\nmax_epochs = 100\n"
    )
    text = """_base_ = ['_base_/schedule.py']
gpus = 8
optim = dict(optimizer=dict(lr=0.1 * gpus), clip_grad=dict(max_norm=35))
param_scheduler = [dict(type='LinearLR', end=500), dict(type='MultiStepLR', milestones=[8, 11])]
head = dict(_delete_=True, loss=torch.nn.L1Loss)
"""
    found = settings.read("config.py", text)
    assert found["optim.optimizer.lr"] == pytest.approx(0.8)
    assert (found["optim.optimizer.momentum"], found["max_epochs"]) == (0.9, 100)
    assert found["param_scheduler.1.milestones"] == (8, 11)
    assert found["head.loss"] == "L1Loss"
    assert settings.places("config.py", text)["max_epochs"] == "_base_/schedule.py:2"


def test_a_configuration_that_reads_its_base_as_python_does(settings: Any) -> None:
    settings.file("base.py", "optim = dict(lr=0.1, momentum=0.9)\nhead = dict(loss=dict(type=A, weight=1.0))\n")
    text = """with read_base():
    from .base import *
optim = dict(lr=0.2)
head.update(loss=dict(weight=2.0))
"""
    found = settings.read("new.py", text)
    assert found == {"optim.lr": 0.2, "head.loss.type": "A", "head.loss.weight": 2.0}


def test_a_python_file_is_never_run(settings: Any) -> None:
    mark = settings.folder / "ran"
    assert settings.read("evil.py", f"lr = 0.1\nopen({str(mark)!r}, 'w').close()\n") == {"lr": 0.1}
    assert not mark.exists()


def test_defaults_of_argparse_and_fields_of_a_dataclass(settings: Any) -> None:
    text = """
@dataclass
class Hyperparameters:
    learning_rate : float = 0.0036
    warmup: int
def main():
    parser.add_argument("--weight-decay", "--wd", default=2e-5, type=float)
    parser.add_argument("--amp", action="store_true")
"""
    assert settings.read("train.py", text) == {"learning_rate": 0.0036, "weight_decay": 2e-5, "amp": False}


class Kind(enum.Enum):
    COSINE = "cosine"


class Arguments:
    """What a trainer keeps."""


def test_training_args_of_transformers_are_read_without_running_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zip as torch.save writes it, with a pickle of Python's own; its classes are not there to be made."""
    made = types.ModuleType("made")
    made.Kind, made.Arguments = Kind, Arguments  # type: ignore[attr-defined]
    with monkeypatch.context() as there:
        there.setitem(sys.modules, "made", made)
        there.setattr(Kind, "__module__", "made")
        there.setattr(Arguments, "__module__", "made")
        arguments = Arguments()
        vars(arguments).update(learning_rate=5e-5, lr_scheduler_type=Kind.COSINE, steps=None, odd=object)
        pickled = pickle.dumps(arguments, protocol=2)
    path = tmp_path / "training_args.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("training_args/data.pkl", pickled)
        archive.writestr("training_args/version", "3\n")
    found = {one.name: one.value for one in read_settings_of(path).settings}
    assert found == {"learning_rate": 5e-5, "lr_scheduler_type": "cosine", "steps": None}


def test_every_reader_says_what_it_reads_and_knows_no_others_file(settings: Any) -> None:
    names = {"yaml": "a.yaml", "json": "a.json", "toml": "a.toml", "python": "a.py", "shell": "a.sh"}
    texts = {"yaml": "lr: 1", "json": '{"lr": 1}', "toml": "lr = 1", "python": "lr = 1", "shell": "python t.py --lr 1"}
    for form, name in names.items():
        assert read_settings_of(settings.file(name, texts[form])).formats == (form,)
    assert {*names, "megatron-log", "printed-call", "printed-list", "training-args", "capture", "captured-steps"} == {
        *settings_formats()
    }


def test_a_file_without_settings_is_refused(settings: Any) -> None:
    with pytest.raises(UnreadableSettingsError, match="it holds no setting"):
        read_settings_of(settings.file("empty.log", "hello\n"))


@pytest.mark.parametrize("ending", ["json", "yaml", "toml", "py", "sh", "log", "txt"])
@pytest.mark.parametrize("text", ["", " \n\t\n", "\ufeff"])
def test_an_empty_file_is_called_empty(settings: Any, ending: str, text: str) -> None:
    with pytest.raises(UnreadableSettingsError, match="it is empty") as caught:
        read_settings_of(settings.file(f"a.{ending}", text))
    assert "check the path" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{}"), ("a.json", '{"a": {}}'), ("a.yaml", "---\n"), ("a.yaml", "null\n"), ("a.yaml", "# none\n"),
        ("a.toml", "# none\n"), ("a.py", "import os\n"), ("a.sh", "#!/bin/sh\ncd data\necho begin\n"),
        ("a.log", "step 1 loss 2.0\n"),
    ],
)  # fmt: skip
def test_a_file_without_parameters_says_what_was_looked_for(settings: Any, name: str, text: str) -> None:
    with pytest.raises(UnreadableSettingsError, match=r"it holds no setting; these forms were looked for: .*[a-z]"):
        read_settings_of(settings.file(name, text))


@pytest.mark.parametrize(("name", "text"), [("a.json", "[1]"), ("a.json", "null"), ("a.yaml", "- 1\n")])
def test_values_without_names_are_called_so(settings: Any, name: str, text: str) -> None:
    with pytest.raises(UnreadableSettingsError, match="no named settings"):
        read_settings_of(settings.file(name, text))


def test_an_empty_file_among_several_is_refused(settings: Any) -> None:
    full, empty = settings.file("a.yaml", "lr: 1\n"), settings.file("b.yaml", "")
    with pytest.raises(UnreadableSettingsError, match=r"b\.yaml: it is empty"):
        read_settings_of(f"{full},{empty}")


def test_a_folder_without_a_capture_is_called_so(settings: Any) -> None:
    with pytest.raises(UnreadableSettingsError, match="the folder holds no capture"):
        read_settings_of(settings.folder)


def test_numbers_of_json_that_are_not_finite_are_read(settings: Any) -> None:
    assert settings.read("a.json", '{"low": -Infinity, "lr": -1e-4}') == {"low": float("-inf"), "lr": -1e-4}


def test_a_configuration_that_is_set_by_attributes(settings: Any) -> None:
    text = """from yacs.config import CfgNode as CN
_C = CN()
_C.TRAIN = CN()
_C.TRAIN.BASE_LR = 5e-4
_C.TRAIN.OPTIMIZER = CN()
_C.TRAIN.OPTIMIZER.BETAS = (0.9, 0.999)
torch.backends.cuda.matmul.allow_tf32 = True
objects[0].lr = 3
"""
    assert settings.read("config.py", text) == {
        "TRAIN.BASE_LR": 5e-4,
        "TRAIN.OPTIMIZER.BETAS": (0.9, 0.999),
        "torch.backends.cuda.matmul.allow_tf32": True,
    }
    assert settings.places("config.py", text)["TRAIN.BASE_LR"] == "config.py:4"


def test_constants_of_the_only_optimizer_of_a_script(settings: Any) -> None:
    call = "def main(args):\n    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, eps=args.eps)\n"
    option = "parser.add_argument('--lr', default=0.1)\n"
    assert settings.read("a.py", call) == {"optimizer": "AdamW", "lr": 1e-4, "weight_decay": 0}
    assert settings.read("b.py", call + option)["lr"] == 0.1
    other = call.replace("main", "other")
    assert settings.read("c.py", call + other.replace("=0,", "=1,") + option) == {"lr": 0.1}
    assert settings.read("d.py", call + other)["weight_decay"] == 0


def test_documents_that_explain_the_settings_before_them_are_left_out(settings: Any) -> None:
    zoo = "epochs: 40\nlr: 0.1\n---\nepochs: 'Epochs, default is 1.'\n---\nlr: [0.1, 0.2]\n"
    assert settings.read("a.yaml", zoo) == {"epochs": 40, "lr": 0.1}
    assert settings.read("b.yaml", "epochs: 40\n---\nepochs: 50\nlr: 0.1\n") == {"epochs": 50, "lr": 0.1}
    assert settings.read("c.yaml", "epochs: 40\n---\nopt: adam\n") == {"epochs": 40, "opt": "adam"}
