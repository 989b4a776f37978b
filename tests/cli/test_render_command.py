import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import FIXTURES, Ran

Cli = Callable[..., Ran]


def test_a_saved_result_in_another_format(cli: Cli) -> None:
    ran = cli("render", FIXTURES / "sft-too-big.json", "--format", "markdown")
    assert ran.code == 1
    assert ran.out.startswith("### ❌ DOES NOT FIT")
    assert cli("render", FIXTURES / "sft-too-big.json", "--exit-zero").code == 0


def test_json_of_json_is_the_same(cli: Cli, tmp_path: Path) -> None:
    once = cli("render", FIXTURES / "lora.json", "--format", "json").out
    file = tmp_path / "again.json"
    file.write_text(once)
    assert cli("render", file, "--format", "json").out == once


def test_stdin(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (FIXTURES / "lora.json").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert cli("render", "-", "--format", "github").out.startswith("::notice title=")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "not a saved result"),
        ("[]", "not a saved result"),
        ('{"schema_version": 1,\n "x": }', "file.json:2:7: not a saved result"),
        ('{"schema_version": 2}', "schema_version is 2; this xe-sizer reads 1"),
        ('{"schema_version": 1}', "missing required field `tool_version`"),
        ("\x00\xff", "not a saved result"),
    ],
)
def test_what_is_no_result_is_bad_input(cli: Cli, tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text, encoding="latin-1")
    ran = cli("render", file)
    assert ran.code == 2
    assert error in ran.err
    assert "Traceback" not in ran.err


def test_a_missing_file_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    assert "cannot read: No such file" in cli("render", tmp_path / "none.json").err
    assert cli("render", tmp_path).code == 2
