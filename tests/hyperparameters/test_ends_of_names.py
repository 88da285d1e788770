"""Names that no table knows as a whole mean what they end with, where the part they stand under allows it."""

from __future__ import annotations

from typing import Any

import pytest

FLAT = "lr: 0.1\noptimizer: adamw\nbeta2: 0.9\nwarmup_steps: 5\nbatch_size: 8\nlr_scheduler: cosine\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("solver: {base_lr: 0.2}\n", {"learning_rate": ("0.2", "0.1")}),
        ("model: {optim: {name: adam, lr: 0.1}}\n", {"optimizer": ("adam", "adamw")}),
        ("a: {b: {optimizer: {_target_: torch.optim.SGD}}}\n", {"optimizer": ("torch.optim.SGD", "adamw")}),
        ("opt_class: {type: torch.optim.AdamW, lr: 0.3}\n", {"learning_rate": ("0.3", "0.1")}),
        ("train: {lr_scheduler: {name: linear, warmup_steps: 6}}\n",
         {"lr_schedule": ("linear", "cosine"), "warmup_steps": ("6 steps", "5 steps")}),
        ("model: {train_ds: {batch_size: 4}, validation_ds: {batch_size: 1}}\n",
         {"global_batch": ("4 a device", "8 a device")}),
        ("optim: Lamb\nlr_schedule: Steps\nSteps: {base_lr: 0.5}\nOther: {base_lr: 0.6}\n",
         {"learning_rate": ("0.5", "0.1")}),
        ("OptimConfig: {learning_rate: 0.4}\n", {"learning_rate": ("0.4", "0.1")}),
        ("optimizer_adam_beta2: 0.8\n", {"beta2": ("0.8", "0.9")}),
        ("lr: 0.1\nparams: {max_lr: 0.1, base_lr: 0.001}\n", {}),
    ],
)  # fmt: skip
def test_what_a_name_ends_with_counts(settings: Any, text: str, expected: dict[str, Any]) -> None:
    found = settings.differing(("a.yaml", text), ("b.yaml", FLAT))
    assert {name: both for name, both in found.items() if name in expected or not expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "eval: {batch_size: 1}\n", "disc: {optimizer: {lr: 0.5}}\n", "loss: {lr: 0.5}\n",  # beside the training
        "norm_cfg: {momentum: 0.5}\n", "d_lr: 0.5\n", "disc_learning_rate: 0.5\n",
        "a: {optim: {lr: 0.5}}\nb: {optim: {lr: 0.6}}\n",  # two, and unlike
        "optimizer: {clip_grad: true}\n", "scheduler: {warmup_steps: auto}\n",  # no number
    ],
)  # fmt: skip
def test_what_may_be_something_else_is_left_alone(settings: Any, text: str) -> None:
    result = settings.compare(("a.yaml", text), ("b.yaml", f"{FLAT}momentum: 0.9\nclip_norm: 1.0\n"))
    assert result.differences == ()


def test_an_end_is_left_to_its_spelling_where_the_other_side_has_it_unexplained(settings: Any) -> None:
    first, second = "model: {params: {embed_dim: 4}}\n", "generator: {params: {embed_dim: 5}}\n"
    result = settings.compare(("a.yaml", first), ("b.yaml", second))
    assert [one.parameter for one in result.unsettled] == ["model.params.embed_dim"]


def test_settings_of_one_file_that_rival_each_other_are_looked_at(settings: Any) -> None:
    result = settings.compare(
        ("a.yaml", "lr: 0.1\nbase_lr: 0.2\nepochs: 9\ntotal_epoch: 8\n"), ("b.yaml", FLAT + "epochs: 9\n")
    )
    assert [one.parameter for one in result.unsettled] == ["learning_rate", "max_steps"]
    assert "lr = 0.1" in result.unsettled[0].why
    assert result.differences == ()


