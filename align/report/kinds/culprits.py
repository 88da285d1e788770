"""The parts of a port that are at fault shown: where, how far, why, and what to write.

They open a forward report as one panel, since the headline of a notebook is one block; a table holds all of them
where the panel does not, and in the report.
"""

from __future__ import annotations

from typing import Any

from align.names.user_rules import fold_names
from align.report.blocks import (
    NONE,
    Block,
    Facts,
    Lines,
    Row,
    Table,
    Tone,
    as_float,
    first_names,
    fold_rows,
    format_fact,
    format_facts,
    format_number,
    format_shape,
    layer_name,
    table_columns,
    verdict_block,
)
from align.report.thresholds import CODE_LINES_SHOWN, CULPRITS_IN_PANEL, NAMES_ON_A_LINE
from align.rules.pitfalls import pitfalls
from align.runs.rung import CAUSES
from align.words.catalogue import listed, say, word

ALIKE = ("reference_class", "candidate_class", "part", "cause", "sureness", "change")
OPEN_STATES = ("bypassed", "not seen")  # modules never called do nothing
SETTINGS = ("reference", "candidate")
OF_ENTRIES = ("entries", "wrong", "axis_length")
SHOWN_ELSEWHERE = ("calls", "batch", *OF_ENTRIES, *SETTINGS)  # facts with a place of their own

FUNCTION_TEXTS = {
    "": "first_unlike",
    "result": "other_result",
    "result or before": "other_result_or_before",
    "scaled input": "scaled_input",
    "other table": "other_table",
    "other input": "other_input",
    "missing step": "missing_step",
    "missing behind": "missing_behind",
    "extra step": "extra_step",
    "dropped result": "dropped_result",
}

NEVER_GIVEN = "weights-never-given"
NOT_LOOKED_AT = "not-looked-inside"
DUMPS = "dumps-compared"

Culprit = dict[str, Any]
Layer = dict[str, Any]
Pairs = list[tuple[str, str]]


def culprit_blocks(document: dict[str, Any], *, show_all: bool) -> list[Block]:
    """Panel of the first culprits of a `mindalign.forward` document; all as a table with `show_all`, or if more."""
    culprits = document.get("culprits", [])  # results of older versions have none
    if not culprits:
        return []
    panel = _panel(culprits, document)
    return [panel, _table(culprits)] if show_all or len(_alike(culprits)) > CULPRITS_IN_PANEL else [panel]


def culprit_groups(document: dict[str, Any]) -> list[tuple[list[Culprit], Pairs]]:
    """Return the culprits of a `mindalign.forward` document, those of one cause together, with what is shown."""
    return [(group, _facts(group, document)) for group in _alike(document.get("culprits", []))]


def is_culprit(layer: Layer, culprits: list[Culprit]) -> bool:
    """Tell whether a row of the table is that of a culprit; of repeated calls the first and all that are off alone."""
    return layer.get("part", "output") == "output" and any(
        (one["candidate"], one["reference"]) == (layer["candidate"], layer["reference"])
        and (one["call"] == layer["call"] or (one["call"] < layer["call"] and _is_off_alone(layer)))
        for one in culprits
    )


def cause_words(cause: str) -> str:
    """Say what the cause of a culprit is; ids that another version knows stay as they are."""
    effects = {rule.id: rule.effect for rule in pitfalls()}
    causes = [(one, effects.get(one) or word("cause", one)) for one in cause.split(CAUSES)]
    named = [one if one == effect else say("culprit.named", id=one, effect=effect) for one, effect in causes]
    return listed(named, "; ")


def _panel(culprits: list[Culprit], document: dict[str, Any]) -> Facts:
    facts: Pairs = []
    groups = culprit_groups(document)
    for place, (_, labelled) in enumerate(groups[:CULPRITS_IN_PANEL], 1):
        facts += [(f"{place if index == 0 else '':<3}{label}", text) for index, (label, text) in enumerate(labelled)]
    if rest := sum(len(group) for group, _ in groups[CULPRITS_IN_PANEL:]):
        facts.append(("", say("culprit.more", count=format_number(rest))))
    return Facts(_title(culprits, document), tuple(facts), "bad")


def _alike(culprits: list[Culprit]) -> list[list[Culprit]]:
    """Put culprits together that differ in the numbers of their names, in how far they are off and in their lines."""
    alike = fold_rows(culprits, lambda one: (one["candidate"], (*(one[key] for key in ALIKE), _settings(one["facts"]))))
    return [group for _, group in alike]


