"""The changes of a port shown: how many faults at how many places, the patch, what is refused, and what remains."""

from __future__ import annotations

from typing import Any

from align.names.fold_names import fold_alike, fold_names
from align.report.kind_parts.forward_culprits import cause_words
from align.report.rendering.blocks import Block, Column, Lines, Row, Table, Tone, verdict_block
from align.report.thresholds import NAMES_ON_A_LINE
from align.words.catalogue import say, word

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
    columns = (
        Column(say("fix.place"), "path"),
        Column(say("fix.change"), "words"),
        Column(say("fix.layers"), "words"),
        Column(say("fix.cause"), "words"),
    )
    rows = tuple(
        Row(
            (
                f"{one['file']}:{one['line']}",
                say("fix.from_to", before=one["before"], after=one["after"]),
                _names(one["layers"], show_all=show_all),
                cause_words(one["cause"]),
            )
        )
        for one in places
    )
    return [Table(say("fix.title"), columns, rows)] if rows else []


def _names(layers: list[str], *, show_all: bool) -> str:
    folded = [name or say("fix.model") for name in fold_names(layers)]
    shown = folded if show_all else folded[:NAMES_ON_A_LINE]
    rest = len(folded) - len(shown)
    return f"{len(layers)}: {', '.join(shown)}" + (say("word.and_more", count=rest) if rest else "")


def _refused(refused: list[Document], *, show_all: bool) -> list[Block]:
    lines = tuple(
        say(
            "fix.refused_line",
            layers=[_names(one["layers"], show_all=show_all)],
            cause=cause_words(one["cause"]),
            reason=one["reason"],
        )
        for one in refused
    )
    return [Lines(say("fix.refused"), lines, "open")] if lines else []


def _after(after: Document | None) -> list[Block]:
    if after is None:
        return []
    faults = after["faults"]
    groups = fold_alike((one["candidate"], "|".join((one["state"], one["cause"]))) for one in faults)
    lines = tuple(_line(name or say("fix.model"), [faults[number] for number in own]) for name, own in groups)
    tone: Tone = "good" if all(one["state"] == "gone" for one in faults) else "bad"
    blocks: list[Block] = [Lines(say("fix.after", command=after["command"]), lines, tone)] if faults else []
    return [*blocks, *_rungs(after["rungs"])]


def _line(name: str, own: list[Document]) -> str:
    """Parts of one cause whose names differ in numbers only, in one line."""
    state, first = own[0]["state"], own[0]
    facts = {"cause": cause_words(first["cause"]), "line": first["line"] if state != "gone" else ""}
    layer = f"{name} ({len(own)})" if len(own) > 1 else name
    return say("fix.after_line", layer=layer, state=word("fix_state", state), **facts)


def _rungs(rungs: list[Document]) -> list[Block]:
    columns = (
        Column(say("ladder_table.rung")),
        Column(say("fix.before")),
        Column(say("fix.now")),
        Column(say("ladder_table.reason")),
    )
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
