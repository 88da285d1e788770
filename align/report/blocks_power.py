"""What a comparison could have shown: the inputs that move nothing, outputs at an end, and parameters that stay hidden.

Only what is remarkable gets a line, and one line says how the rest is seen: of a model in order that line is all.
"""

from __future__ import annotations

from typing import Any

from align.core.folding import fold_names
from align.core.words import some
from align.report.blocks import Block, Lines
from align.report.numbers import as_float, layer_name, number, share
from align.report.texts import say

NAMES_SHOWN = 6


def power_blocks(power: dict[str, Any] | None, *, show_all: bool = False) -> list[Block]:
    """Show the power of a forward comparison; None says that nobody measured it."""
    if power is None:
        return [Lines(say("power.title"), (say("power.not_measured"),), "open")]
    lines = (*_inputs(power), *_outputs(power["outputs"], show_all), *_parameters(power["parameters"], show_all))
    blind = [name for name, factor in power["inputs"].items() if as_float(factor) <= 1.0]
    return [Lines(say("power.title"), lines, "open" if blind or power["unmeasured"] else "plain")]


def _inputs(power: dict[str, Any]) -> list[str]:
    moved = [
        say(f"power.{'input_moves' if as_float(factor) > 1.0 else 'input_hidden'}", name=name, factor=number(factor))
        for name, factor in power["inputs"].items()
    ]
    return moved + [say("power.unmeasured", name=name, reason=why) for name, why in power["unmeasured"].items()]


def _outputs(outputs: list[dict[str, Any]], show_all: bool) -> list[str]:
    kinds = {
        "constant": [one for one in outputs if one["state"] == "constant"],
        "saturated": [one for one in outputs if one["state"] == "saturated"],
        "unmoved": [one for one in outputs if one["factor"] is not None and as_float(one["factor"]) <= 1.0],
    }
    return [
        say(
            f"power.{kind}",
            count=number(len(own)),
            total=number(len(outputs)),
            names=_listed(map(_named, own), show_all),
        )
        for kind, own in kinds.items()
        if own
    ]


def _named(output: dict[str, Any]) -> str:
    return f"{layer_name(output['module'], output['call'], output['output'])} ({output['class_name']})"


def _parameters(parameters: list[dict[str, Any]], show_all: bool) -> list[str]:
    kinds: dict[str, list[str]] = {}
    for one in sorted(parameters, key=lambda one: -one["blind"] / one["elements"]):
        detail = {"partly blind": share(one["blind"], one["elements"]), "weakly seen": _percent(one["shows_at"])}
        tail = f" ({detail[one['state']]})" if one["state"] in detail else ""
        kinds.setdefault(one["state"], []).append(one["name"] + tail)
    keys = {"blind": "blind", "partly blind": "partly_blind", "weakly seen": "weakly_seen", "unknown": "unknown"}
    lines = [
        say(f"power.{key}", count=number(len(kinds[state])), names=_listed(kinds[state], show_all))
        for state, key in keys.items()
        if state in kinds
    ]
    seen = [one for one in parameters if one["state"] in ("seen", "partly blind")]
    least = max(seen, key=lambda one: as_float(one["shows_at"]), default=None)
    if least is None:
        return lines
    facts = {"count": number(len(seen)), "share": _percent(least["shows_at"]), "name": least["name"]}
    return [*lines, say("power.seen", **facts)]


def _percent(relative: float | str | None) -> str:
    return f"{number(100 * as_float(relative), 2)} %"


def _listed(names: Any, show_all: bool) -> str:
    folded = fold_names(names)
    return some(folded, len(folded) if show_all else NAMES_SHOWN)
