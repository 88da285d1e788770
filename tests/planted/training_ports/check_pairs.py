"""Check every pair of this folder: forward outputs, training from equal weights, and what each fault moves.

    python tests/planted/training_ports/check_pairs.py [NAME ...] [--no-faults]

Weights go from the original into the port by true_map.py. A pair may state in true_map.py a number SLACK, an absolute
difference that Adam's step may leave where a gradient is only rounding. The status is 1 where anything disagrees.
"""

import importlib.util
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import mindspore as ms
import numpy as np
import torch

# On few cores the asynchronous queue of PyNative mode takes many times longer than the work itself.
ms.set_context(pynative_synchronize=True)

HERE = Path(__file__).resolve().parent
STEPS, FAULT_STEPS = 4, 3
FORWARD_LIMIT, LOSS_LIMIT, PARAMETER_LIMIT, MOVED = 1e-4, 1e-5, 2e-5, 1e-5
KINDS = {"loss", "gradients", "loop", "optimizer", "statistics", "forward", "params"}


def load(path, name):
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


equal = load(HERE.parents[1] / "names" / "fresh_ports" / "check_equal.py", "fresh_ports_check_equal")


def converted(value, array):
    """A batch with its arrays converted, lists and dicts kept."""
    if isinstance(value, dict):
        return {key: converted(each, array) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(converted(each, array) for each in value)
    return array(value)


def torch_array(value):
    """A torch tensor, integers as int64."""
    value = np.asarray(value)
    return torch.from_numpy(np.ascontiguousarray(value.astype(np.int64) if value.dtype.kind in "iu" else value))


def mindspore_array(value):
    """A MindSpore tensor, integers as int32."""
    value = np.asarray(value)
    return ms.Tensor(np.ascontiguousarray(value.astype(np.int32) if value.dtype.kind in "iu" else value))


def number(loss):
    """The loss as a float."""
    return float(loss.detach()) if isinstance(loss, torch.Tensor) else float(loss.asnumpy())


def sides(training, framework):
    """The model and the step; of a tuple (model, loss, optimizer) the loss is called as loss(model, batch)."""
    if isinstance(training, dict):
        return training["model"], training["step"]
    model, loss, optimizer = training
    if framework == "torch":

        def step(batch):
            optimizer.zero_grad()
            value = loss(model, batch)
            value.backward()
            optimizer.step()
            return value

    else:
        gradient = ms.value_and_grad(lambda batch: loss(model, batch), None, optimizer.parameters)

        def step(batch):
            value, grads = gradient(batch)
            optimizer(grads)
            return value

    return model, step


def parameters(net):
    """The port's parameters by name, copied."""
    return {p.name: p.asnumpy().copy() for p in net.get_parameters()}


def put(net, values):
    """Write values into the port's parameters; those the port no longer has are passed over."""
    own = {p.name: p for p in net.get_parameters()}
    for name, value in values.items():
        if name in own and tuple(own[name].shape) == value.shape:
            own[name].set_data(ms.Tensor(np.ascontiguousarray(value)))


def state_of(model):
    return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}


def run_port(port, start, batches):
    """The port's losses and parameters after training from the start on the batches."""
    ms.set_seed(0)
    net, step = sides(port.training(), "mindspore")
    put(net, start)
    losses = [number(step(converted(batch, mindspore_array))) for batch in batches]
    return losses, parameters(net)


def apart(want, got):
    """By name the largest difference relative to the tensor's largest value, and absolute."""
    found = {}
    for name, a in want.items():
        if name not in got or got[name].shape != a.shape:
            found[name] = (float("inf"), float("inf"))
            continue
        difference = float(np.abs(a.astype(np.float64) - got[name]).max()) if a.size else 0.0
        if not np.isfinite(difference):
            found[name] = (float("inf"), float("inf"))
            continue
        found[name] = (difference / max(float(np.abs(a).max()), 1e-30), difference)
    return found


