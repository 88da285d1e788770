"""Fuzzing of the readers of checkpoints, dumps, documents and logs, led by coverage: `make fuzz`, or with a NAME.

Every format that the registry finds is attacked with mutations of small real files, and the insides that a checksum,
a length or a zip directory would protect from chance are attacked by themselves, wrapped afresh. Whatever comes in, a
reader refuses it with an AlignError or returns tensors that lie inside their file. What is found becomes a test here.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS = os.environ.get("FUZZ_SECONDS", "60")
FINDINGS = Path("fuzz-findings")
LIMITS = ("-timeout=20", "-rss_limit_mb=2048", "-max_len=8192", "-print_final_stats=1")
LAST_LINES = 40
OF_SUMS = ("check", "checked", "tensors", "beside", "later", "files")  # of a manifest: sums of lines and files
BYTES_OF_TENSORS = 1 << 16  # more than the small trace has
DATA = Path(__file__).parents[1] / "checkpoints" / "data"
FOLDERS = {"torch-distributed": "fsdp", "deepspeed 2": "zero2/global_step1", "deepspeed 3": "zero3/global_step1"}
FOLDERS |= {"megatron": "megatron_dense/iter_0000003", "mindspore": "mindspore_ranks"}
FOLDERS |= {"dist of megatron": "megatron_dist_experts/iter_0000003"}
MOST_READ = 64 << 20  # of a view that repeats its elements


@dataclass(frozen=True)
class Target:
    """What is mutated: small sound inputs, how a file is made of one, and what files lie beside it."""

    seeds: tuple[bytes, ...]
    wrap: Callable[[bytes], bytes] = bytes
    beside: dict[str, bytes] = field(default_factory=dict)
    name: str = "file"
    checked: Callable[[Path], None] | None = None  # None: as a checkpoint

    def place(self, folder: Path, data: bytes) -> Path:
        """Write the file that a mutation makes, and return its path."""
        for name, content in self.beside.items():
            if not (folder / name).exists():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)
        path = folder / self.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(self.wrap(data))
        return path

    def check(self, path: Path) -> None:
        """Read the file as what it is."""
        (self.checked or check_reader)(path)


def check_reader(path: Path) -> None:
    """Open the file and use all that comes out; an AlignError is a sound end, any other exception is a finding."""
    from align.checkpoints.inspect_checkpoint import inspect_checkpoint
    from align.checkpoints.open_checkpoint import open_checkpoint
    from align.core.documents import to_json_data
    from align.errors import AlignError
    from align.report.show_result import blocks_as_text, result_blocks

    try:
        shown = to_json_data(inspect_checkpoint(path)) | {"schema": "mindalign.inspect/1"}
        json.dumps(shown, ensure_ascii=False).encode("utf-8")
        blocks_as_text(result_blocks(shown, show_all=True)).encode("utf-8")
        checkpoint = open_checkpoint(path)
        if checkpoint.check is not None:
            checkpoint.check()
    except AlignError:
        return
    for tensor in checkpoint.tensors.values():
        check_tensor(tensor)


def check_state(path: Path) -> None:
    """Read all that a file of torch's holds, and plan to carry the state in it; nothing is written."""
    from align.convert.convert_checkpoint import convert_checkpoint
    from align.convert.optimizer_state import read_tree
    from align.core.parameters import StoredTensor
    from align.errors import AlignError

    with contextlib.suppress(AlignError):
        waiting, seen = [read_tree(path)], set()
        while waiting:
            value = waiting.pop()
            if isinstance(value, StoredTensor):
                check_tensor(value)
            elif isinstance(value, (dict, list)) and id(value) not in seen:
                seen.add(id(value))
                waiting += value.values() if isinstance(value, dict) else value
    with contextlib.suppress(AlignError):
        convert_checkpoint(path, path.with_name("out.ckpt"), with_state=True, state_for="nn.Adam", dry_run=True)


