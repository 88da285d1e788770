"""The page on `align loss` shows what the command prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from align.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "loss.md").read_text(encoding="utf-8")


def _shown() -> list[tuple[str, str]]:
    """Return (command, output) of each block of the page that starts with a prompt."""
    blocks: list[tuple[str, str]] = []
    for line in PAGE.splitlines():
        text = line.removeprefix("    ")
        if line.startswith("    $ "):
            blocks.append((text.removeprefix("$ "), ""))
        elif blocks and line.startswith("    ") and not blocks[-1][1].endswith("\n\n"):
            blocks[-1] = (blocks[-1][0], blocks[-1][1] + text + "\n")
        elif blocks:
            blocks[-1] = (blocks[-1][0], blocks[-1][1].rstrip("\n") + "\n\n")
    return [(command, output.strip()) for command, output in blocks]


@pytest.mark.parametrize(("command", "output"), _shown())
def test_the_page_shows_real_output(
    command: str, output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    main(shlex.split(command)[1:])
    captured = capsys.readouterr()
    assert "\n".join(line.rstrip() for line in (captured.out + captured.err).strip().splitlines()) == output


def test_the_last_example_is_real_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    logs = [f"tests/losslogs/data/mindcv_{name}.log" for name in ("rank0", "result")]
    assert main(["loss", *logs, "--candidate-steps-per-epoch", "4"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    example = PAGE.partition("ends with exit code 0 and:\n\n")[2].partition("\n\n## ")[0]
    shown = [line.removeprefix("    ") for line in example.splitlines() if line.strip()]
    assert len(shown) == 7
    assert [line for line in printed if line in shown] == shown
