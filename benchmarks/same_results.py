"""Two checkouts of this project do the same jobs, and all that they print and write is compared byte for byte.

A job is a folder in which commands run, each in a process that has not seen align, once with --json, once for the eye.
Both checkouts run it at one path, in turn, so that no path differs. Commands, models and logs of OLD's docs and tests
count for both, the examples are those of each; in `old-files` both read what OLD wrote.
Masked is what no two runs share: times, process numbers, and where the modules of align lie.
Run: python benchmarks/same_results.py OLD NEW [--work DIR] [--only NAME ...] [--keep-old]
Bars: the first line begins with "same"; 1 if anything differs, 2 if a tree cannot run.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

SAVED = """
import runpy, numpy, torch
state = runpy.run_path("original.py")["build"]().state_dict()
torch.save(state, "net.pth"), numpy.savez("weights.npz", **{name: value.numpy() for name, value in state.items()})
numpy.savez("inputs.npz", x=numpy.random.default_rng(1).standard_normal((2, 3, 16, 16)).astype("float32"))
"""
PROJECT = """
open("align.toml", "w").write('''
reference = { model = "original.py:build", checkpoint = "net.pth" }
candidate = { model = "port.py:build", checkpoint = "net.ckpt" }
forward = { inputs = "inputs.npz", map = "map.toml" }
limits = { fc = { max_abs = 1e-3, rmse = 1e-4 }, conv = 3.0 }
accepted = [{ layer = "down", reason = "known" }]
loss.presets.strict = { source = "ours", mean_rel = 0.002, drift = true }
''')
"""
TOKENS = """
import numpy, torch, tiny_llama
torch.save(tiny_llama.build().state_dict(), "llama.pth"), numpy.savez("ids.npz", ids=numpy.arange(12).reshape(2, 6))
"""
FILES = """
import onnx, torch
draw, save = torch.Generator().manual_seed(0), torch.save
shapes = {"embeddings.word.weight": (100, 16), "embeddings.norm.weight": 16, "embeddings.norm.bias": 16}
shapes |= {"act.weight": 1, "head.weight": (100, 16), "conv.weight": (4, 3, 3), "conv.bias": 4}
small = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
save(small, "small.pth"), save(small, "old.pth", _use_new_zipfile_serialization=False)
save({"module." + name: value for name, value in small.items()}, "prefixed.pth"), save(torch.nn.ReLU(), "whole.pth")
bert = {f"layers.{i}.attn.qkv.weight": torch.zeros(96, 32) for i in range(12)} | {"word.weight": torch.zeros(1000, 128)}
save(bert | {"decoder.weight": bert["word.weight"], "position_ids": torch.arange(512).reshape(1, 512)}, "bert.pth")
save({"model": {"fc.weight": torch.zeros(40, 30)}, "ema": {"fc.weight": torch.ones(40, 30)}, "epoch": 3}, "train.pth")
before = {f"layers.{i}.weight": torch.arange(12.0).reshape(3, 4) - i for i in range(3)} | {"norm.weight": torch.ones(4)}
save(before, "before.pth"), save({"model": {name: value * 0.999 for name, value in before.items()}}, "after.pth")
kept = [onnx.numpy_helper.from_array(value.numpy(), name) for name, value in before.items()]
onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "net", [], [], kept)), "before.onnx")
broken = {"text.pth": b"text", "short.pth": open("small.pth", "rb").read()[:700], "short.safetensors": bytes(8) + b"{}"}
[open(name, "wb").write(content) for name, content in (broken | {"short.ckpt": bytes([10, 255, 255, 1])}).items()]
"""
LIGHT = "numpy pandas scipy.stats rich.console typer"


@dataclass(frozen=True)
class Job:
    """Commands of pages of docs/, and more ({a|b}: two of them), code that makes files, jobs whose files are taken."""

    commands: str = ""
    made_by: str = ""
    pages: str = ""
    takes: str = ""
    imports: str = f"{LIGHT} torch mindspore transformers.models.llama.modeling_llama"


WORDS = {
    "CKPT": "--candidate-checkpoint net.ckpt",
    "PAIR": "original.py:build port.py:build",
    "LLAMA": "tiny_llama.py:build tiny_llama_port.py:build",
    "IMAGE": '--input "x=float32[2,3,16,16]"',
    "KINDS": "--layer embeddings.word=embedding --layer head=linear --layer act=prelu --layer conv=conv-1d",
}
JOBS = {
    "help": Job("""
