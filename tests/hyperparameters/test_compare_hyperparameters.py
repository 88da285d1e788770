"""Two trainings' settings, compared by meaning: what differs is found, and what is only spelled otherwise is not."""

from __future__ import annotations

from typing import Any

import pytest

from align.core.verdicts import Outcome
from align.errors import MissingFileError, UsageError
from align.hyperparameters.compare_hyperparameters import compare_hyperparameters

HF = """
per_device_train_batch_size: 4
gradient_accumulation_steps: 8
learning_rate: 1e-4
lr_scheduler_type: cosine
max_steps: 1000
warmup_ratio: 0.1
optim: adamw_torch
adam_beta1: 0.9
adam_beta2: 0.95
adam_epsilon: 1.0e-8
weight_decay: 0.1
max_grad_norm: 1.0
bf16: true
seed: 1234
"""
MEGATRON = """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8
LR=0.0001
ARGS=(
    --num-layers 2
    --tensor-model-parallel-size 1
    --micro-batch-size 4
    --global-batch-size {batch}
    --lr $LR   # the peak
    --lr-decay-style cosine
    --train-iters 1000
    --lr-warmup-fraction {warmup}
    --adam-beta1 0.9
    --adam-beta2 {beta2}
    --weight-decay 1e-1
    --clip-grad 1.0
    --bf16
)
torchrun --nproc_per_node $GPUS --nnodes ${{NNODES:-1}} pretrain_gpt.py ${{ARGS[@]}}
"""


def megatron(batch: str = "256", warmup: str = "0.1", beta2: str = "0.95") -> tuple[str, str]:
    return "run.sh", MEGATRON.format(batch=batch, warmup=warmup, beta2=beta2)


def test_one_training_told_by_two_trainers_is_equal(settings: Any) -> None:
    result = settings.compare(("hf.yaml", f"{HF}world_size: 8\n"), megatron())
    assert result.differences == ()
    assert result.verdict.outcome is Outcome.ALIGNED
    assert (result.reference.trainer, result.candidate.trainer) == ("Hugging Face Trainer", "Megatron-LM")
    batch = next(one for one in result.equal if one.parameter == "global_batch")
    assert (batch.reference.value, batch.reference.how) == ("256", "4 × 8 × 8")
    optimizer = next(one for one in result.equal if one.parameter == "optimizer")
    assert (optimizer.reference.value, optimizer.candidate.value) == ("adamw_torch", "adamw")
    assert optimizer.candidate.origin == "default"
    assert optimizer.candidate.place.startswith("https://")


def test_planted_differences_are_found_in_the_order_of_what_they_do(settings: Any) -> None:
    other = megatron(batch="512", warmup="0.05", beta2="0.999")
    result = settings.compare(("hf.yaml", f"{HF}world_size: 8\n"), other)
    found = [(one.parameter, one.reference.value, one.candidate.value) for one in result.differences]
    assert found == [
        ("warmup_steps", "0.1 of the run", "0.05 of the run"),
        ("global_batch", "256", "512"),
        ("beta2", "0.95", "0.999"),
    ]
    assert result.verdict.outcome is Outcome.NOT_ALIGNED
    assert result.verdict.exit_code == 1
    places = {one.parameter: (one.reference.place, one.candidate.place) for one in result.differences}
    assert places["beta2"][0].endswith("hf.yaml:10")
    assert places["beta2"][1].endswith("run.sh:15")


def test_a_batch_without_devices_is_not_compared_with_one_that_is_known(settings: Any) -> None:
    result = settings.compare(("hf.yaml", HF), megatron())
    assert "global_batch" in [one.parameter for one in result.unsettled]
    assert result.differences == ()
    assert result.verdict.caveats


def test_a_default_that_differs_is_a_difference(settings: Any) -> None:
    without = HF.replace("weight_decay: 0.1\n", "world_size: 8\n")
    result = settings.compare(("hf.yaml", without), megatron())
    (found,) = result.differences
    assert (found.parameter, found.reference.origin, found.reference.value) == ("weight_decay", "default", "0")


