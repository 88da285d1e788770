"""Written ports as cases: folders with `original.py` (build, inputs) and `port.py` (build), as in tests/planted/ports.

The port takes the original's values by the tool's own map, which tests hold: with it all outputs are right.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from _cases import Case

if TYPE_CHECKING:
    from pathlib import Path


def is_written(folder: Path, name: str) -> bool:
    """Tell whether a case is a folder with a written port."""
    return (folder / name / "port.py").exists()


def open_written(folder: Path, name: str) -> Case:
    """A written port with the original's values, and what both are run on."""
    import mindspore

    from align.names.map_parameters import map_parameters

    original, port = (_load(folder / name / f"{side}.py", f"{name}_{side}") for side in ("original", "port"))
    model, net = original.build().eval(), port.build()
    given = {key: original.inputs()[key] for key in inspect.signature(model.forward).parameters}
    name_map = map_parameters(model, net, inputs=given).name_map
    values = {key: value.detach().numpy() for key, value in model.state_dict().items()}
    made = {pair.target: pair.transform.apply(values[pair.source]) for pair in name_map.pairings}
    parameters = {parameter.name: parameter for parameter in net.get_parameters()}
    for key, parameter in parameters.items():
        parameter.set_data(mindspore.Tensor(np.ascontiguousarray(made[key])))
    net.set_train(False)
    return Case(name, port, model, net, name_map, given, parameters, flatten=_flatten)


def _load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _flatten(returned: Any) -> list[np.ndarray]:
    """Tensors of either framework, or tuples of them."""
    if isinstance(returned, tuple):
        return [value for one in returned for value in _flatten(one)]
    return [returned.detach().numpy() if hasattr(returned, "detach") else returned.asnumpy()]