align {|--help|--version|plugins|nonsense}
align {map|convert|inspect|diff|lint|capture|trace|forward|bisect|repro|validate|generate|loss|report|plugins} --help
python -c "import align; [help(getattr(align, name)) for name in align.__all__]"
""", imports=LIGHT),
    "files": Job("""
align convert small.pth small.safetensors --target mint KINDS {--dry-run --all|--run run}
align convert {old.pth old.npz|bert.pth shards.safetensors --max-shard-size 200KB} --target torch
align convert {prefixed.pth new.pth --strip module.|train.pth ema.pth --key ema --all|small.ckpt back.pth KINDS}
align convert shards.safetensors.index.json bert.npz --target torch --dtype fp16 --no-verify
align convert small.pth {small.ckpt|small.doc|new.ckpt --map nothing.toml|new.ckpt --layer x=y}
align convert bert.pth bert.ckpt {|--family hf-bert|--family nothing}
align inspect {before.onnx|old.pth|small.ckpt|old.npz|shards.safetensors.index.json} --all
align inspect {whole.pth|whole.pth --trust-pickle|text.pth|short.pth|short.safetensors|short.ckpt|nothing.pth}
align diff {small.pth old.npz|small.pth prefixed.pth --strip module.|before.onnx before.pth --all} --unchanged
align diff train.pth train.pth --key-a model --key-b {ema|nothing}
align map small.pth {--target nn|--target mint KINDS|nothing.pth|prefixed.pth --family auto|small.pth --out same.csv}
""", FILES, "inspect diff convert", imports=LIGHT),
    "names": Job("""
align map pair.py:original pair.py:port {--rules settled.toml --strict-rules --all|--out names.csv}
align map original.npz {port.npz --check weights.toml|--target mint --layer blocks.*=embedding --all}
align {convert original.npz port.ckpt|diff original.npz port.npz} --map weights.toml
""", pages="map"),
    "faults": Job("""
align map PAIR --inputs inputs.npz --trial --run run
align {convert net.pth half.ckpt --dtype bf16|convert net.pth net.ckpt --overwrite|lint PAIR} --map map.toml --run run
align forward PAIR CKPT {--map map.toml --inputs inputs.npz --run run --all|IMAGE --limit down=1e9 --no-power}
align forward PAIR CKPT {IMAGE --candidate-dtype float16|--input "x=float32[2,4,16,16]"|IMAGE --limit nothing=2|}
align forward PAIR --candidate-checkpoint half.ckpt IMAGE
align capture original.py:build IMAGE --out reference --functions --layer-inputs --backward
align capture port.py:build --checkpoint net.ckpt --inputs reference/inputs.npz --out candidate --backward
align trace show reference --all
align forward reference{ candidate --map map.toml --run folders|/backward candidate/backward| nowhere| port.py:build}
align bisect PAIR CKPT IMAGE {--map map.toml --all|--point bn=bn|--point no=no}
align repro PAIR CKPT --inputs inputs.npz --map map.toml --layer norm --out alone
align {report run|report reference|map nowhere.py:build port.py:build}
""", SAVED, "forward"),
    "project": Job("""
align {map --out map.toml --run run|forward --run run|lint|bisect|repro --out alone}
align loss LOGS/megatron_every1.log LOGS/megatron_every5.log --preset {strict --run run|nothing}
align {report run --no-html|forward PAIR --project nothing.toml}
""", SAVED + PROJECT, "forward"),
    "lint": Job(pages="lint"),
    "bisect": Job('align bisect energy.py:build --precision bfloat16 --input "x=float32[4,8]"', SAVED, "bisect"),
    "capture": Job("align trace show reference --depth 1", pages="capture"),
    "repro": Job("python pooling/{reference|candidate}_layer.py", SAVED, "repro"),
    "validate": Job("align validate PAIR CKPT --data pipelines.py:torch_data --metric {top5|no}", SAVED, "validate"),
    "llama": Job("""