def check_dump(path: Path) -> None:
    """Show a dump of another tool, load its tensors and compare it with itself; as `check_reader`."""
    from align.core.documents import to_json_data
    from align.errors import AlignError
    from align.forward.compare_trace_folders import compare_trace_folders
    from align.report.show_result import blocks_as_text, result_blocks
    from align.traces.dumped_side import read_dump, show_dump

    try:
        for one in read_dump(path).tensors:
            if one.load is not None:
                value = one.load()
                assert value.shape == one.shape, one
        shown = to_json_data(show_dump(path)) | {"schema": "mindalign.trace/1"}
        blocks_as_text(result_blocks(shown, show_all=True)).encode("utf-8", "surrogatepass")
        compare_trace_folders(path, path)
    except AlignError:
        return


def check_document(path: Path) -> None:
    """Read a document of align's own, or a user's, as the commands do; no code that it names is run."""
    from align.batch.read_job import read_job
    from align.errors import AlignError
    from align.forward.bisect_port import read_points
    from align.hyperparameters.settings_format import read_settings_of
    from align.names.map_file import read_rules
    from align.runs.project_file import read_project

    readers = {"align.toml": read_project, "map.toml": read_rules, "job.toml": read_job, "points.toml": read_points}
    with contextlib.suppress(AlignError):
        readers.get(path.name, read_settings_of)(path)


def check_trace(path: Path) -> None:
    """Show a trace folder of this manifest, with zeros for its tensors."""
    from align.core.documents import to_json_data
    from align.errors import AlignError
    from align.report.show_result import blocks_as_text, result_blocks
    from align.traces.manifest import TENSORS
    from align.traces.open_trace import show_trace

    path.with_name(TENSORS).write_bytes(bytes(BYTES_OF_TENSORS))
    with contextlib.suppress(AlignError):
        shown = to_json_data(show_trace(path.parent)) | {"schema": "mindalign.trace/1"}
        blocks_as_text(result_blocks(shown, show_all=True))


def check_result(path: Path) -> None:
    """Read a result of a run folder, and show it."""
    from align.errors import AlignError
    from align.report.show_result import blocks_as_text, result_blocks
    from align.runs.run_folder import RunFolder

    with contextlib.suppress(AlignError):
        if (document := RunFolder(path.parent).read(path.stem)) is not None:
            blocks_as_text(result_blocks(document, show_all=True))


def check_log(path: Path) -> None:
    """Read a log and compare it with itself, as the command does."""
    from align.cli.main import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["loss", str(path), str(path)]) in (0, 1, 2)


def check_tensor(tensor: object) -> None:
    """Hold a tensor to its file and to its own words."""
    from align.checkpoints.extents import byte_blocks
    from align.errors import AlignError

    for extent in (*((tensor.extent,) if tensor.extent else ()), *tensor.pieces):
        assert 0 <= extent.offset <= extent.offset + extent.nbytes <= extent.path.stat().st_size, extent
    try:
        value = tensor.load()
        assert (value.shape, value.nbytes) == (tensor.shape, tensor.nbytes), tensor
        if tensor.nbytes <= MOST_READ:
            assert sum(len(block) for block in byte_blocks(tensor)) == tensor.nbytes, tensor
    except AlignError:  # damage that only unpacking can find
        return