def _title(culprits: list[Culprit], document: dict[str, Any]) -> str:
    """All else follows only if every other row is right alone, or a reason is stated, and every module was seen."""
    layers = document["layers"]
    named = {path for culprit in culprits for path in (culprit["candidate"], culprit["facts"].get("shows_at"))}
    open_ends = {
        "unnamed": sum(_is_off_alone(layer) and layer["candidate"] not in named for layer in layers),
        "unjudged": sum(_is_open(layer) for layer in layers),
        "unseen": sum(module["state"] in OPEN_STATES for module in document.get("unseen", [])),
    }
    title = _counted("culprit", len(culprits), "several", "one")
    if hidden := next((run["kind"] for run in document.get("further", []) if run["outcome"] == "not aligned"), ""):
        return title + say(f"culprit.hidden_by_{hidden.replace(' ', '_')}")
    if any(finding["code"] == NEVER_GIVEN for finding in document["findings"]):
        return title + say("culprit.beside_weights")
    if any(finding["code"] == DUMPS for finding in document["findings"]):
        return title + say("culprit.in_dumps")
    open_texts = [_counted("culprit", count, key, f"{key}_one") for key, count in open_ends.items() if count]
    return title + (open_texts[0] if open_texts else say("culprit.all_else"))


def _counted(section: str, count: int, several: str, one: str) -> str:
    return say(f"{section}.{one if count == 1 else several}", count=format_number(count))


def _is_open(layer: Layer) -> bool:
    """Tell whether nobody knows if a row is right: it is off, or not comparable, and not judged alone."""
    return not _is_judged_alone(layer) and layer["outcome"] in ("not aligned", "not comparable")


def _is_judged_alone(layer: Layer) -> bool:
    alone = layer.get("isolated")
    return alone is not None and (alone["outcome"] != "not comparable" or not layer["certain"])


def _is_off_alone(layer: Layer) -> bool:
    alone = layer.get("isolated")
    return alone is not None and alone["outcome"] == "not aligned"


def _facts(group: list[Culprit], document: dict[str, Any]) -> Pairs:
    layers, not_looked_at = document["layers"], any(one["code"] == NOT_LOOKED_AT for one in document["findings"])
    first = group[0]
    names = [(word("word", side), _names_of_culprits(group, side)) for side in ("candidate", "reference")]
    optional = {
        "difference": _difference(group, layers),
        "settings": _settings(first["facts"]),
        "inside": function_words(first.get("inside")),
        "change": first["change"],
        "line": _lines(group),
        "next": _next_step(first, not_looked_at=not_looked_at),
    }
    fault = [(say("culprit.part"), _part(group)), (say("culprit.cause"), _cause(first))]
    return [*names, *fault, *((say(f"culprit.{key}"), text) for key, text in optional.items() if text)]


def _names_of_culprits(group: list[Culprit], side: str) -> str:
    if len(group) == 1:
        return _name(group[0], side)
    names = listed(fold_names(one[side] for one in group))
    return f"{names}  ({group[0][f'{side}_class'] or NONE})"


def _name(culprit: Culprit, side: str) -> str:
    return f"{layer_name(culprit[side], culprit['call'])}  ({culprit[f'{side}_class'] or NONE})"


def _part(group: list[Culprit]) -> str:
    """Say what is at fault, and how far the worst of the group is off."""
    factor = max(as_float(one["factor"]) for one in group)
    far = say("culprit.beyond") if factor == float("inf") else say("culprit.times", factor=format_number(factor))
    if len(group) > 1:
        return say("culprit.far", part=word("part", group[0]["part"]), far=say("culprit.up_to", far=far))
    calls = say("culprit.calls", count=group[0]["facts"]["calls"]) if "calls" in group[0]["facts"] else ""
    batch = say("culprit.batch", batch=group[0]["facts"]["batch"]) if "batch" in group[0]["facts"] else ""
    facts = group[0]["facts"]
    entries = say("culprit.entries", **{key: facts[key] for key in OF_ENTRIES}) if "entries" in facts else ""
    return say("culprit.far", part=word("part", group[0]["part"]), far=far) + calls + batch + entries


def _lines(group: list[Culprit]) -> str:
    lines = list(dict.fromkeys(one["line"] for one in group if one["line"]))
    return first_names(lines, CODE_LINES_SHOWN)


def _cause(culprit: Culprit) -> str:
    sureness = word("sureness", culprit["sureness"])
    if not culprit["cause"]:
        return _with_hint(sureness, culprit["facts"])
    facts = format_facts({key: value for key, value in culprit["facts"].items() if key not in SHOWN_ELSEWHERE})
    because = say("culprit.because", sureness=sureness, cause=cause_words(culprit["cause"]))
    return say("word.in_brackets", text=because, more=facts) if facts else because


