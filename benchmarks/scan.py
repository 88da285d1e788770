"""How much of real models `align scan` knows, and whether what it calls the same is the same.

    python benchmarks/scan.py CASES [CASE ...]

CASES is a folder of pairs (`_cases.py`), of which the torch models are scanned on their inputs. Each call that is said
to be the same is then made in MindSpore, with the arguments that the model passed: a function on its very tensors, a
layer built with the settings of torch's and filled with its values. Equal calls on equal shapes are tried once. Printed
are the share of calls that are classified, the share of those tried that return the same, and what does not. 1 is
returned if a share is below its bar, or a class of torch.nn is not in the table.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import _cases
from _api_calls import Answer, answer_of, differences, find, reader_of, take_values

CLASSIFIED, SAME = 0.95, 0.98  # the bars
# What MindSpore has no use for, and what torch's functions hand to themselves.
LEFT_OUT = ("device", "layout", "memory_format", "non_blocking", "pin_memory", "requires_grad", "_stacklevel")


def main() -> int:
    """Scan every case in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        options.result.write_text(json.dumps(scan_case(options.folder, options.cases[0])), encoding="utf-8")
        sys.stdout.flush()
        os._exit(0)  # MindSpore prints a traceback a cell
    names = _cases.case_names(options.folder, options.cases)
    found = {name: _cases.in_process(__file__, [str(options.folder), name]) for name in names}
    for name, one in found.items():
        print(_line(name, one))
    return _judge(list(found.values()))


def _line(name: str, one: dict[str, Any]) -> str:
    if "counts" not in one:
        return f"{name}: {one['failed']}"
    counts = {status: calls for status, calls in one["counts"].items() if calls}
    return (
        f"{name}: {counts}; tried {one['tried']}, unlike {one['unlike'] or 'none'}; unknown {one['unknown'] or 'none'}"
    )


def _judge(found: list[dict[str, Any]]) -> int:
    """Print the shares over all cases and say whether they reach the bars."""
    ran = [one for one in found if "counts" in one]
    total = sum(sum(one["counts"].values()) for one in ran)
    known = total - sum(one["counts"]["unknown"] for one in ran)
    tried, unlike = (sum(one[key] for one in ran) for key in ("tried", "wrong"))
    classes = unclassified()
    print(f"{len(ran)} of {len(found)} cases ran")
    print(f"classified: {known} of {total} calls ({known / total:.2%})")
    print(f"said to be the same and the same in MindSpore: {tried - unlike} of {tried} ({1 - unlike / tried:.2%})")
    print(f"classes of torch.nn that are not in the table: {classes or 'none'}")
    reached = known / total >= CLASSIFIED and 1 - unlike / tried >= SAME
    return int(not reached or bool(classes) or len(ran) < len(found))


def unclassified() -> list[str]:
    """Classes of torch.nn that the table lacks."""
    import torch

    from align.rules.ascend_rules import api_entries

    return [n for n, one in vars(torch.nn).items() if inspect.isclass(one) and f"torch.nn.{n}" not in api_entries()]


def scan_case(folder: Path, name: str) -> dict[str, Any]:
    """Scan one model, and try what is said to be the same."""
    warnings.filterwarnings("ignore")
    import torch

    from align.models.adapter_parts.torch.functions import watch_calls
    from align.scan.scan_model import scan_model

    module = _cases.load_case(folder, name)
    model = module.torch_model().float().eval()
    _cases.call_as_told(module, (model, _Port()))
    batch = module.inputs()
    result = scan_model(model, inputs=batch)
    said = {one.api: one for one in result.calls if one.status == "same"}
    trial = _Trial(said)
    watched = copy.deepcopy(model)
    watch_calls(watched, trial.told)
    with torch.no_grad():
        given = {key: torch.from_numpy(value) for key, value in batch.items()}
        watched(**given) if getattr(module, "KWARGS", False) else watched(*given.values())
    unknown = sorted(one.api for one in result.calls if one.status == "unknown")
    unlike = sorted(trial.unlike.items())
    return {
        "counts": result.counts,
        "unknown": unknown,
        "tried": len(trial.done),
        "wrong": trial.wrong,
        "unlike": unlike,
    }


class _Port:
    """Stands in the place of a port, which is not run here."""

    def construct(self) -> None:
        """Do nothing."""


