"""docs/doctor.md says what its command finds, and names every option and finding that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import align
from align.lint import examine_environment as examined
from align.report.kinds.doctor import doctor_blocks
from align.runs.run_folder import as_document


@pytest.mark.frameworks
def test_the_slow_convolution_is_said_where_the_processor_has_it(page, monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    machine = examined.machine_facts() | {"processor": "AuthenticAMD avx avx2 avx512f"}
    monkeypatch.setattr(examined, "machine_facts", lambda: machine)
    shown = " ".join(str(doctor_blocks(as_document(examined.examine_environment(), {}, hashed=False))).split())
    quoted = page.blocks("console")[0].partition("\n")[2]
    assert " ".join(quoted.split()) in shown
    assert "ready: " in shown
    assert "aligned" not in shown
    assert "('numpy', '" in shown
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert "mindspore-convolution: it is" not in str(
        doctor_blocks(as_document(examined.examine_environment(), {}, hashed=False))
    )


def test_the_page_names_every_option_and_finding(page):
    table = page.text.split("## In detail")[1]
    assert set(re.findall(r"^\| `(--[a-z-]+)", table, re.MULTILINE)) == page.known_options()
    source = (Path(align.__file__).parent / "lint" / "examine_environment.py").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z][a-z-]+)` ", table, re.MULTILINE)) == set(
        re.findall(r'Finding\("([a-z-]+)"', source)
    )
