"""Makes `mappings/api/*.toml`: what MindSpore has for each class, function and method of torch.

    python benchmarks/make_api_tables.py --trials trials.jsonl

Everything is tried on the CPU, in processes of their own, for some calls end the process. What was tried is kept in
`--trials`; a second run goes on from there (delete the file after a change of the examples, or to try anew). What goes
in stands in `benchmarks/api/`: the calls that are tried (`layers.toml`, `functions.toml`; a key is a call as
`_api_calls.py` explains, its value the names that it is for), what to write where nothing of the same name does
(`answers.toml`), and the facts of MindSpore's published mapping (`published.toml`, made by `--mapping` from the page
at PAGE: which counterpart, and whether it is said to be consistent).
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import tomllib

sys.path.insert(0, str(Path(__file__).parents[1]))

from _api_calls import called, differences, find, reader_of

from align.errors import AlignError

HERE = Path(__file__).parent / "api"
TABLES = Path(__file__).parents[1] / "mappings" / "api"
PAGE = (
    "https://github.com/mindspore-ai/docs/blob/9e844dc65dc5ef4381574e8b6ec2f93f9681f720"
    "/docs/mindspore/source_en/note/api_mapping/pytorch_api_mapping.md"
)
SECTIONS = ("torch", "torch.linalg", "torch.nn", "torch.nn.functional", "torch.special", "torch.Tensor")
FILES = {"torch.nn": "layers", "torch.nn.functional": "functional", "torch.Tensor": "tensor"}
OTHER = "functions"
INPLACE = ", inplace=True"
MOST_CRASHES = 100
OPERATOR_NAMES = {
    "truediv": "div", "floordiv": "floor_divide", "and": "logical_and", "or": "logical_or", "invert": "logical_not",
}  # fmt: skip
HOST = frozenset({  # what a tensor tells without a kernel
    "__bool__", "__contains__", "__float__", "__int__", "__len__", "__getitem__", "__setitem__", "contiguous", "dim",
    "element_size", "is_complex", "is_contiguous", "is_floating_point", "item", "ndimension", "nelement", "numel",
    "numpy", "storage_offset", "stride", "tolist", "view", "view_as",
})  # fmt: skip
# torch's operators by which the rules of Ascend chips know a name.
OPERATORS = {
    "convolution": r"conv\w*\dd|Conv\w*\dd", "addmm": r"linear|Linear|addmm|bilinear|Bilinear",
    "mm": r"mm|matmul|__matmul__",
    "bmm": r"bmm|baddbmm|einsum|scaled_dot_product_attention|MultiheadAttention|Transformer\w*", "lstm": r"LSTM",
    "gru": r"GRU", "avg_pool2d": r"(?:avg_pool|AvgPool)2d", "max_pool2d_with_indices": r"(?:max_pool|MaxPool)2d",
    "adaptive_max_pool2d": r"(?:adaptive_max_pool|AdaptiveMaxPool)2d", "sort": r"sort|argsort", "topk": r"topk",
}  # fmt: skip


def main() -> int:
    """Try what was not tried yet, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=Path, required=True)
    parser.add_argument("--mapping", type=Path, help="the page at PAGE, read anew into published.toml")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        try_all(options.trials)
        sys.stdout.flush()
        os._exit(0)  # MindSpore may end badly
    if options.mapping:
        write_published(options.mapping)
    options.trials.touch()
    for _ in range(MOST_CRASHES):
        command = [sys.executable, "-W", "ignore", __file__, "--here", "--trials", str(options.trials)]
        if subprocess.run(command, check=False).returncode == 0:
            break
    write_tables({one["key"]: one for one in read_lines(options.trials)})
    return 0


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was tried; of a trial that ended its process, only the start is there."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def by_name(file: str) -> dict[str, list[str]]:
    """The calls of each name."""
    found: dict[str, list[str]] = {}
    document = tomllib.loads((HERE / f"{file}.toml").read_text(encoding="utf-8"))
    for section, calls in document.items():
        for example, names in calls.items():
            for name in names.split():
                found.setdefault(f"{section}.{name}", []).append(example.strip())
    return found


def all_examples() -> dict[str, list[str]]:
    """The calls of all names."""
    return {**by_name("layers"), **by_name("functions")}


