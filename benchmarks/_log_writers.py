"""Logs of a curve as trainers of each family print it, a line or more a point: the lines that `loss_logs.py` writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

EPOCH = 1000  # steps


def csv(losses: list[float]) -> Iterator[str]:
    """Global steps from 1, with a learning rate."""
    yield "step,loss,lr\n"
    for step, loss in enumerate(losses, start=1):
        yield f"{step},{loss!r},0.001\n"


def jsonl(losses: list[float]) -> Iterator[str]:
    """Objects of global steps, with a learning rate."""
    for step, loss in enumerate(losses, start=1):
        yield json.dumps({"step": step, "loss": loss, "lr": 0.001}) + "\n"


def lossmonitor(losses: list[float]) -> Iterator[str]:
    """Steps inside epochs, and the times of each epoch."""
    for step, loss in enumerate(losses):
        yield f"epoch: {step // EPOCH + 1} step: {step % EPOCH + 1}, loss is {loss!r}\n"
        if step % EPOCH == EPOCH - 1:
            yield f"Train epoch time: {EPOCH * 12.5:.3f} ms, per step time: 12.500 ms (data time: 0.250 ms)\n"


def mindcv(losses: list[float]) -> Iterator[str]:
    """Steps inside epochs with six decimals, a learning rate and the time of each step."""
    for step, loss in enumerate(losses):
        place = f"Epoch: [{step // EPOCH + 1}/{len(losses) // EPOCH + 1}], batch: [{step % EPOCH + 1}/{EPOCH}]"
        now = f"[2026-11-20 08:43:05] mindcv.utils.callbacks INFO - {place}"
        yield f"{now}, loss: {loss:.6f}, lr: 0.100000, time: {0.0125 + loss / 100:.6f}s\n"


def megatron(losses: list[float]) -> Iterator[str]:
    """Global steps with the means of one iteration, between bars."""
    for step, loss in enumerate(losses, start=1):
        yield (
            f" [2026-11-20 23:56:28] iteration {step:8d}/{len(losses):8d} | consumed samples: {8 * step:12d} | "
            f"elapsed time per iteration (ms): {34 + loss:.1f} | learning rate: 1.000000E-01 | "
            f"global batch size:     8 | lm loss: {loss:.6E} | loss scale: 1024.0 | grad norm: {loss / 3:.3f} | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        )


def mmengine(losses: list[float]) -> Iterator[str]:
    """Steps inside epochs, and pairs of names and numbers."""
    for step, loss in enumerate(losses):
        place = f"Epoch(train) [{step // EPOCH + 1}][{step % EPOCH + 1:4d}/{EPOCH}]"
        yield (
            f"2026/11/20 08:34:15 - mmengine - INFO - {place}  lr: 1.0000e-02  eta: 0:10:00  "
            f"time: {loss / 1000:.4f}  data_time: 0.0008  loss: {loss:.4f}  loss1: {loss / 4:.4f}\n"
        )


def mmengine_scalars(losses: list[float]) -> Iterator[str]:
    """Objects with all digits, two means and the counters."""
    for step, loss in enumerate(losses):
        row = {"lr": 0.01, "data_time": 0.0008, "loss": loss, "loss1": loss / 4, "time": 0.0014}
        yield json.dumps({**row, "epoch": step // EPOCH + 1, "iter": step + 1, "step": step + 1}) + "\n"


def mmcv_json(losses: list[float]) -> Iterator[str]:
    """Objects with five decimals; the iteration starts again with each epoch."""
    for step, loss in enumerate(losses):
        row = {"mode": "train", "epoch": step // EPOCH + 1, "iter": step % EPOCH + 1, "lr": 0.00198, "memory": 3100}
        means = {"data_time": 0.0312, "loss_cls": round(loss / 4, 5), "loss": round(loss, 5)}
        yield json.dumps({**row, **means, "time": round(0.4 + loss / 1000, 5)}) + "\n"


def mindformers(losses: list[float]) -> Iterator[str]:
    """Steps inside epochs with the mean of the epoch so far, and what a loss scaler tells."""
    for step, loss in enumerate(losses):
        place = f"Epoch:[{step // EPOCH + 1:3d}/{len(losses) // EPOCH + 1:3d}], step:[{step % EPOCH + 1:5d}/{EPOCH:5d}]"
        yield (
            f"2026-11-20 23:15:44,838 - mindformers[mindformers/core/callback/callback.py:377] - INFO - {{ {place}, "
            f"loss:[{loss:.3f}/{loss - 0.1:.3f}], per_step_time: {900 + step % 100}ms, lr: [2.4499998e-06], "
            f"overflow cond: False, loss_scale: 1024.0, global_norm: [{loss / 3:.7f}]\n"
        )


def torchtitan(losses: list[float]) -> Iterator[str]:
    """Global steps with the norm, the memory and the throughput."""
    for step, loss in enumerate(losses, start=1):
        yield (
            f"[titan] 2026-11-20 23:19:40,858 - root - INFO - step: {step:2}  loss: {loss:8.5f}  "
            f"grad_norm: {loss / 3:7.4f}  memory:  0.90GiB(1.25%)  tps: {2000 + step % 500:,}  tflops: 0.00  "
            "mfu: 0.00%\n"
        )


def hf_stdout(losses: list[float]) -> Iterator[str]:
    """Dicts between the states of a progress bar."""
    for step, loss in enumerate(losses, start=1):
        yield (
            f"{{'loss': '{loss:.4g}', 'grad_norm': '{loss / 3:.4g}', 'learning_rate': '5e-05', "
            f"'epoch': '{step / EPOCH:.4g}'}}\n"
            f"\r {100 * step // len(losses):2d}%|##5       | {step}/{len(losses)} [00:00<00:00, 167.17it/s]\r"
        )


def paddleclas(losses: list[float]) -> Iterator[str]:
    """Iterations inside epochs, counted from 0, with means of the epoch so far and costs."""
    for step, loss in enumerate(losses):
        place = f"[Train][Epoch {step // EPOCH + 1}/{len(losses) // EPOCH + 1}][Iter: {step % EPOCH}/{EPOCH}]"
        yield (
            f"[2026/11/20 23:36:16] ppcls INFO: {place}lr(Linear): 0.10000000, top1: {loss / 10:.5f}, "
            f"CELoss: {loss:.5f}, loss: {loss:.5f}, batch_cost: {loss / 100:.5f}s, reader_cost: 0.00000, "
            f"ips: {50 * loss:.5f} samples/s, eta: 0:00:00\n"
        )


def paddlenlp(losses: list[float]) -> Iterator[str]:
    """Global steps of the Trainer, with throughputs since the last print."""
    for step, loss in enumerate(losses, start=1):
        yield (
            f"[2026-11-20 23:42:45,781] [    INFO] - loss: {loss:.8f}, learning_rate: 0.04688, global_step: {step}, "
            f"interval_runtime: 0.0517, interval_samples_per_second: {20 * loss:.4f}, "
            f"interval_steps_per_second: {10 * loss:.4f}, progress_or_epoch: {step / EPOCH:.4f}\n"
        )


def paddledetection(losses: list[float]) -> Iterator[str]:
    """Steps inside epochs, both counted from 0, with costs."""
    for step, loss in enumerate(losses):
        yield (
            f"[11/20 23:38:35] ppdet.engine INFO: Epoch: [{step // EPOCH}] [{step % EPOCH:4d}/{EPOCH}] "
            f"learning_rate: 0.100000 loss_cls: {loss / 4:.6f} loss: {loss:.6f} eta: 0:00:00 "
            f"batch_cost: {loss / 100:.4f} data_cost: 0.0000 ips: {50 * loss:.4f} images/s\n"
        )


def paddle_hapi(losses: list[float]) -> Iterator[str]:
    """Steps inside epochs, below a line of the epoch."""
    for step, loss in enumerate(losses):
        if step % EPOCH == 0:
            yield f"Epoch {step // EPOCH + 1}/{len(losses) // EPOCH + 1}\n"
        yield f"step {step % EPOCH + 1:4d}/{EPOCH} - loss: {loss:.4f} - acc: {loss / 10:.4f} - {8 + step % 5}ms/step\n"


def yolox(losses: list[float]) -> Iterator[str]:
    """A console that is data in `mappings/log_formats/`, with many metrics."""
    for step, loss in enumerate(losses):
        place = f"epoch: {step // EPOCH + 1}/{len(losses) // EPOCH + 1}, iter: {step % EPOCH + 1}/{EPOCH}"
        yield (
            f"2021-10-12 16:05:13 | INFO     | yolox.core.trainer:253 - {place}, mem: 6234Mb, iter_time: 0.912s, "
            f"data_time: 0.104s, total_loss: {loss:.3f}, iou_loss: {loss / 2:.3f}, l1_loss: 0.0, "
            f"conf_loss: {loss / 3:.3f}, cls_loss: 1.0, lr: 1.250e-05, size: 640, ETA: 3:02:13\n"
        )


def lines(losses: list[float]) -> Iterator[str]:
    """Lines that no format knows: the reader of last resort infers what is what."""
    for step, loss in enumerate(losses, start=1):
        yield f"[08:43:05] train | iter {step} | total loss {loss!r} | lr 0.001\n"


WRITERS = {
    write.__name__: write
    for write in (
        csv, jsonl, lossmonitor, mindcv, mindformers, megatron, torchtitan, mmengine, mmengine_scalars, mmcv_json,
        hf_stdout, paddleclas, paddlenlp, paddledetection, paddle_hapi, yolox, lines,
    )
}  # fmt: skip
