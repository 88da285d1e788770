"""The mapper over a folder of real pairs with their true maps: right, wrong, ambiguous, unmatched, seconds.

Judged are (source, target) pairs of the cases of a folder (see _cases.py): a pair with another transform than the true
one is wrong, and so is a drop of what has a counterpart, except of the second name of a tied tensor.
Run: python benchmarks/mapper.py FOLDER [CASE ...] [--trial] [--families] [--json]; --moe [NAME ...]: mixtures.
Bars, without families: no wrong pair; 97 % right of all and 90 % of each case; --moe (50,000 parameters) in 20 s, 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from _cases import call_as_told, case_names, in_process, load_case, targets

SHOWN = ("right", "wrong", "ambiguous", "unmatched", "pairs")
COUNTED = (*SHOWN, "seconds")
LAYERS, EXPERTS = 65, 256
# Mixtures of experts, and what is odd about each; in some the port alone is.
MIXTURES = {
    "plain": "other names and nesting",
    "shapes": "another width in each layer",
    "singles": "another shape in each matrix of an expert",
    "shuffled": "the port is defined in any order",
    "missing": "the port lacks one expert",
    "extra": "the port has one expert more",
    "layerless": "the port lacks one layer",
    "flat": "the port has underscores for points",
}


def main() -> int:
    """Print a line a case and mode, and the total; 1 if a pair is wrong or a case could not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--trial", action="store_true", help="settle by a run with distinct values")
    parser.add_argument("--families", action="store_true", help="also with the families of mappings/models")
    parser.add_argument("--json", action="store_true")
    told = "time and peak memory of synthetic mixtures of experts: " + "; ".join(
        ": ".join(one) for one in MIXTURES.items()
    )
    parser.add_argument("--moe", nargs="*", metavar="NAME", help=told)
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mode:
        return run_here(options)
    if options.moe is not None:
        found = []
        for name in options.moe or MIXTURES:
            found.append(ran_apart(options, "moe", name))
            show(found[-1])
        return code_of(found)
    if options.folder is None:
        parser.error("give a folder of cases, or --moe")
    modes = ["rules", *(["families"] if options.families else [])]
    found = []
    for case, mode in product(case_names(options.folder, options.cases), modes):
        found.append(ran_apart(options, mode, case))
        if not options.json:
            show(found[-1])
    return report(found, options.json)


def ran_apart(options: argparse.Namespace, mode: str, case: str) -> dict[str, object]:
    """What another process finds for one case."""
    told = [str(options.folder or "."), case, "--mode", mode, *(["--trial"] if options.trial else [])]
    return {"case": case, "mode": mode, **in_process(__file__, told)}


def run_here(options: argparse.Namespace) -> int:
    """Run one case and leave without the frameworks' own goodbyes."""
    found = (
        moe(options.cases[0]) if options.mode == "moe" else judged(options)
    )  # what a case raises is read from standard error
    options.result.write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)


def judged(options: argparse.Namespace) -> dict[str, object]:
    """Map one case and hold the map against the true one."""
    from align.names.map_parameters import map_parameters

    case = load_case(options.folder, options.cases[0])
    models = case.torch_model(), case.mindspore_model()
    shapes = (
        {name: tuple(value.shape) for name, value in models[0].state_dict().items()},
        {parameter.name: tuple(parameter.shape) for parameter in models[1].get_parameters()},
    )
    true = case.EXPECTED.compute(*shapes)
    running = {"inputs": case.inputs(), "trial": True} if options.trial else {}
    if running:
        call_as_told(case, models)
    begun = time.perf_counter()
    result = map_parameters(*models, family="auto" if options.mode == "families" else None, **running)
    seconds = time.perf_counter() - begun
    return {**judge(result, true, shapes), "seconds": round(seconds, 2)}


