"""The section of the changes of a port: the places, the patch as text, the layers, and what remained after it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from align.report.kind_parts.fixed_port import fix_blocks, patch_blocks, patch_title
from align.report.page.page_blocks import block_html
from align.words.catalogue import say

if TYPE_CHECKING:
    from align.runs.run_folder import RunFolder


def fix_section(folder: RunFolder) -> str:
    """Return the section of the last `align fix` of a run folder; "" where there is none, or where it was undone."""
    document = folder.read("fix")
    if document is None or document["state"] == "undone" or not document["faults"]:
        return ""
    shown = [one for one in fix_blocks(document) if one not in patch_blocks(document)]
    patches = "".join(
        f"<h3>{escape(patch_title(one))}</h3><pre>{escape(one['text'])}</pre>" for one in document["patches"]
    )
    body = "".join(map(block_html, shown[:1])) + patches + "".join(map(block_html, shown[1:]))
    title = escape(say("page.fix_applied" if document["state"] == "applied" else "page.fix_planned"))
    return (
        f'<section id="fix" class="rung fix"><details open><summary class="head"><h2>{title}</h2></summary>'
        f'<div class="body">{body}</div></details></section>'
    )