def written_targets() -> dict[str, Target]:
    """Files of every format that can be written without a framework, and the insides of some."""
    import numpy as np

    from align.core.load_code import checkpoint_formats
    from align.core.parameters import StoredTensor

    values = {"a.w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7), "c": np.zeros((0, 2), np.float16)}
    tensors = [StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in values.items()]
    targets = {}
    for name, plugin in checkpoint_formats().items():
        files = []
        for flavour in ("pt", "ms"):
            held = [t for t in tensors if not plugin.problems([t], {"format": flavour})]
            if held:
                stream = io.BytesIO()
                plugin.write(stream, held, {"format": flavour})
                files.append(stream.getvalue())
        if files:
            targets[name] = Target(tuple(files))
    packed = io.BytesIO()
    np.savez_compressed(packed, **values, text=np.array("words"), columns=np.asfortranarray(np.ones((2, 3))))
    targets["npz"] = Target((*targets["npz"].seeds, packed.getvalue()))
    pickled = io.BytesIO()
    np.save(pickled, np.array({"model": values, "epoch": 1}))
    paddle = {"fc.weight": ("linear_0.w_0", values["a.w"]), "StructuredToParameterName@@": {}}
    dumps = [pickle.dumps({**values, **paddle, "half": values["a.w"].T}, protocol) for protocol in (2, 4, 5)]
    targets["pickled-arrays"] = Target((pickled.getvalue(), *dumps))
    return targets | insides(targets) | {"torch, the state of a training": state_target()}


def state_target() -> Target:
    """The pickle of a file that holds weights with the state of their optimizer, as three trainers nest it."""
    import numpy as np

    from align.checkpoints.formats.torch import TORCH_ZIP
    from align.core.parameters import StoredTensor

    value = np.ones((2, 3), np.float32)
    weight, bias = (StoredTensor(name, one.shape, "float32", lambda one=one: one) for name, one in
                    (("fc.weight", value), ("fc.bias", value[:, 0])))  # fmt: skip
    kept = {number: {"step": 3, "exp_avg": one, "exp_avg_sq": one} for number, one in enumerate((weight, bias))}
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "params": [0, 1]}
    saved, weights = {"state": kept, "param_groups": [group]}, {"fc.weight": weight, "fc.bias": bias}
    trees = (
        {"model": weights, "optimizer": saved, "scheduler": {"last_epoch": 3, "_step_count": 4}, "epoch": 1},
        {"state_dict": weights, "optimizer_states": [saved], "global_step": 3},
        {
            "state_dict": weights,
            "optimizer": saved,
            "meta": {"iter": 3},
            "scaler": {"scale": 2.0, "_growth_tracker": 0},
        },
    )
    written = []
    for tree in trees:
        stream = io.BytesIO()
        TORCH_ZIP.write_tree(stream, tree)
        written.append(unzipped(stream.getvalue()))
    (name,) = (one for one in written[0] if one.endswith("data.pkl"))
    seeds = tuple(records[name] for records in written)
    return Target(seeds, lambda data: zipped(written[0] | {name: data}), name="file.pth", checked=check_state)


def folder_targets() -> dict[str, Target]:
    """One file of a folder that ranks of a training wrote, the others as they are."""
    found: dict[str, Target] = {}
    for label, folder in FOLDERS.items():
        files = {path.relative_to(DATA / folder).as_posix(): path for path in sorted((DATA / folder).rglob("*"))}
        whole = {name: path.read_bytes() for name, path in files.items() if path.is_file()}
        for name, seed in whole.items():
            beside = {other: data for other, data in whole.items() if other != name}
            place = f"{label}, {name}"
            found[place] = Target((seed,), beside=beside, name=name, checked=check_folder)
    found |= chunk_targets()
    alike = {"megatron": "mp_rank_00_000", "mindspore,": "rank_0"}  # one rank stands for all of them
    alike["dist of megatron"] = "m"  # a list and what is common to all; the pieces of ranks are torch-distributed's
    return {
        name: target
        for name, target in found.items()
        if all(first in name.partition(", ")[2] for label, first in alike.items() if f"{name},".startswith(label))
    }


def chunk_targets() -> dict[str, Target]:
    """The list of a folder of MindSpore Transformers, and one of the two files that it names."""
    import numpy as np

    from align.core.load_code import checkpoint_formats
    from align.core.parameters import StoredTensor

    def written(value: np.ndarray) -> bytes:
        stream = io.BytesIO()
        arrays = {"w": value, "norm": np.ones(3, np.float32)}
        tensors = [StoredTensor(name, v.shape, v.dtype.name, lambda v=v: v) for name, v in arrays.items()]
        checkpoint_formats()["safetensors"].write(stream, tensors, {"format": "ms"})
        return stream.getvalue()

    whole = np.arange(8, dtype=np.float32).reshape(2, 4)
    files = {f"net-{rank}.safetensors": written(whole[:, 2 * rank : 2 * rank + 2]) for rank in range(2)}
    first, second = ([{"file_name": name, "storage_rank": rank}] for rank, name in enumerate(files))
    chunks = [{"global_offset": [0, start], "local_shape": [2, 2]} for start in (0, 2)]
    tensors = {
        "w": {"properties": {"dtype": "float32"}, "global_shape": [2, 4], "chunk": chunks},
        "norm": {"global_shape": [3], "chunk": [{"global_offset": [0], "local_shape": [3]}]},
    }
    places = {"('w', (0, 0))": first, "('w', (0, 2))": second, "('norm', (0,))": first + second}
    listed = json.dumps({"state_dict_metadata": tensors, "storage_data": places}).encode()
    name, seed = next(iter(files.items()))
    return {
        "chunks of mindspore, metadata.json": Target(
            (listed,), beside=files, name="metadata.json", checked=check_folder
        ),
        "chunks of mindspore, a file": Target(
            (seed,), beside=files | {"metadata.json": listed}, name=name, checked=check_folder
        ),
    }