def answers() -> dict[str, dict[str, Any]]:
    """What to write where nothing of the same name does."""
    document = tomllib.loads((HERE / "answers.toml").read_text(encoding="utf-8"))
    return {f"{section}.{name}": one for section, own in document.items() for name, one in own.items()}


def published() -> dict[str, list[str]]:
    """The counterpart that the vendor's page names, and "consistent" or "other"."""
    found: dict[str, list[str]] = tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))
    return found


def write_published(page: Path) -> None:
    """The facts of the page: name, counterpart, and whether they are said to be consistent."""
    facts: dict[str, tuple[str, str]] = {}
    section = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").strip()
        cells = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", cell).strip() for cell in line.split("|")]
        if (
            section in SECTIONS
            and len(cells) > 4
            and cells[1].startswith("torch.")
            and cells[2].startswith("mindspore.")
        ):
            kind = "consistent" if re.match(r"consistent\]?$", cells[3].lower()) else "other"
            facts[cells[1].partition("(")[0]] = cells[2].split()[0], kind
    about = "# Which counterpart MindSpore's published mapping names, and whether it is said to be consistent. Facts of"
    head = f"{about}\n# {PAGE}\n"
    lines = [f'"{name}" = ["{there}", "{kind}"]' for name, (there, kind) in sorted(facts.items())]
    (HERE / "published.toml").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def candidates(name: str) -> list[str]:
    """Where a counterpart may stand, the best first."""
    section, _, last = name.rpartition(".")
    tail = name.removeprefix("torch.")
    named = [published()[name][0]] if name in published() else []
    if section == "torch.Tensor":
        found = [f"mindspore.Tensor.{last}", f"mindspore.mint.{last}", f"mindspore.mint.nn.functional.{last}"]
        found += [f"mindspore.ops.{last}"]
    elif section == "torch.nn.functional":
        found = [f"mindspore.mint.{tail}", f"mindspore.ops.{last}", f"mindspore.mint.{last}"]
    elif section == "torch.nn":
        found = [f"mindspore.mint.nn.{last}", f"mindspore.nn.{last}", *(["mindspore.nn.Dense"] * (last == "Linear"))]
    else:
        found = [f"mindspore.mint.{tail}", f"mindspore.ops.{last}", f"mindspore.{tail}"]
        found += [f"mindspore.mint.nn.functional.{last}"]
    return [one for one in dict.fromkeys(found[:1] + named + found[1:]) if find(one) is not None]


def try_all(path: Path) -> None:
    """Run every call that was not run yet; a line a candidate."""
    import mindspore

    mindspore.set_context(pynative_synchronize=True)  # an error belongs to the call that makes it
    done = {one["key"] for one in read_lines(path)}
    with path.open("a", encoding="utf-8") as stream:

        def keep(key: str, **found: Any) -> None:
            stream.write(json.dumps({"key": key, **found}) + "\n")
            stream.flush()

        for name, examples in all_examples().items():
            for there in candidates(name):
                if (key := f"{name} {there}") not in done:
                    keep(key)
                    keep(key, results=[tried(name, there, example) for example in examples])
        for name, answer in answers().items():
            if "instead" in answer and (key := f"{name} instead {answer['instead']}") not in done:
                keep(key)
                keep(key, results=[tried_instead(name, answer, all_examples().get(name, []))])


def tried(name: str, there: str, example: str) -> str:
    """What became of a call: "same", "same without inplace", "kernel", or what is wrong."""
    reference = called("torch", _function(name), example)
    if reference.error:
        return f"torch: {reference.error}"[:200]
    found = _outcome(reference, there, example, example)
    if found != "same" and INPLACE.strip(", ") in example:
        plain = example.replace(INPLACE, "").replace("inplace=True", "")
        return "same without inplace" if _outcome(reference, there, plain, example) == "same" else found
    return found


def _outcome(reference: Any, there: str, call: str, example: str) -> str:
    answer = called("mindspore", _function(there), call)
    if answer.error:
        return "kernel" if answer.without_kernel else f"raises: {answer.error}"[:200]
    unlike = differences(example, reference, answer)
    return f"differs: {unlike}"[:200] if unlike else "same"


