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
    """One command, what it is for in English and Chinese, and the exit code that it must end with."""

    title: str
    chinese: str
    command: str
    exit_code: int = 0


STEPS = (
    Step("1. A torch checkpoint, converted for the published port, which loads it with strict_load=True; both train",
         "1. 一个 torch 权重文件，转换后由已发布的迁移模型以 strict_load=True 加载；两侧各自训练",
         f"python examples/train_resnet.py {RUN}"),
    Step("2. Up the ladder: the published port differs; this finds where, why, and tries the change",
         "2. 运行检查流程：已发布的迁移模型与原模型不一致；找出位置和原因，并试验修改",
         f"align run --project {PROJECT} --keep-going", exit_code=1),
    Step("3. Make the change in a copy of the package, and run again: the log is still that of the faulty port",
         "3. 在软件包的副本中应用修改，再次运行：日志仍是出错的迁移模型的",
         f"align fix --project {PROJECT} --apply", exit_code=1),
    Step("4. Train the mended copy, which stands first on the import path",
         "4. 训练修改后的副本，它在导入路径中排在最前",
         f"PYTHONPATH={RUN}/published/overlay python examples/train_resnet.py {RUN} --port-only"),
    Step("   Every rung passes", "   全部检查项通过", f"align run --project {PROJECT}"),
    Step("5. The report, with the patch to send upstream: an executed notebook and one HTML page",
         "5. 报告，附可提交给上游的补丁：一个已执行的 notebook 和一个 HTML 网页",
         f"align report {RUN}/published"),
)  # fmt: skip
RESULTS = ("ladder.json", "forward.json", "fix.json", "step.json", "loss.json")
WRITTEN = ("map.toml", "candidate.ckpt", "inputs.npz", *RESULTS, "report.ipynb", "report.html")


def main() -> int:
    """Run all steps; stop at the first that ends with another exit code than expected."""
    copy_project()
    start, is_chinese = time.monotonic(), reads_chinese()
    for number, step in enumerate(STEPS, 1):
        print(f"\n[{number}/{len(STEPS)}] {step.chinese if is_chinese else step.title}", flush=True)
        code = run(step)
        if code != step.exit_code:
            print(f"demo: expected exit code {step.exit_code}, got {code}", file=sys.stderr)
            return 1
    seconds = time.monotonic() - start
    print(f"\n用时 {seconds:.0f} s。已写入：" if is_chinese else f"\nDone in {seconds:.0f} s. Written:")
    for name in WRITTEN:
        print(f"  {Path(RUN, 'published', name)}")
    return 0


def reads_chinese() -> bool:
    """Tell whether align speaks Chinese to this reader: as `ALIGN_LANG` says, or else the locale."""
    wanted = map(os.environ.get, ("ALIGN_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    return next(filter(None, wanted), "").startswith("zh")


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