def judge(result, true, shapes) -> dict[str, object]:
    """Count the true pairs that the map has, and all that it says and is not so."""
    name_map = result.name_map
    pairs = {(source, target) for source in true for target in targets(true, source)}
    found = {(pair.source, pair.target) for pair in name_map.pairings}
    right = {
        (pair.source, pair.target)
        for pair in name_map.pairings
        if (pair.source, pair.target) in pairs and has_transform(pair, true, shapes)
    }
    ties = {p.name: p.tied_to for p in result.source_parameters if p.tied_to}
    dropped = {drop.name for drop in name_map.dropped if drop.side == "source" and targets(true, drop.name)}
    second = {name for name in dropped if {(ties.get(name), to) for to in targets(true, name)} <= right}
    right |= {(name, to) for name in second for to in targets(true, name)}
    wrong = [
        f"{pair.source} = {pair.target}, {pair.transform}; true: {true.get(pair.source)}, "
        f"{true.transforms.get(pair.source, 'the same values')}"
        for pair in name_map.pairings
        if (pair.source, pair.target) not in right
    ]
    wrong += [f"{name} is dropped, true: {true.get(name)}" for name in sorted(dropped - second)]
    open_ = {name for group in name_map.ambiguous for name in group.sources}
    left = [source for source, target in sorted(pairs - right) if (source, target) not in found]
    return {
        "pairs": len(pairs),
        "right": len(right),
        "wrong": len(wrong),
        "ambiguous": sum(source in open_ for source in left),
        "unmatched": sum(source not in open_ and source not in dropped for source in left),
        "wrong pairs": wrong,
    }


def has_transform(pair, true, shapes) -> bool:
    """Tell whether the pair makes of a value what the true map makes of it; of a fused target only its own piece."""
    shape, wanted = shapes[0][pair.source], shapes[1][pair.target]
    step = true.transforms.get(pair.source, {"op": "identity" if shape == wanted else "reshape"})
    if step["op"] == "identity" and pair.transform.op == "identity":
        return shape == wanted
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape) + 1
    made = pair.transform.apply(value)
    if step["op"] == "part":
        piece = np.split(np.arange(np.prod(wanted)).reshape(wanted), step["of"], step["axis"])[step["index"]]
        return bool(made.shape == wanted and np.array_equal(made.ravel()[piece], value))
    return bool(np.array_equal(made, expected_value(value, step, targets(true, pair.source), pair.target, wanted)))


def expected_value(value, step, of, target, wanted):
    """What the true map makes of a source's value for one of its targets."""
    ways = {
        "identity": lambda: value,
        "reshape": lambda: value.reshape(wanted),
        "permute": lambda: value.transpose(step["perm"]),
        "chunk": partial(chunk, value, step, len(of), of.index(target)),
        "reorder": partial(reorder, value, step),
    }
    return ways[step["op"]]()


def chunk(value, step, number, place):
    """One of equal pieces, its axes in another order where the case says so."""
    piece = np.split(value, number, step["axis"])[place]
    return piece.transpose(step["perm"]) if "perm" in step else piece


def reorder(value, step):
    """Equal blocks in another order."""
    blocks = np.split(value, len(step["blocks"]), step["axis"])
    return np.concatenate([blocks[number] for number in step["blocks"]], step["axis"])


def moe(name: str) -> dict[str, object]:
    """CPU time and peak memory of mapping two mixtures of experts of 50,000 parameters."""
    from align.names.map_parameters import map_parameters

    sides, true = mixture(name)
    begun = time.process_time()
    result = map_parameters(*sides)
    seconds = time.process_time() - begun
    pairs = result.name_map.pairings
    wrong = [f"{p.source} = {p.target}" for p in pairs if true.get(layer_of(p.source)) != layer_of(p.target)]
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    counts = {"pairs": len(true), "right": len(pairs) - len(wrong), "wrong": len(wrong), "wrong pairs": wrong[:20]}
    open_ = sum(len(group.sources) for group in result.name_map.ambiguous)
    unmatched = sum(one.side == "source" for one in result.name_map.unmatched)
    memory = round(int(peak.split()[1]) / 1e6, 2)
    return {**counts, "ambiguous": open_, "unmatched": unmatched, "seconds": round(seconds, 1), "peak GB": memory}


def layer_of(name: str) -> str:
    """The path of a parameter's layer."""
    return name.rpartition(".")[0]