def tried_instead(name: str, answer: dict[str, Any], examples: list[str]) -> str:
    """What became of the code that stands in the place of a call."""
    if name in ("torch.nn.TransformerEncoder", "torch.nn.TransformerDecoder"):
        examples = [answer["instead"].replace("mindspore.", "torch.")]
    reference = called("torch", _function(name), examples[0])
    other = called("mindspore", None, answer["instead"])
    if reference.error or other.error:
        return f"{reference.error} | {other.error}"[:300]
    return differences(examples[0], reference, other) or "same"


def _function(name: str) -> Any:
    found = find(name)
    attribute = not callable(found) or name == "mindspore.Tensor.dtype"
    return reader_of(name) if attribute else found


def write_tables(trials: dict[str, dict[str, Any]]) -> None:
    """Write the entries, a file for each kind."""
    names = sorted({*all_examples(), *answers(), *(name for name in _classes())})
    entries: dict[str, list[str]] = {}
    for name in names:
        file = FILES.get(name.rpartition(".")[0], OTHER)
        entries.setdefault(file, []).append(entry_text(name, trials))
    import mindspore
    import torch

    versions = f"torch {torch.__version__.partition('+')[0]} and MindSpore {mindspore.__version__}"
    for file, texts in entries.items():
        about = f"# Made by benchmarks/make_api_tables.py with {versions} on a CPU."
        head = f"{about} align/rules/ascend_rules.py explains the keys.\n"
        (TABLES / f"{file}.toml").write_text("\n".join([head, *texts]), encoding="utf-8")


def _classes() -> list[str]:
    import torch

    return [f"torch.nn.{name}" for name, one in vars(torch.nn).items() if inspect.isclass(one)]


def entry_text(name: str, trials: dict[str, dict[str, Any]]) -> str:
    """One entry as TOML."""
    answer = answers().get(name, {})
    found = counterparts(name, trials)
    if answer and "instead" in answer:
        result = trials.get(f"{name} instead {answer['instead']}", {}).get("results", ["ended the process"])[0]
        if result != "same":
            print(f"{name}: {answer['instead']}: {result}")
    if answer.get("name"):
        found = [one for one in found if one["name"] != answer["name"]] + [_own(answer)]
    lines = ["[[api]]", f"torch = {_text(name)}"]
    if not answer.get("name") and answer.get("write"):
        lines += [f"write = {_text(answer['write'])}"]
        lines += [] if "instead" in answer else ['certainty = "concluded"']
    if examples := all_examples().get(name):
        lines += [f"examples = [{', '.join(map(_text, examples))}]"]
    if operators := [one for one, names in OPERATORS.items() if re.fullmatch(names, name.rpartition(".")[2])]:
        lines += [f"operators = [{', '.join(map(_text, operators))}]"]
    if name in published():
        lines += [f"source = {_text(PAGE)}"]
    if not found and not answer:
        print(f"{name}: nothing is known; tried: {[k for k in trials if k.startswith(name + ' ')]}")
    return "\n".join(lines + [_counterpart_text(one) for one in _ordered(found)]) + "\n"


def _ordered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = ("same", "other default", "other name")
    return sorted(found, key=lambda one: order.index(one["relation"]))


