"""Names of calls in msprobe's dumps: which module or function was called, the how manieth time, in which direction.

`Module.layers.0.Linear.forward.0` is a call of torch's module `layers.0`, `Cell.` one of MindSpore's;
`Functional.conv2d.0.forward` is one of a function, and stands for a module of its own inside the one that calls it, as
functions do in traces of our own: `conv1/conv2d`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Direction = Literal["forward", "backward", "parameters_grad"]
_MODULE = re.compile(
    r"(?:Module|Cell)\.(?:(?P<path>.+)\.)?(?P<class>[^.]+)\.(?P<way>forward|backward|parameters_grad)\.(?P<call>[0-9]{1,9})"
)
_FUNCTION = re.compile(r"(?P<name>[A-Z]\w*\..+)\.(?P<call>[0-9]{1,9})\.(?P<way>forward|backward)")


@dataclass(frozen=True, slots=True)
class MsprobeCall:
    """One call; `depth` counts those around it."""

    module: str
    call: int
    class_name: str
    way: str
    depth: int = 0


@dataclass(slots=True)
class CallNames:
    """The calls that names stand for; `parents` names, by the name of a call, the one that runs around it.

    Functions are counted anew in each module, forwards; their calls backwards are those of the same name.
    """

    parents: Mapping[str, str]
    _known: dict[str, tuple[str, int]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def read(self, name: str) -> MsprobeCall | None:
        """The call of a name, None for a name of no known form."""
        if found := _MODULE.fullmatch(name):
            path = "" if found["path"] is None else found["path"]
            return MsprobeCall(path, int(found["call"]), found["class"], found["way"], self._depth(name))
        found = _FUNCTION.fullmatch(name)
        if found is None:
            return None
        key = f"{found['name']}.{found['call']}"
        if key not in self._known:
            around = _MODULE.fullmatch(self.parents.get(name, ""))
            module = f"{around['path'] or ''}/{found['name']}" if around else f"/{found['name']}"
            self._known[key] = module, self._counts.get(module, 0)
            self._counts[module] = self._counts.get(module, 0) + 1
        function = found["name"].rpartition(".")[2].replace("_", "").lower()
        return MsprobeCall(*self._known[key], function, found["way"], self._depth(name))

    def _depth(self, name: str) -> int:
        """How many calls run around it; those of a circle count once."""
        seen: set[str] = set()
        while name in self.parents and name not in seen:
            seen.add(name)
            name = self.parents[name]
        return len(seen)