class _Trial:
    """Makes each call anew in MindSpore; calls of equal names, shapes and settings once."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said
        self.done: set[str] = set()
        self.wrong = 0
        self.unlike: dict[str, str] = {}

    def told(self, name: str, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Try a call that is said to be the same; what torch returned is compared."""
        if name not in self._said:
            return
        layer = function if self._said[name].kind == "layer" else None
        key = repr((name, _shape(args), _shape(kwargs), str(layer)))
        if key in self.done or name.endswith("_") or getattr(layer, "inplace", False):
            return  # what writes into its argument has done so by now
        self.done.add(key)
        answer = self._in_mindspore(name, layer, args, kwargs)
        unlike = answer.error or differences("", answer_of(output), answer)
        self.wrong += bool(unlike)
        if unlike:
            self.unlike[f"{name} {_shape(args)} {_shape(kwargs)}"[:160]] = unlike.partition("\n")[0][:160]

    def _in_mindspore(self, name: str, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Answer:
        entry = self._entry(name)
        try:
            function = find(entry.name)
            if layer is not None:
                function = take_values(_built(function, layer, entry.arguments), layer)
            elif not callable(function):
                function = reader_of(entry.name)
            given = {key: value for key, value in kwargs.items() if key not in LEFT_OUT}
            named = {entry.arguments.get(key, key): _there(value) for key, value in given.items()}
            named.pop("", None)
            return answer_of(function(*map(_there, args), **named))
        except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
            return Answer(error=f"{type(error).__name__}: {error}")

    def _entry(self, name: str) -> Any:
        from align.rules.ascend_rules import api_entries

        return api_entries()[name].answer("cpu")[1]


def _shape(value: Any) -> Any:
    """Shapes and dtypes in the place of tensors."""
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)) and type(value) in (tuple, list):
        return [_shape(one) for one in value]
    return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") and hasattr(value, "shape") else value


def _there(value: Any) -> Any:
    """An argument as MindSpore takes it."""
    import mindspore
    import torch

    if torch.is_tensor(value):
        return mindspore.Tensor(value.detach().numpy())
    if isinstance(value, torch.dtype):
        return getattr(mindspore, str(value).rpartition(".")[2])
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_there, value))
    return value


def _built(counterpart: Any, layer: Any, renamed: Any) -> Any:
    """The counterpart, built with the settings of a layer that are not torch's defaults."""
    import torch

    kind = next(one for one in type(layer).__mro__ if getattr(torch.nn, one.__name__, None) is one)
    if "Transformer" in kind.__name__ and hasattr(layer, "layers"):
        inner = _built(find(f"mindspore.nn.{type(layer.layers[0]).__name__}"), layer.layers[0], {})
        return counterpart(inner, len(layer.layers))
    arguments, required = {}, []
    maker = torch.nn.RNNBase if issubclass(kind, torch.nn.RNNBase) else kind  # the others take any arguments
    for name, parameter in inspect.signature(maker.__init__).parameters.items():
        value = _setting(layer, name)
        if (
            name in (*LEFT_OUT, "self", "mode", "dtype")
            or value is inspect.Parameter.empty
            or value == parameter.default
        ):
            continue
        if parameter.default is inspect.Parameter.empty:
            required.append(value)
        elif (given := renamed.get(name, name)) != "":
            arguments[given] = value
    return counterpart(*required, **arguments).set_train(False)


def _setting(layer: Any, name: str) -> Any:
    """What a constructor's argument was, as the layer keeps it."""
    if name == "bias":
        return any(key.endswith("bias") or "bias_" in key for key in layer.state_dict())
    derived = {
        "d_model": lambda: layer.self_attn.embed_dim,
        "nhead": lambda: layer.self_attn.num_heads,
        "dim_feedforward": lambda: layer.linear1.out_features,
        "layer_norm_eps": lambda: layer.norm1.eps,
        "batch_first": lambda: getattr(layer, "batch_first", None) or getattr(layer.self_attn, "batch_first", False),
        "activation": lambda: layer.activation.__name__,
        "dropout": lambda: layer.dropout if isinstance(layer.dropout, float) else layer.dropout.p,
        "_weight": lambda: None,
    }
    if hasattr(layer, "self_attn") and name in derived:
        return derived[name]()
    if name == "add_bias_kv":
        return layer.bias_k is not None
    return getattr(layer, name, inspect.Parameter.empty)


if __name__ == "__main__":
    sys.exit(main())
