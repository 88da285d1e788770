"""The main job, end to end, on a real pair: each step is a command as a user would type it, shown before it runs.

Run it with `make demo`. It takes about two minutes on two cores and ends with the paths of what it wrote. The port
is the published one, which really differs from its original: two commands are expected to say "not aligned". All that
is written and changed lies in demo-run/, the copy of the port that is mended too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

RUN = "demo-run"
PROJECT = f"{RUN}/resnet.toml"


@dataclass(frozen=True)
class Step:
    """One command, what it is for, and the exit code that it must end with."""

    title: str
    command: str
    exit_code: int = 0


STEPS = (
    Step("1. A torch checkpoint, converted for the published port, which loads it with strict_load=True; both train",
         f"python examples/train_resnet.py {RUN}"),
    Step("2. Up the ladder: the published port differs; this finds where, why, and tries the change",
         f"align run --project {PROJECT} --keep-going", exit_code=1),
    Step("3. Make the change in a copy of the package, and climb again: the log is still that of the faulty port",
         f"align fix --project {PROJECT} --apply", exit_code=1),
    Step("4. Train the mended copy, which stands first on the import path",
         f"PYTHONPATH={RUN}/published/overlay python examples/train_resnet.py {RUN} --port-only"),
    Step("   Every rung passes", f"align run --project {PROJECT}"),
    Step("5. The report, with the patch to send upstream: an executed notebook and one HTML page",
         f"align report {RUN}/published"),
)  # fmt: skip
RESULTS = ("ladder.json", "forward.json", "fix.json", "step.json", "loss.json")
WRITTEN = ("map.toml", "candidate.ckpt", "inputs.npz", *RESULTS, "report.ipynb", "report.html")


def main() -> int:
    """Run all steps; stop at the first that ends with another exit code than expected."""
    copy_project()
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


def copy_project() -> None:
    """Begin anew, with a copy of the project: a fix writes into its file."""
    shutil.rmtree(Path(RUN, "published"), ignore_errors=True)
    Path(RUN).mkdir(exist_ok=True)
    for name in ("resnet.py", "resnet.toml"):
        shutil.copy(Path("examples", name), RUN)


def run(step: Step) -> int:
    """Show and run one command with the tools of this interpreter's environment; return its exit code."""
    print(f"$ {step.command}", flush=True)
    words = shlex.split(step.command)
    variables = dict(word.split("=", 1) for word in words[:1] if "=" in word)
    program, *arguments = words[len(variables) :]
    executable = str(Path(sys.executable).with_name(program))
    return subprocess.run([executable, *arguments], check=False, env=os.environ | variables).returncode


if __name__ == "__main__":
    sys.exit(main())
