"""`align plugins`: what is installed, what is missing, and how to get it."""

from __future__ import annotations

from typing import Annotated

import typer

from align.cli.parts.output import print_json


def plugins_command(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> int:
    """List frameworks, formats of checkpoints, logs, dumps and settings, and model families; say what can be used."""
    from align.core.registry import INSTALL_HINT, plugin_states
    from align.rules.model_families import model_families

    rows = []
    for state in plugin_states(try_import=False):
        hint = "; ".join(INSTALL_HINT.get(package, f"pip install {package}") for package in state.missing)
        rows.append(
            {
                "room": state.kind,
                "name": state.plugin.name,
                "summary": state.plugin.summary,
                "state": f"missing: {hint}" if state.missing else "ready",
            }
        )
    families = (
        {"room": "families", "name": one.name, "summary": one.about, "state": "ready"} for one in model_families()
    )
    rows.extend(families)
    if json:
        import json as json_module

        print_json(json_module.dumps(rows, indent=1))
    else:
        from align.report.show_result import print_plugins

        print_plugins(rows)
    return 0
