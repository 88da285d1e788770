"""Ways in which real trainers print their counters and losses, each read as a person reads it, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.curves.compare_losses import LogReading, describe_log
from align.errors import AlignError, EmptyLogError, SeveralLossesError

if TYPE_CHECKING:
    from pathlib import Path

    from align.curves.compare_losses import LogSummary

Points = tuple[int, int | None, int | None, float | None, float | None]


def _described(folder: Path, text: str) -> LogSummary:
    log = folder / "train.log"
    log.write_text(text, encoding="utf-8", newline="")
    return describe_log(log, reading=LogReading())


def _points(summary: LogSummary) -> Points:
    return summary.points, summary.first_step, summary.last_step, summary.first_value, summary.last_value


# What a log prints, and its points: how many, the first and the last step, the first and the last loss.
READ: dict[str, tuple[str, Points]] = {
    "a validation that counts too, behind a prefix": (
        "[Epoch 000] training: accuracy=7.1\t loss=3.8399\n[Epoch 000] validation: acc=25.0 loss=3.5302\n"
        "[Epoch 001] training: accuracy=9.1\t loss=3.3732\n[Epoch 001] validation: acc=31.4 loss=2.8807\n",
        (2, 1, 2, 3.8399, 3.3732),
    ),
    "an evaluation of more batches that names no epoch": (
        "[Epoch 1 Batch 10/20] loss=3.6, lr=0.1\n[Epoch 1 Batch 20/20] loss=2.6, lr=0.1\n"
        "[Batch 10/40] loss=2.4\n[Batch 20/40] loss=2.3\n[Batch 30/40] loss=2.2\n[Batch 40/40] loss=2.1\n"
        "[Epoch 2 Batch 10/20] loss=2.0, lr=0.1\n[Epoch 2 Batch 20/20] loss=1.6, lr=0.1\n"
        "[Batch 10/40] loss=2.0\n[Batch 20/40] loss=1.9\n[Batch 30/40] loss=1.8\n[Batch 40/40] loss=1.7\n",
        (4, 10, 40, 3.6, 1.6),
    ),
    "a total in a bracket of its own, of epochs of unlike lengths": (
        "Epoch[000] Batch [0019]/[0055]\tSpeed: 26.1 samples/sec\t loss=3.83\n"
        "Epoch[000] Batch [0039]/[0055]\tSpeed: 26.1 samples/sec\t loss=3.61\n"
        "Epoch[001] Batch [0019]/[0056]\tSpeed: 26.1 samples/sec\t loss=3.11\n"
        "Epoch[001] Batch [0039]/[0056]\tSpeed: 26.1 samples/sec\t loss=3.01\n",
        (4, 20, 95, 3.83, 3.01),
    ),
    "a total behind a word": (
        "iter = 1 of 500 completed, loss = 4.11, lr=0.01\niter = 2 of 500 completed, loss = 4.07, lr=0.01\n",
        (2, 1, 2, 4.11, 4.07),
    ),
    "an epoch and a step as two ratios": (
        "[0/25][0/391] loss: 2.31\n[0/25][100/391] loss: 2.11\n[1/25][0/391] loss: 1.91\n",
        (3, 1, 392, 2.31, 1.91),
    ),
    "a phase with its total and its share in front of the steps": (
        "INFO  Train:    1/3 ( 33%) [   0/300 (  0%)]  Loss: 516.7 (517.)  LR: 1.0e-04\n"
        "INFO  Train:    1/3 ( 33%) [ 150/300 ( 50%)]  Loss: 36.77 (81.7)  LR: 1.3e-04\n"
        "INFO  Train:    2/3 ( 66%) [   0/300 (  0%)]  Loss: 23.51 (54.8)  LR: 2.3e-04\n",
        (3, 1, 301, 516.7, 23.51),
    ),
    "names in brackets": (
        "INFO - [epoch]: 1, [batch]: 1, [loss]: 4.99\nINFO - [epoch]: 1, [batch]: 2, [loss]: 4.85\n"
        "INFO - [epoch]: 2, [batch]: 1, [loss]: 4.79\nINFO - [epoch]: 2, [batch]: 2, [loss]: 4.65\n",
        (4, 1, 4, 4.99, 4.65),
    ),
    "seconds in front of an epoch that shows its last step": (
        "377 epoch: 1 step: 229 ,total_loss: 0.55\n399 epoch: 2 step: 229 ,total_loss: 0.37\n"
        "424 s | epoch: 3 step: 229 ,total_loss: 0.31\n",
        (3, 229, 687, 0.55, 0.31),
    ),
    "episodes": (
        "Epoch : 1/50  episode : 1/40   Loss : 1.34  Accuracy : 0.48\n"
        "Epoch : 1/50  episode : 2/40   Loss : 1.29  Accuracy : 0.54\n",
        (2, 1, 2, 1.34, 1.29),
    ),
    "lines of batches without a loss between an epoch and its loss": (
        "======== Epoch 1 / 2 ========\n  Batch    40  of    241.    Elapsed: 0:00:08.\n  Average training loss: 0.50\n"
        "  Validation Loss: 0.43\n======== Epoch 2 / 2 ========\n  Batch    40  of    241.    Elapsed: 0:00:08.\n"
        "  Batch    80  of    241.    Elapsed: 0:00:16.\n  Average training loss: 0.30\n  Validation Loss: 0.46\n",
        (2, 1, 2, 0.5, 0.3),
    ),
    "a bar that shows a loss before its first step": (
        "".join(
            f"\rEpoch {epoch}/2:  {25 * step}%|##   | {step}/4 [00:01<00:02,  1.1it/s, loss={9 - epoch - step / 8}]"
            for epoch in (1, 2)
            for step in range(5)
        ),
        (8, 1, 8, 7.875, 6.5),
    ),
    "a bar whose share stands behind the word of a counter": (
        "epoch 11/50\nsteps:  22%|██████    | 176/800 [00:46<02:44,  3.79it/s, avr_loss=0.123]\n"
        "epoch 12/50\nsteps:  24%|███████   | 192/800 [00:50<02:39,  3.80it/s, avr_loss=0.122]\n"
        "epoch 13/50\nsteps:  26%|████████  | 208/800 [00:54<02:35,  3.81it/s, avr_loss=0.121]\n",
        (3, 176, 208, 0.123, 0.121),
    ),
    "objects of several kinds, those of an evaluation among them": (
        '{"type": "train", "step": 1, "loss": 2.3}\n{"type": "train", "step": 2, "loss": 2.2}\n'
        '{"type": "eval_end", "step": 2, "loss": 2.9}\n{"type": "train", "step": 3, "loss": 2.1}\n',
        (3, 1, 3, 2.3, 2.1),
    ),
    "dates that look like steps of Keras": (
        "[01/01 10:00:01 trainer]: Epoch 0 of 2 - step 1 - loss: 2.9\n"
        "[01/01 10:00:02 trainer]: Epoch 0 of 2 - step 2 - loss: 2.8\n",
        (2, 1, 2, 2.9, 2.8),
    ),
    "iterations of another logger than mmengine": (
        "epoch:[0/2] Iter[0/20] loss: 2.9 lr: 1.0e-03\nepoch:[0/2] Iter[10/20] loss: 2.8 lr: 1.0e-03\n"
        "epoch:[1/2] Iter[0/20] loss: 2.7 lr: 1.0e-03\nepoch:[1/2] Iter[10/20] loss: 2.6 lr: 1.0e-03\n",
        (4, 1, 31, 2.9, 2.6),
    ),
    "numbers with units in front of a loss": (
        "Epoch[0] batch 1 speed: 123 samples/s loss: 2.9 took 3 s\n=== val ===\nloss: 1.9\n"
        "Epoch[0] batch 2 speed: 123 samples/s loss: 2.8 took 3 s\n=== val ===\nloss: 1.8\n",
        (2, 1, 2, 2.9, 2.8),
    ),
    "Chinese words behind their counters": (
        "第1轮 第10步 训练损失：2.31\n第1轮 第20步 训练损失：2.21\n第2轮 第30步 训练损失：2.11\n",
        (3, 10, 30, 2.31, 2.11),
    ),
    "a bar of epochs": (
        "Epochs:   0%|      | 0/100 [00:10<01:30,  1.0it/s, loss=3.12]\r"
        "Epochs:   1%|#     | 1/100 [00:10<01:30,  1.0it/s, loss=3.02]\r"
        "Epochs:   2%|#     | 2/100 [00:11<01:30,  1.0it/s, loss=2.92]\n",
        (2, 1, 2, 3.02, 2.92),
    ),
    "a step in a bracket behind the prefix of a log": (
        "I1112 10:00:00.123456 140 logging_writer.py:48] [100] accuracy=0.1, loss=2.301, learning_rate=0.1\n"
        "I1112 10:00:10.123456 140 logging_writer.py:48] [200] accuracy=0.2, loss=2.201, learning_rate=0.1\n",
        (2, 100, 200, 2.301, 2.201),
    ),
    "a name that ends in loss": (
        "[Epoch 0] finished in 25.1s: train_softmaxcrossentropyloss0 : 0.5905\n"
        "[Epoch 1] finished in 23.5s: train_softmaxcrossentropyloss0 : 0.3197\n",
        (2, 1, 2, 0.5905, 0.3197),
    ),
    "glued names of both phases": (
        "epoch 1 valloss 2.41 trainloss 2.31\nepoch 2 valloss 2.21 trainloss 2.11\n",
        (2, 1, 2, 2.31, 2.11),
    ),
    "processes that scripts name at the head of a line": (
        "GPU 0 | step 10 | loss 2.30\nGPU 1 | step 10 | loss 2.35\n"
        "GPU 0 | step 20 | loss 2.20\nGPU 1 | step 20 | loss 2.25\n",
        (2, 10, 20, 2.3, 2.2),
    ),
    "folders of devices, indented": (
        "  device_0/log:epoch: 1 step: 48, loss is 1.43\n  device_0/log:epoch: 2 step: 48, loss is 1.40\n"
        "  device_1/log:epoch: 1 step: 48, loss is 1.34\n  device_1/log:epoch: 2 step: 48, loss is 1.37\n",
        (2, 48, 96, 1.43, 1.4),
    ),
    "what MindSpore's model zoo shows, with a slip": (
        "epoch: 1 step: 48, loss is 1.43\nepcoh: 2 step: 48, loss is 1.40\n",
        (2, 48, 96, 1.43, 1.4),
    ),
    "what MindSpore prints where the net returns a tuple": (
        "epoch[0], iter[100], loss:(Tensor(shape=[], dtype=Float32, value= 50.27), Tensor(shape=[], dtype=Bool, value= "
        "False), Tensor(shape=[], dtype=Float32, value= 32768)), cur_lr:0.000660, mean_fps:743.09 imgs/sec\n"
        "epoch[0], iter[200], loss:(Tensor(shape=[], dtype=Float32, value= 49.36), Tensor(shape=[], dtype=Bool, value= "
        "False), Tensor(shape=[], dtype=Float32, value= 32768)), cur_lr:0.001314, mean_fps:4426.42 imgs/sec\n",
        (2, 101, 201, 50.27, 49.36),
    ),
}


@pytest.mark.parametrize("name", READ)
def test_it_is_read_as_a_person_reads_it(tmp_path: Path, name: str) -> None:
    text, points = READ[name]
    assert _points(_described(tmp_path, text)) == pytest.approx(points)


REFUSED: dict[str, tuple[str, type[AlignError]]] = {
    "batches of a test below an epoch, where those of training cannot be told": (
        "INFO | Epoch 0\nINFO | [1/2] avg loss: 2.9\nINFO | [2/2] avg loss: 2.8\nINFO | Test: [1/9] Loss 1.9\n"
        "INFO | Epoch 1\nINFO | [1/2] avg loss: 2.7\nINFO | [2/2] avg loss: 2.6\nINFO | Test: [1/9] Loss 1.8\n",
        EmptyLogError,
    ),
    "parts of a loss on lines of their own": (
        "epoch 1:[ 1/10] time: 0.6\nd_loss: 3.2\ng_loss: 2914.1\n"
        "epoch 1:[ 2/10] time: 0.6\nd_loss: 2.2\ng_loss: 2104.1\n",
        SeveralLossesError,
    ),
    "prose about a loss among lines of another form": (
        "# epoch: 1 step: 1, loss is greater than 500 and less than 5000\nnothing else\n",
        EmptyLogError,
    ),
    "source code that a compiler shows": (
        "".join(f"   {at} |   float loss = {at}.5f; // epoch {at}\n      |         ^~~~\n" for at in range(10, 16)),
        EmptyLogError,
    ),
    "a table that compares models": (
        "model        epochs  loss   acc\nbaseline     100     0.91   70.1\n+aug         150     0.85   72.3\n"
        "+ema         200     0.81   73.0\n",
        EmptyLogError,
    ),
    "a lone record whose loss may lack digits": (
        " samples/sec: 7.8 | iteration       34/   10000 | learning rate: 2.1E-06 | lm_loss: 1.118",
        EmptyLogError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_rather_than_read_wrong(tmp_path: Path, name: str) -> None:
    text, error = REFUSED[name]
    with pytest.raises(error):
        _described(tmp_path, text)


def test_lines_of_training_without_a_counter_are_noted_where_others_are_read(tmp_path: Path) -> None:
    summary = _described(
        tmp_path,
        "0.5 % train_loss: 2.64\n('epoch 1 done', 'acc = 0.9, loss = 0.41')\n"
        "0.5 % train_loss: 0.64\n('epoch 2 done', 'acc = 0.9, loss = 0.31')\n",
    )
    assert summary.points == 2
    assert any("2 lines give a loss in another form (first: line 1)" in note for note in summary.notes)
