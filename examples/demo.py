"""The main job, end to end, on a real pair: each step is a command as a user would type it, shown before it runs.

Run it with `make demo`. It takes about two minutes on two cores and ends with the paths of what it wrote. The port
is the published one, which really differs from its original: two commands are expected to say "not aligned".
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

RUN = "demo-run"
MODELS = "examples/resnet.py"
TRAIN = "python examples/train_resnet.py"


@dataclass(frozen=True)
class Step:
    """One command, what it is for, the exit code that it must end with, and where its output goes (None: shown)."""

    title: str
    command: str
    exit_code: int = 0
    output: str | None = None


STEPS = (
    Step("Make a torch checkpoint: seeded weights, calibrated statistics",
         f"python examples/resnet.py {RUN}/resnet18.pth"),
    Step("1. Convert it by both models; it is read back and compared bit for bit",
         f"align convert {RUN}/resnet18.pth {RUN}/resnet18.ckpt --source-model {MODELS}:torch_model"
         f" --target-model {MODELS}:mindspore_model --overwrite"),
    Step("2. A few training steps of the original, each with its own log",
         f"{TRAIN} torch {RUN}/resnet18.pth", output=f"{RUN}/torch.jsonl"),
    Step("   and of the published port, which loads it with strict_load=True; MindSpore's LossMonitor prints this one",
         f"{TRAIN} mindspore {RUN}/resnet18.ckpt", output=f"{RUN}/mindspore.log"),
    Step("   and of the port with the one line repaired",
         f"{TRAIN} repaired {RUN}/resnet18.ckpt", output=f"{RUN}/repaired.log"),
    Step("3. Up the ladder: the published port differs; this finds where, why, and tries the change",
         "align run --project examples/resnet.toml --keep-going", exit_code=1),
    Step("4. The same with that one line of the port repaired: every rung passes",
         "align run --project examples/resnet_repaired.toml"),
    Step("5. The report of the published port: an executed notebook and one HTML page",
         f"align report {RUN}/published", exit_code=1),
)  # fmt: skip
RESULTS = ("ladder.json", "forward.json", "step.json", "loss.json")
WRITTEN = ("map.toml", "candidate.ckpt", "inputs.npz", *RESULTS, "report.ipynb", "report.html")


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
        print(f"  {Path(RUN, 'published', name)}")
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
