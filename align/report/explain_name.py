"""What one pair of a name map rests on, told in the place of the whole map."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from align.errors import UsageError
from align.names.fold_names import fold_names
from align.report.blocks import NONE
from align.report.kinds.names import transform_text
from align.words.catalogue import say, word


def explained_name(document: dict[str, Any], name: str) -> list[str]:
    """What the pairs of a parameter of either side rest on, or why it has none; raises UsageError for no such name."""
    name_map = document["name_map"]
    pairs = [one for one in name_map["pairings"] if name in (one["source"], one["target"])]
    lines = [line for one in pairs for line in _explained_pair(one, name_map)]
    for group in name_map["ambiguous"]:
        if name in (*group["sources"], *group["targets"]):
            lines.append(say("explain.open", name=name, reason=group["reason"]))
            lines += [say("explain.rival", side=side, names=fold_names(group[side])) for side in ("sources", "targets")]
    for kind in ("unmatched", "dropped"):
        lines += [
            say(f"explain.{kind}", name=name, reason=one["reason"]) for one in name_map[kind] if one["name"] == name
        ]
    if not lines:
        known = [one["name"] for side in ("source", "target") for one in document.get(f"{side}_parameters", ())]
        raise UsageError.of("names_error.no_parameter", name=name, closest=get_close_matches(name, known, 3))
    return lines


def _explained_pair(pair: dict[str, Any], name_map: dict[str, Any]) -> list[str]:
    form = transform_text(pair["transform"])
    facts = {"source": pair["source"], "target": pair["target"], "form": "" if form == NONE else form}
    found = word("evidence", pair["evidence"])
    lines = [say("explain.pair", **facts), say("explain.found", evidence=found, confidence=pair["confidence"])]
    lines += [say("explain.note", note=pair["note"])] if pair["note"] else []
    flow = sorted(name_map.get("flow", ()), key=lambda one: one["uses"][0])
    for at, one in enumerate(flow):
        if (one["source"], one["target"]) == (pair["source"], pair["target"]):
            places = {"first": one["uses"][0] + 1, "second": one["uses"][1] + 1, "kind": one["kind"]}
            lines.append(say("explain.place", **places, rows=one["rows"], width=one["width"]))
            lines.append(say(f"explain.by_{one['by']}", rivals=one["rivals"]))
            around = (flow[:at][-1:], flow[at + 1 : at + 2])
            before, behind = (own[0]["source"] if own else say("explain.nothing") for own in around)
            lines.append(say("explain.around", before=before, behind=behind))
            break
    return lines