def _with_hint(sureness: str, facts: dict[str, Any]) -> str:
    """Say what was seen of a difference whose cause is not known."""
    if "hint" not in facts:
        return sureness
    figures = format_facts({key: value for key, value in facts.items() if key not in ("hint", *SHOWN_ELSEWHERE)})
    seen = word("cause", facts["hint"]) or facts["hint"]
    return say("culprit.seen", sureness=sureness, seen=seen, facts=figures)


def function_words(call: dict[str, Any] | None) -> str:
    """Say which functional call of the code is at fault; results of older versions have none."""
    if not call:
        return ""
    return say(
        f"culprit.{FUNCTION_TEXTS[call['difference']]}",
        sureness=word("sureness", call["sureness"]),
        function=call["function"],
        lines=first_names(call["lines"], CODE_LINES_SHOWN),
        reference=call["reference_function"],
        reference_line=call["reference_line"],
        factor=format_number(call["factor"]),
    )


def _next_step(culprit: Culprit, *, not_looked_at: bool) -> str:
    """Say how to have a confirmed change made, and what would tell more of a part that nothing is known of."""
    if culprit["sureness"] == "confirmed" and culprit["change"] and culprit["line"]:
        return say("culprit.next_of_change")
    if culprit["cause"] or (culprit.get("inside") or {}).get("difference"):
        return ""
    if not_looked_at and not culprit.get("inside"):
        return say("culprit.next_of_time")
    if culprit["part"] == "layer":
        return say("culprit.next_of_layer", layer=culprit["candidate"] or NONE)
    return say("culprit.next_of_code", line=culprit["line"] or layer_name(culprit["candidate"], culprit["call"]))


def _settings(facts: dict[str, Any]) -> str:
    if not set(SETTINGS) <= set(facts):
        return ""
    return say("culprit.both", **{side: format_fact(facts[side]) for side in SETTINGS})


def _difference(group: list[Culprit], layers: list[Layer]) -> str:
    """The figure of the layer's output alone that is farthest from its limit; none if the fault is before it."""
    if group[0]["part"] == "inputs":
        return ""
    rows = [layer for layer in layers if is_culprit(layer, group) and layer.get("isolated")]
    worst = max(rows, key=lambda layer: as_float(layer["isolated"]["factor"] or 0.0), default=None)
    if worst is None:
        return ""
    alone = worst["isolated"]
    if alone["measurement"] is None:
        return str(worst["note"] or alone["note"])
    if count := int(alone["measurement"]["non_finite_mismatch"]):
        bad = {side: sum(int(alone["measurement"][f"{kind}_{side}"]) for kind in ("nan", "inf")) for side in SETTINGS}
        kind = {"shape": format_shape(worst["reference_shape"]), "dtype": worst["candidate_dtype"]}
        return say("culprit.non_finite", count=count, total=int(alone["measurement"]["count"]), **bad, **kind)
    bound = max(("max_abs", "rmse"), key=lambda name: _ratio(alone, name))
    figures = {"value": format_number(alone["measurement"][bound]), "limit": format_number(alone["limit"][bound])}
    figures |= {"shape": format_shape(worst["reference_shape"]), "dtype": worst["candidate_dtype"]}
    return say(f"culprit.{bound}", index=format_shape(alone["measurement"]["worst"]), **figures)


def _ratio(alone: dict[str, Any], bound: str) -> float:
    value, limit = (as_float(alone[of][bound]) for of in ("measurement", "limit"))
    return value / limit if limit > 0.0 else value


def _table(culprits: list[Culprit]) -> Table:
    columns = table_columns(
        "#:number word.candidate:path word.reference:path:wide culprit.part:words forward.factor:number "
        "culprit.cause:words culprit.settings:words:wide culprit.change:words culprit.line:path:wide"
    )
    return Table(say("culprit.table"), columns, tuple(_row(place, one) for place, one in enumerate(culprits, 1)))


def _row(place: int, culprit: Culprit) -> Row:
    cells = (
        format_number(place),
        _name(culprit, "candidate"),
        _name(culprit, "reference"),
        word("part_short", culprit["part"]),
        format_number(culprit["factor"]),
        _cause(culprit),
        _settings(culprit["facts"]),
        culprit["change"],
        culprit["line"],
    )
    return Row(cells, "bad")


# The changes of a port shown: how many faults at how many places, the patch, what is refused, and what remains.

Document = dict[str, Any]


def fix_blocks(document: Document, *, show_all: bool = False) -> list[Block]:
    """Show a `mindalign.fix` document; `show_all` names all layers."""
    return [
        _headline(document),
        *_places(document["places"], show_all=show_all),
        *patch_blocks(document),
        *_refused(document["refused"], show_all=show_all),
        *_after(document["after"]),
        *_kept(document),
        *(
            [Lines(say("fix.next"), tuple(document["next_commands"]), commands=True)]
            if document["next_commands"]
            else []
        ),
        *([verdict_block(document["verdict"])] if document["verdict"] else []),
    ]


