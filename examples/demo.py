"""The main job, end to end, on a real pair: each step is a command as a user would type it, shown before it runs.

Run it with `make demo`. It takes about three minutes on two cores and ends with the paths of what it wrote. The port
is the published one, which really differs from its original: four commands are expected to say "not aligned".
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

RUN = "demo-run"
MODELS = "examples/resnet50.py"
TORCH, MINDSPORE, REPAIRED = (f"{MODELS}:{side}_model" for side in ("torch", "mindspore", "repaired"))
CHECKPOINTS = f"--reference-checkpoint {RUN}/resnet50.pth --candidate-checkpoint {RUN}/resnet50.ckpt"


@dataclass(frozen=True)
class Step:
    """One command, what it is for, the exit code that it must end with, and where its output goes (None: shown)."""

    title: str
    command: str
    exit_code: int = 0
    output: str | None = None


STEPS = (
    Step("Make a torch checkpoint: seeded weights, calibrated statistics",
         f"python examples/resnet50.py {RUN}/resnet50.pth"),
    Step("1. Map the names of two live models",
         f"align map {TORCH} {MINDSPORE} --run {RUN}"),
    Step("2. Convert the checkpoint; it is read back and compared bit for bit",
         f"align convert {RUN}/resnet50.pth {RUN}/resnet50.ckpt --map {RUN}/map.toml --overwrite --run {RUN}"),
    Step("   MindSpore loads it with strict_load=True",
         f"python examples/load_strictly.py {MINDSPORE} {RUN}/resnet50.ckpt"),
    Step("3. The same inputs through both: the published port differs; this finds where, why, and tries the change",
         f"align forward {TORCH} {MINDSPORE} {CHECKPOINTS} --map {RUN}/map.toml"
         f" --inputs examples/resnet50.py:inputs --run {RUN}", exit_code=1),
    Step("   The same with that one line of the port repaired: aligned",
         f"align forward {TORCH} {REPAIRED} {CHECKPOINTS} --map {RUN}/map.toml"
         f" --inputs {RUN}/inputs.npz --run {RUN}/repaired"),
    Step("4. A training step of both, each layer alone on its way forth and back: that line is all that is wrong in it",
         f"align step {MODELS}:torch_training {MODELS}:mindspore_training --map {RUN}/map.toml"
         f" --batch {MODELS}:training_batch --steps 1 --run {RUN}", exit_code=1),
    Step("   The same with it repaired: the loss, all 161 gradients, updates and statistics agree",
         f"align step {MODELS}:torch_training {MODELS}:repaired_training --map {RUN}/map.toml"
         f" --batch {MODELS}:training_batch --steps 1 --run {RUN}/repaired"),
    Step("5. A few training steps on both sides, each with its own log",
         f"python examples/train_resnet50.py torch {RUN}/resnet50.pth", output=f"{RUN}/torch.jsonl"),
    Step("   (MindSpore's LossMonitor prints this one)",
         f"python examples/train_resnet50.py mindspore {RUN}/resnet50.ckpt", output=f"{RUN}/mindspore.log"),
    Step("   Both curves on one axis, judged",
         f"align loss {RUN}/torch.jsonl {RUN}/mindspore.log --run {RUN}", exit_code=1),
    Step("6. The report: an executed notebook and one HTML page",
         f"align report {RUN}", exit_code=1),
)  # fmt: skip
RESULTS = ("forward.json", "step.json", "loss.json")
WRITTEN = ("map.toml", "resnet50.ckpt", "inputs.npz", *RESULTS, "report.ipynb", "report.html")


def main() -> int:
    """Run all steps; stop at the first that ends with another exit code than expected."""
    Path(RUN).mkdir(exist_ok=True)
    start = time.monotonic()
    for number, step in enumerate(STEPS, 1):
        print(f"\n[{number}/{len(STEPS)}] {step.title}", flush=True)
        code = run(step)
        if code != step.exit_code:
            print(f"demo: expected exit code {step.exit_code}, got {code}", file=sys.stderr)
            return 1
    print(f"\nDone in {time.monotonic() - start:.0f} s. Written:")
    for name in WRITTEN:
        print(f"  {Path(RUN, name)}")
    return 0


def run(step: Step) -> int:
    """Show and run one command with the tools of this interpreter's environment; return its exit code."""
    redirect = f" > {step.output}" if step.output else ""
    print(f"$ {step.command}{redirect}", flush=True)
    program, *arguments = shlex.split(step.command)
    executable = str(Path(sys.executable).with_name(program))
    if step.output is None:
        return subprocess.run([executable, *arguments], check=False).returncode
    with Path(step.output).open("w", encoding="utf-8") as stream:
        return subprocess.run([executable, *arguments], check=False, stdout=stream).returncode


if __name__ == "__main__":
    sys.exit(main())