# Two spellings of one value, and a third that means another one.
SPELLINGS = [
    ("lr: 1e-4", "lr: 0.0001", "lr: 0.001"),
    ("lr: '1e-4'", "learning-rate: .0001", "learning-rate: .0002"),
    ("nesterov: on", "use_nesterov: True", "use_nesterov: no"),
    ("optim: adamw_torch", "opt: AdamW", "opt: adam"),
    ("optim: Momentum", "opt: sgd", "opt: lamb"),
    ("dropout: 0.1", "keep_prob: 0.9", "keep_prob: 0.1"),
    ("dropout: 10%", "dropout: 0.1", "dropout: 10"),
    ("betas: [0.9, 0.95]", "adam_beta1: 0.9\nadam_beta2: 0.95", "adam_beta1: 0.9\nadam_beta2: 0.999"),
    ("betas: '0.9, 0.95'", "beta1: 0.90\nbeta2: 0.95", "beta1: 0.95\nbeta2: 0.9"),
    ("tie_word_embeddings: false", "untie_embeddings_and_output_weights: true", "no_weight_tying: false"),
    ("lr_scheduler_type: cosine", "scheduler: cosine_decay", "scheduler: linear"),
    ("bf16: true", "torch_dtype: bfloat16", "torch_dtype: float16"),
    ("image_size: [224, 224]", "img_size: 224", "img_size: [224, 192]"),
    ("warmup_steps: 100\nmax_steps: 1000", "warmup_ratio: 0.1\nmax_steps: 1000", "warmup_ratio: 0.2\nmax_steps: 1000"),
    ("warmup_epochs: 5\nepochs: 100", "warmup_ratio: 0.05\nepochs: 100", "warmup_ratio: 0.1\nepochs: 100"),
    ("warmup_steps: 0", "warmup_epochs: 0", "warmup_epochs: 1"),
    (
        "epochs: 2\nnum_samples: 1000\nglobal_batch_size: 10",
        "max_steps: 200\nnum_samples: 1000\nglobal_batch_size: 10",
        "max_steps: 300\nnum_samples: 1000\nglobal_batch_size: 10",
    ),
    (
        "train_samples: 1000\nglobal_batch_size: 10",
        "train_iters: 100\nglobal_batch_size: 10",
        "train_iters: 1000\nglobal_batch_size: 10",
    ),
    (
        "batch_size: 4\naccumulation_steps: 8",
        "batch_size: 8\naccumulation_steps: 4",
        "batch_size: 8\naccumulation_steps: 8",
    ),
    ("lr: 0.1\nlrf: 0.01", "lr: 0.1\nmin_lr: 0.001", "lr: 0.1\nmin_lr: 0.01"),
    ("split: 100,0,0", "split: '1, 0, 0'", "split: 949,50,1"),
    ("use_lora: true\nlora_rank: 8", "finetuning_type: lora\nlora_r: 8", "use_lora: true\nlora_r: 4"),
    ("warmup_epochs: 0\nwarmup_lr: 1e-6", "warmup_epochs: 0\nwarmup_lr: 1e-6", "warmup_epochs: 1\nwarmup_lr: 0"),
]


@pytest.mark.parametrize(("first", "second", "other"), SPELLINGS)
def test_what_is_only_spelled_otherwise_is_no_difference(settings: Any, first: str, second: str, other: str) -> None:
    result = settings.compare(("a.yaml", first), ("b.yaml", second))
    assert (result.differences, result.unsettled) == ((), ())
    assert result.equal
    assert settings.compare(("a.yaml", first), ("b.yaml", other)).differences


def test_adam_that_decays_its_weights_without_correction_is_another_optimizer(settings: Any) -> None:
    found = settings.differing(("a.yaml", "opt: AdamW"), ("b.yaml", "opt: AdamWeightDecay"))
    assert found == {"optimizer": ("AdamW", "AdamWeightDecay")}