align map LLAMA {--out map.toml --run run --all|--out map.json --expand --inputs ids.npz|--check map.toml}
align map tiny_llama.py:build --target {nn --family hf-llama --out one.toml|mint}
align convert llama.pth {mapped.ckpt --run run|half.ckpt --dtype bf16|a.safetensors --max-shard-size 9KB} --map map.toml
align convert {mapped.ckpt back.pth --map run/convert.json|a.safetensors.index.json again.pth --map map.toml}
align diff llama.pth {mapped.ckpt --map run/convert.json|half.ckpt --map map.toml|back.pth --unchanged}
align {lint LLAMA|capture tiny_llama.py:build --inputs ids.npz --out reference}
align capture tiny_llama_port.py:build --checkpoint mapped.ckpt --inputs ids.npz --out candidate --tensors first:100
align forward LLAMA --candidate-checkpoint mapped.ckpt --map map.toml --inputs ids.npz --run run --all
align bisect {LLAMA --candidate-checkpoint mapped.ckpt|tiny_llama.py:build --precision bfloat16} --inputs ids.npz
align repro LLAMA --candidate-checkpoint mapped.ckpt --inputs ids.npz --layer model.norm --out alone
align {loss LOGS/hf_stdout_4.log LOGS/hf_trainer_state.json --run run|report run}
""", TOKENS, "generate"),
    "losses": Job("""
align loss LOGS/megatron_every1.log LOGS/megatron_every5.log --preset {exact --run run --plot run.png|megatron|nothing}
align loss LOGS/mindcv_rank0.log LOGS/mindspore_lossmonitor.log --reference-runs LOGS/paddle_hapi_bar.log
align loss LOGS/mmengine_{iter.log LOGS/mmengine_iter|epoch.log --metric lr LOGS/mmengine_epoch}_scalars.json
align loss LOGS/hf_stdout_5.log LOGS/hf_stdout_5_{state.json --last-step 20|every_third.log --steps-per 2:1}
align loss LOGS/lightning_metrics.csv LOGS/lightning_rates.csv --base 1 --candidate-base 0
align loss LOGS/{tensorboard.tfevents LOGS/tensorboard_styles.tfevents|paddle_hapi_costs.log LOGS/paddle_hapi_bar.log}
align loss LOG
align {loss LOGS/mindformers_overflow.log LOGS/mindformers_quoted.log|loss LOGS/train_hf.py|report run}
""", pages="loss", imports=LIGHT),
    "demo": Job("python examples/demo.py\npython examples/forward_alignment.py demo-run/python", imports=LIGHT),
    "old-files": Job("""