def counterparts(name: str, trials: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """What the trials and the vendor say: one that runs here, and one that has no kernel on a CPU."""
    running: list[dict[str, Any]] = []
    elsewhere: list[dict[str, Any]] = []
    for there in candidates(name):
        results = [one for one in trials.get(f"{name} {there}", {}).get("results", []) if not one.startswith("torch:")]
        if results and all(one.startswith("same") for one in results):
            running.append(linted(name, _running(name, there, results)))
        elif "kernel" in results and all(one == "kernel" or one.startswith("same") for one in results):
            elsewhere.append(_elsewhere(name, there))
    said = [one for one in elsewhere if one["platforms"]]
    return said[:1] * (not running or running[0]["relation"] != "same") + running[:1]


def _running(name: str, there: str, results: list[str]) -> dict[str, Any]:
    platforms = _documented(there)
    own = {"name": there, "relation": _relation(name, there), "certainty": "tried here", "platforms": ["cpu"]}
    own["platforms"] += [one for one in ("gpu", "ascend") if platforms is None or one in platforms]
    if platforms is None:
        own["documented"] = False
    if "same without inplace" in results:
        own["arguments"] = {"inplace": ""}
    if own["relation"] != "same":
        own["write"] = f"{there}(x, ...)" if name.startswith("torch.Tensor.") else f"{there}(...)"
    return own


def _elsewhere(name: str, there: str) -> dict[str, Any]:
    platforms = _documented(there)
    page = published().get(name, ["", ""])
    if page[0] == there:
        relation, certainty = ("same" if page[1] == "consistent" else _relation(name, there)), "vendor's page"
    else:
        relation, certainty = _relation(name, there), "concluded"
    own = {"name": there, "relation": relation, "certainty": certainty}
    return {**own, "platforms": [one for one in ("gpu", "ascend") if platforms is None or one in platforms]}


def linted(name: str, own: dict[str, Any]) -> dict[str, Any]:
    """What the rules of `mappings/pitfalls/` say of two layers built alike, over what the trial says."""
    from align.lint.lint_models import lint_models

    if not name.startswith("torch.nn.") or name.count(".") != 2 or own["relation"] == "other name":
        return own
    build = all_examples()[name][0].lstrip("~").partition("(")[2]
    arguments = build.partition(")(")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice on speed
        layers = [eval(f"F({arguments})", {"F": find(one)}) for one in (name, own["name"])]
    try:
        findings = lint_models(*layers).findings
    except AlignError:
        return own  # no rule knows both
    grave = [one for one in findings if one.severity != "note"]
    if not grave:
        return own
    settings = [
        {"setting": str(one.setting), "torch": one.reference_setting, "mindspore": one.candidate_setting}
        for one in grave
    ]
    return {**own, "relation": "other default", "settings": settings, "write": grave[0].change}


def _relation(name: str, there: str) -> str:
    """A function in the place of a method, or another last name, is written otherwise."""
    method = name.startswith("torch.Tensor.") and not there.startswith("mindspore.Tensor.")
    return "other name" if method or name.rpartition(".")[2] != there.rpartition(".")[2] else "same"


def _documented(there: str) -> set[str] | None:
    """The platforms that the docstring names, or that of the function that a method stands for; None where none is."""
    if found := re.search(r"Supported Platforms:\s*\n+\s*(``.*)", getattr(find(there), "__doc__", None) or ""):
        return {one.lower() for one in re.findall(r"``(\w+)``", found[1])}
    last = there.removeprefix("mindspore.Tensor.")
    if last == there:
        return None
    if last in HOST or not callable(find(there)):
        return {"cpu", "gpu", "ascend"}
    plain = re.sub(r"^__[ri]?(\w+)__$", r"\1", last).removesuffix("_")
    names = (f"{place}.{OPERATOR_NAMES.get(plain, plain)}" for place in ("mindspore.mint", "mindspore.ops"))
    return next((found for name in names if find(name) and (found := _documented(name)) is not None), None)


def _own(answer: dict[str, Any]) -> dict[str, Any]:
    platforms = set(answer["platforms"]) if "platforms" in answer else _documented(answer["name"])
    own = {"name": answer["name"], "relation": answer.get("relation", "other name")}
    here = "instead" in answer or platforms is None or "cpu" in platforms
    own["platforms"] = ["cpu"] * here + [one for one in ("gpu", "ascend") if platforms is None or one in platforms]
    own["certainty"] = answer.get("certainty", "tried here" if "instead" in answer else "concluded")
    if platforms is None:
        own["documented"] = False
    named = [dict(zip(("setting", "torch", "mindspore"), one, strict=True)) for one in answer.get("settings", ())]
    others = [dict(zip(("setting", "value", "write"), one, strict=True)) for one in answer.get("otherwise", ())]
    written = {"arguments": answer.get("arguments", {}), "write": answer["write"], "otherwise": others}
    return {**own, "settings": named, **written}


def _counterpart_text(one: dict[str, Any]) -> str:
    lines = [f"{key} = {_value(value)}" for key, value in one.items() if value not in ([], {})]
    return "\n".join(["", "[[api.counterpart]]", *lines])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(own)}" for key, own in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return str(value).lower() if isinstance(value, bool) else _text(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