def test_what_an_optimizer_does_not_read_is_not_compared(settings: Any) -> None:
    found = settings.compare(
        ("a.yaml", "opt: sgd\nmomentum: 0.9\nlr: 0.1\nbeta1: 0.9"),
        ("b.yaml", "opt: sgd\nmomentum: 0.9\nlr: 0.1\nbeta1: 0.8"),
    )
    assert found.differences == ()
    assert [one.parameter for one in found.without_effect] == ["beta1"]


def test_names_that_no_table_knows_pair_by_their_spelling(settings: Any) -> None:
    result = settings.compare(("a.yaml", "lr: 1\nbox_gain: 0.5\nonly_here: 3"), ("b.yaml", "lr: 1\nbox_gain: 0.7"))
    (found,) = result.differences
    assert (found.parameter, found.group, found.reference.value) == ("box_gain", "other settings", "0.5")
    assert [(one.side, one.parameter, one.known) for one in result.one_sided] == [("reference", "only_here", False)]


def test_paths_and_what_is_printed_do_not_make_two_trainings_unlike(settings: Any) -> None:
    result = settings.compare(
        ("a.yaml", "lr: 1\ndata_dir: /a\noutput_dir: x\nlogging_steps: 1"),
        ("b.yaml", "lr: 1\ndata_dir: /b\noutput_dir: y\nlogging_steps: 9"),
    )
    assert result.verdict.outcome is Outcome.ALIGNED
    assert [one.parameter for one in result.unsettled] == ["data_path"]
    assert {one.parameter for one in result.without_effect} == {"logging_steps", "output_dir"}


def test_several_files_make_one_side_and_the_last_counts(settings: Any) -> None:
    script = settings.file("train.py", 'p.add_argument("--lr", default=0.1)\np.add_argument("--wd", default=1e-4)\n')
    run = settings.file("run.sh", "python train.py --lr 0.2\n")
    other = settings.file("other.json", '{"lr": 0.2, "weight_decay": 0.0001}')
    assert compare_hyperparameters(f"{script},{run}", other).verdict.outcome is Outcome.ALIGNED


def test_nothing_in_common_is_not_compared_and_a_missing_file_says_so(settings: Any) -> None:
    result = settings.compare(("a.yaml", "lr: 1"), ("b.yaml", "seed: 1"))
    assert result.verdict.exit_code == 2
    with pytest.raises(MissingFileError, match="settings file not found"):
        compare_hyperparameters(settings.folder / "none.yaml", settings.folder / "none.yaml")


def test_the_first_line_says_what_matters(settings: Any) -> None:
    result = settings.compare(("a.yaml", "lr: 0.1\nseed: 1"), ("b.yaml", "lr: 0.2\nseed: 2"))
    assert result.verdict.reason == "2 hyperparameters of 2 differ, first the learning rate: 0.1 against 0.2"
    assert list(result.to_frame()["parameter"]) == ["learning_rate", "seed"]


def test_keywords_of_training_arguments_are_settings(settings: Any) -> None:
    script = """
from transformers import TrainingArguments, Trainer
rate = 2e-5
def main():
    trainer = Trainer(args=TrainingArguments(learning_rate=rate, per_device_train_batch_size=8, bf16=True,
        weight_decay=0.01, num_train_epochs=3, optim="adamw_torch"))
"""
    other = '{"learning_rate": 1e-5, "per_device_train_batch_size": 8, "bf16": true, "weight_decay": 0.1}'
    differ = settings.differing(("train.py", script), ("args.json", other))
    assert differ == {"learning_rate": ("2e-05", "1e-05"), "weight_decay": ("0.01", "0.1")}


def test_a_mapping_with_a_tag_of_its_own_is_read_and_not_built(settings: Any) -> None:
    found = settings.read("det.yml", "lr:\n  schedulers:\n  - !LinearWarmup\n    steps: 1000\n")
    assert found == {"lr.schedulers.0.type": "LinearWarmup", "lr.schedulers.0.steps": 1000}


def test_a_path_behind_a_number_is_no_second_value(settings: Any) -> None:
    found = settings.read("run.sh", "python train.py --betas 0.9 0.95 --seed 0 /data/imagenet\n")
    assert found == {"betas": ("0.9", "0.95"), "seed": "0"}