def check_folder(path: Path) -> None:
    """Read the folder of a file as a checkpoint."""
    inside = path.parent.name.startswith(("mp_rank", "rank_", "strategy"))
    check_reader(path.parent.parent if inside else path.parent)


def insides(targets: dict[str, Target]) -> dict[str, Target]:
    """The pickle of a torch file, the header of a safetensors file, an array of an npz file."""
    torch, safetensors, npz = (targets[name].seeds[0] for name in ("torch", "safetensors", "npz"))
    records = unzipped(torch)
    (pickled,) = (name for name in records if name.endswith("data.pkl"))
    length = int.from_bytes(safetensors[:8], "little")
    with zipfile.ZipFile(io.BytesIO(npz)) as archive:
        arrays = tuple(archive.read(name) for name in archive.namelist())
    other = zipped({"z.npy": arrays[0]})
    placed = dict.fromkeys(json.loads(safetensors[8 : 8 + length]).keys() - {"__metadata__"}, "m-1.safetensors")
    index = json.dumps({"metadata": {"total_size": 1}, "weight_map": placed | {"z": "m-2.npz"}}).encode()
    whole = pickle.dumps({"model": {"a": 1, "b": [None, (2.5, "x")]}, "epoch": {3, 4}}, protocol=4)
    return {
        "torch, the pickle": Target(
            (records[pickled], whole, pickle.dumps([1, "x"], protocol=0)),
            lambda data: zipped(records | {pickled: data}),
        ),
        "safetensors, the header": Target(
            (safetensors[8 : 8 + length],),
            lambda data: len(data).to_bytes(8, "little") + data + safetensors[8 + length :],
        ),
        "npz, an array": Target(arrays, lambda data: zipped({"w.npy": data})),
        "npz, a compressed array": Target(arrays, lambda data: zipped({"w.npy": data}, zipfile.ZIP_DEFLATED)),
        "an index of shards": Target((index,), beside={"m-1.safetensors": safetensors, "m-2.npz": other}),
    }


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(records: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    return stream.getvalue()


def dump_targets() -> dict[str, Target]:
    """Small dumps of other tools, the file of each that tells of its tensors."""
    import numpy as np

    stream = io.BytesIO()
    np.save(stream, np.arange(6, dtype=np.float32).reshape(2, 3))
    array = stream.getvalue()
    tensor = {"type": "mindspore.Tensor", "dtype": "Float32", "shape": [2, 3], "Max": 5.0, "Min": 0.0, "Mean": 2.5}
    kept = tensor | {"Norm": 7.4, "data_name": "t.npy"}
    call = {"input_args": [kept], "input_kwargs": {"m": kept}, "output": [kept], "parameters": {"weight": kept}}
    data = {"Cell.fc.Dense.forward.0": call, "Cell.fc.Dense.backward.0": {"input": [tensor | {"md5": "00ff00ff"}]}}
    msprobe = {"task": "tensor", "level": "L0", "framework": "mindspore", "dump_data_dir": "x", "data": data}
    held = {"array": base64.b64encode(array).decode(), "polygraphy_class": "ndarray"}
    outputs = {"y": {"values": held, "polygraphy_class": "LazyArray"}}
    runs = {"lst": [["r", [{"outputs": outputs, "polygraphy_class": "IterationResult"}]]]}
    leaf = {"shape": "torch.Size([2, 3])", "dtype": "torch.float32", "mean": "tensor(1.)", "min": "tensor(-1e-3)"}
    tree = {"module_path": "M", "inputs": {"args": [leaf]}, "children": [{"module_path": "M.fc", "outputs": leaf}]}
    log = b"    [nn.Mod] M.0\n      aten::addmm(t: f32[3])  ->  t: f32[2, 3]  # {'hash': 2.5}\n"
    row = b'MatMul,Default/fc-Dense/MatMul-op0,1,0,17,output,0,24,float32,"(2,3)",5.0,0.0,2.5\n'
    head = (
        b"Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape,Max Value,Min Value,Avg Value\n"
    )
    made = {
        "msprobe": ("dump.json", json.dumps(msprobe).encode(), {"dump_tensor_data/t.npy": array}),
        "polygraphy": ("runs.json", json.dumps(runs | {"polygraphy_class": "RunResults"}).encode(), {}),
        "transformers": ("m_debug_tree_SUMMARY.json", json.dumps(tree).encode(), {}),
        "debug mode": ("log.txt", log, {}),
        "mindspore": ("statistic.csv", head + row, {}),
        "arrays": ("a.npy", array, {}),
    }
    return {
        f"dump, {tool}": Target((seed,), beside=beside, name=name, checked=check_dump)
        for tool, (name, seed, beside) in made.items()
    }


def document_targets() -> dict[str, Target]:
    """Project files, maps, jobs, settings, a manifest, results of a run, and a log of each format."""
    from align.curves.log_sources import log_formats

    project = (
        b'[reference]\nmodel = "a.py:f"\ncheckpoint = "a.pth"\n[forward]\ninputs = "x.npz"\n[training]\nsteps = 2\n'
    )
    names = b'schema = "mindalign.names/1"\n[names]\n"a.{0..3}.weight" = "b.{0..3}.gamma"\n'
    names += b'[[rename]]\nfrom = "x"\nto = "y"\n'
    job = b'timeout = 3\n[[diff]]\nreference = "a_{step}.npz"\ncandidate = "b_{step}.npz"\n'
    made = {"align.toml": project, "map.toml": names, "job.toml": job, "points.toml": b'"a.b" = "c.d"\n'}
    made |= {"settings.toml": b"[optimizer]\nlr = 1e-3\n", "settings.json": b'{"lr": 1e-3, "betas": [0.9, 0.99]}'}
    found = {f"document, {name}": Target((seed,), name=name, checked=check_document) for name, seed in made.items()}
    with tempfile.TemporaryDirectory() as folder:
        manifest, results = made_documents(Path(folder))
    found["document, manifest"] = Target((manifest,), name="manifest.jsonl", checked=check_trace)
    found |= {f"document, {name}": Target((seed,), name=name, checked=check_result) for name, seed in results.items()}
    samples = tuple(plugin.sample for plugin in log_formats().values() if plugin.sample)
    return found | {"log": Target(samples, name="train.log", checked=check_log)}


def made_documents(folder: Path) -> tuple[bytes, dict[str, bytes]]:
    """A manifest without checksums, and the results of a run, as align writes them."""
    import numpy as np

    from align.cli.main import main
    from align.models.frameworks.arrays import ArrayLayer, ArrayModel
    from align.traces.capture_trace import capture_trace

    model = ArrayModel((ArrayLayer("act", "torch.nn.ReLU", lambda x: np.maximum(x, 0), {}),))
    capture_trace(model, folder / "trace", inputs={"x": np.ones(3, np.float32)})
    for name in "ab":
        np.savez(folder / f"{name}.npz", w=np.ones((2, 3)), b=np.full(2, ord(name)))
        (folder / f"{name}.csv").write_text("step,loss\n" + "".join(f"{n},{ord(name) / (n + 1)}\n" for n in range(9)))
    with contextlib.redirect_stdout(io.StringIO()):
        for words in ("loss a.csv b.csv", "diff a.npz b.npz", "map a.npz b.npz"):
            command, *files = words.split()
            main([command, *(str(folder / file) for file in files), "--run", str(folder / "run")])
    rows = [json.loads(line) for line in (folder / "trace" / "manifest.jsonl").read_text().splitlines()]
    kept = [{key: value for key, value in row.items() if key not in OF_SUMS} for row in rows]
    results = {path.name: path.read_bytes() for path in sorted((folder / "run").glob("*.json"))}
    return "".join(json.dumps(row) + "\n" for row in kept).encode(), results


def framework_targets() -> dict[str, Target]:
    """Files as the frameworks that are installed here write them."""
    targets: dict[str, Target] = {}
    for package, make in {"torch": torch_targets, "mindspore": mindspore_targets, "onnx": onnx_targets}.items():
        if importlib.util.find_spec(package) is not None:
            targets |= make()
    return targets


def torch_targets() -> dict[str, Target]:
    import torch

    tied = torch.ones(2, 3)
    state = {"a.w": tied, "b.w": tied, "t": tied.t(), "h": torch.zeros(3, dtype=torch.bfloat16), "n": torch.tensor(1)}

    def saved(value: object, **options: bool) -> bytes:
        stream = io.BytesIO()
        torch.save(value, stream, **options)
        return stream.getvalue()

    nested = {"model": state, "ema": {"a": torch.ones(2)}, "epoch": 1}
    return {
        "torch": Target((saved(state), saved(nested), saved(torch.nn.Linear(2, 3)))),
        "torch-legacy": Target((saved(state, _use_new_zipfile_serialization=False),)),
    }


def mindspore_targets() -> dict[str, Target]:
    import mindspore
    import numpy as np

    rows = [{"name": name, "data": mindspore.Parameter(np.ones((2, 3), np.float32))} for name in ("a", "b")]
    with tempfile.TemporaryDirectory() as folder:
        plain, checked = Path(folder, "plain.ckpt"), Path(folder, "checked.ckpt")
        mindspore.save_checkpoint(rows, str(plain))
        mindspore.save_checkpoint(rows, str(checked), crc_check=True)
        return {"ckpt": Target((plain.read_bytes(), checked.read_bytes()))}


def onnx_targets() -> dict[str, Target]:
    import numpy as np
    import onnx.helper
    import onnx.numpy_helper

    weights = [onnx.numpy_helper.from_array(np.ones((2, 3), np.float32), name) for name in ("a", "b")]
    graph = onnx.helper.make_graph([], "g", [], [], weights)
    return {"onnx": Target((onnx.helper.make_model(graph).SerializeToString(),))}


def all_targets() -> dict[str, Target]:
    """Both kinds, the seeds of one format together."""
    from align.core.load_code import checkpoint_formats

    targets = written_targets()
    for name, more in framework_targets().items():
        known = targets.get(name, more)
        targets[name] = Target(tuple(dict.fromkeys((*known.seeds, *more.seeds))), known.wrap)
    targets |= folder_targets() | dump_targets() | document_targets()
    for name in sorted(checkpoint_formats().keys() - targets.keys()):
        print(f"== {name}: left out, the package that writes such files is not installed")
    return targets


def fuzz(name: str, options: list[str]) -> None:
    """Fuzz one target in this process, which the fuzzer ends."""
    if importlib.util.find_spec("atheris") is None:
        raise SystemExit('install atheris, which needs Python 3.11 or newer: pip install "mindalign[fuzz]"')
    import atheris

    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    with atheris.instrument_imports(include=["align", "zipfile", "pickletools", "tomllib"]):
        target = all_targets()[name]
        for seed in target.seeds:  # readers are imported when they are first used, and are followed only from here
            target.check(target.place(folder, seed))
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed{number}").write_bytes(seed)

    def once(data: bytes) -> None:
        target.check(target.place(folder, data))

    FINDINGS.mkdir(exist_ok=True)
    place = re.sub(r"[^\w.]+", "-", name)
    prefix = f"-artifact_prefix={FINDINGS / place}-"
    atheris.Setup([sys.argv[0], *LIMITS, prefix, *options, str(corpus)], once)
    atheris.Fuzz()


def fuzz_all() -> int:
    """Fuzz every target for SECONDS, each in a process of its own; returns how many had findings."""
    failed = []
    for name in all_targets():
        print(f"== {name}: {SECONDS} s", flush=True)
        command = [sys.executable, __file__, name, f"-max_total_time={SECONDS}"]
        ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        lines = ended.stderr.splitlines()
        print("".join(line.replace("stat::number_of_", "   ") for line in lines if "executed_units" in line))
        if ended.returncode:
            failed.append(name)
            print("\n".join(lines[-LAST_LINES:]))
    print(f"findings in: {', '.join(failed)} (kept in {FINDINGS}/)" if failed else "no findings")
    return len(failed)


if __name__ == "__main__":
    sys.exit(fuzz(sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else fuzz_all())