def mixture(name: str):
    """Both sides of a mixture of experts, and which layer of the one is which of the other."""
    layers = list(expert_layers(name))
    lacking = {
        "missing": f"layers.{LAYERS // 2}.mlp.experts.{EXPERTS // 2}.",
        "extra": f"layers.{LAYERS // 2}.mlp.experts.{EXPERTS - 1}.",
        "layerless": f"layers.{LAYERS // 2}.",
    }.get(name, "none")
    fewer = [layer for layer in layers if lacking not in layer[0]]
    left, right = (fewer, layers) if name == "extra" else (layers, list(fewer))
    if name == "flat":
        right = [(path, to.replace(".", "_"), *rest) for path, to, *rest in right]
    true = {path: to for path, to, *_ in right if name != "extra" or lacking not in path}
    if name == "shuffled":
        random.Random(0).shuffle(right)
    sides = [(path, *rest) for path, _, *rest in left], [(to, *rest) for _, to, *rest in right]
    return (array_model("torch", sides[0]), array_model("nn", sides[1])), true


def expert_layers(name: str):
    """Path, path in the port, kind and shape: 65 layers of attention, norms, a router and 256 experts each."""
    yield "embed", "tok", "Embedding", (9, 3)
    sizes = product(range(1, 250), range(1, 250))
    for number in range(LAYERS):
        at, to = f"model.layers.{number}", f"net.blocks.{number}"
        yield f"{at}.norm1", f"{to}.attn_ln", "LayerNorm", (3,)
        for letter in "qkvo":
            yield f"{at}.self_attn.{letter}_proj", f"{to}.attention.w{letter}", "Linear", (3, 3)
        yield f"{at}.mlp.gate", f"{to}.ffn.router", "Linear", (EXPERTS, 3)
        width = 4 + number if name == "shapes" else 4
        for expert in range(EXPERTS):
            for own, short, shape in (("gate", "w1", (width, 3)), ("up", "w3", (width, 3)), ("down", "w2", (3, width))):
                of_layer = next(sizes) if name == "singles" else shape
                yield (
                    f"{at}.mlp.experts.{expert}.{own}_proj",
                    f"{to}.ffn.expert_list.{expert}.{short}",
                    "Linear",
                    of_layer,
                )


def array_model(family: str, layers):
    """A model of zeros that take no room."""
    from align.models.frameworks.arrays import ArrayLayer, ArrayModel

    classes = {
        "torch": {kind: (f"torch.nn.{kind}", "weight") for kind in ("Linear", "LayerNorm", "Embedding")},
        "nn": {
            "Linear": ("mindspore.nn.Dense", "weight"),
            "LayerNorm": ("mindspore.nn.LayerNorm", "gamma"),
            "Embedding": ("mindspore.nn.Embedding", "embedding_table"),
        },
    }[family]
    found = []
    for path, kind, shape in layers:
        class_name, attribute = classes[kind]
        found.append(ArrayLayer(path, class_name, None, {attribute: np.broadcast_to(np.zeros(1, np.float32), shape)}))
    return ArrayModel(tuple(found))


def report(found: list[dict[str, object]], as_json: bool) -> int:
    """Print the total of each mode, or all that was found as JSON."""
    ran = [one for one in found if "failed" not in one]
    totals = []
    for mode in dict.fromkeys(one["mode"] for one in ran):
        own = [one for one in ran if one["mode"] == mode]
        totals.append({"case": "TOTAL", "mode": mode, **{key: sum(one[key] for one in own) for key in COUNTED}})
    if as_json:
        print(json.dumps({"cases": found, "totals": totals}, indent=1))
    else:
        for total in totals:
            show(total)
    return code_of(found)


def code_of(found: list[dict[str, object]]) -> int:
    """1 if a pair is wrong or a case could not run."""
    return int(any("failed" in one or one["wrong"] for one in found))


def show(one: dict[str, object]) -> None:
    """Print a case, and its wrong pairs."""
    print(line(one), *(f"    WRONG {text}" for text in one.get("wrong pairs", ())), sep="\n", flush=True)


def line(one: dict[str, object]) -> str:
    """One case in words."""
    where = f"{one['case']:26} {one['mode']:8}"
    if "failed" in one:
        return f"{where} could not run: {one['failed']}"
    share = 100 * one["right"] / max(one["pairs"], 1)
    counts = "  ".join(f"{key} {one[key]:5}" for key in SHOWN)
    memory = f"  peak {one['peak GB']} GB" if "peak GB" in one else ""
    return f"{where} {counts}  {share:5.1f} %  {one['seconds']:6.1f} s{memory}"


if __name__ == "__main__":
    sys.exit(main())