def test_clipping_that_is_switched_off_differs_from_a_norm(settings: Any) -> None:
    deepspeed = '{"gradient_clipping": 1.0, "train_micro_batch_size_per_gpu": 4}'
    off = "runner_config: {epochs: 2, batch_size: 4}\n"
    off += "runner_wrapper: {type: A, use_clip_grad: False, max_grad_norm: 1.0}\n"
    assert settings.differing(("ds.json", deepspeed), ("f.yaml", off))["clip_norm"][0] == "1"
    none = deepspeed.replace("1.0", "0.0")
    assert "clip_norm" not in settings.differing(("ds.json", none), ("f.yaml", off))
    assert "clip_norm" not in settings.differing(("ds.json", none), ("g.yaml", "clip_grad: False\n"))


def test_mixed_precision_of_timm_is_float16(settings: Any) -> None:
    script = "python train.py --amp --sched cosine --smoothing 0.1 --reprob 0.2\n"
    assert "precision" not in settings.differing(("a.sh", script), ("b.yaml", "precision: fp16\n"))


def test_names_of_torchtune_are_parameters(settings: Any) -> None:
    tune = "tokenizer: {_component_: a.t, path: /x, max_seq_len: 2048}\nmodel: {_component_: a.m, lora_rank: 8}\n"
    tune += "optimizer: {_component_: torch.optim.AdamW, lr: 3e-4}\nenable_activation_checkpointing: True\n"
    tune += "lr_scheduler: {_component_: a.get_cosine_schedule_with_warmup, num_warmup_steps: 100}\n"
    other = tune.replace("/x", "/y").replace("True", "False").replace("100", "10")
    assert settings.differing(("a.yaml", tune), ("b.yaml", other)).keys() == {"warmup_steps"}
    plain = "max_seq_length: 1024\noptimizer: adamw\nlr: 3e-4\n"
    assert settings.differing(("a.yaml", tune), ("b.yaml", plain)).keys() == {"sequence_length"}


def test_names_of_paddledetection_are_parameters(settings: Any) -> None:
    text = "epoch: 36\nlog_iter: 20\nLearningRate:\n  base_lr: 0.01\n  schedulers:\n"
    text += "  - !PiecewiseDecay\n    gamma: 0.1\n    milestones: [24, 33]\n  - !LinearWarmup\n    steps: 1000\n"
    text += (
        "OptimizerBuilder:\n  optimizer: {momentum: 0.9, type: Momentum}\n  regularizer: {factor: 0.0001, type: L2}\n"
    )
    plain = "epochs: 36\nlr: 0.02\nscheduler: step\nmilestones: [24, 33]\nlr_gamma: 0.1\nwarmup_steps: 1000\n"
    plain += "optimizer: sgd\nmomentum: 0.9\nweight_decay: 0.0005\n"
    differ = settings.differing(("det.yml", text), ("b.yaml", plain))
    assert differ == {"learning_rate": ("0.01", "0.02"), "weight_decay": ("0.0001", "0.0005")}


@pytest.mark.parametrize("side", ["", ",", "a.yaml,", ",a.yaml", "a.yaml,,a.yaml"])
def test_a_side_that_names_no_file_is_refused(settings: Any, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    monkeypatch.chdir(settings.folder)
    settings.file("a.yaml", "lr: 1\n")
    with pytest.raises(UsageError, match="names no file") as caught:
        compare_hyperparameters(side, "a.yaml")
    assert "comma" in caught.value.hint


def test_numbers_that_make_no_sense_are_compared_as_they_are(settings: Any) -> None:
    odd = "lr: .nan\nbatch_size: -3\nworld_size: 0\nepochs: 0\nwarmup_epochs: .inf\nmin_lr: -.inf\nmax_steps: 0\n"
    assert settings.compare(("a.yaml", odd), ("b.yaml", odd)).differences == ()
    other = odd.replace("-3", "2").replace(".nan", "0.1")
    assert settings.differing(("a.yaml", odd), ("b.yaml", other)).keys() == {"learning_rate", "global_batch"}
