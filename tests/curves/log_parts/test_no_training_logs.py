"""Real-looking files that are no training logs are refused, whatever numbers and words of trainings stand in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from align.curves.compare_losses import describe_log
from align.errors import CannotRunError

if TYPE_CHECKING:
    from pathlib import Path


def _rows(row: str, count: int = 8, head: str = "", end: str = "") -> str:
    """Write lines in which `n` counts from 1."""
    return head + "".join(row.format(n=n, c=10 * n) + "\n" for n in range(1, count + 1)) + end


FILES = {
    "compiler": _rows(
        "[{c}%] Building CXX object core.dir/loss_{n}.cpp.o\na/loss_{n}.cpp:{c}:12: warning: loss of precision"
    ),
    "make": _rows("  CC      drivers/net/loss_{n}.o\n  LD      drivers/net/step{n}.a"),
    "pytest": _rows("tests/test_loss.py::test_loss_at_epoch[{n}-0.{n}] PASSED      [ {n}%]", end="8 passed in 1.3s\n"),
    "evaluation": _rows("Test: [{n:3d}/391]  Time 0.05 (0.06)  Loss 1.2{n} (1.1{n})  Acc@1 70.{n}"),
    "validation by epoch": _rows("Validation epoch {n}: val_loss 0.{n}, val_acc 0.8"),
    "Trainer's evaluation": _rows(
        "{{'eval_loss': 0.4{n}, 'eval_runtime': 1.2, 'epoch': {n}.0}}", head="***** Running Evaluation *****\n"
    ),
    "prose": "In epoch 3 the loss went from 0.9 to 0.7, as the authors report.\nAt step 40000 the loss fell to 0.52.\n",
    "paper": "Table 2. ResNet-50 has 76.1 top-1 with a loss of 0.95; at epoch 30 the\nrate is divided.\n",
    "source": "for epoch in range(10):\n    loss = model(batch)\n    print(f'step {step} loss {loss:.3f}')\nlr = 0.1\n",
    "traceback": 'File "train.py", line 120, in <module>\n    loss = f(out)\nRuntimeError: at step 10 with loss 3.5\n',
    "package": '{"name": "loss-viewer", "version": "1.2.3", "dependencies": {"react": "^18.2.0"}, "epochs": 3}',
    "annotations": '{"images": [{"id": 1, "width": 640}], "annotations": [{"id": 1, "bbox": [1, 2, 3, 4]}]}',
    "settings in JSON": '{"epochs": 90, "lr": 0.1, "loss": "cross_entropy", "steps_per_epoch": 5004}',
    "settings in YAML": "epochs: 90\nlr: 0.1\nloss: 1.0\nloss_weight: 0.5\nwarmup_steps: 500\nlog_every: 20\n",
    "JSON lines of events": _rows('{{"ts": 170000000{n}, "level": "info", "msg": "packet loss", "loss": 0.{n}}}'),
    "JSON lines of a validation": _rows('{{"epoch": {n}, "eval_accuracy": 0.9{n}, "eval_samples": 872}}'),
    "pip": _rows(
        "Downloading torch-2.{n}.0-cp310-cp310-manylinux1_x86_64.whl ({c}.2 MB)\r ━━━━ {c}.0/670.2 MB 9.5 MB/s"
    ),
    "ping": _rows("64 bytes from 10.0.0.1: icmp_seq={n} ttl=64 time=0.{n} ms", end="0% packet loss, time 8005ms\n"),
    "routes": _rows(
        "  {n}.|-- 10.0.{n}.1      0.0%    10    0.{n}   0.5", head="HOST: box    Loss%   Snt   Last   Avg\n"
    ),
    "houses": _rows("{n},{c}000,3,{c}0,7", head="id,price,bedrooms,sqft_living,total_rooms\n"),
    "claims": _rows("C{n},filed,{c}.50,2021-01-0{n}", head="claim,step,loss_amount,date\n"),
    "trades": _rows("2021-01-0{n},B{n},{c},{n}", head="date,batch,profit,loss\n"),
    "results of models": _rows("net{n},90,0.{n}1,7{n}.0", head="model,epochs,loss,acc\n"),
    "commits": _rows("{n:07x} epoch {n}: reduce loss by 0.{n}"),
    "graphics cards": _rows(
        "|   {n}  Tesla V100-SXM2...  On   | 00000000:0{n}:00.0 Off |    0 |\n| N/A  4{n}C  P0 | {c}MiB |"
    ),
    "Markdown": _rows(
        "| ResNet-{n} | 90 | 7{n}.1 | 2{n}.5M |", head="| Model | Epochs | Top-1 | Params |\n|---|---|---|---|\n"
    ),
    "Markdown with losses": _rows("| ResNet-{n} | 0.{n}1 | 90 |", head="| Model | Loss | Epochs |\n|---|---|---|\n"),
    "requests": _rows(
        '10.0.0.{n} - - [10/Oct/2021:13:55:0{n} +0000] "GET /m?step={n}&loss=0.{n} HTTP/1.1" 200 23{n} "-"'
    ),
    "timings": _rows("step {n}: forward 12.{n} ms, backward 25.{n} ms, optimizer 3.{n} ms"),
    "containers": _rows("Step {n}/8 : RUN pip install package-{n}\n ---> Running in {n:012x}"),
    "kernel": _rows("[    {n}.{n}11111] usb 1-{n}: new high-speed USB device number {n} using xhci_hcd"),
    "search": _rows(
        "[I 2021-01-01 10:00:0{n},123] Trial {n} finished with value: 0.{n}. Best loss is 0.0{n} of trial 0."
    ),
    "grid": _rows("lr=1e-{n} batch_size=32 epochs=10 -> best val loss 0.{n}5, final train loss 0.{n}2"),
    "copying": _rows("  {c},048,576 {n}%   10.5{n}MB/s    0:00:0{n} (xfr#{n}, to-chk={c}/100)"),
    "games": _rows("Game {n}: win 0.5{n} draw 0.1 loss 0.{n}3 after {c} moves"),
    "parameters": _rows("layer{n}.conv.weight  [64, {n}, 3, 3]  {c}  loss_scale 1.0"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_training_log_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_text(FILES[name], encoding="utf-8")
    with pytest.raises(CannotRunError):
        describe_log(path)


def test_a_training_log_among_them_is_read(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    path.write_text(FILES["pip"] + _rows("step {n}: loss 0.{n}5") + FILES["ping"] + FILES["timings"], encoding="utf-8")
    assert describe_log(path).points == 8