align {report llama/run|report faults/run|trace show llama/reference}
align convert llama/{llama.pth llama/new.ckpt --map llama/map.toml|mapped.ckpt new.pth --map llama/run/convert.json}
align diff llama/llama.pth llama/mapped.ckpt --map llama/run/convert.json
align map LLAMA {--check llama/map.toml|--rules llama/map.toml --out llama/map.toml}
align forward {llama/reference llama/candidate --map llama|faults/reference faults/candidate --map faults}/map.toml
align inspect {files/shards.safetensors.index.json|llama/candidate/values.safetensors}
""", takes="files faults llama"),
}  # fmt: skip

WITH_RUN = {"map", "convert", "inspect", "diff", "lint", "forward", "bisect", "validate", "generate", "loss"}
WITH_JSON = WITH_RUN | {"capture", "trace", "report", "repro", "plugins"}
BROKEN = re.compile(r"internal error in|Traceback \(most recent|exit code (?![012]$)")
MASKS = {
    r"\d{4}-\d\d-\d\d[T -]\d\d:\d\d(:\d\d)?([.,]\d+)*(Z|\+00:00| UTC)?": "<time>",
    r"Done in \d+ s": "Done in <seconds>",
    r"[\w./-]*\balign/[\w/]+\.py(:\d+|\", line \d+)?": "<file of align>",
    r"\balign(?!\.toml)(\.\w+)+\b(?!\()": "<module of align>",
    r"[\w./-]+/scratch/[\w.-]+": "<scratch>",
    r"\b0x[0-9a-f]{8,}": "<address>",
}


def main() -> int:
    """Run the jobs with both trees, compare, and say first whether all is the same."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path, nargs="?")
    parser.add_argument("--work", type=Path, help="folder to work in; by default a new one")
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS), metavar="NAME", help=", ".join(JOBS))
    parser.add_argument("--keep-old", action="store_true", help="use what OLD made in --work in an earlier run")
    options = parser.parse_args()
    if options.old.name == "spec.json":
        return serve(json.loads(options.old.read_text(encoding="utf-8")))
    trees = {"old": options.old.resolve(), "new": (options.new or Path()).resolve()}
    if lacking := [str(tree) for tree in trees.values() if not (tree / "pyproject.toml").is_file()]:
        print(f"cannot run: no checkout: {', '.join(lacking)}")
        return 2
    work = (options.work or Path(tempfile.mkdtemp())).resolve()
    run_jobs(work, trees, options.only, keep_old=options.keep_old)
    return judge(work, [name for name in JOBS if name in options.only])


def run_jobs(work: Path, trees: dict[str, Path], names: list[str], *, keep_old: bool) -> None:
    """Run the jobs of those names with each tree in turn, with OLD also those whose files they take."""
    taken = {other for name in names for other in JOBS[name].takes.split()}
    for side, tree in trees.items():
        install(tree, work)
        for name in [name for name in JOBS if name in names or (side == "old" and name in taken)]:
            if side == "new" or not (keep_old and (work / "old" / name).is_dir()):
                run_job(name, work, side, trees["old"])


def judge(work: Path, names: list[str]) -> int:
    """Compare what both trees left, print it and return the exit code."""
    codes = Counter(code for name in names for code in exit_codes(work / "old" / name))
    if broken := sorted(code for code in codes if code not in ("0", "1", "2")):
        print("cannot run: commands of OLD broke", *broken, sep="\n")
        return 2
    counts = Counter(documents=0, files=0, bytes=0)
    found = [line for name in names for line in compare(work / "old" / name, work / "new" / name, counts)]
    whole = "{documents} documents, {files} files, {bytes} bytes".format_map(counts)
    print(f"DIFFERENT: {len(found)} of {whole}" if found else f"same: {whole}", *found, sep="\n")
    print(f"exit codes: {', '.join(f'{code} of {count}' for code, count in sorted(codes.items()))}")
    return int(bool(found))


def exit_codes(folder: Path) -> list[str]:
    """The exit code of each command of a job; of those that did not end as a command should, what they said."""
    said = {path: path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("printed/*.err"))}
    odd = {path: f"{folder.name}/{path.name}: {text[-300:]}" for path, text in said.items() if BROKEN.search(text)}
    return [odd.get(path, text.split()[-1]) for path, text in said.items()]


