"""`gpu: auto`: the accelerators that their makers' tools find on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from xe_sizer.profiles.installed import installed_accelerators
from xe_sizer.scenario.read import BadScenarioError, read_scenario

ASKED = {"model": "llama-2-7b", "gpu": "auto"}
AMD = '{"card0": {"Card Series": "AMD Instinct MI300X"}, "card1": {"Card Series": "AMD Instinct MI300X"}, "system": {}}'


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    installed_accelerators.cache_clear()
    yield
    installed_accelerators.cache_clear()


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools in place of those of this machine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, text: str, code: int = 0) -> None:
    lines = "\n".join(f"echo '{line}'" for line in text.splitlines())
    (folder / name).write_text(f"#!/bin/sh\n{lines}\nexit {code}\n")
    (folder / name).chmod(0o755)


def test_nvidia_s_cards_are_named_and_counted(tools: Path) -> None:
    put(tools, "nvidia-smi", "NVIDIA H100 80GB HBM3, 81559\n" * 4)
    found = read_scenario(None, ASKED, {})
    assert (found.values.gpu, found.values.gpus, found.origin["gpus"]) == ("NVIDIA H100 80GB HBM3", 4, "flag")


def test_cards_of_one_name_are_told_apart_by_their_memory(tools: Path) -> None:
    put(tools, "nvidia-smi", "NVIDIA GeForce RTX 4090, 24564")
    assert read_scenario(None, ASKED, {}).values.gpu == "NVIDIA GeForce RTX 4090 24GB"


def test_the_most_of_different_cards_are_meant(tools: Path) -> None:
    put(tools, "nvidia-smi", "NVIDIA L4, 23034\nNVIDIA L40S, 46068\nNVIDIA L40S, 46068")
    found = read_scenario(None, ASKED, {}).values
    assert (found.gpu, found.gpus) == ("NVIDIA L40S", 2)


def test_amd_s_are_asked_where_nvidia_has_none(tools: Path) -> None:
    put(tools, "nvidia-smi", "driver not loaded", code=9)
    put(tools, "rocm-smi", AMD)
    found = read_scenario(None, ASKED, {}).values
    assert (found.gpu, found.gpus) == ("AMD Instinct MI300X", 2)


def test_a_number_of_gpus_stays(tools: Path) -> None:
    put(tools, "nvidia-smi", "NVIDIA H100 80GB HBM3, 81559\n" * 8)
    assert read_scenario(None, ASKED | {"gpus": 2}, {}).values.gpus == 2
    assert read_scenario(None, ASKED | {"nodes": 1}, {}).values.gpus is None


def test_none_is_bad_input(tools: Path) -> None:
    put(tools, "rocm-smi", "no JSON")
    with pytest.raises(BadScenarioError) as caught:
        read_scenario(None, ASKED, {})
    (problem,) = caught.value.problems
    assert str(problem.location) == "--gpu"
    assert problem.message == "no accelerator found on this machine: asked nvidia-smi and rocm-smi"