def check_faults(folder, start, batches):
    """Run every fault; say which disagree with what is written about them."""
    wrong = []
    clean_losses, clean = run_port(load(folder / "port.py", f"{folder.name}_clean"), start, batches)
    text = (folder / "port.py").read_text()
    faults = load(folder / "faults.py", f"{folder.name}_faults").FAULTS
    if len({f["name"] for f in faults}) != len(faults):
        wrong.append("two faults of one name")
    print(f"  {len(faults)} faults")
    names = {name for name, _ in load(folder / "port.py", f"{folder.name}_names").build().cells_and_names()}
    for fault in faults:
        name = fault["name"]
        if set(fault) != {"name", "old", "new", "where", "module", "answer", "moves"} or fault["where"] not in KINDS:
            wrong.append(f"{name}: its fields")
        if fault["module"] not in names:
            wrong.append(f"{name}: no module {fault['module']}")
        if text.count(fault["old"]) != 1:
            wrong.append(f"{name}: its text occurs {text.count(fault['old'])} times")
            continue
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "port.py"
            path.write_text(text.replace(fault["old"], fault["new"]))
            try:
                losses, got = run_port(load(path, f"{folder.name}_{name}"), start, batches)
            except Exception:  # noqa: BLE001
                traceback.print_exc()
                wrong.append(f"{name}: does not run")
                continue
        found = apart(clean, got)
        worst = max(found, key=lambda each: found[each][0])
        moved = found[worst][0] > MOVED or set(got) != set(clean)
        loss_apart = max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(clean_losses, losses, strict=True))
        count = sum(each > MOVED for each, _ in found.values())
        print(
            f"    {name:32s} {fault['where']:10s} moves {moved!s:5s} worst {found[worst][0]:.1e} {worst};"
            f" {count} of {len(found)}; loss {loss_apart:.1e}"
        )
        if moved != fault["moves"]:
            wrong.append(f"{name}: moves is {moved}")
        if not np.isfinite(losses).all():
            wrong.append(f"{name}: its loss is not finite")
    return wrong


def check(folder, with_faults):
    """Check one pair; the list of what is wrong."""
    wrong = []
    sys.path.insert(0, str(folder))
    pairs, sources, targets, worst = equal.difference(folder)
    print(f"{folder.name}: {pairs} pairs, {sources} sources, {targets} targets")
    print(f"  forward: {worst:.1e} of the output's scale")
    if worst > FORWARD_LIMIT:
        wrong.append("forward")
    truth = load(folder / "true_map.py", f"{folder.name}_map")
    data = load(folder / "data.py", f"{folder.name}_data")
    batches = [data.batch(each) for each in range(STEPS)]
    model, step = sides(load(folder / "original.py", f"{folder.name}_original").training(), "torch")
    start_state = state_of(model)
    start = equal.mapped(start_state, truth)
    begun = time.perf_counter()
    want_losses = [number(step(converted(batch, torch_array))) for batch in batches]
    middle = time.perf_counter()
    got_losses, got = run_port(load(folder / "port.py", f"{folder.name}_port"), start, batches)
    took = time.perf_counter() - middle
    print(f"  seconds a step: torch {(middle - begun) / STEPS:.2f}, mindspore {took / STEPS:.2f}")
    print("  losses:", " ".join(f"{each:.6f}" for each in want_losses))
    loss_apart = max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(want_losses, got_losses, strict=True))
    print(f"  losses apart: {loss_apart:.1e}")
    if not loss_apart <= LOSS_LIMIT:
        wrong.append("losses")
    end = equal.mapped(state_of(model), truth)
    slack = getattr(truth, "SLACK", 0.0)
    found = apart(end, got)
    worst = sorted(found, key=lambda each: -found[each][0])[:3]
    print("  parameters apart:", ", ".join(f"{name} {found[name][0]:.1e}" for name in worst), f"(slack {slack})")
    for name, (_, absolute) in found.items():
        limit = PARAMETER_LIMIT * float(np.abs(end[name]).max()) + slack
        if not absolute <= limit:
            wrong.append(f"parameter {name}: {absolute:.1e} over {limit:.1e}")
    still = [name for name in end if np.array_equal(end[name], start[name])]
    print(f"  unchanged by training: {len(still)} of {len(end)}", still[:6])
    if with_faults:
        wrong += check_faults(folder, start, batches[:FAULT_STEPS])
    sys.path.remove(str(folder))
    return wrong


def main(arguments):
    names = [each for each in arguments if not each.startswith("--")]
    folders = [HERE / each for each in names] or sorted(each.parent for each in HERE.glob("*/true_map.py"))
    status = 0
    for folder in folders:
        wrong = check(folder, "--no-faults" not in arguments)
        print("  WRONG:" if wrong else "  all as stated", "; ".join(wrong))
        status |= bool(wrong)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