def test_rivals_of_two_runs_of_one_program_are_each_held_against_their_own(settings: Any) -> None:
    first, second = (
        "lr: 0.1\nbase_lr: 0.2\nepochs: 9\ntotal_epoch: 8\n",
        "lr: 0.1\nbase_lr: 0.3\nepochs: 9\ntotal_epoch: 8\n",
    )
    assert settings.compare(("a.yaml", first), ("b.yaml", first)).unsettled == ()
    result = settings.compare(("a.yaml", first), ("b.yaml", second))
    assert [(one.parameter, one.reference.value, one.candidate.value) for one in result.differences] == [
        ("learning_rate", "0.2", "0.3")
    ]
    assert result.unsettled == ()


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("optimizer: MyAdam\n", "optimizer: HerAdam\n", "names of its own"),
        ("weight_decay_filter: norms\n", "bias_decay: 0\n", "names of its own"),
        ("depth: -1\n", "depth: 12\n", "-1 mostly means"),
        ("num_classes: 80\n", "class_num: 81\n", "the background"),
        ("image_mean: [0.4, 0.5, 0.6]\n", "image_mean: [153, 127.5, 102]\n", "another order"),
        ("image_mean: imagenet\n", "image_mean: [0.4, 0.5, 0.6]\n", "names of its own"),
        ("mask_ratio: 0.5\n", "a: {mask_ratio: 0.6}\n", "a.mask_ratio"),
        ("factors: 64\n", "num_factors: 16\n", "num_factors"),
        ("data_path: data/icdar2015\n", "data_path: data/icdar15\n", "the paths differ"),
        ("pretrained: a/b.pth\n", "pretrained: c/d.ckpt\n", "the paths differ"),
        ("batch_size: 24\ngpus: [0, 1]\n", "batch_size: 12\ndevice_num: 1\n", "devices"),
    ],
)
def test_what_cannot_be_told_is_looked_at(settings: Any, first: str, second: str, why: str) -> None:
    result = settings.compare(("a.yaml", first), ("b.yaml", second))
    assert result.differences == ()
    assert len(result.unsettled) == 1
    assert why in result.unsettled[0].why


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("image_mean: [0.4, 0.5, 0.6]\n", "image_mean: [102, 127.5, 153]\n", {}),
        ("image_mean: [0.5]\n", "image_mean: [127.5, 127.5, 127.5]\n", {}),
        ("warmup_iters: 500\nwarmup_ratio: 0.1\nlr: 1\n", "warmup_iters: 500\nwarmup_lr: 0.1\nlr: 1\n", {}),
        ("max_steps: -1\nepochs: 3\n", "epochs: 3\nmax_steps: 100\n", {}),
        ("milestones: [3, 4]\ngamma: 0.1\n", "lr_steps: [3, 4]\nlr_gamma: 0.2\n", {"lr_decay_factor": ("0.1", "0.2")}),
        ("batch_size: 16\n", "batch_size: 8\ndevice_num: 1\n", {"global_batch": ("16 a device", "8 a device")}),
        ("num_gpus: 8\nbatch_size_per_gpu: 2\n", "global_batch_size: 8\n", {"global_batch": ("16", "8")}),
    ],
)
def test_values_of_one_meaning(settings: Any, first: str, second: str, expected: dict[str, Any]) -> None:
    assert settings.differing(("a.yaml", first), ("b.yaml", second)) == expected


def test_what_only_a_run_could_tell_is_looked_at(settings: Any) -> None:
    code = "dtype = 'bfloat16' if supported() else 'float16'\nlr = 0.1\n"
    result = settings.compare(("a.py", code), ("b.yaml", "dtype: float16\nlr: 0.1\n"))
    assert [(one.parameter, "computes" in one.why) for one in result.unsettled] == [("precision", True)]


def test_defaults_of_the_class_that_a_configuration_names(settings: Any) -> None:
    first = "optimizer: {_target_: torch.optim.AdamW, lr: 0.1}\n"
    found = settings.differing(("a.yaml", first), ("b.yaml", "optimizer: adamw\nweight_decay: 0.1\nlr: 0.1\n"))
    assert found == {"weight_decay": ("0.01", "0.1")}
