"""`measure` and `profiles detect` from the command line, as far as no PyTorch is needed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xe_sizer.profiles.installed import installed_accelerators

from .conftest import FIXTURES, Ran

Cli = Callable[..., Ran]


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def test_without_torch_it_is_one_sentence_and_the_line_that_installs_it(
    cli: Cli, no_torch: None, tmp_path: Path
) -> None:
    ran = cli("measure", "-o", str(tmp_path / "mine"))
    assert ran.code == 2
    assert ran.err.splitlines() == [
        "xe-sizer: measuring needs PyTorch, which is not installed",
        "  hint: pip install 'xe-sizer[measure]'",
    ]
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--steps", "none"), "'none' is no number of steps"),
        (("--name", "My GPU"), "'My GPU' cannot be the name of a profile"),
        (("--format", "pdf"), "there is no format 'pdf'"),
    ],
)
def test_what_cannot_be_asked(cli: Cli, no_torch: None, options: tuple[str, ...], said: str) -> None:
    ran = cli("measure", *options)
    assert ran.code == 2
    assert said in ran.err


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of tools in place of those of this machine."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    installed_accelerators.cache_clear()
    yield folder
    installed_accelerators.cache_clear()


def put_smi(folder: Path) -> None:
    """An nvidia-smi of one H100 that answers each of the questions that are asked of it."""
    script = (
        "#!/bin/sh\n"
        'case "$*" in\n'
        "*name,memory.total,memory.used*) echo 'NVIDIA H100 80GB HBM3, 81559, 1024, 3, 700.00, 5, 16, 580.159.04';;\n"
        "*name,memory.total*) echo 'NVIDIA H100 80GB HBM3, 81559';;\n"
        "esac\n"
    )
    (folder / "nvidia-smi").write_text(script)
    (folder / "nvidia-smi").chmod(0o755)


def test_detect_names_the_card_and_its_profile(cli: Cli, tools: Path) -> None:
    put_smi(tools)
    ran = cli("profiles", "detect")
    assert ran.code == 0
    assert "1 x NVIDIA H100 80GB HBM3" in ran.out
    for part in (
        "79.65",
        "700",
        "generation 5, 16 lanes",
        "580.159.04",
        "h100-sxm-80gb",
        "xe-sizer measure -o measured",
    ):
        assert part in ran.out
    found = json.loads(cli("profiles", "detect", "-f", "json").out)
    assert next(iter(found)) == "schema_version"
    assert found["gpus"][0]["profile"] == "h100-sxm-80gb"
    assert found["gpus"][0]["bus"] == {"gen": 5, "lanes": 16}


def test_detect_knows_a_profile_that_was_measured_here(cli: Cli, tools: Path, tmp_path: Path) -> None:
    put_smi(tools)
    measured = (
        "{date: '2026-11-27', device: H100, software: torch, laws: [], samples: 9, median_error: 0, p90_error: 0.1}"
    )
    text = f"name: h100-sxm-80gb\ninherits: h100-sxm-80gb\nmeasured: {measured}\n"
    (tmp_path / "h100-sxm-80gb.yaml").write_text(text)
    ran = cli("profiles", "detect", "--profiles", str(tmp_path))
    assert "h100-sxm-80gb, measured here on 2026-11-27" in ran.out
    assert "xe-sizer measure -o" not in ran.out
    ran = cli("estimate", "--model", "qwen2.5-0.5b", "--job", "lora", "--gpu", "auto", "--profiles", str(tmp_path))
    assert "Kernels were measured on your machine, 2026-11-27." in ran.out


def test_detect_without_a_card_says_how_to_measure_the_processor(cli: Cli, tools: Path) -> None:
    ran = cli("profiles", "detect")
    assert ran.code == 0
    assert "no accelerator: asked nvidia-smi and rocm-smi" in ran.out
    assert "xe-sizer measure --device cpu" in ran.out


def test_a_saved_measurement_is_laid_out_at_any_width(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (60, 80, 120):
        monkeypatch.setenv("COLUMNS", str(columns))
        ran = cli("render", str(FIXTURES / "studies" / "measurement.json"))
        assert ran.code == 0
        assert max(map(len, ran.out.splitlines())) <= columns
        assert "MEASURED" in ran.out
        assert "matmul.bf16" in ran.out


def test_the_page_has_a_roofline(cli: Cli) -> None:
    page = cli("render", str(FIXTURES / "studies" / "measurement.json"), "-f", "html").out
    assert "Roofline" in page
    assert "<svg" in page
    assert "FLOP per byte" in page