def patch_blocks(document: Document) -> list[Block]:
    """The patches alone, line by line as they are to be pasted."""
    return [Lines(patch_title(one), tuple(one["text"].splitlines()), commands=True) for one in document["patches"]]


def patch_title(patch: Document) -> str:
    """Where a patch is to be applied."""
    return say("fix.patch_of_package" if patch["package"] else "fix.patch", **patch)


def _headline(document: Document) -> Lines:
    """What matters first: parts made worse and how to put all back, else how much can be changed."""
    worse = [one for one in (document["after"] or {"faults": []})["faults"] if one["state"] == "worse"]
    if worse:
        command = document["next_commands"][0]
        return Lines("", (say("fix.worse_headline", count=len(worse), command=command),), "bad")
    if document["state"] == "undone":
        return Lines("", (say("fix.undone", names=document["restored"]), say("fix.undone_headline")), "good")
    if not document["faults"]:
        return Lines("", (say("fix.nothing"),), "open")
    key = "fix.applied_headline" if document["state"] == "applied" else "fix.headline"
    facts = {"places": len(document["places"]), "refused": len(document["refused"]), "faults": _changed(document)}
    return Lines("", (say(key, **facts),), "good" if document["places"] else "open")


def _changed(document: Document) -> int:
    """Faults that are changed: all but those of refused layers."""
    return max(int(document["faults"]) - sum(len(one["layers"]) for one in document["refused"]), 0)


def _places(places: list[Document], *, show_all: bool) -> list[Block]:
    columns = table_columns("fix.place:path fix.change:words fix.layers:words fix.cause:words")
    rows = []
    for one in places:
        change = say("fix.from_to", before=one["before"], after=one["after"])
        layers = _names_of_layers(one["layers"], show_all=show_all)
        rows.append(Row((f"{one['file']}:{one['line']}", change, layers, cause_words(one["cause"]))))
    return [Table(say("fix.title"), columns, tuple(rows))] if rows else []


def _names_of_layers(layers: list[str], *, show_all: bool) -> str:
    folded = [name or say("fix.model") for name in fold_names(layers)]
    shown = first_names(folded, len(folded) if show_all else NAMES_ON_A_LINE)
    return say("word.labelled", label=len(layers), text=shown)


def _refused(refused: list[Document], *, show_all: bool) -> list[Block]:
    lines = []
    for one in refused:
        layers = [_names_of_layers(one["layers"], show_all=show_all)]
        lines.append(say("fix.refused_line", layers=layers, cause=cause_words(one["cause"]), reason=one["reason"]))
    return [Lines(say("fix.refused"), tuple(lines), "open")] if lines else []


def _after(after: Document | None) -> list[Block]:
    if after is None:
        return []
    faults = after["faults"]
    groups = fold_rows(faults, lambda one: (one["candidate"], (one["state"], one["cause"])))
    lines = tuple(_line(name or say("fix.model"), group) for name, group in groups)
    tone: Tone = "good" if all(one["state"] == "gone" for one in faults) else "bad"
    blocks: list[Block] = [Lines(say("fix.after", command=after["command"]), lines, tone)] if faults else []
    return [*blocks, *_rungs(after["rungs"])]


def _line(name: str, parts: list[Document]) -> str:
    """Parts of one cause whose names differ in numbers only, in one line."""
    state, first = parts[0]["state"], parts[0]
    facts = {"cause": cause_words(first["cause"]), "line": first["line"] if state != "gone" else ""}
    layer = f"{name} ({len(parts)})" if len(parts) > 1 else name
    return say("fix.after_line", layer=layer, state=word("fix_state", state), **facts)


def _rungs(rungs: list[Document]) -> list[Block]:
    columns = table_columns("ladder_table.rung fix.before fix.now ladder_table.reason")
    rows = tuple(
        Row(
            (one["name"], _state(one["before"]), _state(one["after"]), one["reason"]),
            "good" if one["after"] == "passed" else "bad" if one["after"] == "failed" else "plain",
        )
        for one in rungs
    )
    return [Table(say("fix.rungs"), columns, rows)] if rows else []


def _state(state: str) -> str:
    return word("rung_state", state) if state else ""


def _kept(document: Document) -> list[Block]:
    keys = {"fix.kept": document["backup"], "fix.overlay": document["overlay"] if document["backup"] else ""}
    lines = tuple(say(key, folder=folder) for key, folder in keys.items() if folder)
    return [Lines("", lines)] if lines else []
