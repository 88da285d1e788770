"""Names of the files that MindSpore's Dump writes, and which module an operator belongs to.

`Conv2D.Default_conv1-Conv2d_Conv2D-op0.0.0.TIME.output.0.DefaultFormat.Float32.npy` is the first output of the operator
`Default/conv1-Conv2d/Conv2D-op0`. The slashes are lost in names of files; the list of the order of execution has them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FILE = re.compile(
    r"(?P<type>[^.]+)\.(?P<name>.+)\.(?P<task>[0-9]+)\.(?P<stream>[0-9]+)\.(?P<time>[0-9]+)"
    r"\.(?P<way>input|output)\.(?P<slot>[0-9]{1,4})(\.[A-Za-z0-9_]+){0,2}\.npy"
)
_SCOPE = re.compile(r"(?P<name>[^-/]+)-(?P<class>[^-/]+)")
_OPERATOR = re.compile(r"[^/_]+-op[0-9]+")
ROOT = "Default"


@dataclass(frozen=True, slots=True)
class Scope:
    """The module that an operator runs in, the classes on the way to it, and the operator's own name."""

    module: str
    class_name: str
    operator: str


def read_scope(full_name: str) -> Scope | None:
    """The scope of an operator by its name with slashes; None for one outside of the network, as of gradients.

    >>> read_scope("Default/layers-SequentialCell/0-Dense/MatMul-op3")
    Scope(module='layers.0', class_name='Dense', operator='MatMul-op3')
    """
    root, *inner = full_name.split("/")
    if root != ROOT or not inner:
        return None
    operator = inner.pop()
    found = [_SCOPE.fullmatch(part) for part in inner]
    path = [one["name"] for one in found if one]
    last = found[-1] if found else None
    return Scope(".".join(path), last["class"] if last else "", operator)


def guess_full_name(name: str) -> str:
    """The name with slashes, where no list has it: right unless a module's name holds an underscore.

    >>> guess_full_name("Default_conv1-Conv2d_Conv2D-op0")
    'Default/conv1-Conv2d/Conv2D-op0'
    """
    root, _, rest = name.partition("_")
    found = _OPERATOR.search(rest)
    if found is None or found.end() != len(rest):
        return name
    scopes = re.findall(r"(?:^|_)((?:[^-_]+(?:_[^-_]+)*?)-[^-_]+)(?=_)", rest[: found.start()])
    return "/".join([root, *scopes, found[0]])
