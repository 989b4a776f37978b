"""The README shows what the command prints. `XE_GOLDEN=write pytest tests/test_readme.py` writes it anew."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from xe_sizer.cli.main import main

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"(<!-- output -->\n)(.*?)(<!-- /output -->)", re.DOTALL)


def test_readme_shows_the_real_output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["estimate", "examples/lora-llama-2-70b.yaml"]) == 0
    block = f"```\n{capsys.readouterr().out.rstrip()}\n```\n"
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    if os.environ.get("XE_GOLDEN") == "write":
        readme.write_text(SHOWN.sub(lambda match: match[1] + block + match[3], text), encoding="utf-8")
    shown = SHOWN.search(readme.read_text(encoding="utf-8"))
    assert shown is not None
    assert shown[2] == block