def install(tree: Path, work: Path) -> None:
    """Copy what of a checkout is run to one path, and make an environment whose `align` starts it."""
    shutil.rmtree(work / "tree", ignore_errors=True)
    for name in ("align", "mappings", "notebooks", "examples"):
        shutil.copytree(tree / name, work / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    project = (tree / "pyproject.toml").read_text(encoding="utf-8")
    (work / "tree" / "pyproject.toml").write_text(project, encoding="utf-8")
    if not (work / "env").is_dir():
        venv.create(work / "env", symlinks=True)
        mine = [path for path in sys.path if path.endswith("site-packages")]
        packages = next((work / "env").glob("lib/python*/site-packages"))
        (packages / "mine.pth").write_text(f"import site; [*map(site.addsitedir, {mine})]\n", encoding="utf-8")
    module, function = re.findall(r'^align = "(.+):(.+)"$', project, re.MULTILINE)[0]
    command = work / "env" / "bin" / "align"
    text = f"#!{command.with_name('python')}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    command.write_text(text, encoding="utf-8")
    command.chmod(0o755)


def run_job(name: str, work: Path, side: str, old: Path) -> None:
    """Run one job in a fresh folder at a path that both sides share, then move the folder to its side."""
    job, here, given = JOBS[name], work / "now" / name, work / "given" / name
    print(f"{side}: {name}", file=sys.stderr, flush=True)
    for stale in (here, work / "scratch", work / side / name, *([given] if side == "old" else [])):
        shutil.rmtree(stale, ignore_errors=True)
    for folder in (here / "printed", work / "scratch", work / side, given):
        folder.mkdir(parents=True, exist_ok=True)
    lines, commands = fill(given, old, work, make=side == "old"), []
    for way in ("json", "text") if name != "demo" else ("text",):
        shutil.copytree(given, here / way)
        for taken in job.takes.split():
            shutil.copytree(work / "old" / taken / "json", here / way / taken)
        for number, line in enumerate(lines, 1):
            stem = f"{way}-{number:02}-{'-'.join(re.findall(r'[a-z]+', line)[:2])}"
            commands.append([str(here / way), completed(line, number, way), str(here / "printed" / stem)])
    spec = {"commands": commands, "imports": job.imports.split()}
    (work / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
    python(work, [__file__, str(work / "spec.json")], work)
    shutil.move(here, work / side / name)


def fill(given: Path, old: Path, work: Path, *, make: bool) -> list[str]:
    """Write what both sides start from, if it is to be made, and return the commands of the job."""
    job, lines, logs = JOBS[given.name], [], next((old / "tests").rglob("mmengine_epoch.log")).parent
    examples = given / ("examples" if "demo.py" in job.commands else "")
    for source, target in ((logs, given / logs.relative_to(old)), (work / "tree" / "examples", examples)):
        shutil.copytree(source, target, dirs_exist_ok=True)
    for page in job.pages.split():
        text = (old / "docs" / f"{page}.md").read_text(encoding="utf-8")
        for block, name in re.findall(r"```(?:python|toml)\n(# (\S+\.\w+)\n.*?)```", text, re.DOTALL):
            (given / name).write_text(block, encoding="utf-8")
        lines += re.findall(r"^\$ (.*)$", "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)), re.MULTILINE)
    if make and job.made_by:
        python(work, ["-c", job.made_by], given)
    names = [str(path.relative_to(old)) for path in sorted(logs.iterdir()) if path.suffix != ".py"]
    own = job.commands.strip()
    for word, meant in (WORDS | {"LOGS": str(logs.relative_to(old)), r"LOG\b": "{" + "|".join(names) + "}"}).items():
        own = re.sub(rf"\b{word}", meant, own)
    return lines + [one for line in own.splitlines() for one in expanded(line)]


def expanded(line: str) -> list[str]:
    """A line with each of the {a|b} in it."""
    if not (found := re.search(r"\{([^{}]*)\}", line)):
        return [line]
    return [one for way in found[1].split("|") for one in expanded(line[: found.start()] + way + line[found.end() :])]


def completed(line: str, number: int, way: str) -> str:
    """A command with the options that have its result kept, and printed as a document."""
    name = "".join(re.findall(r"^align (\w+)", line if "--help" not in line else ""))
    kept = f" --run runs/{number:02}" if name in WITH_RUN and "--run " not in line else ""
    return line + kept + (" --json" if way == "json" and name in WITH_JSON else "")


def python(work: Path, arguments: list[str], folder: Path) -> None:
    """Run Python with the installed checkout in front."""
    tree, scratch, cache = (f"{work}/{name}" for name in ("tree", "scratch", "cache"))
    own = {"PYTHONPATH": tree, "TMPDIR": scratch, "XDG_CACHE_HOME": cache, "PYTHONDONTWRITEBYTECODE": "1"}
    own |= {"JUPYTER_PATH": f"{sys.prefix}/share/jupyter", "COLUMNS": "100"}
    subprocess.run([str(work / "env/bin/python"), *arguments], check=True, cwd=folder, env=os.environ | own)


def serve(spec: dict[str, Any]) -> int:
    """Run the commands of a job, each in a fork that finds the frameworks loaded and nothing of align."""
    del sys.path[0]  # the folder of this script is nobody's
    for name in spec["imports"]:
        importlib.import_module(name)
    for folder, line, stem in spec["commands"]:
        if (child := os.fork()) == 0:
            os.chdir(folder)
            for number, suffix in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{stem}.{suffix}", os.O_WRONLY | os.O_CREAT, 0o644), number)
            become(shlex.split(line))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with Path(f"{stem}.err").open("a", encoding="utf-8") as stream:
            stream.write(f"{line}: exit code {code}\n")
    return 0


def become(words: list[str]) -> NoReturn:
    """Run one command in this fork by the start script of `align`, and leave with its exit code."""
    if words[0] == "python":
        os.execv(sys.executable, [sys.executable, *words[1:]])
    if not Path(str(importlib.import_module("align").__file__)).is_relative_to(os.environ["PYTHONPATH"]):
        sys.exit("internal error in the environment: another align is in front")
    sys.argv = words
    runpy.run_path(str(Path(sys.executable).with_name("align")), run_name="__main__")
    sys.exit("internal error in the start script: it came back")


def compare(old: Path, new: Path, counts: Counter[str]) -> list[str]:
    """What differs between the files of two folders; adds to `counts`."""
    sides = [{str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()} for root in (old, new)]
    lone = {"OLD": sides[0].keys() - sides[1].keys(), "NEW": sides[1].keys() - sides[0].keys()}
    found = [f"{old.name}: only {side} has {len(n)} files: {sorted(n)[:6]}" for side, n in lone.items() if n]
    digests = [
        {sha256(one.read_bytes()).hexdigest(): f"<digest of {one.name}>" for one in files.values()} for files in sides
    ]
    for name in sorted(sides[0].keys() & sides[1].keys()):
        contents = [files[name].read_bytes() for files in sides]
        readings = [reading(content, known) for content, known in zip(contents, digests, strict=True)]
        counts.update({"files" if isinstance(readings[0], str | bytes) else "documents": 1, "bytes": len(contents[0])})
        if details := differences(*readings):
            found.append("\n    ".join([f"{old.name}/{name}: differences: {len(details)}", *details[:6]]))
    return found


def reading(content: bytes, digests: dict[str, str]) -> Any:
    """A file as what is compared: a JSON document, masked text, or bytes."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content
    for pattern, word in MASKS.items():
        text = re.sub(pattern, word, text)
    text = re.sub(r"\b[0-9a-f]{64}\b", lambda hit: digests.get(hit[0], hit[0]), text)
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except json.JSONDecodeError:
        return text


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two readings differ, each as one line: values of a document, lines of text, or how many bytes."""
    if type(old) is type(new) and repr(old) == repr(new):  # NaN equals NaN, and 1 is not 1.0
        return []
    if isinstance(old, dict) and isinstance(new, dict) and list(old) == list(new):
        return [one for key in old for one in differences(old[key], new[key], f"{path}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [one for index, pair in pairs for one in differences(*pair, f"{path}[{index}]")]
    if isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))
        return [f"{path} {line}"[:300] for line in lines[2:] if not line.startswith("@@")]
    if isinstance(old, bytes) and isinstance(new, bytes):
        unlike = sum(one != other for one, other in zip(old, new, strict=False))
        return [f"{len(old)} bytes and {len(new)}, {unlike} unlike"]
    return [f"{path or 'all'}: {old!r:.140} -> {new!r:.140}"]


if __name__ == "__main__":
    sys.exit(main())
